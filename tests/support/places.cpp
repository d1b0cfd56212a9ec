#include "support/places.hpp"

#include <cstdlib>

namespace tiermem {

const char* source_folder() {
  return TIERMEM_SOURCE_DIR;
}

bool fake_cuda_is_disguised() {
  const char* const as_real = std::getenv("TIERMEM_GPU_TEST_AS_REAL");
  return as_real != nullptr && *as_real == '1';
}

const char* fake_cuda_path() {
  return fake_cuda_is_disguised() ? "/no/fake/libcuda.so.1" : TIERMEM_FAKE_CUDA_LIBRARY;
}

const char* fake_cufile_path() {
  return TIERMEM_FAKE_CUFILE_LIBRARY;
}

const char* static_program_path() {
#ifdef TIERMEM_STATIC_PROGRAM
  return TIERMEM_STATIC_PROGRAM;
#else
  return nullptr;
#endif
}

const char* preload_library_path() {
#ifdef TIERMEM_PRELOAD_LIBRARY
  return TIERMEM_PRELOAD_LIBRARY;
#else
  return nullptr;
#endif
}

const char* preloaded_program_path() {
#ifdef TIERMEM_PRELOADED_PROGRAM
  return TIERMEM_PRELOADED_PROGRAM;
#else
  return nullptr;
#endif
}

}  // namespace tiermem
