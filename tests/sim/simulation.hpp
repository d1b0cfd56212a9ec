// The run of one seed: the production mover, residency, policy and tiers on a simulated machine,
// random callers, and a plain map of bytes as the model. One thread, virtual time, never waits.
//
//   simulation.cpp  the run: step, act, finish, drain     calls.cpp    the callers' requests
//   views.cpp       bytes under views against the model   adopted.cpp  files
//   forks.cpp       children, and the slots they read     rows.cpp     gathers
//   trouble.cpp     troubles of devices and workers, and callers that query
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "mover/mover.hpp"
#include "tests/sim/fake_devices.hpp"
#include "tests/sim/fake_direct.hpp"
#include "tests/sim/fake_files.hpp"
#include "tests/sim/swarm.hpp"
#include "tier/block.hpp"
#include "tier/compressed.hpp"

namespace tiermem::sim {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Simulation {
 public:
  /// `without`: kinds of calls and faults to exclude (Swarm::leave_out). `memories`: the host may
  /// have several.
  Simulation(std::uint64_t seed, bool verbose, const std::vector<std::string>& without = {},
             bool memories = false);

  void run(std::uint64_t events);
  const std::deque<std::string>& history() const { return history_; }
  std::uint64_t calls() const { return world_.calls; }
  std::uint64_t digest() const { return world_.digest.value(); }
  /// The virtual time.
  std::int64_t now() const { return world_.now; }
  /// The counters of the mover when the run had ended, before it freed all buffers.
  const Stats& stats() const { return stats_; }
  /// Number of begun events: a run of this many fails as this one did.
  std::uint64_t events() const { return events_; }
  /// The longest virtual time after the faults until nothing waited.
  std::int64_t calm_ns() const { return calm_ns_; }
  /// The longest run of steps that requested another at once and had no effect.
  std::uint64_t most_fruitless() const { return most_fruitless_; }

 private:
  struct Live {
    Handle handle = 0;
    std::uint64_t bytes = 0;
    std::uint64_t extent_bytes = 0;
    bool windowed = false;
    bool of_device = false;       // It has several extents and no window on the host.
    bool bound = false;           // It lives in one memory of the host.
    std::byte* mapped = nullptr;  // The window, if it is a mapped buffer.
    std::vector<std::byte> model;
    std::vector<bool> unsure;  // Bytes of extents that may be lost.
    // For private files only: the bytes of the file, which do not change. Given up, they return.
    std::vector<std::byte> original;
    unsigned views = 0;
    // For adopted files only.
    bool adopted = false;
    std::uint64_t lead = 0;  // Bytes before byte 0 in the first extent.
    SlotId file{};
    std::vector<std::vector<std::byte>> versions;  // The successive contents of the range.
    std::uint64_t first_reads = 0;                 // The bytes that a first read brings at least.
    std::vector<std::uint64_t> possible;  // For each of them: the contents that they may show.
  };
  struct Held {
    ViewRecord view;
    Access access;
    std::size_t buffer;  // Serial number.
    // For a stream that waits for a copy to the device: the copy, and the last copy that had ended.
    std::uint64_t arrival = 0, ended_before = 0;
    bool fills = false;  // The stream overwrites all of it once the copy has arrived.
  };
  struct Pending {
    Request request;
    Simulation* sim = nullptr;
    std::vector<Access> list;
    std::vector<ViewRecord> views;
    std::vector<std::size_t> buffers;
    std::size_t dropped = ~std::size_t{0};
    bool own = false;    // For the simulation's own memory.
    bool touch = false;  // The program's access to absent bytes of a mapped buffer.
    bool writes = false;
    std::int64_t posted = 0;
    bool done = false;
  };

  // A gather under way.
  struct Reading {
    std::size_t buffer = 0;
    Handle memory = 0;  // The destination of the reads; 0: `own`.
    ViewRecord view;
    std::vector<GatherRead> reads;
    std::vector<Checksums::Hash> sums;
    std::vector<bool> compared;
    GatherList list;
    // Memory of the program: what was known before, or where the reads go.
    test::PageBytes own;
    Pending* asked = nullptr;
    // For each read, the model's content since the request, step by step.
    std::vector<std::vector<std::vector<std::byte>>> held;
  };

  std::vector<AddressSpace*> spaces();
  std::vector<SlotTier*> slot_tiers();
  unsigned tiers() const { return static_cast<unsigned>(1 + further_.size()); }
  FakePort& port(unsigned tier) { return tier == 0 ? port_ : further_[tier - 1].port; }
  const FakePort& port(unsigned tier) const { return tier == 0 ? port_ : further_[tier - 1].port; }
  /// Returns the number of the first block tier in the mover.
  unsigned first_block() const { return compressed_ ? 1 : 0; }
  BlockTier& block(unsigned tier) { return tier == 0 ? block_ : further_[tier - 1].block; }
  const BlockTier& block(unsigned tier) const {
    return tier == 0 ? block_ : further_[tier - 1].block;
  }
  std::int64_t disks_due() const;
  template <typename Asked>
  bool any_port(Asked asked) const {
    return (port_.*asked)() ||
           std::any_of(further_.begin(), further_.end(),
                       [&](const Further& each) { return (each.port.*asked)(); });
  }
  // For a draw among the tiers: a world of one draws nothing.
  unsigned some_tier() { return tiers() == 1 ? 0 : static_cast<unsigned>(world_.below(tiers())); }
  MoverOptions options();

  template <typename... Args>
  void note(fmt::format_string<Args...> format, Args&&... args) {
    std::string line =
        fmt::format("{:>12} ", world_.now) + fmt::format(format, std::forward<Args>(args)...);
    if (verbose_) {
      std::puts(line.c_str());
    }
    history_.push_back(std::move(line));
    if (history_.size() > 40) {
      history_.pop_front();
    }
  }
  [[noreturn]] void failed(const std::string& why) { throw Failure(why); }
  void check(bool good, const std::string& why);

  void step();
  void settle_once();

  Live* pick();
  std::size_t serial_of(const Live& live) const;

  void act();

  void alloc();

  Access random_access(Live& live, bool discard_whole);
  void give_window(Span& span);

  Pending& new_pending(RequestKind want);

  void acquire();

  void completed(Pending& p);
  bool faulty() const {
    const FaultRates& f = swarm_.faults;
    return f.io_error + f.short_io + f.again + f.torn + f.no_space + f.memory + f.flip +
                   f.lost_write !=
               0 ||
           any_port(&FakePort::troubled) || stopped_;
  }

  void granted(const std::vector<Access>& list, const std::vector<ViewRecord>& views,
               const std::vector<std::size_t>& buffers, const Request* request = nullptr);
  bool arrived(const Held& held) const {
    return workers_.ended(held.view.place.index) >= held.arrival || held.arrival == 0;
  }
  bool broken(const Held& held) const {
    return (held.view.place.kind == Kind::gpu && devices_[held.view.place.index].lost()) ||
           (held.arrival != 0 &&
            workers_.failed(held.view.place.index, held.ended_before, held.arrival));
  }
  bool any_lost() const { return devices_[0].lost() || devices_[1].lost(); }
  void lose_device();
  void fill_arrived();
  void await_arrival(std::size_t held);
  void compare_new();
  std::byte load(const Held& held, std::uint64_t i) const {
    const auto* at = static_cast<const std::byte*>(held.view.data) + i;
    return held.view.place.kind == Kind::gpu ? devices_[held.view.place.index].load(at) : *at;
  }
  void store(const Held& held, std::uint64_t i, std::byte value);
  void fill(const Held& held);
  void fill_sparsely(const Held& held);
  void compare(const Held& held);
  void use_view();
  void view_again(std::size_t at);
  void touch();
  void touch_now(Live& live, const Access& access, bool writes);
  bool prepared_anew(const Live& live, const Access& access);
  void touch_early(const Live& live, const Access& access);
  void touched(Pending& p);
  // A touching thread that reads its page itself.
  struct OwnRead {
    Job* job = nullptr;
    std::int64_t due = 0;
  };
  void begin_own(Pending& p, bool told, bool posted);
  void end_own_reads();
  std::int64_t hangs_until(const Job& job) const;
  void release();

  void free_one();
  bool freed(std::size_t serial) const {
    return std::find(gone_.begin(), gone_.end(), serial) != gone_.end();
  }
  void reap_freed() {
    std::erase_if(live_,
                  [&](const auto& entry) { return entry.second.views == 0 && freed(entry.first); });
  }

  void adopt();
  void note_version(Live& live);
  void change_file();
  void compare_adopted(const Held& held);
  void touch_file(Live& live, const Access& access);
  template <typename Load>
  void compare_file(Live& live, const Access& access, const Load& load);
  bool file_changed(const Pending& p) const;
  bool names_droppable(const Pending& p) const;

  // A block from a gather, with its checksum.
  struct Known {
    std::size_t buffer = 0;
    ExtentRef ref = 0;
    std::uint32_t offset = 0;
    Checksums::Hash sum{};
    std::vector<std::byte> bytes;
  };

  bool take_memory(Reading& reading);
  void free_memory(const Reading& reading);
  bool reads_to(const test::PageBytes& memory) const;
  void gather();
  void confirm();
  void post(std::unique_ptr<Reading> reading, const Span& span);
  void remember(const Reading& reading, const GatherRead& read);
  void note_models();
  void compare_readings();
  std::uint64_t begin_of(const GatherRead& read, const Live& live);
  void compare(const Reading& reading, std::size_t index, const Live& live);

  void ask(RequestKind want);
  bool used_by_nobody(const Live& live) const;
  void ask_to_leave(Pending& p);
  void move_slots();
  bool wanted(std::size_t serial) const;
  void cancel();
  void set_budget();
  void set_block_budget(unsigned tier, std::uint64_t bytes);
  void trouble();
  void inspect();
  std::size_t views_of_freed() const;
  void fork_or_end();
  void fork();
  void end_child(std::size_t which);
  void check_pins();
  void compare_children();
  void advise();
  std::uint8_t some_memory();
  bool binds(const BufferShape& shape, bool mapped);
  void raise_budgets();

  void finish(Pending& p);
  void count_fruitless(bool asks_again);
  bool step_is_due() const;
  // The mover searches for victims in at most 65 consecutive steps (Room::kMostFruitless).
  static constexpr std::uint64_t kMostFruitless = 70;
  static constexpr std::int64_t kCalmNs = std::int64_t{3} * 1'000'000'000;

  void drain();

  World world_;
  Stats stats_;
  Swarm swarm_;
  const bool verbose_;
  Dice dice_;
  FakeMemory host_;
  std::array<FakeMemory, 2> devices_;
  FakePort port_;
  BlockTier block_;
  // A further slot tier, with devices of its own.
  struct Further {
    Further(World& world, const Swarm& swarm, unsigned rank)
        : port(world, swarm.faults, swarm.disks, std::uint64_t{64} << 20),
          block(port, {.depth = 1 + swarm.disks,
                       .piece_bytes = 4096,
                       .budget = swarm.further[rank - 1],
                       .index = static_cast<std::uint16_t>(rank)}) {}
    FakePort port;
    BlockTier block;
  };
  std::deque<Further> further_;
  std::optional<CompressedTier> compressed_;  // Before all others.
  FakeFiles files_;
  FakeWorkers workers_;
  FakeDirect<FakePort> direct_;
  Residency residency_;
  Mover mover_;

  std::map<std::size_t, Live> live_, zombies_;
  std::vector<std::size_t> gone_;
  std::set<std::size_t> changed_files_;
  std::set<std::size_t> droppable_;
  // The bytes that a child of fork reads, in pieces of a block: they must not change while it
  // lives.
  struct Child {
    std::uint32_t number = 0;
    struct Piece {
      unsigned tier = 0;
      SlotId slot{};
      std::vector<std::byte> bytes;
    };
    std::vector<Piece> slots;
  };
  std::vector<Child> children_;
  std::vector<Held> held_;
  std::deque<Pending> pending_;
  std::vector<std::unique_ptr<Reading>> readings_;
  std::vector<Known> known_;
  std::mt19937_64 memory_dice_;  // Likewise: chooses a memory of the host.
  std::mt19937_64 file_dice_;    // For mapped files: all else is as without them.
  std::mt19937_64 touch_dice_;   // For touching threads that read themselves.
  std::mt19937_64 slot_dice_;    // For views of what is viewed already.
  std::mt19937_64 chunk_dice_;   // For sizes of extents where frames share chunks.
  bool own_touches_ = false;
  std::vector<OwnRead> own_reads_;
  std::mt19937_64 known_dice_;  // Separate, so that it does not change the draws of other calls.
  std::size_t next_serial_ = 0;
  std::uint64_t ordinal_ = 0;                  // The last tick.
  std::size_t lost_buffer_ = ~std::size_t{0};  // A buffer with lost or dropped bytes.
  std::int64_t next_step_ = INT64_MAX;
  std::uint64_t steps_ = 0, events_ = 0;
  // At the beginning of the last events; for the coverage.
  std::array<std::uint64_t, 32> faults_before_{};
  std::uint64_t answered_ = 0;  // Answered requests, without prefetches.
  std::uint64_t progress_ = 0, fruitless_ = 0, most_fruitless_ = 0;
  std::int64_t calm_ns_ = 0, forked_ = -1;
  bool budget_refused_ = false;
  bool stopped_ = false, stepping_ = false, posted_ = false;
  bool told_ =
      true;  // The mover has been woken since the last step, or is called for another reason.
  std::array<std::uint64_t, 2> ended_before_step_{};  // Copies to each device.
  std::size_t compared_ = 0;  // Views of held_ with bytes compared since their grant.
  bool disks_filled_ = false;
  bool any_degraded_ = false;  // At any time.
  std::deque<std::string> history_;
};

}  // namespace tiermem::sim
