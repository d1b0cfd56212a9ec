// Kernels and managed memory of the fake driver. The supported calls do what they document, in the
// order of their stream. All other calls are refused.
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "fake_cuda_client.hpp"

namespace tiermem::test {
namespace {

using cuda::kInvalidValue;
using cuda::kSuccess;

constexpr cuda::Result kInvalidText = 218;
constexpr const char* kText = ".version 6.0\n.visible .entry tiermem_adam(.param .u64 a) { ret; }";

class FakeKernels : public FakeDriver {
 protected:
  cuda::Module load(const char* text = kText) {
    cuda::Module module = nullptr;
    EXPECT_EQ(cu.cuModuleLoadData(&module, text), kSuccess);
    return module;
  }
  cuda::Function adam(cuda::Module module) {
    cuda::Function function = nullptr;
    EXPECT_EQ(cu.cuModuleGetFunction(&function, module, "tiermem_adam"), kSuccess);
    return function;
  }
  cuda::Result launch(cuda::Function function, cuda::Stream where,
                      const std::array<cuda::DevicePointer, 4>& arrays, std::uint64_t count,
                      unsigned threads = 32) {
    std::array<cuda::DevicePointer, 4> at = arrays;
    float rate = 0.5F;
    void* parameters[] = {&at[0], &at[1], &at[2], &at[3], &count, &rate};
    return cu.cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, where, parameters, nullptr);
  }
};

// Gradient 1, starting from zeros: the moments are 0.1 and 0.001, the step rate × 0.1 ÷
// sqrt(0.001).
TEST_F(FakeKernels, a_kernel_works_on_its_arrays_in_the_order_of_its_stream) {
  constexpr std::uint64_t kCount = 1000;
  const cuda::Module module = load();
  const cuda::Function function = adam(module);
  std::array<cuda::DevicePointer, 4> arrays = {};
  for (cuda::DevicePointer& array : arrays) {
    array = mapped();
  }
  const cuda::Stream own = stream();
  Gate& gate = new_gate();
  ASSERT_EQ(cu.cuLaunchHostFunc(own, Gate::wait, &gate), kSuccess);
  for (std::size_t i = 0; i < 4; ++i) {
    ASSERT_EQ(cu.cuMemsetD8Async(arrays[i], 0, kCount * 4, own), kSuccess);
  }
  const std::vector<float> ones(kCount, 1.0F);
  gate.open();
  ASSERT_EQ(cu.cuMemcpyHtoDAsync_v2(arrays[1], ones.data(), kCount * 4, own), kSuccess);
  ASSERT_EQ(launch(function, own, arrays, kCount), kSuccess);
  ASSERT_EQ(cu.cuStreamSynchronize(own), kSuccess);
  std::array<std::vector<float>, 4> got;
  for (std::size_t i = 0; i < 4; ++i) {
    got[i].resize(kCount);
    ASSERT_EQ(cu.cuMemcpyDtoH_v2(got[i].data(), arrays[i], kCount * 4), kSuccess);
  }
  EXPECT_NEAR(got[0].back(), -0.5 * 0.1 / 0.0316228, 1e-4);
  EXPECT_EQ(got[1], ones) << "what is read only stays";
  EXPECT_FLOAT_EQ(got[2].front(), 0.1F);
  EXPECT_FLOAT_EQ(got[3].back(), 0.001F);
  EXPECT_EQ(fake.live().modules, 1u);
  ASSERT_EQ(cu.cuModuleUnload(module), kSuccess);
  EXPECT_EQ(fake.live().modules, 0u);
  EXPECT_EQ(launch(function, own, arrays, kCount), cuda::kInvalidHandle);
}

TEST_F(FakeKernels, what_it_does_not_know_is_refused) {
  cuda::Module module = nullptr;
  EXPECT_EQ(cu.cuModuleLoadData(&module, ".entry somebody_elses(.param .u64 a)"), kInvalidText);
  EXPECT_EQ(cu.cuModuleLoadData(&module, "no kernel at all"), kInvalidText);
  EXPECT_EQ(cu.cuModuleLoadData(&module, ".entry tiermem_adam() {} .entry somebody_elses() {}"),
            kInvalidText);
  EXPECT_EQ(cu.cuModuleLoadData(&module, nullptr), kInvalidValue);
  module = load();
  cuda::Function function = nullptr;
  EXPECT_EQ(cu.cuModuleGetFunction(&function, module, "tiermem_ada"), cuda::kNotFound);
  function = adam(module);
  const cuda::DevicePointer at = mapped();
  EXPECT_EQ(launch(function, stream(), {at, at, at, at}, 8, 2048), kInvalidValue);
  EXPECT_EQ(launch(function, stream(), {at, at, at, at}, 8, 0), kInvalidValue);
}

TEST_F(FakeKernels, memory_that_is_not_there_is_an_illegal_access) {
  const cuda::Function function = adam(load());
  const cuda::DevicePointer at = mapped();
  const cuda::Stream own = stream();
  ASSERT_EQ(launch(function, own, {at, at, at, at + kChunk - 16}, 5), kSuccess);
  EXPECT_EQ(cu.cuStreamSynchronize(own), cuda::kIllegalAddress);
}

TEST_F(FakeKernels, managed_memory_is_the_host_s_and_a_kernel_s) {
  constexpr std::uint64_t kCount = 64;
  const cuda::Function function = adam(load());
  std::array<cuda::DevicePointer, 4> arrays = {};
  for (cuda::DevicePointer& array : arrays) {
    ASSERT_EQ(cu.cuMemAllocManaged(&array, kCount * 4, cuda::kAttachGlobal), kSuccess);
  }
  EXPECT_EQ(fake.live().allocations, 4u);
  const auto of = [&](std::size_t i) { return reinterpret_cast<float*>(arrays[i]); };
  of(1)[kCount - 1] = 1.0F;
  const cuda::Stream own = stream();
  EXPECT_EQ(cu.cuMemAdvise(arrays[0], kCount * 4, cuda::kSetPreferredLocation, cuda::kProcessor),
            kSuccess);
  EXPECT_EQ(cu.cuMemAdvise(arrays[0], kCount * 4 + 1, cuda::kSetAccessedBy, 0), kInvalidValue);
  EXPECT_EQ(cu.cuMemAdvise(arrays[0], kCount * 4, cuda::kSetAccessedBy, 5), cuda::kInvalidDevice);
  EXPECT_EQ(cu.cuMemPrefetchAsync(arrays[0] + 4, kCount * 4 - 4, 0, own), kSuccess);
  EXPECT_EQ(cu.cuMemPrefetchAsync(arrays[0] + 4, kCount * 4, 0, own), kInvalidValue);
  ASSERT_EQ(launch(function, own, arrays, kCount), kSuccess);
  ASSERT_EQ(cu.cuStreamSynchronize(own), kSuccess);
  EXPECT_FLOAT_EQ(of(2)[kCount - 1], 0.1F);
  EXPECT_EQ(of(2)[0], 0.0F);
  for (const cuda::DevicePointer array : arrays) {
    EXPECT_EQ(cu.cuMemFree_v2(array), kSuccess);
  }
  EXPECT_EQ(fake.live().allocations, 0u);
}

}  // namespace
}  // namespace tiermem::test
