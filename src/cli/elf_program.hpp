// A program as `tiermem run` sees it before it starts it: where it is, and whether a preloaded
// library can reach it. Reads the file system and nothing else; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace tiermem::cli {

/// Why a preloaded library does nothing for a program, or why it cannot be started.
enum class Obstacle : std::uint8_t {
  none,
  missing,         ///< Not found: a shell exits with 127.
  not_executable,  ///< Found, and no permission or a directory: 126.
  not_a_program,   ///< Neither ELF nor a script with "#!".
  foreign,         ///< For another processor or word size.
  linked_statically,
  privileged,  ///< Runs with other rights than its caller: the dynamic linker ignores LD_PRELOAD.
  go,          ///< Allocates by system calls of its own.
};

struct Program {
  std::string path;         ///< What would be executed; what was asked for when it is missing.
  std::string interpreter;  ///< For a script, the program that reads it; else empty.
  Obstacle obstacle = Obstacle::none;
  std::string reason;  ///< A sentence about `obstacle` that names the file.
};

/// Looks for `name` as execvp does: in `search` (the value of PATH) unless it has a slash. Scripts
/// are followed to their interpreter, which is what is looked at.
Program look_at_program(const std::string& name, const char* search);

}  // namespace tiermem::cli
