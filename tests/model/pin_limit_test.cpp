// The limit of pins, in every order of the steps of more threads than the limit admits. The word of
// residency/extent_state.hpp has counts of two bits here, which hold 3, and a limit of 1. While one
// view is held, two more threads can add a pin that they must remove. One more thread fills the
// count, which then carries into its neighbour. The model must find the resulting loss.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <string>

#include "model/explorer.hpp"
#include "residency/extent_state.hpp"

namespace tiermem::model {
namespace {

using SmallBits = BasicExtentBits<2, 2, 1>;
static_assert(SmallBits::kMostAdders == 2);
using SmallWord = BasicExtentWord<ModelAtomic, SmallBits>;

constexpr std::uint8_t kNone = 255;

// One extent. It is written to a slot once while views come and go, and leaves if it can.
struct Small {
  SmallWord word{};
  std::uint8_t frame = 0;     // Version of the bytes. kNone: no frame.
  std::uint8_t slot = kNone;  // Version in the slot.
  std::uint8_t newest = 0;
  std::uint8_t copied = 0;  // Version that the copy in progress has read.
  std::uint8_t readers = 0, writers = 0;
  std::array<std::uint8_t, 2> unused{};  // No padding.

  SmallBits bits() const { return {std::bit_cast<std::uint64_t>(word)}; }
};

unsigned answers_seen;  // One bit for each Pin result that a thread has received.

const char* broken(const Small& world) {
  const SmallBits bits = world.bits();
  if (bits.readable() && !bits.dirty() && world.slot != world.newest) {
    return "clean, but the slot has older bytes";
  }
  if (!bits.readable() && (world.readers != 0 || world.writers != 0)) {
    return "a view is held of what may move";
  }
  if (world.frame != world.newest && world.slot != world.newest) {
    return "the newest bytes are nowhere";
  }
  return world.readers > 1 || world.writers > 1 ? "more views than the limit" : nullptr;
}

const char* ends_badly(const Small& world) {
  return world.bits().pinned()    ? "a pin is left"
         : world.bits().copying() ? "marked as being copied for ever"
                                  : nullptr;
}

Scenario<Small>::Actor viewer(const char* name, bool writes) {
  return {name, [writes](Small& world, Turn& turn) {
            const auto pinned = static_cast<Pin>(turn.op([&] {
              const Pin answer = writes ? world.word.pin_write() : world.word.pin_read();
              world.readers += answer == Pin::ok && !writes ? 1 : 0;
              world.writers += answer == Pin::ok && writes ? 1 : 0;
              answers_seen |= 1u << static_cast<unsigned>(answer);
              return answer;
            }));
            if (pinned != Pin::ok) {
              return;
            }
            turn.step([&] {
              if (writes) {
                world.newest = ++world.frame;
              }
              --(writes ? world.writers : world.readers);
            });
            if (turn.op([&] {
                  return writes ? world.word.unpin_write() : world.word.unpin_read();
                }) == 0) {
              turn.fail("a pin has gone");
            }
          }};
}

Scenario<Small> scenario(const char* name, unsigned writers, unsigned readers) {
  Scenario<Small> made;
  made.name = name;
  made.world.word.set_phase(Phase::incoming);
  made.world.word.set_dirty();
  made.world.word.set_phase(Phase::exclusive);
  made.broken = broken;
  made.ends_badly = ends_badly;
  made.show = [](const Small& world) {
    const SmallBits bits = world.bits();
    return fmt::format("{}{}{} r{} w{} frame {} slot {} newest {}", phase_name(bits.phase()),
                       bits.dirty() ? " dirty" : "", bits.copying() ? " copying" : "",
                       bits.readers(), bits.writers(), world.frame, world.slot, world.newest);
  };
  for (unsigned i = 0; i < writers + readers; ++i) {
    made.actors.push_back(viewer(i < writers ? "writer" : "reader", i < writers));
  }
  made.actors.push_back({"mover", [](Small& world, Turn& turn) {
                           turn.op([&] { return world.word.start_copy(); });
                           turn.step([&] { world.copied = world.frame; });
                           turn.op([&] {
                             const bool clean = world.word.publish_clean();
                             world.slot = clean ? world.copied : world.slot;
                             return clean;
                           });
                           turn.op([&] { world.word.end_copy(); });
                           turn.op([&] {
                             const bool leaves = world.word.try_outgoing(false);
                             world.frame = leaves ? kNone : world.frame;
                             return leaves;
                           });
                         }});
  return made;
}

std::string explore(const Scenario<Small>& made) {
  answers_seen = 0;
  Explorer<Small> explorer(made);
  std::string found = explorer.explore();
  std::printf("%s: %zu states\n", made.name, explorer.states());
  return found;
}

constexpr unsigned kAllAnswers = 1u << static_cast<unsigned>(Pin::ok) |
                                 1u << static_cast<unsigned>(Pin::miss) |
                                 1u << static_cast<unsigned>(Pin::busy);

TEST(PinLimitModel, three_writers_meet_a_limit_of_one_then_no_write_is_lost) {
  EXPECT_EQ(explore(scenario("three writers", 3, 0)), "");
  EXPECT_EQ(answers_seen, kAllAnswers);
}

TEST(PinLimitModel, three_readers_meet_a_limit_of_one_then_no_view_is_lost) {
  EXPECT_EQ(explore(scenario("three readers", 0, 3)), "");
  EXPECT_EQ(answers_seen, kAllAnswers);
}

TEST(PinLimitModel, more_threads_than_the_count_has_room_for_lose_a_pin) {
  const std::string found = explore(scenario("four writers", 4, 0));
  EXPECT_EQ(found.substr(0, found.find('\n')), "four writers: a pin has gone") << found;
}

// A reader's pin is removed once too often. The count of readers must not borrow from another
// count, and no writer may be hidden from a copy.
TEST(PinLimitModel, a_readers_pin_is_removed_twice_then_no_writer_is_hidden) {
  Scenario<Small> made = scenario("removed twice", 2, 0);
  made.actors.push_back({"stray", [](Small& world, Turn& turn) {
                           if (turn.op([&] { return world.word.unpin_read(); }) != 0) {
                             turn.fail("a pin that is not there was removed");
                           }
                         }});
  EXPECT_EQ(explore(made), "");
}

}  // namespace
}  // namespace tiermem::model
