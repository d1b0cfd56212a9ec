// A program that loads libcuda.so.1, finds cuGetProcAddress by its symbol, and finds all other
// functions through that, by names without a suffix, versions and flags, as libcudart does.
#include <dlfcn.h>

#include "preload_cuda/driver.hpp"

namespace tiermem::test::driver {

Table find(void* library) {
  constexpr std::uint64_t kPerThreadStreams = 2;
  Table table;
  const auto by_symbol = reinterpret_cast<decltype(table.cuGetProcAddress_v2)>(
      ::dlsym(library, "cuGetProcAddress_v2"));
  void* function = nullptr;
  (void)by_symbol("cuGetProcAddress", &function, 12000, 0, nullptr);
  const auto get = reinterpret_cast<decltype(table.cuGetProcAddress_v2)>(function);
#define TIERMEM_DRIVER_FIND(since, name, abi_name, parameters) \
  (void)get(#name, &function, since, kFlags, nullptr);         \
  table.abi_name = reinterpret_cast<decltype(table.abi_name)>(function);
  {
    constexpr std::uint64_t kFlags = 0;
    TIERMEM_FAKE_CUDA_CALLS(TIERMEM_DRIVER_FIND)
  }
  {
    constexpr std::uint64_t kFlags = kPerThreadStreams;
    TIERMEM_FAKE_CUDA_PER_THREAD_CALLS(TIERMEM_DRIVER_FIND)
  }
#undef TIERMEM_DRIVER_FIND
  return table;
}

}  // namespace tiermem::test::driver
