// Views and the model: the bytes under a view must match the model at its grant, at every use, and
// at its release.
#include "tests/sim/simulation.hpp"

namespace tiermem::sim {

// Compares the bytes under a fresh view with the model, unless the view discards.
void Simulation::granted(const std::vector<Access>& list, const std::vector<ViewRecord>& views,
                         const std::vector<std::size_t>& buffers, const Request* request) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    held_.push_back({views[i], list[i], buffers[i]});
    Held& held = held_.back();
    Live& live = live_.at(buffers[i]);
    ++live.views;
    if (request != nullptr && request->for_stream && views[i].place.kind == Kind::gpu) {
      const Span& span = request->spans[i];
      for (ExtentRef ref = span.first; ref < span.first + span.count; ++ref) {
        if (residency_.extents.word(span.space, ref).load().phase() == Phase::incoming) {
          held.arrival = request->arrivals[span.space];
          check(held.arrival != 0, "a stream does not know what it waits for");
        }
      }
      held.ended_before = ended_before_step_[views[i].place.index];
    }
    held.fills = list[i].mode == kDiscard;
    if (held.fills && held.arrival == 0) {
      fill(held);
      held.fills = false;
    }
  }
  // A reader granted together with a discarding view may see old bytes until they are overwritten.
  // Therefore all discards of a step are filled before any comparison.
  if (!stepping_) {
    compare_new();
  }
}

void Simulation::compare_new() {
  for (; compared_ < held_.size(); ++compared_) {
    if (arrived(held_[compared_]) && !broken(held_[compared_])) {
      compare(held_[compared_]);
    }
  }
}

void Simulation::fill_arrived() {
  for (Held& held : held_) {
    if (held.fills && arrived(held)) {
      held.fills = false;
      // Even if a copy under the view failed: the stream has not learned of that, and extents that
      // needed no copy get its writes.
      if (!devices_[held.view.place.index].lost()) {
        fill(held);
      }
    }
  }
}

// As its stream does: it does nothing before.
void Simulation::await_arrival(std::size_t held) {
  while (!arrived(held_[held])) {
    world_.now = std::max(world_.now, std::min(workers_.next_due(), next_step_));
    step();
  }
}

void Simulation::store(const Held& held, std::uint64_t i, std::byte value) {
  auto* at = static_cast<std::byte*>(held.view.data) + i;
  if (held.view.place.kind == Kind::gpu) {
    devices_[held.view.place.index].store(at, value);
  } else {
    host_.written(at);
    *at = value;
  }
  live_.at(held.buffer).model[held.access.offset + i] = value;
}

void Simulation::fill(const Held& held) {
  if (swarm_.sparse && !world_.one_in(4)) {
    return fill_sparsely(held);
  }
  const auto value = static_cast<std::byte>(world_.below(256));
  if (held.view.place.kind != Kind::gpu) {  // As store() does, at once.
    auto* const data = static_cast<std::byte*>(held.view.data);
    for (std::uint64_t at = 0; at < held.view.length; at += kSmallestExtent) {
      host_.written(data + at);
    }
    host_.written(data + held.view.length - 1);
    std::fill_n(data, held.view.length, value);
    std::fill_n(
        live_.at(held.buffer).model.begin() + static_cast<std::ptrdiff_t>(held.access.offset),
        held.view.length, value);
    return;
  }
  for (std::uint64_t i = 0; i < held.view.length; ++i) {
    store(held, i, value);
  }
}

// Makes some bytes of a few pages nonzero.
void Simulation::fill_sparsely(const Held& held) {
  for (std::uint64_t i = 0; i < held.view.length; ++i) {
    store(held, i, std::byte{0});
  }
  for (std::uint64_t n = world_.below(3); n > 0; --n) {
    store(held, world_.below(held.view.length), static_cast<std::byte>(1 + world_.below(255)));
  }
}

void Simulation::compare(const Held& held) {
  const Live& live = live_.at(held.buffer);
  if (live.adopted) {
    compare_adopted(held);
    return;
  }
  const bool on_host = held.view.place.kind != Kind::gpu;
  if (on_host &&
      std::memcmp(held.view.data, live.model.data() + held.access.offset, held.view.length) == 0) {
    return;
  }
  for (std::uint64_t i = 0; i < held.view.length; ++i) {
    if (load(held, i) != live.model[held.access.offset + i]) {
      failed(fmt::format("buffer{} byte {}: {:#x} in the view, {:#x} in the model", held.buffer,
                         held.access.offset + i, static_cast<unsigned>(load(held, i)),
                         static_cast<unsigned>(live.model[held.access.offset + i])));
    }
  }
}

// As a program that often views the same bytes: a view biases their extents, and the next one is
// pinned by its slot. The draws are separate, as for touches.
void Simulation::view_again(std::size_t at) {
  for (std::uint64_t n = slot_dice_() % 4; n > 0 && held_.size() < 64; --n) {
    const std::size_t buffer = held_[at].buffer;
    Access access = held_[at].access;
    if (freed(buffer) || access.where.kind == Kind::gpu) {
      return;
    }
    access.mode &= ~std::uint32_t{kDiscard};
    access.mode = access.mode == 0 ? std::uint32_t{kWrite} : access.mode;
    ViewRecord view;
    ++world_.calls;
    const Code code = residency_.try_acquire({&access, 1}, {&view, 1});
    check(code == Code::ok || code == Code::busy, "a second view: " + std::string(code_name(code)));
    if (code == Code::ok) {
      note("another view of buffer{} offset {}", buffer, access.offset);
      granted({access}, {view}, {buffer});
    }
  }
}

void Simulation::use_view() {
  if (held_.empty()) {
    return;
  }
  const std::size_t at = world_.below(held_.size());
  if (!arrived(held_[at]) || broken(held_[at])) {
    return;
  }
  compare(held_[at]);
  view_again(at);
  Held& held = held_[at];
  if (held.access.mode != kRead && swarm_.sparse && world_.one_in(4)) {
    return fill_sparsely(held);
  }
  if (held.access.mode != kRead) {
    const std::uint64_t from = world_.below(held.view.length);
    const std::uint64_t n = 1 + world_.below(std::min<std::uint64_t>(held.view.length - from, 64));
    for (std::uint64_t i = from; i < from + n; ++i) {
      store(held, i, static_cast<std::byte>(world_.below(256)));
    }
  }
}

// The program reads or writes a mapped buffer anywhere, without a view. If the extent is not in its
// window, the program waits like a thread in a page fault.
void Simulation::touch() {
  Live* live = nullptr;
  for (int tries = 0; tries < 8 && (live == nullptr || live->mapped == nullptr); ++tries) {
    live = pick();
  }
  if (live == nullptr || live->mapped == nullptr) {
    return;
  }
  const std::uint64_t at = world_.below(live->bytes);
  const std::uint64_t extent = (live->lead + at) / live->extent_bytes;
  const std::uint64_t page = (live->lead + at) / kSmallestExtent;
  const std::uint64_t end = std::min(live->bytes, (page + 1) * kSmallestExtent - live->lead);
  const Access access{live->handle, at, 1 + world_.below(end - at), kRead, {}, 0};
  const bool writes = world_.one_in(swarm_.touches_write) && !live->adopted;
  if (host_.present(live->mapped + page * kSmallestExtent)) {
    if (prepared_anew(*live, access)) {
      touch_early(*live, access);
      return;
    }
    note("touch of buffer{} offset {} length {}{}", serial_of(*live), at, access.length,
         writes ? " writing" : "");
    touch_now(*live, access, writes);
    return;
  }
  const bool told = told_, posted = posted_;
  Pending& p = new_pending(RequestKind::acquire);
  p.touch = true;
  p.writes = writes;
  p.list = {access};
  p.buffers = {serial_of(*live)};
  p.request.spans.resize(1);
  Status status = residency_.resolve(access, p.request.spans[0], "touch");
  check(status.ok(), status.message());
  p.request.deadline_ns = Request::kForever;
  p.request.in_parts = !world_.one_in(4);
  p.request.changes = writes && world_.one_in(2);
  p.request.page = static_cast<std::uint8_t>(page - extent * live->extent_bytes / kSmallestExtent);
  note("fault of buffer{} offset {} length {}{}", p.buffers[0], at, access.length,
       writes ? " writing" : "");
  if (own_touches_ && touch_dice_() % 2 == 0) {
    begin_own(p, told, posted);
  } else {
    mover_.post(&p.request);
  }
}

// The mover need not step for such a touch, unless it says so.
void Simulation::begin_own(Pending& p, bool told, bool posted) {
  Job* const job = mover_.begin_touch(p.request, world_.now);
  const bool needs = mover_.needs_step();
  told_ = told || needs;
  posted_ = posted || needs;
  world_.crossed("own touch", job != nullptr, needs);
  if (job != nullptr) {
    own_reads_.push_back(
        {job, world_.now + static_cast<std::int64_t>(10'000 + touch_dice_() % 400'000)});
  }
}

std::int64_t Simulation::hangs_until(const Job& job) const {
  for (unsigned tier = 0; tier < tiers(); ++tier) {
    if (job.slots == &block(tier) && job.io.length != 0) {
      return port(tier).hangs_until(block(tier).device_of(job.io.slot));
    }
  }
  return 0;
}

void Simulation::end_own_reads() {
  for (std::size_t i = 0; i < own_reads_.size();) {
    Job& job = *own_reads_[i].job;
    if (std::max(own_reads_[i].due, hangs_until(job)) > world_.now) {
      ++i;
      continue;
    }
    own_reads_.erase(own_reads_.begin() + static_cast<std::ptrdiff_t>(i));
    begin_job(job, nullptr);
    check(run_job(job), "a read by a toucher goes on without it");
    mover_.end_touch(job, world_.now);
    told_ = told_ || mover_.needs_step();
    world_.crossed("own read", told_);
  }
}

// The bytes may have been dropped or lost, while a discarding view is pending, or was, and its
// frame has not left yet. The window then has zeros without a grant. A program that touches them
// races with itself.
bool Simulation::prepared_anew(const Live& live, const Access& access) {
  if (live.adopted) {
    return false;
  }
  if (droppable_.count(serial_of(live)) == 0 && !any_port(&FakePort::corrupted)) {
    return false;
  }
  const BufferRecord* record = residency_.buffers.find(live.handle);
  const auto ref = record->first.load() + static_cast<ExtentRef>(access.offset / live.extent_bytes);
  const auto discards = [&](const Access& other) {
    return other.buffer == live.handle && other.mode == kDiscard;
  };
  const Phase phase = residency_.extents.word(kHost, ref).load().phase();
  // Or it is granted in this step.
  return phase == Phase::incoming || phase == Phase::outgoing ||
         std::any_of(pending_.begin(), pending_.end(), [&](const Pending& p) {
           return !p.done && !p.touch && std::any_of(p.list.begin(), p.list.end(), discards);
         });
}

// Zeros or the newest bytes, but never another buffer's.
void Simulation::touch_early(const Live& live, const Access& access) {
  for (std::uint64_t i = access.offset; i < access.offset + access.length; ++i) {
    check(live.mapped[i] == live.model[i] || live.mapped[i] == std::byte{0},
          "bytes of no buffer are in a window");
  }
}

void Simulation::touch_now(Live& live, const Access& access, bool writes) {
  if (live.adopted) {
    touch_file(live, access);
    return;
  }
  for (std::uint64_t i = access.offset; i < access.offset + access.length; ++i) {
    if (live.mapped[i] != live.model[i]) {
      failed(fmt::format("mapped buffer{} byte {}: {:#x} there, {:#x} in the model",
                         serial_of(live), i, static_cast<unsigned>(live.mapped[i]),
                         static_cast<unsigned>(live.model[i])));
    }
    if (writes) {
      live.model[i] = static_cast<std::byte>(world_.below(256));
      live.mapped[i] = live.model[i];
      host_.written(live.mapped + i);
    }
  }
}

// The fault has been served. The extent is not pinned and may be leaving again. In that case the
// toucher faults once more, which is another call.
void Simulation::touched(Pending& p) {
  Live& live = live_.at(p.buffers[0]);
  const Access& access = p.list[0];
  if (host_.present(live.mapped +
                    (live.lead + access.offset) / kSmallestExtent * kSmallestExtent)) {
    prepared_anew(live, access) ? touch_early(live, access) : touch_now(live, access, p.writes);
  }
}

}  // namespace tiermem::sim
