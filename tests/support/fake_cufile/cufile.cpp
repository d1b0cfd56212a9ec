// A libcufile.so.0 that behaves as TIERMEM_FAKE_CUFILE says: one word, or several joined with ';'.
//
//   spin  crash  abort  exit   what cuFileDriverOpen does instead of returning
//   open=CODE  properties=CODE   what these calls give
//   driver=RESULT              of the CUDA driver, beside such a code
//   status=BITS  nvfs=MAJOR.MINOR  version=NUMBER   what it says of the machine
//   preloaded=TEXT             status=16 if that is LD_PRELOAD
//   chatty                     writes to both outputs, as the real one does
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "os/cufile_types.hpp"

namespace {

using tiermem::cufile::Error;
using tiermem::cufile::Properties;

// What stands after `word`, or null. No word is the end of another.
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
