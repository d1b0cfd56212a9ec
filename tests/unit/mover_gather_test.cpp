// Gathers, step by step: reads of blocks while their extents stay in their slots.
#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/mover_fixture.hpp"

namespace tiermem {
namespace {

using M = SteppedMover;

// Reads the first page of each extent of a buffer into adjacent memory.
struct FirstPages {
  FirstPages(M& m, Handle x, std::uint32_t extents)
      : into(m.buffer(1, 0, 32 * kSmallestExtent)), reads(extents), sums(extents) {
    Call& view = m.acquire(into, kDiscard);
    m.run_workers();
    EXPECT_EQ(view.code(), Code::ok);
    data = view.data();
    for (std::uint32_t i = 0; i < extents; ++i) {
      reads[i] = {.ref = m.ref(x, i),
                  .length = kSmallestExtent,
                  .data = data + i * kSmallestExtent,
                  .rows = kSmallestExtent,
                  .sums = &sums[i]};
    }
    list.reads = reads;
    list.into = m.ref(into);
    call = &m.prepare(RequestKind::gather, {M::access(x, kRead)});
    call->request.gather = &list;
    m.post(*call);
    m.settle();
  }
  Handle into;
  std::vector<GatherRead> reads;
  std::vector<Checksums::Hash> sums;
  std::byte* data = nullptr;
  GatherList list;
  Call* call = nullptr;
};

TEST(MoverGather, brings_blocks_and_leaves_their_extents_where_they_are) {
  M m({.frames = 12});
  const Handle x = m.cold(0x11, 4);
  FirstPages pages(m, x, 4);
  m.end_all();
  EXPECT_EQ(pages.call->code(), Code::ok);
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(pages.reads[i].found, GatherRead::Found::bytes);
    EXPECT_EQ(pages.data[i * kSmallestExtent + 7], std::byte{0x11});
    EXPECT_FALSE(m.resident(x, i));
  }
  EXPECT_EQ(m.stats().gather_bytes, 4 * kSmallestExtent);
}

// The reads exceed what the device accepts at once. Submitted reads end by themselves. The others
// are never submitted after the cancel, and other requests proceed.
TEST(MoverGather, what_was_not_begun_when_its_caller_gave_up_is_not_read) {
  M m({.frames = 40});
  const Handle x = m.cold(0x11, 20), y = m.cold(0x22, 20);
  FirstPages first(m, x, 20), second(m, y, 20);
  const std::uint64_t before = m.stats().gather_reads;
  EXPECT_FALSE(second.call->done());
  m.cancel(*first.call);
  m.settle();
  EXPECT_EQ(first.call->code(), Code::cancelled);
  m.end_all();
  EXPECT_EQ(second.call->code(), Code::ok);
  for (const GatherRead& read : second.reads) {
    EXPECT_EQ(read.found, GatherRead::Found::bytes);
  }
  EXPECT_EQ(m.stats().gather_reads - before, 20u);
  EXPECT_TRUE(m.mover.idle());
}

}  // namespace
}  // namespace tiermem
