// libFuzzer target: any bytes are a file that a user runs. The file gets some verdict. Its message
// names the file, unless there is no obstacle. The verdict on an ELF file agrees with its headers,
// which are parsed here a second time in memory. An interpreter is named as the kernel would read
// it.
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "cli/elf_program.hpp"

namespace {

using tiermem::cli::Obstacle;

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

// The program's own /proc/self/fd names the file, so no file system is written.
class File {
 public:
  File() : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) { require(fd_ >= 0); }
  std::string holding(const std::uint8_t* data, std::size_t size) const {
    require(::ftruncate(fd_, 0) == 0);
    require(::pwrite(fd_, data, size, 0) == static_cast<ssize_t>(size));
    return "/proc/self/fd/" + std::to_string(fd_);
  }

 private:
  const int fd_;
};

bool is_for_this_processor(const Elf64_Ehdr& header) {
  return header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_machine == EM_X86_64;
}

// A table outside the file is ignored.
bool has_interpreter(const std::uint8_t* data, std::size_t size, const Elf64_Ehdr& header) {
  const std::uint64_t bytes = std::uint64_t{header.e_phnum} * sizeof(Elf64_Phdr);
  if (header.e_phoff > size || bytes > size - header.e_phoff) {
    return false;
  }
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, data + header.e_phoff + i * sizeof(segment), sizeof(segment));
    if (segment.p_type == PT_INTERP) {
      return true;
    }
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const File file;
  const std::string path = file.holding(data, size);
  const tiermem::cli::Program program = tiermem::cli::look_at_program(path, nullptr);
  require(program.path == path);
  require(program.reason.empty() == (program.obstacle == Obstacle::none));
  const bool script = size >= 2 && data[0] == '#' && data[1] == '!';
  require(program.interpreter.empty() || script);
  require(program.interpreter.find_first_of(std::string(" \t\n\0", 4)) == std::string::npos);
  if (script && !program.interpreter.empty()) {
    return 0;  // The verdict is on a file of this machine.
  }
  require(program.obstacle == Obstacle::none || program.reason.find(path) != std::string::npos);
  Elf64_Ehdr header{};
  std::memcpy(&header, data, std::min(size, sizeof(header)));
  const bool elf = size >= sizeof(header) && std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0;
  switch (program.obstacle) {
    case Obstacle::none:
      require(elf && is_for_this_processor(header) && has_interpreter(data, size, header));
      break;
    case Obstacle::linked_statically:
      require(elf && is_for_this_processor(header) && !has_interpreter(data, size, header));
      break;
    case Obstacle::go:
      require(elf && is_for_this_processor(header));
      require(std::string(data, data + size).find(".go.buildinfo") != std::string::npos);
      break;
    case Obstacle::foreign:
      require(elf && !is_for_this_processor(header));
      break;
    case Obstacle::not_a_program:
      require(!elf);
      break;
    case Obstacle::missing:  // Its interpreter is: a script.
    case Obstacle::not_executable:
      require(script);
      break;
    case Obstacle::privileged:
      std::abort();
  }
  return 0;
}
