// Creates the host's address space. It finds out what the kernel allows by trying it once, before
// anything else exists, and keeps each refusal as a message.
#include <cstring>

#include "base/error.hpp"
#include "tier/host_space.hpp"

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

const char* reason_of(Mechanism mechanism, const HostSpaceFacts& facts) {
  switch (mechanism) {
    case Mechanism::uffd_move:
      return facts.move_reason;
    case Mechanism::copy:
      return facts.copy_reason;
    case Mechanism::remap:
      return facts.remap_reason;
    case Mechanism::in_place:
      break;
  }
  return "";
}

// Probes only the mechanisms that may be chosen, cheapest first. If pages cannot be moved, mremap
// is better for windows of large extents. It costs mappings, of which a process has 65,530, so
// small extents are copied. Mapped windows are copied too, because their touches must be detected.
Status choose_mechanisms(const HostSpaceOptions& options, const Userfault& userfault,
                         HostSpaceFacts& facts) {
  const auto wanted = [&](Mechanism mechanism) {
    return !options.mechanism.has_value() || *options.mechanism == mechanism;
  };
  if (wanted(Mechanism::uffd_move) &&
      userfault.probe_move(facts.move_reason, sizeof(facts.move_reason))) {
    facts.windows = facts.small_windows = facts.mapped = Mechanism::uffd_move;
    if (options.watch) {
      facts.watches = userfault.probe_watch(facts.watch_reason, sizeof(facts.watch_reason));
    }
    return {};
  }
  const bool copy =
      wanted(Mechanism::copy) &&
      userfault.probe_copy(host::kHugePage, facts.copy_reason, sizeof(facts.copy_reason));
  if (copy) {
    facts.windows = facts.small_windows = facts.mapped = Mechanism::copy;
  }
  if (wanted(Mechanism::remap) &&
      host::probe_remap(facts.remap_reason, sizeof(facts.remap_reason))) {
    facts.windows = Mechanism::remap;
  }
  if (!copy && facts.windows == Mechanism::remap && !options.mechanism.has_value() &&
      !options.follow_forks) {
    facts.mapped = Mechanism::remap;
  }
  if (copy || facts.windows == Mechanism::remap || wanted(Mechanism::in_place)) {
    return {};
  }
  return fail(Code::unsupported, "mechanism={}: {}; set mechanism=auto",
              name_of(*options.mechanism), reason_of(*options.mechanism, facts));
}

Status choose_huge_pages(const HostSpaceOptions& options, HostSpaceFacts& facts) {
  if (options.huge_pages == HugePages::off) {
    set_text(facts.huge_reason, "off by the options");
    return {};
  }
  facts.huge_pages = host::huge_pages_available(facts.huge_reason, sizeof(facts.huge_reason));
  if (!facts.huge_pages && options.huge_pages == HugePages::require) {
    return fail(Code::unsupported, "huge_pages=require: {}; set huge_pages=auto",
                facts.huge_reason);
  }
  return {};
}

// Nothing else is chosen in place of signals: the program relies on them, or on system calls that
// work.
Status check_signals(const HostSpaceOptions& options, const HostSpaceFacts& facts) {
  if (options.userfault != UserfaultUse::signal) {
    return {};
  }
  if (!facts.userfault.signals) {
    return fail(Code::unsupported, "userfault=signal: no userfaultfd here ({}); set userfault=auto",
                facts.userfault.reason);
  }
  if (facts.mapped == Mechanism::in_place || facts.mapped == Mechanism::remap) {
    return fail(Code::unsupported,
                "userfault=signal: mapped buffers need UFFDIO_MOVE or UFFDIO_COPY here: {:.70} "
                "{:.70}; set userfault=auto",
                facts.move_reason, facts.copy_reason);
  }
  if (options.follow_forks) {
    return fail(Code::unsupported,
                "userfault=signal with fork=follow: a child of fork has no handler of touches; "
                "remove one of the two options");
  }
  return {};
}

}  // namespace

Result<HostSpace::Sources> HostSpace::open_sources(const HostSpaceOptions& options) {
  Sources sources(options.memories.size());
  std::optional<Topology> topology;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const HostMemoryOptions& each = options.memories[i];
    if (each.place.kind == Kind::pmem) {
      if (options.follow_forks) {
        return fail(Code::unsupported,
                    "pmem={:.120} with fork=follow: a child of fork would store into its parent's "
                    "bytes; remove one of the two options",
                    each.path);
      }
      auto opened = DaxFile::open(each.path, each.budget);
      if (!opened.ok()) {
        return std::move(opened).status();
      }
      sources[i].file = std::make_unique<DaxPages>(std::move(*opened));
      continue;
    }
    if (each.place.kind != Kind::numa) {
      continue;
    }
    if (!topology) {
      topology = read_topology();
    }
    auto opened = host::NodePages::open(*topology, each.place.index, each.budget);
    if (!opened.ok()) {
      return std::move(opened).status();
    }
    sources[i].node = *opened;
  }
  return sources;
}

Result<std::unique_ptr<HostSpace>> HostSpace::create(const HostSpaceOptions& options) {
  auto sources = open_sources(options);
  if (!sources.ok()) {
    return std::move(sources).status();
  }
  HostSpaceFacts facts;
  if (Status huge = choose_huge_pages(options, facts); !huge.ok()) {
    return huge;
  }
  Userfault userfault = Userfault::open(options.userfault);
  facts.userfault = userfault.facts();
  if (Status chosen = choose_mechanisms(options, userfault, facts); !chosen.ok()) {
    return chosen;
  }
  std::unique_ptr<TouchTrap> trap;
  if (Status possible = check_signals(options, facts); !possible.ok()) {
    return possible;
  }
  if (facts.mapped == Mechanism::remap || facts.userfault.signals) {
    auto made = TouchTrap::create(facts.userfault.signals ? TouchTrap::Kind::registered
                                                          : TouchTrap::Kind::closed);
    if (made.ok()) {
      trap = std::move(*made);
    } else if (facts.userfault.signals) {
      return std::move(made).status();
    } else {
      facts.mapped = Mechanism::in_place;
      set_text(facts.copy_reason, made.message());
    }
  }
  auto space = std::unique_ptr<HostSpace>(
      new HostSpace(options, std::move(*sources), facts, std::move(userfault), std::move(trap)));
  if (space->stop_ < 0) {
    return fail_native(Code::unavailable, errno, "eventfd: {}", std::strerror(errno));
  }
  if (Status opened = space->homes_.open(); !opened.ok()) {
    return opened;
  }
  return space;
}

}  // namespace tiermem
