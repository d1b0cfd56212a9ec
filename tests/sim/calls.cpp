// The callers' requests: allocations, acquires, hints, budgets, frees. One request each, checked
// when it completes.
#include <bit>

#include "tests/sim/simulation.hpp"

namespace tiermem::sim {

void Simulation::check(bool good, const std::string& why) {
  if (!good) {
    failed(why);
  }
}

void Simulation::alloc() {
  if (live_.size() >= 24) {
    return;
  }
  ++world_.calls;
  Live live;
  const bool usual = swarm_.repeats && !world_.one_in(4);
  const bool mapped = !usual && swarm_.mapped && (swarm_.crowded || world_.one_in(2));
  const bool windowed = mapped || (!usual && world_.one_in(2));
  // Where frames share chunks, extents of several sizes do not share the same ones.
  live.extent_bytes =
      swarm_.shares_chunks && !usual
          ? std::max<std::uint64_t>(kSmallestExtent, swarm_.extent_bytes >> (chunk_dice_() % 4))
          : swarm_.extent_bytes;
  live.of_device = !usual && !windowed && swarm_.device_frames != 0 && world_.one_in(2);
  const std::uint64_t most = swarm_.large ? 8192 : 6;
  const std::uint64_t extents =
      windowed || live.of_device ? (mapped ? 1 : 2) + world_.below(most) : 1;
  live.bytes = extents * live.extent_bytes - world_.below(live.extent_bytes / 2);
  live.windowed = windowed;
  BufferShape shape;
  shape.bytes = live.bytes;
  shape.extent_shift = static_cast<std::uint8_t>(std::countr_zero(live.extent_bytes));
  shape.extents = static_cast<std::uint32_t>(extents);
  shape.domain = !usual && world_.one_in(4) ? 1 : 0;
  shape.preferred = some_memory();
  const bool droppable = !usual && world_.one_in(5);
  shape.flags = (droppable ? std::uint32_t{kDroppable} : 0) |
                (mapped ? std::uint32_t{kMapped} : 0) |
                (live.of_device ? kOfHeaps : std::uint32_t{0});
  shape.pool = windowed ? host_.window_pool(live.extent_bytes) : Pool::locked;
  live.bound = binds(shape, mapped);
  if (live.bound) {
    shape.flags |= kBound;
  } else if (!swarm_.further_frames.empty() && memory_dice_() % 8 == 0) {
    shape.flags |= kInterleaved;
  }
  const std::string label = fmt::format("buffer{}", next_serial_);
  shape.label = label.c_str();
  const Handle spare = residency_.reuse_spare(shape, windowed);
  if (spare == 0 && windowed) {
    shape.window = *host_.reserve_window(extents * live.extent_bytes, live.extent_bytes, mapped);
  }
  live.mapped = mapped ? shape.window : nullptr;
  const unsigned order = residency_.spares.to_order({shape.extents, shape.extent_shift, windowed},
                                                    spare != 0 || world_.one_in(2));
  if (order != 0 || world_.one_in(6)) {
    Pending& p = new_pending(RequestKind::stock);
    p.request.index = 1 + static_cast<std::uint32_t>(world_.below(8));
    p.request.value = live.extent_bytes;
    note("stock {} of {}", p.request.index, p.request.value);
    mover_.post(&p.request);
  }
  Result<Handle> handle = spare != 0 ? Result<Handle>(spare) : residency_.buffers.create(shape);
  if (!handle.ok()) {
    if (windowed) {
      host_.release_window(shape.window, 0);
    }
    check(handle.code() == Code::no_capacity, handle.message());
    return;
  }
  live.handle = *handle;
  live.model.assign(live.bytes, std::byte{0});
  live.unsure.assign(extents, false);
  note("alloc {} bytes {} window {} spare {}{}{} {} {}", label, live.bytes, windowed, spare != 0,
       droppable ? " droppable" : "", mapped ? " mapped" : "",
       (shape.flags & kBound) != 0         ? "bound to"
       : (shape.flags & kInterleaved) != 0 ? "interleaved, not"
                                           : "prefers",
       shape.preferred);
  if (mapped && swarm_.device_frames != 0) {
    Span span;
    const Access on_device{live.handle, 0, 1, kRead, {Kind::gpu, 0}, 0};
    check(residency_.resolve(on_device, span, "acquire").code() == Code::unsupported,
          "a mapped buffer may be copied to a device");
  }
  if (droppable) {
    droppable_.insert(next_serial_);
  }
  live_.emplace(next_serial_++, std::move(live));
}

Access Simulation::random_access(Live& live, bool discard_whole) {
  Access access;
  access.buffer = live.handle;
  access.offset = world_.one_in(3) ? 0 : world_.below(live.bytes);
  access.length =
      world_.one_in(3) ? live.bytes - access.offset : 1 + world_.below(live.bytes - access.offset);
  access.mode = world_.one_in(3) ? kRead : world_.one_in(3) ? kDiscard : kWrite;
  if (swarm_.large && !world_.one_in(16)) {
    access.length = std::min(access.length, 1 + world_.below(32 * live.extent_bytes));
  }
  if (live.adopted) {
    access.mode = kRead;
  } else if (discard_whole) {
    access.mode = kDiscard;
  }
  if (swarm_.device_frames != 0 && live.mapped == nullptr &&
      (swarm_.shuttles ? !world_.one_in(8) : world_.one_in(3))) {
    access.where = {Kind::gpu, static_cast<std::uint16_t>(world_.below(swarm_.devices))};
  }
  const bool on_device = access.where.kind == Kind::gpu;
  if (on_device ? world_.one_in(2) : live.of_device) {
    const std::uint64_t in_extent = (live.lead + access.offset) % live.extent_bytes;
    access.length = std::min(access.length, live.extent_bytes - in_extent);
  }
  return access;
}

void Simulation::lose_device() {
  FakeMemory& device = devices_[world_.below(swarm_.devices)];
  note("device {} is lost", device.place().index);
  ++world_.faults;
  device.lose();
  told_ = true;  // In a context, a copy that fails does it.
}

// As the runtime does for several extents, or for a program that needs an address.
void Simulation::give_window(Span& span) {
  if (span.space == kHost || span.window != nullptr || (span.count == 1 && !world_.one_in(4))) {
    return;
  }
  FakeMemory& device = devices_[span.space - 1];
  const std::uint64_t bytes = std::uint64_t{span.record->extents.load()} << span.shift;
  std::byte* const made = *device.reserve_window(bytes, std::uint64_t{1} << span.shift, false);
  span.window = residency_.buffers.set_device_window(span.buffer, span.space, made);
  check(span.window == made, "a buffer has a window from an unknown source");
}

Simulation::Pending& Simulation::new_pending(RequestKind want) {
  ++world_.calls;
  posted_ = told_ = true;
  pending_.emplace_back();
  Pending& p = pending_.back();
  p.sim = this;
  p.posted = world_.now;
  p.request.kind = want;
  p.request.context = &p;
  p.request.on_done = [](Request& request) {
    auto* pending = static_cast<Pending*>(request.context);
    pending->sim->completed(*pending);
  };
  return p;
}

void Simulation::acquire() {
  std::vector<Access> list;
  std::vector<std::size_t> buffers;
  if (const auto lost = live_.find(lost_buffer_); lost != live_.end() && world_.one_in(2)) {
    if (!freed(lost->first) && !lost->second.adopted &&
        !lost->second.of_device) {  // A caller that learns of a loss makes the bytes again.
      list.push_back({lost->second.handle, 0, 0, kDiscard, {}, 0});
      buffers.push_back(lost->first);
    }
    lost_buffer_ = world_.one_in(2) ? lost_buffer_ : ~std::size_t{0};
  }
  for (std::uint64_t n = 1 + world_.below(3); n > 0; --n) {
    if (Live* live = pick()) {
      list.push_back(random_access(*live, false));
      buffers.push_back(serial_of(*live));
    }
  }
  if (list.empty()) {
    return;
  }
  std::vector<ViewRecord> views(list.size());
  if (world_.one_in(2)) {
    ++world_.calls;
    const Code code = residency_.try_acquire(list, views);
    if (code == Code::ok) {
      granted(list, views, buffers);
      return;
    }
    check(code == Code::busy, "try_acquire: " + std::string(code_name(code)));
  }
  Pending& p = new_pending(RequestKind::acquire);
  p.list = list;
  p.views = views;
  p.buffers = buffers;
  p.request.views = p.views.data();
  p.request.spans.resize(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    Status status = residency_.resolve(list[i], p.request.spans[i], "acquire");
    check(status.ok(), status.message());
    give_window(p.request.spans[i]);
  }
  p.request.for_stream = swarm_.device_frames != 0 && world_.one_in(2);
  p.request.deadline_ns =
      world_.one_in(8)
          ? Request::kForever
          : world_.now + 1 +
                static_cast<std::int64_t>(world_.below(list[0].length == 0 ? 300'000 : 5'000'000));
  note("acquire of buffers {}, first: buffer{} offset {} length {} mode {} where {}",
       fmt::join(buffers, " "), buffers[0], list[0].offset, list[0].length, list[0].mode,
       static_cast<int>(list[0].where.kind));
  mover_.post(&p.request);
}

void Simulation::completed(Pending& p) {
  p.done = true;
  const Code code = p.request.status.code();
  world_.crossed("answer", p.request.kind, code);
  // A lost device may have to drop bytes that a slot also has. A request that waits for this learns
  // from the next step that they are overwritten there, and from the release at the latest.
  const bool overwritten = (code == Code::lost || code == Code::discarded) && any_lost();
  answered_ += p.request.kind != RequestKind::prefetch && !overwritten ? 1 : 0;
  // Time advances in small steps, except during forks.
  check(p.request.deadline_ns > world_.now - 1'000'000 || p.posted <= forked_,
        fmt::format("a request ended {} us after its deadline",
                    (world_.now - p.request.deadline_ns) / 1000));
  note("{} completed: {} {}", static_cast<int>(p.request.kind), code_name(code),
       p.request.status.message());
  switch (p.request.kind) {
    case RequestKind::gather:
      check(code == Code::ok || code == Code::timed_out || code == Code::cancelled ||
                code == Code::stale_handle ||
                (code == Code::io_error && (faulty() || file_changed(p))),
            fmt::format("gather ended in {}: {}", code_name(code), p.request.status.message()));
      check(code == Code::ok || p.request.status.info() != nullptr, "an error without a sentence");
      break;
    case RequestKind::acquire:
      if (!p.own && (code == Code::lost || code == Code::discarded)) {
        lost_buffer_ = p.buffers[world_.below(p.buffers.size())];
      }
      if (p.own) {
        check(code == Code::ok || code == Code::no_capacity || code == Code::timed_out ||
                  code == Code::busy,
              fmt::format("memory to read into: {}", p.request.status.message()));
      } else if (code == Code::ok && p.touch) {
        touched(p);
      } else if (code == Code::ok) {
        granted(p.list, p.views, p.buffers, &p.request);
      } else {
        check(code == Code::no_capacity || code == Code::timed_out || code == Code::cancelled ||
                  code == Code::stale_handle || code == Code::busy ||
                  (code == Code::invalid_argument && swarm_.device_frames != 0) ||
                  (code == Code::unavailable &&
                   (swarm_.device_frames != 0 || !swarm_.further_frames.empty()) &&
                   (swarm_.faults.memory != 0 || any_lost())) ||
                  (code == Code::io_error && (faulty() || file_changed(p))) ||
                  (code == Code::lost &&
                   (any_port(&FakePort::corrupted) || workers_.any_failed() || any_lost())) ||
                  (code == Code::discarded && names_droppable(p)),
              fmt::format("acquire ended in {}: {}", code_name(code), p.request.status.message()));
        check(p.request.status.info() != nullptr, "an error without a sentence");
      }
      break;
    case RequestKind::free:
      check(code == Code::ok, "free failed");
      break;
    default:
      break;
  }
}

void Simulation::release() {
  if (held_.empty()) {
    return;
  }
  const std::size_t at = world_.below(held_.size());
  await_arrival(at);
  const Held held = held_[at];
  if (!broken(held)) {
    compare(held);
  }
  note("release of buffer{} offset {}", held.buffer, held.access.offset);
  ++world_.calls;
  check(residency_.release({&held.view, 1}) == Code::ok, "release refused a live view");
  check(residency_.release({&held.view, 1}) == Code::invalid_argument, "a view was released twice");
  held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(at));
  compared_ = std::min(compared_, held_.size());
  --live_.at(held.buffer).views;
  reap_freed();
}

void Simulation::free_one() {
  Live* live = pick();
  if (live == nullptr || freed(serial_of(*live))) {
    return;
  }
  const std::size_t serial = serial_of(*live);
  note("free buffer{}", serial);
  ++world_.calls;
  const Code code = residency_.make_spare(live->handle);
  check(code == Code::ok || code == Code::busy, "free of a live handle refused");
  check(residency_.make_spare(live->handle) == Code::stale_handle, "a handle was freed twice");
  if (code == Code::busy) {
    Pending& p = new_pending(RequestKind::free);
    p.request.index = Buffers::index_of(live->handle);
    mover_.post(&p.request);
  }
  gone_.push_back(serial);
  // The model keeps the bytes while there are views of them; no new bytes may reach them.
  zombies_.emplace(serial, std::move(*live));
  live_.erase(serial);
  for (const Held& held : held_) {
    if (held.buffer == serial) {
      live_.emplace(serial, std::move(zombies_.at(serial)));
      break;
    }
  }
  zombies_.erase(serial);
}

void Simulation::ask(RequestKind want) {
  Live* live = pick();
  if (live == nullptr || freed(serial_of(*live))) {
    return;
  }
  if (want == RequestKind::discard && live->adopted) {
    Span span;
    const Access all{live->handle, 0, 0, kDiscard, {}, 0};
    check(residency_.resolve(all, span, "ask").code() == Code::invalid_argument,
          "an adopted file may be overwritten");
    return;
  }
  if (want == RequestKind::discard && (live->views != 0 || wanted(serial_of(*live)))) {
    return;  // With other requests on the bytes, the model could not tell their order.
  }
  if (want == RequestKind::release_memory &&
      (swarm_.device_frames == 0 || live->mapped != nullptr)) {
    return;
  }
  Access access = random_access(*live, want == RequestKind::discard);
  access.mode = want == RequestKind::discard ? kDiscard : kRead;
  // Discards single pages.
  if (want == RequestKind::discard && live->mapped != nullptr && world_.one_in(2)) {
    access.offset -= access.offset % kSmallestExtent;
    access.length =
        std::min(live->bytes - access.offset,
                 (1 + world_.below(live->extent_bytes / kSmallestExtent)) * kSmallestExtent);
  }
  if (want != RequestKind::prefetch) {
    access.where = {};
  }
  if (want == RequestKind::release_memory) {
    access.where = {Kind::gpu, static_cast<std::uint16_t>(world_.below(swarm_.devices))};
  }
  Pending& p = new_pending(want);
  p.buffers = {serial_of(*live)};
  p.request.spans.resize(1);
  Status status = residency_.resolve(access, p.request.spans[0], "ask");
  check(status.ok(), status.message());
  p.request.deadline_ns = world_.now + static_cast<std::int64_t>(world_.below(10'000'000));
  if (want == RequestKind::discard) {
    p.request.deadline_ns = Request::kForever;
  }
  // Steps over rows are read ahead page by page.
  if (want == RequestKind::prefetch && live->mapped != nullptr && p.request.spans[0].count == 1) {
    p.request.in_parts = world_.one_in(2);
    p.request.page =
        static_cast<std::uint8_t>(access.offset % live->extent_bytes / kSmallestExtent);
  }
  note("ask {} of buffer{} offset {} length {}", static_cast<int>(want), p.buffers[0],
       access.offset, access.length);
  if (want == RequestKind::evict && used_by_nobody(*live) && world_.one_in(2)) {
    ask_to_leave(p);
    return;
  }
  mover_.post(&p.request);
  if (want == RequestKind::discard) {
    // Runs it to its end, so that the model knows the bytes.
    finish(p);
    const Span& span = p.request.spans[0];
    if (p.request.status.ok()) {
      for (std::uint32_t i = 0; i < span.count; ++i) {
        if (span.whole(i)) {
          const std::uint64_t begin = (access.offset / live->extent_bytes + i) * live->extent_bytes;
          for (std::uint64_t at = begin; at < std::min(begin + live->extent_bytes, live->bytes);
               ++at) {
            live->model[at] = live->original.empty() ? std::byte{0} : live->original[at];
          }
        } else if (span.emptied(i)) {
          const auto [begin, end] = span.covered(i);
          std::fill(live->model.begin() + static_cast<std::ptrdiff_t>(begin),
                    live->model.begin() + static_cast<std::ptrdiff_t>(end), std::byte{0});
        }
      }
    }
  }
}

bool Simulation::used_by_nobody(const Live& live) const {
  const std::size_t serial = serial_of(live);
  return !swarm_.large && live.views == 0 && !live.adopted && live.mapped == nullptr &&
         children_.empty() && swarm_.device_frames == 0 && droppable_.count(serial) == 0 &&
         std::none_of(pending_.begin(), pending_.end(), [&](const Pending& p) {
           return !p.done && p.request.kind == RequestKind::acquire &&
                  std::find(p.buffers.begin(), p.buffers.end(), serial) != p.buffers.end();
         });
}

// Runs it to its end. Bytes written in memory are then in a slot, or the request fails.
void Simulation::ask_to_leave(Pending& p) {
  const Span span = p.request.spans[0];
  std::vector<ExtentRef> dirty;
  for (ExtentRef ref = span.first; ref < span.first + span.count; ++ref) {
    const ExtentBits bits = residency_.extents.word(kHost, ref).load();
    if (bits.readable() && bits.dirty()) {
      dirty.push_back(ref);
    }
  }
  mover_.post(&p.request);
  finish(p);
  for (const ExtentRef ref : dirty) {
    const Extent& extent = residency_.extents.at(ref);
    // A later prefetch may have brought it in, and it may be written again.
    const ExtentBits bits = residency_.extents.word(kHost, ref).load();
    const bool zeros = !extent.copy().owned() && (bits.phase() == Phase::zero || !bits.dirty());
    const bool written =
        zeros || (extent.copy().owned() && (!extent.copy().partial() || extent.transfer != 0));
    check(!p.request.status.ok() || written,
          fmt::format("extent {} was asked to leave, and was not written down", ref));
  }
}

// Extents of one buffer become another's: those that are in slots only. The answer names them.
void Simulation::move_slots() {
  Live* const from = pick();
  Live* const to = pick();
  if (from == nullptr || to == nullptr || from == to || from->adopted || to->adopted ||
      !from->original.empty() || !to->original.empty() || from->extent_bytes != to->extent_bytes) {
    return;
  }
  const std::uint64_t whole = std::min(from->bytes, to->bytes) / from->extent_bytes;
  const auto flags = [&](const Live& live) {
    return residency_.buffers.find(live.handle)->flags.load() & kDroppable;
  };
  if (whole == 0 || flags(*from) != flags(*to)) {
    return;
  }
  for (const Live* live : {from, to}) {
    if (freed(serial_of(*live)) || live->views != 0 || wanted(serial_of(*live))) {
      return;  // As with a discard.
    }
  }
  const std::uint64_t first = world_.below(whole);
  const std::uint64_t count = 1 + world_.below(whole - first);
  std::vector<std::uint8_t> handed(count);
  Pending& p = new_pending(RequestKind::move_slots);
  p.buffers = {serial_of(*from), serial_of(*to)};
  p.request.moved = handed.data();
  p.request.spans.resize(2);
  for (const Live* live : {from, to}) {
    const Access access{
        live->handle, first * live->extent_bytes, count * live->extent_bytes, kRead, {}, 0};
    const Status status =
        residency_.resolve(access, p.request.spans[live == from ? 0 : 1], "hand over");
    check(status.ok(), status.message());
  }
  note("hand over of buffer{} to buffer{}, {} extents from {}", p.buffers[0], p.buffers[1], count,
       first);
  mover_.post(&p.request);
  finish(p);
  check(p.request.status.ok(), p.request.status.message());
  for (std::uint64_t i = 0; i < count; ++i) {
    if (handed[i] == 0) {
      continue;
    }
    const auto at = static_cast<std::ptrdiff_t>((first + i) * from->extent_bytes);
    const auto end = at + static_cast<std::ptrdiff_t>(from->extent_bytes);
    std::copy(from->model.begin() + at, from->model.begin() + end, to->model.begin() + at);
    to->unsure[first + i] = from->unsure[first + i];
    std::fill(from->model.begin() + at, from->model.begin() + end, std::byte{0});
    from->unsure[first + i] = false;
  }
}

bool Simulation::file_changed(const Pending& p) const {
  return std::any_of(p.buffers.begin(), p.buffers.end(),
                     [&](std::size_t serial) { return changed_files_.count(serial) != 0; });
}

bool Simulation::names_droppable(const Pending& p) const {
  return std::any_of(p.buffers.begin(), p.buffers.end(),
                     [&](std::size_t serial) { return droppable_.count(serial) != 0; });
}

bool Simulation::wanted(std::size_t serial) const {
  for (const Pending& p : pending_) {
    if (!p.done && std::find(p.buffers.begin(), p.buffers.end(), serial) != p.buffers.end()) {
      return true;
    }
  }
  return false;
}

void Simulation::cancel() {
  if (pending_.empty()) {
    return;
  }
  Pending& p = pending_[world_.below(pending_.size())];
  if (!p.done && !p.own &&
      (p.request.kind == RequestKind::acquire || p.request.kind == RequestKind::gather)) {
    note("cancel");
    ++world_.calls;
    p.request.cancel = true;
    mover_.note_cancel();
    told_ = true;
  }
}

void Simulation::set_budget() {
  if (swarm_.block_tier && world_.one_in(4)) {
    if (tiers() != 1 && world_.one_in(3)) {  // All at once.
      for (unsigned tier = 0; tier < tiers(); ++tier) {
        set_block_budget(tier, world_.below(16) * swarm_.extent_bytes);
      }
      return;
    }
    const unsigned tier = some_tier();
    return set_block_budget(
        tier, world_.one_in(2) ? ~std::uint64_t{0} : world_.below(64) * swarm_.extent_bytes);
  }
  const std::uint64_t staging = swarm_.staging_bytes / swarm_.extent_bytes;
  const std::uint64_t frames =
      std::max<std::uint64_t>(1, swarm_.host_frames / 2) + world_.below(swarm_.host_frames);
  Pending& p = new_pending(RequestKind::set_budget);
  p.request.value = (frames + staging) * swarm_.extent_bytes;
  if (swarm_.devices != 0 && world_.one_in(3)) {
    p.request.tier = {Kind::gpu, static_cast<std::uint16_t>(world_.below(swarm_.devices))};
    p.request.value = (1 + world_.below(swarm_.device_frames)) * swarm_.extent_bytes;
  }
  p.request.deadline_ns = world_.now + 1 + static_cast<std::int64_t>(world_.below(3'000'000));
  if (p.request.tier.kind != Kind::gpu && !swarm_.further_frames.empty() &&
      memory_dice_() % 2 == 0) {
    const auto which = static_cast<std::uint16_t>(memory_dice_() % swarm_.further_frames.size());
    p.request.tier = {Kind::numa, static_cast<std::uint16_t>(which + 1)};
    p.request.value = memory_dice_() % (2 * swarm_.further_frames[which] + 1) * swarm_.extent_bytes;
  }
  note("set_budget {} frames", frames);
  mover_.post(&p.request);
  finish(p);
  if (!p.request.status.ok()) {
    // Refused for now: returns to a budget that can be met, as a caller would.
    Pending& back = new_pending(RequestKind::set_budget);
    back.request.value = (2 * swarm_.host_frames + staging) * swarm_.extent_bytes;
    if (p.request.tier.kind == Kind::numa) {
      back.request.tier = p.request.tier;
      back.request.value +=
          2 * swarm_.further_frames[p.request.tier.index - 1u] * swarm_.extent_bytes;
    }
    mover_.post(&back.request);
    finish(back);
    budget_refused_ = budget_refused_ || !back.request.status.ok();
  }
}

void Simulation::advise() {
  if (world_.one_in(4)) {
    ++world_.calls;
    note("tick {}", ordinal_ + 1);
    mover_.note_ordinal(++ordinal_);
    return;
  }
  Live* live = pick();
  if (live == nullptr || freed(serial_of(*live))) {
    return;
  }
  Pending& p = new_pending(RequestKind::advise);
  p.request.spans.resize(1);
  Access access{live->handle, 0, 0, kRead, {}, 0};
  Status status = residency_.resolve(access, p.request.spans[0], "advise");
  check(status.ok(), status.message());
  constexpr std::array kAdvice = {Advice::normal,   Advice::cold,    Advice::streamed, Advice::keep,
                                  Advice::next_use, Advice::touched, Advice::will_need};
  p.request.advice = kAdvice[world_.below(kAdvice.size())];
  p.request.value = ordinal_ + world_.below(3);
  if (!swarm_.further_frames.empty() && memory_dice_() % 3 == 0) {
    p.request.advice = Advice::preferred;
    p.request.tier = memory_dice_() % 8 == 0 ? Place{} : host_.memory(some_memory()).place();
  }
  mover_.post(&p.request);
}

// Each memory of the host gets room again, so that what is bound to it can be read.
void Simulation::raise_budgets() {
  for (std::size_t number = 0; number <= swarm_.further_frames.size(); ++number) {
    const std::uint64_t frames =
        number == 0 ? swarm_.host_frames : swarm_.further_frames[number - 1];
    Pending& p = new_pending(RequestKind::set_budget);
    p.request.tier = host_.memory(static_cast<unsigned>(number)).place();
    p.request.value =
        (2 * (frames + swarm_.host_frames) + swarm_.staging_bytes / swarm_.extent_bytes) *
        swarm_.extent_bytes;
    mover_.post(&p.request);
    finish(p);
    check(p.request.status.ok(), p.request.status.message());
  }
}

// Some buffers live in one memory of the host only, as objects by pointer do.
bool Simulation::binds(const BufferShape& shape, bool mapped) {
  return !swarm_.further_frames.empty() && memory_dice_() % 8 == 0 &&
         host_.memory(shape.preferred)
             .takes({shape.pool, std::uint64_t{1} << shape.extent_shift, 0, !mapped});
}

// Draws the memory of the host that a buffer prefers, by its number. Half of the buffers prefer the
// first one. A world with one memory draws nothing.
std::uint8_t Simulation::some_memory() {
  if (swarm_.further_frames.empty() || memory_dice_() % 2 == 0) {
    return 0;
  }
  return static_cast<std::uint8_t>(1 + memory_dice_() % swarm_.further_frames.size());
}

}  // namespace tiermem::sim
