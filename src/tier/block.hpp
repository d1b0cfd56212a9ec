// The block tier: slots striped over files and raw devices behind an IoPort. Cuts a large transfer
// into pieces, puts small ones that are neighbours on the device together into one, keeps each
// device's queue at its depth, resumes short transfers, repeats interrupted ones, and reports a
// transfer once, after its last piece.
//
// Threads: the mover calls everything but grow(), which is for hands, several at once if need be.
// Bookkeeping that both touch is behind mutex_; it is never held across a call of the port, so the
// mover waits for a hand's few hundred instructions at most. Never blocks on I/O, reads no clock:
// the same calls and completions give the same result.
//
// Of a transfer:  queued -> pieces under way -> all pieces closed -> done -> reaped
//   Pieces are cut from the head of its device's queue only, so a transfer that failed with pieces
//   still to cut is that head. Its memory and slot are in use until it is done: no piece is under
//   way then, failed or not.
//   A run is a piece of several whole transfers. One that does not end whole is broken up: its
//   transfers wait again, each to be made alone, so that each has its own error.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/arena.hpp"
#include "os/io_port.hpp"
#include "tier/slot_allocator.hpp"
#include "tier/tier.hpp"

namespace tiermem {

struct BlockOptions {
  unsigned depth = 16;                                 ///< Requests under way per device.
  std::uint64_t piece_bytes = std::uint64_t{2} << 20;  ///< Most bytes of one request.
  std::uint64_t budget = ~std::uint64_t{0};  ///< Of the tier; the devices have limits too.
  std::uint64_t grow_bytes = SlotAllocator::kChunkBytes;  ///< Least growth of a file at a time.
  bool require_direct = false;  ///< A device that refuses direct I/O fails instead of buffering.
  std::uint16_t index = 0;      ///< Of the tier among the block tiers.
};

/// What one device did since the start. `retries` counts requests made again: after EINTR or
/// EAGAIN, after a short transfer, or buffered after EINVAL. `errors` counts failed requests.
struct DeviceCounters {
  std::uint64_t bytes_read = 0, bytes_written = 0;
  std::uint64_t requests = 0, retries = 0, errors = 0;
  bool direct = true;
  bool degraded = false;
  char reason[96] = {};      ///< Why it is buffered or degraded.
  char last_error[96] = {};  ///< The latest failed request.
};

class BlockTier final : public SlotTier {
 public:
  /// Tries of one piece without progress before its error is final.
  static constexpr unsigned kMostTries = 100;
  /// Allocations refused after a failed growth before the file system is asked again. Few: who is
  /// refused waits longer each time by itself, and room that others made is to be used soon.
  static constexpr unsigned kGrowthPause = 4;
  /// What is put together with neighbours: above, a request of its own costs nothing to speak of.
  static constexpr std::uint64_t kSmallTransfer = std::uint64_t{256} << 10;
  static constexpr unsigned kMostInRun = 64;  ///< Transfers of one run.

  /// `port` outlives the tier and is driven by it alone. All of a port's devices belong to the
  /// tier.
  BlockTier(IoPort& port, const BlockOptions& options);
  ~BlockTier() override;

  Place place() const override { return {Kind::block, options_.index}; }
  Result<SlotId> allocate(std::uint64_t bytes, std::uint64_t avoid) override;
  /// No transfer of the slot may be under way.
  void free(SlotId slot) override;
  std::uint64_t bytes_of(SlotId slot) const override { return SlotAllocator::bytes_of(slot); }
  /// [child of fork, its only thread] Nothing is under way. The devices so far are the parent's:
  /// their slots are read, and neither allocated nor freed. What the port has beyond them is this
  /// process's, and has all of the budget. `why_none`: for refusals, if there is nothing.
  void follow_fork(const char* why_none);
  SlotBooks books() const override;
  /// Files never shrink: below physical, a smaller budget stops growth and new slots only.
  void set_budget(std::uint64_t bytes) override;
  /// Extends every device that lacks room for such a slot, so that slots stay striped. ok when one
  /// has room; else the first refusal.
  Status grow(std::uint64_t bytes) override;
  unsigned depth() const override { return options_.depth * port_.devices(); }
  std::uint16_t device_of(SlotId slot) const override { return SlotAllocator::device_of(slot); }
  const char* device_name(std::uint16_t device) const override { return devices_[device].name; }
  void degrade(std::uint16_t device, const char* why) override;
  void trust_again() override;
  unsigned degraded() const override;  ///< How many devices are.

  /// Queues without limit. Bytes beyond `length` up to the next block may be transferred too.
  void submit(const SlotTransfer& transfer) override;
  /// The port sees what is queued as far as the devices' depths allow, the kernel at the next
  /// reap() or wait of the port.
  void dispatch() override { issue(); }
  void went_past(SlotId slot, std::uint64_t bytes, bool write) override;
  /// Drives the port: takes its completions, issues what is queued, flushes. Call again while it
  /// fills `completions`.
  std::size_t reap(std::span<SlotCompletion> completions) override;

  DeviceCounters counters(std::uint16_t device) const;
  std::uint64_t device_offset(SlotId slot) const { return SlotAllocator::offset_of(slot); }
  /// Derives the books and queues again; `internal` with the first contradiction.
  Status check_invariants() const;

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  /// A queue through `next` of the pool's records.
  struct Queue {
    std::uint32_t head = kNone, tail = kNone;
    bool empty() const { return head == kNone; }
  };
  struct Transfer {
    SlotTransfer what;
    std::uint64_t length = 0;  ///< Rounded up to blocks.
    std::uint64_t cut = 0;     ///< Bytes of pieces cut from it so far.
    std::uint32_t open = 0;    ///< Pieces cut and not closed.
    std::uint32_t next = kNone;
    bool live = false;
    bool alone = false;     ///< Was in a run that had to be broken up.
    SlotCompletion result;  ///< Code::ok until a piece fails; the first failure stays.
  };
  struct Piece {
    std::uint32_t transfer = kNone;  ///< kNone: this record is not in use.
    std::uint32_t run = 0;           ///< Transfers from `transfer` on, by `next`; 0: a part of one.
    std::uint32_t length = 0;
    std::uint64_t begin = 0;  ///< In the transfer.
    std::uint32_t done = 0;   ///< Bytes of it transferred.
    std::uint32_t tries = 0;  ///< Since the last progress.
    bool buffered = false;    ///< Its latest request.
    std::uint32_t next = kNone;
    Vector<iovec> vectors;  ///< Of a run.
  };
  struct Device {
    // Constant after construction.
    char name[64] = {};
    std::uint32_t block = 512;
    bool writable = true;
    bool inherited = false;  ///< From the parent of this process: for reading.
    // The mover's.
    Queue waiting;                  ///< Transfers with pieces still to cut.
    Queue again;                    ///< Pieces whose request must be made (again).
    std::uint32_t open = 0;         ///< Pieces cut and not closed; at most depth.
    std::uint64_t outstanding = 0;  ///< Bytes of transfers submitted and not done.
    std::uint64_t promised = 0;     ///< Bytes of slots allocated whose write is still to come.
    int last_native = 0;            ///< errno of the latest failed request.
    DeviceCounters counters;
    // Guarded by mutex_.
    bool degraded = false;
    bool growing = false;
    unsigned growth_pause = 0;  ///< Allocations to refuse before growing is tried again.
    String growth_error;
    String degraded_why;
    int degraded_native = 0;
  };

  void add_devices();
  bool may_hold_slots(std::uint16_t device, std::uint64_t avoid) const;
  std::uint64_t growth_for(std::uint16_t device, std::uint64_t bytes) const;
  std::uint64_t physical() const;
  std::uint64_t in_use() const;
  Status no_capacity(std::uint64_t bytes, std::uint64_t avoid) const;
  Status given_up(unsigned devices) const;
  Status grow_device(std::uint16_t device, std::uint64_t bytes, std::unique_lock<std::mutex>& lock);

  void issue();
  void issue(std::uint16_t device);
  void cut_piece(Device& device);
  std::uint32_t take_piece(Device& device);
  void give_piece(Device& device, std::uint32_t index);
  bool may_run(const Device& device, const Transfer& transfer) const;
  bool continues(const Transfer& before, const Transfer& transfer) const;
  bool gather_run(Device& device);
  void close_run(std::uint32_t index);
  void break_up(std::uint32_t index);
  bool send(std::uint16_t device, std::uint32_t index);
  void take(const IoCompletion& completion);
  void advance(std::uint32_t index, std::uint64_t bytes);
  void refuse(std::uint32_t index, int native);
  void try_again(std::uint32_t index);
  void fail_piece(std::uint32_t index, int native, const char* why);
  void close_piece(std::uint32_t index);
  void finish(std::uint32_t index);
  template <typename Record>
  static void push(Queue& queue, Vector<Record>& pool, std::uint32_t index);
  template <typename Record>
  static std::uint32_t pop(Queue& queue, Vector<Record>& pool);

  // Constant after construction.
  IoPort& port_;
  BlockOptions options_;

  // The mover's.
  Vector<Device> devices_;
  Vector<Transfer> transfers_;  ///< Grows only above depth().
  Vector<std::uint32_t> free_transfers_;
  Vector<Piece> pieces_;  ///< depth() records.
  Vector<std::uint32_t> free_pieces_;
  Queue done_;  ///< Transfers to report.

  // Guarded by mutex_.
  mutable std::mutex mutex_;
  std::condition_variable grown_;
  SlotAllocator slots_;
  std::uint64_t most_ = 0;  ///< The sum of the devices' limits: no budget is above it.
  std::uint64_t budget_;
  std::uint64_t growing_bytes_ = 0;  ///< Physical already for the books, not yet for slots_.
  String why_none_;                  ///< Why a child of fork has no device of its own.
  std::uint64_t wanted_ = 0;         ///< Devices that the last `busy` allocation would take.
};

}  // namespace tiermem
