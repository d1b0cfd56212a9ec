// Hints at the end of conversations: which requests form one conversation, when its blocks get the
// hint, and the gain from hints on a recorded trace.
#include "policy/session_hints.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "policy/rivals/min.hpp"
#include "policy/rivals/rival.hpp"
#include "recorded_traces.hpp"

namespace tiermem {
namespace {

/// Returns a trace with requests for these blocks, in the format of a Mooncake trace.
Trace of_requests(const std::vector<std::string>& requests) {
  std::string text;
  for (const std::string& ids : requests) {
    text += "{\"hash_ids\": [" + ids + "]}\n";
  }
  auto trace = parse_trace("kv.jsonl", text);
  EXPECT_TRUE(trace.ok()) << trace.message();
  return std::move(*trace);
}

/// Returns "after:block" for each hint. Blocks are numbered by their first reference, so the tests
/// name them in order.
std::vector<std::string> hints_of(const Trace& trace) {
  std::vector<std::string> out;
  for (const ReplayHint& hint : session_end_hints(trace, Advice::cold)) {
    EXPECT_EQ(hint.advice, Advice::cold);
    out.push_back(std::to_string(hint.after) + ":" + std::to_string(hint.block));
  }
  return out;
}

using Hints = std::vector<std::string>;

TEST(SessionHints, a_single_request_gives_its_blocks_up_when_it_is_done) {
  EXPECT_EQ(hints_of(of_requests({"0,1,2"})), (Hints{"3:0", "3:1", "3:2"}));
}

TEST(SessionHints, a_request_that_begins_with_all_full_blocks_of_another_goes_on_with_it) {
  // The last block, 2, was not full. The next prompt has another block in its place.
  EXPECT_EQ(hints_of(of_requests({"0,1,2", "0,1,3,4"})),
            (Hints{"7:2", "7:0", "7:1", "7:3", "7:4"}));
}

TEST(SessionHints, the_same_instructions_at_the_beginning_make_no_conversation) {
  EXPECT_EQ(hints_of(of_requests({"0,1,2", "0,3,4"})),
            (Hints{"3:0", "3:1", "3:2", "6:0", "6:3", "6:4"}));
}

TEST(SessionHints, blocks_of_an_open_conversation_are_kept_when_another_ends) {
  // The second request ends while the first conversation is open. Both have block 0.
  EXPECT_EQ(hints_of(of_requests({"0,1,2", "0,3,4", "0,1,5"})),
            (Hints{"6:3", "6:4", "9:2", "9:0", "9:1", "9:5"}));
}

TEST(SessionHints, traces_without_requests_have_none) {
  const auto trace = parse_trace("a.trace", "1\n2\n1\n");
  ASSERT_TRUE(trace.ok());
  EXPECT_TRUE(session_end_hints(*trace, Advice::cold).empty());
}

TEST(SessionHints, hints_are_applied_where_they_belong) {
  std::vector<Reference> references;
  for (const std::uint32_t block : {0u, 1u, 0u, 2u, 1u}) {
    references.push_back({block, false});
  }
  // Block 0 is given up after two references, so its next use is a miss.
  const std::vector<ReplayHint> hints = {{2, 0, Advice::dont_need}};
  EXPECT_EQ(replay_recency(references, 3, {.capacity = 3}).hits, 2u);
  EXPECT_EQ(replay_recency(references, 3, {.capacity = 3, .hints = hints}).hits, 1u);
  // A cold block leaves first, although block 1 is older.
  const std::vector<ReplayHint> cold = {{3, 0, Advice::cold}};
  EXPECT_EQ(replay_recency(references, 3, {.capacity = 2, .hints = cold}).hits, 2u);
}

/// The figure policy_hinted: the part of the gap between LRU and MIN that the hints close.
double closed(const Trace& trace, unsigned percent, Advice advice) {
  const std::uint32_t capacity = trace.blocks * percent / 100;
  const auto hits = [&](std::uint64_t n) { return static_cast<double>(n); };
  const auto hints = session_end_hints(trace, advice);
  const double lru = hits(rival_hits(*find_rival("lru"), trace.references, trace.blocks, capacity));
  const double min = hits(min_hits(trace.references, trace.blocks, capacity));
  const double ours = hits(
      replay_recency(trace.references, trace.blocks, {.capacity = capacity, .hints = hints}).hits);
  const double share = (ours - lru) / (min - lru);
  std::printf("%s at %2u %%: %s closes %.3f of the gap between LRU and MIN\n", trace.name.c_str(),
              percent, advice == Advice::cold ? "cold" : "dont_need", share);
  return share;
}

TEST(SessionHints, they_close_most_of_the_gap_between_LRU_and_MIN) {
  LOAD_OR_SKIP(trace, "kv/mooncake-conversation.jsonl.gz");
  ASSERT_EQ(trace.request_ends.size(), 12031u);
  for (const unsigned percent : {5u, 10u, 20u}) {
    EXPECT_GE(closed(trace, percent, Advice::cold), 0.8) << percent;
  }
  // A block that is given up at once is also missing for the next conversation with the same
  // prefix. From 20 % on LRU keeps it and has more hits.
  EXPECT_GE(closed(trace, 5, Advice::dont_need), 0.8);
  EXPECT_GE(closed(trace, 10, Advice::dont_need), 0.6);
}

}  // namespace
}  // namespace tiermem
