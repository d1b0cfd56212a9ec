// The functions of the CUDA driver that this library replaces, and access to the driver's own. A
// program can find them in three ways: by symbol, of which ours is the first; by `dlsym` with the
// driver's handle (dlsym.cpp); or by cuGetProcAddress, which it found by one of the others. In the
// last two cases the driver itself names the function. If that function is replaced, the program
// gets ours. This code does not interpret names, versions or flags.
//
// Threads: any. Nothing is looked up before the program has loaded the driver.
#pragma once

#include <cstddef>
#include <cstdint>

#include "os/cuda_types.hpp"
#include "preload/cuda_calls.hpp"

namespace tiermem::cuda {

// Functions of one name with C linkage are one function, whatever their namespace.
extern "C" {
#define TIERMEM_CUDA_DECLARE(abi_name, name, version, flags, parameters) \
  __attribute__((visibility("default"))) Result abi_name parameters;
TIERMEM_CUDA_REPLACED(TIERMEM_CUDA_DECLARE)
#undef TIERMEM_CUDA_DECLARE
}

/// The driver's own functions. A null member is a function that the driver lacks.
struct Symbols {
#define TIERMEM_CUDA_MEMBER(abi_name, name, version, flags, parameters) \
  Result(*abi_name) parameters = nullptr;
  TIERMEM_CUDA_REPLACED(TIERMEM_CUDA_MEMBER)
#undef TIERMEM_CUDA_MEMBER
#define TIERMEM_CUDA_MEMBER(abi_name, parameters) Result(*abi_name) parameters = nullptr;
  TIERMEM_CUDA_ASKED(TIERMEM_CUDA_MEMBER)
#undef TIERMEM_CUDA_MEMBER
};

}  // namespace tiermem::cuda

namespace tiermem::preload {

/// Returns null until this process has loaded the driver. Afterwards the result never changes.
const cuda::Symbols* cuda_symbols();
/// Whether `name`, as given to `dlsym`, names a replaced function.
bool is_replaced(const char* name);
/// Returns our function if `function` is the driver's and is replaced; otherwise `function`.
void* replaced(void* function);

}  // namespace tiermem::preload
