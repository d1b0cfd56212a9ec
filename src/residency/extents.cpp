// The memory cost of extents.
#include "residency/extents.hpp"

#include <bit>

#include "base/checked.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kPolicyBytes = 16;  // Size of a record of policy/recency.hpp.
constexpr unsigned kGroupsInBlock = Extents::kBlock / Extents::kGroup;
static_assert(64 % kGroupsInBlock == 0);

// Returns the bits of the groups of one block, in the word of the group.
std::uint64_t block_bits(std::uint64_t group) {
  constexpr std::uint64_t kBits = (std::uint64_t{1} << kGroupsInBlock) - 1;
  return kBits << (group % 64 / kGroupsInBlock * kGroupsInBlock);
}

}  // namespace

void Extents::note_group(ExtentRef ref) noexcept {
  const std::uint64_t group = ref / kGroup;
  std::uint64_t& bits = groups_[group / 64];
  const std::uint64_t bit = std::uint64_t{1} << (group % 64);
  if ((bits & bit) != 0) {
    return;
  }
  blocks_begun_ += (bits & block_bits(group)) == 0 ? 1 : 0;
  bits |= bit;
  ++groups_begun_;
  const std::uint64_t block = ref / kBlock;
  const std::uint64_t block_bit = std::uint64_t{1} << (block % 64);
  blocks_touched_ += (touched_[block / 64] & block_bit) == 0 ? 1 : 0;
  touched_[block / 64] |= block_bit;
}

// Releases whole blocks only. The entries of a shorter run stay for the next buffer of its size.
void Extents::end_run(ExtentRef first, ExtentRef end) noexcept {
  const std::uint64_t from = round_up(first, kBlock);
  const std::uint64_t to = std::uint64_t{end} / kBlock * kBlock;
  bool any = false;
  for (std::uint64_t group = from / kGroup; group < to / kGroup;) {
    std::uint64_t& bits = groups_[group / 64];
    if (bits == 0) {
      group = (group / 64 + 1) * 64;
      continue;
    }
    const std::uint64_t gone = bits & block_bits(group);
    bits &= ~gone;
    groups_begun_ -= static_cast<unsigned>(std::popcount(gone));
    if (gone != 0) {
      --blocks_begun_;
      drop_levels(static_cast<ExtentRef>(group * kGroup));
      any = true;
    }
    group += kGroupsInBlock;
  }
  if (!any) {
    return;
  }
  directory_.drop(from, to);
  addresses_.drop(from, to);
  page_levels_.drop(from, to);
  if (replicas_ != nullptr) {
    replicas_->drop(from, to);
  }
  for (unsigned space = 0; space < spaces_; ++space) {
    frames_[space]->drop(from, to);
  }
}

void Extents::drop_levels(ExtentRef ref) noexcept {
  std::uint64_t& bits = with_levels_[ref / (kBlock * 64)];
  const std::uint64_t bit = std::uint64_t{1} << (ref / kBlock % 64);
  blocks_with_levels_ -= (bits & bit) != 0 ? 1 : 0;
  bits &= ~bit;
}

bool Extents::test_consistent(ExtentRef end) const noexcept {
  std::uint64_t groups = 0, begun = 0, touched = 0, with_levels = 0;
  for (std::uint64_t group = 0; group * kGroup < end; group += kGroupsInBlock) {
    const std::uint64_t bits = groups_[group / 64] & block_bits(group);
    groups += static_cast<unsigned>(std::popcount(bits));
    begun += bits != 0 ? 1 : 0;
    const std::uint64_t block = group / kGroupsInBlock;
    touched += touched_[block / 64] >> (block % 64) & 1;
    with_levels += with_levels_[block / 64] >> (block % 64) & 1;
  }
  return groups == groups_begun_ && begun == blocks_begun_ && touched == blocks_touched_ &&
         with_levels == blocks_with_levels_;
}

std::uint64_t Extents::metadata_bytes() const noexcept {
  // Blocks in use cost addresses, replicas, and frames for each space. All blocks that were ever
  // used cost words for each space, and the policy's records.
  const std::uint64_t in_use =
      kBlock * (sizeof(std::byte*) + replica_bytes() + spaces_ * sizeof(FrameId));
  const std::uint64_t kept = kBlock * spaces_ * (sizeof(ExtentWord) + kPolicyBytes);
  return groups_begun_ * kGroup * sizeof(Extent) + blocks_begun_ * in_use + blocks_touched_ * kept +
         blocks_with_levels_ * kBlock * sizeof(PageLevels::Memory);
}

}  // namespace tiermem
