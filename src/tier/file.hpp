// Adopted files: slots that are ranges of somebody's file, read and never written. Eviction costs
// nothing, since the file is the cold copy.
//
// A file is opened once and then named by its descriptors: device and inode cannot change. A change
// of its size or its modification time is an error, found before and after each read. The mover
// compares the checksums of the first read, so it also finds bytes that changed under the old time.
// Changes of name, links, mode, owner or access time are no errors: the bytes are the same.
//
// Threads: adopt() from any; all else from the mover's.
#pragma once

#include <time.h>

#include <cstdint>
#include <mutex>
#include <string>

#include "base/arena.hpp"
#include "base/checked.hpp"
#include "os/io_port.hpp"
#include "tier/tier.hpp"

namespace tiermem {

class FileTier final : public SlotTier {
 public:
  /// `piece_bytes`: most bytes of one request; a multiple of 4 KiB.
  FileTier(IoPort& port, unsigned depth, std::uint64_t piece_bytes = std::uint64_t{2} << 20)
      : port_(port), depth_(depth), piece_bytes_(piece_bytes) {}
  ~FileTier() override;

  struct Adopted {
    SlotId base{};            ///< Slot of file offset `begin`; the next 4 KiB have the next number.
    std::uint64_t begin = 0;  ///< `offset` rounded down to 4 KiB.
    std::uint64_t length = 0;  ///< Bytes of the range.
  };
  /// Opens the file and keeps it open until free(base). `length` 0: to the end.
  Result<Adopted> adopt(const char* path, std::uint64_t offset, std::uint64_t length);

  Place place() const override { return {Kind::block, 1}; }
  Result<SlotId> allocate(std::uint64_t, std::uint64_t) override { return Code::unsupported; }
  /// The file of this base is closed.
  void free(SlotId base) override;
  SlotBooks books() const override { return {}; }
  void set_budget(std::uint64_t) override {}
  Status grow(std::uint64_t) override { return Code::unsupported; }
  unsigned depth() const override { return depth_; }
  /// The number of the file; kUnnamed stands for all from there on.
  std::uint16_t device_of(SlotId slot) const override {
    return saturate<std::uint16_t>(slot.value >> kBlockBits);
  }
  const char* device_name(std::uint16_t device) const override;
  void degrade(std::uint16_t, const char*) override {}
  void trust_again() override {}
  unsigned degraded() const override { return 0; }
  void submit(const SlotTransfer& transfer) override;
  std::size_t reap(std::span<SlotCompletion> completions) override;

 private:
  static constexpr std::uint64_t kBlock = 4096;
  // A slot is the number of a file and, in the lower bits, of a block in it.
  static constexpr unsigned kBlockBits = 44;
  static constexpr std::uint64_t kMostBlocks = std::uint64_t{1} << kBlockBits;
  static constexpr std::uint64_t kMostFiles = std::uint64_t{1} << (64 - kBlockBits);
  static constexpr std::uint16_t kUnnamed = 0xFFFF;
  static constexpr unsigned kMostTries = 100;

  struct File {
    int direct_fd = -1;    // -1: O_DIRECT or a second open is refused, all reads are buffered.
    int buffered_fd = -1;  // -1: this record is free.
    std::string path;
    std::uint64_t size = 0;
    timespec modified{};
  };
  struct Read {
    SlotTransfer what;
    SlotCompletion result;
    unsigned open = 0;  // Pieces not closed.
    bool live = false;
  };
  struct Piece {
    std::uint32_t read = 0;
    std::uint64_t offset = 0;  // In the file.
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
  mutable std::mutex mutex_;  // Guards the list; records stay where they are.
  mutable Deque<File> files_;

  // The mover's.
  Vector<Read> reads_;
  Vector<std::uint32_t> free_reads_;
  Deque<Piece> pieces_;
  Vector<std::uint32_t> free_pieces_;
  Deque<std::uint32_t> queue_;  // Pieces to submit.
  Deque<std::uint32_t> ended_;  // Reads to report.
};

}  // namespace tiermem
