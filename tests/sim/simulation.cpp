// The run of one seed: the machine, the draw of the next event, time, and the end, at which every
// byte must be readable.
#include "tests/sim/simulation.hpp"

#include "tests/sim/coverage.hpp"

namespace tiermem::sim {

Simulation::Simulation(std::uint64_t seed, bool verbose, const std::vector<std::string>& without,
                       bool memories)
    : world_(seed),
      swarm_(world_, seed, memories,
             std::find(without.begin(), without.end(), "tiers") == without.end()),
      verbose_(verbose),
      dice_(world_, swarm_.faults),
      host_((swarm_.host_frames + (swarm_.device_frames != 0 ? 2 : 0)) * swarm_.extent_bytes,
            {Kind::dram, 0}, dice_),
      devices_{FakeMemory(swarm_.device_frames * swarm_.extent_bytes, {Kind::gpu, 0}, dice_),
               FakeMemory(swarm_.device_frames * swarm_.extent_bytes, {Kind::gpu, 1}, dice_)},
      port_(world_, swarm_.faults, swarm_.disks, std::uint64_t{swarm_.large ? 1024u : 64u} << 20),
      block_(port_, {.depth = 1 + static_cast<unsigned>(world_.below(8)),
                     .piece_bytes = std::uint64_t{4096} << world_.below(4),
                     .budget = swarm_.block_budget}),
      files_(world_, swarm_.faults),
      workers_(world_, swarm_.faults),
      direct_(block_, port_, dice_, workers_),
      residency_(64, swarm_.large ? 1u << 17 : 256, 1 + swarm_.devices),
      mover_(residency_, spaces(), slot_tiers(), &files_, workers_, options()) {
  for (unsigned i = 0; i < devices_.size(); ++i) {
    residency_.device_space[i + 1] = &devices_[i];
    devices_[i].copy_by(workers_);
  }
  if (swarm_.devices == 2) {
    // Separately for each direction: a machine may have it in one only.
    for (unsigned i = 0; i < 2; ++i) {
      if (!world_.one_in(3)) {
        devices_[i].befriend(devices_[1 - i]);
      }
    }
  }
  for (const std::string& name : without) {
    check(swarm_.leave_out(name), "there is no call or fault " + name);
  }
  if (swarm_.worn) {
    mover_.test_begin_near_wrap(swarm_.left);
    residency_.buffers.test_leave_lives(swarm_.left);
  }
  memory_dice_.seed(seed);
  file_dice_.seed(seed + 0xD1B54A32D192ED03u);
  touch_dice_.seed(seed + 0xDA942042E4DD58B5u);
  own_touches_ = touch_dice_() % 2 == 0;
  slot_dice_.seed(seed + 0x27D4EB2F165667C5u);
  chunk_dice_.seed(seed + 0x85EBCA77C2B2AE63u);
  known_dice_.seed(seed + 0x9E3779B97F4A7C15u);
  residency_.bias_each = seed % 4 == 0 ? 8 : 1;
  residency_.wake = [](void* self) { static_cast<Simulation*>(self)->told_ = true; };
  residency_.wake_argument = this;
  if (world_.one_in(2)) {
    residency_.spares.set_limit(swarm_.host_frames *
                                swarm_.extent_bytes);  // More than the mover allows.
  }
}

void Simulation::run(std::uint64_t events) {
  while (events_ < events) {
    ++events_;
    std::uint64_t& some_ago = faults_before_[events_ % faults_before_.size()];
    Coverage::event(std::exchange(some_ago, world_.faults), &world_.faults);
    act();
    settle_once();
  }
  drain();
  Coverage::event(0, nullptr);
}

std::vector<AddressSpace*> Simulation::spaces() {
  std::vector<AddressSpace*> all = {&host_};
  for (const std::uint64_t frames : swarm_.further_frames) {
    host_.add_memory(frames * swarm_.extent_bytes,
                     {Kind::numa, static_cast<std::uint16_t>(host_.memories().size())});
  }
  if (swarm_.shares_chunks) {
    host_.share_chunks(2 * swarm_.extent_bytes);
  }
  if (swarm_.last_is_plain) {
    host_.memory(static_cast<unsigned>(host_.memories().size()) - 1).take_plain_only();
  }
  for (unsigned i = 0; i < swarm_.devices; ++i) {
    all.push_back(&devices_[i]);
  }
  return all;
}

std::vector<SlotTier*> Simulation::slot_tiers() {
  std::vector<SlotTier*> all;
  if (swarm_.compressed != 0) {
    all.push_back(&compressed_.emplace(swarm_.compressed));
  }
  if (swarm_.block_tier) {
    all.push_back(&block_);
  }
  for (unsigned rank = 1; rank <= swarm_.further.size(); ++rank) {
    all.push_back(&further_.emplace_back(world_, swarm_, rank).block);
  }
  return all;
}

// Returns when the next transfer of a disk ends.
std::int64_t Simulation::disks_due() const {
  std::int64_t due = port_.next_due();
  for (const Further& each : further_) {
    due = std::min(due, each.port.next_due());
  }
  for (const OwnRead& each : own_reads_) {
    due = std::min(due, std::max(each.due, hangs_until(*each.job)));
  }
  return due;
}

MoverOptions Simulation::options() {
  MoverOptions o;
  o.checksums = swarm_.checksums;
  o.checksum_block_bytes = 4096;
  o.prefetch_limit = 1 + static_cast<unsigned>(world_.below(8));
  o.ahead_bytes_max = world_.below(4) * swarm_.extent_bytes;
  o.own_job_bytes = world_.one_in(2) ? 0 : swarm_.extent_bytes;
  o.workers_move = world_.one_in(2);
  o.usual_part = static_cast<unsigned>(world_.below(3));
  o.least_level = o.prefetch_limit % 4;
  o.bounce_area_bytes = swarm_.extent_bytes;
  o.ready_share = swarm_.ready_share;
  o.scan_bytes = swarm_.extent_bytes * 4;
  o.budget_per_bounce_area = (swarm_.crowded ? 4 : (1 + world_.below(4)) * 8) * swarm_.extent_bytes;
  o.staging_frame_bytes = swarm_.staging_frame;
  o.staging_bytes = swarm_.staging_bytes;
  o.direct = swarm_.direct ? &direct_ : nullptr;
  o.degraded_ns = 20'000'000;  // So that devices recover within a run.
  return o;
}

// Whether a runtime would have called the mover by now.
bool Simulation::step_is_due() const {
  return told_ ||
         std::min({disks_due(), files_.next_due(), workers_.next_due(), next_step_}) <= world_.now;
}

void Simulation::step() {
  // A search for victims that ended without success continues with any step, so an unrequested step
  // may answer. If something is under way, its end would have caused that step.
  const bool due =
      step_is_due() || std::min({disks_due(), files_.next_due(), workers_.next_due()}) != INT64_MAX;
  end_own_reads();
  const std::int64_t asked_for = next_step_;
  const std::uint64_t before = answered_;
  told_ = false;
  stepping_ = true;
  posted_ = false;
  ended_before_step_ = {workers_.ended(0), workers_.ended(1)};
  note_models();
  next_step_ = mover_.step(world_.now);
  world_.crossed("step", next_step_);
  stepping_ = false;
  for (unsigned tier = 0; tier < tiers(); ++tier) {
    any_degraded_ = any_degraded_ || block(tier).degraded() != 0;
  }
  // No request may depend on a step that may never come.
  if (!due && answered_ != before) {
    failed(
        fmt::format("the mover answered a request {} ns before the time that it had asked for\n{}",
                    asked_for - world_.now, mover_.describe()));
  }
  compare_readings();
  fill_arrived();
  compare_new();
  count_fruitless(next_step_ <= world_.now);
  if (++steps_ % (swarm_.large ? 256 : 1) == 0) {
    const std::string broken = mover_.check_invariants();
    check(broken.empty(), "invariant: " + broken);
  }
  check_pins();
  compare_children();
  if (steps_ % (swarm_.large ? 1024 : 32) == 0) {  // Expensive: it walks every chunk.
    for (unsigned tier = 0; tier < tiers(); ++tier) {
      const Status right = block(tier).check_invariants();
      check(right.ok(), fmt::format("block tier {}: {}", tier, right.message()));
    }
    const Status right = compressed_ ? compressed_->check_invariants() : Status();
    check(right.ok(), fmt::format("compressed memory: {}", right.message()));
  }
}

// Bytes that a view shows cannot leave: each extent of the view is pinned.
void Simulation::check_pins() {
  for (const Held& held : held_) {
    const Live& live = live_.at(held.buffer);
    const BufferRecord& record = residency_.buffers.at(Buffers::index_of(live.handle));
    const unsigned space =
        held.view.place.kind == Kind::gpu ? 1 + held.view.place.index : unsigned{kHost};
    const std::uint64_t begin = (live.lead + held.access.offset) / live.extent_bytes;
    const std::uint64_t end =
        (live.lead + held.access.offset + held.view.length - 1) / live.extent_bytes;
    for (std::uint64_t i = begin; i <= end; ++i) {
      const auto ref = record.first.load() + static_cast<ExtentRef>(i);
      check(residency_.extents.word(space, ref).load().pinned(),
            fmt::format("buffer{}: extent {} is not pinned, and a view shows it", held.buffer, i));
    }
  }
}

// No spin: a step that requests another at once has done something, or is part of a search that
// ends.
void Simulation::count_fruitless(bool asks_again) {
  std::uint64_t done = mover_.activity() + workers_.events() + files_.events() + world_.calls;
  for (unsigned tier = 0; tier < tiers(); ++tier) {
    done += port(tier).events();
  }
  done += compressed_ ? compressed_->pages() : 0;
  fruitless_ = asks_again && done == progress_ ? fruitless_ + 1 : 0;
  progress_ = done;
  most_fruitless_ = std::max(most_fruitless_, fruitless_);
  if (fruitless_ > kMostFruitless) {
    failed(fmt::format("{} steps asked for another at once and did nothing\n{}", fruitless_,
                       mover_.describe()));
  }
}

// Advances to the next completion or deadline, or a little. A request wakes the mover first.
void Simulation::settle_once() {
  if (posted_) {
    world_.now += static_cast<std::int64_t>(world_.below(20'000));
    step();
  }
  if (world_.one_in(3)) {
    const std::int64_t due =
        std::min({disks_due(), files_.next_due(), workers_.next_due(), next_step_});
    if (due != INT64_MAX) {
      world_.now = std::max(world_.now, due);
    }
  }
  world_.now += static_cast<std::int64_t>(world_.below(20'000));
  step();
}

Simulation::Live* Simulation::pick() {
  if (live_.empty()) {
    return nullptr;
  }
  auto at = live_.begin();
  std::advance(at, static_cast<std::ptrdiff_t>(world_.below(live_.size())));
  return freed(at->first) ? nullptr : &at->second;  // It remains only for its views.
}

std::size_t Simulation::serial_of(const Live& live) const {
  for (const auto& [serial, other] : live_) {
    if (&other == &live) {
      return serial;
    }
  }
  return ~std::size_t{0};
}

void Simulation::act() {
  if (world_.below(1000) < swarm_.troubles) {
    return trouble();
  }
  if (world_.below(1000) < swarm_.inspects) {
    return inspect();
  }
  std::uint64_t total = 0;
  for (const std::uint64_t weight : swarm_.weights) {
    total += weight;
  }
  std::uint64_t draw = world_.below(total);
  std::size_t which = 0;
  while (draw >= swarm_.weights[which]) {
    draw -= swarm_.weights[which++];
  }
  switch (which) {
    case 0:
      return alloc();
    case 1:
      return acquire();
    case 2:
      return release();
    case 3:
      return use_view();
    case 4:
      return free_one();
    case 5:
      return ask(RequestKind::prefetch);
    case 6:
      return ask(RequestKind::evict);
    case 7:
      return ask(RequestKind::discard);
    case 8:
      return cancel();
    case 9:
      return ask(RequestKind::clean);
    case 10:
      return set_budget();
    case 11:
      return adopt();
    case 12:
      return change_file();
    case 13:
      return touch();
    case 15:
      return fork_or_end();
    case 16:
      return move_slots();
    case 17:
      return lose_device();
    case 18:
      return ask(RequestKind::release_memory);
    case 19:
      gather();
      return confirm();
    default:
      return advise();
  }
}

// Advances virtual time until this request is done; a request that never ends is a failure.
void Simulation::finish(Pending& p) {
  const std::int64_t until = world_.now + std::int64_t{60} * 1'000'000'000;
  std::uint64_t steps = 0;
  while (!p.done) {
    step();
    if (p.done) {
      break;
    }
    while (stopped_ && !held_.empty()) {
      release();  // Views granted since; other requests may wait for them.
      next_step_ = world_.now;
    }
    const std::int64_t next =
        std::min({disks_due(), files_.next_due(), workers_.next_due(), next_step_});
    if (next == INT64_MAX) {
      failed(fmt::format("request {} waits for nothing\n{}", static_cast<int>(p.request.kind),
                         mover_.describe()));
    }
    world_.now = std::max(world_.now + 1, next);
    if (world_.now >= until || ++steps > 200'000) {
      failed(fmt::format("request {} did not end in a minute of virtual time or in {} steps\n{}",
                         static_cast<int>(p.request.kind), steps, mover_.describe()));
    }
  }
}

// Ends faults and views: every wait must end soon, and every byte must be readable.
void Simulation::drain() {
  stopped_ = true;
  for (unsigned tier = 0; tier < tiers(); ++tier) {
    port(tier).heal();
  }
  workers_.heal();
  disks_filled_ =
      swarm_.faults.no_space != 0;  // The tier retries a full file system only after a pause.
  swarm_.faults = {};
  note("faults stop");
  while (!held_.empty()) {
    release();
  }
  const std::int64_t calm = world_.now;
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    finish(pending_[i]);  // This may make further requests.
  }
  calm_ns_ = world_.now - calm;
  check(calm_ns_ <= kCalmNs,
        fmt::format("what waited when the faults stopped took {} ms more", calm_ns_ / 1'000'000));
  if (swarm_.block_tier) {
    for (unsigned tier = 0; tier < tiers(); ++tier) {
      set_block_budget(tier, ~std::uint64_t{0});
    }
  }
  while (!held_.empty()) {
    release();  // The last granted views. Readers do not wait for pins of heap memory.
  }
  if (!swarm_.further_frames.empty()) {
    raise_budgets();
  }
  for (auto& [serial, live] : live_) {
    // In whole extents; for an adopted file's first extent, without the bytes before it.
    const bool many = swarm_.large && live.windowed && !live.bound;
    const std::uint64_t at_once = live.extent_bytes * (many ? 64 : 1);
    for (std::uint64_t from = 0, to = 0; from < live.bytes; from = to) {
      to = std::min(live.bytes, (live.lead + from) / live.extent_bytes * live.extent_bytes +
                                    at_once - live.lead);
      Pending& p = new_pending(RequestKind::acquire);
      p.list = {Access{live.handle, from, to - from, kRead, {}, 0}};
      p.views.resize(1);
      p.buffers = {serial};
      p.request.views = p.views.data();
      p.request.spans.resize(1);
      Status status = residency_.resolve(p.list[0], p.request.spans[0], "read back");
      check(status.ok(), status.message());
      mover_.post(&p.request);
      finish(p);
      const bool right =
          p.request.status.ok() ||
          (p.request.status.code() == Code::lost &&
           (any_port(&FakePort::corrupted) || workers_.any_failed() || any_lost())) ||
          (p.request.status.code() == Code::discarded && names_droppable(p)) ||
          (p.request.status.code() == Code::io_error &&
           (changed_files_.count(serial) != 0 || any_port(&FakePort::any_gone))) ||
          (p.request.status.code() == Code::no_capacity &&
           (!swarm_.block_tier || any_degraded_ || disks_filled_ || any_port(&FakePort::any_gone)));
      if (!right) {
        failed(fmt::format("read back of buffer{}: {}\n{}", serial, p.request.status.message(),
                           mover_.describe()));
      }
      while (!held_.empty()) {
        release();
      }
    }
  }
  mover_.fill_stats(stats_);
  while (!live_.empty()) {
    free_one();
  }
  while (!children_.empty()) {
    end_child(children_.size() - 1);
  }
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    finish(pending_[i]);  // This may make further requests.
  }
  Pending& p = new_pending(RequestKind::drain);
  mover_.post(&p.request);
  finish(p);
  for (std::uint32_t index = residency_.spares.take_oldest(); index != Spares::kNone;
       index = residency_.spares.take_oldest()) {
    Pending& last = new_pending(RequestKind::free);
    last.request.index = index;
    mover_.post(&last.request);
    finish(last);
  }
  step();
  const std::uint64_t staging = swarm_.staging_bytes + mover_.bounce_bytes();
  (void)host_.begin_trim(~std::uint64_t{0});  // Parts that left stay charged until this call.
  host_.finish_trim();
  const std::uint64_t frames = host_.usage().in_use - host_.free_in_chunks();
  check(frames == staging, fmt::format("{} bytes of frames leaked", frames - staging));
  for (unsigned number = 1; number < host_.memories().size(); ++number) {
    FakeMemory& further = host_.memory(number);
    (void)further.begin_trim(~std::uint64_t{0});
    further.finish_trim();
    check(further.usage().in_use == 0,
          fmt::format("{} bytes of frames of memory {} leaked", further.usage().in_use, number));
  }
  for (const FakeMemory& device : devices_) {
    check(device.usage().in_use == 0, "frames of a device leaked");
    check(device.windows() == 0, "a device's window leaked");
  }
  for (unsigned tier = 0; tier < tiers(); ++tier) {
    const std::uint64_t in_use = block(tier).usage().in_use;
    check(in_use == 0, fmt::format("{} bytes of slots leaked in tier {}", in_use, tier));
  }
  check(!compressed_ || compressed_->usage().in_use == 0, "compressed slots leaked");
  check(host_.windows() == 0, "a window leaked");
  check(files_.closed(), "a file was left open");
  check(residency_.views.count() == 0, "a view leaked");
  check(mover_.idle(), "the mover is not idle");
}

}  // namespace tiermem::sim
