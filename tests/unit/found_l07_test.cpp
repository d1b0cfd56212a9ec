// Fault L7, tested from inside: tags of contexts, and counts of lives that never wrap to a live
// handle.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "residency/buffer_limits.hpp"
#include "residency/residency.hpp"
#include "runtime/ops.hpp"

namespace tiermem {
namespace {

constexpr std::uint32_t kBuffers = 8;
constexpr std::uint32_t kExtents = 64;

BufferShape one_extent() {
  BufferShape shape;
  shape.bytes = 4096;
  shape.extent_shift = 12;
  shape.extents = 1;
  return shape;
}

TEST(FaultsFound, L07_no_two_live_contexts_have_one_tag_and_a_used_one_comes_back_late) {
  std::vector<std::unique_ptr<ContextTag>> tags;
  std::vector<bool> seen(ContextTag::kMost + 1);
  const std::uint64_t ended = ContextTag().value();
  EXPECT_FALSE(ContextTag::is_live(ended));
  for (;;) {
    auto tag = std::make_unique<ContextTag>();
    if (!tag->valid()) {
      break;
    }
    ASSERT_FALSE(seen[tag->value()]);
    EXPECT_TRUE(ContextTag::is_live(tag->value()));
    seen[tag->value()] = true;
    // An ended tag is reused after all others.
    EXPECT_TRUE(tag->value() != ended || tags.size() > ContextTag::kMost - 16) << tags.size();
    tags.push_back(std::move(tag));
  }
  EXPECT_GT(tags.size(), ContextTag::kMost - 16);
  EXPECT_TRUE(seen[ended]);
  EXPECT_TRUE(ContextTag::is_live(ContextTag::kMost));
  tags.pop_back();
  EXPECT_TRUE(ContextTag().valid());
}

TEST(BufferLimits, the_largest_buffer_has_all_extents_and_a_byte_more_has_none) {
  static_assert(extents_of(0, 64 * 4096, 4096, 64) == 64U);
  static_assert(extents_of(1, 64 * 4096 - 1, 4096, 64) == 64U);
  static_assert(!extents_of(0, 64 * 4096 + 1, 4096, 64));
  static_assert(!extents_of(1, 64 * 4096, 4096, 64));
}

TEST(Buffers, records_that_were_abandoned_are_taken_once_in_any_order) {
  Residency residency(kBuffers, kExtents, 1);
  std::vector<std::uint32_t> left, taken;
  for (int i = 0; i < 3; ++i) {
    const Handle handle = *residency.buffers.create(one_extent());
    ASSERT_TRUE(residency.buffers.mark_freed(handle));
    left.push_back(Buffers::index_of(handle));
    residency.buffers.abandon(left.back());
  }
  residency.buffers.take_abandoned([&](std::uint32_t index) { taken.push_back(index); });
  EXPECT_TRUE(std::ranges::is_permutation(taken, left));
  residency.buffers.take_abandoned([](std::uint32_t) { FAIL() << "taken twice"; });
}

TEST(FaultsFound, L07_lives_of_a_record_are_used_up_then_it_is_never_used_again) {
  Residency residency(kBuffers, kExtents, 1);
  residency.buffers.test_leave_lives(3);
  std::vector<Handle> handles;
  std::uint32_t index = 0;
  for (int i = 0; i < 8; ++i) {
    const auto made = residency.buffers.create(one_extent());
    ASSERT_TRUE(made.ok()) << made.message();
    for (const Handle old : handles) {
      EXPECT_EQ(residency.buffers.find(old), nullptr);
      EXPECT_NE(old, *made);
    }
    EXPECT_NE(residency.buffers.find(*made), nullptr);
    index = Buffers::index_of(*made);
    EXPECT_EQ(index, static_cast<std::uint32_t>(i) / 3) << "three lives for each record";
    handles.push_back(*made);
    ASSERT_TRUE(residency.buffers.mark_freed(*made));
    EXPECT_FALSE(residency.buffers.mark_freed(*made));
    residency.buffers.retire(index);
    EXPECT_TRUE(residency.buffers.test_consistent());
  }
}

// A spare buffer uses up lives without returning to the table. It leaves the spares before its
// lives end.
TEST(FaultsFound, L07_lives_of_a_spare_are_used_up_then_it_is_no_spare_any_more) {
  Residency residency(kBuffers, kExtents, 1);
  residency.buffers.test_leave_lives(4);
  residency.spares.set_limit(kExtents * 4096);
  Handle handle = *residency.buffers.create(one_extent());
  std::vector<Handle> handles;
  int spared = 0;
  for (;; ++spared) {
    ASSERT_LT(spared, 16);
    ExtentWord& word =
        residency.extents.word(kHost, residency.buffers.at(Buffers::index_of(handle)).first.load());
    if (spared == 0) {
      word.set_phase(Phase::incoming);
      word.set_phase(Phase::exclusive);
    } else {  // The next owner claims it and releases it.
      ASSERT_TRUE(word.try_claim());
      word.end_claim(false);
      ASSERT_TRUE(word.unpin_read());
    }
    handles.push_back(handle);
    if (residency.make_spare(handle) != Code::ok) {
      break;
    }
    handle = residency.reuse_spare(one_extent(), false);
    ASSERT_NE(handle, 0u);
    for (const Handle old : handles) {
      EXPECT_EQ(residency.buffers.find(old), nullptr);
    }
  }
  EXPECT_GE(spared, 3);
  residency.buffers.retire(Buffers::index_of(handle));
  EXPECT_TRUE(residency.buffers.test_consistent());
  EXPECT_NE(Buffers::index_of(*residency.buffers.create(one_extent())), Buffers::index_of(handle));
}

TEST(FaultsFound, L07_lives_of_an_operation_are_used_up_then_its_entry_is_never_used_again) {
  const ContextTag tag;
  Ops ops(tag.value());
  ops.test_leave_lives(1);
  std::vector<OpHandle> handles;
  for (int i = 0; i < 5; ++i) {
    const OpHandle op = ops.add(std::make_unique<Request>());
    ASSERT_NE(op, 0u);
    for (const OpHandle old : handles) {
      EXPECT_NE(op, old);
      EXPECT_EQ(ops.request_of(old), nullptr);
    }
    Request* const request = ops.request_of(op);
    ASSERT_NE(request, nullptr);
    request->on_done(*request);
    EXPECT_TRUE(ops.wait(op, 0).ok());
    EXPECT_EQ(ops.live(), 0u);
    handles.push_back(op);
  }
}

// The count of uses of a slot wraps within its own bits, so a token of one context never equals a
// token of another.
TEST(FaultsFound, L07_token_of_one_context_never_agrees_in_another) {
  Residency ours(kBuffers, kExtents, 1), theirs(kBuffers, kExtents, 1);
  ViewRecord mine, other;
  PinnedRun run{};
  const PinnedRun held = PinnedRun::of(1, 1, kHost, false);
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(ours.views.add(mine, 1, held));
    ASSERT_TRUE(theirs.views.add(other, 1, held));
    EXPECT_FALSE(theirs.views.end(mine, run));
    EXPECT_FALSE(ours.views.end(other, run));
    EXPECT_TRUE(ours.views.is_foreign(other));
    EXPECT_FALSE(ours.views.is_foreign(mine));
    EXPECT_TRUE(ours.views.end(mine, run));
    EXPECT_TRUE(theirs.views.end(other, run));
  }
}

}  // namespace
}  // namespace tiermem
