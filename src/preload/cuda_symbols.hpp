// The functions of the CUDA driver that this library stands before, and the way to the driver's
// own. A program comes to them in three ways: by the symbol, of which ours is the first; by `dlsym`
// of the driver's handle (dlsym.cpp); by cuGetProcAddress, which it has from one of the others. In
// the last two the driver itself says what the program would get, and if that is a function which
// is replaced, the program gets ours: names, versions and flags are not judged here.
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

/// The driver's own. Null: it has no such function.
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

/// Null: this process has not loaded the driver. Once it has, it stays.
const cuda::Symbols* cuda_symbols();
/// The name of a function that is replaced, as `dlsym` is asked for it.
bool is_replaced(const char* name);
/// What the program gets in the place of a function: ours, if it is the driver's and replaced.
void* replaced(void* function);

}  // namespace tiermem::preload
