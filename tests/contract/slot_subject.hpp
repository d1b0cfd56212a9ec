// A slot tier under the contract suite: the tier, the facts that decide which checks apply, and the
// outside world that the checks need. A new tier is tested by one subclass of SlotSubject, and by
// INSTANTIATE_TEST_SUITE_P of SlotContract and of WritableSlots or ReadOnlySlots, with a function
// that creates it.
//
// Threads: the test's thread makes all calls of a subject.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "contract/pattern.hpp"
#include "tier/slot_tier.hpp"

namespace tiermem::contract {

/// The properties of a slot tier that the contract leaves to the tier.
struct SlotFacts {
  /// Initial budget: a multiple of the largest size. 0: nothing can be allocated or written, as in
  /// adopted files.
  std::uint64_t budget = 0;
  /// Sizes of slots, ascending. The checks transfer slots of each.
  std::vector<std::uint64_t> sizes;
  unsigned devices = 1;
  /// Slots are charged for what is stored in them: at most their size.
  bool compresses = false;
};

class SlotSubject {
 public:
  explicit SlotSubject(SlotFacts facts) : facts_(std::move(facts)) {}
  virtual ~SlotSubject() = default;
  const SlotFacts& facts() const { return facts_; }
  virtual SlotTier& tier() = 0;
  /// Derives the accounting again from the records of the tier, if it can.
  virtual bool consistent() { return true; }
  /// Lets time pass until a transfer can make progress.
  virtual void wait() {}
  /// Makes the transfers fail that are submitted from now on. Returns false if this is not
  /// possible.
  virtual bool fail_transfers() { return false; }
  virtual void forgive() {}

  /// A slot of a tier that allocates nothing. The test knows its bytes.
  struct Known {
    SlotId slot;
    /// The bytes from the slot on. The tier reads zeros after them.
    Block bytes;
  };
  virtual std::vector<Known> known() { return {}; }

 private:
  const SlotFacts facts_;
};

/// A subject by name. `make` returns null, with the reason, if this machine lacks something.
struct SlotCase {
  const char* name;
  std::function<std::unique_ptr<SlotSubject>(std::string& why_not)> make;
};
inline void PrintTo(const SlotCase& subject, std::ostream* out) {
  *out << subject.name;
}

}  // namespace tiermem::contract
