// Processes: forks, and processes in which nothing is or can be tiered.
#include <sys/wait.h>
#include <unistd.h>

#include "preload/inner.hpp"
#include "preload_cuda/program.hpp"

namespace tiermem::test {
namespace {

using CudaProcess = CudaProgram;
using Inner = CudaProgram;

/// The exit status of a child that runs `body`.
template <typename Body>
int in_child(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    _exit(body());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

TEST_F(CudaProcess, a_child_of_fork_has_no_device_and_its_parent_goes_on) {
  const auto block = filled(8 * kMiB, 1, "weights");
  EXPECT_EQ(in_child([&] {
              cuda::DevicePointer at = 0;
              return cu.cuMemAlloc_v2(&at, 8 * kMiB) == cuda::kNotInitialized &&
                             cu.cuMemFree_v2(block) == cuda::kNotInitialized &&
                             tiermem_gpu_pause("weights", 0, 0) == kUnavailable
                         ? 42
                         : 0;
            }),
            42);
  ASSERT_EQ(tiermem_gpu_pause("weights", 0, 0), 0) << tiermem_gpu_error();
  ASSERT_EQ(tiermem_gpu_resume("weights", 0, 0), 0) << tiermem_gpu_error();
  EXPECT_EQ(wrong(block, 8 * kMiB, 1), 0u);
}

// ---- inner cases -------------------------------------------------------------------------------

TEST_F(Inner, DISABLED_has_plain_memory) {
  cuda::DevicePointer block = 0;
  ASSERT_EQ(cu.cuMemAlloc_v2(&block, 8 * kMiB), cuda::kSuccess);
  EXPECT_EQ(of_the_driver(), 1u);
  fill(block, 8 * kMiB, 1);
  EXPECT_EQ(wrong(block, 8 * kMiB, 1), 0u);
  EXPECT_EQ(free_bytes(), kDevice - 8 * kMiB);
  EXPECT_EQ(tiermem_gpu_pause(nullptr, 0, 0), kUnavailable);
  EXPECT_STRNE(tiermem_gpu_error(), "");
  EXPECT_EQ(tiermem_gpu_tag("weights"), kUnavailable);
  EXPECT_EQ(tiermem_gpu_wait("weights"), kUnavailable);
  int can = 0;
  EXPECT_EQ(cu.cuDeviceCanAccessPeer(&can, 1, 0), cuda::kSuccess);
  EXPECT_EQ(can, 1);
  freed(block);
  EXPECT_EQ(of_the_driver(), 0u);
}

TEST_F(Inner, DISABLED_has_large_blocks_only) {
  freed(filled(16 * kMiB - 1, 1));
  EXPECT_EQ(fake.calls("cuMemAlloc"), 1u);
  freed(filled(16 * kMiB, 1));
  EXPECT_EQ(fake.calls("cuMemAlloc"), 1u);
}

TEST_F(Inner, DISABLED_has_large_arrays_too) {
  std::vector<std::uint64_t> host(96 * kMiB / sizeof(std::uint64_t));
  put_words(host.data(), 96 * kMiB, 1);
  const auto block = allocated(48 * kMiB);
  ASSERT_EQ(cu.cuMemcpyHtoD_v2(block, host.data(), 48 * kMiB), cuda::kSuccess);
  ASSERT_EQ(tiermem_gpu_pause(nullptr, 0, 0), 0) << tiermem_gpu_error();
  put_words(host.data(), 48 * kMiB, 2);
  ASSERT_EQ(tiermem_gpu_resume(nullptr, 0, 0), 0) << tiermem_gpu_error();
  ASSERT_EQ(cu.cuMemcpyDtoH_v2(host.data(), block, 48 * kMiB), cuda::kSuccess);
  EXPECT_EQ(wrong_words(host.data(), 96 * kMiB, 1), 0u);
}

// ---- checks ------------------------------------------------------------------------------------

TEST(CudaProcesses, without_a_gpu_named_all_is_the_driver_s) {
  const End end = run_inner("has_plain_memory", {"TIERMEM_GPU="});
  EXPECT_TRUE(passed(end)) << end.output;
  const End off = run_inner("has_plain_memory", {"TIERMEM_GPU=off"});
  EXPECT_TRUE(passed(off)) << off.output;
}

TEST(CudaProcesses, a_tier_that_cannot_be_is_told_of_once_and_all_is_the_driver_s) {
  for (const char* setting :
       {"TIERMEM_GPU=0:64M,9:64M", "TIERMEM_GPU=0:1T", "TIERMEM_GPU_DRAM=plenty"}) {
    const End end = run_inner("has_plain_memory", {setting, "TIERMEM_LOG=error"});
    EXPECT_TRUE(passed(end)) << setting << "\n" << end.output;
  }
  const End end = run_inner("has_plain_memory", {"TIERMEM_GPU=0:64M,9:64M", "TIERMEM_LOG=error"});
  const std::size_t told = end.output.find("no device memory of this process is tiered");
  EXPECT_NE(told, std::string::npos) << end.output;
  EXPECT_EQ(end.output.find("no device memory of this process is tiered", told + 1),
            std::string::npos)
      << end.output;
}

TEST(CudaProcesses, host_and_device_memory_are_tiered_beside_each_other) {
  const End end = run_inner("has_large_arrays_too", {"TIERMEM_START=4K", "TIERMEM_DRAM=64M"});
  EXPECT_TRUE(passed(end)) << end.output;
}

TEST(CudaProcesses, the_threshold_can_be_chosen) {
  const End end = run_inner("has_large_blocks_only", {"TIERMEM_GPU_THRESHOLD=16M"});
  EXPECT_TRUE(passed(end)) << end.output;
}

struct Worker : CudaProgram {
  void TestBody() override {}
  bool works() const {
    const auto block = filled(8 * kMiB, 1, "weights");
    return of_the_driver() == 0 && tiermem_gpu_pause("weights", 0, 0) == 0 &&
           tiermem_gpu_resume("weights", 0, 0) == 0 && wrong(block, 8 * kMiB, 1) == 0;
  }
};

TEST(CudaProcesses, a_child_may_be_the_first_that_uses_a_device) {
  EXPECT_EQ(in_child([] { return Worker().works() ? 42 : 0; }), 42);
  EXPECT_TRUE(Worker().works());
}

}  // namespace
}  // namespace tiermem::test
