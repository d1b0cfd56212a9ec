// Allocation of records and runs of extents.
#include "residency/buffers.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>

#include "base/error.hpp"
#include "os/memory_limits.hpp"

namespace tiermem {

const char* phase_name(Phase phase) noexcept {
  static constexpr const char* kNames[] = {"none",      "zero",     "incoming", "shared",
                                           "exclusive", "outgoing", "lost",     "vacant"};
  return kNames[static_cast<unsigned>(phase)];
}

namespace {

// Called before the fields of a record change for its next life. Pairs with the fence in
// Residency::resolve_in: a caller with a stale handle that sees one of the new fields also sees
// that its generation has ended, because that happened before.
void begin_life() noexcept {
  std::atomic_thread_fence(std::memory_order_release);
}

}  // namespace

Buffers::Buffers(Extents& extents, std::uint32_t capacity, std::uint64_t tag)
    : extents_(extents), tag_(tag), records_(capacity) {
  assert(capacity < kIndexMask);
}

Status Buffers::stale(const char* call, Handle handle) const {
  const std::uint64_t tag = generation_of(handle) >> kLifeBits;
  if (was_left(handle)) {
    return fail(Code::stale_handle,
                "{}: handle {:#x} is a buffer of the parent process: it is not mapped, so it did "
                "not follow the fork; allocate one after the fork, or set the flag mapped",
                call, handle);
  }
  if (tag == tag_ || tag == 0) {
    return fail(Code::stale_handle,
                "{}: handle {:#x} is not a live buffer: it was freed, or never given out; keep a "
                "buffer while it is used",
                call, handle);
  }
  if (!ContextTag::is_live(tag)) {
    return fail(Code::stale_handle,
                "{}: handle {:#x} is not a live buffer: its context has ended, or it was never "
                "given out; keep a context while it is used",
                call, handle);
  }
  return fail(Code::stale_handle,
              "{}: handle {:#x} is not a live buffer of this context: it belongs to another "
              "context; call that context",
              call, handle);
}

// The record belongs to the caller: its generation is even, and no other thread changes it.
Handle Buffers::begin_next_life(std::uint32_t index) noexcept {
  BufferRecord& record = records_[index];
  std::uint64_t generation = record.generation.load(std::memory_order_relaxed);
  if (generation == 0) {
    generation = tag_ << kLifeBits | first_life_;
  }
  // Release: a thread that finds the new generation finds the shape stored before.
  record.generation.store(generation + 1, std::memory_order_release);
  return handle_of(index, generation + 1);
}

ExtentRef Buffers::take_run(std::uint32_t extents) {
  // 1 → 0, 2 → 1, 3 and 4 → 2.
  const auto shift = static_cast<unsigned>(std::bit_width(extents - 1));
  auto& free_runs = free_runs_[shift];
  if (!free_runs.empty()) {
    const ExtentRef run = free_runs.back();
    free_runs.pop_back();
    return run;
  }
  const std::uint64_t length = std::uint64_t{1} << shift;
  // Short runs are distributed over the cache lines of a block, the even lines first. Words of
  // buffers that were allocated one after the other may be pinned by different threads. This keeps
  // them out of one line and out of neighbouring lines, which processors fetch as a pair (measured:
  // 27 ns instead of 13 for a view).
  if (length < kWordsInLine) {
    Block& block = blocks_[shift];
    const std::uint32_t in_block = kBlockWords >> shift;
    if (block.dealt == in_block && extend(kBlockWords)) {
      block = {next_extent_ - kBlockWords, 0};
    }
    if (block.dealt < in_block) {
      constexpr std::uint32_t kLines = kBlockWords / kWordsInLine;
      const std::uint32_t k = block.dealt++;
      const std::uint32_t line = k % (kLines / 2) * 2 + k / (kLines / 2) % 2;
      return block.first + line * kWordsInLine + ((k / kLines) << shift);
    }
  }
  return extend(length) ? next_extent_ - static_cast<ExtentRef>(length) : kNoExtent;
}

// Allocates `length` extents that were never allocated before.
bool Buffers::extend(std::uint64_t length) {
  const std::uint64_t end = next_extent_ + length;
  if (end > extents_.capacity() || !extents_.commit(static_cast<std::uint32_t>(end))) {
    return false;
  }
  next_extent_ = static_cast<ExtentRef>(end);
  return true;
}

// Either all numbers are used up, or the kernel refused memory for more records.
Status Buffers::no_extents(std::uint32_t wanted) const {
  const auto length = std::uint64_t{1} << std::bit_width(wanted - 1);
  if (next_extent_ + length > extents_.capacity()) {
    return fail(
        Code::no_capacity,
        "alloc: {} extents are in use and {} more would exceed {}; use a larger extent size",
        live_extents(), wanted, extents_.capacity());
  }
  return host::refused(errno, length * extents_.bytes_each(), host::Wanted::memory,
                       "alloc: records of {} extents", length);
}

Result<Handle> Buffers::create(const BufferShape& shape) {
  std::lock_guard lock(mutex_);
  if (free_records_.empty() && used_.load(std::memory_order_relaxed) == records_.size()) {
    return fail(Code::no_capacity, "alloc: all {} buffer handles are in use; free buffers first",
                records_.size());
  }
  if (free_records_.empty() && !records_.commit(used_.load(std::memory_order_relaxed) + 1)) {
    return host::refused(errno, ReservedBytes::kLeastStep, host::Wanted::memory,
                         "alloc: the record of a buffer");
  }
  // take_run() accepts runs of 1 to capacity() extents.
  const bool fits = shape.extents != 0 && shape.extents <= extents_.capacity();
  const ExtentRef first = fits ? take_run(shape.extents) : kNoExtent;
  if (first == kNoExtent) {
    return no_extents(shape.extents);
  }
  std::uint32_t index = 0;
  if (!free_records_.empty()) {
    index = free_records_.back();
    free_records_.pop_back();
  } else {
    index = used_.load(std::memory_order_relaxed);  // Under the mutex, like every write.
    used_.store(index + 1, std::memory_order_release);
  }
  BufferRecord& record = records_[index];
  begin_life();
  record.first.store(first, std::memory_order_relaxed);
  record.extents.store(shape.extents, std::memory_order_relaxed);
  record.extent_shift.store(shape.extent_shift, std::memory_order_relaxed);
  record.read_only.store(shape.read_only, std::memory_order_relaxed);
  record.preferred.store(shape.preferred, std::memory_order_relaxed);
  record.bytes.store(shape.bytes, std::memory_order_relaxed);
  record.lead.store(shape.lead, std::memory_order_relaxed);
  record.windows[kHost].store(shape.window, std::memory_order_relaxed);
  record.flags.store(shape.flags, std::memory_order_relaxed);
  record.domain = shape.domain;
  record.pool = shape.pool;
  record.file = shape.file;
  record.label.set(shape.label != nullptr ? shape.label : "");
  live_.fetch_add(1, std::memory_order_relaxed);
  live_extents_.fetch_add(shape.extents, std::memory_order_relaxed);
  return begin_next_life(index);
}

Handle Buffers::reuse(std::uint32_t index, std::uint64_t bytes, const char* label) noexcept {
  BufferRecord& record = records_[index];
  begin_life();
  record.bytes.store(bytes, std::memory_order_relaxed);
  record.label.set(label != nullptr ? label : "");
  return begin_next_life(index);
}

bool Buffers::mark_freed(Handle handle) noexcept {
  const std::uint32_t index = index_of(handle);
  if (index >= used()) {
    return false;
  }
  std::uint64_t generation = generation_of(handle);
  // Sequentially consistent: a caller that pins after this sees the new generation and undoes its
  // pin.
  return (generation & 1) != 0 &&
         records_[index].generation.compare_exchange_strong(generation, generation + 1);
}

void Buffers::leave_to_parent(Handle handle) {
  left_.insert(handle);
  (void)mark_freed(handle);
}

void Buffers::abandon(std::uint32_t index) noexcept {
  std::uint32_t newest = abandoned_.load(std::memory_order_relaxed);
  do {
    records_[index].next_abandoned = newest;
    // Release: the mover sees the link.
  } while (!abandoned_.compare_exchange_weak(newest, index + 1, std::memory_order_release,
                                             std::memory_order_relaxed));
}

// Under the mutex, so that a window exists before take_window() or never.
std::byte* Buffers::set_device_window(Handle handle, unsigned space, std::byte* window) {
  const std::lock_guard lock(mutex_);
  BufferRecord* const record = find(handle);
  if (record == nullptr) {
    return nullptr;
  }
  std::byte* none = nullptr;
  // Release: a caller that sees the window sees its pages.
  return record->windows[space].compare_exchange_strong(none, window, std::memory_order_release,
                                                        std::memory_order_relaxed)
             ? window
             : none;
}

// Relaxed: a caller with a stale handle that still sees the window finds the generation changed.
std::byte* Buffers::take_window(std::uint32_t index, unsigned space) {
  const std::lock_guard lock(mutex_);
  return records_[index].windows[space].exchange(nullptr, std::memory_order_relaxed);
}

bool Buffers::test_consistent() {
  const std::lock_guard lock(mutex_);
  Vector<std::uint32_t> free(free_records_);
  std::sort(free.begin(), free.end());
  std::uint64_t extents = 0;
  for (std::uint32_t index = 0; index < used(); ++index) {
    const bool retired = std::binary_search(free.begin(), free.end(), index);
    extents += retired ? 0 : records_[index].extents.load(std::memory_order_relaxed);
  }
  return std::adjacent_find(free.begin(), free.end()) == free.end() &&
         live() + free.size() + worn_ == used() && live_extents() == extents;
}

void Buffers::retire(std::uint32_t index) {
  std::lock_guard lock(mutex_);
  BufferRecord& record = records_[index];
  const std::uint32_t extents = record.extents.load(std::memory_order_relaxed);
  free_runs_[std::bit_width(extents - 1)].push_back(record.first.load(std::memory_order_relaxed));
  if (life_of(record.generation.load(std::memory_order_relaxed)) >= kWornLife) {
    ++worn_;
    record.extents.store(0, std::memory_order_relaxed);
  } else {
    free_records_.push_back(index);
  }
  live_.fetch_sub(1, std::memory_order_relaxed);
  live_extents_.fetch_sub(extents, std::memory_order_relaxed);
}

}  // namespace tiermem
