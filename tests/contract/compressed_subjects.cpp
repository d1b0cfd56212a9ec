// Compressed memory under the contract suite. The bytes of the suite do not shrink, so each slot is
// charged with its size. The unit tests have bytes that do.
#include "contract/slot_contract.hpp"
#include "tier/compressed.hpp"

namespace tiermem::contract {
namespace {

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB;

class CompressedSubject final : public SlotSubject {
 public:
  CompressedSubject()
      : SlotSubject({.budget = 16 * kMiB,
                     .sizes = {4 * kKiB, 64 * kKiB, 128 * kKiB, kMiB},
                     .compresses = true}) {}
  SlotTier& tier() override { return tier_; }
  bool consistent() override { return tier_.check_invariants().ok(); }

 private:
  CompressedTier tier_{16 * kMiB};
};

const auto kCompressed = ::testing::Values(
    SlotCase{"compressed", [](std::string&) { return std::make_unique<CompressedSubject>(); }});
INSTANTIATE_TEST_SUITE_P(Compressed, SlotContract, kCompressed, slot_name);
INSTANTIATE_TEST_SUITE_P(Compressed, WritableSlots, kCompressed, slot_name);

}  // namespace
}  // namespace tiermem::contract
