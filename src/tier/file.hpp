// Adopted files: slots that are ranges of a program's file, read and never written. Eviction writes
// nothing, because the file is the cold copy.
//
// A file is opened once and then named by its descriptors, so its device and inode cannot change. A
// change of its size or modification time is an error, detected before and after each read. The
// mover compares checksums with those of the first read, so it also finds bytes that changed under
// the old time. Changes of name, links, mode, owner or access time are not errors: the bytes are
// the same.
//
// Threads: any thread calls adopt(), copy() and read_here(); the mover's thread calls everything
// else.
#pragma once

#include <time.h>

#include <cstdint>
#include <mutex>
#include <new>
#include <string>

#include "base/arena.hpp"
#include "base/checked.hpp"
#include "os/io_port.hpp"
#include "tier/slot_tier.hpp"

namespace tiermem {

class FileTier final : public SlotTier {
 public:
  /// `piece_bytes`: max bytes of one request; a multiple of 4 KiB.
  FileTier(IoPort& port, unsigned depth, std::uint64_t piece_bytes = std::uint64_t{2} << 20)
      : port_(port), depth_(depth), piece_bytes_(piece_bytes) {}
  ~FileTier() override;

  struct Adopted {
    SlotId base{};  ///< Slot of file offset `begin`; each further 4 KiB has the next number.
    std::uint64_t begin = 0;   ///< `offset` rounded down to 4 KiB.
    std::uint64_t length = 0;  ///< Length of the range.
  };
  /// Opens the file and keeps it open until free(base). `length` 0: up to the end of the file.
  Result<Adopted> adopt(const char* path, std::uint64_t offset, std::uint64_t length);

  Place place() const override { return {Kind::file, 0}; }
  Result<SlotId> allocate(std::uint64_t, std::uint64_t) override { return Code::unsupported; }
  /// Closes the file of this base.
  void free(SlotId base) override;
  SlotUsage usage() const override { return {}; }
  void set_budget(std::uint64_t) override {}
  Status grow(std::uint64_t) override { return Code::unsupported; }
  unsigned depth() const override { return depth_; }
  /// Returns the number of the file; all files from kUnnamed on share kUnnamed.
  std::uint16_t device_of(SlotId slot) const override {
    return saturate<std::uint16_t>(slot.value >> kBlockBits);
  }
  const char* device_name(std::uint16_t device) const override;
  /// [any, may wait for the device] Copies a part of the file into memory, through the page cache.
  /// Bytes after the end of the file are zeros. The buffer with this base must exist during the
  /// call. Errors: io_error: the file has changed, or cannot be read; a part may be copied. Throws
  /// std::bad_alloc.
  Status copy(SlotId base, std::uint64_t offset, void* to, std::uint64_t length) const;
  /// [any] Returns the path of the file with this slot. The buffer must exist during the call.
  std::string name(SlotId slot) const { return file_of(slot).path; }
  /// [child of fork, its only thread] Another thread of the parent may have held the mutex, to look
  /// up a file. None was adopted or freed during the fork.
  void follow_fork() { new (&mutex_) std::mutex; }
  void degrade(std::uint16_t, const char*) override {}
  void trust_again() override {}
  unsigned degraded() const override { return 0; }
  void submit(const SlotTransfer& transfer) override;
  std::size_t reap(std::span<SlotCompletion> completions) override;
  bool reads_here() const override { return port_.reads_here(); }
  SlotCompletion read_here(const SlotTransfer& transfer) override;

 private:
  static constexpr std::uint64_t kBlock = 4096;
  // A slot is the number of a file and, in the lower bits, the number of a block in it.
  static constexpr unsigned kBlockBits = 44;
  static constexpr std::uint64_t kMostBlocks = std::uint64_t{1} << kBlockBits;
  static constexpr std::uint64_t kMostFiles = std::uint64_t{1} << (64 - kBlockBits);
  static constexpr std::uint16_t kUnnamed = 0xFFFF;
  static constexpr unsigned kMostTries = 100;

  struct File {
    int direct_fd = -1;    // -1: O_DIRECT or a second open is refused, and all reads are buffered.
    int buffered_fd = -1;  // -1: this record is unused.
    std::string path;
    std::uint64_t size = 0;
    timespec modified{};
  };
  struct Read {
    SlotTransfer what;
    SlotCompletion result;
    unsigned open = 0;  // Pieces not yet closed.
    bool live = false;
  };
  struct Piece {
    std::uint32_t read = 0;
    std::uint64_t offset = 0;  // Offset in the file.
    std::byte* data = nullptr;
    std::uint32_t length = 0;
    std::uint32_t tries = 0;
    bool buffered = false;
    bool live = false;
  };

  File& file_of(SlotId slot) const;
  bool unchanged(const File& file) const;
  std::uint32_t new_piece(const Piece& piece);
  void issue();
  void piece_done(std::uint32_t at, std::int32_t result);
  void close_piece(std::uint32_t at, Code code, int native);

  IoPort& port_;
  const unsigned depth_;
  const std::uint64_t piece_bytes_;
  mutable std::mutex mutex_;  // Guards the list; the records never move.
  mutable Deque<File> files_;

  // Used by the mover only.
  Vector<Read> reads_;
  Vector<std::uint32_t> free_reads_;
  Deque<Piece> pieces_;
  Vector<std::uint32_t> free_pieces_;
  Deque<std::uint32_t> queue_;  // Pieces to submit.
  Deque<std::uint32_t> ended_;  // Reads to report.
};

}  // namespace tiermem
