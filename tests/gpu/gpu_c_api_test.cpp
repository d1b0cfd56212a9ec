// The GPU tier through the C interface, on the fake driver or a real one (program.hpp).
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "gpu/program.hpp"
#include "tiermem.h"

namespace tiermem::test {
namespace {

constexpr std::int64_t kForever = -1;

TEST(GpuCApi, a_range_is_acquired_on_a_gpu_and_what_is_not_there_is_said) {
  if (FakeCuda* const fake = find_fake_cuda(); fake != nullptr) {
    fake->reset();
  }
  const std::string spec = std::string("dram=16M; nvme=off; gpu=0:8M; gpu_driver=") + test_driver();
  tm_context* context = nullptr;
  ASSERT_EQ(tm_context_create(spec.c_str(), nullptr, &context), TM_OK);
  tm_capabilities caps = {};
  caps.size = sizeof(caps);
  ASSERT_EQ(tm_caps(context, &caps), TM_OK);
  EXPECT_EQ(caps.spaces, 2u);
  EXPECT_NE(caps.kinds_here & 1u << TM_GPU, 0u);
  EXPECT_NE(caps.flags & TM_CAN_CUDA_STREAM, 0u);

  tm_buffer buffer = 0;
  ASSERT_EQ(tm_alloc(context, kMiB, nullptr, &buffer), TM_OK);
  tm_access access = {};
  access.buffer = buffer;
  access.mode = TM_DISCARD;
  access.where = {TM_GPU, 0};
  tm_view view = {};
  const Program program;
  std::vector<std::uint64_t> words(kMiB / 8);
  ASSERT_EQ(tm_acquire(context, &access, 1, TM_HOST_ORDER, kForever, &view), TM_OK);
  EXPECT_EQ(view.place.kind, static_cast<std::uint16_t>(TM_GPU));
  fill(words, 7);
  const auto at = reinterpret_cast<cuda::DevicePointer>(view.data);
  ASSERT_EQ(program.driver().cuMemcpyHtoDAsync(at, words.data(), kMiB, nullptr), cuda::kSuccess);
  ASSERT_EQ(program.driver().cuStreamSynchronize(nullptr), cuda::kSuccess);
  ASSERT_EQ(tm_release(context, &view, 1, TM_HOST_ORDER), TM_OK);

  std::memset(words.data(), 0, kMiB);
  ASSERT_EQ(tm_read(context, buffer, 0, words.data(), kMiB, kForever), TM_OK);
  EXPECT_EQ(wrong(words, 7), 0u);
  tm_counters counters = {};
  counters.size = sizeof(counters);
  ASSERT_EQ(tm_stats(context, &counters), TM_OK);
  EXPECT_EQ(counters.gpu_budget, 8 * kMiB);
  EXPECT_EQ(counters.gpu_bytes_out, kMiB);

  tm_view source = {};
  ASSERT_EQ(tm_acquire(context, &access, 1, TM_HOST_ORDER, kForever, &source), TM_OK);
  tm_buffer adopted = 0;
  EXPECT_EQ(tm_adopt_device(context, {TM_GPU, 0}, words.data(), kMiB, TM_HOST_ORDER, kForever,
                            nullptr, &adopted),
            TM_INVALID_ARGUMENT);
  EXPECT_EQ(tm_adopt_device(context, {TM_GPU, 0}, source.data, kMiB, {7, 0, nullptr}, kForever,
                            nullptr, &adopted),
            TM_INVALID_ARGUMENT);
  EXPECT_EQ(adopted, 0u);
  fill(words, 8);
  ASSERT_EQ(program.driver().cuMemcpyHtoDAsync(reinterpret_cast<cuda::DevicePointer>(source.data),
                                               words.data(), kMiB, nullptr),
            cuda::kSuccess);
  const tm_stream legacy = {TM_STREAM_CUDA, 0, nullptr};
  ASSERT_EQ(
      tm_adopt_device(context, {TM_GPU, 0}, source.data, kMiB, legacy, kForever, nullptr, &adopted),
      TM_OK);
  ASSERT_EQ(tm_release(context, &source, 1, legacy), TM_OK);
  ASSERT_EQ(tm_read(context, adopted, 0, words.data(), kMiB, kForever), TM_OK);
  EXPECT_EQ(wrong(words, 8), 0u);
  ASSERT_EQ(tm_free(context, adopted), TM_OK);

  access.where = {TM_GPU, 1};
  EXPECT_EQ(tm_acquire(context, &access, 1, TM_HOST_ORDER, kForever, &view), TM_UNAVAILABLE);
  void* object = nullptr;
  EXPECT_EQ(tm_malloc(context, tm_place{TM_BLOCK, 0}, 8, &object), TM_UNSUPPORTED);
  ASSERT_EQ(tm_free(context, buffer), TM_OK);
  ASSERT_EQ(tm_context_destroy(context, 0, kForever), TM_OK);
}

}  // namespace
}  // namespace tiermem::test
