// The driver's functions, as a program without knowledge of tiermem finds them. Each of the three
// sources beside this header finds them in another way, and becomes a test program of its own.
#pragma once

#include "support/fake_cuda/entry_points.hpp"

namespace tiermem::test {
namespace driver {
using namespace cuda;  // NOLINT: the list of functions is written for that namespace.
using cuda::Context;
using cuda::Result;
using cuda::Stream;

/// By the names of the ABI.
struct Table {
#define TIERMEM_DRIVER_MEMBER(since, name, abi_name, parameters) \
  Result(*abi_name) parameters = nullptr;
  TIERMEM_FAKE_CUDA_CALLS(TIERMEM_DRIVER_MEMBER)
  TIERMEM_FAKE_CUDA_PER_THREAD_CALLS(TIERMEM_DRIVER_MEMBER)
#undef TIERMEM_DRIVER_MEMBER
};

/// `library`: a handle of libcuda.so.1.
Table find(void* library);

}  // namespace driver
}  // namespace tiermem::test
