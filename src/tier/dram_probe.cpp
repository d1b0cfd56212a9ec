// Creating a DRAM tier: what the kernel allows is found out by doing it, once, before anything else
// exists. What was refused is kept as a sentence.
#include <cstring>

#include "base/error.hpp"
#include "tier/dram.hpp"

namespace tiermem {
namespace {

const char* name_of(Mechanism mechanism) {
  switch (mechanism) {
    case Mechanism::uffd_move:
      return "uffd_move";
    case Mechanism::remap:
      return "remap";
    case Mechanism::copy:
      return "copy";
    case Mechanism::in_place:
      break;
  }
  return "in_place";
}

// Only what may be chosen is probed, in the order of cost.
Result<Mechanism> choose_mechanism(const DramOptions& options, const Userfault& userfault,
                                   DramFacts& facts) {
  const auto wanted = [&](Mechanism mechanism) {
    return !options.mechanism.has_value() || *options.mechanism == mechanism;
  };
  if (wanted(Mechanism::uffd_move) &&
      userfault.probe_move(facts.move_reason, sizeof(facts.move_reason))) {
    return Mechanism::uffd_move;
  }
  if (wanted(Mechanism::remap) &&
      host::probe_remap(facts.remap_reason, sizeof(facts.remap_reason))) {
    return Mechanism::remap;
  }
  if (wanted(Mechanism::in_place)) {
    return Mechanism::in_place;
  }
  return fail(Code::unsupported, "the mechanism {} cannot be had: {}", name_of(*options.mechanism),
              *options.mechanism == Mechanism::uffd_move ? facts.move_reason
              : *options.mechanism == Mechanism::remap
                  ? facts.remap_reason
                  : "frames appear by uffd_move, remap or in_place");
}

Status choose_huge_pages(const DramOptions& options, DramFacts& facts) {
  if (options.huge_pages == HugePages::off) {
    set_text(facts.huge_reason, "off by the options");
    return {};
  }
  facts.huge_pages = host::huge_pages_available(facts.huge_reason, sizeof(facts.huge_reason));
  if (!facts.huge_pages && options.huge_pages == HugePages::require) {
    return fail(Code::unsupported, "huge_pages=require cannot be met: {}", facts.huge_reason);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<DramTier>> DramTier::create(const DramOptions& options) {
  DramFacts facts;
  if (Status huge = choose_huge_pages(options, facts); !huge.ok()) {
    return huge;
  }
  Userfault userfault = Userfault::open(options.userfault);
  facts.userfault = userfault.facts();
  auto mechanism = choose_mechanism(options, userfault, facts);
  if (!mechanism.ok()) {
    return std::move(mechanism).status();
  }
  facts.windows = *mechanism;
  // Remapped, every small extent would cost mappings, of which a process has 65,530.
  facts.small_windows =
      *mechanism == Mechanism::uffd_move ? Mechanism::uffd_move : Mechanism::in_place;
  auto tier = std::unique_ptr<DramTier>(new DramTier(options, facts, std::move(userfault)));
  if (tier->stop_ < 0) {
    return fail_native(Code::unavailable, errno, "eventfd: {}", std::strerror(errno));
  }
  if (*mechanism == Mechanism::uffd_move) {
    auto huge = Nursery::create(tier->userfault_, facts.huge_pages);
    auto small = Nursery::create(tier->userfault_, false);
    if (!huge.ok() || !small.ok()) {
      return huge.ok() ? std::move(small).status() : std::move(huge).status();
    }
    tier->huge_nursery_ = std::move(*huge);
    tier->small_nursery_ = std::move(*small);
  }
  return tier;
}

}  // namespace tiermem
