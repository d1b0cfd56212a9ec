// The simulator's memories under the contract suite. The simulator finds only faults that its
// memories can show, so they must keep the same contract as the real ones.
#include <deque>

#include "contract/memory_contract.hpp"
#include "tests/sim/fake_memory.hpp"

namespace tiermem::contract {
namespace {

constexpr std::uint64_t kKiB = 1024;

/// Refuses the calls of one name.
struct OneRefusal final : sim::FaultDice {
  bool strikes(const char* what) override { return refused == what; }
  std::string refused;
};

/// Runs copies in the order in which they were requested.
class QueuedCopies final : public sim::FakeCopies {
 public:
  void copy(unsigned, bool in, bool fails, std::function<void()> move, Completion& end) override {
    copies_.push_back({in, fails, std::move(move), &end});
  }
  void run() {
    for (; !copies_.empty(); copies_.pop_front()) {
      const Copy& copy = copies_.front();
      if (copy.in && copy.end->begun != nullptr) {
        copy.end->begun(*copy.end, ++ordinal_);
      }
      if (copy.fails) {
        copy.end->status = fail(Code::io_error, "the copy failed");
      } else {
        copy.move();
      }
      copy.end->ended(*copy.end);
    }
  }

 private:
  struct Copy {
    bool in, fails;
    std::function<void()> move;
    Completion* end;
  };
  std::deque<Copy> copies_;
  std::uint64_t ordinal_ = 0;
};

class Simulated final : public MemorySubject {
 public:
  explicit Simulated(Kind kind)
      : MemorySubject(facts_of(kind)),
        tier_(facts().budget, {kind, 0}, dice_),
        other_(facts().budget, {kind, 1}, dice_) {
    tier_.copy_by(copies_);
    other_.copy_by(copies_);
    tier_.befriend(other_);
    if (!opaque()) {
      tier_.add_memory(facts().budget, {Kind::numa, 1});
    }
  }
  Memory& memory() override { return tier_; }
  Memory* sibling() override { return opaque() ? nullptr : &tier_.memory(1); }
  const char* relocate_call() const override { return "relocate"; }
  Memory* neighbour() override { return opaque() ? &other_ : nullptr; }
  void write(std::byte* at, const std::byte* from, std::uint64_t bytes) override {
    if (opaque()) {
      tier_.store(at, from, bytes);
      return;
    }
    std::memcpy(at, from, bytes);
    for (std::uint64_t i = 0; i < bytes; i += kSmallestExtent) {
      tier_.written(at + i);
    }
  }
  void read(std::byte* to, const std::byte* at, std::uint64_t bytes) override {
    if (opaque()) {
      tier_.load(to, at, bytes);
    } else {
      std::memcpy(to, at, bytes);
    }
  }
  bool absent(std::byte* page) override { return !tier_.present(page); }
  bool refuse(const char* call, std::byte*) override {
    dice_.refused = call;
    return true;
  }
  void forgive() override { dice_.refused.clear(); }
  bool lose() override {
    if (opaque()) {
      tier_.lose();
    }
    return opaque();
  }
  void run_copies() override { copies_.run(); }

 private:
  bool opaque() const { return !tier_.host_addressable(); }
  static MemoryFacts facts_of(Kind kind) {
    MemoryFacts facts;
    facts.budget = 1024 * kKiB;
    facts.extents = {4 * kKiB, 16 * kKiB, 128 * kKiB};
    facts.window_extents = facts.extents;
    if (kind == Kind::dram) {
      facts.mapped_extents = facts.extents;
      facts.part_extents = {16 * kKiB, 128 * kKiB};
      facts.takes_home = facts.watches = true;
    }
    return facts;
  }

  OneRefusal dice_;
  QueuedCopies copies_;
  sim::FakeMemory tier_, other_;
};

MemoryCase simulated(const char* name, Kind kind) {
  return {name, [kind](std::string&) { return std::make_unique<Simulated>(kind); }};
}

const MemoryCase kHost = simulated("host", Kind::dram);
const MemoryCase kDevice = simulated("device", Kind::gpu);
INSTANTIATE_TEST_SUITE_P(Simulator, MemoryContract, ::testing::Values(kHost, kDevice), memory_name);
INSTANTIATE_TEST_SUITE_P(Simulator, HostMemoryContract, ::testing::Values(kHost), memory_name);
INSTANTIATE_TEST_SUITE_P(Simulator, RelocateContract, ::testing::Values(kHost), memory_name);
INSTANTIATE_TEST_SUITE_P(Simulator, OpaqueMemoryContract, ::testing::Values(kDevice), memory_name);

}  // namespace
}  // namespace tiermem::contract
