// The userfaultfd wrappers on real memory: progress and errors as the kernel reports them.
#include "os/userfault.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include "os/host_memory.hpp"
#include "uncounted_move.hpp"

namespace {

struct MoveCall {  // struct uffdio_move
  std::uint64_t dst, src, len, mode;
  std::int64_t move;
};
constexpr unsigned long kMove = _IOWR(0xAA, 0x05, MoveCall);

struct Uncounted {
  bool armed = false;
  std::uint64_t counted = 0, uncounted = 0;  // Bytes.
};
thread_local Uncounted t_uncounted;
thread_local unsigned t_busy = 0, t_again = 0;

long kernel(int fd, unsigned long request, void* argument) {
  return ::syscall(SYS_ioctl, fd, request, argument);
}

// Simulates the kernel's answer to a move that counts only its first part.
int move_uncounted(int fd, MoveCall& call) {
  const std::uint64_t moved = t_uncounted.counted + t_uncounted.uncounted;
  MoveCall all{call.dst, call.src, moved, 1, 0};  // 1: wakes no thread.
  EXPECT_EQ(kernel(fd, kMove, &all), 0);
  EXPECT_EQ(all.move, static_cast<std::int64_t>(moved));
  if (t_uncounted.counted > 0) {
    uffdio_range range{call.dst, t_uncounted.counted};
    EXPECT_EQ(kernel(fd, UFFDIO_WAKE, &range), 0);
  }
  t_uncounted.armed = false;
  call.move = t_uncounted.counted > 0 ? static_cast<std::int64_t>(t_uncounted.counted) : -EEXIST;
  errno = t_uncounted.counted > 0 ? EAGAIN : EEXIST;
  return -1;
}

}  // namespace

extern "C" int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list list;
  va_start(list, request);
  void* const argument = va_arg(list, void*);
  va_end(list);
  if (request == kMove && t_uncounted.armed) {
    return move_uncounted(fd, *static_cast<MoveCall*>(argument));
  }
  if (request == kMove && (t_again > 0 || t_busy > 0)) {
    errno = t_again > 0 ? EAGAIN : EBUSY;
    --(t_again > 0 ? t_again : t_busy);
    static_cast<MoveCall*>(argument)->move = -errno;
    return -1;
  }
  return static_cast<int>(kernel(fd, request, argument));
}

namespace tiermem {

UncountedMove::UncountedMove(unsigned counted, unsigned uncounted) {
  t_uncounted = {true, counted * host::kPage, uncounted * host::kPage};
}

UncountedMove::~UncountedMove() {
  t_uncounted = {};
}

bool UncountedMove::happened() const {
  return !t_uncounted.armed;
}

BusyMoves::BusyMoves(unsigned busy, unsigned again) {
  t_busy = busy;
  t_again = again;
}

BusyMoves::~BusyMoves() {
  t_busy = t_again = 0;
}

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
    (void)host::advise(window, 16 * kPage, host::Advise::no_huge);
    (void)host::advise(scratch, 16 * kPage, host::Advise::no_huge);
    ASSERT_EQ(userfault.register_missing(window, 16 * kPage), 0);
  }

  Userfault userfault = Userfault::open();
  host::AddressRange window_range, scratch_range;
  std::byte* window = nullptr;
  std::byte* scratch = nullptr;
};

TEST(Userfault, says_so_when_not_allowed) {
  const Userfault userfault = Userfault::open(UserfaultUse::off);
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
  (void)host::drop(scratch + 5 * kPage, kPage);
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

TEST_F(UserfaultTest, what_the_kernel_moves_and_does_not_count_is_counted) {
  for (const auto& [counted, uncounted] : {std::pair{0u, 1u}, {0u, 16u}, {5u, 3u}, {15u, 1u}}) {
    host::write_pattern(scratch, 16 * kPage);
    const UncountedMove forgetful(counted, uncounted);
    const UserfaultProgress moved = userfault.move(window, scratch, 16 * kPage);
    EXPECT_TRUE(forgetful.happened());
    EXPECT_EQ(moved.error, 0) << counted << " and " << uncounted;
    EXPECT_EQ(moved.done, 16 * kPage);
    EXPECT_TRUE(host::check_pattern(window, 16 * kPage));
    ASSERT_EQ(host::drop(window, 16 * kPage), 0);
  }
}

TEST_F(UserfaultTest, a_page_that_is_busy_for_a_moment_moves_and_one_that_stays_so_is_told) {
  host::write_pattern(scratch, 2 * kPage);
  {
    const BusyMoves compaction(3, 20);
    const UserfaultProgress moved = userfault.move(window, scratch, kPage);
    EXPECT_EQ(moved.error, 0);
    EXPECT_EQ(moved.done, kPage);
  }
  const BusyMoves device(1000);
  const UserfaultProgress moved = userfault.move(window + kPage, scratch + kPage, kPage);
  EXPECT_EQ(moved.error, EBUSY);
  EXPECT_EQ(moved.done, 0U);
}

TEST_F(UserfaultTest, what_is_in_the_way_is_so_behind_what_was_not_counted_too) {
  host::write_pattern(scratch, 16 * kPage);
  ASSERT_EQ(userfault.poison(window + 7 * kPage, kPage), 0);
  const UncountedMove forgetful(2, 5);
  const UserfaultProgress moved = userfault.move(window, scratch, 16 * kPage);
  EXPECT_TRUE(forgetful.happened());
  EXPECT_EQ(moved.error, EEXIST);
  EXPECT_EQ(moved.done, 7 * kPage);
  EXPECT_TRUE(host::check_pattern(window, 7 * kPage));
}

TEST_F(UserfaultTest, who_waits_for_a_page_that_was_not_counted_goes_on) {
  host::write_pattern(scratch, 16 * kPage);
  const std::byte expected = scratch[3 * kPage + 8];
  std::byte seen{};
  std::atomic<bool> went_on{false};
  std::thread toucher([&] {
    seen = *const_cast<volatile std::byte*>(window + 3 * kPage + 8);
    went_on = true;
  });
  UserfaultEvent event;
  while (userfault.read_event(event) == EAGAIN) {
    std::this_thread::yield();
  }
  const UncountedMove forgetful(2, 5);
  EXPECT_EQ(userfault.move(window, scratch, 16 * kPage).error, 0);
  for (int i = 0; i < 5000 && !went_on; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(went_on);
  userfault.wake(window, 16 * kPage);  // In case the call did not wake it.
  toucher.join();
  EXPECT_EQ(seen, expected);
}

// All waiting touches are reported, however small the buffer.
TEST_F(UserfaultTest, several_touches_are_read_at_once) {
  constexpr std::size_t kTouchers = 5;
  std::vector<std::thread> touchers;
  for (std::size_t i = 0; i < kTouchers; ++i) {
    touchers.emplace_back([&, i] { window[i * kPage] = std::byte{1}; });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::set<std::byte*> touched;
  std::array<UserfaultEvent, 3> some;
  std::size_t n = 0;
  std::size_t most = 0;
  for (int tries = 0; touched.size() < kTouchers && tries < 5000; ++tries) {
    if (userfault.read_events(some, n) != 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    most = std::max(most, n);
    for (const UserfaultEvent& event : std::span(some).first(n)) {
      EXPECT_TRUE(event.write);
      EXPECT_FALSE(event.watched);
      touched.insert(event.address);
    }
  }
  EXPECT_EQ(touched.size(), kTouchers);
  EXPECT_GT(most, 1u);
  EXPECT_EQ(userfault.read_events(some, n), EAGAIN);
  EXPECT_EQ(n, 0u);
  EXPECT_EQ(userfault.zero(window, 16 * kPage), 0);
  for (std::thread& toucher : touchers) {
    toucher.join();
  }
}

TEST_F(UserfaultTest, copy_brings_the_bytes_and_keeps_the_source) {
  host::write_pattern(scratch, 16 * kPage);
  EXPECT_EQ(userfault.copy(window, scratch, 16 * kPage).error, 0);
  EXPECT_TRUE(host::check_pattern(window, 16 * kPage));
  EXPECT_TRUE(host::check_pattern(scratch, 16 * kPage));
}

// The program's own advice for some pages makes them separate mappings.
TEST_F(UserfaultTest, a_range_of_several_mappings_is_moved_and_copied_whole) {
  ASSERT_EQ(::madvise(window + 3 * kPage, 4 * kPage, MADV_DONTDUMP), 0);
  host::write_pattern(scratch, 16 * kPage);
  UserfaultProgress all = userfault.copy(window, scratch, 16 * kPage);
  EXPECT_EQ(all.error, 0);
  EXPECT_EQ(all.done, 16 * kPage);
  EXPECT_TRUE(host::check_pattern(window, 16 * kPage));
  ASSERT_EQ(host::drop(window, 16 * kPage), 0);
  all = userfault.move(window, scratch, 16 * kPage);
  EXPECT_EQ(all.error, 0);
  EXPECT_EQ(all.done, 16 * kPage);
  EXPECT_TRUE(host::check_pattern(window, 16 * kPage));
  // A move that is refused for another reason is refused at its first page.
  ASSERT_EQ(host::drop(window, 16 * kPage), 0);
  host::write_pattern(scratch, 16 * kPage);
  ASSERT_EQ(::mprotect(window, 16 * kPage, PROT_READ), 0);
  all = userfault.move(window, scratch, 16 * kPage);
  EXPECT_NE(all.error, 0);
  EXPECT_EQ(all.done, 0u);
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
