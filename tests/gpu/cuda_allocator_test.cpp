// Device memory as a framework gets it, by name: on the fake driver or a real one (program.hpp).
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "gpu/program.hpp"
#include "gpu/work.hpp"
#include "tiermem.h"

namespace tiermem::test {
namespace {

tm_context* open_gpu() {
  if (FakeCuda* const fake = find_fake_cuda(); fake != nullptr) {
    fake->reset();
  }
  const std::string spec =
      std::string("dram=64M; nvme=off; gpu=0:16M; gpu_driver=") + test_driver();
  tm_context* context = nullptr;
  EXPECT_EQ(tm_context_create(spec.c_str(), nullptr, &context), TM_OK);
  return context;
}

std::uint64_t placed(tm_context* context) {
  tm_counters counters{};
  counters.size = sizeof counters;
  EXPECT_EQ(tm_stats(context, &counters), TM_OK);
  return counters.gpu_placed;
}

tm_status last_status() {
  tm_error_info error{};
  error.size = sizeof error;
  EXPECT_EQ(tm_error(nullptr, 0, &error), TM_OK);
  return error.status;
}

TEST(CudaAllocator, blocks_are_device_memory_that_pauses_and_comes_back) {
  tm_context* const context = open_gpu();
  const Program program;
  ASSERT_EQ(tm_cuda_context(context), TM_OK);
  ASSERT_EQ(tm_gpu_tag("kv"), TM_OK);
  void* const one = tm_cuda_malloc(3 * kMiB, 0, program.stream());
  ASSERT_EQ(tm_gpu_tag(nullptr), TM_OK);
  void* const two = tm_cuda_malloc(100, 0, nullptr);
  ASSERT_NE(one, nullptr);
  ASSERT_NE(two, nullptr);
  program.put(one, 3 * kMiB, 7);
  ASSERT_EQ(tm_gpu_pause(context, "kv", 0, TM_HOST_ORDER, nullptr), TM_OK);
  ASSERT_EQ(tm_gpu_resume(context, "kv", 0, nullptr), TM_OK);
  EXPECT_EQ(wrong(program.words(one, 3 * kMiB), 7), 0u);
  tm_cuda_free(one, 3 * kMiB, 0, program.stream());
  tm_cuda_free(two, 100, 0, nullptr);
  ASSERT_EQ(program.driver().cuStreamSynchronize(program.stream()), cuda::kSuccess);
  EXPECT_EQ(placed(context), 0u);
  ASSERT_EQ(tm_cuda_context(nullptr), TM_OK);
  EXPECT_EQ(tm_context_destroy(context, 0, -1), TM_OK);
}

TEST(CudaAllocator, errors_are_null_and_the_reason_is_the_last_error) {
  tm_context* const context = open_gpu();
  ASSERT_EQ(tm_cuda_context(context), TM_OK);
  EXPECT_EQ(tm_cuda_malloc(0, 0, nullptr), nullptr);
  EXPECT_EQ(tm_cuda_malloc(-1, 0, nullptr), nullptr);
  EXPECT_EQ(last_status(), TM_INVALID_ARGUMENT);
  EXPECT_EQ(tm_cuda_malloc(1, 5, nullptr), nullptr);
  EXPECT_EQ(last_status(), TM_UNAVAILABLE);
  EXPECT_EQ(tm_cuda_malloc(64 * kMiB, 0, nullptr), nullptr);
  EXPECT_EQ(last_status(), TM_NO_CAPACITY);
  int outside = 0;
  tm_cuda_free(&outside, 4, 0, nullptr);
  EXPECT_EQ(last_status(), TM_INVALID_ARGUMENT);
  tm_cuda_free(nullptr, 4, 0, nullptr);
  EXPECT_EQ(placed(context), 0u);

  tm_context* plain = nullptr;
  ASSERT_EQ(tm_context_create("dram=16M; nvme=off", nullptr, &plain), TM_OK);
  EXPECT_EQ(tm_cuda_context(plain), TM_UNSUPPORTED);
  ASSERT_EQ(tm_context_destroy(plain, 0, -1), TM_OK);
  EXPECT_EQ(tm_cuda_context(plain), TM_SHUT_DOWN);
  EXPECT_EQ(tm_context_destroy(context, 0, -1), TM_OK);
  EXPECT_EQ(tm_cuda_malloc(1, 0, nullptr), nullptr);
  EXPECT_EQ(last_status(), TM_SHUT_DOWN);
  ASSERT_EQ(tm_cuda_context(nullptr), TM_OK);
}

// A graph may use the block when it runs, so its memory must not be allocated again before.
TEST(CudaAllocator, a_captured_stream_keeps_the_block) {
  tm_context* const context = open_gpu();
  const Program program;
  ASSERT_EQ(tm_cuda_context(context), TM_OK);
  void* const block = tm_cuda_malloc(kMiB, 0, nullptr);
  ASSERT_NE(block, nullptr);
  program.put(block, kMiB, 5);
  const std::uint64_t before = placed(context);
  for (const int mode : {0, 1, 2}) {  // Global, thread-local, relaxed.
    ASSERT_EQ(cu().cuStreamBeginCapture_v2(program.stream(), mode), cuda::kSuccess);
    tm_cuda_free(block, kMiB, 0, program.stream());
    EXPECT_EQ(last_status(), TM_UNSUPPORTED);
    Graph graph = nullptr;
    EXPECT_EQ(cu().cuStreamEndCapture(program.stream(), &graph), cuda::kSuccess);
    (void)cu().cuGraphDestroy(graph);
    EXPECT_EQ(placed(context), before);
  }
  EXPECT_EQ(wrong(program.words(block, kMiB), 5), 0u);
  tm_cuda_free(block, kMiB, 0, program.stream());
  ASSERT_EQ(program.driver().cuStreamSynchronize(program.stream()), cuda::kSuccess);
  EXPECT_EQ(placed(context), 0u);
  tm_cuda_free(block, kMiB, 0, program.stream());
  EXPECT_EQ(last_status(), TM_INVALID_ARGUMENT);  // Its record is gone as well.
  ASSERT_EQ(tm_cuda_context(nullptr), TM_OK);
  EXPECT_EQ(tm_context_destroy(context, 0, -1), TM_OK);
}

// A pool may outlive the name of its context.
TEST(CudaAllocator, blocks_keep_their_context_and_any_thread_frees_them) {
  tm_context* const context = open_gpu();
  const Program program;
  ASSERT_EQ(tm_cuda_context(context), TM_OK);
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) {
    blocks.push_back(tm_cuda_malloc(kMiB, 0, nullptr));
    ASSERT_NE(blocks.back(), nullptr);
  }
  ASSERT_EQ(tm_cuda_context(nullptr), TM_OK);
  ASSERT_EQ(tm_context_release(context), TM_OK);
  program.put(blocks[0], kMiB, 3);
  EXPECT_EQ(wrong(program.words(blocks[0], kMiB), 3), 0u);
  std::vector<std::thread> threads;
  for (void* const block : blocks) {
    threads.emplace_back([block] {
      const Program own;
      tm_cuda_free(block, kMiB, 0, own.stream());
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(tm_context_retain(context), TM_SHUT_DOWN);  // The last block has ended it.
}

}  // namespace
}  // namespace tiermem::test
