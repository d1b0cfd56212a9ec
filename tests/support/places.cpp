#include "support/places.hpp"

namespace tiermem {

const char* source_folder() {
  return TIERMEM_SOURCE_DIR;
}

const char* fake_cuda_path() {
  return TIERMEM_FAKE_CUDA_LIBRARY;
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

}  // namespace tiermem
