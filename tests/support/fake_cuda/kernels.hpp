// The effects of kernels in our programs, by the name of their entry: the fake does not run PTX.
// The arrays are collected, changed, and copied back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "os/cuda_types.hpp"

namespace tiermem::test {

/// The arguments of a launch, with its parameters at the time of the call.
struct Launch {
  struct Array {
    cuda::DevicePointer at = 0;
    std::uint64_t bytes = 0;
    bool written = false;
  };
  std::vector<Array> arrays;
  /// Gets the bytes of each array.
  std::function<void(std::vector<std::vector<std::byte>>& bytes)> run;
};

struct Kernel {
  std::string_view name;
  Launch (*read)(void** parameters);
};

/// Returns null if the name is unknown.
const Kernel* find_kernel(std::string_view name);
/// Returns the names of all entries in the text; they follow `.entry`.
std::vector<std::string_view> entries_of(std::string_view text);

}  // namespace tiermem::test
