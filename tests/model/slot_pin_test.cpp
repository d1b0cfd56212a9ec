// Pins in the slots of views (residency/views.hpp), in every order of the steps of callers and
// mover, on a processor that delays stores. The caller that fills a slot has a store buffer with
// one entry: its loads may run before its last store is visible. Its next store, an atomic change
// by it, the mover's heavy fence, or the processor by itself makes the store visible. The words are
// the real ones.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "model/explorer.hpp"
#include "residency/extent_state.hpp"

namespace tiermem::model {
namespace {

// Ways to break the protocol. The model must find each of them.
enum class SlotFlaw {
  none,
  no_fence,             // The mover reads the slots without a fence.
  no_scan,              // The mover takes the end of the bias for the end of its pins.
  bias_stays,           // The mover reads the slots, and callers may fill them afterwards.
  fence_first,          // The fence precedes the end of the bias.
  no_look_at_word,      // A caller trusts the word that it read before it filled the slot.
  no_look_at_dirty,     // A writer's slot holds a clean extent.
  no_generation_check,  // A caller does not look at the generation after it filled the slot.
  count_unchecked,      // The mover counts a pin, and does not look whether the view has ended.
  no_fence_for_count,   // It looks without a fence.
  counted_unseen,       // A caller that ends its view does not look whether its pin was counted.
  both_take_off,        // Both take off the pin that was counted.
  silent_release,       // A release does not tell the mover.
  silent_undo,          // A slot that is freed because it came too late does not tell the mover.
};

using BiasedWord = BasicExtentWord<ModelAtomic>;

constexpr std::uint8_t kNotThere = 255, kFree = 0;

// One extent of one buffer, and one slot.
struct Biased {
  BiasedWord word{};
  // The slot as the mover sees it: the number of the view that holds it, twice, plus 1 for a
  // writer.
  std::uint8_t slot = kFree;
  std::uint8_t delayed = kNotThere;  // The caller's store to it that is not visible yet.
  std::uint8_t ended = 0;            // The caller makes no more steps.
  std::uint8_t frame = 1;            // Version of the bytes.
  std::uint8_t stored = kNotThere;   // Version in the block tier.
  std::uint8_t newest = 1, versions = 1;
  std::uint8_t copied = 0;  // Version that the copy in progress has read.
  std::uint8_t readers = 0, writers = 0;
  std::uint8_t generation = 1, life = 1;  // Those of the handle, and of the bytes.
  std::uint8_t pins_wanted = 0, woken = 0;
  std::uint8_t counted = kFree;  // The value of `slot` when the mover counted its pin.
  std::uint8_t views = 0;        // Views of the slot so far.

  ExtentBits bits() const { return {std::bit_cast<std::uint64_t>(word)}; }
  void drain() {
    if (delayed != kNotThere) {
      slot = std::exchange(delayed, kNotThere);
    }
  }
  void store(std::uint8_t value) {
    drain();
    delayed = value;
  }
};

const char* broken(const Biased& world) {
  const ExtentBits bits = world.bits();
  if (bits.biased() && !bits.slot_pins()) {
    return "biased, and slots do not count";
  }
  if (world.readers != 0 && !bits.readable()) {
    return "a view is held of what may move";
  }
  if (world.writers != 0 && !bits.writable()) {
    return "a writer's view is held of what may move";
  }
  if (bits.readable() && !bits.dirty() && world.stored != world.newest) {
    return "clean, but the block tier has older bytes";
  }
  return world.frame != world.newest && world.stored != world.newest
             ? "the newest bytes are nowhere"
             : nullptr;
}

const char* ends_badly(const Biased& world) {
  if (world.slot != kFree || world.delayed != kNotThere) {
    return "a slot is held for ever";
  }
  if (world.bits().counted_pins()) {
    return "a pin is left";
  }
  return world.bits().copying() ? "marked as being copied for ever" : nullptr;
}

// The steps of Residency::hit and Residency::end, with the first handle.
class SlotCaller {
 public:
  SlotCaller(Biased& world, Turn& turn, SlotFlaw flaw) : world_(world), turn_(turn), flaw_(flaw) {}

  // Returns false on a miss.
  bool view_by_slot(bool writes) {
    const auto let_in = [&] {
      const ExtentBits bits = world_.word.load();
      return !writes                               ? bits.readable_by_slot()
             : flaw_ == SlotFlaw::no_look_at_dirty ? bits.readable_by_slot() && bits.writable()
                                                   : bits.writable_by_slot();
    };
    const bool trusts = flaw_ == SlotFlaw::no_look_at_word;
    const bool before = trusts && turn_.op(let_in) != 0;
    const auto life = static_cast<std::uint8_t>(turn_.step([&] {
      const int now = 2 * ++world_.views + (writes ? 1 : 0);
      world_.store(static_cast<std::uint8_t>(now));
      return now;
    }));
    const bool held = (trusts ? before : turn_.op(let_in) != 0) && hold(writes);
    if (held) {
      use(writes);
    }
    turn_.step([&] { world_.store(kFree); });
    if (flaw_ != SlotFlaw::counted_unseen &&
        turn_.step([&] { return world_.counted == life; }) != 0) {
      turn_.step([&] { world_.drain(); });
      if (turn_.step([&] {
            const bool mine = world_.counted == life || flaw_ == SlotFlaw::both_take_off;
            world_.counted = world_.counted == life ? kFree : world_.counted;
            return mine;
          }) != 0) {
        unpin(writes);
      }
    }
    if (flaw_ != SlotFlaw::silent_release && (held || flaw_ != SlotFlaw::silent_undo)) {
      tell();
    }
    return held;
  }
  // The view has a pin that counts, and biases the extent.
  void view_by_count(bool writes) {
    turn_.step([&] { world_.drain(); });
    if (turn_.op([&] { return writes ? world_.word.pin_write() : world_.word.pin_read(); }) !=
        static_cast<std::uint32_t>(Pin::ok)) {
      tell();
      return;
    }
    if (hold(writes)) {
      turn_.op([&] { world_.word.bias(); });
      use(writes);
    }
    unpin(writes);
    tell();
  }

 private:
  void unpin(bool writes) {
    if (turn_.op([&] { return writes ? world_.word.unpin_write() : world_.word.unpin_read(); }) ==
        0) {
      turn_.fail("a pin has gone");
    }
  }
  bool hold(bool writes) {
    constexpr std::uint8_t kHandle = 1;
    return turn_.step([&] {
      if (world_.generation != kHandle && flaw_ != SlotFlaw::no_generation_check) {
        return false;
      }
      if (world_.life != kHandle) {
        turn_.fail("a view shows the bytes of another buffer");
      }
      ++(writes ? world_.writers : world_.readers);
      return true;
    }) != 0;
  }
  void use(bool writes) {
    turn_.step([&] {
      if (writes) {
        world_.newest = world_.frame = ++world_.versions;
      }
      --(writes ? world_.writers : world_.readers);
    });
  }
  void tell() {
    turn_.step([&] { world_.woken |= world_.pins_wanted; });
  }

  Biased& world_;
  Turn& turn_;
  const SlotFlaw flaw_;
};

class SlotMover {
 public:
  SlotMover(Biased& world, Turn& turn, SlotFlaw flaw) : world_(world), turn_(turn), flaw_(flaw) {}

  // Directory::bits. Returns whether the extent is pinned.
  bool pinned() {
    const ExtentBits now{turn_.op([&] { return world_.word.load().bits; })};
    if (now.slot_pins()) {
      count_slot_pins(now.biased());
    }
    return turn_.op([&] { return world_.word.load().pinned(); }) != 0;
  }
  // Writes the bytes down.
  void demote() {
    (void)pinned();
    if (turn_.op([&] { return world_.word.start_copy(); }) == 0) {
      return;
    }
    turn_.step([&] { world_.copied = world_.frame; });
    turn_.op([&] {
      const bool clean = world_.word.publish_clean();
      world_.stored = clean ? world_.copied : world_.stored;
      return clean;
    });
    turn_.op([&] { world_.word.end_copy(); });
  }
  // Returns false if a pin or dirty bytes prevent it.
  bool leave(bool even_dirty) {
    if (pinned() || turn_.op([&] { return world_.word.try_outgoing(even_dirty); }) == 0) {
      return false;
    }
    turn_.step([&] { world_.frame = kNotThere; });
    turn_.op([&] { world_.word.set_phase(Phase::none); });
    return true;
  }
  void promote() {
    turn_.op([&] { world_.word.set_phase(Phase::incoming); });
    turn_.step([&] { world_.frame = world_.stored; });
    turn_.op([&] { world_.word.set_phase(Phase::exclusive); });
  }
  // Waits for the pins, as for a free, and drops the bytes. The buffer that has the extent next
  // begins with bytes of its own.
  void take_for_next_life() {
    for (;;) {
      if (leave_for_good()) {
        break;
      }
      turn_.step([&] {
        world_.woken = 0;
        world_.pins_wanted = 1;
      });
      fence();
      if (leave_for_good()) {
        break;
      }
      turn_.wait([&] { return world_.woken != 0; }, [] {});
    }
    turn_.step([&] { world_.pins_wanted = 0; });
  }

 private:
  bool leave_for_good() {
    if (pinned() || turn_.op([&] { return world_.word.try_outgoing(true); }) == 0) {
      return false;
    }
    turn_.op([&] { world_.word.set_phase(Phase::none); });
    turn_.step([&] {
      world_.life = world_.generation;
      world_.newest = world_.frame = ++world_.versions;
    });
    turn_.op([&] { world_.word.set_phase(Phase::incoming); });
    turn_.op([&] { world_.word.set_dirty(); });
    turn_.op([&] { world_.word.set_phase(Phase::exclusive); });
    return true;
  }
  void fence() {
    turn_.step([&] { world_.drain(); });
  }
  // Residency::count_slot_pins.
  void count_slot_pins(bool biased) {
    if (biased && flaw_ == SlotFlaw::fence_first) {
      fence();
    }
    if (biased && flaw_ != SlotFlaw::bias_stays) {
      turn_.op([&] { world_.word.end_bias(); });
    }
    if (biased && flaw_ != SlotFlaw::no_fence && flaw_ != SlotFlaw::fence_first) {
      fence();
    }
    const auto life = static_cast<std::uint8_t>(turn_.step([&] {
      return world_.slot == world_.counted || flaw_ == SlotFlaw::no_scan ? kFree : world_.slot;
    }));
    const bool all = life == kFree || count_pin(life);
    if (flaw_ == SlotFlaw::bias_stays) {
      turn_.op([&] { world_.word.end_bias(); });
    }
    if (all) {
      turn_.op([&] { world_.word.clear_slot_pins(); });
    }
  }
  bool count_pin(std::uint8_t life) {
    const bool writes = life % 2 != 0;
    const auto lives = [&] { return turn_.step([&] { return world_.slot == life; }) != 0; };
    if (turn_.op([&] { return writes ? world_.word.pin_write() : world_.word.pin_read(); }) !=
        static_cast<std::uint32_t>(Pin::ok)) {
      return !lives();
    }
    turn_.step([&] { world_.counted = life; });
    if (flaw_ != SlotFlaw::no_fence_for_count) {
      fence();
    }
    if (flaw_ != SlotFlaw::count_unchecked && !lives() && turn_.step([&] {
          const bool mine = world_.counted == life || flaw_ == SlotFlaw::both_take_off;
          world_.counted = world_.counted == life ? kFree : world_.counted;
          return mine;
        }) != 0) {
      if (turn_.op([&] { return writes ? world_.word.unpin_write() : world_.word.unpin_read(); }) ==
          0) {
        turn_.fail("a pin has gone");
      }
    }
    return true;
  }

  Biased& world_;
  Turn& turn_;
  const SlotFlaw flaw_;
};

// The bytes are only in the frame, and views are pinned by their slots.
Biased biased() {
  Biased world;
  world.word.set_phase(Phase::incoming);
  world.word.set_dirty();
  world.word.set_phase(Phase::exclusive);
  world.word.bias();
  return world;
}

using SlotScenario = Scenario<Biased>;

SlotScenario::Actor filler(SlotFlaw flaw, std::vector<bool> views, bool else_by_count) {
  return {"filler", [=](Biased& world, Turn& turn) {
            SlotCaller self(world, turn, flaw);
            for (const bool writes : views) {
              if (!self.view_by_slot(writes) && else_by_count) {
                self.view_by_count(writes);
              }
            }
            turn.step([&] { world.ended = 1; });
          }};
}

// A caller without a slot in this world.
SlotScenario::Actor counter(SlotFlaw flaw, bool writes) {
  return {"counter",
          [=](Biased& world, Turn& turn) { SlotCaller(world, turn, flaw).view_by_count(writes); }};
}

// The processor makes delayed stores visible at any time.
SlotScenario::Actor processor() {
  return {"processor", [](Biased& world, Turn& turn) {
            while (turn.round(4)) {
              turn.wait([&] { return world.delayed != kNotThere || world.ended != 0; },
                        [&] { world.drain(); });
            }
          }};
}

SlotScenario scenario(const char* name) {
  SlotScenario made;
  made.name = name;
  made.world = biased();
  made.broken = broken;
  made.ends_badly = ends_badly;
  made.show = [](const Biased& world) {
    const ExtentBits bits = world.bits();
    return fmt::format("{}{}{}{}{} r{} w{} slot {} delayed {} frame {} stored {} newest {}",
                       phase_name(bits.phase()), bits.dirty() ? " dirty" : "",
                       bits.copying() ? " copying" : "", bits.biased() ? " biased" : "",
                       bits.slot_pins() ? " slot pins" : "", bits.readers(), bits.writers(),
                       world.slot, world.delayed, world.frame, world.stored, world.newest);
  };
  return made;
}

// The extent is written down, leaves, and comes back, twice.
SlotScenario::Actor mover_that_evicts(SlotFlaw flaw, unsigned rounds) {
  return {"mover", [=](Biased& world, Turn& turn) {
            while (turn.round(rounds)) {
              SlotMover mover(world, turn, flaw);
              mover.demote();
              if (mover.leave(false)) {
                mover.promote();
              }
            }
          }};
}

SlotScenario leaves(SlotFlaw flaw) {
  SlotScenario made = scenario("it leaves");
  made.actors = {filler(flaw, {true, false}, false), processor(), mover_that_evicts(flaw, 2)};
  return made;
}

// The caller biases it again.
SlotScenario leaves_again(SlotFlaw flaw) {
  SlotScenario made = scenario("it leaves again");
  made.actors = {filler(flaw, {true, true}, true), processor(), mover_that_evicts(flaw, 2)};
  return made;
}

// Another caller biases it.
SlotScenario is_biased(SlotFlaw flaw) {
  SlotScenario made = scenario("it is biased");
  made.world.word.end_bias();
  made.world.word.clear_slot_pins();
  made.actors = {filler(flaw, {true}, false), counter(flaw, false), processor(),
                 mover_that_evicts(flaw, 1)};
  return made;
}

// The buffer is freed while callers view it, and another one gets the extent.
SlotScenario is_freed(SlotFlaw flaw) {
  SlotScenario made = scenario("it is freed");
  made.actors = {filler(flaw, {true}, false),
                 counter(flaw, true),
                 processor(),
                 {"mover", [flaw](Biased& world, Turn& turn) {
                    turn.step([&] { ++world.generation; });
                    SlotMover(world, turn, flaw).take_for_next_life();
                  }}};
  return made;
}

std::vector<SlotScenario> all(SlotFlaw flaw) {
  return {leaves(flaw), leaves_again(flaw), is_biased(flaw), is_freed(flaw)};
}

TEST(SlotPinModel, every_order_of_steps_and_delayed_stores_keeps_every_view_and_byte) {
  for (const SlotScenario& made : all(SlotFlaw::none)) {
    Explorer<Biased> explorer(made);
    const std::string found = explorer.explore();
    EXPECT_TRUE(found.empty()) << found;
    std::printf("%s: %zu states\n", made.name, explorer.states());
  }
}

struct WrongSlot {
  const char* name;
  SlotFlaw flaw;
  const char* found;  // The scenario that finds it, and the message.
};

class WrongSlotPins : public testing::TestWithParam<WrongSlot> {};

TEST_P(WrongSlotPins, are_found) {
  std::string found;
  for (const SlotScenario& made : all(GetParam().flaw)) {
    if (found = Explorer<Biased>(made).explore(); !found.empty()) {
      break;
    }
  }
  EXPECT_EQ(found.substr(0, found.find('\n')), GetParam().found) << found;
}

constexpr const char* kMoved = "it leaves: a view is held of what may move";
constexpr const char* kLeft = "it leaves: a pin is left";
constexpr const char* kDeaf = "it is freed: no actor can go on";

INSTANTIATE_TEST_SUITE_P(
    SlotPinModel, WrongSlotPins,
    testing::Values(WrongSlot{"no_fence", SlotFlaw::no_fence, kMoved},
                    WrongSlot{"no_scan", SlotFlaw::no_scan, kMoved},
                    WrongSlot{"bias_stays", SlotFlaw::bias_stays, kMoved},
                    WrongSlot{"fence_first", SlotFlaw::fence_first, kMoved},
                    WrongSlot{"no_look_at_word", SlotFlaw::no_look_at_word, kMoved},
                    WrongSlot{"no_look_at_dirty", SlotFlaw::no_look_at_dirty,
                              "it is biased: clean, but the block tier has older bytes"},
                    WrongSlot{"no_generation_check", SlotFlaw::no_generation_check,
                              "it is freed: a view shows the bytes of another buffer"},
                    WrongSlot{"count_unchecked", SlotFlaw::count_unchecked, kLeft},
                    WrongSlot{"no_fence_for_count", SlotFlaw::no_fence_for_count, kLeft},
                    WrongSlot{"counted_unseen", SlotFlaw::counted_unseen, kLeft},
                    WrongSlot{"both_take_off", SlotFlaw::both_take_off,
                              "it leaves: a pin has gone"},
                    WrongSlot{"silent_release", SlotFlaw::silent_release, kDeaf},
                    WrongSlot{"silent_undo", SlotFlaw::silent_undo, kDeaf}),
    [](const testing::TestParamInfo<WrongSlot>& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace tiermem::model
