// Reads ranges of adopted files in pieces, directly where the file system allows it.
#include "tier/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string_view>
#include <system_error>

#include "base/error.hpp"
#include "base/results.hpp"
#include "os/file_identity.hpp"

namespace tiermem {
namespace {

Status cannot_open(const char* path, int native) {
  constexpr std::array kNoFile = {ENOENT, ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG};
  const bool no_file = std::find(kNoFile.begin(), kNoFile.end(), native) != kNoFile.end();
  return fail_native(no_file ? Code::invalid_argument : Code::io_error, native,
                     "adopt_file: cannot open '{}': {}", path,
                     std::generic_category().message(native));
}

// The name of a file for messages. A link of /proc to an open file has a number and no name.
std::string name_of(const char* path) {
  const std::string_view given(path);
  if (!given.starts_with("/proc/self/fd/") && !given.starts_with("/dev/fd/")) {
    return path;
  }
  std::array<char, PATH_MAX> real{};
  const ssize_t length = ::readlink(path, real.data(), real.size());
  return length > 0 ? std::string(real.data(), static_cast<std::size_t>(length)) : path;
}

bool same(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

}  // namespace

FileTier::~FileTier() {
  for (const File& file : files_) {
    for (const int fd : {file.direct_fd, file.buffered_fd}) {
      if (fd >= 0) {
        best_effort(::close(fd), "the descriptor is gone in any case");
      }
    }
  }
}

Result<FileTier::Adopted> FileTier::adopt(const char* path, std::uint64_t offset,
                                          std::uint64_t length) {
  File file;
  file.path = name_of(path);
  file.buffered_fd = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // Opening a pipe would wait.
  if (file.buffered_fd < 0) {
    return cannot_open(path, errno);
  }
  struct stat st {};
  if (::fstat(file.buffered_fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    const int native = st.st_mode == 0 ? errno : S_ISDIR(st.st_mode) ? EISDIR : 0;
    best_effort(::close(file.buffered_fd), "the descriptor is gone in any case");
    return native != 0 ? cannot_open(path, native)
                       : fail(Code::invalid_argument,
                              "adopt_file: '{:.120}' is not a regular file but a device, a pipe or "
                              "a socket; pass a regular file",
                              path);
  }
  best_effort(::fcntl(file.buffered_fd, F_SETFL, 0),
              "it fails for no open file; io_uring would answer EAGAIN and not wait");
  file.size = static_cast<std::uint64_t>(st.st_size);
  file.modified = st.st_mtim;
  if (offset >= file.size || length > file.size - offset) {
    best_effort(::close(file.buffered_fd), "the descriptor is gone in any case");
    return fail(Code::invalid_argument,
                "adopt_file: '{:.120}' has {} bytes; {} bytes at offset {} are not inside; pass a "
                "range inside",
                path, file.size, length, offset);
  }
  const std::uint64_t bytes = length != 0 ? length : file.size - offset;
  if (offset + bytes > kMostBlocks * kBlock) {
    best_effort(::close(file.buffered_fd), "the descriptor is gone in any case");
    return fail(Code::invalid_argument,
                "adopt_file: '{}': {} bytes at offset {} end above 2^56; adopt an earlier part",
                path, bytes, offset);
  }
  // The path may lead to another file now, so it is not looked up again.
  file.direct_fd = reopen(file.buffered_fd, O_RDONLY | O_DIRECT | O_CLOEXEC);
  std::lock_guard lock(mutex_);
  auto at =
      std::find_if(files_.begin(), files_.end(), [](const File& f) { return f.buffered_fd < 0; });
  if (at == files_.end()) {
    if (files_.size() == kMostFiles) {
      best_effort(::close(file.buffered_fd), "the descriptor is gone in any case");
      if (file.direct_fd >= 0) {
        best_effort(::close(file.direct_fd), "the descriptor is gone in any case");
      }
      return fail(Code::no_capacity, "adopt_file: '{}': {} files are adopted; free some first",
                  path, kMostFiles);
    }
    files_.emplace_back();
    at = files_.end() - 1;
  }
  *at = std::move(file);
  Adopted adopted;
  adopted.begin = offset / kBlock * kBlock;
  adopted.length = bytes;
  adopted.base.value =
      static_cast<std::uint64_t>(at - files_.begin()) << kBlockBits | adopted.begin / kBlock;
  return adopted;
}

void FileTier::free(SlotId base) {
  std::lock_guard lock(mutex_);
  File& file = files_[base.value >> kBlockBits];
  best_effort(::close(std::exchange(file.buffered_fd, -1)), "the descriptor is gone in any case");
  if (file.direct_fd >= 0) {
    best_effort(::close(std::exchange(file.direct_fd, -1)), "the descriptor is gone in any case");
  }
}

FileTier::File& FileTier::file_of(SlotId slot) const {
  std::lock_guard lock(mutex_);
  return files_[slot.value >> kBlockBits];
}

const char* FileTier::device_name(std::uint16_t device) const {
  std::lock_guard lock(mutex_);
  return device == kUnnamed ? "an adopted file" : files_[device].path.c_str();
}

// The open descriptor fixes device and inode. The change time says nothing about the bytes: chmod,
// chown, link and rename set it too.
bool FileTier::unchanged(const File& file) const {
  struct stat st {};
  return ::fstat(file.buffered_fd, &st) == 0 &&
         static_cast<std::uint64_t>(st.st_size) == file.size && same(st.st_mtim, file.modified);
}

// The kernel reads into memory of its own first: it may not be able to bring pages of the target.
Status FileTier::copy(SlotId base, std::uint64_t offset, void* to, std::uint64_t length) const {
  const File& file = file_of(base);
  const std::uint64_t begin = (base.value & (kMostBlocks - 1)) * kBlock + offset;
  const std::uint64_t end = std::clamp(file.size, begin, begin + length);
  auto* const memory = static_cast<std::byte*>(to);
  Vector<std::byte> piece(std::min(length, std::uint64_t{64} << 10));
  int native = unchanged(file) ? 0 : ESTALE;
  for (std::uint64_t at = begin; at < end && native == 0;) {
    const ssize_t got =
        ::pread(file.buffered_fd, piece.data(), std::min<std::uint64_t>(piece.size(), end - at),
                static_cast<off_t>(at));
    if (got > 0) {
      std::memcpy(memory + (at - begin), piece.data(), static_cast<std::size_t>(got));
      at += static_cast<std::uint64_t>(got);
    } else if (got == 0) {
      native = ESTALE;  // It has been cut.
    } else if (errno != EINTR) {
      native = errno;
    }
  }
  if (native == 0 && !unchanged(file)) {
    native = ESTALE;
  }
  if (native != 0) {
    return fail_native(Code::io_error, native, "{} bytes at offset {} of '{}' cannot be read: {}",
                       length, begin, file.path,
                       native == ESTALE
                           ? "the file has changed since it was adopted; adopt it again"
                           : std::generic_category().message(native));
  }
  std::memset(memory + (end - begin), 0, length - (end - begin));
  return {};
}

// Whole blocks. The last bytes of a file, and what fails, are left to submit().
SlotCompletion FileTier::read_here(const SlotTransfer& transfer) {
  const File& file = file_of(transfer.slot);
  const std::uint64_t begin = (transfer.slot.value & (kMostBlocks - 1)) * kBlock + transfer.offset;
  SlotCompletion result{.cookie = transfer.cookie,
                        .code = Code::io_error,
                        .device = device_of(transfer.slot),
                        .requests = 1,
                        .buffered = file.direct_fd < 0,
                        .device_offset = begin};
  if (begin + transfer.length > file.size || !unchanged(file)) {
    return result;
  }
  const std::int32_t got =
      port_.read_here({.fd = result.buffered ? file.buffered_fd : file.direct_fd,
                       .buffered = result.buffered,
                       .data = transfer.data,
                       .offset = begin,
                       .length = static_cast<std::uint32_t>(transfer.length)});
  if (got >= 0 && static_cast<std::uint64_t>(got) == transfer.length && unchanged(file)) {
    result.code = Code::ok;
  }
  return result;
}

std::uint32_t FileTier::new_piece(const Piece& piece) {
  std::uint32_t at = static_cast<std::uint32_t>(pieces_.size());
  if (free_pieces_.empty()) {
    pieces_.push_back(piece);
  } else {
    at = free_pieces_.back();
    free_pieces_.pop_back();
    pieces_[at] = piece;
  }
  pieces_[at].live = true;
  return at;
}

void FileTier::submit(const SlotTransfer& transfer) {
  std::uint32_t at = static_cast<std::uint32_t>(reads_.size());
  if (free_reads_.empty()) {
    reads_.emplace_back();
  } else {
    at = free_reads_.back();
    free_reads_.pop_back();
  }
  Read& read = reads_[at];
  read = Read{};
  read.what = transfer;
  read.live = true;
  read.result.cookie = transfer.cookie;
  read.result.device = device_of(transfer.slot);
  const File& file = file_of(transfer.slot);
  if (!unchanged(file)) {
    read.result.code = Code::io_error;
    read.result.native = ESTALE;
    ended_.push_back(at);
    return;
  }
  // Whole blocks are read directly, the rest of the last block through the page cache, and the
  // memory after the end is zeroed.
  const std::uint64_t begin = (transfer.slot.value & (kMostBlocks - 1)) * kBlock + transfer.offset;
  read.result.device_offset = begin;
  const std::uint64_t end = std::clamp(file.size, begin, begin + transfer.length);
  const std::uint64_t whole = begin + (end - begin) / kBlock * kBlock;
  for (std::uint64_t from = begin; from < end;) {
    const bool tail = from >= whole;
    const std::uint64_t to = tail ? end : std::min(whole, from + piece_bytes_);
    Piece piece;
    piece.read = at;
    piece.offset = from;
    piece.data = transfer.data + (from - begin);
    piece.length = static_cast<std::uint32_t>(to - from);
    piece.buffered = tail || file.direct_fd < 0;
    queue_.push_back(new_piece(piece));
    ++read.open;
    ++read.result.requests;
    read.result.buffered |= piece.buffered;
    from = to;
  }
  std::memset(transfer.data + (end - begin), 0, transfer.length - (end - begin));
  if (read.open == 0) {
    ended_.push_back(at);  // All of it is after the end of the file.
  }
  issue();
}

void FileTier::issue() {
  bool submitted = false;
  while (!queue_.empty()) {
    const Piece& piece = pieces_[queue_.front()];
    const File& file = file_of(reads_[piece.read].what.slot);
    IoRequest request;
    request.cookie = queue_.front();
    request.fd = piece.buffered ? file.buffered_fd : file.direct_fd;
    request.buffered = piece.buffered;
    request.data = piece.data;
    request.to_program = reads_[piece.read].what.to_program;
    request.offset = piece.offset;
    request.length = piece.length;
    if (!port_.submit(request)) {
      break;  // The port is full: continue after the next completions.
    }
    submitted = true;
    queue_.pop_front();
  }
  if (submitted) {
    port_.flush();
  }
}

void FileTier::close_piece(std::uint32_t at, Code code, int native) {
  Piece& piece = pieces_[at];
  Read& read = reads_[piece.read];
  if (code != Code::ok && read.result.code == Code::ok) {
    read.result.code = code;
    read.result.native = native;
    read.result.device_offset = piece.offset;
  }
  piece.live = false;
  free_pieces_.push_back(at);
  if (--read.open == 0) {
    ended_.push_back(piece.read);
  }
}

void FileTier::piece_done(std::uint32_t at, std::int32_t result) {
  Piece& piece = pieces_[at];
  Read& read = reads_[piece.read];
  if (result > 0) {
    const auto n = std::min(static_cast<std::uint32_t>(result), piece.length);
    piece.offset += n;
    piece.data += n;
    piece.length -= n;
    piece.tries = 0;
    if (piece.length == 0) {
      close_piece(at, Code::ok, 0);
      return;
    }
    // A short read may end at any byte.
    piece.buffered = piece.buffered || piece.offset % kBlock != 0;
  } else if (result == -EINVAL && !piece.buffered) {
    read.result.buffered = true;
    piece.buffered = true;  // The file system accepted O_DIRECT at open and refuses it now.
  } else if ((result != -EINTR && result != -EAGAIN) || ++piece.tries > kMostTries) {
    close_piece(at, Code::io_error, result == 0 ? EIO : -result);
    return;
  }
  ++read.result.retries;
  queue_.push_back(at);
}

std::size_t FileTier::reap(std::span<SlotCompletion> completions) {
  std::array<IoCompletion, 64> batch;
  for (std::size_t n = port_.reap(batch); n > 0; n = port_.reap(batch)) {
    for (std::size_t i = 0; i < n; ++i) {
      piece_done(static_cast<std::uint32_t>(batch[i].cookie), batch[i].result);
    }
  }
  issue();
  std::size_t n = 0;
  for (; n < completions.size() && !ended_.empty(); ++n) {
    const std::uint32_t at = ended_.front();
    ended_.pop_front();
    Read& read = reads_[at];
    if (!unchanged(file_of(read.what.slot))) {
      // The file changed during the read, which may also be why the read failed.
      read.result.code = Code::io_error;
      read.result.native = ESTALE;
    }
    completions[n] = read.result;
    read.live = false;
    free_reads_.push_back(at);
  }
  return n;
}

}  // namespace tiermem
