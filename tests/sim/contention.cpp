#include "tests/sim/contention.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "mover/mover.hpp"
#include "tests/sim/fake_devices.hpp"
#include "tests/sim/fake_memory.hpp"
#include "tests/sim/simulation.hpp"

namespace tiermem::sim {
namespace {

constexpr std::uint64_t kExtent = 4096;

class Contention {
 public:
  Contention(std::uint64_t seed, Graph graph)
      : world_(seed),
        frames_(8 + world_.below(25)),
        dice_(world_, rates_),
        host_(frames_ * kExtent, {Kind::dram, 0}, dice_),
        port_(world_, rates_, 1 + static_cast<unsigned>(world_.below(2)), std::uint64_t{64} << 20),
        block_(port_,
               {.depth = 4,
                .piece_bytes = kExtent,
                .budget = graph == Graph::two_tiers ? frames_ * kExtent * 3 : ~std::uint64_t{0}}),
        slow_port_(world_, rates_, 1, std::uint64_t{64} << 20),
        slow_block_(slow_port_, {.depth = 4, .piece_bytes = kExtent, .index = 1}),
        workers_(world_, rates_),
        graph_(graph),
        residency_(static_cast<std::uint32_t>(kTimesMemory * frames_),
                   static_cast<std::uint32_t>(kTimesMemory * frames_), 1),
        mover_(residency_, spaces(), slots(), nullptr, workers_, options()) {
    residency_.bias_each = 1;
    for (std::uint64_t i = 0; i < kTimesMemory * frames_; ++i) {
      BufferShape shape;
      shape.bytes = kExtent;
      shape.extent_shift = static_cast<std::uint8_t>(std::countr_zero(kExtent));
      shape.extents = 1;
      shape.pool = Pool::locked;
      shape.label = "wanted";
      buffers_.push_back(*residency_.buffers.create(shape));
    }
    writers_ = world_.below(4);
    // At any time, callers want four to six times what fits: there is always a queue.
    for (std::uint64_t n = 2 * frames_ + world_.below(frames_); n > 0; --n) {
      callers_.push_back(std::make_unique<Caller>());
      callers_.back()->all = this;
    }
  }

  Waits run() {
    for (const auto& caller : callers_) {
      ask(*caller);
    }
    const std::size_t enough = callers_.size() * 40;
    while (waits_.size() < enough) {
      const std::int64_t next = mover_.step(world_.now);
      const std::int64_t due = std::min(
          {next, port_.next_due(), slow_port_.next_due(), workers_.next_due(), next_release()});
      if (due == INT64_MAX) {
        throw Failure("no caller can continue\n" + mover_.describe());
      }
      world_.now = std::max(world_.now + 1, due);
      for (const auto& caller : callers_) {
        if (caller->granted && caller->until <= world_.now) {
          caller->granted = false;
          (void)residency_.release(caller->views);
          ask(*caller);
        }
      }
    }
    // The final wait of a caller that still waits is at least this long.
    for (const auto& caller : callers_) {
      if (!caller->granted) {
        waits_.push_back(world_.now - caller->asked);
      }
    }
    Waits waits;
    waits.waiters = waits_.size();
    std::sort(waits_.begin(), waits_.end());
    waits.median_ns = waits_[waits_.size() / 2];
    waits.longest_ns = waits_.back();
    waits.requested = requested_;
    waits.relocated = host_.relocated();
    Stats stats;
    mover_.fill_stats(stats);
    const TierStats* const slow = stats.tier({Kind::block, 1});
    waits.to_slow_tier = slow != nullptr ? slow->bytes_in : 0;
    return waits;
  }

 private:
  static constexpr std::uint64_t kTimesMemory = 8;

  struct Caller {
    Contention* all = nullptr;
    std::unique_ptr<Request> request;
    std::vector<Access> list;
    std::vector<ViewRecord> views;
    std::int64_t asked = 0, until = 0;
    bool granted = false;
  };

  // Together they have as many frames as one memory had.
  std::span<AddressSpace* const> spaces() {
    if (graph_ == Graph::two_memories) {
      const std::uint64_t slower = 2 + frames_ / 3;
      host_.set_budget((frames_ - slower) * kExtent);
      host_.add_memory(slower * kExtent, {Kind::numa, 1});
    }
    return spaces_;
  }
  // The first of two tiers has room for some of the extents only.
  std::span<SlotTier* const> slots() const {
    return std::span(slots_).first(graph_ == Graph::two_tiers ? 2 : 1);
  }
  MoverOptions options() {
    MoverOptions o;
    o.checksum_block_bytes = kExtent;
    o.bounce_area_bytes = kExtent;
    o.budget_per_bounce_area = ~std::uint64_t{0};
    return o;
  }
  std::int64_t next_release() const {
    std::int64_t next = INT64_MAX;
    for (const auto& caller : callers_) {
      next = caller->granted ? std::min(next, caller->until) : next;
    }
    return next;
  }

  // Requests one to three extents, for reading or writing, through the hit path if possible.
  void ask(Caller& caller) {
    caller.list.clear();
    const std::uint32_t mode = world_.below(4) < writers_ ? kWrite : kRead;
    for (std::uint64_t n = 1 + world_.below(3); n > 0; --n) {
      caller.list.push_back({buffers_[world_.below(buffers_.size())], 0, kExtent, mode, {}, 0});
    }
    caller.views.assign(caller.list.size(), {});
    caller.asked = world_.now;
    requested_ += caller.list.size() * kExtent;
    if (residency_.try_acquire(caller.list, caller.views) == Code::ok) {
      hold(caller);
      return;
    }
    caller.request = std::make_unique<Request>();
    Request& request = *caller.request;
    request.views = caller.views.data();
    request.spans.resize(caller.list.size());
    for (std::size_t i = 0; i < caller.list.size(); ++i) {
      (void)residency_.resolve(caller.list[i], request.spans[i], "acquire");
    }
    request.context = &caller;
    request.on_done = [](Request& done) {
      auto& who = *static_cast<Caller*>(done.context);
      if (!done.status.ok()) {
        throw Failure(std::string("refused: ") + done.status.message());
      }
      who.all->waits_.push_back(who.all->world_.now - who.asked);
      who.all->hold(who);
    };
    mover_.post(&request);
  }
  void hold(Caller& caller) {
    caller.granted = true;
    caller.until = world_.now + 20'000 + static_cast<std::int64_t>(world_.below(200'000));
  }

  World world_;
  const FaultRates rates_;
  const std::uint64_t frames_;
  std::uint64_t writers_ = 0;  // In four.
  Dice dice_;
  FakeMemory host_;
  FakePort port_;
  BlockTier block_;
  FakePort slow_port_;
  BlockTier slow_block_;
  std::array<SlotTier*, 2> slots_{&block_, &slow_block_};
  FakeWorkers workers_;
  const Graph graph_;
  std::uint64_t requested_ = 0;
  Residency residency_;
  std::array<AddressSpace*, 1> spaces_{&host_};
  std::vector<Handle> buffers_;
  // They outlive the mover, which has their requests.
  std::vector<std::unique_ptr<Caller>> callers_;
  std::vector<std::int64_t> waits_;
  Mover mover_;
};

}  // namespace

Waits contend(std::uint64_t seed, Graph graph) {
  return Contention(seed, graph).run();
}

}  // namespace tiermem::sim
