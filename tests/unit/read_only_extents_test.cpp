// Extents that the program may only read. Goal: a store fails while an extent is protected and
// works after its release. If the mappings do not suffice, further extents stay open instead of
// using the mappings up. The tests store with a system call, which fails with EFAULT instead of
// raising a signal.
#include "tier/read_only_extents.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "os/host_memory.hpp"

namespace tiermem {
namespace {

/// Stores a byte. Returns 0, or the kernel's errno.
int store(std::byte* at) {
  const int zeros = ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
  const int error = ::read(zeros, at, 1) == 1 ? 0 : errno;
  ::close(zeros);
  return error;
}

struct ReadOnlyExtentsTest : ::testing::Test {
  static constexpr std::uint64_t kExtent = 16 * host::kPage;
  void SetUp() override {
    auto reserved = host::reserve({.bytes = 8 * kExtent, .alignment = kExtent});
    ASSERT_TRUE(reserved.ok()) << reserved.message();
    range = std::move(*reserved);
    std::memset(range.data(), 7, range.bytes());
  }
  std::byte* extent(unsigned i) { return range.data() + i * kExtent; }
  host::AddressRange range;
  const Userfault none;
};

TEST_F(ReadOnlyExtentsTest, extent_is_protected_then_a_store_fails_until_its_release) {
  ReadOnlyExtents extents(none, 65'530);
  extents.protect(extent(1), kExtent, false);
  EXPECT_EQ(store(extent(0) + kExtent - 1), 0);
  EXPECT_EQ(store(extent(1)), EFAULT);
  EXPECT_EQ(store(extent(1) + kExtent - 1), EFAULT);
  EXPECT_EQ(store(extent(2)), 0);
  EXPECT_EQ(extent(1)[5], std::byte{7}) << "it can be read";
  EXPECT_FALSE(extents.is_closed(extent(0) + kExtent - 1));
  EXPECT_TRUE(extents.is_closed(extent(1)));
  EXPECT_TRUE(extents.is_closed(extent(1) + kExtent - 1));
  EXPECT_FALSE(extents.is_closed(extent(2)));
  EXPECT_TRUE(extents.release(extent(1), kExtent));
  EXPECT_EQ(store(extent(1)), 0);
  EXPECT_FALSE(extents.release(extent(1), kExtent)) << "it is open already";
}

TEST_F(ReadOnlyExtentsTest, window_with_closed_extents_is_released_then_all_are_open) {
  ReadOnlyExtents extents(none, 65'530);
  for (const unsigned i : {1u, 2u, 5u, 7u}) {
    extents.protect(extent(i), kExtent, false);
  }
  EXPECT_TRUE(extents.release(extent(1), 5 * kExtent));
  EXPECT_EQ(store(extent(2)), 0);
  EXPECT_EQ(store(extent(5)), 0);
  EXPECT_EQ(store(extent(7)), EFAULT) << "it lies behind the range";
  EXPECT_TRUE(extents.release(extent(7), kExtent));
}

TEST_F(ReadOnlyExtentsTest, an_eighth_of_the_mappings_is_closed_then_further_extents_stay_open) {
  ReadOnlyExtents extents(none, 16);
  for (unsigned i = 0; i < 3; ++i) {
    extents.protect(extent(2 * i), kExtent, false);
  }
  EXPECT_EQ(store(extent(0)), EFAULT);
  EXPECT_EQ(store(extent(2)), EFAULT);
  EXPECT_EQ(store(extent(4)), 0);
  extents.release(extent(0), kExtent);
  extents.protect(extent(4), kExtent, false);
  EXPECT_EQ(store(extent(4)), EFAULT) << "there is room again";
  extents.release(extent(0), 8 * kExtent);
}

TEST_F(ReadOnlyExtentsTest, store_to_a_watched_extent_waits_until_it_is_closed) {
  const Userfault userfault = Userfault::open();
  if (!userfault.ok() || !userfault.facts().watch ||
      userfault.facts().source == UserfaultSource::user_mode) {
    GTEST_SKIP() << "no write-protection by userfaultfd: " << userfault.facts().reason;
  }
  ASSERT_EQ(userfault.register_missing(range.data(), range.bytes(), true), 0);
  ReadOnlyExtents extents(userfault, 65'530);
  extents.protect(extent(1), kExtent, true);
  EXPECT_FALSE(extents.is_closed(extent(1)));
  const auto await_store = [&](std::byte* at) {
    pollfd ready{userfault.fd(), POLLIN, 0};
    UserfaultEvent event;
    EXPECT_EQ(::poll(&ready, 1, 30'000), 1);
    EXPECT_EQ(userfault.read_event(event), 0);
    EXPECT_TRUE(event.watched);
    EXPECT_EQ(event.address, at);
  };
  int error = 0;
  std::thread storing([&] { error = store(extent(1) + 100); });
  await_store(extent(1) + 100);
  EXPECT_EQ(extents.close(extent(1), kExtent), 0);
  storing.join();
  EXPECT_EQ(error, EFAULT);
  EXPECT_EQ(store(extent(1) + 200), EFAULT) << "without another event";
  EXPECT_EQ(extents.close(extent(1), kExtent), 0) << "a repeated call is not an error";
  // Released, but still watched.
  EXPECT_TRUE(extents.release(extent(1), kExtent));
  std::thread again([&] { error = store(extent(1) + 300); });
  await_store(extent(1) + 300);
  EXPECT_EQ(userfault.allow_writes(extent(1), kExtent), 0);
  again.join();
  EXPECT_EQ(error, 0);
  // Without room for a mapping the call reports an error, and the store still waits.
  ReadOnlyExtents without_room(userfault, 0);
  EXPECT_EQ(without_room.close(extent(1), kExtent), ENOMEM);
}

}  // namespace
}  // namespace tiermem
