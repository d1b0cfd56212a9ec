// Memories of the host's space under the contract suite, with each mechanism that this kernel
// offers.
#include <sys/mman.h>

#include <cstdlib>
#include <optional>

#include "contract/memory_contract.hpp"
#include "support/locked_pages.hpp"
#include "tier/host_space.hpp"

namespace tiermem::contract {
namespace {

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB;

class Dram final : public MemorySubject {
 public:
  static std::unique_ptr<MemorySubject> make(const HostSpaceOptions& options,
                                             std::string& why_not) {
    auto space = HostSpace::create(options);
    if (!space.ok()) {
      why_not = space.message();
      return nullptr;
    }
    return std::make_unique<Dram>(std::move(*space));
  }
  explicit Dram(std::unique_ptr<HostSpace> space)
      : MemorySubject(facts_of(*space)), space_(std::move(space)) {}

  Memory& memory() override { return own(); }
  bool consistent() override {
    EXPECT_EQ(space_->counters().pages_misplaced, 0U) << "new pages came from another node";
    return own().test_consistent();
  }
  bool absent(std::byte* page) override {
    unsigned char resident = 1;
    EXPECT_EQ(::mincore(page, kSmallestExtent, &resident), 0);
    return (resident & 1) == 0;
  }
  bool wait_for_touch() override { return space_->next_fault(-1, touch_); }
  void stop_touches() override { space_->stop_faults(); }
  void wake() override { space_->wake(touch_.address); }
  bool refuse(const char* call, std::byte* at) override {
    // Pages that the kernel reads and writes do not move. Other mechanisms take them along.
    if (std::strcmp(call, "withdraw") != 0 || space_->facts().mapped != Mechanism::uffd_move) {
      return false;
    }
    pinned_.emplace(at, kSmallestExtent);
    return pinned_->why_not().empty();
  }
  void forgive() override { pinned_.reset(); }
  Memory* sibling() override { return space_->memories().size() > 1 ? &space_->memory() : nullptr; }
  bool lock_pages_with(PageLocker& locker) override {
    if (own().file() != nullptr) {
      return false;
    }
    if (own().node() != nullptr && own().node()->movable()) {
      return false;  // A lock would move the pages to another node.
    }
    own().lock_pages_with(&locker);
    return true;
  }

 private:
  /// The memory under test is the last one of its space.
  HostMemory& own() { return *static_cast<HostMemory*>(space_->memories().back()); }
  static MemoryFacts facts_of(const HostSpace& space) {
    const HostSpaceFacts& facts = space.facts();
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
    if (static_cast<const HostMemory*>(space.memories().back())->file() != nullptr) {
      // Each frame in a window is a mapping, and the program touches it through views only.
      result.window_extents = {2 * kMiB, 4 * kMiB};
      result.own_memory_from = 2 * kMiB;
      result.mapped_extents = result.part_extents = {};
      result.touches_wait = result.watches = false;
      result.takes_home = true;
    }
    return result;
  }

  std::unique_ptr<HostSpace> space_;
  Fault touch_;
  std::optional<test::LockedPages> pinned_;
};

HostSpaceOptions options() {
  return {.memories = {{.budget = 32 * kMiB}}, .window_reserve_bytes = std::uint64_t{8} << 30};
}

MemoryCase by(const char* name, Mechanism mechanism) {
  return {name, [mechanism](std::string& why_not) {
            HostSpaceOptions chosen = options();
            chosen.mechanism = mechanism;
            return Dram::make(chosen, why_not);
          }};
}

const MemoryCase kAutomatic{"automatic",
                            [](std::string& why_not) { return Dram::make(options(), why_not); }};
const MemoryCase kWithoutUserfault{"without_userfault", [](std::string& why_not) {
                                     HostSpaceOptions chosen = options();
                                     chosen.userfault = UserfaultUse::off;
                                     return Dram::make(chosen, why_not);
                                   }};
const MemoryCase kFollowsForks{"follows_forks", [](std::string& why_not) {
                                 HostSpaceOptions chosen = options();
                                 chosen.follow_forks = true;
                                 return Dram::make(chosen, why_not);
                               }};

MemoryCase second(const char* name, std::optional<Mechanism> mechanism, bool follows_forks,
                  UserfaultUse userfault = UserfaultUse::automatic) {
  return {name, [mechanism, follows_forks, userfault](std::string& why_not) {
            HostSpaceOptions chosen = options();
            chosen.memories.push_back(chosen.memories.front());
            chosen.mechanism = mechanism;
            chosen.follow_forks = follows_forks;
            chosen.userfault = userfault;
            return Dram::make(chosen, why_not);
          }};
}
const MemoryCase kSecond = second("second_of_two", {}, false);
const auto kTwo = ::testing::Values(
    kSecond, second("two_by_uffd_move", Mechanism::uffd_move, false),
    second("two_by_copy", Mechanism::copy, false), second("two_by_remap", Mechanism::remap, false),
    second("two_in_place", Mechanism::in_place, false),
    second("two_without_userfault", {}, false, UserfaultUse::off),
    second("two_that_follow_forks", {}, true));

/// Bound to a node, beside a memory of any node. tests/rig chooses the node, and this machine's
/// first one is the default.
MemoryCase on_node(const char* name, std::optional<Mechanism> mechanism) {
  return {name, [mechanism](std::string& why_not) {
            HostSpaceOptions chosen = options();
            chosen.mechanism = mechanism;
            const char* const node = std::getenv("TIERMEM_TEST_NODE");
            const auto number = static_cast<std::uint16_t>(node != nullptr ? std::atoi(node) : 0);
            chosen.memories.push_back({.budget = 32 * kMiB, .place = {Kind::numa, number}});
            return Dram::make(chosen, why_not);
          }};
}

const auto kNodes = ::testing::Values(on_node("node", {}), on_node("node_copy", Mechanism::copy),
                                      on_node("node_remap", Mechanism::remap),
                                      on_node("node_in_place", Mechanism::in_place));

/// In a file, beside a memory of ordinary pages. tests/rig names a directory on a DAX file system,
/// and a DAX device.
MemoryCase in_file(const char* name, std::optional<Mechanism> mechanism,
                   UserfaultUse userfault = UserfaultUse::automatic) {
  return {name, [mechanism, userfault](std::string& why_not) {
            HostSpaceOptions chosen = options();
            chosen.mechanism = mechanism;
            chosen.userfault = userfault;
            const char* const path = std::getenv("TIERMEM_TEST_PMEM");
            chosen.memories.push_back({.budget = 32 * kMiB,
                                       .place = {Kind::pmem, 0},
                                       .path = path != nullptr ? path : testing::TempDir()});
            return Dram::make(chosen, why_not);
          }};
}

const auto kFiles = ::testing::Values(in_file("file", {}), in_file("file_copy", Mechanism::copy),
                                      in_file("file_remap", Mechanism::remap),
                                      in_file("file_in_place", Mechanism::in_place),
                                      in_file("file_without_userfault", {}, UserfaultUse::off));

const auto kSubjects = ::testing::Values(kAutomatic, by("uffd_move", Mechanism::uffd_move),
                                         by("copy", Mechanism::copy), by("remap", Mechanism::remap),
                                         by("in_place", Mechanism::in_place), kWithoutUserfault,
                                         kFollowsForks, kSecond);
INSTANTIATE_TEST_SUITE_P(Dram, MemoryContract, kSubjects, memory_name);
INSTANTIATE_TEST_SUITE_P(Dram, HostMemoryContract, kSubjects, memory_name);
INSTANTIATE_TEST_SUITE_P(Dram, RelocateContract, kTwo, memory_name);
INSTANTIATE_TEST_SUITE_P(DramOfNode, MemoryContract, kNodes, memory_name);
INSTANTIATE_TEST_SUITE_P(DramOfNode, HostMemoryContract, kNodes, memory_name);
INSTANTIATE_TEST_SUITE_P(DramOfNode, RelocateContract, kNodes, memory_name);
INSTANTIATE_TEST_SUITE_P(Pmem, MemoryContract, kFiles, memory_name);
INSTANTIATE_TEST_SUITE_P(Pmem, HostMemoryContract, kFiles, memory_name);
INSTANTIATE_TEST_SUITE_P(Pmem, RelocateContract, kFiles, memory_name);

}  // namespace
}  // namespace tiermem::contract
