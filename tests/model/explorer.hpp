// A model checker for actors that share one world. It explores every order of their atomic steps,
// and visits each state once. The actors call the real code, compiled over ModelAtomic: each access
// to a ModelAtomic is a step, and any other actor may run between two steps.
#pragma once

#include <fmt/format.h>
#include <xxhash.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <vector>

#include "model/turn.hpp"

namespace tiermem::model {

/// The actors and the properties to check. World is trivially copyable and has no padding, because
/// states are compared by bytes.
template <typename World>
struct Scenario {
  const char* name = "";
  World world;
  struct Actor {
    const char* name;
    std::function<void(World&, Turn&)> run;
  };
  std::vector<Actor> actors;
  /// Checks any state. Returns what is wrong, or null.
  std::function<const char*(const World&)> broken;
  /// The same for the state in which all actors have ended.
  std::function<const char*(const World&)> ends_badly;
  /// Returns true if this actor does not run any more.
  std::function<bool(const World&, std::size_t)> gone;
  std::function<std::string(const World&)> show;
};

template <typename World>
class Explorer {
 public:
  explicit Explorer(const Scenario<World>& scenario) : scenario_(scenario) {}

  /// Returns an empty text, or the fault and the steps that lead to it.
  std::string explore() {
    visit(first());
    return failure_;
  }
  std::size_t states() const { return seen_.size(); }

 private:
  struct State {
    World world;
    std::vector<Log> logs;
  };
  State first() const { return {scenario_.world, std::vector<Log>(scenario_.actors.size())}; }

  struct Hash {
    std::size_t operator()(const XXH128_hash_t& hash) const { return hash.low64; }
  };
  struct Same {
    bool operator()(const XXH128_hash_t& a, const XXH128_hash_t& b) const {
      return XXH128_isEqual(a, b) != 0;
    }
  };
  static_assert(std::is_trivially_copyable_v<World> && std::is_trivially_copyable_v<Log>);
  static_assert(std::has_unique_object_representations_v<World> &&
                std::has_unique_object_representations_v<Log>);

  // A hash of 128 bits identifies a state. Two of a million states have the same hash with
  // probability 1e-27.
  bool is_new(const State& state) {
    const std::size_t logs = state.logs.size() * sizeof(Log);
    bytes_.resize(sizeof(World) + logs);
    std::memcpy(bytes_.data(), &state.world, sizeof(World));
    std::memcpy(bytes_.data() + sizeof(World), state.logs.data(), logs);
    return seen_.insert(XXH3_128bits(bytes_.data(), bytes_.size())).second;
  }

  Turn::Outcome advance(State& state, std::size_t actor) {
    Turn turn(state.logs[actor]);
    return turn.take([&](Turn& mine) { scenario_.actors[actor].run(state.world, mine); });
  }

  // Repeats the steps to describe them.
  bool failed(const char* why) {
    if (why == nullptr) {
      return false;
    }
    failure_ = std::string(scenario_.name) + ": " + why + "\n";
    State state = first();
    std::string last;
    for (const std::size_t actor : path_) {
      (void)advance(state, actor);
      const std::string line =
          fmt::format("  {:<8} {}\n", scenario_.actors[actor].name, scenario_.show(state.world));
      failure_ += line != last ? line : "";  // The state did not change, so the actor only read.
      last = line;
    }
    return true;
  }

  // Returns true to continue. The recursion is as deep as the number of steps in the longest run.
  bool visit(const State& state) {
    if (!is_new(state)) {
      return true;
    }
    if (failed(scenario_.broken(state.world))) {
      return false;
    }
    bool any_goes_on = false, any_left = false;
    for (std::size_t i = 0; i < scenario_.actors.size(); ++i) {
      if (state.logs[i].ended != 0 || (scenario_.gone && scenario_.gone(state.world, i))) {
        continue;
      }
      any_left = true;
      State next = state;
      const Turn::Outcome outcome = advance(next, i);
      if (outcome.blocked) {
        continue;
      }
      any_goes_on = true;
      path_.push_back(i);
      const bool fine = !failed(outcome.failure) && visit(next);
      path_.pop_back();
      if (!fine) {
        return false;
      }
    }
    return any_goes_on ||
           !failed(any_left ? "no actor can go on" : scenario_.ends_badly(state.world));
  }

  const Scenario<World>& scenario_;
  std::unordered_set<XXH128_hash_t, Hash, Same> seen_;
  std::vector<std::size_t> path_;  // The actors of the steps that led to the visited state.
  std::vector<unsigned char> bytes_;
  std::string failure_;
};

}  // namespace tiermem::model
