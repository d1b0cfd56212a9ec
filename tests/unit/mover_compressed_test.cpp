// Compressed memory before a drive: which thread unpacks pages, and what the mover learns from how
// they are used.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

#include "tests/unit/mover_fixture.hpp"

namespace tiermem {
namespace {

using M = SteppedMover;
constexpr unsigned kPages = M::kExtent / kSmallestExtent;

struct MoverCompressed : ::testing::Test {
  /// Fills an extent with pages that shrink to a third, and that `seed` and the page tell apart.
  static void fill(std::byte* at, unsigned seed) {
    for (unsigned page = 0; page < kPages; ++page) {
      std::minstd_rand dice(seed * kPages + page + 1);
      std::memset(at + page * kSmallestExtent, 0, kSmallestExtent);
      for (unsigned i = 0; i < kSmallestExtent / 4; ++i) {
        at[page * kSmallestExtent + i] = static_cast<std::byte>(dice() >> 8);
      }
    }
  }
  bool holds(Handle handle, unsigned page, unsigned seed) {
    std::array<std::byte, M::kExtent> expected;
    fill(expected.data(), seed);
    std::byte* const at = m.window(handle) + page * kSmallestExtent;
    return m.host.present(at) &&
           std::memcmp(at, &expected[page * kSmallestExtent], kSmallestExtent) == 0;
  }
  void write(Handle handle, unsigned seed) {
    Call& call = m.acquire(handle, kWrite);
    m.end_all();
    ASSERT_EQ(call.code(), Code::ok);
    fill(call.data(), seed);
    m.release(call);
  }
  /// Returns the packed bytes that were written until now.
  std::uint64_t packed() {
    const Stats stats = m.stats();
    return stats.tier({Kind::compressed, 0})->bytes_in;
  }
  /// Returns a mapped buffer of one extent that has its bytes in slots.
  Handle cold(unsigned seed) {
    const Handle handle = m.mapped();
    write(handle, seed);
    m.evict(handle);
    return handle;
  }
  M m{{.frames = 4, .on_disk = 256, .packed = 8, .parts = true}};
};

TEST_F(MoverCompressed, touching_thread_unpacks_its_page_itself) {
  const Handle x = cold(1);
  ASSERT_EQ(packed(), M::kExtent);
  m.touch(x, 0);
  m.end_all();
  const unsigned before = m.steps;
  Call& touch = m.prepare_touch(x, 2);
  Job* const job = m.begin_touch(touch);
  ASSERT_NE(job, nullptr);
  m.end_touch(*job);
  EXPECT_EQ(touch.code(), Code::ok);
  EXPECT_TRUE(holds(x, 2, 1));
  EXPECT_FALSE(m.told());
  EXPECT_EQ(m.steps, before);
  EXPECT_EQ(m.port.reads + m.port.own_reads, 0u) << "the drive has no part in it";
  EXPECT_TRUE(m.compressed.check_invariants().ok());
}

/// Packed bytes go on to the drive until 20 windows of 2 MiB have passed. Before each of them a
/// page that is still packed is read, if the test wants that.
struct MoverCompressedUse : MoverCompressed, ::testing::WithParamInterface<int> {
  enum Reads { none, by_the_mover, by_their_threads };
  void read_one(Handle handle, unsigned seed) {
    m.touch(handle, 0);  // The first touch of the extent is the mover's.
    m.end_all();
    for (unsigned page = 1; page < kPages; ++page) {
      Call& touch = m.prepare_touch(handle, page);
      Job* job = nullptr;
      if (GetParam() == by_their_threads) {
        job = m.begin_touch(touch);
      } else {
        m.post(touch);
      }
      if (job != nullptr) {
        m.end_touch(*job);
      }
      m.end_all();
      ASSERT_EQ(touch.code(), Code::ok);
      ASSERT_TRUE(holds(handle, page, seed));
    }
    m.evict(handle);
  }
};

TEST_P(MoverCompressedUse, packed_bytes_only_pass_through_then_few_are_packed) {
  constexpr unsigned kExtents = 20 * 128 + 64;
  std::deque<Handle> live;
  std::uint64_t before = 0;
  for (unsigned i = 0; i < kExtents; ++i) {
    if (i == kExtents - 64) {
      before = packed();
    }
    live.push_back(cold(i));
    if (GetParam() != none && i % 4 == 0) {
      read_one(live.back(), i);
    }
    if (live.size() > 100) {
      m.free(live.front());
      m.end_all();
      live.pop_front();
    }
    if (i % 16 == 0) {
      m.forget_calls();
    }
  }
  const std::uint64_t last = (packed() - before) / M::kExtent;
  if (GetParam() == none) {
    EXPECT_LE(last, 64 / 16 + 1);
  } else {
    EXPECT_GE(last, 60u);
  }
  EXPECT_TRUE(m.compressed.check_invariants().ok());
}

INSTANTIATE_TEST_SUITE_P(Reads, MoverCompressedUse,
                         ::testing::Values(MoverCompressedUse::none,
                                           MoverCompressedUse::by_the_mover,
                                           MoverCompressedUse::by_their_threads),
                         [](const ::testing::TestParamInfo<int>& of) -> std::string {
                           return of.param == MoverCompressedUse::none           ? "none"
                                  : of.param == MoverCompressedUse::by_the_mover ? "by_the_mover"
                                                                                 : "by_threads";
                         });

}  // namespace
}  // namespace tiermem
