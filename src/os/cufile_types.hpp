// The types and numbers of cuFile (libcufile, GPUDirect Storage) that tiermem uses. These are our
// own declarations, so the build needs no toolkit. tests/gpu/cufile_header_test.cpp compares them
// with cufile.h where one is installed.
//
// Source: NVIDIA cuFile API reference, 1.14 and 1.20.
#pragma once

#include <sys/types.h>

#include <cstddef>

#include "os/cuda_types.hpp"

namespace tiermem::cufile {

inline constexpr int kSuccess = 0;

// The result of C functions, without initialisers. Error{} is success.
struct Error {
  int code;
  cuda::Result driver;
};

/// Bits of Properties::status: the kinds of disk with a direct path.
inline constexpr unsigned kNvme = 1U << 4;
inline constexpr unsigned kNvmeOverFabrics = 1U << 5;
inline constexpr unsigned kScsi = 1U << 6;

struct Properties {
  unsigned driver_major = 0;  ///< Version of nvidia-fs; 0.0: it is not loaded.
  unsigned driver_minor = 0;
  std::size_t poll_threshold_kib = 0;
  std::size_t most_direct_kib = 0;
  unsigned status = 0;
  unsigned control = 0;
  unsigned features = 0;
  unsigned most_device_cache_kib = 0;
  unsigned cache_of_buffer_kib = 0;
  unsigned most_pinned_kib = 0;
  unsigned most_batch = 0;
  unsigned most_batch_ms = 0;
};
static_assert(sizeof(Properties) == 56);

//  X(name, parameters)
#define TIERMEM_CUFILE_CALLS(X) \
  X(cuFileDriverOpen, ())       \
  X(cuFileDriverGetProperties, (cufile::Properties * properties))

/// A file that is registered with cuFile.
using Handle = void*;

inline constexpr int kOpaqueDescriptor = 1;

struct Description {
  int type = kOpaqueDescriptor;
  union {
    int descriptor = -1;
    void* windows;
  };
  const void* operations = nullptr;
};
static_assert(sizeof(Description) == 24);

/// The results below are the negative code of an Error; -1: see errno.
//  X(result, name, parameters)
#define TIERMEM_CUFILE_FILE_CALLS(X)                                                          \
  X(cufile::Error, cuFileDriverOpen, ())                                                      \
  X(cufile::Error, cuFileHandleRegister,                                                      \
    (cufile::Handle * handle, cufile::Description * description))                             \
  X(void, cuFileHandleDeregister, (cufile::Handle handle))                                    \
  X(ssize_t, cuFileRead,                                                                      \
    (cufile::Handle handle, void* memory, std::size_t bytes, off_t in_file, off_t in_memory)) \
  X(ssize_t, cuFileWrite,                                                                     \
    (cufile::Handle handle, const void* memory, std::size_t bytes, off_t in_file,             \
     off_t in_memory))

/// 1140 is 1.14. Absent in old versions.
using GetVersion = Error (*)(int* version);

/// The descriptor to which the probe program writes its Answer.
inline constexpr int kAnswerDescriptor = 3;

/// The findings of the probe program up to the step that failed.
struct Answer {
  enum class Step : int { load, symbols, open, properties, done };
  Step failed = Step::load;  ///< done: no step failed.
  Error error{};             ///< The error of the failed call.
  int version = 0;           ///< 0: the library does not report it.
  Properties properties;
  char text[160] = {};  ///< The loader's message, or the name of the missing function.
};

}  // namespace tiermem::cufile
