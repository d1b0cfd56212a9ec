// Gathers, step by step: reads of blocks while their extents stay in their slots.
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "tests/support/page_bytes.hpp"
#include "tests/unit/mover_fixture.hpp"

namespace tiermem {
namespace {

using M = SteppedMover;

enum class Into : bool { tiermem, program };

// Reads the first page of each extent of a buffer into adjacent memory.
struct FirstPages {
  FirstPages(M& m, Handle x, std::uint32_t extents, Into target = Into::tiermem)
      : reads(extents), sums(extents) {
    if (target == Into::tiermem) {
      const Handle into = m.buffer(1, 0, 32 * kSmallestExtent);
      Call& view = m.acquire(into, kDiscard);
      m.run_workers();
      EXPECT_EQ(view.code(), Code::ok);
      data = view.data();
      list.into = m.ref(into);
    } else {
      own.resize(extents * kSmallestExtent);
      data = own.data();
    }
    for (std::uint32_t i = 0; i < extents; ++i) {
      reads[i] = {.ref = m.ref(x, i),
                  .length = kSmallestExtent,
                  .data = data + i * kSmallestExtent,
                  .to_program = target == Into::program,
                  .rows = kSmallestExtent,
                  .sums = &sums[i]};
    }
    list.reads = reads;
    call = &m.prepare(RequestKind::gather, {M::access(x, kRead)});
    call->request.gather = &list;
    m.post(*call);
    m.settle();
  }
  test::PageBytes own;  // The program's memory.
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

TEST(MoverGather, reads_to_the_programs_memory_need_none_of_ours) {
  M m({.frames = 4});
  const Handle x = m.cold(0x11, 4);
  const Handle other = m.buffer(4);
  Call& all = m.acquire(other, kWrite);  // All frames.
  m.run_workers();
  ASSERT_EQ(all.code(), Code::ok);
  FirstPages pages(m, x, 4, Into::program);
  m.end_all();
  EXPECT_EQ(pages.call->code(), Code::ok);
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(pages.reads[i].found, GatherRead::Found::bytes);
    EXPECT_EQ(pages.data[i * kSmallestExtent + 7], std::byte{0x11});
    EXPECT_FALSE(m.resident(x, i));
  }
}

// The reasons for an early end. With the end the memory is the program's again.
class MoverGatherEnds : public testing::TestWithParam<const char*> {};

TEST_P(MoverGatherEnds, answer_comes_when_no_device_has_a_read_to_the_programs_memory) {
  M m({.frames = 40});
  const std::string_view end = GetParam();
  const Handle x = m.cold(0x11, 20), y = m.cold(0x22, 20);
  FirstPages first(m, x, 20, Into::program), second(m, y, 20, Into::program);
  const std::size_t at_device = m.port.requests.size();
  ASSERT_GT(at_device, 0u);
  ASSERT_LT(at_device, 20u);
  const std::uint64_t before = m.stats().gather_reads;
  if (end == "cancelled") {
    m.cancel(*first.call);
  } else {
    m.free(x);
  }
  m.settle();
  std::size_t ended = 0;
  for (; !first.call->done() && ended < 40; ++ended) {
    m.end_io();
  }
  EXPECT_GE(ended, at_device);
  for (const IoRequest& request : m.port.requests) {
    EXPECT_FALSE(request.data >= first.own.data() &&
                 request.data < first.own.data() + first.own.size());
  }
  EXPECT_EQ(first.call->code(), end == "cancelled" ? Code::cancelled : Code::stale_handle);
  m.end_all();
  EXPECT_EQ(second.call->code(), Code::ok);
  for (const GatherRead& read : second.reads) {
    EXPECT_EQ(read.found, GatherRead::Found::bytes);
  }
  EXPECT_LE(m.stats().gather_reads - before, 20u);  // No further one of the first.
  EXPECT_TRUE(m.mover.idle());
}

INSTANTIATE_TEST_SUITE_P(, MoverGatherEnds, testing::Values("cancelled", "freed"),
                         [](const auto& end) { return std::string(end.param); });

TEST(MoverGather, reads_of_several_buffers_are_one_request) {
  M m({.frames = 4});
  const Handle x = m.cold(0x11, 2), y = m.cold(0x22, 2);
  test::PageBytes own(4 * kSmallestExtent);
  std::vector<GatherRead> reads;
  std::vector<Checksums::Hash> sums(4);
  for (const Handle buffer : {x, y}) {
    for (std::uint32_t i = 0; i < 2; ++i) {
      reads.push_back({.ref = m.ref(buffer, i),
                       .length = kSmallestExtent,
                       .data = own.data() + reads.size() * kSmallestExtent,
                       .to_program = true,
                       .sums = &sums[reads.size()]});
    }
  }
  std::sort(reads.begin(), reads.end(),
            [](const GatherRead& a, const GatherRead& b) { return a.ref < b.ref; });
  GatherList list{.reads = reads};
  std::vector<Access> spans = {M::access(x, kRead), M::access(y, kRead)};
  if (m.ref(y) < m.ref(x)) {
    std::swap(spans[0], spans[1]);
  }
  Call& call = m.prepare(RequestKind::gather, spans);
  call.request.gather = &list;
  m.post(call);
  m.end_all();
  EXPECT_EQ(call.code(), Code::ok);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(own[i * kSmallestExtent], i < 2 ? std::byte{0x11} : std::byte{0x22});
  }
}

}  // namespace
}  // namespace tiermem
