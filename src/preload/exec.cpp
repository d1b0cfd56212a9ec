// The copies lie in the thread's scratch. A child of vfork shares its parent's memory and never
// returns, so the parent's next call releases them.
#include "preload/exec.hpp"

#if defined(__x86_64__)

#include <alloca.h>
#include <errno.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload/next.hpp"
#include "preload/scratch.hpp"
#include "preload/wrap.hpp"

#define TIERMEM_INTERPOSED __attribute__((visibility("default")))

namespace tiermem::preload {
namespace {

/// Copies of strings and lists of strings in plain memory. Null stays null, and plain memory is not
/// copied.
class Doubles {
 public:
  const char* text(const char* original) {
    if (!in_wrapped_range(original)) {
      return original;
    }
    const std::size_t bytes = strlen(original) + 1;
    auto* const plain = reinterpret_cast<char*>(scratch_.take(bytes));
    full_ = full_ || plain == nullptr;
    return plain == nullptr ? nullptr : static_cast<char*>(memcpy(plain, original, bytes));
  }
  char* const* list(char* const* original) {
    if (original == nullptr) {
      return nullptr;
    }
    std::size_t count = 0;
    bool wrapped = in_wrapped_range(original);
    for (; original[count] != nullptr; ++count) {
      wrapped = wrapped || in_wrapped_range(original[count]);
    }
    if (!wrapped) {
      return original;
    }
    auto** const plain = reinterpret_cast<char**>(scratch_.take((count + 1) * sizeof(char*)));
    if (plain == nullptr) {
      full_ = true;
      return nullptr;
    }
    for (std::size_t i = 0; i < count; ++i) {
      plain[i] = const_cast<char*>(text(original[i]));
    }
    plain[count] = nullptr;
    return plain;
  }
  bool full() const { return full_; }

 private:
  Scratch scratch_;
  bool full_ = false;
};

using Exec = int (*)(const char*, char* const*, char* const*);
using Spawn = int (*)(pid_t*, const char*, const posix_spawn_file_actions_t*,
                      const posix_spawnattr_t*, char* const*, char* const*);

/// libc's own functions, found when the process starts, because a child of vfork must not use the
/// loader.
struct Libc {
  Exec execve = nullptr, execvpe = nullptr;
  int (*fexecve)(int, char* const*, char* const*) = nullptr;
  Spawn posix_spawn = nullptr, posix_spawnp = nullptr;
  int (*system)(const char*) = nullptr;
  FILE* (*popen)(const char*, const char*) = nullptr;
};

const Libc& libc() {
  static const Libc found = [] {
    Libc all;
    find(all.execve, "execve");
    find(all.execvpe, "execvpe");
    find(all.fexecve, "fexecve");
    find(all.posix_spawn, "posix_spawn");
    find(all.posix_spawnp, "posix_spawnp");
    find(all.system, "system");
    find(all.popen, "popen");
    return all;
  }();
  return found;
}

/// A copy of attributes in plain memory. The child of a posix_spawn passes their masks to the
/// kernel while all signals are blocked, so tiermem could not make these calls in its place.
class PlainAttributes {
 public:
  explicit PlainAttributes(const posix_spawnattr_t* original) : used_(original) {
    if (in_wrapped_range(original) && wrapping()) {
      copy_ = *original;
      used_ = &copy_;
    }
  }
  const posix_spawnattr_t* get() const { return used_; }

 private:
  const posix_spawnattr_t* used_;
  posix_spawnattr_t copy_{};
};

// Touches the variables that libc passes on by itself.
void touch_variables() {
  for (char* const* at = environ; wrapping() && at != nullptr && *at != nullptr; ++at) {
    if (in_wrapped_range(*at)) {
      (void)strlen(*at);
    }
  }
}

int too_big() {
  errno = E2BIG;
  return -1;
}

/// Calls `with(path, arguments, variables)` with copies in plain memory.
template <typename With>
int with_doubles(const char* path, char* const* arguments, char* const* variables, With&& with) {
  if (!wrapping()) {
    return with(path, arguments, variables);
  }
  Doubles doubles;
  const char* const plain_path = doubles.text(path);
  char* const* const plain_arguments = doubles.list(arguments);
  char* const* const plain_variables = doubles.list(variables);
  return doubles.full() ? too_big() : with(plain_path, plain_arguments, plain_variables);
}

/// For execl and its relatives: fills `list`, which has room for all words and the final null.
void collect(char** list, const char* first, va_list rest) {
  for (const char* word = first; word != nullptr; word = va_arg(rest, const char*)) {
    *list++ = const_cast<char*>(word);
  }
  *list = nullptr;
}

std::size_t count_words(const char* first, va_list rest) {
  std::size_t count = 0;
  for (const char* word = first; word != nullptr; word = va_arg(rest, const char*)) {
    ++count;
  }
  return count;
}

// The list is on the caller's stack, as in libc, because a child of vfork must not allocate. Sets
// `list`, and leaves `rest` behind the words.
#define TIERMEM_COLLECT(list, first, rest)                                                         \
  va_start(rest, first);                                                                           \
  char** const list = static_cast<char**>(alloca((count_words(first, rest) + 1) * sizeof(char*))); \
  va_end(rest);                                                                                    \
  va_start(rest, first);                                                                           \
  collect(list, first, rest)

}  // namespace

void prepare_exec() {
  (void)libc();
}

long wrapped_exec(const SystemCall& call) {
  const bool at = call.number == SYS_execveat;
  const unsigned path = at ? 1 : 0;
  const auto pointer = [&](unsigned i) { return call.arguments[path + i]; };
  Doubles doubles;
  SystemCall made = call;
  const auto number = [](const void* address) { return reinterpret_cast<std::uint64_t>(address); };
  made.arguments[path] = number(doubles.text(reinterpret_cast<const char*>(pointer(0))));
  made.arguments[path + 1] = number(doubles.list(reinterpret_cast<char* const*>(pointer(1))));
  made.arguments[path + 2] = number(doubles.list(reinterpret_cast<char* const*>(pointer(2))));
  return doubles.full() ? -E2BIG : pass(made);
}

}  // namespace tiermem::preload

using namespace tiermem::preload;  // NOLINT: the definitions below are C's.

extern "C" {

TIERMEM_INTERPOSED int execve(const char* path, char* const arguments[],
                              char* const variables[]) noexcept {
  return with_doubles(path, arguments, variables, libc().execve);
}

TIERMEM_INTERPOSED int execvpe(const char* file, char* const arguments[],
                               char* const variables[]) noexcept {
  return with_doubles(file, arguments, variables, libc().execvpe);
}

TIERMEM_INTERPOSED int execv(const char* path, char* const arguments[]) noexcept {
  return execve(path, arguments, environ);
}

TIERMEM_INTERPOSED int execvp(const char* file, char* const arguments[]) noexcept {
  return execvpe(file, arguments, environ);
}

TIERMEM_INTERPOSED int fexecve(int fd, char* const arguments[], char* const variables[]) noexcept {
  return with_doubles(
      nullptr, arguments, variables,
      [fd](const char*, char* const* a, char* const* v) { return libc().fexecve(fd, a, v); });
}

TIERMEM_INTERPOSED int execl(const char* path, const char* first, ...) noexcept {
  va_list rest;
  TIERMEM_COLLECT(words, first, rest);
  va_end(rest);
  return execve(path, words, environ);
}

TIERMEM_INTERPOSED int execlp(const char* file, const char* first, ...) noexcept {
  va_list rest;
  TIERMEM_COLLECT(words, first, rest);
  va_end(rest);
  return execvpe(file, words, environ);
}

TIERMEM_INTERPOSED int execle(const char* path, const char* first, ...) noexcept {
  va_list rest;
  TIERMEM_COLLECT(words, first, rest);
  char* const* const variables = va_arg(rest, char* const*);
  va_end(rest);
  return execve(path, words, variables);
}

TIERMEM_INTERPOSED int posix_spawn(pid_t* child, const char* path,
                                   const posix_spawn_file_actions_t* actions,
                                   const posix_spawnattr_t* attributes, char* const arguments[],
                                   char* const variables[]) {
  const int error = errno;
  const PlainAttributes plain(attributes);
  const int result =
      with_doubles(path, arguments, variables, [&](const char* p, char* const* a, char* const* v) {
        return libc().posix_spawn(child, p, actions, plain.get(), a, v);
      });
  errno = error;
  return result == -1 ? E2BIG : result;
}

TIERMEM_INTERPOSED int posix_spawnp(pid_t* child, const char* file,
                                    const posix_spawn_file_actions_t* actions,
                                    const posix_spawnattr_t* attributes, char* const arguments[],
                                    char* const variables[]) {
  const int error = errno;
  const PlainAttributes plain(attributes);
  const int result =
      with_doubles(file, arguments, variables, [&](const char* p, char* const* a, char* const* v) {
        return libc().posix_spawnp(child, p, actions, plain.get(), a, v);
      });
  errno = error;
  return result == -1 ? E2BIG : result;
}

TIERMEM_INTERPOSED int system(const char* command) {
  touch_variables();
  return with_doubles(command, nullptr, nullptr, [](const char* text, char* const*, char* const*) {
    return libc().system(text);
  });
}

TIERMEM_INTERPOSED FILE* popen(const char* command, const char* mode) {
  touch_variables();
  FILE* stream = nullptr;
  (void)with_doubles(command, nullptr, nullptr, [&](const char* text, char* const*, char* const*) {
    stream = libc().popen(text, mode);
    return 0;
  });
  return stream;
}

}  // extern "C"

#endif
