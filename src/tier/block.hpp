// The block tier: slots striped over files and raw devices behind an IoPort. It cuts a large
// transfer into pieces, and combines small ones that are neighbours on the device. It keeps each
// device's queue at its depth, resumes short transfers and repeats interrupted ones. It reports a
// transfer once, after its last piece.
//
// Threads: the mover calls everything except read_here(), which is for any thread, and grow(),
// which is for workers; several workers may call it at once. mutex_ guards the accounting that both
// use. It is never held across a call of the port, so the mover waits for a few hundred
// instructions of a worker at most. The tier never blocks on I/O and reads no clock: equal calls
// and completions give equal results.
//
// Life of a transfer:  queued -> pieces in progress -> all pieces closed -> done -> reaped
//  Pieces are cut only from the head of the device's queue, so a transfer that fails with pieces
//  still to cut is that head. Its memory and slot are in use until it is done: no piece is in
//  progress then, whether it failed or not.
//  A run is a piece of several whole transfers. A run that does not end as a whole is broken up:
//  its transfers wait again and are submitted one by one, so that each has its own error.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/arena.hpp"
#include "os/io_port.hpp"
#include "tier/slot_allocator.hpp"
#include "tier/slot_tier.hpp"

namespace tiermem {

struct BlockOptions {
  unsigned depth = 16;  ///< Max requests in progress for each device.
  std::uint64_t piece_bytes = std::uint64_t{2} << 20;  ///< Max bytes of one request.
  std::uint64_t budget = ~std::uint64_t{0};  ///< Budget of the tier; the devices have limits too.
  std::uint64_t grow_bytes = SlotAllocator::kChunkBytes;  ///< Min growth of a file at a time.
  /// A device that refuses direct I/O fails instead of using buffered I/O.
  bool require_direct = false;
  std::uint16_t index = 0;  ///< Number of this tier among the block tiers.
};

/// Counters of one device since the start. `retries` counts repeated requests: after EINTR or
/// EAGAIN, after a short transfer, or buffered after EINVAL. `errors` counts failed requests.
struct DeviceCounters {
  std::uint64_t bytes_read = 0, bytes_written = 0;
  std::uint64_t requests = 0, retries = 0, errors = 0;
  bool direct = true;
  bool degraded = false;
  char reason[96] = {};      ///< Why the device is buffered or degraded.
  char last_error[96] = {};  ///< Error of the latest failed request.
};

class BlockTier final : public SlotTier {
 public:
  /// Max tries of one piece without progress; the next error is final.
  static constexpr unsigned kMostTries = 100;
  /// After a failed growth, this many allocations are refused before the file system is asked
  /// again. The number is small: a refused requester waits longer each time by itself, and newly
  /// freed room should be used soon.
  static constexpr unsigned kGrowthPause = 4;
  /// Max size of a transfer that is combined with neighbours. Above this size, a separate request
  /// adds no notable cost.
  static constexpr std::uint64_t kSmallTransfer = std::uint64_t{256} << 10;
  static constexpr unsigned kMostInRun = 64;  ///< Max transfers of one run.

  /// `port` outlives the tier, which alone drives it. All devices of the port belong to the tier.
  BlockTier(IoPort& port, const BlockOptions& options);
  ~BlockTier() override;

  Place place() const override { return {Kind::block, options_.index}; }
  Result<SlotId> allocate(std::uint64_t bytes, std::uint64_t avoid) override;
  /// No transfer of the slot may be in progress.
  void free(SlotId slot) override;
  std::uint64_t bytes_of(SlotId slot) const override { return SlotAllocator::bytes_of(slot); }
  /// [child of fork, its only thread] No transfer may be in progress. The present devices belong to
  /// the parent: their slots are read, and neither allocated nor freed. The other devices of the
  /// port belong to this process, and have the whole budget. `why_none`: the message for refusals
  /// if there are none.
  void follow_fork(const char* why_none);
  SlotUsage usage() const override;
  /// Files never shrink: a budget below `physical` only stops growth and new slots.
  void set_budget(std::uint64_t bytes) override;
  /// Extends every device that lacks room for such a slot, so that slots stay striped. Returns ok
  /// if one device has room, else the first refusal.
  Status grow(std::uint64_t bytes) override;
  unsigned depth() const override { return options_.depth * port_.devices(); }
  std::uint16_t device_of(SlotId slot) const override { return SlotAllocator::device_of(slot); }
  const char* device_name(std::uint16_t device) const override { return devices_[device].name; }
  void degrade(std::uint16_t device, const char* why) override;
  void trust_again() override;
  unsigned degraded() const override;  ///< Number of degraded devices.

  /// Queues without limit. Bytes beyond `length` up to the next block may be transferred too.
  void submit(const SlotTransfer& transfer) override;
  /// Passes the queued requests to the port, up to the devices' depths. The kernel receives them at
  /// the next reap() or wait of the port.
  void dispatch() override { issue(); }
  void went_past(SlotId slot, std::uint64_t bytes, bool write) override;
  /// Drives the port: takes its completions, issues queued requests, flushes. Call again while it
  /// fills `completions`.
  std::size_t reap(std::span<SlotCompletion> completions) override;

  bool reads_here() const override { return port_.reads_here(); }
  SlotCompletion read_here(const SlotTransfer& transfer) override;

  DeviceCounters counters(std::uint16_t device) const;
  std::uint64_t device_offset(SlotId slot) const { return SlotAllocator::offset_of(slot); }
  /// Derives the accounting and the queues again. Returns `internal` with the first contradiction.
  Status check_invariants() const;

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  /// A queue linked through `next` of the pool's records.
  struct Queue {
    std::uint32_t head = kNone, tail = kNone;
    bool empty() const { return head == kNone; }
  };
  struct Transfer {
    SlotTransfer what;
    std::uint64_t length = 0;  ///< Rounded up to blocks.
    std::uint64_t cut = 0;     ///< Bytes of the pieces cut from it so far.
    std::uint32_t open = 0;    ///< Pieces cut and not yet closed.
    std::uint32_t next = kNone;
    bool live = false;
    bool alone = false;     ///< It was in a run that was broken up.
    SlotCompletion result;  ///< Code::ok until a piece fails; keeps the first failure.
  };
  struct Piece {
    std::uint32_t transfer = kNone;  ///< kNone: this record is unused.
    /// Number of transfers from `transfer` on, linked by `next`; 0: a part of one transfer.
    std::uint32_t run = 0;
    std::uint32_t length = 0;
    std::uint64_t begin = 0;  ///< Offset in the transfer.
    std::uint32_t done = 0;   ///< Bytes of the piece transferred so far.
    std::uint32_t tries = 0;  ///< Tries since the last progress.
    bool buffered = false;    ///< Its latest request was buffered.
    std::uint32_t next = kNone;
    Vector<iovec> vectors;  ///< For a run.
  };
  struct Device {
    // Constant after construction.
    char name[64] = {};
    std::uint32_t block = 512;
    bool writable = true;
    bool inherited = false;  ///< It belongs to the parent of this process: read only.
    // Used by the mover only.
    Queue waiting;                  ///< Transfers with pieces still to cut.
    Queue again;                    ///< Pieces with a request that must be submitted (again).
    std::uint32_t open = 0;         ///< Pieces cut and not yet closed; up to the depth.
    std::uint64_t outstanding = 0;  ///< Bytes of transfers that are submitted and not done.
    std::uint64_t promised = 0;     ///< Bytes of allocated slots that have not been written yet.
    int last_native = 0;            ///< errno of the latest failed request.
    DeviceCounters counters;
    // Guarded by mutex_.
    bool degraded = false;
    bool growing = false;
    unsigned growth_pause = 0;  ///< Number of allocations to refuse before the next growth.
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
  bool coalesce(Device& device);
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

  // Used by the mover only.
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
  std::uint64_t most_ = 0;  ///< The sum of the devices' limits: no budget exceeds it.
  std::uint64_t budget_;
  /// Bytes that count as physical already, but that slots_ does not have yet.
  std::uint64_t growing_bytes_ = 0;
  String why_none_;           ///< Why a child of fork has no device of its own.
  std::uint64_t wanted_ = 0;  ///< Devices that the last `busy` allocation could use.
};

}  // namespace tiermem
