// The link in /proc/self/fd leads to the open file itself, even if its path has changed.

#include "os/file_identity.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>

#include "base/results.hpp"

namespace tiermem {

FileIdentity identity_of(int fd) noexcept {
  struct stat st {};
  return ::fstat(fd, &st) == 0 ? FileIdentity{st.st_dev, st.st_ino} : FileIdentity{};
}

int reopen(int fd, int flags) noexcept {
  char link[32];
  (void)std::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const int again = ::open(link, flags);
  if (again >= 0 && identity_of(again) != identity_of(fd)) {
    best_effort(::close(again), "the descriptor is gone in any case");
    errno = ESTALE;
    return -1;
  }
  return again;
}

std::string random_name(std::string_view prefix) {
  static std::atomic<std::uint64_t> calls{0};
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof(number), GRND_NONBLOCK) != sizeof(number)) {
    // At least unique: the code that creates the name requires a new file.
    number = static_cast<std::uint64_t>(::getpid()) << 32 | (calls.fetch_add(1) & 0xffffffff);
  }
  char digits[17];
  (void)std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(number));
  return std::string(prefix) + digits;
}

int create_random(int directory, std::string_view prefix, mode_t mode, std::string& name) {
  int fd = -1;
  for (int tries = 0; tries < 100; ++tries) {
    name = random_name(prefix);
    fd = ::openat(directory, name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd >= 0 || errno != EEXIST) {
      break;
    }
  }
  return fd;
}

int create_unnamed(int directory, int flags, bool tmpfile) {
  if (tmpfile) {
    const int fd = ::openat(directory, ".", O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOENT)) {
      return fd;
    }
  }
  std::string name;
  const int fd = create_random(directory, ".tiermem-", 0600, name);
  if (fd >= 0) {
    best_effort(::unlinkat(directory, name.c_str(), 0), "a name that stays behind only takes room");
  }
  return fd;
}

int replace_file(const std::string& path, std::string_view text, mode_t mode) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  const int directory = ::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) {
    return errno;
  }
  std::string part;
  const int file = create_random(directory, name + ".", mode, part);
  int error = file < 0 ? errno : 0;
  for (std::size_t done = 0; error == 0 && done < text.size();) {
    const ssize_t n = ::write(file, text.data() + done, text.size() - done);
    done += n > 0 ? static_cast<std::size_t>(n) : 0;
    error = n > 0 || (n < 0 && errno == EINTR) ? 0 : n == 0 ? ENOSPC : errno;
  }
  if (file >= 0) {
    if (::close(file) != 0 && error == 0) {
      error = errno;
    }
    if (error == 0 && ::renameat(directory, part.c_str(), directory, name.c_str()) != 0) {
      error = errno;
    }
    if (error != 0) {
      best_effort(::unlinkat(directory, part.c_str(), 0),
                  "a name that stays behind only takes room");
    }
  }
  best_effort(::close(directory), "the descriptor is gone in any case");
  return error;
}

}  // namespace tiermem
