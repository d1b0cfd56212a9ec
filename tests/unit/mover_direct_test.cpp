// Bytes without checksums that move between a device's memory and slots without passing the host:
// which transfers use this path, and what happens when it fails.
#include <gtest/gtest.h>

#include "support/pattern.hpp"
#include "tests/unit/mover_fixture.hpp"

namespace tiermem {
namespace {

using M = SteppedMover;

constexpr Place kGpu{Kind::gpu, 0};
constexpr unsigned kDevice = 1;

Machine machine() {
  Machine machine;
  machine.devices = 1;
  machine.direct = true;
  return machine;
}

/// Returns a buffer that is only on the device, with this value in all bytes.
Handle on_device(M& m, unsigned char value, std::uint32_t flags = kNoChecksum) {
  const Handle x = m.buffer(1, flags);
  m.write_on_device(x, value);
  return x;
}

int value_on_device(M& m, Handle x) {
  Call& call = m.acquire(x, kRead, kGpu);
  m.end_all();
  if (call.code() != Code::ok) {
    ADD_FAILURE() << call.request.status.message();
    return -1;
  }
  const std::byte* const at = call.data();
  const std::byte first = m.gpu[0].load(at);
  for (std::uint64_t i = 0; i < M::kExtent; ++i) {
    EXPECT_EQ(m.gpu[0].load(at + i), first);
  }
  m.release(call);
  return static_cast<int>(first);
}

Receipt last_receipt(M& m) {
  ReceiptsCopy copy;
  m.mover.copy_receipts(copy, 1);
  EXPECT_FALSE(copy.last.empty());
  return copy.last.empty() ? Receipt{} : copy.last.back();
}

TEST(MoverDirect, what_has_no_checksums_goes_past_the_host_both_ways) {
  M m(machine());
  const Handle x = on_device(m, 0x31);
  m.evict(x);
  EXPECT_EQ(m.port.writes, 0u) << "the host's I/O";
  EXPECT_EQ(m.stats().gpu_direct_out, M::kExtent);
  EXPECT_EQ(m.block.counters(0).bytes_written, M::kExtent) << "it is the disk's all the same";
  EXPECT_EQ(m.gpu[0].usage().in_use, 0u);
  EXPECT_EQ(value_on_device(m, x), 0x31);
  EXPECT_EQ(m.port.reads, 0u);
  EXPECT_EQ(m.stats().gpu_direct_in, M::kExtent);
  EXPECT_EQ(m.block.counters(0).bytes_read, M::kExtent);
  EXPECT_EQ(m.block.counters(0).requests, 2u);
  EXPECT_EQ(m.stats().gpu_bytes_staged, 0u);
  EXPECT_EQ(last_receipt(m).path, Receipt::Path::direct);
  EXPECT_EQ(last_receipt(m).bytes, M::kExtent);
  EXPECT_EQ(m.value(x), 0x31) << "in the host's memory";
}

TEST(MoverDirect, what_has_checksums_is_seen_by_the_host) {
  M m(machine());
  const Handle x = on_device(m, 0x32, 0);
  m.evict(x);
  EXPECT_EQ(value_on_device(m, x), 0x32);
  EXPECT_EQ(m.stats().gpu_direct_in + m.stats().gpu_direct_out, 0u);
  EXPECT_EQ(m.port.writes, 1u);
  EXPECT_EQ(m.port.reads, 1u);
}

TEST(MoverDirect, a_read_that_fails_comes_through_the_host) {
  M m(machine());
  const Handle x = on_device(m, 0x33);
  m.evict(x);
  m.dice.fail("fetch");
  EXPECT_EQ(value_on_device(m, x), 0x33);
  EXPECT_EQ(m.stats().gpu_direct_errors, 1u);
  EXPECT_EQ(m.stats().gpu_bytes_staged, M::kExtent);
  EXPECT_EQ(m.stats().io_errors, 0u) << "no request got an error";
  EXPECT_EQ(last_receipt(m).path, Receipt::Path::staged);
}

TEST(MoverDirect, a_write_that_fails_goes_through_the_host_and_the_path_is_left_alone_for_a_while) {
  M m(machine());
  const Handle x = on_device(m, 0x34);
  m.dice.fail("store");
  m.evict(x);
  EXPECT_EQ(m.stats().gpu_direct_errors, 1u);
  EXPECT_EQ(m.stats().gpu_direct_out, 0u);
  EXPECT_EQ(m.port.writes, 1u);
  EXPECT_EQ(value_on_device(m, x), 0x34) << "half of the slot was written before the failure";
  EXPECT_EQ(m.stats().gpu_direct_in, 0u) << "it is not tried again at once";
  m.evict(x);
  m.at(m.now + 2000 * M::kMs);
  EXPECT_EQ(value_on_device(m, x), 0x34);
  EXPECT_EQ(m.stats().gpu_direct_in, M::kExtent);
}

TEST(MoverDirect, a_path_that_has_worked_again_is_trusted_as_before) {
  M m(machine());
  const Handle x = on_device(m, 0x38);
  m.evict(x);
  const auto fails = [&] {
    m.dice.fail("fetch");
    EXPECT_EQ(value_on_device(m, x), 0x38);
    m.evict(x);
  };
  const auto works_after = [&](std::int64_t ms) {
    const std::uint64_t before = m.stats().gpu_direct_in;
    m.at(m.now + ms * M::kMs);
    EXPECT_EQ(value_on_device(m, x), 0x38);
    m.evict(x);
    return m.stats().gpu_direct_in != before;
  };
  fails();
  m.at(m.now + 1000 * M::kMs);
  fails();
  EXPECT_FALSE(works_after(1500)) << "the second pause is twice as long";
  EXPECT_TRUE(works_after(500));
  fails();
  EXPECT_TRUE(works_after(1000));
}

// The copy in progress does not contain bytes that are written after it began.
TEST(MoverDirect, what_is_written_under_a_write_stays_dirty) {
  M m(machine());
  const Handle x = on_device(m, 0x35);
  const Call& out = m.ask(RequestKind::evict, {M::access(x, kRead)});
  while (m.workers.copies.empty()) {
    ASSERT_FALSE(m.workers.jobs.empty());
    m.workers.run();
    m.settle();
  }
  Call& writer = m.acquire(x, kWrite, kGpu);
  ASSERT_EQ(writer.code(), Code::ok);
  m.workers.end_copy();
  for (std::uint64_t i = 0; i < M::kExtent; ++i) {
    m.gpu[0].store(writer.data() + i, std::byte{0x36});
  }
  m.release(writer);
  m.end_all();
  EXPECT_TRUE(out.done());
  EXPECT_EQ(m.stats().gpu_direct_out, m.stats().demoted) << "of what was published";
  EXPECT_EQ(value_on_device(m, x), 0x36);
}

TEST(MoverDirect, a_device_that_is_lost_under_a_read_is_told_and_leaves_the_slot) {
  M m(machine());
  const Handle x = on_device(m, 0x37);
  m.evict(x);
  const Call& reader = m.acquire(x, kRead, kGpu);
  while (m.workers.waiting(kFetch) == 0) {
    ASSERT_FALSE(m.workers.jobs.empty());
    m.workers.run();
    m.settle();
  }
  m.gpu[0].lose();
  m.end_all();
  EXPECT_EQ(reader.code(), Code::unavailable) << reader.request.status.message();
  EXPECT_EQ(m.value(x), 0x37);
  EXPECT_FALSE(m.resident(x, 0, kDevice));
}

TEST(MoverDirect, what_the_endurance_leaves_is_counted) {
  Machine few = machine();
  few.a_day = 2;
  M m(few);
  m.evict(on_device(m, 1));
  m.evict(on_device(m, 2));
  const Handle third = on_device(m, 3);
  Call& out = m.ask(RequestKind::evict, {M::access(third, kRead)});
  m.end_all();
  EXPECT_EQ(out.code(), Code::no_capacity);
  EXPECT_SAYS(out.request.status, "endurance");
  EXPECT_EQ(m.stats().gpu_direct_out, 2 * M::kExtent);
}

}  // namespace
}  // namespace tiermem
