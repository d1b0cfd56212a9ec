// Opens and preallocates a device of the block tier. The limit is physical and enforced: bytes for
// which grow() returned success are allocated on the disk, and the file system keeps its reserve.

#include "os/block_file.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "base/error.hpp"
#include "base/kept_descriptors.hpp"
#include "base/results.hpp"
#include "os/file_identity.hpp"
#include "os/handed_descriptors.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kUnit = 4096;  // Unit of limits: the smallest slot.
constexpr std::uint64_t kMaxReserve = std::uint64_t{1} << 30;
constexpr const char* kSetting = "nvme=DIR:SIZE";

bool is_power_of_two(std::uint64_t n) {
  return n != 0 && (n & (n - 1)) == 0;
}

/// Copies a path into a small field. A path that does not fit is represented by its end, which
/// distinguishes devices.
template <std::size_t N>
void set_path(char (&field)[N], const std::string& path) {
  const std::size_t room = N - 1;
  if (path.size() <= room) {
    set_text(field, path);
  } else {
    set_text(field, "..." + path.substr(path.size() - (room - 3)));
  }
}

Status refused(const std::string& path, int native, const char* what) {
  const Code code =
      native == ENOTDIR || native == ENOENT ? Code::invalid_argument : Code::unavailable;
  ErrorInfo info = error_info(code,
                              "block device {}: {}: {}; accepted is a directory that this user "
                              "may write to, or a block device ({})",
                              path, what, strerror(native), kSetting);
  info.native = native;
  info.tier = Place{Kind::block, 0};
  set_text(info.setting, kSetting);
  return Status(info);
}

}  // namespace

Result<std::unique_ptr<BlockFile>> BlockFile::open(const BlockFileOptions& options) {
  std::unique_ptr<BlockFile> file(new BlockFile(options));
  set_path(file->facts_.name, options.path);

  // The path is looked up once. All later calls use this descriptor.
  struct stat st {};
  file->directory_fd_ = keep_descriptor(::open(options.path.c_str(), O_PATH | O_CLOEXEC));
  const bool found = file->directory_fd_ >= 0 && ::fstat(file->directory_fd_, &st) == 0;
  if (!found && !file->take_handed()) {
    return refused(options.path, errno, "cannot be found");
  }
  file->raw_ = found && S_ISBLK(st.st_mode);
  if (found && !file->raw_ && !S_ISDIR(st.st_mode)) {
    return refused(options.path, ENOTDIR, "neither a directory nor a block device");
  }
  Status status = file->raw_ ? file->open_device() : file->open_file();
  if (!options.nameable || file->raw_) {
    close_kept(std::exchange(file->directory_fd_, -1));
  }
  if (!status.ok()) {
    return status;
  }
  if (options.require_direct && !file->facts_.direct) {
    return fail(Code::unsupported, "block device {}: direct I/O is required and refused: {}",
                options.path, file->facts_.reason);
  }
  return file;
}

BlockFile::~BlockFile() {
  close_kept(directory_fd_);
  close_kept(direct_fd_);
  close_kept(buffered_fd_);
}

Status BlockFile::open_file() {
  facts_.limit = options_.limit / kUnit * kUnit;
  if (facts_.limit == 0) {
    return fail(Code::invalid_argument,
                "block device {}: a limit of {} bytes; accepted are at least {} ({})",
                options_.path, options_.limit, kUnit, kSetting);
  }
  if (buffered_fd_ < 0) {
    create_file();
  }
  if (buffered_fd_ < 0 && !take_handed()) {
    return refused(options_.path, errno, "cannot create a file");
  }
  struct statfs fs {};
  if (::fstatfs(buffered_fd_, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC)) {
    // Newer kernels accept the flag here, but copy through the page cache anyway.
    use_buffered("a file system in memory has no direct I/O");
    return Code::ok;
  }
  // Open the same file again: the flag belongs to the open file, and both kinds are needed.
  if (direct_fd_ < 0) {
    direct_fd_ = keep_descriptor(reopen(buffered_fd_, O_RDWR | O_DIRECT | O_CLOEXEC));
  }
  if (direct_fd_ < 0) {
    use_buffered(("O_DIRECT refused: " + std::string(strerror(errno))).c_str());
    return Code::ok;
  }
  learn_alignment(kUnit);
  return Code::ok;
}

// Sets buffered_fd_, or leaves it at -1 with errno.
void BlockFile::create_file() {
  // O_EXCL: the file can never be given a name.
  const int nameless = options_.nameable ? 0 : O_EXCL;
  buffered_fd_ =
      keep_descriptor(create_unnamed(directory_fd_, nameless, !options_.test_without_tmpfile));
}

// Takes a file that a process with more rights has created. Returns false, with errno unchanged, if
// there is none.
bool BlockFile::take_handed() {
  const int error = errno;
  int handed[kMostHanded];
  const int count = handed_descriptors(Handed::scratch_file, options_.path.c_str(), handed);
  if (count > 0) {
    buffered_fd_ = keep_descriptor(handed[0]);
  }
  if (count > 1) {
    direct_fd_ = keep_descriptor(handed[1]);
  }
  errno = error;
  return count > 0;
}

// A device has a name already. A file gets a name in a directory of its own, so the name cannot
// belong to another file; only the inode that received the name is passed on.
Status BlockFile::with_name(const std::function<Status(int descriptor)>& body) const {
  constexpr int kFlags = O_RDWR | O_DIRECT | O_CLOEXEC;
  if (raw_) {
    return with_descriptor(reopen(buffered_fd_, kFlags), body);
  }
  if (!options_.nameable) {
    return refused(options_.path, ENOENT, "cannot give a file without a name one");
  }
  const std::string name = random_name(".tiermem-");
  if (::mkdirat(directory_fd_, name.c_str(), 0700) != 0) {
    return refused(options_.path, errno, "cannot give a file a name");
  }
  const int folder =
      ::openat(directory_fd_, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  const std::string self = "/proc/self/fd/" + std::to_string(buffered_fd_);
  Status status;
  if (folder < 0 || ::linkat(AT_FDCWD, self.c_str(), folder, "file", AT_SYMLINK_FOLLOW) != 0) {
    status = refused(options_.path, errno, "cannot give a file without a name one");
  } else {
    status = with_descriptor(::openat(folder, "file", kFlags | O_NOFOLLOW), body);
  }
  if (folder >= 0) {
    best_effort(::unlinkat(folder, "file", 0), "a name that stays behind only takes room");
    best_effort(::close(folder), "the descriptor is gone in any case");
  }
  best_effort(::unlinkat(directory_fd_, name.c_str(), AT_REMOVEDIR),
              "a directory that stays behind only takes room");
  return status;
}

// Takes a descriptor, or -1 with errno.
Status BlockFile::with_descriptor(int descriptor,
                                  const std::function<Status(int descriptor)>& body) const {
  descriptor = keep_descriptor(descriptor);
  if (descriptor >= 0 && identity_of(descriptor) != identity_of(buffered_fd_)) {
    close_kept(descriptor);
    descriptor = -1;
    errno = ESTALE;
  }
  return descriptor < 0 ? refused(options_.path, errno, "cannot be opened once more")
                        : body(descriptor);
}

Status BlockFile::open_device() {
  // O_EXCL: refused with EBUSY while the device is mounted or otherwise claimed.
  buffered_fd_ = keep_descriptor(::open(options_.path.c_str(), O_RDWR | O_EXCL | O_CLOEXEC));
  if (buffered_fd_ < 0) {
    return refused(options_.path, errno, "cannot be opened for writing, exclusively");
  }
  if (identity_of(buffered_fd_) != identity_of(directory_fd_)) {
    return refused(options_.path, ESTALE, "was replaced while it was opened; start again");
  }
  std::uint64_t bytes = 0;
  if (::ioctl(buffered_fd_, BLKGETSIZE64, &bytes) != 0) {
    return refused(options_.path, errno, "has no size");
  }
  const std::uint64_t limit = options_.limit == 0 ? bytes : std::min(options_.limit, bytes);
  facts_.limit = limit / kUnit * kUnit;
  int logical = 0;
  if (::ioctl(buffered_fd_, BLKSSZGET, &logical) != 0 || !is_power_of_two(logical)) {
    logical = static_cast<int>(kUnit);
  }
  direct_fd_ = keep_descriptor(reopen(buffered_fd_, O_RDWR | O_DIRECT | O_CLOEXEC));
  if (direct_fd_ < 0) {
    use_buffered(("O_DIRECT refused: " + std::string(strerror(errno))).c_str());
    return Code::ok;
  }
  learn_alignment(static_cast<std::uint32_t>(logical));
  return Code::ok;
}

void BlockFile::learn_alignment(std::uint32_t fallback) {
  facts_.block_bytes = fallback;
#ifdef STATX_DIOALIGN
  struct statx st {};
  if (::statx(direct_fd_, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) == 0 &&
      (st.stx_mask & STATX_DIOALIGN) != 0) {
    const std::uint32_t align =
        std::max({st.stx_dio_offset_align, st.stx_dio_mem_align, std::uint32_t{512}});
    if (st.stx_dio_offset_align == 0) {
      use_buffered("the file system reports no direct I/O for this file");
    } else if (is_power_of_two(align)) {
      facts_.block_bytes = align;
    }
  }
#endif
}

void BlockFile::use_buffered(const char* why) {
  close_kept(direct_fd_);
  direct_fd_ = -1;
  facts_.direct = false;
  facts_.block_bytes = 512;
  set_text(facts_.reason, why);
}

DeviceFacts BlockFile::facts() const {
  DeviceFacts facts = facts_;
  // Acquire pairs with the release in grow(): a thread that reads the size may use the bytes.
  facts.size = size_.load(std::memory_order_acquire);
  return facts;
}

Status BlockFile::no_room(int native, std::uint64_t needed, std::string_view why) const {
  const std::uint64_t used = size_.load(std::memory_order_relaxed);  // Only grow writes it.
  ErrorInfo info =
      error_info(Code::no_capacity,
                 "block device {}: {} more bytes refused: {}; uses {} of limit {}; free space or "
                 "raise the limit ({})",
                 facts_.name, needed, why, human_bytes(used), human_bytes(facts_.limit), kSetting);
  info.native = native;
  info.tier = Place{Kind::block, 0};
  info.needed = needed;
  info.budget = facts_.limit;
  info.used = used;
  set_text(info.setting, kSetting);
  return Status(info);
}

Status BlockFile::check_room(std::uint64_t bytes, std::uint64_t size) const {
  const std::uint64_t more = bytes - size;
  if (bytes > facts_.limit) {
    return no_room(ENOSPC, more, "beyond its limit");
  }
  if (raw_) {
    return Code::ok;
  }
  // Above RLIMIT_FSIZE the kernel would send SIGXFSZ, which kills the process.
  struct rlimit most {};
  if (::getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY &&
      bytes > most.rlim_cur) {
    return no_room(EFBIG, more, text("RLIMIT_FSIZE is {}", human_bytes(most.rlim_cur)));
  }
  struct statvfs fs {};
  if (::fstatvfs(buffered_fd_, &fs) != 0) {
    return fail_native(Code::io_error, errno, "block device {}: cannot read its free space: {}",
                       facts_.name, strerror(errno));
  }
  if (fs.f_blocks == 0) {
    return Code::ok;  // A file system that does not report free space: rely on its own result.
  }
  const std::uint64_t total = std::uint64_t{fs.f_blocks} * fs.f_frsize;
  const std::uint64_t free = std::uint64_t{fs.f_bavail} * fs.f_frsize;
  const std::uint64_t reserve = options_.reserve_free_bytes == BlockFileOptions::kDefaultReserve
                                    ? std::min(kMaxReserve, total / 20)
                                    : options_.reserve_free_bytes;
  if (free < reserve || free - reserve < more) {
    return no_room(ENOSPC, more,
                   text("the file system has {} free and {} stay free", human_bytes(free),
                        human_bytes(reserve)));
  }
  return Code::ok;
}

Status BlockFile::grow(std::uint64_t bytes) {
  const std::uint64_t size = size_.load(std::memory_order_relaxed);  // Only grow writes it.
  if (bytes <= size) {
    return Code::ok;
  }
  Status room = check_room(bytes, size);
  if (!room.ok()) {
    return room;
  }
  const int native = raw_ ? 0 : preallocate(size, bytes);
  if (native == 0) {
    size_.store(bytes, std::memory_order_release);
    return Code::ok;
  }
  // Part of the extension may be allocated; truncation to the old size releases it.
  if (::ftruncate(buffered_fd_, static_cast<off_t>(size)) != 0) {
    return fail_native(Code::io_error, errno, "block device {}: cannot shrink after {}: {}",
                       facts_.name, strerror(native), strerror(errno));
  }
  if (native == ENOSPC || native == EDQUOT || native == EFBIG) {
    return no_room(native, bytes - size, strerror(native));
  }
  return fail_native(Code::io_error, native, "block device {}: preallocating {} at offset {}: {}",
                     facts_.name, human_bytes(bytes - size), size, strerror(native));
}

int BlockFile::preallocate(std::uint64_t from, std::uint64_t to) const {
  if (!options_.test_without_fallocate) {
    for (int tries = 0; tries < 100; ++tries) {
      if (::fallocate(buffered_fd_, 0, static_cast<off_t>(from), static_cast<off_t>(to - from)) ==
          0) {
        return 0;
      }
      if (errno != EINTR) {
        break;
      }
    }
    if (errno != EOPNOTSUPP && errno != ENOSYS) {
      return errno;
    }
  }
  return write_zeros(from, to);
}

int BlockFile::write_zeros(std::uint64_t from, std::uint64_t to) const {
  static constexpr std::byte kZeros[64 * 1024]{};
  for (std::uint64_t at = from; at < to;) {
    const std::size_t n = std::min<std::uint64_t>(sizeof(kZeros), to - at);
    const ssize_t wrote = ::pwrite(buffered_fd_, kZeros, n, static_cast<off_t>(at));
    if (wrote > 0) {
      at += static_cast<std::uint64_t>(wrote);
    } else if (wrote == 0) {
      return EIO;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  // Write back now: only after this has a file system with delayed allocation reserved the space.
  if (::fdatasync(buffered_fd_) != 0) {
    return errno;
  }
  best_effort(::posix_fadvise(buffered_fd_, static_cast<off_t>(from), static_cast<off_t>(to - from),
                              POSIX_FADV_DONTNEED),
              "a hint");
  return 0;
}

}  // namespace tiermem
