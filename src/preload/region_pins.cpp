// Extents that must stay resident. Each has a view.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "base/results.hpp"
#include "preload/kernel.hpp"
#include "preload/region_table.hpp"

namespace tiermem::preload {
namespace regions {
namespace {

// Bringing in extents that must stay may have to wait until others are written.
constexpr Timeout kPatience = Timeout::seconds(60);

// One page of the extent must not move, and another is tiermem's. An extent pinned for a foreign
// page stays pinned until that page is gone: the tier still has bytes of the extent, and would
// empty all of it.
bool must_stay(const Entry& entry, std::uint64_t extent) {
  const Part part = extents_part(entry, extent, extent);
  return entry.pages.any(part, [](const PageState& state) { return state.pinned(); }) &&
         (entry.pages.any(part, is_tiered) || entry.pins.contains(extent));
}

// Extents between the two that must stay and have no view.
Vector<std::uint64_t> unpinned_between(const Entry& entry, std::uint64_t first,
                                       std::uint64_t last) {
  Vector<std::uint64_t> found;
  const auto add = [&](std::uint64_t extent) {
    if ((found.empty() || found.back() < extent) && !entry.pins.contains(extent) &&
        must_stay(entry, extent)) {
      found.push_back(extent);
    }
  };
  entry.pages.for_runs(extents_part(entry, first, last), [&](Part run, const PageState& state) {
    if (!state.pinned()) {
      return true;
    }
    const std::uint64_t end = extent_at(entry, run.end() - 1);
    if (is_foreign(state)) {  // Extents between the two ends are entirely foreign.
      add(extent_at(entry, run.begin));
      add(end);
    } else {
      for (std::uint64_t extent = extent_at(entry, run.begin); extent <= end; ++extent) {
        add(extent);
      }
    }
    return true;
  });
  return found;
}

// Whether `bytes` fit beside the pinned bytes. Without this check, acquire would bring in the first
// extents and wait for room for the others.
bool may_fit(std::uint64_t bytes) {
  const Stats stats = context()->stats();
  return bytes <= stats.dram_budget - std::min(stats.dram_budget, stats.dram_pinned);
}

// Gives a view to each extent of the part that must stay, and to no other. On false with errno
// there was no room for an extent that must stay, and no view was added.
bool settle(Entry& entry, Part part) {
  if (part.length == 0 || (entry.pages.plain() && entry.pins.empty())) {
    return true;
  }
  const std::uint64_t first = extent_at(entry, part.begin);
  const std::uint64_t last = extent_at(entry, part.end() - 1);
  const Vector<std::uint64_t> wanted = unpinned_between(entry, first, last);
  if (!wanted.empty() && !may_fit(wanted.size() * entry.extent)) {
    log_warn("{} bytes at {} cannot be kept resident: they exceed the budget", part.length,
             static_cast<void*>(part.begin));
    errno = ENOMEM;
    return false;
  }
  constexpr std::size_t kAtOnce = 256;
  Map<std::uint64_t, ViewRecord> made;
  for (const std::uint64_t extent : wanted) {
    made.emplace(extent, ViewRecord{});
  }
  Vector<Access> list;
  Vector<ViewRecord> views;
  list.reserve(std::min(wanted.size(), kAtOnce));
  views.reserve(wanted.size());  // No call may throw while views are held.
  for (std::size_t done = 0; done < wanted.size(); done += list.size()) {
    list.clear();
    for (std::size_t i = done; i < std::min(wanted.size(), done + kAtOnce); ++i) {
      list.push_back(access_of(entry, extents_part(entry, wanted[i], wanted[i]), kWrite));
    }
    views.resize(done + list.size());
    const Status status = context()->acquire(list, kPatience, {views.data() + done, list.size()});
    if (!status.ok()) {
      log_warn("{} bytes at {} cannot be kept resident: {}", part.length,
               static_cast<void*>(part.begin), status.message());
      if (done != 0) {
        (void)context()->release({views.data(), done});
      }
      errno = ENOMEM;
      return false;
    }
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    made.find(wanted[i])->second = views[i];
  }
  entry.pins.merge(made);
  release_pins(entry, first, last);
  for (const std::uint64_t extent : wanted) {  // Some of their pages may have been emptied before.
    fill_pinned(entry, extents_part(entry, extent, extent));
  }
  return true;
}

// For the library only: the kernel's locks stay.
void unlock(Entry& entry) {
  const Part all{entry.begin, entry.capacity};
  if (entry.pages.any(all, [](const PageState& state) { return state.locked; })) {
    entry.pages.change(all, [](PageState& state) { state.locked = false; });
    release_pins(entry, 0, extent_at(entry, all.end() - 1));
  }
}

}  // namespace

void release_pins(Entry& entry, std::uint64_t first, std::uint64_t last) {
  for (auto pin = entry.pins.lower_bound(first); pin != entry.pins.end() && pin->first <= last;) {
    if (must_stay(entry, pin->first)) {
      ++pin;
    } else {
      (void)context()->release({&pin->second, 1});
      pin = entry.pins.erase(pin);
    }
  }
}

bool apply_settled(Entry& entry, Part part, PageStates::Change& change) {
  entry.pages.apply(change);
  bool settled = false;
  try {
    settled = settle(entry, part);
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  }
  if (!settled) {
    entry.pages.apply(change);
  }
  return settled;
}

void undo_settled(Entry& entry, Part part, PageStates::Change& change) {
  const int error = errno;
  if (!apply_settled(entry, part, change)) {
    log_warn("{} bytes at {} may leave memory, although they should stay", part.length,
             static_cast<void*>(part.begin));
    entry.pages.apply(change);
  }
  errno = error;
}

void fill_pinned(const Entry& entry, Part part) {
  for (auto pin = entry.pins.lower_bound(extent_at(entry, part.begin)); pin != entry.pins.end();
       ++pin) {
    const Part extent = extents_part(entry, pin->first, pin->first);
    if (extent.begin >= part.end()) {
      break;
    }
    std::byte* const begin = std::max(part.begin, extent.begin);
    std::byte* const end = std::min(part.end(), extent.end());
    for (const Part& hole : tiered_in(entry, {begin, static_cast<std::size_t>(end - begin)})) {
      context()->impl().fill_window(hole.begin, hole.length);
    }
  }
}

void forget_locks() {
  (void)guarded(
      [] {
        for (auto& [begin, entry] : table().entries) {
          unlock(entry);
        }
        return 0;
      },
      -1);
}

}  // namespace regions

using namespace regions;  // NOLINT: what follows is declared in region.hpp.

bool mlock_regions(bool on_fault) {
  if (!have_table()) {
    return true;
  }
  return guarded(
      [on_fault] {
        Vector<std::pair<Entry*, PageStates::Change>> changed;
        changed.reserve(table().entries.size());
        for (auto& [begin, entry] : table().entries) {
          const Part all{entry.begin, entry.length};
          PageStates::Change change = entry.pages.prepare(
              all, [](PageState& state) { state.locked = state.locked || !is_unmapped(state); });
          alter(entry);
          if (!apply_settled(entry, all, change)) {
            for (auto& [other, theirs] : changed) {
              undo_settled(*other, {other->begin, other->length}, theirs);
            }
            return false;
          }
          changed.emplace_back(&entry, std::move(change));
        }
        for (const auto& [begin, entry] : table().entries) {
          entry.pages.for_runs({entry.begin, entry.length}, [&](Part run, const PageState& state) {
            if (!is_unmapped(state)) {
              constexpr unsigned kOnFault = 1;  // MLOCK_ONFAULT
              best_effort(plain_mlock(run.begin, run.length, on_fault ? kOnFault : 0),
                          "mlockall ignores pages that cannot be brought in, too");
            }
            return true;
          });
        }
        return true;
      },
      false);
}

void munlock_regions() {
  if (!have_table()) {
    return;
  }
  (void)guarded(
      [] {
        for (auto& [begin, entry] : table().entries) {
          entry.pages.for_runs({entry.begin, entry.length}, [](Part run, const PageState& state) {
            if (state.locked) {
              best_effort(plain_munlock(run.begin, run.length), "the pages are only less free");
            }
            return true;
          });
          unlock(entry);
        }
        return 0;
      },
      -1);
}

bool keep_resident(Part part) {
  if (!have_table() || !touches_regions(part.begin, part.length)) {
    return true;
  }
  return guarded(
      [&] {
        return for_parts(whole_pages_of(part), 0, nothing, pass_over, [](Entry& entry, Part piece) {
                 PageStates::Change change = entry.pages.prepare(piece, [](PageState& state) {
                   state.kept = static_cast<std::uint16_t>(state.kept + (is_tiered(state) ? 1 : 0));
                 });
                 return apply_settled(entry, piece, change) ? 0 : -1;
               }) == 0;
      },
      false);
}

void let_leave(Part part) {
  if (!have_table() || !touches_regions(part.begin, part.length)) {
    return;
  }
  (void)guarded(
      [&] {
        return for_parts(whole_pages_of(part), 0, nothing, pass_over, [](Entry& entry, Part piece) {
          entry.pages.change(piece, [](PageState& state) {
            state.kept = static_cast<std::uint16_t>(state.kept - (state.kept != 0 ? 1 : 0));
          });
          release_pins(entry, extent_at(entry, piece.begin), extent_at(entry, piece.end() - 1));
          return 0;
        });
      },
      -1);
}

}  // namespace tiermem::preload
