// Shared by the scenarios of the model.
#pragma once

#include <vector>

#include "model/callers.hpp"
#include "model/mover_steps.hpp"

namespace tiermem::model {

using WordScenario = Scenario<World>;

inline WordScenario scenario(const char* name) {
  WordScenario made;
  made.name = name;
  made.broken = broken;
  made.ends_badly = ends_badly;
  made.show = show;
  return made;
}

/// The buffer has been written once. Its bytes are only in a frame on the host.
inline World written_on_host() {
  World world;
  world.words[kHost].set_phase(Phase::incoming);
  world.words[kHost].set_dirty();
  world.words[kHost].set_phase(Phase::exclusive);
  world.newest = world.frame[kHost] = world.versions = 1;
  return world;
}

inline WordScenario::Actor viewer(const char* name, Flaw flaw, std::vector<Caller::View> views) {
  return {name, [flaw, views](World& world, Turn& turn) {
            Caller caller(world, turn, flaw);
            for (const Caller::View& view : views) {
              (void)caller.view(view);
            }
          }};
}

}  // namespace tiermem::model
