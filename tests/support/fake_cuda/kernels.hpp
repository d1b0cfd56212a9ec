// What kernels do that programs of ours load, by the name of their entry: the fake does not run
// PTX. Arrays come together, are worked on, and go back to where they were.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "os/cuda_types.hpp"

namespace tiermem::test {

/// What a launch works on, as its parameters were when it was asked for.
struct Launch {
  struct Array {
    cuda::DevicePointer at = 0;
    std::uint64_t bytes = 0;
    bool written = false;
  };
  std::vector<Array> arrays;
  /// With the bytes of each array.
  std::function<void(std::vector<std::vector<std::byte>>& bytes)> run;
};

struct Kernel {
  std::string_view name;
  Launch (*read)(void** parameters);
};

/// Null: there is none of that name.
const Kernel* find_kernel(std::string_view name);
/// The names of all entries in the text; those that follow `.entry`.
std::vector<std::string_view> entries_of(std::string_view text);

}  // namespace tiermem::test
