// Buffers of several extents between DRAM and a device. Their frames are page-locked at home, while
// no view shows them, and return to their window when a view on the host needs them. The fake
// driver counts copies from or to memory that is not locked. Bytes are checked on both sides.
#include <gtest/gtest.h>

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "gpu/gpu_context.hpp"
#include "gpu/work.hpp"
#include "support/locked_pages.hpp"

namespace tiermem::test {
namespace {

class GpuHomes : public GpuContext {
 protected:
  static constexpr std::uint64_t kExtents = 6;
  static constexpr std::uint64_t kBytes = kExtents * kChunk;

  static View part(const Buffer& buffer, std::uint32_t mode, std::uint64_t extent,
                   std::uint64_t bytes = kChunk) {
    auto view = buffer.acquire_on(kGpu, mode, extent * bytes, bytes, kSoon);
    EXPECT_TRUE(view.ok()) << view.message();
    return view.ok() ? std::move(view).value() : View();
  }
  static View look(const Buffer& buffer, std::uint32_t mode, std::uint64_t extent) {
    auto view = buffer.acquire(mode, extent * kChunk, kChunk, kSoon);
    EXPECT_TRUE(view.ok()) << view.message();
    return view.ok() ? std::move(view).value() : View();
  }
  // Writes each extent's own bytes through views on the host.
  static void write_all(const Buffer& buffer, std::uint64_t seed, std::uint64_t extents) {
    for (std::uint64_t i = 0; i < extents; ++i) {
      fill(look(buffer, kDiscard, i).as<std::uint64_t>(), seed + i);
    }
  }
  static bool host_has(const Buffer& buffer, std::uint64_t seed, std::uint64_t extents) {
    bool right = true;
    for (std::uint64_t i = 0; i < extents; ++i) {
      right = right && wrong(look(buffer, kRead, i).as<std::uint64_t>(), seed + i) == 0;
    }
    return right;
  }
  // Reads the extents on the device, in order, into page-locked memory of the program.
  static bool device_has(Work& work, const Buffer& buffer, std::uint64_t seed,
                         std::uint64_t extents) {
    bool right = true;
    for (std::uint64_t i = 0; i < extents; ++i) {
      const View view = part(buffer, kRead, i);
      work.begin_get(view);
      right = work.got(seed + i) && right;
    }
    return right;
  }
  static void device_writes(Work& work, const Buffer& buffer, std::uint64_t seed,
                            std::uint64_t extents) {
    for (std::uint64_t i = 0; i < extents; ++i) {
      const View view = part(buffer, kWrite, i);
      work.begin_put(view, seed + i);
      work.finish();
    }
  }
};

// Weights: written once on the host and read on the device again and again; they exceed its memory.
TEST_F(GpuHomes, what_is_read_again_and_again_is_copied_from_locked_memory) {
  open("0:6M", "dram=64M");
  const FakeCuda& fake = fake_cuda();
  const Program program;
  Work work(program);
  const Buffer& weights = add(kBytes);
  write_all(weights, 10, kExtents);
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(device_has(work, weights, 10, kExtents)) << round;
  }
  EXPECT_GE(fake.copied_bytes(), 3 * (kBytes - 3 * kChunk));
  EXPECT_EQ(fake.pageable_bytes(), 0u);
  EXPECT_TRUE(host_has(weights, 10, kExtents));
}

// Bytes written on the device leave it and come back.
TEST_F(GpuHomes, what_the_device_wrote_goes_out_and_back_by_locked_memory) {
  open("0:6M", "dram=64M");
  const FakeCuda& fake = fake_cuda();
  const Program program;
  Work work(program);
  const Buffer& buffer = add(kBytes);
  for (std::uint64_t round = 0; round < 4; ++round) {
    device_writes(work, buffer, 100 * round, kExtents);
    EXPECT_TRUE(device_has(work, buffer, 100 * round, kExtents)) << round;
  }
  EXPECT_EQ(fake.pageable_bytes(), 0u);
  const std::uint64_t locked = fake.live().registrations;
  EXPECT_TRUE(host_has(buffer, 300, kExtents));
  EXPECT_LT(fake.live().registrations, locked) << "what is in a window is not locked";
}

// Host and device write alternately, like a host's optimizer and a device. Each sees the other's
// latest bytes.
TEST_F(GpuHomes, host_and_device_take_turns) {
  open("0:16M", "dram=64M");
  const Program program;
  Work work(program);
  const Buffer& buffer = add(kBytes);
  for (std::uint64_t round = 0; round < 5; ++round) {
    write_all(buffer, 1000 * round, kExtents);
    EXPECT_TRUE(device_has(work, buffer, 1000 * round, kExtents)) << round;
    EXPECT_TRUE(host_has(buffer, 1000 * round, kExtents)) << round;
    device_writes(work, buffer, 1000 * round + 500, kExtents);
    EXPECT_TRUE(host_has(buffer, 1000 * round + 500, kExtents)) << round;
  }
}

TEST_F(GpuHomes, what_a_view_shows_stays_in_its_window_and_is_copied_from_there) {
  open("0:16M", "dram=64M");
  const FakeCuda& fake = fake_cuda();
  const Program program;
  Work work(program);
  const Buffer& buffer = add(kBytes);
  write_all(buffer, 20, kExtents);
  {
    const View held = look(buffer, kRead, 2);
    const auto* const at = held.data();
    EXPECT_TRUE(device_has(work, buffer, 20, kExtents));
    EXPECT_EQ(fake.pageable_bytes(), kChunk);
    EXPECT_EQ(context->stats().gpu_bytes_pageable, kChunk);
    EXPECT_EQ(held.data(), at);
    EXPECT_EQ(wrong(held.as<const std::uint64_t>(), 22), 0u);
  }
  ASSERT_TRUE(buffer.evict(0, 0).ok());
}

// The program's own I/O holds the window's pages without a view, so they cannot leave.
TEST_F(GpuHomes, what_the_kernel_does_not_let_go_is_copied_from_its_window) {
  open("0:16M", "dram=64M; mechanism=uffd_move");
  const FakeCuda& fake = fake_cuda();
  const Program program;
  Work work(program);
  const Buffer& buffer = add(kBytes);
  write_all(buffer, 90, kExtents);
  std::byte* const at = look(buffer, kRead, 1).data();
  LockedPages locked(at, kChunk);
  if (!locked.why_not().empty()) {
    GTEST_SKIP() << locked.why_not();
  }
  EXPECT_TRUE(device_has(work, buffer, 90, kExtents));
  EXPECT_EQ(fake.pageable_bytes(), kChunk);
  {
    const View again = look(buffer, kRead, 1);
    EXPECT_EQ(again.data(), at);
    EXPECT_EQ(wrong(again.as<const std::uint64_t>(), 91), 0u);
  }
  locked.release();
  device_writes(work, buffer, 190, kExtents);
  EXPECT_TRUE(host_has(buffer, 190, kExtents));
}

TEST_F(GpuHomes, a_driver_that_locks_no_memory_costs_speed_only) {
  fake_cuda().set_lockable(0);
  open("0:6M", "dram=64M");
  const Program program;
  const Buffer& buffer = add(kBytes);
  write_all(buffer, 30, kExtents);
  for (std::uint64_t i = 0; i < 2 * kExtents; ++i) {
    EXPECT_TRUE(program.holds(part(buffer, kRead, i % kExtents), 30 + i % kExtents));
  }
  program.put(part(buffer, kWrite, 1), 99);
  EXPECT_EQ(wrong(look(buffer, kRead, 1).as<std::uint64_t>(), 99), 0u);
  EXPECT_EQ(fake_cuda().live().registrations, 0u);
}

// Views on the host come and go while a device reads the same extents. The views have the host's
// address of the buffer and its bytes.
TEST_F(GpuHomes, readers_on_both_sides_disturb_nobody) {
  open("0:6M", "dram=64M");
  const Program program;
  Work work(program);
  const Buffer& buffer = add(kBytes);
  write_all(buffer, 40, kExtents);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> looked{0};
  std::thread reader([&] {
    for (std::uint64_t i = 0; !stop.load(); i = (i + 1) % kExtents) {
      const View view = look(buffer, kRead, i);
      EXPECT_EQ(wrong(view.as<const std::uint64_t>(), 40 + i), 0u);
      looked.fetch_add(1);
    }
  });
  for (int round = 0; round < 6 || looked.load() < 3 * kExtents; ++round) {
    EXPECT_TRUE(device_has(work, buffer, 40, kExtents)) << round;
  }
  stop.store(true);
  reader.join();
}

TEST_F(GpuHomes, what_is_at_home_is_written_down_and_read_again) {
  open("0:6M", "dram=64M");
  const Program program;
  Work work(program);
  const Buffer& buffer = add(kBytes);
  device_writes(work, buffer, 50, kExtents);
  ASSERT_TRUE(buffer.evict(0, 0).ok());
  EXPECT_EQ(context->stats().dram_pinned, 0u);
  EXPECT_TRUE(device_has(work, buffer, 50, kExtents));
  EXPECT_TRUE(host_has(buffer, 50, kExtents));
}

// A frame that was locked for one buffer can later serve another buffer in its window.
TEST_F(GpuHomes, a_locked_frame_is_anothers_in_a_window) {
  open("0:16M", "dram=64M");
  const FakeCuda& fake = fake_cuda();
  const Program program;
  Work work(program);
  {
    const Buffer first = std::move(add(kBytes));
    buffers.pop_back();
    write_all(first, 60, kExtents);
    EXPECT_TRUE(device_has(work, first, 60, kExtents));
    EXPECT_GE(fake.live().registrations, kExtents);
  }
  const Buffer& second = add(kBytes);
  write_all(second, 70, kExtents);
  EXPECT_TRUE(host_has(second, 70, kExtents));
  EXPECT_EQ(fake.pageable_bytes(), 0u);
}

thread_local sigjmp_buf after_bus;
std::atomic<int> bus_errors{0};
void on_bus(int) {
  ++bus_errors;
  siglongjmp(after_bus, 1);
}

// The address is in the window, where the extent is absent. The touch is handled like one of any
// absent extent.
TEST_F(GpuHomes, a_touch_without_a_view_of_what_is_at_home_is_a_mistake_that_is_told) {
  open("0:16M", "dram=64M; mechanism=uffd_move");
  const Program program;
  Work work(program);
  const Buffer& buffer = add(kBytes);
  write_all(buffer, 80, kExtents);
  std::byte* const at = look(buffer, kRead, 0).data();
  EXPECT_TRUE(device_has(work, buffer, 80, kExtents));
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = on_bus;
  action.sa_flags = SA_NODEFER;
  ASSERT_EQ(sigaction(SIGBUS, &action, &before), 0);
  bus_errors = 0;
  std::thread toucher([&] {
    if (sigsetjmp(after_bus, 1) == 0) {
      *const_cast<volatile std::byte*>(at + 12345) = std::byte{1};
    }
  });
  toucher.join();
  sigaction(SIGBUS, &before, nullptr);
  EXPECT_EQ(bus_errors, 1);
  EXPECT_TRUE(host_has(buffer, 80, kExtents));
}

// For each mechanism that moves frames into windows. In-place windows have no home, and copies of
// them are like copies of any pageable memory.
class GpuHomesBy : public GpuHomes, public testing::WithParamInterface<const char*> {};

TEST_P(GpuHomesBy, bytes_are_right_on_both_sides) {
  const FakeCuda& fake = fake_cuda();
  auto made = Context::create(spec("0:6M", std::string("dram=64M; mechanism=") + GetParam()));
  if (!made.ok()) {
    GTEST_SKIP() << made.message();
  }
  context = std::move(*made);
  const Program program;
  Work work(program);
  const Buffer& large = add(kBytes);
  write_all(large, 10, kExtents);
  for (std::uint64_t round = 0; round < 3; ++round) {
    EXPECT_TRUE(device_has(work, large, 10 + 100 * round, kExtents));
    EXPECT_TRUE(host_has(large, 10 + 100 * round, kExtents));
    device_writes(work, large, 110 + 100 * round, kExtents);
  }
  EXPECT_TRUE(host_has(large, 310, kExtents));
  const bool has_homes = std::string(GetParam()) != "in_place";
  EXPECT_EQ(fake.pageable_bytes() == 0, has_homes) << fake.pageable_bytes();
}

INSTANTIATE_TEST_SUITE_P(GpuHomes, GpuHomesBy,
                         testing::Values("uffd_move", "copy", "remap", "in_place"),
                         [](const auto& tested) { return std::string(tested.param); });

// Pieces of a KV cache: extents of 64 KiB in frames of small pages.
TEST_P(GpuHomesBy, small_extents_go_home_too) {
  constexpr std::uint64_t kPiece = 64 << 10, kPieces = 64;
  const FakeCuda& fake = fake_cuda();
  auto made = Context::create(spec("0:2M", std::string("dram=64M; mechanism=") + GetParam()));
  if (!made.ok()) {
    GTEST_SKIP() << made.message();
  }
  context = std::move(*made);
  const Program program;
  Work work(program, kPiece);
  const Buffer& cache = add(kPieces * kPiece, {.extent_bytes = kPiece});
  {
    auto all = cache.acquire(kDiscard, 0, 0, kSoon);
    ASSERT_TRUE(all.ok()) << all.message();
    const std::span<std::uint64_t> words = all->as<std::uint64_t>();
    for (std::uint64_t i = 0; i < kPieces; ++i) {
      fill(words.subspan(i * kPiece / 8, kPiece / 8), i);
    }
  }
  for (std::uint64_t i = 0; i < 2 * kPieces; ++i) {
    const View view = part(cache, kRead, i % kPieces, kPiece);
    work.begin_get(view);
    EXPECT_TRUE(work.got(i % kPieces)) << i;
  }
  // Small pages are not remapped, so these windows are in place.
  const std::string by = GetParam();
  EXPECT_EQ(fake.pageable_bytes() == 0, by == "uffd_move" || by == "copy");
  EXPECT_EQ(context->stats().gpu_bytes_pageable, fake.pageable_bytes());
  auto all = cache.acquire(kRead, 0, 0, kSoon);
  ASSERT_TRUE(all.ok()) << all.message();
  const auto words = all->as<const std::uint64_t>();
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    EXPECT_EQ(wrong(words.subspan(i * kPiece / 8, kPiece / 8), i), 0u) << i;
  }
}

}  // namespace
}  // namespace tiermem::test
