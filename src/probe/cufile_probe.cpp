// tiermem-cufile-probe LIBRARY [DRIVER]: opens cuFile and writes the result to descriptor 3, as a
// cufile::Answer. It is a separate program because the library may hang or crash; its parent has a
// time limit (os/cufile.cpp). Not for users.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "os/cufile_types.hpp"

namespace tiermem {
namespace {

using cufile::Answer;

template <typename F>
F symbol(void* library, const char* name) {
  return reinterpret_cast<F>(dlsym(library, name));
}

Answer ask(const char* path) {
  Answer answer;
  const auto say = [&](const char* text) {
    std::snprintf(answer.text, sizeof(answer.text), "%s", text != nullptr ? text : "unknown");
  };
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const error = dlerror();
    const std::size_t length = std::strlen(path);
    const bool named = error != nullptr && std::strncmp(error, path, length) == 0 &&
                       std::strncmp(error + length, ": ", 2) == 0;
    say(named ? error + length + 2 : error);
    return answer;
  }
  answer.failed = Answer::Step::symbols;
#define TIERMEM_CUFILE_LOOK_UP(name, parameters)                         \
  const auto name = symbol<cufile::Error(*) parameters>(library, #name); \
  if ((name) == nullptr) {                                               \
    say(#name);                                                          \
    return answer;                                                       \
  }
  TIERMEM_CUFILE_CALLS(TIERMEM_CUFILE_LOOK_UP)
#undef TIERMEM_CUFILE_LOOK_UP
  if (const auto version = symbol<cufile::GetVersion>(library, "cuFileGetVersion");
      version != nullptr && version(&answer.version).code != cufile::kSuccess) {
    answer.version = 0;
  }
  answer.failed = Answer::Step::open;
  answer.error = cuFileDriverOpen();
  if (answer.error.code != cufile::kSuccess) {
    return answer;
  }
  answer.failed = Answer::Step::properties;
  answer.error = cuFileDriverGetProperties(&answer.properties);
  if (answer.error.code == cufile::kSuccess) {
    answer.failed = Answer::Step::done;
  }
  return answer;
}

}  // namespace
}  // namespace tiermem

int main(int count, char** words) {
  if (count < 2) {
    std::fputs("tiermem-cufile-probe: for tiermem only; `tiermem topo` says what it found\n",
               stderr);
    return 2;
  }
  // Its log goes to its working directory.
  if (chdir("/proc/self") != 0) {
    return 1;
  }
  // Under the name by which cuFile asks the loader for it.
  if (count > 2 && words[2][0] != '\0') {
    (void)dlopen(words[2], RTLD_NOW | RTLD_GLOBAL);
  }
  const tiermem::cufile::Answer answer = tiermem::ask(words[1]);
  const ssize_t written = write(tiermem::cufile::kAnswerDescriptor, &answer, sizeof(answer));
  _exit(written == static_cast<ssize_t>(sizeof(answer)) ? 0 : 1);
}
