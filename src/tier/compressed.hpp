// Compressed memory: a slot tier that keeps packed pages in DRAM. A read costs some
// microseconds of a processor and no I/O.
//
// A page is packed by LZ4 into cells of 256 bytes, which can lie anywhere, so no room is lost
// between pages of different sizes. A page that one 32-bit word repeats fills needs no cell. A page
// that does not shrink to three quarters is kept as it is, so every write succeeds; the caller sees
// from bytes_of() whether it was of use.
//
// An unwritten page is charged as a whole, so its write has room. If a page is written again and
// shrinks less than before, it takes more cells: a sixteenth more than the budget is kept for that.
//
// Threads: the mover calls everything except grow(), which is for a worker, and read_here(), which
// is for any thread. The tier has no thread: reap() does the work, a few pages at a time. Equal
// calls give equal results. Records and cells never move, so a thread reads a slot while the mover
// works on others.
//
//   charge of a slot == sum over its pages of: 4 KiB if unwritten, else the bytes of its cells
//   in_use == sum over slots of their charges <= the cells that are committed
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>

#include "base/arena.hpp"
#include "base/reserved_array.hpp"
#include "tier/page_codec.hpp"
#include "tier/slot_tier.hpp"

namespace tiermem {

class CompressedTier final : public SlotTier {
 public:
  static constexpr std::uint64_t kCellBytes = 256;

  /// Returns the budget of a tier that takes at most `bytes` of memory.
  static constexpr std::uint64_t budget_for(std::uint64_t bytes) {
    return bytes / (kShare + 1) * kShare / kSmallestExtent * kSmallestExtent;
  }
  /// `budget`: a multiple of 4 KiB, and the max of set_budget(). Throws std::bad_alloc.
  explicit CompressedTier(std::uint64_t budget);
  ~CompressedTier() override;

  Place place() const override { return {Kind::compressed, 0}; }
  bool compresses() const override { return true; }
  /// [any] Returns the bytes of memory that cells have. They are never given back.
  std::uint64_t memory_bytes() const { return std::uint64_t{committed_.load()} * kCellBytes; }
  Result<SlotId> allocate(std::uint64_t bytes, std::uint64_t avoid) override;
  void free(SlotId slot) override;
  std::uint64_t bytes_of(SlotId slot) const override { return slots_[slot.value].charge; }
  SlotUsage usage() const override { return {budget_.load(), in_use_, physical_.load()}; }
  std::uint64_t budget() const { return budget_.load(); }  ///< [any]
  /// [any]
  void set_budget(std::uint64_t bytes) override { budget_ = std::min(bytes, most_); }
  Status grow(std::uint64_t bytes) override;
  unsigned depth() const override { return 16; }
  std::uint16_t device_of(SlotId) const override { return 0; }
  const char* device_name(std::uint16_t) const override { return "compressed memory"; }
  void degrade(std::uint16_t, const char*) override { degraded_ = true; }
  void trust_again() override { degraded_ = false; }
  unsigned degraded() const override { return degraded_ ? 1 : 0; }

  void submit(const SlotTransfer& transfer) override;
  bool pending() const override { return !reads_.empty() || !writes_.empty(); }
  std::size_t reap(std::span<SlotCompletion> completions) override;
  bool reads_here() const override { return true; }
  SlotCompletion read_here(const SlotTransfer& transfer) override;

  /// [mover] Returns the number of pages that were read and written, without read_here().
  std::uint64_t pages() const { return pages_; }
  /// Derives the accounting again. Returns `internal` with the first contradiction.
  Status check_invariants() const;

 private:
  static constexpr std::uint64_t kShare = 16;  // One part in this many is kept for rewrites.
  // Records of slots for each page of the budget. Only extents of one page that one word fills
  // could need more.
  static constexpr std::uint64_t kSlotsPerPage = 4;
  static constexpr std::uint32_t kNoCell = ~std::uint32_t{0};
  // The pages that one reap() works on, in reads. A write takes as long as four reads.
  static constexpr unsigned kWork = 32;
  static constexpr unsigned kWriteWork = 4;

  struct Cell {
    std::byte bytes[kCellBytes];
  };
  struct Page {
    enum class Form : std::uint16_t { unwritten, filled, packed, plain };
    std::uint32_t first = 0;  ///< The first cell. `filled`: the word.
    std::uint16_t bytes = 0;  ///< The bytes in the cells.
    Form form = Form::unwritten;

    std::uint64_t cells() const { return (bytes + kCellBytes - 1) / kCellBytes; }
    std::uint64_t charge() const {
      return form == Form::unwritten ? kSmallestExtent : cells() * kCellBytes;
    }
  };
  struct Slot {
    Page* pages = nullptr;  // Null: this record is unused.
    std::uint32_t count = 0;
    std::uint32_t next = 0;  // The next unused record.
    std::uint64_t charge = 0;
  };
  struct Running {
    SlotTransfer what;
    std::uint64_t done = 0;
  };

  bool write(Slot& slot, Page& page, const std::byte* from);
  bool read(const Page& page, std::byte* to) const;
  bool store(Slot& slot, Page& page, Page::Form form, const std::byte* from, std::size_t bytes);
  void charge(Slot& slot, std::uint64_t before, std::uint64_t after);
  void give_cells(const Page& page);
  void load(const Page& page, std::byte* to) const;
  /// Returns the page of the slot that the transfer's bytes from `done` on belong to.
  Page& page_at(const SlotTransfer& transfer, std::uint64_t done);
  bool run_page(Running& running);

  // Used by grow(), too. mutex_ guards commits of the arrays.
  std::mutex mutex_;
  std::atomic<std::uint64_t> budget_, physical_{0};
  std::atomic<std::uint32_t> committed_{0};  // Cells.

  // Used by the mover only.
  const std::uint64_t most_;
  ReservedArray<Cell> cells_;
  ReservedArray<std::uint32_t> next_;  // By cell: the page's next one, or the next unused one.
  std::uint32_t unused_ = kNoCell;     // The first cell that was used and is not any more.
  std::uint32_t fresh_ = 0;            // Cells from here on were never used.
  ReservedArray<Slot> slots_;
  std::uint32_t fresh_slot_ = 0;   // Records from here on were never used.
  std::uint32_t unused_slot_ = 0;  // Its number + 1.
  std::uint64_t in_use_ = 0;
  std::uint64_t pages_ = 0;
  bool degraded_ = false;
  PageCodec codec_;
  Deque<Running> reads_, writes_;
};

}  // namespace tiermem
