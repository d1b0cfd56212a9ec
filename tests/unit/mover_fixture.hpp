// The production mover on a machine in which nothing happens by itself. Memories are plain bytes,
// workers and devices end their work when the test says so, and the test sets the clock.
//
// settle() steps the mover as its thread does. That thread knows only of posts, news from workers
// and devices, and the time that the last step asked for, so no other step is made. The accounting
// is derived again after each step.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <initializer_list>
#include <map>
#include <vector>

#include "mover/mover.hpp"
#include "tests/sim/fake_direct.hpp"
#include "tests/unit/mover_doubles.hpp"
#include "tier/block.hpp"
#include "tier/compressed.hpp"

namespace tiermem {

/// A machine, counted in extents.
struct Machine {
  std::uint64_t frames = 4;     ///< In the host's memory.
  unsigned devices = 0;         ///< Number of GPUs.
  std::uint64_t on_device = 2;  ///< Frames of each GPU; the staging has one.
  unsigned disks = 1;           ///< 0: no block tier.
  std::uint64_t on_disk = 64;
  std::uint64_t on_slow_disk = 0;  ///< Extents of a second block tier; 0: there is none.
  std::uint64_t packed = 0;        ///< Extents of compressed memory; 0: there is none.
  bool parts = false;  ///< Mapped extents may be resident in parts; this needs one landing more.
  std::uint64_t ahead = 0;  ///< The maximum number kept free in advance.
  unsigned prefetches = 64;
  std::uint64_t a_day = 0;  ///< Extents that may be written in a day; 0: no limit.
  /// Bytes without checksums move between disks and GPUs without passing the host.
  bool direct = false;
  std::vector<std::uint64_t> slower;  ///< Frames of the host's further memories, by rank.
};

/// One request, with the memory that its caller owns.
struct Call {
  Request request;
  std::vector<ViewRecord> views;
  unsigned answers = 0;
  unsigned turn = 0;                  ///< The order of answers, from 1.
  unsigned* owner_answers = nullptr;  ///< Counts the answers, for all calls.
  bool done() const { return answers != 0; }
  std::byte* data(std::size_t view = 0) const { return static_cast<std::byte*>(views[view].data); }
  Code code() const { return done() ? request.status.code() : Code::internal; }
};

class SteppedMover {
 public:
  static constexpr std::uint64_t kExtent = 16384;  ///< Four pages.
  static constexpr std::int64_t kMs = 1'000'000;

  explicit SteppedMover(const Machine& machine = {})
      : host((machine.frames + (machine.devices != 0 ? 1 : 0) + (machine.parts ? 1 : 0)) * kExtent,
             {Kind::dram, 0}, dice),
        gpu{sim::FakeMemory(machine.on_device * kExtent, {Kind::gpu, 0}, dice),
            sim::FakeMemory(machine.on_device * kExtent, {Kind::gpu, 1}, dice)},
        port(std::max(machine.disks, 1u), machine.on_disk * kExtent),
        block(port, {.depth = 8, .piece_bytes = kExtent, .grow_bytes = 4 * kExtent}),
        compressed(std::max<std::uint64_t>(machine.packed, 1) * kExtent),
        slow_port(1, std::max<std::uint64_t>(machine.on_slow_disk, 1) * kExtent),
        slow_block(slow_port,
                   {.depth = 8, .piece_bytes = kExtent, .grow_bytes = 4 * kExtent, .index = 1}),
        direct(block, port, dice, workers),
        residency(256, 4096, 1 + machine.devices),
        mover(residency, spaces(machine), slots(machine), nullptr, workers, options(machine)) {
    for (unsigned i = 0; i < machine.devices; ++i) {
      residency.device_space[i + 1] = &gpu[i];
      gpu[i].copy_by(workers);
    }
    residency.wake = [](void* self) { static_cast<SteppedMover*>(self)->told_ = true; };
    residency.wake_argument = this;
    watching_ = this;
    phase_changed = [](const void* word, Phase, Phase) noexcept { watching_->look_at(word); };
  }
  ~SteppedMover() { phase_changed = nullptr; }

  // ---- Time -------------------------------------------------------------------------------------

  /// Makes one step, and checks the accounting.
  void step() {
    told_ = false;
    next = mover.step(now);
    ++steps;
    const std::string wrong = mover.check_invariants();
    EXPECT_EQ(wrong, "") << mover.describe();
    for (const auto& [ref, address] : shown_) {
      if (residency.extents.word(kHost, ref).load().view_readable()) {
        EXPECT_EQ(address, residency.extents.address(ref).load())
            << "extent " << ref << " was shown before its address was told";
      }
    }
    shown_.clear();
  }
  /// Makes all steps that are due now. A mover at rest for a fork asks for no step.
  void settle() {
    for (unsigned n = 0;
         told_ || workers.has_news() || port.has_news() || slow_port.has_news() || next <= now;
         ++n) {
      ASSERT_LT(n, 300u) << "the mover asks for steps without end\n" << mover.describe();
      step();
      if (mover.rested()) {
        return;
      }
    }
  }
  /// Sets the clock to `time`.
  void at(std::int64_t time) {
    now = time;
    settle();
  }
  /// Ends everything in progress, and everything that follows from it.
  void end_all() {
    settle();
    for (unsigned n = 0; !workers.jobs.empty() || !workers.copies.empty() ||
                         !port.requests.empty() || !slow_port.requests.empty();
         ++n) {
      ASSERT_LT(n, 300u) << "what is under way has no end\n" << mover.describe();
      end_what_waits();
      settle();
    }
  }
  /// Ends all jobs and copies, but no I/O.
  void run_workers() {
    settle();
    while (!workers.jobs.empty() || !workers.copies.empty()) {
      workers.jobs.empty() ? workers.end_copy() : workers.run();
      settle();
    }
  }
  /// Ends the oldest I/O with `error`, and the work of workers that follows.
  void end_io(int error = 0) {
    port.end(0, error);
    run_workers();
  }

  // ---- Buffers ----------------------------------------------------------------------------------

  /// Creates a buffer. With one extent it has no window, with several it has one.
  Handle buffer(std::uint32_t extents = 1, std::uint32_t flags = 0,
                std::uint64_t extent_bytes = kExtent) {
    BufferShape shape;
    shape.bytes = extents * extent_bytes;
    shape.extent_shift = static_cast<std::uint8_t>(std::countr_zero(extent_bytes));
    shape.extents = extents;
    shape.flags = flags;
    shape.label = "buffer";
    shape.preferred = preferred_;
    if (extents > 1 || (flags & kMapped) != 0) {
      shape.window = *host.reserve_window(shape.bytes, extent_bytes, (flags & kMapped) != 0);
      shape.pool = host.window_pool(extent_bytes);
    }
    return *residency.buffers.create(shape);
  }
  Handle mapped(std::uint32_t extents = 1) { return buffer(extents, kMapped); }
  /// Creates a buffer that prefers the host's memory of this rank.
  Handle preferring(unsigned rank, std::uint32_t extents = 1, std::uint32_t flags = 0) {
    preferred_ = static_cast<std::uint8_t>(rank);
    const Handle made = buffer(extents, flags);
    preferred_ = 0;
    return made;
  }

  BufferRecord& record(Handle handle) { return residency.buffers.at(Buffers::index_of(handle)); }
  ExtentRef ref(Handle handle, std::uint32_t i = 0) { return record(handle).first.load() + i; }
  PageLevels::Memory& levels(Handle handle) { return residency.extents.page_levels(ref(handle)); }
  Extent& extent(Handle handle, std::uint32_t i = 0) {
    return residency.extents.at(ref(handle, i));
  }
  ExtentBits bits(Handle handle, std::uint32_t i = 0, unsigned space = kHost) {
    return residency.extents.word(space, ref(handle, i)).load();
  }
  bool resident(Handle handle, std::uint32_t i = 0, unsigned space = kHost) {
    return bits(handle, i, space).readable();
  }
  /// The rank of the host's memory that has the extent's frame.
  unsigned rank(Handle handle, std::uint32_t i = 0) {
    const FrameId frame = residency.extents.frame(kHost, ref(handle, i));
    EXPECT_TRUE(frame.valid());
    return frame.valid() ? frame.memory() : ~0u;
  }
  std::byte* window(Handle handle) { return record(handle).windows[kHost].load(); }

  // ---- Requests ---------------------------------------------------------------------------------

  static Access access(Handle handle, std::uint32_t mode, Place where = {}) {
    return {handle, 0, 0, mode, where, 0};
  }
  static Access extent_access(Handle handle, std::uint32_t i, std::uint32_t mode) {
    return {handle, i * kExtent, kExtent, mode, {}, 0};
  }
  /// Returns a request that is not posted.
  Call& prepare(RequestKind want, const std::vector<Access>& list = {}) {
    Call& call = calls_.emplace_back();
    call.request.kind = want;
    call.request.context = &call;
    call.owner_answers = &answers_;
    call.request.on_done = [](Request& done) {
      auto& answered = *static_cast<Call*>(done.context);
      ++answered.answers;
      answered.turn = ++*answered.owner_answers;
    };
    call.request.spans.resize(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Status status = residency.resolve(list[i], call.request.spans[i], "test");
      EXPECT_TRUE(status.ok()) << status.message();
    }
    if (want == RequestKind::acquire) {
      call.views.resize(list.size());
      call.request.views = call.views.data();
    }
    return call;
  }
  void post(Call& call) { told_ = mover.post(&call.request) || told_; }
  Call& post(RequestKind want, const std::vector<Access>& list = {}) {
    Call& call = prepare(want, list);
    post(call);
    return call;
  }
  /// Posts a request and makes all steps that are due.
  Call& ask(RequestKind want, const std::vector<Access>& list = {}) {
    Call& call = post(want, list);
    settle();
    return call;
  }
  Call& acquire(const std::vector<Access>& list) { return ask(RequestKind::acquire, list); }
  Call& acquire(Handle handle, std::uint32_t mode, Place where = {}) {
    return acquire({access(handle, mode, where)});
  }
  /// A thread touches an absent page of a mapped buffer.
  Call& touch(Handle handle, unsigned page, bool writes = false) {
    Call& call = prepare_touch(handle, page, writes);
    post(call);
    settle();
    return call;
  }
  /// Likewise, where the thread brings the page itself if it can. Returns the job that it then has.
  Job* begin_touch(Call& call) {
    Job* const job = mover.begin_touch(call.request, now);
    note_needs();
    return job;
  }
  void end_touch(Job& job) {
    begin_job(job, nullptr);
    EXPECT_TRUE(run_job(job));
    mover.end_touch(job, now);
    note_needs();
  }
  void note_needs() {
    told_ = told_ || mover.needs_step();
    const std::string wrong = mover.check_invariants();
    EXPECT_EQ(wrong, "") << mover.describe();
  }
  bool told() const { return told_; }
  Call& prepare_touch(Handle handle, unsigned page, bool writes = false) {
    constexpr auto kPages = static_cast<unsigned>(kExtent / kSmallestExtent);
    Call& call = prepare(RequestKind::acquire, {{handle, page * kSmallestExtent, 1, kRead, {}, 0}});
    call.views.clear();
    call.request.views = nullptr;
    call.request.in_parts = true;
    call.request.page = static_cast<std::uint8_t>(page % kPages);
    call.request.changes = writes;
    return call;
  }
  Call& free(Handle handle) {
    EXPECT_TRUE(residency.buffers.mark_freed(handle));
    Call& call = prepare(RequestKind::free);
    call.request.index = Buffers::index_of(handle);
    post(call);
    settle();
    return call;
  }
  Call& set_budget(std::uint64_t bytes, Place tier = {}) {
    Call& call = prepare(RequestKind::set_budget);
    call.request.value = bytes;
    call.request.tier = tier;
    post(call);
    settle();
    return call;
  }
  /// Posts a budget that cannot be met now, and goes on until its deadline. Returns the call.
  Call& late_budget(std::uint64_t bytes, Place tier = {}) {
    Call& late = prepare(RequestKind::set_budget);
    late.request.value = bytes;
    late.request.tier = tier;
    late.request.deadline_ns = now + kMs;
    post(late);
    settle();
    at(late.request.deadline_ns);
    return late;
  }
  /// Gives the hint that the buffer prefers the memory at the place.
  void prefer(Handle handle, Place place) {
    Call& call = prepare(RequestKind::advise, {access(handle, kRead)});
    call.request.advice = Advice::preferred;
    call.request.tier = place;
    post(call);
    end_all();
  }
  void cancel(Call& call) {
    call.request.cancel = true;
    mover.note_cancel();
    told_ = true;
  }
  void release(Call& call) {
    EXPECT_EQ(residency.release(call.views), Code::ok);
    settle();
  }
  /// Releases the memory of all calls so far, which must have been answered.
  void forget_calls() {
    ASSERT_TRUE(mover.idle());
    calls_.clear();
  }
  Stats stats() {
    Stats stats;
    mover.fill_stats(stats);
    return stats;
  }

  // ---- Bytes ------------------------------------------------------------------------------------

  /// Writes all bytes of a buffer through a view, and ends what follows.
  void write(Handle handle, unsigned char value) {
    Call& call = acquire(handle, kWrite);
    end_all();
    ASSERT_EQ(call.code(), Code::ok) << call.request.status.message();
    std::memset(call.data(), value, call.views[0].length);
    release(call);
  }
  /// Reads all bytes of a buffer through a view. Returns their value; -1: they differ, -2: refused.
  int value(Handle handle) {
    Call& call = acquire(handle, kRead);
    end_all();
    if (call.code() != Code::ok) {
      ADD_FAILURE() << call.request.status.message() << mover.describe();
      return -2;
    }
    const std::byte* const data = call.data();
    const bool alike = std::all_of(data, data + call.views[0].length,
                                   [&](std::byte each) { return each == data[0]; });
    const int first = static_cast<int>(data[0]);
    release(call);
    return alike ? first : -1;
  }
  /// Writes all bytes on a device, which then has the only copy.
  void write_on_device(Handle handle, unsigned char value, std::uint16_t device = 0) {
    Call& call = acquire(handle, kWrite, {Kind::gpu, device});
    end_all();
    ASSERT_EQ(call.code(), Code::ok) << call.request.status.message();
    for (std::uint64_t i = 0; i < call.views[0].length; ++i) {
      gpu[device].store(call.data() + i, std::byte{value});
    }
    release(call);
  }
  /// Returns a written buffer that is only in slots.
  Handle cold(unsigned char value, std::uint32_t extents = 1, std::uint32_t flags = 0) {
    const Handle handle = buffer(extents, flags);
    write(handle, value);
    evict(handle);
    return handle;
  }
  void evict(Handle handle) {
    const Call& call = ask(RequestKind::evict, {access(handle, kRead)});
    end_all();
    ASSERT_EQ(call.code(), Code::ok) << call.request.status.message();
    for (std::uint32_t i = 0; i < record(handle).extents.load(); ++i) {
      ASSERT_FALSE(resident(handle, i));
    }
  }

  std::int64_t now = 1000 * kMs;
  std::int64_t next = Mover::kNever;  ///< When the last step wants to be called again.
  std::uint64_t steps = 0;

  ScriptedDice dice;
  sim::FakeMemory host;
  std::array<sim::FakeMemory, 2> gpu;
  HeldPort port;
  BlockTier block;
  CompressedTier compressed;
  HeldPort slow_port;
  BlockTier slow_block;
  HeldWorkers workers;
  sim::FakeDirect<HeldPort> direct;
  Residency residency;

 private:
  std::vector<AddressSpace*> spaces(const Machine& machine) {
    std::vector<AddressSpace*> all = {&host};
    for (const std::uint64_t frames : machine.slower) {
      host.add_memory(frames * kExtent,
                      {Kind::numa, static_cast<std::uint16_t>(host.memories().size())});
    }
    for (unsigned i = 0; i < machine.devices; ++i) {
      all.push_back(&gpu[i]);
    }
    return all;
  }
  std::vector<SlotTier*> slots(const Machine& machine) {
    std::vector<SlotTier*> all(machine.packed != 0 ? 1 : 0, &compressed);
    if (machine.disks != 0) {
      all.push_back(&block);
    }
    if (machine.on_slow_disk != 0) {
      all.push_back(&slow_block);
    }
    return all;
  }
  MoverOptions options(const Machine& machine) {
    MoverOptions o;
    o.checksum_block_bytes = kSmallestExtent;
    o.prefetch_limit = machine.prefetches;
    o.ahead_bytes_max = machine.ahead * kExtent;
    o.endurance_bytes_per_day = machine.a_day * kExtent;
    o.own_job_bytes = 0;  // All jobs go to workers.
    o.usual_part = 0;
    o.scan_bytes = 0;
    o.bounce_area_bytes = kExtent;
    o.budget_per_bounce_area = machine.parts ? (machine.frames + 1) * kExtent : ~std::uint64_t{0};
    o.staging_bytes = machine.devices != 0 ? kExtent : 0;
    o.staging_frame_bytes = kExtent;
    o.direct = machine.direct ? &direct : nullptr;
    return o;
  }
  // A caller that arrives at the instant of the change would see this address.
  void look_at(const void* word) noexcept {
    const std::uint64_t ref = (reinterpret_cast<std::uint64_t>(word) -
                               reinterpret_cast<std::uint64_t>(&residency.extents.word(kHost, 0))) /
                              sizeof(ExtentWord);
    if (ref < residency.extents.capacity()) {  // The word is not one of a device.
      const auto of = static_cast<ExtentRef>(ref);
      shown_[of] = residency.extents.address(of).load();
    }
  }
  void end_what_waits() {
    if (!workers.jobs.empty()) {
      workers.run();
    } else if (!workers.copies.empty()) {
      workers.end_copy();
    } else if (!port.requests.empty()) {
      port.end();
    } else {
      slow_port.end();
    }
  }

  inline static SteppedMover* watching_ = nullptr;
  std::map<ExtentRef, std::byte*> shown_;  // In this step.
  bool told_ = false;
  std::uint8_t preferred_ = 0;
  unsigned answers_ = 0;
  std::deque<Call> calls_;  // They must outlive the mover, which has pointers to their requests.

 public:
  Mover mover;
};

}  // namespace tiermem
