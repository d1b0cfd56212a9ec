// A program that loads libcuda.so.1 and looks each function up by its symbol.
#include <dlfcn.h>

#include "preload_cuda/driver.hpp"

namespace tiermem::test::driver {

Table find(void* library) {
  Table table;
#define TIERMEM_DRIVER_FIND(since, name, abi_name, parameters) \
  table.abi_name = reinterpret_cast<decltype(table.abi_name)>(::dlsym(library, #abi_name));
  TIERMEM_FAKE_CUDA_CALLS(TIERMEM_DRIVER_FIND)
  TIERMEM_FAKE_CUDA_PER_THREAD_CALLS(TIERMEM_DRIVER_FIND)
#undef TIERMEM_DRIVER_FIND
  return table;
}

}  // namespace tiermem::test::driver
