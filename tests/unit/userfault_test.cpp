// The userfaultfd wrappers on real memory: progress and errors as the kernel reports them.
#include "os/userfault.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "os/host_memory.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kPage = host::kPage;

class UserfaultTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!userfault.ok()) {
      GTEST_SKIP() << "no userfaultfd: " << userfault.facts().reason;
    }
    if (!userfault.facts().move || !userfault.facts().poison) {
      GTEST_SKIP() << "UFFDIO_MOVE or UFFDIO_POISON is missing";
    }
    auto first = host::reserve({.bytes = 16 * kPage});
    auto second = host::reserve({.bytes = 16 * kPage});
    ASSERT_TRUE(first.ok() && second.ok());
    window_range = std::move(*first);
    scratch_range = std::move(*second);
    window = window_range.data();
    scratch = scratch_range.data();
    host::advise(window, 16 * kPage, host::Advise::no_huge);
    host::advise(scratch, 16 * kPage, host::Advise::no_huge);
    ASSERT_EQ(userfault.register_missing(window, 16 * kPage), 0);
  }

  Userfault userfault = Userfault::open(true);
  host::AddressRange window_range, scratch_range;
  std::byte* window = nullptr;
  std::byte* scratch = nullptr;
};

TEST(Userfault, says_so_when_not_allowed) {
  const Userfault userfault = Userfault::open(false);
  EXPECT_FALSE(userfault.ok());
  EXPECT_EQ(userfault.facts().source, UserfaultSource::none);
  EXPECT_STRNE(userfault.facts().reason, "");
  char reason[64] = {};
  EXPECT_FALSE(userfault.probe_move(reason, sizeof(reason)));
  EXPECT_STRNE(reason, "");
}

TEST_F(UserfaultTest, is_closed_on_exec_and_does_not_block) {
  EXPECT_NE(fcntl(userfault.fd(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_NE(fcntl(userfault.fd(), F_GETFL) & O_NONBLOCK, 0);
  UserfaultEvent event;
  EXPECT_EQ(userfault.read_event(event), EAGAIN);
}

TEST_F(UserfaultTest, move_brings_the_bytes_and_empties_the_source) {
  host::write_pattern(scratch, 16 * kPage);
  const UserfaultProgress moved = userfault.move(window, scratch, 16 * kPage);
  EXPECT_EQ(moved.error, 0);
  EXPECT_EQ(moved.done, 16 * kPage);
  EXPECT_TRUE(host::check_pattern(window, 16 * kPage));
  EXPECT_EQ(scratch[0], std::byte{0});
}

TEST_F(UserfaultTest, move_reports_how_far_it_got) {
  host::write_pattern(scratch, 16 * kPage);
  host::drop(scratch + 5 * kPage, kPage);
  const UserfaultProgress moved = userfault.move(window, scratch, 16 * kPage);
  EXPECT_EQ(moved.error, ENOENT);
  EXPECT_EQ(moved.done, 5 * kPage);
  EXPECT_TRUE(host::check_pattern(window, 5 * kPage));
}

TEST_F(UserfaultTest, move_does_not_overwrite) {
  host::write_pattern(scratch, 2 * kPage);
  ASSERT_EQ(userfault.move(window, scratch, kPage).error, 0);
  host::write_pattern(scratch, 2 * kPage);
  EXPECT_EQ(userfault.move(window, scratch, kPage).error, EEXIST);
}

TEST_F(UserfaultTest, copy_brings_the_bytes_and_keeps_the_source) {
  host::write_pattern(scratch, 16 * kPage);
  EXPECT_EQ(userfault.copy(window, scratch, 16 * kPage).error, 0);
  EXPECT_TRUE(host::check_pattern(window, 16 * kPage));
  EXPECT_TRUE(host::check_pattern(scratch, 16 * kPage));
}

TEST_F(UserfaultTest, poison_keeps_pages_out_until_dropped) {
  host::write_pattern(scratch, kPage);
  ASSERT_EQ(userfault.poison(window, kPage), 0);
  EXPECT_EQ(userfault.move(window, scratch, kPage).error, EEXIST);
  ASSERT_EQ(host::drop(window, kPage), 0);
  EXPECT_EQ(userfault.move(window, scratch, kPage).error, 0);
  EXPECT_EQ(userfault.poison(window, kPage), EEXIST);
}

TEST_F(UserfaultTest, a_touch_is_an_event_and_a_move_lets_it_go_on) {
  host::write_pattern(scratch, 16 * kPage);
  const std::byte expected = scratch[3 * kPage + 8];
  std::byte seen{};
  std::thread toucher([&] { seen = *const_cast<volatile std::byte*>(window + 3 * kPage + 8); });
  UserfaultEvent event;
  while (userfault.read_event(event) == EAGAIN) {
    std::this_thread::yield();
  }
  EXPECT_EQ(reinterpret_cast<std::uint64_t>(event.address) / kPage,
            reinterpret_cast<std::uint64_t>(window) / kPage + 3);
  EXPECT_FALSE(event.write);
  EXPECT_EQ(userfault.move(window, scratch, 16 * kPage).error, 0);
  toucher.join();
  EXPECT_EQ(seen, expected);
}

TEST_F(UserfaultTest, the_probe_passes_where_move_exists) {
  char reason[128] = {};
  EXPECT_TRUE(userfault.probe_move(reason, sizeof(reason))) << reason;
}

}  // namespace
}  // namespace tiermem
