// Places, heaps, and the buffers that heaps consist of.
#include "runtime/placed_memory.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "os/memory_limits.hpp"
#include "residency/buffer_limits.hpp"
#include "runtime/context_impl.hpp"
#include "runtime/held.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kLeastChunk = std::uint64_t{256} << 10;
constexpr std::uint64_t kMostChunk = std::uint64_t{2} << 20;
// The unit that moves: small objects are touched at random.
constexpr std::uint64_t kSmallObjectExtent = std::uint64_t{64} << 10;
constexpr unsigned kMostShards = 64;
constexpr unsigned kMostMagazines = 4096;
// A block of this size keeps its place whatever its new size.
constexpr std::uint64_t kNeverSmaller = 64;

// Each shard keeps a chunk. All shards' chunks, except one, take at most a thirty-second of the
// budget. The blocks that threads keep take at most a sixteenth.
heap::HeapOptions options_of(const Context::Impl& context, std::uint64_t budget,
                             std::uint64_t uses) {
  heap::HeapOptions options;
  options.chunk_bytes = std::clamp(std::bit_floor(budget / 32), kLeastChunk, kMostChunk);
  const std::uint64_t fit = budget / 32 / options.chunk_bytes;
  const std::uint64_t useful = std::min(kMostShards, std::thread::hardware_concurrency());
  options.shards =
      static_cast<unsigned>(std::clamp<std::uint64_t>(fit, 1, std::max<std::uint64_t>(1, useful)));
  options.magazines = static_cast<unsigned>(
      std::min<std::uint64_t>(budget / 16 / heap::kMagazinesBytes, kMostMagazines));
  options.owner = &context;
  options.uses = uses;
  return options;
}

Status not_a_block(const char* call, const void* pointer) {
  return fail(Code::invalid_argument,
              "{}: {} is not in memory from malloc of this context, or was freed; pass what malloc "
              "returned",
              call, pointer);
}

Status refuse(const char* call, const void* pointer, heap::Found found, std::uint64_t bytes) {
  switch (found) {
    case heap::Found::inside:
      return fail(Code::invalid_argument,
                  "{}: no block begins at {}; it is inside a block or between two; pass what "
                  "malloc returned",
                  call, pointer);
    case heap::Found::freed:
      return bytes == 0 ? fail(Code::invalid_argument,
                               "{}: {} was freed before; free a block once, after its last use",
                               call, pointer)
                        : fail(Code::invalid_argument,
                               "{}: {} was freed before (a block of {} bytes); free a block once, "
                               "after its last use",
                               call, pointer, bytes);
    default:
      return not_a_block(call, pointer);
  }
}

}  // namespace

// Supplies chunks and large blocks as buffers: mapped, or held in one memory by a view.
class PlacedMemory::BufferSource final : public heap::Source {
 public:
  BufferSource(Context::Impl& context, unsigned which)
      : context_(context),
        moves_(which == kMoves),
        place_(moves_ ? Place{} : context.host_space().memory(which).place()),
        several_(context.host_space().memories().size() > 1) {}

  Result<heap::Piece> take(std::uint64_t bytes, std::uint64_t align, bool large) override {
    BufferOptions options;
    options.label = "malloc";
    options.alignment = align;
    options.flags = moves_ ? std::uint32_t{kMapped} : 0;
    options.extent_bytes = large    ? extent_of_large(bytes, align)
                           : moves_ ? kSmallObjectExtent
                                    : bytes;
    options.preferred = place_;
    const std::uint32_t bound = several_ && !moves_ ? kBound : 0;
    Result<Handle> handle = context_.alloc(bytes, options, kOfHeaps | bound);
    if (!handle.ok()) {
      return std::move(handle).status();
    }
    HeldBuffer buffer(context_, *handle);
    heap::Piece piece;
    piece.bytes = bytes;
    piece.buffer = *handle;
    if (moves_) {
      piece.begin =
          context_.residency.buffers.find(*handle)->windows[kHost].load(std::memory_order_relaxed);
      (void)buffer.keep();
      return piece;
    }
    // The memory's content does not matter, so nothing is cleared or read.
    const Access all{*handle, 0, bytes, kDiscard, {}, 0};
    Status held;
    if (context_.residency.try_acquire({&all, 1}, {&piece.view, 1}) != Code::ok) {
      held = context_.acquire_through_mover({&all, 1}, patience(bytes), {&piece.view, 1});
    }
    if (!held.ok()) {
      return held;
    }
    (void)buffer.keep();
    piece.begin = static_cast<std::byte*>(piece.view.data);
    return piece;
  }

  void give_back(const heap::Piece& piece) override {
    if (!moves_) {
      (void)context_.residency.end(piece.view);
    }
    (void)context_.free(piece.buffer);
  }

 private:
  /// Other buffers' bytes must first be written, at 128 MiB/s or more. Only views cause longer
  /// waits.
  static Timeout patience(std::uint64_t bytes) {
    return Timeout::milliseconds(1000 + static_cast<std::int64_t>(bytes >> 17));
  }
  /// The last extent of a large block is at most an eighth of it. In persistent memory a small
  /// block is one extent, because a window there has large extents only.
  std::uint64_t extent_of_large(std::uint64_t bytes, std::uint64_t align) const {
    const std::uint64_t most = std::max(kSmallObjectExtent, context_.config.extent);
    const std::uint64_t eighth = std::clamp(std::bit_floor(bytes / 8), kSmallObjectExtent, most);
    const std::uint64_t least =
        place_.kind == Kind::pmem ? std::min(std::bit_ceil(bytes), kDefaultExtent) : 0;
    return std::max({align, eighth, least});
  }

  Context::Impl& context_;
  const bool moves_;
  const Place place_;  // Where held memory stays.
  const bool several_;
};

struct PlacedMemory::Made : InArena {
  Made(Context::Impl& context, heap::ChunkTable& table, unsigned which,
       const heap::HeapOptions& options)
      : source(context, which), heap(source, table, options) {}
  BufferSource source;
  heap::Heap heap;
};

PlacedMemory::PlacedMemory(Context::Impl& context) : context_(context) {}

PlacedMemory::~PlacedMemory() {
  each_made([](Made& made) { delete &made; });
  delete table_.load();
}

template <typename Visit>
void PlacedMemory::each_own(Visit&& visit) const {
  for (const std::atomic<Made*>& which : heaps_) {
    if (Made* const made = which.load(std::memory_order_acquire)) {
      visit(*made);
    }
  }
}

template <typename Visit>
void PlacedMemory::each_made(Visit&& visit) const {
  each_own(visit);
  for (Made* const made : left_) {
    visit(*made);
  }
}

Result<heap::Heap*> PlacedMemory::heap_of(Place place) {
  const bool can_move = context_.host_space().maps_well();
  if (place == Place{Kind::block, 0}) {
    return fail(Code::unsupported,
                "malloc: the processor cannot address {}; accepted are any, host, dram and gpu; "
                "memory of any moves to the block tier by itself",
                place_name(place));
  }
  if (place.kind == Kind::numa || place.kind == Kind::pmem) {
    if (const unsigned number = context_.memory_number(place); number != 0) {
      return heap(number);
    }
  }
  if (place.index != 0 || place.kind > Kind::dram) {
    return fail(Code::unavailable,
                "malloc: {} is not a tier of this context; accepted are any, host, dram, and its "
                "numa, pmem and gpu",
                place_name(place));
  }
  if (place.kind == Kind::any && can_move) {
    return heap(kMoves);
  }
  if (place.kind == Kind::any && context_.config.fork == Fork::follow) {
    return fail(Code::unsupported,
                "malloc: {}: with fork=follow memory of any follows a fork, and this needs "
                "userfaultfd; allow userfaultfd, or use dram, which stays with the parent",
                place_name(place));
  }
  return heap(0);
}

// Where memory cannot move, the heap of DRAM serves every place, unless it must follow forks.
Result<heap::Heap*> PlacedMemory::heap(unsigned which) {
  std::atomic<Made*>& its = heaps_[which];
  Made* made = its.load(std::memory_order_acquire);
  if (made == nullptr) [[unlikely]] {
    const std::lock_guard lock(mutex_);
    made = its.load(std::memory_order_relaxed);
    if (made == nullptr) {
      if (table_.load(std::memory_order_relaxed) == nullptr) {
        table_.store(new heap::ChunkTable, std::memory_order_release);
      }
      const Place place = context_.host_space().memory(which == kMoves ? 0 : which).place();
      const bool serves_any =
          !context_.host_space().maps_well() && context_.config.fork != Fork::follow;
      auto uses = static_cast<std::uint64_t>(which == kMoves ? heap::Use::any : use_of(place));
      if (which == 0 && serves_any) {
        uses |= static_cast<std::uint64_t>(heap::Use::any);
      }
      made = new Made(context_, *table_.load(std::memory_order_relaxed), which,
                      options_of(context_, budget_of(place), uses));
      its.store(made, std::memory_order_release);
    }
  }
  return &made->heap;
}

// Returns the budget at the start of the memory where objects of a place stay.
std::uint64_t PlacedMemory::budget_of(Place place) const {
  for (const NodeMemory& node : context_.config.numa) {
    if (place == Place{Kind::numa, static_cast<std::uint16_t>(node.index)}) {
      return node.bytes;
    }
  }
  return place.kind == Kind::pmem && place.index < context_.config.pmem.size()
             ? context_.config.pmem[place.index].bytes
             : context_.config.dram.budget;
}

Result<void*> PlacedMemory::allocate(Place place, std::uint64_t bytes, std::uint64_t align) {
  if (bytes > kLargestBuffer) {
    return fail(Code::invalid_argument, "malloc: {} bytes; accepted are 0 to 2^47", bytes);
  }
  if (!std::has_single_bit(align) || align > kLargestExtent) {
    return fail(Code::invalid_argument, "malloc: alignment {}; accepted are powers of two up to {}",
                align, kLargestExtent);
  }
  // The memory of the block moves in pieces of the alignment, and a touch could not bring one.
  if (const std::uint64_t budget = budget_of(place); align > budget) {
    const bool further = place.kind == Kind::numa || place.kind == Kind::pmem;
    const char* const name = further ? kind_name(place.kind) : "dram";
    return fail(Code::no_capacity,
                "malloc: alignment {} needs as much memory at once, but the {} budget is {}; lower "
                "the alignment, or raise {}=",
                human_bytes(align), name, human_bytes(budget), name);
  }
  try {
    Result<heap::Heap*> heap = heap_of(place);
    if (!heap.ok()) {
      return std::move(heap).status();
    }
    return (*heap)->allocate(bytes, align);
  } catch (const std::bad_alloc&) {
    return host::refused(ENOMEM, std::uint64_t{1} << 20, host::Wanted::memory,
                         "malloc: the records of the heap");
  }
}

// A large block of the heap that moves is a buffer of its own, and a new buffer reads as zeros
// without memory. All other memory may have been used before.
Result<void*> PlacedMemory::allocate_zeros(Place place, std::uint64_t bytes, std::uint64_t align) {
  Result<void*> block = allocate(place, bytes, align);
  if (block.ok()) {
    Result<heap::Heap*> heap = heap_of(place);
    const Made* const moves = heaps_[kMoves].load(std::memory_order_acquire);
    if (moves == nullptr || *heap != &moves->heap || !(*heap)->is_large(bytes, align)) {
      std::memset(*block, 0, bytes);
    }
  }
  return block;
}

// A block with twice the size or more is replaced, so that the rest can be used.
Result<void*> PlacedMemory::reallocate(Place place, void* block, std::uint64_t bytes,
                                       std::uint64_t align) {
  Result<std::uint64_t> usable = size_of("realloc", block);
  if (!usable.ok()) {
    return std::move(usable).status();
  }
  const bool aligned =
      std::has_single_bit(align) && reinterpret_cast<std::uintptr_t>(block) % align == 0;
  const bool fits = bytes <= *usable && aligned;
  if (fits && (*usable <= kNeverSmaller || bytes > *usable / 2)) {
    return block;
  }
  Result<void*> made = allocate(place, bytes, align);
  if (!made.ok()) {
    return fits ? Result<void*>(block) : std::move(made);
  }
  std::memcpy(*made, block, std::min(bytes, *usable));
  Status freed = free(block);
  if (!freed.ok()) {
    return freed;  // Another thread has freed it, too.
  }
  return made;
}

Status PlacedMemory::free(void* block) {
  heap::ChunkTable* const table = table_.load(std::memory_order_acquire);
  heap::Chunk* const chunk = table == nullptr ? nullptr : table->find(block);
  if (chunk == nullptr) [[unlikely]] {
    return not_a_block("free_ptr", block);
  }
  std::uint64_t bytes = 0;
  const heap::Found found = heap::Heap::free(*chunk, block, bytes);
  return found == heap::Found::block ? Status() : refuse("free_ptr", block, found, bytes);
}

Result<std::uint64_t> PlacedMemory::usable_size(const void* block) const {
  return size_of("usable_size", block);
}

Result<std::uint64_t> PlacedMemory::size_of(const char* call, const void* block) const {
  const heap::ChunkTable* const table = table_.load(std::memory_order_acquire);
  heap::Chunk* const chunk = table == nullptr ? nullptr : table->find(block);
  if (chunk == nullptr) {
    return not_a_block(call, block);
  }
  const auto is_of = [&](const Made* made) { return &made->heap == chunk->heap; };
  if (std::any_of(left_.begin(), left_.end(), is_of)) [[unlikely]] {
    return fail(Code::stale_handle,
                "{}: {} is memory of the parent process: it stays in dram, so it did not follow "
                "the fork; allocate other memory after the fork, or use the place any",
                call, block);
  }
  std::uint64_t bytes = 0;
  const heap::Found found = heap::Heap::measure(*chunk, block, bytes);
  if (found != heap::Found::block) {
    return refuse(call, block, found, bytes);
  }
  return bytes;
}

void PlacedMemory::add_stats(Stats& stats) const {
  each_own([&](Made& made) {
    const heap::HeapBooks books = made.heap.books();
    stats.placed_used += books.used;
    stats.placed_held += books.held;
  });
}

bool PlacedMemory::press(bool on) {
  bool gave = false;
  each_own([&](Made& made) { gave = made.heap.press(on) || gave; });
  return gave;
}

void PlacedMemory::close() {
  each_own([](Made& made) { made.heap.end_magazines(); });
}

void PlacedMemory::before_fork() {
  mutex_.lock();
  each_made([](Made& made) { made.heap.before_fork(); });
  if (heap::ChunkTable* const table = table_.load()) {
    table->before_fork();
  }
}

void PlacedMemory::after_fork() {
  if (heap::ChunkTable* const table = table_.load()) {
    table->after_fork();
  }
  each_made([](Made& made) { made.heap.after_fork(); });
  mutex_.unlock();
}

// The heap's records stay, so that a block can be freed. To free one touches no memory of blocks.
void PlacedMemory::leave_to_parent() {
  for (unsigned number = 0; number < kMostMemories; ++number) {
    if (Made* const made = heaps_[number].load(); made != nullptr) {
      left_.push_back(made);
      heaps_[number].store(nullptr);
      heap::Magazines::allow(made->heap, false);  // A thread would get a freed block again.
    }
  }
}

void PlacedMemory::recover() {
  each_own([](Made& made) { made.heap.recover(); });
}

}  // namespace tiermem
