// A libcufile.so.0 that behaves as TIERMEM_FAKE_CUFILE says: one command, or several joined with
// ';'.
//
//   spin  crash  abort  exit   what cuFileDriverOpen does instead of returning
//   open=CODE  properties=CODE   results of these calls
//   driver=RESULT              result of the CUDA driver, beside such a code
//   status=BITS  nvfs=MAJOR.MINOR  version=NUMBER   its report about the machine
//   preloaded=TEXT             status=16 if that is LD_PRELOAD
//   chatty                     writes to both outputs, as the real one does
//   register=CODE              result of cuFileHandleRegister
//   read=NUMBER write=NUMBER   results of these calls: -1 is EIO, 0 means no bytes moved
//   most=BYTES                 limit of one call: the rest needs another call
//
// It moves bytes through the host, with the loaded driver.
#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "os/cufile_types.hpp"

namespace {

using tiermem::cufile::Description;
using tiermem::cufile::Error;
using tiermem::cufile::Handle;
using tiermem::cufile::Properties;

// Returns the text after `word`, or null. No command is the end of another.
const char* find(const char* word) {
  const char* const text = std::getenv("TIERMEM_FAKE_CUFILE");
  const char* const at = text == nullptr ? nullptr : std::strstr(text, word);
  return at == nullptr ? nullptr : at + std::strlen(word);
}

int number(const char* word, int otherwise) {
  const char* const at = find(word);
  return at == nullptr ? otherwise : std::atoi(at);
}

Error error(const char* word) {
  const int code = number(word, 0);
  return {code, code == 0 ? 0 : number("driver=", 0)};
}

using DevicePointer = tiermem::cuda::DevicePointer;

template <typename Function>
Function of_driver(const char* name) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return driver == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(driver, name));
}

// If true, the call returns `result` and does nothing else.
bool ordered(const char* word, ssize_t& result) {
  if (find(word) == nullptr) {
    return false;
  }
  result = number(word, 0);
  errno = result == -1 ? EIO : errno;
  return true;
}

struct File {
  int descriptor;
};

std::size_t most(std::size_t bytes) {
  return std::min(bytes, static_cast<std::size_t>(number("most=", 1 << 30)));
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT Error cuFileDriverOpen() {
  if (find("chatty") != nullptr) {
    for (int i = 0; i < 1000; ++i) {
      std::puts("cuFile initialization, at length");
      std::fputs("cuFile initialization, at length\n", stderr);
    }
    std::fflush(stdout);
  }
  while (find("spin") != nullptr) {
  }
  if (find("crash") != nullptr) {
    std::raise(SIGSEGV);
  }
  if (find("abort") != nullptr) {
    std::abort();
  }
  if (find("exit") != nullptr) {
    std::exit(0);
  }
  return error("open=");
}

EXPORT Error cuFileDriverGetProperties(Properties* properties) {
  *properties = {};
  properties->status = static_cast<unsigned>(number("status=", 0));
  const char* const preloaded = find("preloaded=");
  const char* const preload = std::getenv("LD_PRELOAD");
  if (preloaded != nullptr && preload != nullptr && std::strcmp(preloaded, preload) == 0) {
    properties->status = 16;
  }
  if (const char* const version = find("nvfs="); version != nullptr) {
    (void)std::sscanf(version, "%u.%u", &properties->driver_major, &properties->driver_minor);
  }
  return error("properties=");
}

EXPORT Error cuFileGetVersion(int* version) {
  *version = number("version=", 1200);
  return {};
}

EXPORT Error cuFileHandleRegister(Handle* handle, Description* description) {
  *handle = nullptr;
  const Error result = error("register=");
  if (result.code == 0) {
    *handle = new File{description->descriptor};
  }
  return result;
}

EXPORT void cuFileHandleDeregister(Handle handle) {
  delete static_cast<File*>(handle);
}

EXPORT ssize_t cuFileRead(Handle handle, void* memory, std::size_t bytes, off_t in_file,
                          off_t in_memory) {
  ssize_t result = 0;
  if (ordered("read=", result)) {
    return result;
  }
  using Copy = int (*)(DevicePointer, const void*, std::size_t);
  const auto copy = of_driver<Copy>("cuMemcpyHtoD_v2");
  void* staging = std::aligned_alloc(4096, (most(bytes) + 4095) / 4096 * 4096);
  result = pread(static_cast<File*>(handle)->descriptor, staging, most(bytes), in_file);
  if (result > 0 && (copy == nullptr || copy(reinterpret_cast<DevicePointer>(memory) +
                                                 static_cast<DevicePointer>(in_memory),
                                             staging, static_cast<std::size_t>(result)) != 0)) {
    result = -5030;
  }
  std::free(staging);
  return result;
}

EXPORT ssize_t cuFileWrite(Handle handle, const void* memory, std::size_t bytes, off_t in_file,
                           off_t in_memory) {
  ssize_t result = 0;
  if (ordered("write=", result)) {
    return result;
  }
  using Copy = int (*)(void*, DevicePointer, std::size_t);
  const auto copy = of_driver<Copy>("cuMemcpyDtoH_v2");
  void* staging = std::aligned_alloc(4096, (most(bytes) + 4095) / 4096 * 4096);
  result = -5030;
  if (copy != nullptr &&
      copy(staging, reinterpret_cast<DevicePointer>(memory) + static_cast<DevicePointer>(in_memory),
           most(bytes)) == 0) {
    result = pwrite(static_cast<File*>(handle)->descriptor, staging, most(bytes), in_file);
  }
  std::free(staging);
  return result;
}
