// A program that is linked with libcuda.so.1, and calls functions by their symbols.
#include "preload_cuda/driver.hpp"

namespace tiermem::test::driver {

Table find(void*) {
  Table table;
#define TIERMEM_DRIVER_FIND(since, name, abi_name, parameters) table.abi_name = &cuda::abi_name;
  TIERMEM_FAKE_CUDA_CALLS(TIERMEM_DRIVER_FIND)
  TIERMEM_FAKE_CUDA_PER_THREAD_CALLS(TIERMEM_DRIVER_FIND)
#undef TIERMEM_DRIVER_FIND
  return table;
}

}  // namespace tiermem::test::driver
