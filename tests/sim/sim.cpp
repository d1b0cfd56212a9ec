// The simulator: the production mover, residency, policy and block tier on virtual time, with memories,
// devices and hands that delay, reorder and fail. A random workload from a seed; a plain map of bytes as the
// model; check_invariants() after every event.
//
//   tiermem-sim [--seeds N] [--first S] [--seed S] [--events N] [--verbose]
//
// A failing seed is printed with its last operations, and `--seed S` replays it exactly. Exit code 0: all
// seeds passed; 1: one failed; 2: usage.
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <stdexcept>
#include <string>

#include "mover/mover.hpp"
#include "tests/sim/fake_devices.hpp"
#include "tier/block.hpp"

namespace tiermem::sim {
namespace {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Each seed draws its own machine, its own mix of calls and its own faults.
struct Swarm {
  explicit Swarm(World& world)
      : host_frames(4 + world.below(28)),
        device_frames(world.one_in(2) ? 0 : 3 + world.below(13)),
        extent_bytes(world.one_in(3) ? 8192 : 4096),
        disks(1 + static_cast<unsigned>(world.below(3))),
        checksums(!world.one_in(5)),
        block_tier(!world.one_in(10)) {
    const auto rate = [&](std::uint64_t often) { return world.one_in(2) ? 0 : often + world.below(200); };
    if (!world.one_in(3)) {
      faults.io_error = rate(10);
      faults.short_io = rate(5);
      faults.again = rate(5);
      faults.torn = rate(10);
      faults.no_space = rate(3);
      faults.memory = rate(20);
      faults.slow = rate(20);
      if (checksums) {
        faults.flip = rate(30);
        faults.lost_write = rate(40);
      }
    }
    for (auto& weight : weights) {
      weight = world.one_in(4) ? 0 : 1 + world.below(10);
    }
    weights[0] += 2;  // Some allocation,
    weights[1] += 4;  // and some access, always.
  }
  std::uint64_t host_frames, device_frames, extent_bytes;
  unsigned disks;
  bool checksums, block_tier;
  FaultRates faults;
  std::array<std::uint64_t, 12> weights{};
};

struct Dice final : FaultDice {
  Dice(World& w, const FaultRates& r) : world(w), rates(r) {}
  World& world;
  const FaultRates& rates;
  bool strikes(const char*) override { return world.one_in(rates.memory); }
};

class Simulation {
 public:
  Simulation(std::uint64_t seed, bool verbose)
      : world_(seed),
        swarm_(world_),
        verbose_(verbose),
        dice_(world_, swarm_.faults),
        host_((swarm_.host_frames + (swarm_.device_frames != 0 ? 2 : 0)) * swarm_.extent_bytes, false, dice_),
        device_(swarm_.device_frames * swarm_.extent_bytes, true, dice_),
        port_(world_, swarm_.faults, swarm_.disks, std::uint64_t{64} << 20),
        block_(port_, {.depth = 1 + static_cast<unsigned>(world_.below(8)), .piece_bytes = 4096}),
        hands_(world_, swarm_.faults),
        residency_(64, 256, swarm_.device_frames != 0 ? 2 : 1),
        mover_(residency_, memories(), swarm_.block_tier ? &block_ : nullptr, nullptr, hands_, options()) {
    residency_.device_address = [](void* self, unsigned space, ExtentRef ref) {
      auto* sim = static_cast<Simulation*>(self);
      return sim->device_.landing(sim->residency_.extents.frame(space, ref), nullptr);
    };
    residency_.device_argument = this;
  }

  void run(std::uint64_t events) {
    for (std::uint64_t i = 0; i < events; ++i) {
      act();
      settle_once();
    }
    drain();
  }
  const std::deque<std::string>& history() const { return history_; }

 private:
  struct Live {
    Handle handle = 0;
    std::uint64_t bytes = 0;
    std::uint64_t extent_bytes = 0;
    bool windowed = false;
    std::vector<std::byte> model;
    std::vector<bool> unsure;  // Bytes of extents that may be lost.
    unsigned views = 0;
  };
  struct Held {
    ViewRecord view;
    Access access;
    std::size_t buffer;  // Serial number.
  };
  struct Pending {
    Request request;
    Simulation* sim = nullptr;
    std::vector<Access> list;
    std::vector<ViewRecord> views;
    std::vector<std::size_t> buffers;
    std::size_t dropped = ~std::size_t{0};
    std::int64_t posted = 0;
    bool done = false;
  };

  std::vector<AddressableTier*> memories() {
    if (swarm_.device_frames != 0) {
      return {&host_, &device_};
    }
    return {&host_};
  }
  MoverOptions options() {
    MoverOptions o;
    o.checksums = swarm_.checksums;
    o.checksum_block_bytes = 4096;
    o.prefetch_limit = 1 + static_cast<unsigned>(world_.below(8));
    o.ahead_bytes_max = world_.below(4) * swarm_.extent_bytes;
    o.staging_frame_bytes = swarm_.extent_bytes;
    o.staging_bytes = swarm_.device_frames != 0 ? 2 * swarm_.extent_bytes : 0;
    return o;
  }

  template <typename... Args>
  void note(fmt::format_string<Args...> format, Args&&... args) {
    std::string line = fmt::format("{:>12} ", world_.now) + fmt::format(format, std::forward<Args>(args)...);
    if (verbose_) {
      std::puts(line.c_str());
    }
    history_.push_back(std::move(line));
    if (history_.size() > 40) {
      history_.pop_front();
    }
  }
  [[noreturn]] void failed(const std::string& why) { throw Failure(why); }
  void check(bool good, const std::string& why) {
    if (!good) {
      failed(why);
    }
  }

  void step() {
    stepping_ = true;
    next_step_ = mover_.step(world_.now);
    stepping_ = false;
    compare_new();
    const std::string broken = mover_.check_invariants();
    check(broken.empty(), "invariant: " + broken);
    if (++steps_ % 32 == 0) {  // Dear: it walks every chunk.
      const Status block = block_.check_invariants();
      check(block.ok(), std::string("block tier: ") + block.message());
    }
  }
  // To the next completion or deadline, or a little ahead.
  void settle_once() {
    if (world_.one_in(3)) {
      const std::int64_t due = std::min({port_.next_due(), hands_.next_due(), next_step_});
      if (due != INT64_MAX) {
        world_.now = std::max(world_.now, due);
      }
    }
    world_.now += static_cast<std::int64_t>(world_.below(20'000));
    step();
  }

  Live* pick() {
    if (live_.empty()) {
      return nullptr;
    }
    auto at = live_.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(world_.below(live_.size())));
    return freed(at->first) ? nullptr : &at->second;  // Kept for its views only.
  }
  std::size_t serial_of(const Live& live) const {
    for (const auto& [serial, other] : live_) {
      if (&other == &live) {
        return serial;
      }
    }
    return ~std::size_t{0};
  }

  void act() {
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
      case 0: return alloc();
      case 1: return acquire();
      case 2: return release();
      case 3: return use_view();
      case 4: return free_one();
      case 5: return ask(Want::prefetch);
      case 6: return ask(Want::evict);
      case 7: return ask(Want::discard);
      case 8: return cancel();
      case 9: return ask(Want::clean);
      case 10: return set_budget();
      default: return advise();
    }
  }

  void alloc() {
    if (live_.size() >= 24) {
      return;
    }
    Live live;
    const bool windowed = world_.one_in(2);
    live.extent_bytes = swarm_.extent_bytes;
    const std::uint64_t extents = windowed ? 2 + world_.below(6) : 1;
    live.bytes = extents * live.extent_bytes - world_.below(live.extent_bytes / 2);
    live.windowed = windowed;
    BufferShape shape;
    shape.bytes = live.bytes;
    shape.extent_shift = live.extent_bytes == 8192 ? 13 : 12;
    shape.extents = static_cast<std::uint32_t>(extents);
    shape.domain = world_.one_in(4) ? 1 : 0;
    shape.pool = windowed ? host_.window_pool(live.extent_bytes) : Pool::locked;
    const std::string label = fmt::format("buffer{}", next_serial_);
    shape.label = label.c_str();
    if (windowed) {
      shape.window = *host_.reserve_window(extents * live.extent_bytes, live.extent_bytes);
    }
    Result<Handle> handle = residency_.buffers.create(shape);
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
    note("alloc {} bytes {} window {}", label, live.bytes, windowed);
    live_.emplace(next_serial_++, std::move(live));
  }

  Access random_access(Live& live, bool discard_whole) {
    Access access;
    access.buffer = live.handle;
    access.offset = world_.one_in(3) ? 0 : world_.below(live.bytes);
    access.length = world_.one_in(3) ? live.bytes - access.offset : 1 + world_.below(live.bytes - access.offset);
    access.mode = world_.one_in(3) ? kRead : world_.one_in(3) ? kDiscard : kWrite;
    if (discard_whole) {
      access.mode = kDiscard;
    }
    // Views in a device's space are of one extent.
    if (swarm_.device_frames != 0 && world_.one_in(3)) {
      access.where = {Kind::gpu, 0};
      const std::uint64_t in_extent = access.offset % live.extent_bytes;
      access.length = std::min(access.length, live.extent_bytes - in_extent);
    }
    return access;
  }

  Pending& new_pending(Want want) {
    pending_.emplace_back();
    Pending& p = pending_.back();
    p.sim = this;
    p.posted = world_.now;
    p.request.want = want;
    p.request.context = &p;
    p.request.on_done = [](Request& request) {
      auto* pending = static_cast<Pending*>(request.context);
      pending->sim->completed(*pending);
    };
    return p;
  }

  void acquire() {
    std::vector<Access> list;
    std::vector<std::size_t> buffers;
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
      const Code code = residency_.try_acquire(list, views);
      if (code == Code::ok) {
        granted(list, views, buffers);
        return;
      }
      check(code == Code::busy, "try_acquire: " + std::string(code_name(code)));
    }
    Pending& p = new_pending(Want::acquire);
    p.list = list;
    p.views = views;
    p.buffers = buffers;
    p.request.views = p.views.data();
    p.request.spans.resize(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      Status status = residency_.resolve(list[i], p.request.spans[i], "acquire");
      check(status.ok(), status.message());
    }
    p.request.deadline_ns = world_.one_in(8) ? Request::kForever : world_.now + 1 + static_cast<std::int64_t>(world_.below(5'000'000));
    note("acquire {} ranges, first: buffer{} offset {} length {} mode {} where {}", list.size(), buffers[0],
         list[0].offset, list[0].length, list[0].mode, static_cast<int>(list[0].where.kind));
    mover_.post(&p.request);
  }

  void completed(Pending& p) {
    p.done = true;
    const Code code = p.request.status.code();
    note("{} completed: {} {}", static_cast<int>(p.request.want), code_name(code), p.request.status.message());
    switch (p.request.want) {
      case Want::acquire:
        if (code == Code::ok) {
          granted(p.list, p.views, p.buffers);
        } else {
          check(code == Code::no_capacity || code == Code::timed_out || code == Code::cancelled ||
                    code == Code::stale_handle || code == Code::busy ||
                    (code == Code::invalid_argument && swarm_.device_frames != 0) ||
                    (code == Code::io_error && faulty()) || (code == Code::lost && port_.corrupted()),
                fmt::format("acquire ended in {}: {}", code_name(code), p.request.status.message()));
          check(p.request.status.info() != nullptr, "an error without a sentence");
        }
        break;
      case Want::free:
        check(code == Code::ok, "free failed");
        break;
      default:
        break;
    }
  }
  bool faulty() const {
    const FaultRates& f = swarm_.faults;
    return f.io_error + f.short_io + f.again + f.torn + f.no_space + f.memory + f.flip + f.lost_write != 0 || stopped_;
  }

  // The bytes under a fresh view are those of the model, but where the view discards.
  void granted(const std::vector<Access>& list, const std::vector<ViewRecord>& views,
               const std::vector<std::size_t>& buffers) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      held_.push_back({views[i], list[i], buffers[i]});
      Live& live = live_.at(buffers[i]);
      ++live.views;
      if (list[i].mode == kDiscard) {
        fill(held_.back());
      }
    }
    // A reader that was let in together with one who discards may see old bytes until these are overwritten:
    // all discards of a step are filled before anything is compared.
    if (!stepping_) {
      compare_new();
    }
  }
  void compare_new() {
    for (; compared_ < held_.size(); ++compared_) {
      compare(held_[compared_]);
    }
  }
  std::byte load(const Held& held, std::uint64_t i) const {
    const auto* at = static_cast<const std::byte*>(held.view.data) + i;
    return held.view.place.kind == Kind::gpu ? device_.load(at) : *at;
  }
  void store(const Held& held, std::uint64_t i, std::byte value) {
    auto* at = static_cast<std::byte*>(held.view.data) + i;
    if (held.view.place.kind == Kind::gpu) {
      device_.store(at, value);
    } else {
      *at = value;
    }
    live_.at(held.buffer).model[held.access.offset + i] = value;
  }
  void fill(const Held& held) {
    const auto value = static_cast<std::byte>(world_.below(256));
    for (std::uint64_t i = 0; i < held.view.length; ++i) {
      store(held, i, value);
    }
  }
  void compare(const Held& held) {
    const Live& live = live_.at(held.buffer);
    for (std::uint64_t i = 0; i < held.view.length; ++i) {
      if (load(held, i) != live.model[held.access.offset + i]) {
        failed(fmt::format("buffer{} byte {}: {:#x} in the view, {:#x} in the model", held.buffer,
                           held.access.offset + i, static_cast<unsigned>(load(held, i)),
                           static_cast<unsigned>(live.model[held.access.offset + i])));
      }
    }
  }
  void use_view() {
    if (held_.empty()) {
      return;
    }
    Held& held = held_[world_.below(held_.size())];
    compare(held);
    if (held.access.mode != kRead) {
      const std::uint64_t from = world_.below(held.view.length);
      const std::uint64_t n = 1 + world_.below(std::min<std::uint64_t>(held.view.length - from, 64));
      for (std::uint64_t i = from; i < from + n; ++i) {
        store(held, i, static_cast<std::byte>(world_.below(256)));
      }
    }
  }
  void release() {
    if (held_.empty()) {
      return;
    }
    const std::size_t at = world_.below(held_.size());
    const Held held = held_[at];
    compare(held);
    note("release of buffer{} offset {}", held.buffer, held.access.offset);
    check(residency_.release({&held.view, 1}) == Code::ok, "release refused a live view");
    check(residency_.release({&held.view, 1}) == Code::invalid_argument, "a view was released twice");
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(at));
    compared_ = std::min(compared_, held_.size());
    --live_.at(held.buffer).views;
    reap_freed();
  }

  void free_one() {
    Live* live = pick();
    if (live == nullptr || freed(serial_of(*live))) {
      return;
    }
    const std::size_t serial = serial_of(*live);
    note("free buffer{}", serial);
    check(residency_.buffers.mark_freed(live->handle), "free of a live handle refused");
    check(!residency_.buffers.mark_freed(live->handle), "a handle was freed twice");
    Pending& p = new_pending(Want::free);
    p.request.index = Buffers::index_of(live->handle);
    mover_.post(&p.request);
    gone_.push_back(serial);
    // The model keeps the bytes while views of it live; nothing new may reach them.
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
  bool freed(std::size_t serial) const { return std::find(gone_.begin(), gone_.end(), serial) != gone_.end(); }
  void reap_freed() {
    std::erase_if(live_, [&](const auto& entry) { return entry.second.views == 0 && freed(entry.first); });
  }

  void ask(Want want) {
    Live* live = pick();
    if (live == nullptr || freed(serial_of(*live))) {
      return;
    }
    if (want == Want::discard && (live->views != 0 || wanted(serial_of(*live)))) {
      return;  // With others at work on the bytes the model could not say which came first.
    }
    Access access = random_access(*live, want == Want::discard);
    access.mode = want == Want::discard ? kDiscard : kRead;
    if (want != Want::prefetch) {
      access.where = {};
    }
    Pending& p = new_pending(want);
    p.buffers = {serial_of(*live)};
    p.request.spans.resize(1);
    Status status = residency_.resolve(access, p.request.spans[0], "ask");
    check(status.ok(), status.message());
    p.request.deadline_ns = world_.now + static_cast<std::int64_t>(world_.below(10'000'000));
    if (want == Want::discard) {
      p.request.deadline_ns = Request::kForever;
    }
    note("ask {} of buffer{} offset {} length {}", static_cast<int>(want), p.buffers[0], access.offset, access.length);
    mover_.post(&p.request);
    if (want == Want::discard) {
      // To the end, so that the model knows what the bytes are.
      finish(p);
      const Span& span = p.request.spans[0];
      if (p.request.status.ok()) {
        for (std::uint32_t i = 0; i < span.count; ++i) {
          if (span.whole(i)) {
            const std::uint64_t begin = (access.offset / live->extent_bytes + i) * live->extent_bytes;
            for (std::uint64_t at = begin; at < std::min(begin + live->extent_bytes, live->bytes); ++at) {
              live->model[at] = std::byte{0};
            }
          }
        }
      }
    }
  }
  bool wanted(std::size_t serial) const {
    for (const Pending& p : pending_) {
      if (!p.done && std::find(p.buffers.begin(), p.buffers.end(), serial) != p.buffers.end()) {
        return true;
      }
    }
    return false;
  }
  void cancel() {
    if (pending_.empty()) {
      return;
    }
    Pending& p = pending_[world_.below(pending_.size())];
    if (!p.done && p.request.want == Want::acquire) {
      note("cancel");
      p.request.cancel = true;
      mover_.note_cancel();
    }
  }
  void set_budget() {
    const std::uint64_t staging = swarm_.device_frames != 0 ? 2 : 0;
    const std::uint64_t frames = std::max<std::uint64_t>(1, swarm_.host_frames / 2) + world_.below(swarm_.host_frames);
    Pending& p = new_pending(Want::set_budget);
    p.request.value = (frames + staging) * swarm_.extent_bytes;
    p.request.deadline_ns = world_.now + 1 + static_cast<std::int64_t>(world_.below(3'000'000));
    note("set_budget {} frames", frames);
    mover_.post(&p.request);
    finish(p);
    if (!p.request.status.ok()) {
      // Refused for now: go back to a budget that is met, as a caller would.
      Pending& back = new_pending(Want::set_budget);
      back.request.value = (2 * swarm_.host_frames + staging) * swarm_.extent_bytes;
      mover_.post(&back.request);
      finish(back);
    }
  }
  void advise() {
    Live* live = pick();
    if (live == nullptr || freed(serial_of(*live))) {
      return;
    }
    Pending& p = new_pending(Want::advise);
    p.request.spans.resize(1);
    Access access{live->handle, 0, 0, kRead, {}, 0};
    Status status = residency_.resolve(access, p.request.spans[0], "advise");
    check(status.ok(), status.message());
    constexpr std::array kAdvice = {Advice::normal, Advice::cold, Advice::streamed, Advice::keep,
                                    Advice::next_use, Advice::touched, Advice::will_need};
    p.request.advice = kAdvice[world_.below(kAdvice.size())];
    p.request.value = world_.below(3);
    mover_.post(&p.request);
  }

  // Virtual time until this request is done; a request that never ends is a failure.
  void finish(Pending& p) {
    const std::int64_t until = world_.now + std::int64_t{60} * 1'000'000'000;
    std::uint64_t steps = 0;
    while (!p.done) {
      step();
      if (p.done) {
        break;
      }
      while (stopped_ && !held_.empty()) {
        release();  // What was granted since: others may wait for it.
        next_step_ = world_.now;
      }
      const std::int64_t next = std::min({port_.next_due(), hands_.next_due(), next_step_});
      if (next == INT64_MAX) {
        failed(fmt::format("request {} waits for nothing\n{}", static_cast<int>(p.request.want), mover_.describe()));
      }
      world_.now = std::max(world_.now + 1, next);
      if (world_.now >= until || ++steps > 200'000) {
        failed(fmt::format("request {} did not end in a minute of virtual time or in {} steps\n{}",
                           static_cast<int>(p.request.want), steps, mover_.describe()));
      }
    }
  }

  // Faults stop, views end: everything that waits must end, and every byte must be there.
  void drain() {
    stopped_ = true;
    disks_filled_ = swarm_.faults.no_space != 0;  // The tier asks a full file system again only after a while.
    swarm_.faults = {};
    note("faults stop");
    while (!held_.empty()) {
      release();
    }
    for (Pending& p : pending_) {
      finish(p);
    }
    for (auto& [serial, live] : live_) {
      for (std::uint64_t from = 0; from < live.bytes; from += live.extent_bytes) {
        Pending& p = new_pending(Want::acquire);
        p.list = {Access{live.handle, from, std::min(live.extent_bytes, live.bytes - from), kRead, {}, 0}};
        p.views.resize(1);
        p.buffers = {serial};
        p.request.views = p.views.data();
        p.request.spans.resize(1);
        Status status = residency_.resolve(p.list[0], p.request.spans[0], "read back");
        check(status.ok(), status.message());
        mover_.post(&p.request);
        finish(p);
        check(p.request.status.ok() || (p.request.status.code() == Code::lost && port_.corrupted()) ||
                  (p.request.status.code() == Code::no_capacity &&
                   (!swarm_.block_tier || block_.degraded() != 0 || disks_filled_)),
              fmt::format("read back of buffer{}: {}", serial, p.request.status.message()));
        while (!held_.empty()) {
          release();
        }
      }
    }
    while (!live_.empty()) {
      free_one();
      finish(pending_.back());
    }
    Pending& p = new_pending(Want::drain);
    mover_.post(&p.request);
    finish(p);
    step();
    const std::uint64_t staging = swarm_.device_frames != 0 ? 2 * swarm_.extent_bytes : 0;
    check(host_.books().in_use == staging, fmt::format("{} bytes of frames leaked", host_.books().in_use - staging));
    check(device_.books().in_use == 0, "frames of the device leaked");
    check(block_.books().in_use == 0, fmt::format("{} bytes of slots leaked", block_.books().in_use));
    check(host_.windows() == 0, "a window leaked");
    check(residency_.views.count() == 0, "a view leaked");
    check(mover_.idle(), "the mover is not idle");
  }

  World world_;
  Swarm swarm_;
  const bool verbose_;
  Dice dice_;
  FakeMemory host_, device_;
  FakePort port_;
  BlockTier block_;
  FakeHands hands_;
  Residency residency_;
  Mover mover_;

  std::map<std::size_t, Live> live_, zombies_;
  std::vector<std::size_t> gone_;
  std::vector<Held> held_;
  std::deque<Pending> pending_;
  std::size_t next_serial_ = 0;
  std::int64_t next_step_ = INT64_MAX;
  std::uint64_t steps_ = 0;
  bool stopped_ = false, stepping_ = false;
  std::size_t compared_ = 0;  // Views of held_ whose bytes were looked at since their grant.
  bool disks_filled_ = false;
  std::deque<std::string> history_;
};

bool run_seed(std::uint64_t seed, std::uint64_t events, bool verbose) {
  Simulation simulation(seed, verbose);
  try {
    simulation.run(events);
    return true;
  } catch (const Failure& failure) {
    std::printf("seed %llu FAILED: %s\nlast operations:\n", static_cast<unsigned long long>(seed), failure.what());
    for (const std::string& line : simulation.history()) {
      std::printf("  %s\n", line.c_str());
    }
    std::printf("replay: tiermem-sim --seed %llu --events %llu --verbose\n", static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(events));
    return false;
  }
}

}  // namespace
}  // namespace tiermem::sim

int main(int argc, char** argv) {
  std::uint64_t seeds = 1000, first = 1, events = 400;
  bool verbose = false;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto number = [&]() -> std::uint64_t {
      if (i + 1 == argc) {
        std::fprintf(stderr, "tiermem-sim: %s needs a number\n", arg.c_str());
        std::exit(2);
      }
      return std::strtoull(argv[++i], nullptr, 10);
    };
    if (arg == "--seeds") {
      seeds = number();
    } else if (arg == "--first") {
      first = number();
    } else if (arg == "--seed") {
      first = number();
      seeds = 1;
    } else if (arg == "--events") {
      events = number();
    } else if (arg == "--verbose") {
      verbose = true;
    } else {
      std::fprintf(stderr, "usage: tiermem-sim [--seeds N] [--first S] [--seed S] [--events N] [--verbose]\n");
      return 2;
    }
  }
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    if (!tiermem::sim::run_seed(seed, events, verbose)) {
      return 1;
    }
  }
  std::printf("%llu seeds passed, %llu events each\n", static_cast<unsigned long long>(seeds),
              static_cast<unsigned long long>(events));
  return 0;
}
