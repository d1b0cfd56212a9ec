// The example of docs/adding-a-tier.md: a slot tier in one class, and what the contract suite needs
// to test it. Its slots are blocks of memory of the process, so it is of no use outside of tests.
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "contract/slot_contract.hpp"

namespace tiermem::contract {
namespace {

// ---- The tier

class ToyTier final : public SlotTier {
 public:
  ToyTier(std::uint64_t budget, std::uint64_t largest) : budget_(budget), largest_(largest) {}
  Place place() const override { return {Kind::block, 0}; }

  Result<SlotId> allocate(std::uint64_t bytes, std::uint64_t avoid) override {
    if ((avoid & 1) != 0 || degraded_ || bytes > largest_ || in_use_ + bytes > budget_) {
      return fail(Code::no_capacity,
                  "the toy tier has {} of {} in use, and no room for a slot of {}",
                  human_bytes(in_use_), human_bytes(budget_), human_bytes(bytes));
    }
    if (in_use_ + bytes > physical_.load()) {
      return fail(Code::busy, "the toy tier must grow by {} first", human_bytes(bytes));
    }
    in_use_ += bytes;
    slots_[next_].resize(bytes);
    return SlotId{next_++};
  }
  void free(SlotId slot) override {
    in_use_ -= bytes_of(slot);
    slots_.erase(slot.value);
  }
  std::uint64_t bytes_of(SlotId slot) const override { return slots_.at(slot.value).size(); }
  SlotUsage usage() const override { return {budget_.load(), in_use_, physical_.load()}; }
  void set_budget(std::uint64_t bytes) override { budget_ = bytes; }
  // The only call from a worker.
  Status grow(std::uint64_t bytes) override {
    std::uint64_t physical = physical_.load();
    do {
      if (physical + bytes > budget_.load()) {
        return fail(Code::no_capacity, "the toy tier cannot grow by {}: its budget is {}",
                    human_bytes(bytes), human_bytes(budget_.load()));
      }
    } while (!physical_.compare_exchange_weak(physical, physical + bytes));
    return {};
  }
  unsigned depth() const override { return 4; }
  std::uint16_t device_of(SlotId) const override { return 0; }
  const char* device_name(std::uint16_t) const override { return "memory of the process"; }
  void degrade(std::uint16_t, const char*) override { degraded_ = true; }
  void trust_again() override { degraded_ = false; }
  unsigned degraded() const override { return degraded_ ? 1 : 0; }

  void submit(const SlotTransfer& transfer) override { queue_.push_back(transfer); }
  std::size_t reap(std::span<SlotCompletion> completions) override {
    std::size_t n = 0;
    for (; n < completions.size() && !queue_.empty(); ++n) {
      completions[n] = run(queue_.front());
      queue_.pop_front();
    }
    return n;
  }

  bool fails = false;  ///< The test makes all transfers fail.

 private:
  SlotCompletion run(const SlotTransfer& transfer) {
    SlotCompletion done{.cookie = transfer.cookie, .requests = 1};
    if (fails) {
      done.code = Code::io_error;
      done.native = EIO;
      return done;
    }
    std::byte* const bytes = slots_.at(transfer.slot.value).data() + transfer.offset;
    transfer.write ? std::memcpy(bytes, transfer.data, transfer.length)
                   : std::memcpy(transfer.data, bytes, transfer.length);
    return done;
  }

  // Read by grow(), too.
  std::atomic<std::uint64_t> budget_, physical_{0};
  // Used by the mover only.
  const std::uint64_t largest_;
  std::uint64_t in_use_ = 0, next_ = 0;
  bool degraded_ = false;
  std::map<std::uint64_t, std::vector<std::byte>> slots_;
  std::deque<SlotTransfer> queue_;
};

// ---- The contract suite runs on it

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB;

class ToySubject final : public SlotSubject {
 public:
  ToySubject() : SlotSubject({.budget = 16 * kMiB, .sizes = {4 * kKiB, 64 * kKiB, kMiB}}) {}
  SlotTier& tier() override { return tier_; }
  bool fail_transfers() override { return tier_.fails = true; }
  void forgive() override { tier_.fails = false; }

 private:
  ToyTier tier_{16 * kMiB, kMiB};
};

const auto kToy =
    ::testing::Values(SlotCase{"toy", [](std::string&) { return std::make_unique<ToySubject>(); }});
INSTANTIATE_TEST_SUITE_P(Toy, SlotContract, kToy, slot_name);
INSTANTIATE_TEST_SUITE_P(Toy, WritableSlots, kToy, slot_name);

}  // namespace
}  // namespace tiermem::contract
