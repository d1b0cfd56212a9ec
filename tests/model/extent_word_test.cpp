// The protocol of the extent's word, in every order of the steps of callers, mover and fork: the
// real word (residency/extent_state.hpp) over atomics that make every access a step. Each scenario
// must keep the properties that model/world.hpp checks in every state. Together the scenarios must
// take each change of phase that the header names and no other. Each known way to break the
// protocol must be found.
#include <gtest/gtest.h>

#include <cstdio>
#include <set>
#include <string>
#include <utility>

#include "model/scenarios.hpp"

namespace tiermem::model {
namespace {

TEST(ExtentWordModel, every_order_of_steps_keeps_the_newest_bytes_and_every_pin) {
  std::set<std::pair<Phase, Phase>> taken;
  ModelAtomic::on_change = [&](std::uint64_t before, std::uint64_t after) {
    const Phase from = ExtentBits{before}.phase(), to = ExtentBits{after}.phase();
    if (from != to) {
      taken.emplace(from, to);
    }
  };
  for (const WordScenario& scenario : all_scenarios(Flaw::none)) {
    Explorer<World> explorer(scenario);
    const std::string found = explorer.explore();
    EXPECT_TRUE(found.empty()) << found;
    std::printf("%s: %zu states\n", scenario.name, explorer.states());
  }
  ModelAtomic::on_change = nullptr;
  for (const PhaseChange& change : kPhaseChanges) {
    EXPECT_TRUE(taken.contains({change.from, change.to}))
        << phase_name(change.from) << " → " << phase_name(change.to) << " is in the table ("
        << change.by << "), and the model never takes it";
  }
  for (const auto& [from, to] : taken) {
    EXPECT_TRUE(may_change(from, to))
        << phase_name(from) << " → " << phase_name(to) << " is taken, and not in the table";
  }
}

struct Wrong {
  const char* name;
  Flaw flaw;
  const char* found;  // The scenario that finds it, and the message.
};

class WrongProtocol : public testing::TestWithParam<Wrong> {};

TEST_P(WrongProtocol, is_found) {
  std::string found;
  for (const WordScenario& scenario : all_scenarios(GetParam().flaw)) {
    if (found = Explorer<World>(scenario).explore(); !found.empty()) {
      break;
    }
  }
  EXPECT_EQ(found.substr(0, found.find('\n')), GetParam().found) << found;
}

constexpr const char* kStuck = "the extent's next life: no actor can go on";
constexpr const char* kGone = "one space: the newest bytes are nowhere";
constexpr const char* kOld = "one space: clean, but no slot has these bytes";
constexpr const char* kSpareGone = "a spare buffer leaves: the newest bytes are nowhere";

INSTANTIATE_TEST_SUITE_P(
    ExtentWordModel, WrongProtocol,
    testing::Values(
        Wrong{"no_generation_check", Flaw::no_generation_check,
              "the extent's next life: a view shows the bytes of another buffer"},
        Wrong{"no_undo", Flaw::no_undo, kStuck},
        Wrong{"silent_miss", Flaw::silent_miss, "a spare buffer is promoted: no actor can go on"},
        Wrong{"no_second_look", Flaw::no_second_look, kStuck},
        Wrong{"leave_without_looking", Flaw::leave_without_looking, kGone},
        Wrong{"leave_even_dirty", Flaw::leave_even_dirty, kGone},
        Wrong{"copying_set_late", Flaw::copying_set_late, kOld},
        Wrong{"start_beside_writer", Flaw::start_beside_writer, kOld},
        Wrong{"publish_any", Flaw::publish_any, kOld},
        Wrong{"share_any", Flaw::share_any, "two spaces: what can be read is not the newest"},
        Wrong{"writer_keeps_copying", Flaw::writer_keeps_copying, kOld},
        Wrong{"writer_clears_late", Flaw::writer_clears_late, kOld},
        Wrong{"writers_in_shared", Flaw::writers_in_shared, kOld},
        Wrong{"copies_stay", Flaw::copies_stay, "two spaces: exclusive, but not the only copy"},
        Wrong{"take_over_unchecked", Flaw::take_over_unchecked,
              "a stream takes over: what can be read is not the newest"},
        Wrong{"free_looks_first", Flaw::free_looks_first, kSpareGone},
        Wrong{"no_booking", Flaw::no_booking, kSpareGone},
        Wrong{"late_booking", Flaw::late_booking,
              "a spare buffer is promoted: what can be read is not the newest"},
        Wrong{"spare_even_dirty", Flaw::spare_even_dirty,
              "a spare buffer is promoted: the newest bytes are nowhere"},
        Wrong{"home_without_looking", Flaw::home_without_looking,
              "a frame goes home: a view is held of what is not in its window"},
        Wrong{"relocate_under_views", Flaw::relocate_under_views,
              "an extent relocates: the newest bytes are nowhere"},
        Wrong{"fork_under_way", Flaw::fork_under_way,
              "a fork: the child has a transfer that never ends"}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace tiermem::model
