// Reads from slots, step by step: which reads are repeated, and the effect of errors and of wrong
// bytes.
#include <gtest/gtest.h>

#include "support/pattern.hpp"
#include "tests/unit/mover_fixture.hpp"

namespace tiermem {
namespace {

using M = SteppedMover;

TEST(MoverReads, a_read_that_fails_is_made_once_more_and_then_told_with_its_device) {
  M m;
  const Handle x = m.cold(0x11);
  const Call& once = m.acquire(x, kRead);
  m.end_io(EIO);
  EXPECT_FALSE(once.done());
  m.end_io();
  EXPECT_EQ(once.code(), Code::ok);
  ASSERT_EQ(m.residency.release(once.views), Code::ok);
  m.evict(x);

  const Call& twice = m.acquire(x, kRead);
  m.end_io(EIO);
  m.end_io(ENODATA);
  EXPECT_EQ(twice.code(), Code::io_error);
  ASSERT_NE(twice.request.status.info(), nullptr);
  EXPECT_EQ(twice.request.status.info()->native, ENODATA);
  EXPECT_EQ(twice.request.status.info()->buffer, x);
  EXPECT_SAYS(twice.request.status, "disk0");
  EXPECT_EQ(m.stats().io_retries, 2u);
  EXPECT_EQ(m.stats().io_errors, 1u);
  EXPECT_EQ(m.host.usage().in_use, 0u);
  EXPECT_EQ(m.value(x), 0x11);
}

TEST(MoverReads, read_fails_then_a_waiting_discard_of_all_bytes_succeeds) {
  M m;
  const Handle x = m.cold(0x11);
  const Call& reader = m.acquire(x, kRead);
  const Call& writer = m.acquire(x, kDiscard);
  EXPECT_FALSE(writer.done()) << "the read is under way";
  m.end_io(EIO);
  m.end_io(EIO);
  m.end_all();
  EXPECT_EQ(reader.code(), Code::io_error);
  ASSERT_EQ(writer.code(), Code::ok);
  std::memset(writer.data(), 0x33, M::kExtent);
  ASSERT_EQ(m.residency.release(writer.views), Code::ok);
  m.evict(x);
  EXPECT_EQ(m.value(x), 0x33);
}

TEST(MoverReads, a_wrong_checksum_is_read_once_more_and_then_the_bytes_are_lost) {
  M m;
  const Handle x = m.cold(0x11);
  const Call& once = m.acquire(x, kRead);
  m.port.end_with_damage();
  m.run_workers();
  EXPECT_FALSE(once.done());
  m.end_io();
  EXPECT_EQ(once.code(), Code::ok);
  EXPECT_EQ(m.stats().checksum_errors, 1u);
  ASSERT_EQ(m.residency.release(once.views), Code::ok);
  m.evict(x);

  const Call& twice = m.acquire(x, kRead);
  for (int reads = 0; reads < 2; ++reads) {
    EXPECT_FALSE(twice.done()) << "one that was right has made up for the first";
    m.port.end_with_damage();
    m.run_workers();
  }
  EXPECT_EQ(twice.code(), Code::lost);
  EXPECT_EQ(m.host.usage().in_use, 0u);
  EXPECT_EQ(m.acquire(x, kRead).code(), Code::lost);
  EXPECT_TRUE(m.port.requests.empty());

  const Call& anew = m.acquire(x, kDiscard);
  m.end_all();
  ASSERT_EQ(anew.code(), Code::ok);
  std::memset(anew.data(), 0x22, M::kExtent);
  ASSERT_EQ(m.residency.release(anew.views), Code::ok);
  m.evict(x);
  EXPECT_EQ(m.value(x), 0x22);
}

TEST(MoverReads, all_who_wait_for_a_read_that_fails_are_told) {
  M m;
  const Handle x = m.cold(0x11);
  const Call& first = m.acquire(x, kRead);
  const Call& second = m.acquire({M::access(m.buffer(), kWrite), M::access(x, kRead)});
  m.run_workers();
  m.end_io(EIO);
  m.end_io(EIO);
  EXPECT_EQ(first.code(), Code::io_error);
  EXPECT_EQ(second.code(), Code::io_error);
  EXPECT_TRUE(m.mover.idle());
}

}  // namespace
}  // namespace tiermem
