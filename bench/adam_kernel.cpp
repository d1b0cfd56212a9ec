// The kernel's text, and the same steps on the host.
#include "bench/adam_kernel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "bench/adam.hpp"

namespace tiermem::bench {
namespace {

// Each operation names its rounding (.rn), so that none are fused: the bits are IEEE's, as in
// bench/adam.hpp. A thread takes every n-th element; n is the number of threads of the launch.
std::string kernel_text() {
  const auto number = [](float value) {
    return fmt::format("0f{:08X}", std::bit_cast<std::uint32_t>(value));
  };
  return fmt::format(
      R"(.version 6.0
.target sm_50
.address_size 64
.visible .entry {name}(
  .param .u64 parameters, .param .u64 gradients, .param .u64 first, .param .u64 second,
  .param .u64 count, .param .f32 rate)
{{
  .reg .pred %over;
  .reg .b32 %block, %threads, %thread, %blocks;
  .reg .b64 %i, %step, %end, %offset, %parameters, %gradients, %firsts, %seconds, %ap, %ag, %am, %av;
  .reg .f32 %p, %g, %m, %v, %x, %y, %rate;

  ld.param.u64 %parameters, [parameters];
  ld.param.u64 %gradients, [gradients];
  ld.param.u64 %firsts, [first];
  ld.param.u64 %seconds, [second];
  ld.param.u64 %end, [count];
  ld.param.f32 %rate, [rate];
  cvta.to.global.u64 %parameters, %parameters;
  cvta.to.global.u64 %gradients, %gradients;
  cvta.to.global.u64 %firsts, %firsts;
  cvta.to.global.u64 %seconds, %seconds;
  mov.u32 %block, %ctaid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %thread, %tid.x;
  mov.u32 %blocks, %nctaid.x;
  mul.wide.u32 %i, %block, %threads;
  cvt.u64.u32 %offset, %thread;
  add.u64 %i, %i, %offset;
  mul.wide.u32 %step, %blocks, %threads;
NEXT:
  setp.ge.u64 %over, %i, %end;
  @%over bra OVER;
  shl.b64 %offset, %i, 2;
  add.u64 %ap, %parameters, %offset;
  add.u64 %ag, %gradients, %offset;
  add.u64 %am, %firsts, %offset;
  add.u64 %av, %seconds, %offset;
  ld.global.f32 %p, [%ap];
  ld.global.f32 %g, [%ag];
  ld.global.f32 %m, [%am];
  ld.global.f32 %v, [%av];
  mul.rn.f32 %m, %m, {decay1};
  mul.rn.f32 %x, %g, {rest1};
  add.rn.f32 %m, %m, %x;
  mul.rn.f32 %v, %v, {decay2};
  mul.rn.f32 %x, %g, %g;
  mul.rn.f32 %x, %x, {rest2};
  add.rn.f32 %v, %v, %x;
  sqrt.rn.f32 %x, %v;
  add.rn.f32 %x, %x, {smallest};
  mul.rn.f32 %y, %m, %rate;
  div.rn.f32 %y, %y, %x;
  sub.rn.f32 %p, %p, %y;
  st.global.f32 [%ap], %p;
  st.global.f32 [%am], %m;
  st.global.f32 [%av], %v;
  add.u64 %i, %i, %step;
  bra NEXT;
OVER:
  ret;
}}
)",
      fmt::arg("name", AdamKernel::kName), fmt::arg("decay1", number(Adam::kDecay1)),
      fmt::arg("rest1", number(Adam::kRest1)), fmt::arg("decay2", number(Adam::kDecay2)),
      fmt::arg("rest2", number(Adam::kRest2)), fmt::arg("smallest", number(Adam::kSmallest)));
}

}  // namespace

Result<std::unique_ptr<AdamKernel>> AdamKernel::load(GpuDevice& gpu) {
  const CudaDriver& driver = gpu.driver();
  if (driver.cuModuleLoadData == nullptr || driver.cuModuleGetFunction == nullptr ||
      driver.cuModuleUnload == nullptr || driver.cuLaunchKernel == nullptr) {
    return fail(Code::unsupported, "the driver loads no kernels");
  }
  std::unique_ptr<AdamKernel> kernel(new AdamKernel(gpu));
  const std::string text = kernel_text();
  Status status =
      gpu.check(driver.cuModuleLoadData(&kernel->module_, text.c_str()), "loading the kernel");
  if (status.ok()) {
    status = gpu.check(driver.cuModuleGetFunction(&kernel->function_, kernel->module_, kName),
                       "finding the kernel");
  }
  if (!status.ok()) {
    return status;
  }
  return kernel;
}

AdamKernel::~AdamKernel() {
  if (module_ != nullptr) {
    (void)gpu_.driver().cuModuleUnload(module_);
  }
}

Status AdamKernel::launch(const AdamArrays& arrays, cuda::Stream stream) const {
  constexpr unsigned kThreads = 256;
  constexpr std::uint64_t kMostBlocks = 4096;  // Several for each multiprocessor of any device.
  const auto blocks = static_cast<unsigned>(
      std::clamp<std::uint64_t>((arrays.count + kThreads - 1) / kThreads, 1, kMostBlocks));
  AdamArrays given = arrays;
  float rate = kRate;
  void* parameters[] = {&given.parameters, &given.gradients, &given.first,
                        &given.second,     &given.count,     &rate};
  return gpu_.check(gpu_.driver().cuLaunchKernel(function_, blocks, 1, 1, kThreads, 1, 1, 0, stream,
                                                 parameters, nullptr),
                    "launching the kernel");
}

Status check_adam(std::uint64_t first_element, std::uint64_t steps,
                  std::span<const float> parameters, std::span<const float> first,
                  std::span<const float> second) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::uint64_t element = first_element + i;
    const float gradient = gradient_of(element);
    Adam adam{first_parameter(element)};
    for (std::uint64_t step = 0; step < steps; ++step) {
      adam.step(gradient, AdamKernel::kRate);
    }
    const float expected[] = {adam.parameter, adam.first, adam.second};
    const float found[] = {parameters[i], first[i], second[i]};
    if (std::memcmp(expected, found, sizeof(found)) != 0) {
      return fail(Code::internal,
                  "element {} after {} steps is {}, {}, {}; the host computes {}, {}, {}", element,
                  steps, found[0], found[1], found[2], expected[0], expected[1], expected[2]);
    }
  }
  return {};
}

}  // namespace tiermem::bench
