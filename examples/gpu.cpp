// The weights of a model that is larger than the GPU's memory. The host writes them once. They are
// then used layer by layer in the order of a CUDA stream, while the next layer is in flight. A copy
// on the device stands for an engine's kernels, so that no CUDA is needed to build.
//
//   c++ -std=c++20 gpu.cpp -ltiermem -ldl -o gpu
//   TIERMEM_TIERS="dram=256M; nvme=/data/scratch:1G; gpu=0:64M" ./gpu
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <vector>

#include <tiermem/tiermem.hpp>

namespace {

constexpr std::uint64_t kLayers = 16;
constexpr std::uint64_t kLayerBytes = std::uint64_t{8} << 20;
constexpr std::uint64_t kResultBytes = 4096;  // Per layer.
constexpr tiermem::Place kGpu{tiermem::Kind::gpu, 0};

/// The declarations that your program takes from <cuda.h> or from the runtime API.
struct Cuda {
  int (*cuInit)(unsigned) = nullptr;
  int (*cuDevicePrimaryCtxRetain)(void** context, int device) = nullptr;
  int (*cuCtxSetCurrent)(void* context) = nullptr;
  int (*cuStreamCreate)(void** stream, unsigned flags) = nullptr;
  int (*cuStreamSynchronize)(void* stream) = nullptr;
  int (*cuMemcpyDtoDAsync)(std::uint64_t to, std::uint64_t from, std::size_t bytes,
                           void* stream) = nullptr;

  bool load() {
    const char* const named = std::getenv("TIERMEM_GPU_DRIVER");
    void* const driver = ::dlopen(named != nullptr ? named : "libcuda.so.1", RTLD_NOW);
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
          driver != nullptr ? ::dlsym(driver, name) : nullptr);
      return function != nullptr;
    };
    return find(cuInit, "cuInit") && find(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain") &&
           find(cuCtxSetCurrent, "cuCtxSetCurrent") && find(cuStreamCreate, "cuStreamCreate") &&
           find(cuStreamSynchronize, "cuStreamSynchronize") &&
           find(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2");
  }
};

std::uint64_t device(const tiermem::View& view) {
  return reinterpret_cast<std::uint64_t>(view.data());
}

std::uint64_t weight(std::uint64_t layer, std::uint64_t i) {
  return layer * 1'000'003 + i;
}

int fails(const char* message) {
  std::puts(message);
  return 1;
}

}  // namespace

int main() {
  Cuda cuda;
  void* primary = nullptr;
  void* stream = nullptr;
  constexpr unsigned kNonBlocking = 1;
  if (!cuda.load() || cuda.cuInit(0) != 0 || cuda.cuDevicePrimaryCtxRetain(&primary, 0) != 0 ||
      cuda.cuCtxSetCurrent(primary) != 0 || cuda.cuStreamCreate(&stream, kNonBlocking) != 0) {
    std::puts("there is no GPU here, or no driver for it");
    return 77;
  }
  auto context = tiermem::Context::create();
  if (!context.ok()) {
    return fails(context.message());
  }

  // Replaces cudaMalloc and cudaMemcpy: the buffer has its full size, wherever its bytes are.
  auto weights = (*context)->alloc(kLayers * kLayerBytes, {.label = "weights"});
  auto results = (*context)->alloc(kLayers * kResultBytes, {.label = "results"});
  if (!weights.ok() || !results.ok()) {
    return fails(weights.ok() ? results.message() : weights.message());
  }
  std::vector<std::uint64_t> layer(kLayerBytes / 8);
  for (std::uint64_t n = 0; n < kLayers; ++n) {
    for (std::uint64_t i = 0; i < layer.size(); ++i) {
      layer[i] = weight(n, i);
    }
    if (auto written = weights->write(n * kLayerBytes, layer.data(), kLayerBytes); !written.ok()) {
      return fails(written.message());
    }
  }

  // Each layer of each step is prefetched, acquired for the stream, used there, and released after
  // it. The host waits at most for the disk.
  for (int step = 0; step < 3; ++step) {
    for (std::uint64_t n = 0; n < kLayers; ++n) {
      const tiermem::Access next{
          weights->handle(), (n + 1) % kLayers * kLayerBytes, kLayerBytes, tiermem::kRead, kGpu, 0};
      (void)(*context)->prefetch({&next, 1});
      auto from = weights->acquire_on(kGpu, tiermem::kRead, n * kLayerBytes, kLayerBytes,
                                      tiermem::Timeout::forever(), tiermem::cuda_stream(stream));
      auto to = results->acquire_on(kGpu, tiermem::kWrite, n * kResultBytes, kResultBytes,
                                    tiermem::Timeout::forever(), tiermem::cuda_stream(stream));
      if (!from.ok() || !to.ok()) {
        return fails(from.ok() ? to.message() : from.message());
      }
      if (cuda.cuMemcpyDtoDAsync(device(*to), device(*from), kResultBytes, stream) != 0) {
        return fails("the copy on the device was refused");
      }
    }
  }

  // A view in DRAM has the newest bytes: acquire waits for the stream.
  std::uint64_t wrong = 0;
  auto seen = results->acquire(tiermem::kRead);
  if (!seen.ok()) {
    return fails(seen.message());
  }
  const auto words = seen->as<const std::uint64_t>();
  for (std::uint64_t n = 0; n < kLayers; ++n) {
    for (std::uint64_t i = 0; i < kResultBytes / 8; ++i) {
      wrong += words[n * kResultBytes / 8 + i] != weight(n, i) ? 1 : 0;
    }
  }
  const tiermem::Stats stats = (*context)->stats();
  std::printf("%llu MiB of weights through %llu MiB of a GPU: %llu MiB copied to it, %llu wrong\n",
              static_cast<unsigned long long>(weights->size() >> 20),
              static_cast<unsigned long long>(stats.gpu_budget >> 20),
              static_cast<unsigned long long>(stats.gpu_bytes_in >> 20),
              static_cast<unsigned long long>(wrong));
  return wrong == 0 ? 0 : 1;
}
