// Frames of a GPU's memory.
#include "tier/gpu.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <functional>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::size_t kVictimsAtOnce = 64;

}  // namespace

std::uint64_t GpuTier::headroom(std::uint64_t total) {
  return std::max(total / 20, std::min(512 * kMiB, total / 8));
}

Result<std::unique_ptr<GpuTier>> GpuTier::create(std::unique_ptr<CudaLane> lane,
                                                 std::uint64_t budget) {
  const CudaDeviceFacts& facts = lane->facts();
  const std::uint64_t free = lane->free_at_start();
  constexpr std::uint64_t kChunk = std::uint64_t{1} << kLog2Chunk;
  if (facts.granularity == 0 || kChunk % facts.granularity != 0) {
    return fail(Code::unsupported,
                "gpu {}: its memory comes in pieces of {}, not of 2 MiB; name another GPU",
                facts.index, human_bytes(facts.granularity));
  }
  if (budget > facts.total) {
    return fail(Code::invalid_argument,
                "gpu {}: a budget of {}; accepted for {:.60} are at most {}", facts.index,
                human_bytes(budget), facts.name, human_bytes(facts.total));
  }
  if (budget == 0) {
    budget = free - std::min(free, headroom(facts.total));
  }
  if (budget < kChunk) {
    return fail(Code::no_capacity,
                "gpu {}: {} of {} are free, which leaves tiermem less than 2 MiB; name a size, "
                "such as gpu={}:1G, or free some",
                facts.index, human_bytes(free), human_bytes(facts.total), facts.index);
  }
  return std::unique_ptr<GpuTier>(new GpuTier(std::move(lane), budget));
}

GpuTier::GpuTier(std::unique_ptr<CudaLane> lane, std::uint64_t budget)
    : Memory(static_cast<AddressSpace&>(*this)), lane_(std::move(lane)) {
  usage_.budget = budget;
  for (unsigned log2 = kLog2Chunk; log2 <= kLog2Most; ++log2) {
    const std::uint64_t bytes = std::uint64_t{1} << log2;
    HomeOptions homes;
    homes.memory = false;
    size(log2).frames = std::make_unique<FramePool>(bytes, homes);
    size(log2).chunks = std::make_unique<Chunk[]>(lane_->facts().total / bytes + 1);
  }
}

GpuTier::~GpuTier() {
  for (std::byte* const at : locked_) {
    (void)lane_->here([&] {
      return lane_->check(lane_->driver().cuMemHostUnregister(at), "cuMemHostUnregister");
    });
  }
  (void)lane_->call([&] {
    while (!windows_.empty()) {
      (void)end_window(windows_.begin()->first, windows_.begin()->second);
    }
    return Status();
  });
  for (unsigned log2 = kLog2Chunk; log2 <= kLog2Most; ++log2) {
    const std::uint64_t bytes = std::uint64_t{1} << log2;
    for (std::uint64_t i = 0; i <= lane_->facts().total / bytes; ++i) {
      release_chunk(size(log2).chunks[i], bytes);
    }
  }
}

GpuCounters GpuTier::counters() const {
  return {counts_.bytes_in, counts_.bytes_out};
}

Place GpuTier::place() const {
  return {Kind::gpu, static_cast<std::uint16_t>(lane_->facts().index)};
}

// The encoding of frame ids: six bits of size, and the number of the frame among those of its size.

FrameId GpuTier::pack(unsigned log2, std::uint32_t index) {
  return {std::uint64_t{log2} << 56 | index};
}

GpuTier::Parts GpuTier::unpack(FrameId frame) {
  return {static_cast<unsigned>(frame.value >> 56), static_cast<std::uint32_t>(frame.value)};
}

// [mover] Frames and accounting.

FrameId GpuTier::acquire_frame(const FrameRequest& request) {
  assert(std::has_single_bit(request.bytes) && request.bytes >= kSmallestExtent &&
         request.bytes <= kLargestExtent);
  if (!takes(request)) {
    return {};
  }
  const auto log2 = static_cast<unsigned>(std::bit_width(request.bytes) - 1);
  const std::uint32_t index =
      log2 < kLog2Chunk ? take_slab(log2, request.domain) : take(log2, request.domain);
  return index == kNoFrame ? FrameId{} : pack(log2, index);
}

std::uint32_t GpuTier::take(unsigned log2, std::uint64_t domain) {
  FramePool& from = *size(log2).frames;
  const bool cached = from.coldest() != kNoFrame;
  if ((cached ? usage_.in_use : usage_.used()) + from.bytes() > usage_.budget) {
    return kNoFrame;
  }
  const std::uint32_t index = cached ? from.take_cached(domain) : from.take_fresh(domain);
  if (index != kNoFrame) {
    usage_.in_use += from.bytes();
    usage_.cached -= cached ? from.bytes() : 0;
  }
  return index;
}

std::uint32_t GpuTier::take_slab(unsigned log2, std::uint64_t domain) {
  FramePool& chunks = *size(kLog2Chunk).frames;
  if (slabs_[log2] == nullptr) {
    slabs_[log2] = std::make_unique<SlabPool>(std::uint64_t{1} << log2, chunks);
  }
  std::uint32_t index = slabs_[log2]->take(domain);
  if (index == kNoFrame) {
    if (const std::uint32_t chunk = take(kLog2Chunk, domain); chunk != kNoFrame) {
      slabs_[log2]->add(chunk);
      index = slabs_[log2]->take(domain);
    }
  }
  return index;
}

void GpuTier::return_frame(FrameId frame) {
  const Parts parts = unpack(frame);
  if (!is_slab(parts)) {
    put_back(parts.log2, parts.index);
  } else if (const std::uint32_t chunk = slab(parts).give_back(parts.index); chunk != kNoFrame) {
    put_back(kLog2Chunk, chunk);
  }
}

// Keeps the frame with its memory for the next request. A trim frees memory above a lowered budget,
// as for all cached frames.
void GpuTier::put_back(unsigned log2, std::uint32_t index) {
  FramePool& to = *size(log2).frames;
  usage_.in_use -= to.bytes();
  if (to.frame(index).pages) {
    to.cache(index, ++clock_);
    usage_.cached += to.bytes();
  } else {
    to.give_back(index);
  }
}

bool GpuTier::needs_populate(FrameId frame) const {
  const Parts parts = unpack(frame);
  if (chunk_of(parts).shown != 0) {
    return true;  // It may be in another extent's window.
  }
  if (is_slab(parts)) {
    const SlabSlot& slot = slab(parts).slot(parts.index);
    return !slab(parts).chunk(parts.index).pages.load() || slot.tag != slot.owner;
  }
  const Frame& held = size(parts.log2).frames->frame(parts.index);
  return !held.pages || held.tag != held.owner;
}

std::uint64_t GpuTier::begin_trim(std::uint64_t bytes) {
  std::uint64_t chosen = 0;
  while (trimming_.size() < kVictimsAtOnce && chosen < bytes) {
    unsigned coldest = 0;
    std::uint64_t stamp = ~std::uint64_t{0};
    for (unsigned log2 = kLog2Chunk; log2 <= kLog2Most; ++log2) {
      const FramePool& pool = *size(log2).frames;
      if (pool.coldest() != kNoFrame && pool.frame(pool.coldest()).stamp < stamp) {
        stamp = pool.frame(pool.coldest()).stamp;
        coldest = log2;
      }
    }
    if (coldest == 0) {
      break;
    }
    trimming_.push_back({coldest, size(coldest).frames->take_coldest()});
    chosen += std::uint64_t{1} << coldest;
  }
  return chosen;
}

void GpuTier::run_trim() {
  for (const Victim& victim : trimming_) {
    release_chunk(size(victim.log2).chunks[victim.index], std::uint64_t{1} << victim.log2);
  }
}

void GpuTier::finish_trim() {
  for (const Victim& victim : trimming_) {
    FramePool& pool = *size(victim.log2).frames;
    pool.frame(victim.index).pages = false;
    pool.give_back(victim.index);
    usage_.cached -= pool.bytes();
  }
  trimming_.clear();
}

// [worker] Memory.

Status GpuTier::populate(FrameId id, bool clear_it, std::byte* at) {
  const Parts parts = unpack(id);
  if (!shows(id, at)) {
    if (Status taken = take_from_window(chunk_of(parts)); !taken.ok()) {
      return taken;
    }
  }
  if (!is_slab(parts)) {
    Frame& frame = size(parts.log2).frames->frame(parts.index);
    const std::uint64_t bytes = std::uint64_t{1} << parts.log2;
    if (!frame.pages) {
      if (Status made = make_chunk(size(parts.log2).chunks[parts.index], bytes); !made.ok()) {
        return made;
      }
      frame.pages = true;
      frame.tag = kTagZero;
    }
    if (frame.tag != kTagZero && (clear_it || frame.tag != frame.owner)) {
      if (Status cleared = lane_->clear(address(id), bytes); !cleared.ok()) {
        return cleared;
      }
    }
    frame.tag = frame.owner;
    return {};
  }
  const SlabPool& of = slab(parts);
  SlabChunk& chunk = of.chunk(parts.index);
  if (!chunk.pages.load()) {
    const std::lock_guard lock(slab_pages_mutex_);
    if (!chunk.pages.load()) {
      Status made = make_chunk(size(kLog2Chunk).chunks[of.chunk_of(parts.index)],
                               std::uint64_t{1} << kLog2Chunk);
      if (!made.ok()) {
        return made;
      }
      chunk.pages.store(true);
    }
  }
  SlabSlot& slot = of.slot(parts.index);
  if (slot.tag != kTagZero && (clear_it || slot.tag != slot.owner)) {
    if (Status cleared = lane_->clear(address(id), of.frame_bytes()); !cleared.ok()) {
      return cleared;
    }
  }
  slot.tag = slot.owner;
  return {};
}

// Zeroes the memory: the driver does not guarantee the content of new memory.
Status GpuTier::make_chunk(Chunk& chunk, std::uint64_t bytes) {
  assert(chunk.at == 0);
  const CudaDriver& driver = lane_->driver();
  Status status = lane_->call([&] {
    cuda::AllocationProperties properties;
    properties.location.id = static_cast<int>(lane_->facts().index);
    cuda::MemoryHandle handle = 0;
    cuda::DevicePointer at = 0;
    Status made = lane_->check(driver.cuMemCreate(&handle, bytes, &properties, 0),
                               text("cuMemCreate of {}", human_bytes(bytes)));
    if (!made.ok()) {
      return made;
    }
    made = lane_->check(driver.cuMemAddressReserve(&at, bytes, bytes, 0, 0), "cuMemAddressReserve");
    if (made.ok()) {
      made = map_chunk(at, bytes, handle);
    }
    if (made.ok()) {
      chunk.at = at;
      chunk.handle = handle;
      return made;
    }
    if (at != 0) {
      (void)driver.cuMemAddressFree(at, bytes);
    }
    (void)driver.cuMemRelease(handle);
    return made;
  });
  if (status.ok()) {
    status = lane_->clear(chunk.at, bytes);
    if (!status.ok()) {
      release_chunk(chunk, bytes);
    }
  }
  return status;
}

void GpuTier::release_chunk(Chunk& chunk, std::uint64_t bytes) {
  if (chunk.at == 0) {
    return;
  }
  const CudaDriver& driver = lane_->driver();
  const Status released = lane_->call([&] {
    if (!hide(chunk).ok()) {
      forget(chunk);
    }
    // Make every call, whatever the others return, to release as much as possible.
    const cuda::Result results[] = {driver.cuMemUnmap(chunk.at, bytes),
                                    driver.cuMemAddressFree(chunk.at, bytes),
                                    driver.cuMemRelease(chunk.handle)};
    for (const cuda::Result result : results) {
      if (Status status = lane_->check(result, "giving memory back"); !status.ok()) {
        return status;
      }
    }
    return Status();
  });
  if (!released.ok() && !lost()) {
    log_warn("{}", released.message());
  }
  chunk.at = 0;
  chunk.handle = 0;
}

// Other devices read a chunk at its own address, if they still can. An error of another device says
// nothing about this one; without access, bytes reach that device through the host.
Status GpuTier::map_chunk(cuda::DevicePointer at, std::uint64_t bytes, cuda::MemoryHandle handle) {
  const CudaDriver& driver = lane_->driver();
  Status status = lane_->check(driver.cuMemMap(at, bytes, 0, handle, 0), "cuMemMap");
  if (!status.ok()) {
    return status;
  }
  status = lane_->check(permit(at, bytes, lane_->facts().index), "cuMemSetAccess");
  if (!status.ok()) {
    (void)driver.cuMemUnmap(at, bytes);
    return status;
  }
  for (const unsigned reader : readers_) {
    (void)permit(at, bytes, reader);
  }
  return status;
}

// Lets the device read and write the mapped addresses.
cuda::Result GpuTier::permit(cuda::DevicePointer at, std::uint64_t bytes, unsigned device) {
  cuda::AccessDescription access;
  access.location.id = static_cast<int>(device);
  access.flags = cuda::kAccessReadWrite;
  return lane_->driver().cuMemSetAccess(at, bytes, &access, 1);
}

// Windows. A chunk that a window shows is mapped a second time, and copies use its own address. So
// showing it costs driver calls, and nothing moves.

Result<std::byte*> GpuTier::reserve_window(std::uint64_t bytes, std::uint64_t extent_bytes,
                                           bool mapped) {
  constexpr std::uint64_t kChunk = std::uint64_t{1} << kLog2Chunk;
  if (mapped || extent_bytes < kChunk) {
    return fail(Code::unsupported,
                "gpu {}: its memory is mapped by 2 MiB, and extents of {} can have no address in a "
                "row there; allocate with extent_bytes of 2 MiB or more, or acquire each by itself",
                lane_->facts().index, human_bytes(extent_bytes));
  }
  cuda::DevicePointer at = 0;
  Status reserved = lane_->call([&] {
    Status status = lane_->check(
        lane_->driver().cuMemAddressReserve(&at, bytes, extent_bytes, 0, 0), "cuMemAddressReserve");
    if (status.ok()) {
      windows_[at] = bytes;
    }
    return status;
  });
  if (!reserved.ok()) {
    return reserved;
  }
  return reinterpret_cast<std::byte*>(at);  // NOLINT: a number to the host.
}

void GpuTier::release_window(std::byte* window, std::uint64_t) {
  // Two captures: a larger std::function allocates with malloc.
  lane_->call_later([this, at = reinterpret_cast<cuda::DevicePointer>(window)] {
    Status ended = end_window(at, windows_[at]);
    return lost() ? Status() : std::move(ended);
  });
}

Status GpuTier::end_window(cuda::DevicePointer window, std::uint64_t bytes) {
  Status hidden;
  for (auto at = shown_.lower_bound(window); at != shown_.end() && at->first < window + bytes;
       at = shown_.lower_bound(window)) {
    Chunk& chunk = *at->second.chunk;
    if (Status status = hide(chunk); !status.ok()) {
      hidden = std::move(status);
      forget(chunk);
    }
  }
  windows_.erase(window);
  Status freed = lane_->check(lane_->driver().cuMemAddressFree(window, bytes), "cuMemAddressFree");
  return hidden.ok() ? std::move(freed) : std::move(hidden);
}

bool GpuTier::shows(FrameId frame, std::byte* at) const {
  return chunk_of(unpack(frame)).shown == reinterpret_cast<cuda::DevicePointer>(at);
}

// Waiting requests are served together by one call in the lane's thread. Permitting access costs
// the most, and one call permits it for a run of addresses (docs/decisions/gpu-facts.md).
Status GpuTier::show(FrameId frame, std::byte* where) {
  const Parts parts = unpack(frame);
  assert(!is_slab(parts));
  Showing showing;
  showing.chunk = &chunk_of(parts);
  showing.at = reinterpret_cast<cuda::DevicePointer>(where);
  showing.bytes = std::uint64_t{1} << parts.log2;
  if (showing.chunk->shown == showing.at) {
    return {};
  }
  {
    const std::lock_guard lock(showings_mutex_);
    showings_.push_back(&showing);
  }
  Status called = lane_->call([&] {
    if (!showing.done) {
      show_all();
    }
    return Status();
  });
  return called.ok() ? std::move(showing.status) : std::move(called);
}

void GpuTier::show_all() {
  Vector<Showing*> all;
  {
    const std::lock_guard lock(showings_mutex_);
    all.swap(showings_);
  }
  std::sort(all.begin(), all.end(),
            [](const Showing* a, const Showing* b) { return a->at < b->at; });
  for (Showing* const each : all) {
    each->status = map_only(*each);
  }
  for (auto first = all.begin(); first != all.end();) {
    auto end = first + 1;
    while (end != all.end() && (*first)->status.ok() && (*end)->status.ok() &&
           (*end)->at == end[-1]->at + end[-1]->bytes) {
      ++end;
    }
    if ((*first)->status.ok()) {
      finish_showing({first, end});
    }
    first = end;
  }
  for (Showing* const each : all) {
    each->done = true;
  }
}

Status GpuTier::map_only(const Showing& showing) {
  Status status = hide(*showing.chunk);
  if (const auto other = shown_.find(showing.at); status.ok() && other != shown_.end()) {
    status = hide(*other->second.chunk);  // The extent had that chunk when it was here before.
  }
  if (!status.ok()) {
    return status;
  }
  return lane_->check(
      lane_->driver().cuMemMap(showing.at, showing.bytes, 0, showing.chunk->handle, 0), "cuMemMap");
}

// All chunks of the run are mapped side by side. If the driver refuses a run, each chunk is tried
// on its own, so that a request gets only its own error.
void GpuTier::finish_showing(std::span<Showing*> run) {
  const std::uint64_t bytes = run.back()->at + run.back()->bytes - run.front()->at;
  const Status status =
      lane_->check(permit(run.front()->at, bytes, lane_->facts().index), "cuMemSetAccess");
  if (!status.ok() && run.size() > 1) {
    for (std::size_t i = 0; i < run.size(); ++i) {
      finish_showing(run.subspan(i, 1));
    }
    return;
  }
  for (Showing* const each : run) {
    if (status.ok()) {
      shown_[each->at] = {each->chunk, each->bytes};
      each->chunk->shown = each->at;
    } else {
      (void)lane_->driver().cuMemUnmap(each->at, each->bytes);
      each->status = status.clone();
    }
  }
}

// After an error it is where it was.
Status GpuTier::hide(Chunk& chunk) {
  const cuda::DevicePointer at = chunk.shown;
  if (at == 0) {
    return {};
  }
  Status status = lane_->check(lane_->driver().cuMemUnmap(at, shown_[at].bytes), "cuMemUnmap");
  if (status.ok()) {
    forget(chunk);
  }
  return status;
}

void GpuTier::forget(Chunk& chunk) {
  shown_.erase(chunk.shown);
  chunk.shown = 0;
}

Status GpuTier::take_from_window(Chunk& chunk) {
  return chunk.shown == 0 ? Status() : lane_->call([&] { return hide(chunk); });
}

Status GpuTier::map(FrameId, std::byte* at, Mechanism& used) {
  assert(at == nullptr);
  used = Mechanism::in_place;
  return at == nullptr ? Status() : Status(Code::internal);
}

Status GpuTier::unmap(FrameId, std::byte* at) {
  assert(at == nullptr);
  return at == nullptr ? Status() : Status(Code::internal);
}

GpuTier::Chunk& GpuTier::chunk_of(const Parts& parts) const {
  return is_slab(parts) ? size(kLog2Chunk).chunks[slab(parts).chunk_of(parts.index)]
                        : size(parts.log2).chunks[parts.index];
}

cuda::DevicePointer GpuTier::address(FrameId frame) const {
  const Parts parts = unpack(frame);
  const cuda::DevicePointer begin = chunk_of(parts).at;
  if (!is_slab(parts)) {
    return begin;
  }
  const std::uint64_t bytes = slab(parts).frame_bytes();
  return begin + parts.index % ((std::uint64_t{1} << kLog2Chunk) / bytes) * bytes;
}

std::byte* GpuTier::bytes_at(FrameId frame, std::byte*) const {
  return reinterpret_cast<std::byte*>(address(frame));  // NOLINT: a number to the host.
}

// [worker] Copies.

bool GpuTier::copy_in(FrameId to, const std::byte* from, std::uint64_t bytes, Completion& end) {
  counts_.bytes_in += bytes;
  lane_->copy_in(address(to), from, bytes, end);
  return false;
}

bool GpuTier::copy_out(std::byte* to, FrameId from, std::uint64_t bytes, Completion& end) {
  counts_.bytes_out += bytes;
  lane_->copy_out(to, address(from), bytes, end);
  return false;
}

void GpuTier::befriend(GpuTier& other) {
  if (lane_->reaches(*other.lane_)) {
    reached_.push_back(&other);
    other.readers_.push_back(lane_->facts().index);
  }
}

bool GpuTier::reaches(const Memory& other) const {
  return std::find(reached_.begin(), reached_.end(), &other) != reached_.end();
}

bool GpuTier::copy_from(FrameId to, Memory& other, FrameId from, std::uint64_t bytes,
                        Completion& end) {
  auto& source = static_cast<GpuTier&>(other);  // Guaranteed by reaches().
  counts_.bytes_in += bytes;
  source.counts_.bytes_out += bytes;
  lane_->copy_peer(address(to), *source.lane_, source.address(from), bytes, end);
  return false;
}

// Runs in the worker's thread: it may take long, and the lane has copies to submit.

Status GpuTier::lock(std::byte* at, std::uint64_t bytes) {
  Status locked = lane_->here([&] {
    return lane_->check(lane_->driver().cuMemHostRegister(at, bytes, cuda::kHostRegisterPortable),
                        text("page-locking {}", human_bytes(bytes)));
  });
  if (locked.ok()) {
    const std::lock_guard guard(locked_mutex_);
    locked_.insert(at);
  }
  return locked;
}

void GpuTier::unlock(std::byte* at) {
  {
    const std::lock_guard guard(locked_mutex_);
    locked_.erase(at);
  }
  const Status unlocked = lane_->here(
      [&] { return lane_->check(lane_->driver().cuMemHostUnregister(at), "cuMemHostUnregister"); });
  if (!unlocked.ok() && !lost()) {
    log_warn("{}", unlocked.message());
  }
}

}  // namespace tiermem
