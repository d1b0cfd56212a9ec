// Buffers that are freed, kept as spares, and reused, while other actors still use the handle of
// the previous life.
#pragma once

#include "model/scenario.hpp"

namespace tiermem::model {

/// The buffer is freed, kept as a spare, and reused. If it cannot be kept, the owner asks the mover
/// to free it.
inline WordScenario::Actor spare_user(Flaw flaw, bool writes) {
  return {"owner", [flaw, writes](World& world, Turn& turn) {
            Caller caller(world, turn, flaw);
            if (!caller.make_spare()) {
              turn.step([&] { world.woken = world.signal = 1; });
              return;
            }
            caller.reuse();
            (void)caller.view_vacant({.writes = writes, .generation = 3});
            turn.step([&] { world.signal = 2; });
          }};
}

/// Ends the life of a buffer that could not be kept as a spare.
inline void free_if_asked(World& world, Turn& turn, MoverSteps& mover) {
  if (turn.wait([&] { return world.signal != 0; }, [&] { return world.signal == 1; }) != 0) {
    mover.finish_free();
  }
}

/// The mover wants the spare's frame, and a thread still has the old handle.
inline WordScenario spare_leaves(Flaw flaw, bool writes) {
  WordScenario made = scenario("a spare buffer leaves");
  made.world = written_on_host();
  made.actors = {
      spare_user(flaw, writes),
      viewer("reader", flaw, {{.writes = false}}),
      {"mover",
       [flaw](World& world, Turn& turn) {
         MoverSteps mover(world, turn, flaw);
         mover.evict(kHost);
         free_if_asked(world, turn, mover);
       }},
  };
  return made;
}

/// A device was to get the buffer's bytes: the request was admitted before the buffer was freed.
inline WordScenario spare_is_promoted(Flaw flaw) {
  WordScenario made = scenario("a spare buffer is promoted");
  made.world = written_on_host();
  made.actors = {
      spare_user(flaw, true),
      viewer("reader", flaw, {{.space = kDevice}, {.space = kDevice, .generation = 3}}),
      {"mover",
       [flaw](World& world, Turn& turn) {
         MoverSteps mover(world, turn, flaw);
         mover.promote(kDevice);
         free_if_asked(world, turn, mover);
       }},
  };
  return made;
}

/// A spare is created ahead. Its first user, a thread with a stale handle, and a mover that waits
/// for the frame use it.
inline WordScenario spare_is_awaited(Flaw flaw) {
  WordScenario made = scenario("a spare buffer is awaited");
  made.world.words[kHost].set_phase(Phase::incoming);
  made.world.words[kHost].set_phase(Phase::vacant);
  made.world.frame[kHost] = 1;
  made.world.versions = 1;
  made.world.generation = made.world.life = 3;
  made.actors = {
      {"owner",
       [flaw](World& world, Turn& turn) {
         Caller caller(world, turn, flaw);
         (void)caller.view_vacant({.generation = 3});
         caller.mark_freed();
         turn.step([&] { world.signal = 1; });
       }},
      {"other", [flaw](World& world,
                       Turn& turn) { (void)Caller(world, turn, flaw).view({.generation = 3}); }},
      {"mover",
       [flaw](World& world, Turn& turn) {
         MoverSteps mover(world, turn, flaw);
         turn.wait([&] { return world.signal == 1; }, [] {});
         mover.finish_free();
       }},
  };
  return made;
}

}  // namespace tiermem::model
