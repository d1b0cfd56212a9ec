// Random sequences of legal calls on a slot tier, compared with a model of bytes and accounting.
//
// Property: a transfer that completes with ok has moved exactly its bytes; a slot holds what was
// written last; each transfer completes once; the books are the sum of the slots.
#include <map>

#include "contract/random_calls.hpp"
#include "contract/slot_contract.hpp"

namespace tiermem::contract {
namespace {

class SlotModel : RandomModel {
 public:
  explicit SlotModel(SlotSubject& subject) : subject_(subject), tier_(subject.tier()) {
    for (const SlotSubject::Known& known : subject.known()) {
      Block bytes = known.bytes;
      bytes.resize(facts().sizes.back());
      slots_.push_back({known.slot, std::move(bytes)});
    }
  }

  RunResult run(const std::vector<std::uint64_t>& calls) {
    for (const std::uint64_t call : calls) {
      if (failed()) {
        break;
      }
      make(Choices(call));
      check_books();
    }
    while (!sent_.empty() && !failed()) {
      reap(64);
    }
    for (const Slot& slot : slots_) {
      if (!failed() && facts().budget != 0) {
        tier_.free(slot.id);
      }
    }
    slots_.clear();
    if (!failed()) {
      check_books();
    }
    return result();
  }

 private:
  struct Slot {
    SlotId id;
    Block bytes;          // Its content.
    unsigned busy = 0;    // Transfers in progress.
    bool written = true;  // Read only what was written.
  };
  struct Sent {
    SlotId slot;
    bool write;
    std::uint64_t offset, length;
    Block memory;
    Block expected;  // The bytes that a read must return.
  };

  const SlotFacts& facts() const { return subject_.facts(); }

  void make(Choices choices) {
    switch (choices.below(10)) {
      case 0:
      case 1:
        return allocate(choices);
      case 2:
        return free(choices);
      case 3:
      case 4:
      case 5:
      case 6:
        return submit(choices);
      case 7:
        return set_budget(choices);
      default:
        return reap(1 + choices.below(8));
    }
  }
  void allocate(Choices choices) {
    if (facts().budget == 0) {
      return;
    }
    const std::uint64_t bytes = facts().sizes[choices.below(facts().sizes.size())];
    const std::uint64_t avoid = choices.below(4) == 0 ? 1 : 0;
    auto slot = tier_.allocate(bytes, avoid);
    if (!slot.ok() && slot.code() == Code::busy && tier_.grow(bytes).ok()) {
      slot = tier_.allocate(bytes, avoid);
      require(slot.code() != Code::busy, "allocate: busy after grow()");
    }
    say() << "allocate " << bytes << ", avoid " << avoid << (slot.ok() ? "\n" : ": refused\n");
    if (!slot.ok()) {
      return;
    }
    require(tier_.bytes_of(*slot) == bytes, "bytes_of");
    require(avoid == 0 || tier_.device_of(*slot) != 0, "allocate: on a device to avoid");
    for (const Slot& each : slots_) {
      require(each.id != *slot, "allocate: the slot is in use");
    }
    const SlotUsage usage = tier_.usage();
    require(usage.in_use <= usage.budget, "allocate: above the budget");
    slots_.push_back({*slot, Block(bytes), 0, false});
  }
  void free(Choices choices) {
    if (facts().budget == 0) {
      return;
    }
    if (Slot* const slot =
            choose(slots_, choices, [](const Slot& each) { return each.busy == 0; })) {
      say() << "free a slot of " << slot->bytes.size() << "\n";
      tier_.free(slot->id);
      std::erase_if(slots_, [&](const Slot& each) { return each.id == slot->id; });
    }
  }
  // A slot has one transfer in progress at a time.
  void submit(Choices choices) {
    if (sent_.size() == tier_.depth()) {
      return;
    }
    const bool write = facts().budget != 0 && choices.below(2) == 0;
    Slot* const slot = choose(slots_, choices, [&](const Slot& each) {
      return each.busy == 0 && (write || each.written);
    });
    if (slot == nullptr) {
      return;
    }
    const std::uint64_t pages = slot->bytes.size() / kSmallestExtent;
    const bool whole = !slot->written || choices.below(2) == 0;
    const std::uint64_t offset = whole ? 0 : choices.below(pages) * kSmallestExtent;
    const std::uint64_t rest = slot->bytes.size() - offset;
    const std::uint64_t length = whole ? rest : 1 + choices.below(rest);
    Sent& sent = sent_[++cookie_];
    sent = {slot->id, write, offset, length, {}, {}};
    if (write) {
      const Block data = pattern(length, cookie_);
      std::copy(data.begin(), data.end(), slot->bytes.begin() + offset);
      // The bytes from the end of the length to that of the block are the memory's.
      const std::uint64_t end = std::min<std::uint64_t>(
          rest, (length + kSmallestExtent - 1) / kSmallestExtent * kSmallestExtent);
      sent.memory.assign(slot->bytes.begin() + offset, slot->bytes.begin() + offset + end);
      slot->written = true;
    } else {
      sent.memory.assign((length + kSmallestExtent - 1) / kSmallestExtent * kSmallestExtent,
                         std::byte{0x5E});
      sent.expected.assign(slot->bytes.begin() + offset, slot->bytes.begin() + offset + length);
    }
    ++slot->busy;
    say() << (write ? "write " : "read ") << length << " bytes at " << offset << " of a slot of "
          << slot->bytes.size() << ", cookie " << cookie_ << "\n";
    tier_.submit({.cookie = cookie_,
                  .slot = slot->id,
                  .write = write,
                  .data = sent.memory.data(),
                  .length = length,
                  .offset = offset});
    if (choices.below(2) == 0) {
      tier_.dispatch();
    }
  }
  void reap(std::size_t at_once) {
    std::vector<SlotCompletion> done(at_once);
    const std::size_t n = tier_.reap(done);
    if (n == 0 && !sent_.empty()) {
      subject_.wait();
    }
    for (std::size_t i = 0; i < n; ++i) {
      const auto found = sent_.find(done[i].cookie);
      if (found == sent_.end()) {
        require(false, "reap: cookie " + std::to_string(done[i].cookie) + " is not in progress");
        return;
      }
      const Sent& sent = found->second;
      require(done[i].code == Code::ok, "a transfer fails");
      require(done[i].device == tier_.device_of(sent.slot), "reap: another device");
      require(sent.write || std::memcmp(sent.memory.data(), sent.expected.data(), sent.length) == 0,
              "cookie " + std::to_string(done[i].cookie) + " has read other bytes");
      for (Slot& slot : slots_) {
        slot.busy -= slot.id == sent.slot ? 1 : 0;
      }
      sent_.erase(found);
    }
  }
  void set_budget(Choices choices) {
    const std::uint64_t budget = facts().budget * (1 + choices.below(4)) / 4;
    say() << "set_budget " << budget << "\n";
    tier_.set_budget(budget);
  }
  void check_books() {
    std::uint64_t in_use = 0;
    for (const Slot& slot : slots_) {
      in_use += facts().budget != 0 ? slot.bytes.size() : 0;
    }
    const SlotUsage usage = tier_.usage();
    require(facts().compresses ? usage.in_use <= in_use : usage.in_use == in_use,
            "in_use is not the sum of the slots");
    require(usage.in_use == charges(), "in_use is not the sum of the charges");
    require(usage.in_use <= usage.physical, "slots without room");
    require(subject_.consistent(), "the books contradict the records");
  }

  std::uint64_t charges() const {
    std::uint64_t sum = 0;
    for (const Slot& slot : slots_) {
      sum += tier_.bytes_of(slot.id);
    }
    return sum;
  }

  SlotSubject& subject_;
  SlotTier& tier_;
  std::vector<Slot> slots_;
  std::map<std::uint64_t, Sent> sent_;  // By cookie.
  std::uint64_t cookie_ = 0;
};

TEST_P(SlotContract, random_calls_are_made_then_bytes_and_books_are_those_of_the_model) {
  run_random_calls(4, 300, [](const std::vector<std::uint64_t>& calls) {
    std::string why_not;
    const std::unique_ptr<SlotSubject> fresh = GetParam().make(why_not);
    return SlotModel(*fresh).run(calls);
  });
}

}  // namespace
}  // namespace tiermem::contract
