// The records that extents and transfers have beside their bytes: checksums, and the pages of a
// slot. A record that is not released is a leak that no other test shows. Method: repeat the same
// path many times. Released records reuse the same few addresses; each leaked record takes a new
// one.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <set>

#include "tests/unit/mover_fixture.hpp"

namespace tiermem {
namespace {

using M = SteppedMover;

constexpr int kCycles = 60;
constexpr std::size_t kFew = 12;

class MoverRecords : public testing::Test {
 protected:
  void look(M& m, Handle x) {
    for (std::uint32_t i = 0; i < m.record(x).extents.load(); ++i) {
      const Extent& extent = m.extent(x, i);
      seen_.insert(extent.copy().sums);
      seen_.insert(extent.copy().pages);
    }
  }
  void expect_few(M& m, const std::function<void(int)>& path) {
    for (int cycle = 0; cycle < kCycles; ++cycle) {
      path(cycle);
      m.end_all();
      m.forget_calls();
      if (HasFatalFailure()) {
        return;
      }
    }
    EXPECT_GE(seen_.size(), 2u) << "there are records";
    EXPECT_LE(seen_.size(), kFew);
  }
  std::set<const void*> seen_;
};

unsigned char value_of(int cycle) {
  return static_cast<unsigned char>(1 + cycle % 200);
}

void fail_all_io(M& m) {
  m.run_workers();
  while (!m.port.requests.empty()) {
    m.end_io(EIO);
  }
}

// The program writes one page. The others of a new extent are zeros, so its slot has a record.
void write_page(M& m, Handle x, unsigned page, unsigned char value) {
  m.touch(x, page, true);
  m.end_all();
  std::byte* const at = m.window(x) + page * kSmallestExtent;
  ASSERT_TRUE(m.host.present(at));
  std::memset(at, value, kSmallestExtent);
  m.host.written(at);
}

TEST_F(MoverRecords, extent_is_written_down_again_and_again_then_its_records_are_few) {
  M m;
  const Handle x = m.buffer();
  expect_few(m, [&](int cycle) {
    m.write(x, value_of(cycle));
    m.evict(x);
    look(m, x);
    EXPECT_EQ(m.value(x), value_of(cycle));
    look(m, x);
  });
}

TEST_F(MoverRecords, mapped_extent_is_written_down_again_and_again_then_its_records_are_few) {
  for (const bool in_parts : {false, true}) {
    M m({.parts = in_parts});
    const Handle x = m.mapped();
    expect_few(m, [&](int cycle) {
      write_page(m, x, cycle % 4, value_of(cycle));
      m.evict(x);
      look(m, x);
    });
  }
}

TEST_F(MoverRecords, slot_is_given_up_again_and_again_then_its_records_are_few) {
  M m({.parts = true});
  const Handle x = m.mapped();
  expect_few(m, [&](int cycle) {
    write_page(m, x, cycle % 4, value_of(cycle));
    m.evict(x);
    look(m, x);
    m.ask(RequestKind::discard, {M::access(x, kDiscard)});
    m.end_all();
    look(m, x);
  });
}

TEST_F(MoverRecords, extent_is_overwritten_before_it_is_read_then_its_records_are_few) {
  M m;
  const Handle x = m.buffer();
  expect_few(m, [&](int cycle) {
    Call& call = m.acquire(x, kDiscard);
    m.end_all();
    ASSERT_EQ(call.code(), Code::ok);
    std::memset(call.data(), value_of(cycle), M::kExtent);
    m.release(call);
    m.evict(x);
    look(m, x);
  });
}

TEST_F(MoverRecords, buffer_is_freed_and_made_again_then_its_records_are_few) {
  M m({.parts = true});
  expect_few(m, [&](int cycle) {
    const Handle x = m.mapped();
    write_page(m, x, 1, value_of(cycle));
    m.evict(x);
    look(m, x);
    m.free(x);
    m.end_all();
  });
}

TEST_F(MoverRecords, write_fails_again_and_again_then_the_records_are_few) {
  M m({.parts = true});
  const Handle x = m.mapped();
  expect_few(m, [&](int cycle) {
    write_page(m, x, cycle % 4, value_of(cycle));
    m.ask(RequestKind::evict, {M::access(x, kRead)});
    fail_all_io(m);
    look(m, x);
    m.at(m.now + 100'000 * M::kMs);
    m.evict(x);
    look(m, x);
  });
}

TEST_F(MoverRecords, read_fails_again_and_again_then_the_records_are_few) {
  M m;
  const Handle x = m.buffer();
  expect_few(m, [&](int cycle) {
    m.write(x, value_of(cycle));
    m.evict(x);
    look(m, x);
    const Call& call = m.acquire(x, kRead);
    fail_all_io(m);
    m.end_all();
    EXPECT_EQ(call.code(), Code::io_error);
    look(m, x);
    m.at(m.now + 100'000 * M::kMs);
  });
}

TEST_F(MoverRecords, bytes_change_hands_again_and_again_then_the_records_are_few) {
  M m({.frames = 4});
  const Handle from = m.buffer(2), to = m.buffer(2);
  expect_few(m, [&](int cycle) {
    m.write(from, value_of(cycle));
    m.evict(from);
    look(m, from);
    m.ask(RequestKind::discard, {M::access(to, kDiscard)});
    m.end_all();
    Call& call = m.prepare(RequestKind::move_slots, {M::access(from, kRead), M::access(to, kRead)});
    std::array<std::uint8_t, 2> handed{};
    call.request.moved = handed.data();
    m.post(call);
    m.settle();
    ASSERT_EQ(call.code(), Code::ok);
    EXPECT_EQ(handed, (std::array<std::uint8_t, 2>{1, 1}));
    look(m, to);
    look(m, from);
  });
}

}  // namespace
}  // namespace tiermem
