// Finds a program, follows "#!", and reads ELF headers. Offsets beyond the end of the file are
// ignored.
#include "cli/elf_program.hpp"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/results.hpp"

namespace tiermem::cli {
namespace {

// The kernel's limit for scripts with scripts as their interpreters.
constexpr int kMostScripts = 5;

class File {
 public:
  explicit File(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~File() {
    if (fd_ >= 0) {
      best_effort(::close(fd_), "the descriptor is gone in any case");
    }
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool ok() const { return fd_ >= 0; }
  /// Reads up to `size` bytes.
  std::size_t read(std::uint64_t offset, void* out, std::size_t size) const {
    const ssize_t got = ::pread(fd_, out, size, static_cast<off_t>(offset));
    return got < 0 ? 0 : static_cast<std::size_t>(got);
  }
  /// Returns the whole table, or nothing.
  template <typename T>
  std::vector<T> table(std::uint64_t offset, std::uint64_t count) const {
    constexpr std::uint64_t kMost = 1 << 20;  // No header table is longer.
    std::vector<T> rows(std::min(count, kMost / sizeof(T)));
    const std::size_t bytes = rows.size() * sizeof(T);
    return read(offset, rows.data(), bytes) == bytes ? rows : std::vector<T>{};
  }

 private:
  int fd_;
};

// ---- finding -----------------------------------------------------------------------------------

/// Returns 0, or the error that execve would return.
int executable_error(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    return errno;
  }
  if (!S_ISREG(status.st_mode)) {
    return EACCES;
  }
  return ::access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

struct Found {
  std::string path;
  int error = ENOENT;
};

Found find(const std::string& name, const char* search) {
  if (name.find('/') != std::string::npos) {
    return {name, executable_error(name)};
  }
  Found best{name, ENOENT};
  std::string_view rest = search != nullptr ? search : "/bin:/usr/bin";
  while (!name.empty()) {
    const std::size_t colon = rest.find(':');
    const std::string_view directory = rest.substr(0, colon);
    std::string path = fmt::format("{}/{}", directory.empty() ? "." : directory, name);
    const int error = executable_error(path);
    if (error == 0) {
      return {std::move(path), 0};
    }
    if (error == EACCES && best.error != EACCES) {  // Remembered; the search continues.
      best = {std::move(path), error};
    }
    if (colon == std::string_view::npos) {
      break;
    }
    rest.remove_prefix(colon + 1);
  }
  return best;
}

/// Returns the interpreter after "#!"; empty unless the file is a script.
std::string script_interpreter(const File& file) {
  char text[256] = {};  // The kernel reads this many bytes.
  std::string_view line(text, file.read(0, text, sizeof(text)));
  if (!line.starts_with("#!")) {
    return {};
  }
  line = line.substr(2, line.find('\n') - 2);
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  constexpr std::string_view kEnds(" \t\r\0", 4);  // The kernel's separators, and \r.
  return std::string(line.substr(0, line.find_first_of(kEnds)));
}

// ---- reading ELF -------------------------------------------------------------------------------

bool has_interpreter(const File& file, const Elf64_Ehdr& header) {
  const auto segments = file.table<Elf64_Phdr>(header.e_phoff, header.e_phnum);
  return std::any_of(segments.begin(), segments.end(),
                     [](const Elf64_Phdr& segment) { return segment.p_type == PT_INTERP; });
}

bool has_section(const File& file, const Elf64_Ehdr& header, std::string_view name) {
  const auto sections = file.table<Elf64_Shdr>(header.e_shoff, header.e_shnum);
  if (header.e_shstrndx >= sections.size()) {
    return false;
  }
  const Elf64_Shdr& strings = sections[header.e_shstrndx];
  const auto names = file.table<char>(strings.sh_offset, strings.sh_size);
  return std::any_of(sections.begin(), sections.end(), [&](const Elf64_Shdr& section) {
    const std::string_view all(names.data(), names.size());
    const std::string_view from = all.substr(std::min<std::size_t>(section.sh_name, all.size()));
    return from.substr(0, from.find('\0')) == name;
  });
}

/// Whether execve gives the program rights that its caller lacks. Root has all rights and keeps
/// LD_PRELOAD.
bool gains_rights(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    return false;
  }
  const bool other_user = (status.st_mode & S_ISUID) != 0 && status.st_uid != ::geteuid();
  const bool other_group = (status.st_mode & S_ISGID) != 0 && (status.st_mode & S_IXGRP) != 0 &&
                           status.st_gid != ::getegid();
  const bool capabilities =
      ::geteuid() != 0 && ::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
  return other_user || other_group || capabilities;
}

void judge(Program& program, Obstacle obstacle, std::string reason) {
  program.obstacle = obstacle;
  program.reason = std::move(reason);
}

/// `path` is the program, or the interpreter of a script.
void judge_elf(Program& program, const std::string& path, const File& file) {
  Elf64_Ehdr header{};
  const bool whole = file.read(0, &header, sizeof(header)) == sizeof(header);
  if (!whole || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    return judge(program, Obstacle::not_a_program,
                 fmt::format("{} is neither a program nor a script that begins with #!", path));
  }
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64) {
    return judge(
        program, Obstacle::foreign,
        fmt::format("{} is made for another processor; tiermem here is for 64-bit x86", path));
  }
  if (gains_rights(path)) {
    return judge(program, Obstacle::privileged,
                 fmt::format("{} is set-user-id, set-group-id or has capabilities: the system "
                             "loads no library into it",
                             path));
  }
  if (has_section(file, header, ".go.buildinfo")) {
    return judge(program, Obstacle::go,
                 fmt::format("{} is a Go program: it allocates by system calls of its own, so "
                             "nothing would be tiered",
                             path));
  }
  if (!has_interpreter(file, header)) {
    return judge(
        program, Obstacle::linked_statically,
        fmt::format(
            "{} is linked statically: no library can be loaded into it, so nothing would be tiered",
            path));
  }
}

void judge_unfound(Program& program, const std::string& path, int error) {
  const bool missing = error == ENOENT || error == ENOTDIR;
  judge(program, missing ? Obstacle::missing : Obstacle::not_executable,
        fmt::format("{}: {}", path,
                    missing && path.find('/') == std::string::npos ? "not found in PATH"
                                                                   : std::strerror(error)));
}

}  // namespace

Program look_at_program(const std::string& name, const char* search) {
  const Found found = find(name, search);
  Program program{.path = found.path, .interpreter = {}, .reason = {}};
  if (found.error != 0) {
    judge_unfound(program, found.path, found.error);
    return program;
  }
  std::string path = found.path;
  for (int depth = 0; depth < kMostScripts; ++depth) {
    const File file(path);
    if (!file.ok()) {
      return program;  // It may be executable but not readable. Only the kernel can judge it.
    }
    const std::string next = script_interpreter(file);
    if (next.empty()) {
      judge_elf(program, path, file);
      return program;
    }
    if (const int error = executable_error(next); error != 0) {
      judge_unfound(program, fmt::format("{}, the interpreter of {}", next, path), error);
      return program;
    }
    path = program.interpreter = next;
  }
  judge(program, Obstacle::not_a_program,
        fmt::format("{}: too many scripts as interpreters of scripts", found.path));
  return program;
}

}  // namespace tiermem::cli
