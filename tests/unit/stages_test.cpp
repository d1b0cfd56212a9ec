// The table of stages: which changes exist for each kind of transfer.
#include "mover/stages.hpp"

#include <gtest/gtest.h>

#include <set>
#include <tuple>
#include <utility>

#include "mover/transfer.hpp"

namespace tiermem {
namespace {

TEST(Stages, each_change_is_in_the_table_once) {
  std::set<std::tuple<TransferKind, Stage, Stage>> seen;
  for (const StageChange& change : kStageChanges) {
    EXPECT_TRUE(seen.insert({change.kind, change.from, change.to}).second)
        << kind_name(change.kind) << ": " << stage_name(change.from) << " -> "
        << stage_name(change.to);
    EXPECT_TRUE(may_advance(change.kind, change.from, change.to));
  }
}

TEST(Stages, each_stage_is_reached_from_the_start_and_no_change_goes_back_to_it) {
  std::set<std::pair<TransferKind, Stage>> reached;
  for (bool more = true; more;) {
    more = false;
    for (const StageChange& change : kStageChanges) {
      const bool from = change.from == Stage::start || reached.contains({change.kind, change.from});
      more = (from && reached.insert({change.kind, change.to}).second) || more;
    }
  }
  for (const StageChange& change : kStageChanges) {
    EXPECT_NE(change.to, Stage::start) << kind_name(change.kind);
    EXPECT_TRUE(reached.contains({change.kind, change.to}))
        << kind_name(change.kind) << ": " << stage_name(change.to);
  }
}

TEST(Stages, a_change_of_one_kind_is_not_a_change_of_another) {
  EXPECT_TRUE(may_advance(TransferKind::promote, Stage::start, Stage::staging));
  EXPECT_FALSE(may_advance(TransferKind::promote_parts, Stage::start, Stage::staging));
  EXPECT_TRUE(may_advance(TransferKind::demote_parts, Stage::hash, Stage::whole));
  EXPECT_FALSE(may_advance(TransferKind::demote, Stage::hash, Stage::whole));
  EXPECT_FALSE(may_advance(TransferKind::idle, Stage::start, Stage::read));
}

TEST(Stages, advance_sets_the_stage_and_tells_the_hook) {
  static StageChange told{};
  stage_changed = [](TransferKind kind, Stage from, Stage to) noexcept {
    told = {kind, from, to, false};
  };
  Evict transfer;
  transfer.kind = Evict::kKind;
  advance(transfer, Stage::unmap);
  stage_changed = nullptr;
  EXPECT_EQ(transfer.stage, Stage::unmap);
  EXPECT_EQ(told.kind, TransferKind::evict);
  EXPECT_EQ(told.from, Stage::start);
  EXPECT_EQ(told.to, Stage::unmap);
}

TEST(Stages, a_demote_of_parts_is_a_demote_and_a_promote_is_not) {
  DemoteParts parts;
  parts.kind = DemoteParts::kKind;
  EXPECT_EQ(if_is<Demote>(&parts), &parts);
  EXPECT_EQ(if_is<DemoteParts>(&parts), &parts);
  EXPECT_EQ(if_is<Promote>(&parts), nullptr);
  EXPECT_EQ(if_is<Promote>(nullptr), nullptr);
}

}  // namespace
}  // namespace tiermem
