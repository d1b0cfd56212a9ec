// The known kernels.
#include "support/fake_cuda/kernels.hpp"

#include <cstring>

#include "bench/adam.hpp"

namespace tiermem::test {
namespace {

template <typename T>
T parameter(void** parameters, std::size_t i) {
  T value;
  std::memcpy(&value, parameters[i], sizeof(value));
  return value;
}

// For gpu_oversubscribe.
Launch read_adam(void** parameters) {
  const auto count = parameter<std::uint64_t>(parameters, 4);
  const auto rate = parameter<float>(parameters, 5);
  Launch launch;
  for (std::size_t i = 0; i < 4; ++i) {
    launch.arrays.push_back(
        {parameter<cuda::DevicePointer>(parameters, i), count * sizeof(float), i != 1});
  }
  launch.run = [count, rate](std::vector<std::vector<std::byte>>& bytes) {
    const auto at = [&](std::size_t array, std::uint64_t i) {
      return reinterpret_cast<float*>(bytes[array].data()) + i;
    };
    for (std::uint64_t i = 0; i < count; ++i) {
      bench::Adam adam{*at(0, i), *at(2, i), *at(3, i)};
      adam.step(*at(1, i), rate);
      *at(0, i) = adam.parameter;
      *at(2, i) = adam.first;
      *at(3, i) = adam.second;
    }
  };
  return launch;
}

constexpr Kernel kKernels[] = {{"tiermem_adam", read_adam}};

}  // namespace

const Kernel* find_kernel(std::string_view name) {
  for (const Kernel& kernel : kKernels) {
    if (kernel.name == name) {
      return &kernel;
    }
  }
  return nullptr;
}

std::vector<std::string_view> entries_of(std::string_view text) {
  constexpr std::string_view kEntry = ".entry";
  std::vector<std::string_view> names;
  for (std::size_t at = text.find(kEntry); at != std::string_view::npos;
       at = text.find(kEntry, at + kEntry.size())) {
    const std::size_t begin = text.find_first_not_of(" \t\r\n", at + kEntry.size());
    const std::size_t end = text.find_first_of(" \t\r\n({", begin);
    if (begin != std::string_view::npos && end != std::string_view::npos) {
      names.push_back(text.substr(begin, end - begin));
    }
  }
  return names;
}

}  // namespace tiermem::test
