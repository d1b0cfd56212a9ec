// Sets of device memory that leave the device and return.
#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "preload_cuda/program.hpp"

namespace tiermem::test {
namespace {

using CudaSets = CudaProgram;

TEST_F(CudaSets, a_set_leaves_for_others_and_comes_back_to_its_addresses) {
  const auto first = filled(8 * kMiB, 1, "weights");
  const auto second = filled(20 * kMiB + 8, 2, "weights");
  const auto other = filled(4 * kMiB, 3);
  const std::uint64_t before = taken();
  ASSERT_EQ(tiermem_gpu_pause("weights", 0, 0), 0) << tiermem_gpu_error();
  EXPECT_LE(taken(), before - 28 * kMiB);
  EXPECT_EQ(wrong(other, 4 * kMiB, 3), 0u);

  // The tier's memory without the part that stayed.
  const auto room = filled(kTier - 4 * kMiB, 4);
  EXPECT_EQ(wrong(room, kTier - 4 * kMiB, 4), 0u);
  freed(room);

  ASSERT_EQ(tiermem_gpu_resume("weights", 0, 0), 0) << tiermem_gpu_error();
  EXPECT_EQ(wrong(first, 8 * kMiB, 1), 0u);
  EXPECT_EQ(wrong(second, 20 * kMiB + 8, 2), 0u);
  EXPECT_EQ(wrong(other, 4 * kMiB, 3), 0u);
  freed(first);
  freed(second);
  freed(other);
}

TEST_F(CudaSets, what_dram_has_no_room_for_comes_back_from_disk) {
  const auto block = filled(56 * kMiB, 1, "weights");
  const std::size_t resident = resident_bytes();
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(tiermem_gpu_pause("weights", 0, 0), 0) << tiermem_gpu_error();
    // The tier may use 32 MiB of DRAM (TIERMEM_GPU_DRAM); 8 MiB are for libraries.
    EXPECT_LE(resident_bytes(), resident + 40 * kMiB);
    ASSERT_EQ(tiermem_gpu_resume("weights", 0, 0), 0) << tiermem_gpu_error();
    EXPECT_EQ(wrong(block, 56 * kMiB, 1), 0u);
  }
}

TEST_F(CudaSets, a_part_of_a_set_leaves_and_comes_back) {
  std::vector<cuda::DevicePointer> blocks;
  for (std::uint64_t i = 0; i < 8; ++i) {
    blocks.push_back(filled(4 * kMiB, i, "cache"));
  }
  const std::uint64_t before = taken();
  ASSERT_EQ(tiermem_gpu_pause("cache", 9 * kMiB, 0), 0) << tiermem_gpu_error();
  EXPECT_EQ(taken(), before - 12 * kMiB);
  EXPECT_EQ(wrong(blocks[3], 4 * kMiB, 3), 0u);  // The blocks allocated first left.
  ASSERT_EQ(tiermem_gpu_resume("cache", 1, 0), 0) << tiermem_gpu_error();
  EXPECT_EQ(wrong(blocks[0], 4 * kMiB, 0), 0u);
  ASSERT_EQ(tiermem_gpu_resume(nullptr, 0, 0), 0) << tiermem_gpu_error();
  for (std::uint64_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(wrong(blocks[i], 4 * kMiB, i), 0u);
  }
}

TEST_F(CudaSets, two_sets_take_turns) {
  const auto a = filled(40 * kMiB, 1, "a");
  ASSERT_EQ(tiermem_gpu_pause("a", 0, 0), 0) << tiermem_gpu_error();
  const auto b = filled(40 * kMiB, 2, "b");
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(tiermem_gpu_pause("b", 0, 0), 0) << tiermem_gpu_error();
    ASSERT_EQ(tiermem_gpu_resume("a", 0, 0), 0) << tiermem_gpu_error();
    EXPECT_EQ(wrong(a, 40 * kMiB, 1), 0u);
    ASSERT_EQ(tiermem_gpu_pause("a", 0, 0), 0) << tiermem_gpu_error();
    ASSERT_EQ(tiermem_gpu_resume("b", 0, 0), 0) << tiermem_gpu_error();
    EXPECT_EQ(wrong(b, 40 * kMiB, 2), 0u);
  }
}

TEST_F(CudaSets, a_full_device_has_room_once_a_set_is_paused) {
  const auto old = filled(40 * kMiB, 1, "old");
  cuda::DevicePointer more = 1;
  EXPECT_EQ(cu.cuMemAlloc_v2(&more, 40 * kMiB), cuda::kOutOfMemory);
  EXPECT_EQ(more, 1u);
  ASSERT_EQ(tiermem_gpu_pause("old", 0, 0), 0) << tiermem_gpu_error();
  ASSERT_EQ(cu.cuMemAlloc_v2(&more, 40 * kMiB), cuda::kSuccess);
  fill(more, 40 * kMiB, 2);
  EXPECT_EQ(tiermem_gpu_resume("old", 0, 0), kNoCapacity);
  EXPECT_STRNE(tiermem_gpu_error(), "");
  EXPECT_EQ(wrong(more, 40 * kMiB, 2), 0u);
  freed(more);
  ASSERT_EQ(tiermem_gpu_resume("old", 0, 0), 0) << tiermem_gpu_error();
  EXPECT_EQ(wrong(old, 40 * kMiB, 1), 0u);
}

TEST_F(CudaSets, moves_that_were_begun_are_waited_for_by_name) {
  const auto a = filled(16 * kMiB, 1, "a");
  const auto b = filled(16 * kMiB, 2, "b");
  const std::uint64_t before = taken();
  ASSERT_EQ(tiermem_gpu_pause("a", 0, TIERMEM_GPU_ASYNC), 0) << tiermem_gpu_error();
  ASSERT_EQ(tiermem_gpu_pause("b", 0, TIERMEM_GPU_ASYNC), 0) << tiermem_gpu_error();
  EXPECT_EQ(tiermem_gpu_wait("a"), 0) << tiermem_gpu_error();
  EXPECT_LE(taken(), before - 16 * kMiB);
  EXPECT_EQ(tiermem_gpu_wait(nullptr), 0) << tiermem_gpu_error();
  EXPECT_LE(taken(), before - 32 * kMiB);
  ASSERT_EQ(tiermem_gpu_resume(nullptr, 0, TIERMEM_GPU_ASYNC), 0) << tiermem_gpu_error();
  EXPECT_EQ(tiermem_gpu_wait("b"), 0) << "what was begun for all is b's, too";
  EXPECT_EQ(wrong(a, 16 * kMiB, 1), 0u);
  EXPECT_EQ(wrong(b, 16 * kMiB, 2), 0u);
}

TEST_F(CudaSets, the_failure_of_a_move_is_told_to_who_waits_for_it) {
  const auto old = filled(40 * kMiB, 1, "old");
  ASSERT_EQ(tiermem_gpu_pause("old", 0, 0), 0);
  const auto now = filled(40 * kMiB, 2);
  const auto small = filled(2 * kMiB, 3, "small");
  ASSERT_EQ(tiermem_gpu_resume("old", 0, TIERMEM_GPU_ASYNC), 0) << tiermem_gpu_error();
  for (int i = 0; i < 100; ++i) {  // Also if its end was seen before.
    ASSERT_EQ(tiermem_gpu_pause("small", 0, TIERMEM_GPU_ASYNC), 0) << tiermem_gpu_error();
    EXPECT_EQ(tiermem_gpu_wait("small"), 0);
    ASSERT_EQ(tiermem_gpu_resume("small", 0, 0), 0) << tiermem_gpu_error();
    std::this_thread::sleep_for(std::chrono::milliseconds(i == 0 ? 200 : 0));
  }
  EXPECT_EQ(tiermem_gpu_wait("old"), kNoCapacity);
  EXPECT_EQ(tiermem_gpu_wait("old"), 0) << "told once";
  freed(now);
  freed(small);
  ASSERT_EQ(tiermem_gpu_resume("old", 0, 0), 0) << tiermem_gpu_error();
  EXPECT_EQ(wrong(old, 40 * kMiB, 1), 0u);
}

// No set has room on the device. Operations that fail or will fail are kept until the program asks,
// except the last, which the caller learns about at once.
TEST_F(CudaSets, a_move_that_cannot_be_kept_for_later_is_waited_for) {
  constexpr int kSets = 65;
  const auto name = [](int i) { return "set " + std::to_string(i); };
  for (int i = 0; i < kSets; ++i) {
    (void)filled(2 * kMiB, static_cast<std::uint64_t>(i), name(i).c_str());
    ASSERT_EQ(tiermem_gpu_pause(name(i).c_str(), 0, 0), 0) << tiermem_gpu_error();
  }
  const auto all = allocated(kTier);
  for (int i = 0; i < kSets - 1; ++i) {
    EXPECT_EQ(tiermem_gpu_resume(name(i).c_str(), 0, TIERMEM_GPU_ASYNC), 0) << i;
  }
  EXPECT_EQ(tiermem_gpu_resume(name(kSets - 1).c_str(), 0, TIERMEM_GPU_ASYNC), kNoCapacity);
  EXPECT_EQ(tiermem_gpu_wait(name(0).c_str()), kNoCapacity);
  EXPECT_EQ(tiermem_gpu_wait(nullptr), kNoCapacity);
  EXPECT_EQ(tiermem_gpu_wait(nullptr), 0);
  freed(all);
}

// The stream holds new bytes back until the gate opens, which is after the request to pause. The
// bytes that return must be the new ones.
TEST_F(CudaSets, a_pause_waits_for_what_the_device_was_given) {
  constexpr std::uint64_t kBytes = 4 * kMiB;
  const auto block = filled(kBytes, 1, "weights");
  void* locked = nullptr;
  ASSERT_EQ(cu.cuMemHostAlloc(&locked, kBytes, 0), cuda::kSuccess);
  put_words(locked, kBytes, 2);
  Gate& gate = new_gate();
  const cuda::Stream work = stream();
  hold(gate, work);
  ASSERT_EQ(cu.cuMemcpyHtoDAsync_v2(block, locked, kBytes, work), cuda::kSuccess);
  const std::uint64_t waits = fake.calls("cuCtxSynchronize");
  auto paused = std::async(std::launch::async, [] { return tiermem_gpu_pause("weights", 0, 0); });
  while (fake.calls("cuCtxSynchronize") == waits) {
    std::this_thread::yield();
  }
  gate.open();
  ASSERT_EQ(paused.get(), 0);
  ASSERT_EQ(tiermem_gpu_resume("weights", 0, 0), 0) << tiermem_gpu_error();
  EXPECT_EQ(wrong(block, kBytes, 2), 0u);
}

TEST_F(CudaSets, paused_memory_can_be_freed) {
  const auto block = filled(16 * kMiB, 1, "weights");
  ASSERT_EQ(tiermem_gpu_pause("weights", 0, 0), 0) << tiermem_gpu_error();
  const std::uint64_t before = taken();
  freed(block);
  EXPECT_EQ(cu.cuMemFree_v2(block), cuda::kInvalidValue);
  EXPECT_EQ(tiermem_gpu_resume(nullptr, 0, 0), 0) << tiermem_gpu_error();
  EXPECT_EQ(taken(), before);
}

TEST_F(CudaSets, what_cannot_be_is_refused_with_a_reason) {
  EXPECT_STREQ(tiermem_gpu_error(), "");
  EXPECT_EQ(tiermem_gpu_pause("weights", 0, 0), 0) << "nothing was allocated yet";
  const auto block = filled(4 * kMiB, 1, "weights");
  EXPECT_EQ(tiermem_gpu_pause("wights", 0, 0), kInvalidArgument);
  EXPECT_NE(std::string(tiermem_gpu_error()).find("'weights'"), std::string::npos);
  EXPECT_EQ(tiermem_gpu_pause("weights", 0, 2), kInvalidArgument);
  EXPECT_NE(std::string(tiermem_gpu_error()).find("0x2"), std::string::npos);
  const std::string longest(31, 'x');
  EXPECT_EQ(tiermem_gpu_tag(longest.c_str()), 0);
  EXPECT_EQ(tiermem_gpu_tag((longest + "x").c_str()), kInvalidArgument);
  EXPECT_EQ(tiermem_gpu_wait((longest + "x").c_str()), kInvalidArgument);
  EXPECT_EQ(wrong(block, 4 * kMiB, 1), 0u);
}

TEST_F(CudaSets, a_pause_during_a_capture_is_refused) {
  const auto block = filled(4 * kMiB, 1, "weights");
  const cuda::Stream work = stream();
  ASSERT_EQ(cu.cuStreamBeginCapture_v2(work, 0), cuda::kSuccess);
  EXPECT_EQ(tiermem_gpu_pause("weights", 0, 0), kUnsupported);
  Graph graph = nullptr;
  (void)cu.cuStreamEndCapture(work, &graph);
  EXPECT_EQ(wrong(block, 4 * kMiB, 1), 0u);
}

}  // namespace
}  // namespace tiermem::test
