#include "os/dax_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/kept_descriptors.hpp"
#include "base/results.hpp"
#include "os/file_identity.hpp"

namespace tiermem {
namespace {

// Older headers lack these; the values are the kernel's, on all architectures that have DAX.
#ifndef MAP_SHARED_VALIDATE
constexpr int MAP_SHARED_VALIDATE = 0x03;
#endif
#ifndef MAP_SYNC
constexpr int MAP_SYNC = 0x80000;
#endif

std::uint64_t number_in(const std::string& file) {
  std::ifstream in(file);
  std::string text;
  std::uint64_t value = 0;
  if (!std::getline(in, text)) {
    return 0;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? value : 0;
}

bool is_dax_device(const std::string& device) {
  char target[512];
  const ssize_t n = ::readlink((device + "/subsystem").c_str(), target, sizeof(target));
  return n > 0 && std::string_view(target, static_cast<std::size_t>(n)).ends_with("/dax");
}

int create_in(const std::string& path) {
  const int directory = ::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) {
    return -1;
  }
  const int file = create_unnamed(directory);
  const int error = errno;
  best_effort(::close(directory), "the descriptor is gone in any case");
  errno = error;
  return file;
}

bool maps_in_sync(int fd) {
  constexpr std::uint64_t kPage = 4096;
  void* const tried =
      ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
  if (tried == MAP_FAILED) {
    return false;
  }
  best_effort(::munmap(tried, kPage), "the page stays mapped, and nothing uses it");
  return true;
}

bool directory_is_dax(const std::string& directory) {
  const int fd = create_in(directory);
  if (fd < 0) {
    return false;
  }
  const bool dax = ::ftruncate(fd, DaxFile::kUnit) == 0 && maps_in_sync(fd);
  best_effort(::close(fd), "the descriptor is gone in any case");
  return dax;
}

Status refused(Code code, int native, const std::string& path, std::string_view why,
               std::string_view remedy) {
  ErrorInfo info = error_info(code, "pmem={:.120}: {}; {}", path, why, remedy);
  info.native = native;
  set_text(info.setting, "pmem");
  return Status(info);
}

constexpr const char* kNameAnother =
    "name a directory that this user may write to, or a DAX device";

}  // namespace

DaxPath look_at_dax_path(const std::string& path, const std::string& sys) {
  DaxPath facts;
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    facts.error = errno;
    return facts;
  }
  if (S_ISDIR(status.st_mode)) {
    facts.kind = DaxPath::Kind::directory;
    facts.error = ::faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) == 0 ? 0 : errno;
    struct statvfs room {};
    if (::statvfs(path.c_str(), &room) == 0) {
      facts.total = room.f_blocks * room.f_frsize;
      facts.free = room.f_bavail * room.f_frsize;
    }
    facts.dax = facts.error == 0 && directory_is_dax(path);
  } else if (S_ISCHR(status.st_mode)) {
    const std::string device =
        fmt::format("{}/dev/char/{}:{}", sys, ::major(status.st_rdev), ::minor(status.st_rdev));
    if (is_dax_device(device)) {
      facts.kind = DaxPath::Kind::device;
      facts.dax = true;
      facts.error = ::faccessat(AT_FDCWD, path.c_str(), R_OK | W_OK, AT_EACCESS) == 0 ? 0 : errno;
      facts.total = facts.free = number_in(device + "/size");
      facts.align = number_in(device + "/align");
    }
  }
  return facts;
}

Status refuse_dax_path(const std::string& path, const DaxPath& facts, std::uint64_t bytes) {
  if (facts.error != 0) {
    return refused(facts.error == ENOENT || facts.error == ENOTDIR ? Code::invalid_argument
                                                                   : Code::unavailable,
                   facts.error, path, std::strerror(facts.error), kNameAnother);
  }
  if (facts.kind == DaxPath::Kind::other) {
    return refused(Code::invalid_argument, ENOTDIR, path,
                   "it is neither a directory nor a DAX device", kNameAnother);
  }
  if (facts.kind == DaxPath::Kind::device && facts.align > DaxFile::kUnit) {
    return refused(Code::unsupported, 0, path,
                   fmt::format("the device maps units of {}, and frames need units of 2 MiB",
                               human_bytes(facts.align)),
                   "create its namespace with `ndctl create-namespace --align 2M`");
  }
  if (facts.total != 0 && bytes > facts.total) {
    return refused(
        Code::invalid_argument, 0, path,
        fmt::format("{} is more than {} has, which is {}", human_bytes(bytes),
                    facts.kind == DaxPath::Kind::device ? "the device" : "its file system",
                    human_bytes(facts.total)),
        "name less");
  }
  if (facts.total != 0 && bytes > facts.free) {
    return refused(Code::no_capacity, ENOSPC, path,
                   fmt::format("{} of its file system are free, and all {} are allocated at start",
                               human_bytes(facts.free), human_bytes(bytes)),
                   "name less, or free some");
  }
  return {};
}

DaxFile::DaxFile(std::string path, int fd, std::uint64_t bytes)
    : path_(std::move(path)), fd_(fd), bytes_(bytes) {}

DaxFile::~DaxFile() {
  close_kept(fd_);
}

Result<std::unique_ptr<DaxFile>> DaxFile::open(const std::string& path, std::uint64_t bytes) {
  const DaxPath facts = look_at_dax_path(path);
  if (Status why = refuse_dax_path(path, facts, bytes); !why.ok()) {
    return why;
  }
  const bool device = facts.kind == DaxPath::Kind::device;
  const std::uint64_t whole = bytes / kUnit * kUnit;
  if (whole == 0) {
    return refused(Code::invalid_argument, 0, path, fmt::format("a size of {}", human_bytes(bytes)),
                   "accepted are at least 2 MiB");
  }
  const int opened = device ? ::open(path.c_str(), O_RDWR | O_CLOEXEC) : create_in(path);
  if (opened < 0) {
    const int error = errno;
    return refused(Code::unavailable, error, path, std::strerror(error), kNameAnother);
  }
  std::unique_ptr<DaxFile> file(new DaxFile(path, keep_descriptor(opened), whole));
  rlimit limit{};
  // Above the limit the kernel would send SIGXFSZ, which kills the process.
  if (!device && ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < whole) {
    return refused(Code::no_capacity, EFBIG, path,
                   fmt::format("{} is more than the process may write to a file, which is {}",
                               human_bytes(whole), human_bytes(limit.rlim_cur)),
                   "raise `ulimit -f`");
  }
  if (!device) {
    int error = 0;
    do {
      error = ::posix_fallocate(file->fd_, 0, static_cast<off_t>(whole));
    } while (error == EINTR);
    if (error != 0) {
      return refused(error == ENOSPC || error == EDQUOT ? Code::no_capacity : Code::unavailable,
                     error, path,
                     fmt::format("{} cannot be allocated there ({}); {} are free",
                                 human_bytes(whole), std::strerror(error), human_bytes(facts.free)),
                     "name less, or free some");
    }
  }
  return file;
}

int DaxFile::map(std::byte* at, std::uint64_t first_unit, std::uint64_t units) const {
  const std::uint64_t bytes = units * kUnit;
  void* const got = ::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_,
                           static_cast<off_t>(first_unit * kUnit));
  if (got == MAP_FAILED) {
    return errno;
  }
  // A child would store into its parent's bytes.
  if (::madvise(at, bytes, MADV_DONTFORK) != 0) {
    return errno;
  }
  best_effort(::madvise(at, bytes, MADV_DONTDUMP), "a core dump is larger");
  return 0;
}

}  // namespace tiermem
