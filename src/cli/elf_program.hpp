// The checks of `tiermem run` before it starts a program: where the program is, and whether a
// preloaded library can reach it. Only reads the file system; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace tiermem::cli {

/// Why a preloaded library has no effect on a program, or why the program cannot start.
enum class Obstacle : std::uint8_t {
  none,
  missing,         ///< Not found; a shell exits with 127.
  not_executable,  ///< Found, but it is a directory or not executable; a shell exits with 126.
  not_a_program,   ///< Neither ELF nor a script with "#!".
  foreign,         ///< For another processor or word size.
  linked_statically,
  /// Runs with other rights than its caller, so the dynamic linker ignores LD_PRELOAD.
  privileged,
  go,  ///< Allocates by system calls of its own.
};

struct Program {
  std::string path;         ///< The file to execute; the requested name if it is missing.
  std::string interpreter;  ///< For a script, the program that reads it; otherwise empty.
  Obstacle obstacle = Obstacle::none;
  std::string reason;  ///< A sentence about `obstacle` that names the file.
};

/// Looks for `name` as execvp does: in `search` (the value of PATH) unless it has a slash. A script
/// is followed to its interpreter, and the interpreter is checked.
Program look_at_program(const std::string& name, const char* search);

}  // namespace tiermem::cli
