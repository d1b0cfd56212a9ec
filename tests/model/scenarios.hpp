// The scenarios of the model. Each has a few actors that do little, so that all orders of their
// steps can be explored. Together they take every existing change of phase.
#pragma once

#include <vector>

#include "model/scenario.hpp"
#include "model/spare_scenarios.hpp"

namespace tiermem::model {

/// Two callers hit the extent while it is written to a slot, leaves, and returns from its slot.
inline WordScenario one_space(Flaw flaw) {
  WordScenario made = scenario("one space");
  made.world = written_on_host();
  made.actors = {
      viewer("reader", flaw, {{.writes = false}, {.writes = false}}),
      viewer("writer", flaw, {{.writes = true}, {.writes = true}}),
      {"mover",
       [flaw](World& world, Turn& turn) {
         while (turn.round(2)) {
           MoverSteps mover(world, turn, flaw);
           mover.evict(kHost);
           if (!mover.readable(kHost)) {
             mover.promote(kHost);
           }
         }
       }},
  };
  return made;
}

/// A buffer is freed while readers use it. Its extent becomes another buffer's, which is used.
inline WordScenario next_life(Flaw flaw) {
  WordScenario made = scenario("the extent's next life");
  made.world = written_on_host();
  made.actors = {
      viewer("reader", flaw, {{.writes = false}}),
      viewer("writer", flaw, {{.writes = true}}),
      {"owner",
       [flaw](World& world, Turn& turn) {
         Caller caller(world, turn, flaw);
         caller.mark_freed();
         turn.step([&] { world.signal = 1; });  // Posts the free.
         turn.wait([&] { return world.signal == 2; }, [] {});
         turn.op([&] { world.words[kHost].set_phase(Phase::zero); });
         caller.reuse();
         turn.step([&] { world.signal = 3; });  // Touches the buffer, and misses.
         turn.wait([&] { return world.signal == 4; }, [] {});
         (void)caller.view({.writes = true, .generation = 3});
       }},
      {"mover",
       [flaw](World& world, Turn& turn) {
         MoverSteps mover(world, turn, flaw);
         turn.wait([&] { return world.signal == 1; }, [] {});
         mover.finish_free();
         turn.step([&] { world.signal = 2; });
         turn.wait([&] { return world.signal == 3; }, [] {});
         mover.promote(kHost);
         turn.step([&] { world.signal = 4; });
       }},
  };
  return made;
}

/// A device gets a copy while the host's copy is written, and loses it again to a writer.
inline WordScenario two_spaces(Flaw flaw) {
  WordScenario made = scenario("two spaces");
  made.world = written_on_host();
  made.actors = {
      viewer("host", flaw, {{.writes = true}, {.writes = true}}),
      viewer("device", flaw, {{.space = kDevice}}),
      {"mover",
       [flaw](World& world, Turn& turn) {
         MoverSteps mover(world, turn, flaw);
         mover.promote(kDevice);
         (void)mover.demote(kHost);
         mover.take_away(kDevice);
       }},
  };
  return made;
}

/// The host's frame leaves its window to be copied to a device, and returns when a view on the host
/// needs it.
inline WordScenario goes_home(Flaw flaw) {
  WordScenario made = scenario("a frame goes home");
  made.world = written_on_host();
  made.actors = {
      viewer("reader", flaw, {{.writes = false}, {.writes = false}}),
      viewer("writer", flaw, {{.writes = true}}),
      {"mover",
       [flaw](World& world, Turn& turn) {
         MoverSteps mover(world, turn, flaw);
         mover.until([&] { return mover.begin_promote(kDevice); });
         const bool home = mover.take_home();
         mover.copy_from(kHost, kDevice);
         mover.take_away(kDevice);
         if (home) {
           mover.show();
         }
       }},
  };
  return made;
}

/// The extent gets a frame of another memory, twice, while views of it come and go.
inline WordScenario relocates(Flaw flaw) {
  WordScenario made = scenario("an extent relocates");
  made.world = written_on_host();
  made.actors = {
      viewer("reader", flaw, {{.writes = false}, {.writes = false}}),
      viewer("writer", flaw, {{.writes = true}, {.writes = true}}),
      {"mover",
       [flaw](World& world, Turn& turn) {
         MoverSteps mover(world, turn, flaw);
         mover.until([&] { return mover.relocate(kHost); });
         (void)mover.demote(kHost);
         mover.until([&] { return mover.relocate(kHost); });
       }},
  };
  return made;
}

/// A stream gets its view while its bytes are still on their way. A writer takes the only copy
/// away.
inline WordScenario stream_takes_over(Flaw flaw, bool fails) {
  WordScenario made = scenario("a stream takes over");
  made.world = written_on_host();
  made.actors = {
      viewer("writer", flaw, {{.writes = true}}),
      viewer("reader", flaw, {{.writes = false}}),
      {"stream",
       [flaw](World& world, Turn& turn) {
         if (turn.wait([&] { return world.signal != 0; }, [&] { return world.signal == 2; }) == 0) {
           // The copy has arrived. The view that the mover pinned for the stream is used, and ends.
           Caller(world, turn, flaw).use({.space = kDevice, .writes = true});
         }
       }},
      {"mover",
       [flaw, fails](World& world, Turn& turn) {
         MoverSteps mover(world, turn, flaw);
         mover.until([&] { return mover.begin_promote(kDevice); });
         mover.until([&] { return mover.copy_once(kHost) && mover.take_over(kHost); });
         turn.step([&] { world.frame[kDevice] = world.copying; });
         if (fails) {  // The copy fails before any view was granted: give_back_source.
           mover.set_phase(kHost, Phase::exclusive);
           turn.step([&] { world.frame[kDevice] = kNothing; });
           mover.set_phase(kDevice, Phase::none);
           mover.end_copy(kHost);
           turn.step([&] { world.signal = 2; });
           return;
         }
         turn.op([&] {
           world.words[kDevice].pin_incoming(true);
           return ++world.writers[kDevice];
         });
         turn.op([&] { world.words[kDevice].set_dirty(); });
         mover.set_phase(kDevice, Phase::exclusive);
         mover.finish_evict(kHost);
         mover.end_copy(kHost);
         turn.step([&] { world.signal = 1; });
         mover.until([&] { return mover.leave(kDevice, true, true); });
       }},
  };
  return made;
}

/// A mapped extent: the program writes it without a pin while the window shows it.
inline WordScenario mapped(Flaw flaw) {
  constexpr std::uint8_t kShown = 1, kTouched = 2, kOver = 4;
  WordScenario made = scenario("a mapped extent");
  made.world.slot = made.world.newest = made.world.versions = 1;
  made.actors = {
      viewer("viewer", flaw, {{.writes = true}}),
      {"program",
       [](World& world, Turn& turn) {
         const auto write = [&] {
           const bool shown = (world.signal & kShown) != 0;
           shown ? world.write(kHost) : (void)(world.signal |= kTouched);
           return shown;
         };
         while (turn.round(2)) {
           while (turn.step(write) == 0) {  // A fault: the touch is repeated after the answer.
             turn.wait([&] { return (world.signal & kTouched) == 0; }, [] {});
           }
         }
         turn.step([&] { world.signal |= kOver; });
       }},
      {"mover",
       [flaw](World& world, Turn& turn) {
         MoverSteps mover(world, turn, flaw);
         mover.set_phase(kHost, Phase::incoming);
         mover.set_phase(kHost, Phase::none);  // Parts::publish, of some pages of the extent.
         mover.set_phase(kHost, Phase::outgoing);
         mover.set_phase(kHost, Phase::none);
         const auto show = [&] {
           turn.step([&] { world.signal = (world.signal | kShown) & ~kTouched; });
         };
         for (int out = 0; out < 2; ++out) {
           if (turn.wait([&] { return (world.signal & (kTouched | kOver)) != 0; },
                         [&] { return world.signal & kTouched; }) == 0) {
             return;
           }
           mover.set_phase(kHost, Phase::incoming);
           mover.read(kHost);
           mover.land(kHost, true, Phase::exclusive);
           show();
           if (!mover.enter_outgoing(kHost, true)) {
             return;
           }
           turn.step([&] { world.signal &= ~kShown; });  // The extent leaves the window atomically.
           turn.step([&] { world.slot = world.frame[kHost]; });
           if (out == 1 || turn.step([&] { return world.signal & kTouched; }) != 0) {
             show();
             mover.set_phase(kHost, Phase::exclusive);  // stay: it was recalled.
             return;
           }
           mover.finish_evict(kHost);
         }
       }},
  };
  return made;
}

/// The process forks between two transfers. In the child only the forking thread and the mover
/// continue. Pins of other threads stay.
inline WordScenario fork(Flaw flaw) {
  WordScenario made = scenario("a fork");
  made.world = written_on_host();
  made.actors = {
      {"mover",
       [flaw](World& world, Turn& turn) {
         while (turn.round(3)) {
           MoverSteps mover(world, turn, flaw);
           turn.step([&] { world.signal = 0; });
           mover.evict(kHost);
           if (!mover.readable(kHost)) {
             mover.promote(kHost);
           }
           turn.step([&] { world.signal = 1; });  // StandStill::stand.
         }
       }},
      {"forker",
       [flaw](World& world, Turn& turn) {
         turn.wait([&] { return world.signal == 1 || flaw == Flaw::fork_under_way; },
                   [&] {
                     const Phase phase = world.phase(kHost);
                     if (phase == Phase::incoming || phase == Phase::outgoing) {
                       turn.fail("the child has a transfer that never ends");
                     }
                     world.forked = 1;
                   });
         (void)Caller(world, turn, flaw).view({.writes = true});
       }},
      viewer("reader", flaw, {{.writes = false}}),
      viewer("writer", flaw, {{.writes = true}}),
  };
  made.gone = [](const World& world, std::size_t actor) { return world.forked != 0 && actor >= 2; };
  return made;
}

/// Several failures in a row, while a caller tries to read.
inline WordScenario trouble(Flaw flaw) {
  WordScenario made = scenario("trouble");
  made.world.words[kHost].set_phase(Phase::zero);
  made.actors = {
      viewer("reader", flaw, {{.writes = false}}),
      viewer("device", flaw, {{.space = kDevice, .writes = false}}),
      {"mover",
       [flaw](World& world, Turn& turn) {
         MoverSteps mover(world, turn, flaw);
         const auto lose = [&] {
           turn.step([&] {
             world.slot = kNothing;
             world.newest = kLost;
           });
           mover.set_phase(kHost, Phase::lost);
         };
         // A promote that fails, before and after its frame was in the window.
         const auto fails = [&](Phase origin) {
           mover.set_phase(kHost, Phase::incoming);
           mover.set_phase(kHost, origin);
           mover.set_phase(kHost, Phase::incoming);
           mover.set_phase(kHost, Phase::outgoing);
           mover.set_phase(kHost, origin);
         };
         const auto overwrite = [&] {
           mover.set_phase(kHost, Phase::incoming);
           turn.step([&] { world.write(kHost); });
           mover.land(kHost, true, Phase::exclusive);
         };
         fails(Phase::zero);
         overwrite();
         mover.until([&] { return mover.leave(kHost, true, true); });  // Dropped.
         mover.set_phase(kHost, Phase::lost);
         fails(Phase::lost);
         overwrite();
         mover.until([&] {
           mover.evict(kHost);
           return !mover.readable(kHost);
         });
         fails(Phase::none);
         lose();  // drop_from_slots.
         turn.step([&] { world.newest = kZeros; });
         mover.set_phase(kHost, Phase::zero);  // discard
       }},
  };
  return made;
}

/// A device with the only copy is lost. Its extent is overwritten there, and slots move to another
/// extent.
inline WordScenario device_lost(Flaw flaw) {
  WordScenario made = scenario("a device is lost");
  made.world.words[kHost].set_phase(Phase::zero);
  made.actors = {
      viewer("host", flaw, {{.writes = false}}),
      viewer("device", flaw, {{.space = kDevice, .writes = true}}),
      {"mover",
       [flaw](World& world, Turn& turn) {
         MoverSteps mover(world, turn, flaw);
         mover.promote(kDevice);
         mover.until([&] { return mover.leave(kDevice, true, true); });  // let_go_of_lost
         mover.set_phase(kHost, Phase::lost);
         mover.set_phase(kDevice, Phase::incoming);
         turn.step([&] { world.write(kDevice); });
         mover.set_phase(kHost, Phase::none);
         mover.land(kDevice, true, Phase::exclusive);
         mover.until([&] {
           mover.evict(kDevice);
           return !mover.readable(kDevice);
         });
         // hand_over: the slot moves to another extent and back.
         const auto slot = turn.step([&] {
           const std::uint8_t had = world.slot;
           world.slot = kNothing;
           world.newest = kZeros;
           return had;
         });
         mover.set_phase(kHost, Phase::zero);
         turn.step([&] { world.newest = world.slot = static_cast<std::uint8_t>(slot); });
         mover.set_phase(kHost, Phase::none);
       }},
  };
  return made;
}

inline std::vector<WordScenario> all_scenarios(Flaw flaw) {
  return {one_space(flaw),
          next_life(flaw),
          spare_leaves(flaw, false),
          spare_leaves(flaw, true),
          spare_is_promoted(flaw),
          spare_is_awaited(flaw),
          two_spaces(flaw),
          goes_home(flaw),
          relocates(flaw),
          stream_takes_over(flaw, false),
          stream_takes_over(flaw, true),
          mapped(flaw),
          fork(flaw),
          trouble(flaw),
          device_lost(flaw)};
}

}  // namespace tiermem::model
