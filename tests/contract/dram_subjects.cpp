// The DRAM tier under the contract suite, with each mechanism that this kernel offers.
#include <sys/mman.h>

#include <optional>

#include "contract/memory_contract.hpp"
#include "support/locked_pages.hpp"
#include "tier/dram.hpp"

namespace tiermem::contract {
namespace {

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB;

class Dram final : public MemorySubject {
 public:
  static std::unique_ptr<MemorySubject> make(const DramOptions& options, std::string& why_not) {
    auto tier = DramTier::create(options);
    if (!tier.ok()) {
      why_not = tier.message();
      return nullptr;
    }
    return std::make_unique<Dram>(std::move(*tier));
  }
  explicit Dram(std::unique_ptr<DramTier> tier)
      : MemorySubject(facts_of(*tier)), tier_(std::move(tier)) {}

  Memory& memory() override { return *tier_; }
  bool consistent() override { return tier_->test_consistent(); }
  bool absent(std::byte* page) override {
    unsigned char resident = 1;
    EXPECT_EQ(::mincore(page, kSmallestExtent, &resident), 0);
    return (resident & 1) == 0;
  }
  bool wait_for_touch() override { return tier_->next_fault(-1, touch_); }
  void stop_touches() override { tier_->stop_faults(); }
  void wake() override { tier_->wake(touch_.address); }
  bool refuse(const char* call, std::byte* at) override {
    // Pages that the kernel reads and writes do not move. Other mechanisms take them along.
    if (std::strcmp(call, "withdraw") != 0 || tier_->facts().mapped != Mechanism::uffd_move) {
      return false;
    }
    pinned_.emplace(at, kSmallestExtent);
    return pinned_->why_not().empty();
  }
  void forgive() override { pinned_.reset(); }
  bool lock_pages_with(PageLocker& locker) override {
    tier_->lock_pages_with(&locker);
    return true;
  }

 private:
  static MemoryFacts facts_of(const DramTier& tier) {
    const DramFacts& facts = tier.facts();
    MemoryFacts result;
    result.budget = 32 * kMiB;
    result.extents = {4 * kKiB, 8 * kKiB, 64 * kKiB, 128 * kKiB, 2 * kMiB, 4 * kMiB};
    result.window_extents = result.extents;
    if (facts.mapped == Mechanism::remap) {
      result.mapped_extents = {2 * kMiB, 4 * kMiB};  // Small extents would need many mappings.
    } else if (facts.mapped != Mechanism::in_place) {
      result.mapped_extents = result.extents;
      result.part_extents = {8 * kKiB, 64 * kKiB, 128 * kKiB};
    }
    result.touches_wait = !result.mapped_extents.empty();
    result.watches = facts.watches;
    result.chunk_bytes = 2 * kMiB;
    const bool no_memory = facts.windows == Mechanism::in_place;
    const bool small_no_memory = facts.small_windows == Mechanism::in_place;
    result.own_memory_from = no_memory ? ~std::uint64_t{0} : small_no_memory ? 2 * kMiB : 0;
    result.takes_home = !no_memory;
    result.charges_records = true;
    return result;
  }

  std::unique_ptr<DramTier> tier_;
  Fault touch_;
  std::optional<test::LockedPages> pinned_;
};

DramOptions options() {
  return {.budget = 32 * kMiB, .window_reserve_bytes = std::uint64_t{8} << 30};
}

MemoryCase by(const char* name, Mechanism mechanism) {
  return {name, [mechanism](std::string& why_not) {
            DramOptions chosen = options();
            chosen.mechanism = mechanism;
            return Dram::make(chosen, why_not);
          }};
}

const MemoryCase kAutomatic{"automatic",
                            [](std::string& why_not) { return Dram::make(options(), why_not); }};
const MemoryCase kWithoutUserfault{"without_userfault", [](std::string& why_not) {
                                     DramOptions chosen = options();
                                     chosen.userfault = UserfaultUse::off;
                                     return Dram::make(chosen, why_not);
                                   }};
const MemoryCase kFollowsForks{"follows_forks", [](std::string& why_not) {
                                 DramOptions chosen = options();
                                 chosen.follow_forks = true;
                                 return Dram::make(chosen, why_not);
                               }};

const auto kSubjects =
    ::testing::Values(kAutomatic, by("uffd_move", Mechanism::uffd_move),
                      by("copy", Mechanism::copy), by("remap", Mechanism::remap),
                      by("in_place", Mechanism::in_place), kWithoutUserfault, kFollowsForks);
INSTANTIATE_TEST_SUITE_P(Dram, MemoryContract, kSubjects, memory_name);
INSTANTIATE_TEST_SUITE_P(Dram, HostMemory, kSubjects, memory_name);

}  // namespace
}  // namespace tiermem::contract
