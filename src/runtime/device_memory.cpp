// Blocks of device memory, and sets of blocks that leave the device and return.
#include "runtime/device_memory.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "residency/buffer_limits.hpp"
#include "runtime/context_impl.hpp"
#include "runtime/held.hpp"

namespace tiermem {
namespace {

thread_local Label::Text g_tag;

// Time to wait for room. If blocks hold the whole device, waiting does not help. Otherwise views
// may end, and other buffers' bytes must first be copied out or written, at 128 MiB/s or more.
Timeout patience(std::uint64_t bytes) {
  return Timeout::milliseconds(10'000 + static_cast<std::int64_t>(bytes >> 17));
}

// Each extent costs driver calls, so this takes the largest movable size that wastes at most a
// sixteenth. A GPU maps by 2 MiB, and a block has addresses of its own.
std::uint64_t extent_for(std::uint64_t bytes, std::uint64_t largest) {
  const auto whole = [&](std::uint64_t piece) { return round_up(bytes, piece); };
  std::uint64_t extent = largest;
  while (extent > kDefaultExtent && whole(extent) - whole(kDefaultExtent) > bytes / 16) {
    extent /= 2;
  }
  return extent;
}

bool has_tag(const Label::Text& text, const char* tag) {
  Label asked;
  asked.set(tag);
  return text.view() == asked.get().view();
}

}  // namespace

void set_device_tag(const char* tag) noexcept {
  Label label;
  label.set(tag != nullptr ? tag : "");
  g_tag = label.get();
}

// ---- Blocks

Result<void*> DeviceMemory::allocate(Place gpu, std::uint64_t bytes, std::uint64_t align) {
  if (bytes > kLargestBuffer) {
    return fail(Code::invalid_argument, "malloc: {} bytes; accepted are 0 to 2^47", bytes);
  }
  bytes = std::max<std::uint64_t>(bytes, 1);
  const std::uint64_t extent =
      extent_for(bytes, std::uint64_t{1} << context_.residency.device_extent_shift);
  if (!std::has_single_bit(align) || align > extent) {
    return fail(Code::invalid_argument,
                "malloc: alignment {}; accepted on a GPU are powers of two up to {}", align,
                extent);
  }
  Entry entry;
  entry.bytes = round_up(bytes, extent);
  entry.place = gpu;
  entry.tag = g_tag;
  BufferOptions options;
  options.label = entry.tag.chars[0] != '\0' ? entry.tag.chars.data() : "malloc";
  options.extent_bytes = extent;
  const Result<Handle> buffer = context_.alloc(entry.bytes, options, kOfHeaps | kOfDevice);
  if (!buffer.ok()) {
    return buffer.status().clone();
  }
  HeldBuffer owner(context_, *buffer);
  entry.buffer = *buffer;
  const Result<std::byte*> begin = context_.address_on(*buffer, gpu);
  Status held = begin.status().clone();
  if (held.ok()) {
    // The memory's content does not matter, so nothing is read.
    const Access all{*buffer, 0, 0, kDiscard, gpu, 0};
    held = context_.acquire_through_mover({&all, 1}, patience(entry.bytes), {&entry.view, 1});
  }
  if (!held.ok()) {
    return held;
  }
  HeldViews view(context_.residency, {&entry.view, 1});
  const std::lock_guard lock(mutex_);
  entry.number = numbers_++;
  entries_.emplace(reinterpret_cast<std::uintptr_t>(*begin), entry);
  view.keep();
  (void)owner.keep();
  return static_cast<void*>(*begin);
}

Status DeviceMemory::free(void* block, const StreamOrder& after) {
  std::unique_lock lock(mutex_);
  const auto entry = entries_.find(reinterpret_cast<std::uintptr_t>(block));
  if (entry == entries_.end() || entry->second.freed) {
    return fail(Code::invalid_argument,
                "free_ptr: no block on a GPU begins at {}, or it was freed before; pass what "
                "malloc returned, once",
                block);
  }
  const State state = entry->second.state;
  entry->second.freed = true;
  if (state == State::leaving || state == State::coming) {
    return {};  // The end of the operation drops it.
  }
  if (state == State::held) {
    const ViewRecord view = entry->second.view;
    lock.unlock();
    if (after.is_host()) {
      (void)context_.residency.end(view);
    } else if (const Result<bool> ended = context_.release_after({&view, 1}, after); !ended.ok()) {
      lock.lock();
      entry->second.freed = false;
      return ended.status().clone();
    }
    lock.lock();
  }
  drop(entry);
  return {};
}

// Call it with the mutex held, after its pins have been released.
void DeviceMemory::drop(Entries::iterator entry) {
  (void)context_.free(entry->second.buffer);
  entries_.erase(entry);
}

std::optional<DeviceMemory::Block> DeviceMemory::find(const void* inside) const {
  const auto at = reinterpret_cast<std::uintptr_t>(inside);
  const std::lock_guard lock(mutex_);
  auto entry = entries_.upper_bound(at);
  if (entry == entries_.begin()) {
    return {};
  }
  --entry;
  const Entry& found = entry->second;
  if (found.freed || at - entry->first >= found.bytes) {
    return {};
  }
  return Block{reinterpret_cast<std::byte*>(entry->first),  // NOLINT: a number to the host.
               found.bytes, found.state == State::held};
}

DeviceMemory::Books DeviceMemory::books() const {
  Books books;
  const std::lock_guard lock(mutex_);
  for (const auto& [begin, entry] : entries_) {
    ++books.blocks;
    books.bytes += entry.bytes;
    books.paused += entry.state != State::held ? entry.bytes : 0;
  }
  return books;
}

// ---- Sets

/// A trip that ends with the scope, unless an operation ends it.
class DeviceMemory::HeldTrip {
 public:
  /// `state`: the state that its blocks get at the end.
  HeldTrip(DeviceMemory& memory, State state) : memory_(memory), state_(state) {
    const std::lock_guard lock(memory_.mutex_);
    trip_ = memory_.trips_.emplace(memory_.trips_.end());
  }
  ~HeldTrip() {
    if (!kept_) {
      memory_.end(trip_, state_);
    }
  }
  HeldTrip(const HeldTrip&) = delete;
  HeldTrip& operator=(const HeldTrip&) = delete;

  Trips::iterator trip() const { return trip_; }
  void ends_as(State state) { state_ = state; }
  void keep() { kept_ = true; }

 private:
  DeviceMemory& memory_;
  State state_;
  Trips::iterator trip_;
  bool kept_ = false;
};

Result<OpHandle> DeviceMemory::pause(const char* tag, std::uint64_t bytes,
                                     const StreamOrder& after) {
  HeldTrip held(*this, State::held);
  const Trips::iterator trip = held.trip();
  Vector<ViewRecord> views;
  Status status;
  {
    const std::lock_guard lock(mutex_);
    status = choose("gpu_pause", tag, bytes, State::held, *trip);
    views.reserve(trip->blocks.size());
    for (const Entries::iterator block : trip->blocks) {
      block->second.state = State::leaving;
      views.push_back(block->second.view);
    }
  }
  if (status.ok() && !views.empty()) {
    if (after.is_host()) {
      (void)context_.residency.release(views);
    } else if (const Result<bool> ended = context_.release_after(views, after); !ended.ok()) {
      status = ended.status().clone();
    }
  }
  if (!status.ok()) {
    return status;
  }
  held.ends_as(State::paused);
  return start("gpu_pause", held, RequestKind::release_memory);
}

Result<OpHandle> DeviceMemory::resume(const char* tag, std::uint64_t bytes) {
  HeldTrip held(*this, State::paused);
  {
    const std::lock_guard lock(mutex_);
    Status status = choose("gpu_resume", tag, bytes, State::paused, *held.trip());
    for (const Entries::iterator block : held.trip()->blocks) {
      block->second.state = State::coming;
    }
    if (!status.ok()) {
      return status;
    }
  }
  return start("gpu_resume", held, RequestKind::acquire);
}

// Call it with the mutex held. Chooses blocks of a set in the order in which they were allocated.
// An error chooses none.
Status DeviceMemory::choose(const char* call, const char* tag, std::uint64_t bytes, State from,
                            Trip& trip) {
  bool any = tag == nullptr || *tag == '\0';
  Vector<Entries::iterator> blocks;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->second.freed || (tag != nullptr && !has_tag(entry->second.tag, tag))) {
      continue;
    }
    any = true;
    const State state = entry->second.state;
    if (state == from) {
      blocks.push_back(entry);
    } else if (bytes == 0 && (state == State::leaving || state == State::coming)) {
      return fail(Code::busy,
                  "{}: the set '{}' is being moved; wait for the operation that moves it", call,
                  entry->second.tag.view());
    }
  }
  std::sort(blocks.begin(), blocks.end(),
            [](const auto& a, const auto& b) { return a->second.number < b->second.number; });
  std::uint64_t chosen = 0;
  const auto enough = std::find_if(blocks.begin(), blocks.end(), [&](const auto& block) {
    const bool had_enough = bytes != 0 && chosen >= bytes;
    chosen += block->second.bytes;
    return had_enough;
  });
  trip.blocks.assign(blocks.begin(), enough);
  return any ? Status() : nothing_tagged(call, tag);
}

Status DeviceMemory::nothing_tagged(const char* call, const char* tag) const {
  std::string known;
  for (const auto& [begin, entry] : entries_) {
    const std::string name = fmt::format("'{}'", entry.tag.view());
    if (!entry.freed && entry.tag.chars[0] != '\0' && known.find(name) == std::string::npos &&
        known.size() < 120) {
      known += (known.empty() ? "" : ", ") + name;
    }
  }
  return fail(Code::invalid_argument, "{}: there is no set '{:.31}'; {}{}", call, tag,
              known.empty() ? "tag a block first" : "name one of ", known);
}

// Call it without the mutex: the operation may end before this returns.
Result<OpHandle> DeviceMemory::start(const char* call, HeldTrip& held, RequestKind want) {
  const Trips::iterator trip = held.trip();
  auto request = std::make_unique<Request>();
  Status status;
  request->spans.resize(trip->blocks.size());
  for (std::size_t i = 0; i < trip->blocks.size() && status.ok(); ++i) {
    const Entry& entry = trip->blocks[i]->second;
    const std::uint32_t mode = want == RequestKind::acquire ? kWrite : kRead;
    status = context_.residency.resolve({entry.buffer, 0, 0, mode, entry.place, 0},
                                        request->spans[i], call);
  }
  if (!status.ok()) {
    return status;
  }
  request->kind =
      trip->blocks.empty() ? RequestKind::release_memory : want;  // An empty request ends at once.
  trip->memory = this;
  trip->self = trip;
  trip->views.resize(trip->blocks.size());
  request->views = trip->views.data();
  request->thread = static_cast<std::int32_t>(::syscall(SYS_gettid));
  request->before_done = ended;
  request->before_context = &*trip;
  Result<OpHandle> op = context_.ask_async(std::move(request));
  if (op.ok()) {
    held.keep();  // The operation ends the trip, or has ended it.
  }
  return op;
}

// [the mover's thread, or the caller's if the context is closed]
void DeviceMemory::ended(Request& request) {
  Trip& trip = *static_cast<Trip*>(request.before_context);
  trip.memory->end(trip.self, request.kind == RequestKind::acquire && request.status.ok()
                                  ? State::held
                                  : State::paused);
}

void DeviceMemory::end(Trips::iterator trip, State state) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < trip->blocks.size(); ++i) {
    const Entries::iterator block = trip->blocks[i];
    Entry& entry = block->second;
    if (state == State::held && entry.state == State::coming) {
      entry.view = trip->views[i];
    }
    entry.state = state;
    if (entry.freed) {
      if (state == State::held) {
        (void)context_.residency.end(entry.view);
      }
      drop(block);
    }
  }
  trips_.erase(trip);
}

}  // namespace tiermem
