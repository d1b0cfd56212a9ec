// The program's memory calls, as transitions of the page table. Functions that end in _part take a
// part of one region; those of region.hpp take any range.
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

void alter(Entry& entry) {
  if (!entry.altered.exchange(true)) {
    context()->impl().alter_window(entry.begin);
  }
}

Vector<Part> tiered_in(const Entry& entry, Part part) {
  Vector<Part> found;
  entry.pages.for_runs(part, [&](Part run, const PageState& state) {
    if (!is_tiered(state)) {
      return true;
    }
    if (!found.empty() && found.back().end() == run.begin) {
      found.back().length += run.length;
    } else {
      found.push_back(run);
    }
    return true;
  });
  return found;
}

namespace {

// The part is in an extent with a view, which the mover does not touch. The holes are filled,
// because a system call on a hole could fail if the kernel's faults are not served.
void empty_in_place(Part part) {
  constexpr int kDontNeedLocked = 24;  // MADV_DONTNEED_LOCKED, Linux 5.18.
  if (tiermem_plain_madvise(part.begin, part.length, MADV_DONTNEED) != 0 &&
      tiermem_plain_madvise(part.begin, part.length, kDontNeedLocked) != 0) {
    log_error("{} bytes at {} could not be emptied: {}", part.length,
              static_cast<void*>(part.begin), std::strerror(errno));
    return;
  }
  context()->impl().fill_window(part.begin, part.length);
}

void empty_by_mover(Entry& entry, Part part) {
  const Access access = access_of(entry, part, kDiscard);
  if (const Status status = context()->advise({&access, 1}, Advice::dont_need); !status.ok()) {
    log_error("{} bytes at {} could not be emptied: {}", part.length,
              static_cast<void*>(part.begin), status.message());
  }
}

// Splits the part into pieces inside and outside of extents with views.
template <typename Unpinned, typename Pinned>
void split_by_pins(const Entry& entry, Part part, Unpinned&& unpinned, Pinned&& pinned) {
  std::byte* at = part.begin;
  const auto up_to = [&](std::byte* end, auto&& each) {
    if (at < end) {
      each(Part{at, static_cast<std::size_t>(end - at)});
      at = end;
    }
  };
  for (auto pin = entry.pins.lower_bound(extent_at(entry, part.begin)); pin != entry.pins.end();
       ++pin) {
    const Part extent = extents_part(entry, pin->first, pin->first);
    if (extent.begin >= part.end()) {
      break;
    }
    up_to(extent.begin, unpinned);
    up_to(std::min(extent.end(), part.end()), pinned);
  }
  up_to(part.end(), unpinned);
}

}  // namespace

void discard_own(Entry& entry, Part part) {
  split_by_pins(
      entry, part, [&](Part unpinned) { empty_by_mover(entry, unpinned); }, empty_in_place);
}

int take_back(Entry& entry, Part part) {
  int error = 0;
  entry.pages.for_runs(part, [&](Part run, const PageState& state) {
    if (is_foreign(state) && error == 0) {
      error = context()->impl().take_back_window(run.begin, run.length);
    }
    return error == 0;
  });
  if (error != 0) {
    log_warn("{} bytes at {} cannot be mapped again: {}", part.length,
             static_cast<void*>(part.begin), std::strerror(error));
    errno = ENOMEM;
  }
  return error == 0 ? 0 : -1;
}

}  // namespace regions

using namespace regions;  // NOLINT: what follows is declared in region.hpp.

namespace {

// Bringing in the pages that a call needs may have to wait for devices.
constexpr Timeout kPatience = Timeout::seconds(60);
constexpr int kPopulateRead = 22, kPopulateWrite = 23;  // Linux 5.14. They stop at a hole.

// The part, extended over the rest of its first and last extent if that rest has no tiered page.
// The tier then forgets the whole extent; otherwise it would bring in and move stale bytes of it.
Part with_dead_edges(const Entry& entry, Part part) {
  const Part outer = outer_extents(entry, part);
  const Part before{outer.begin, static_cast<std::size_t>(part.begin - outer.begin)};
  const Part behind{part.end(), static_cast<std::size_t>(outer.end() - part.end())};
  const auto is_dead = [&](const std::byte* page, Part rest) {
    return !entry.pins.contains(extent_at(entry, page)) && !entry.pages.any(rest, is_tiered);
  };
  std::byte* const begin = is_dead(part.begin, before) ? outer.begin : part.begin;
  std::byte* const end = is_dead(part.end() - 1, behind) ? outer.end() : part.end();
  return {begin, static_cast<std::size_t>(end - begin)};
}

std::size_t mapped_bytes(const Entry& entry, Part part) {
  std::size_t sum = 0;
  entry.pages.for_runs(part, [&](Part run, const PageState& state) {
    sum += is_unmapped(state) ? 0 : run.length;
    return true;
  });
  return sum;
}

// tiered_bytes() counts memory that the program may touch. A reservation does not count.
std::uint64_t usable_bytes(const Entry& entry, Part part) {
  std::uint64_t sum = 0;
  entry.pages.for_runs(part, [&](Part run, const PageState& state) {
    sum += is_tiered(state) && state.protection != PROT_NONE ? run.length : 0;
    return true;
  });
  return sum;
}

/// Updates tiered_bytes() around a change of a part's states.
class Counting {
 public:
  Counting(Entry& entry, Part part)
      : entry_(entry), part_(part), before_(usable_bytes(entry, part)) {}
  ~Counting() {
    const std::uint64_t change = usable_bytes(entry_, part_) - before_;  // Modulo 2^64.
    entry_.counted += change;
    count_tiered(change);
  }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;

 private:
  Entry& entry_;
  const Part part_;
  const std::uint64_t before_;
};

// The pages in front of the first unmapped one.
Part mapped_front(const Entry& entry, Part part) {
  Part front{part.begin, 0};
  entry.pages.for_runs(part, [&](Part run, const PageState& state) {
    front.length += is_unmapped(state) ? 0 : run.length;
    return !is_unmapped(state);
  });
  return front;
}

// The kernel's answer for a range with a hole: the call has taken effect in front of it.
int hole_behind(Part front, Part all) {
  if (front.length == all.length) {
    return 0;
  }
  errno = ENOMEM;
  return -1;
}

void unlock_pages(const Entry& entry, Part part) {
  if (entry.pages.any(part, [](const PageState& state) { return state.locked; })) {
    best_effort(plain_munlock(part.begin, part.length), "locked pages are only less free to move");
  }
}

int unmap_part(Entry& entry, Part part) {
  const std::size_t mapped = std::min(entry.live, mapped_bytes(entry, part));
  if (mapped == 0) {
    return 0;
  }
  if (mapped == entry.live && entry.use != Use::heap) {
    end_entry(table().entries.find(entry.begin));
    return 0;
  }
  const Counting counting(entry, part);
  PageStates::Change change =
      entry.pages.prepare(part, [](PageState& state) { state = kUnmapped; });
  alter(entry);
  unlock_pages(entry, part);
  // ENOMEM of mprotect means too many mappings; munmap of a part may return that as well.
  if (take_back(entry, part) != 0 ||
      tiermem_plain_mprotect(part.begin, part.length, PROT_NONE) != 0) {
    return -1;
  }
  entry.pages.apply(change);
  entry.live -= mapped;
  release_pins(entry, extent_at(entry, part.begin), extent_at(entry, part.end() - 1));
  discard_own(entry, with_dead_edges(entry, part));
  return 0;
}

int renew_part(Entry& entry, Part part, int protection) {
  const Counting counting(entry, part);
  const bool fresh = protection == (PROT_READ | PROT_WRITE);
  const std::size_t unmapped = part.length - mapped_bytes(entry, part);
  const Vector<Part> tiered = tiered_in(entry, part);
  PageStates::Change change = entry.pages.prepare(part, [&](PageState& state) {
    state = PageState{};
    state.protection = static_cast<std::uint8_t>(protection);
  });
  if (!fresh || !entry.pages.plain()) {
    alter(entry);
    unlock_pages(entry, part);
    if (take_back(entry, part) != 0 ||
        tiermem_plain_mprotect(part.begin, part.length, protection) != 0) {
      return -1;
    }
  }
  if (!apply_settled(entry, part, change)) {  // Extents with foreign pages may have to stay.
    return -1;
  }
  for (const Part& run : tiered) {
    discard_own(entry, run);
  }
  fill_pinned(entry, part);  // Pages that were foreign or unmapped are holes in their extent.
  entry.live += unmapped;
  return 0;
}

int protect_part(Entry& entry, Part part, int protection) {
  if (protection == (PROT_READ | PROT_WRITE) && entry.pages.plain()) {
    return 0;
  }
  const Counting counting(entry, part);
  const Part front = mapped_front(entry, part);
  if (front.length != 0) {
    PageStates::Change change = entry.pages.prepare(
        front, [&](PageState& state) { state.protection = static_cast<std::uint8_t>(protection); });
    alter(entry);
    if (!apply_settled(entry, front,
                       change)) {  // Locked pages come in before they become accessible.
      return -1;
    }
    if (tiermem_plain_mprotect(front.begin, front.length, protection) != 0) {
      undo_settled(entry, front, change);
      return -1;
    }
    if (protection == PROT_NONE) {
      // The program cannot access the bytes, so they need not occupy memory.
      const Access access = access_of(entry, front, kRead);
      (void)context()->advise({&access, 1}, Advice::cold);
    }
  }
  return hole_behind(front, part);
}

// If the mover cannot move pages, it copies them through a mapping of its own. The key would deny
// it access there, so pages with a key stay.
int key_part(Entry& entry, Part part, int protection, int key) {
  const Counting counting(entry, part);
  const Part front = mapped_front(entry, part);
  if (front.length != 0) {
    PageStates::Change change = entry.pages.prepare(front, [&](PageState& state) {
      state.protection = static_cast<std::uint8_t>(protection);
      state.keyed = key != 0;
    });
    alter(entry);
    if (!apply_settled(entry, front, change)) {
      return -1;
    }
    if (direct(SYS_pkey_mprotect, front.begin, front.length, protection, key) != 0) {
      undo_settled(entry, front, change);
      return -1;
    }
  }
  return hole_behind(front, part);
}

int advise_run(Entry& entry, Part run, const PageState& state, int advice) {
  constexpr int kDontNeedLocked = 24, kCollapse = 25, kGuardInstall = 102, kGuardRemove = 103;
  const Access access = access_of(entry, run, kRead);
  switch (advice) {
    case MADV_DONTNEED:
    case MADV_FREE:
      if (state.locked) {
        errno = EINVAL;
        return -1;
      }
      [[fallthrough]];
    case kDontNeedLocked:
      discard_own(entry, run);
      return 0;
    case MADV_COLD:
    case MADV_PAGEOUT:
      if (state.locked) {
        errno = EINVAL;
        return -1;
      }
      if (advice == MADV_COLD) {
        (void)context()->advise({&access, 1}, Advice::cold);
      } else {
        (void)context()->evict({&access, 1}, kPatience);
      }
      return 0;
    case MADV_WILLNEED:
      (void)context()->advise({&access, 1}, Advice::will_need);
      return 0;
    case MADV_SEQUENTIAL:
      (void)context()->advise({&access, 1}, Advice::sequential);
      return 0;
    case MADV_RANDOM:
      (void)context()->advise({&access, 1}, Advice::random);
      return 0;
    case MADV_NORMAL:
      (void)context()->advise({&access, 1}, Advice::normal);
      return 0;
    case MADV_HUGEPAGE:  // The extent size decides.
    case MADV_NOHUGEPAGE:
    case MADV_MERGEABLE:
    case MADV_UNMERGEABLE:
    case MADV_DONTFORK:  // A child gets the range anyway; the mover keeps it intact.
    case MADV_DOFORK:
    case MADV_KEEPONFORK:
    case kCollapse:
      return tiermem_plain_madvise(run.begin, 0, advice);  // Checks the advice.
    case MADV_REMOVE:                                      // For shared memory only.
    case MADV_WIPEONFORK:
    case kGuardInstall:  // As on a kernel before 6.13.
    case kGuardRemove:
      errno = EINVAL;
      return -1;
    default:  // The kernel applies it to the mapping and moves no page for it.
      alter(entry);
      return tiermem_plain_madvise(run.begin, run.length, advice);
  }
}

int advise_part(Entry& entry, Part part, int advice, bool goes_on) {
  int result = 0;
  bool hole = false;
  Part alike{part.begin, 0};  // Tiered runs that differ only in protection are advised together.
  PageState state;
  const auto flush = [&] {
    if (alike.length != 0 && result == 0) {
      result = advise_run(entry, alike, state, advice);
    }
    alike.length = 0;
  };
  entry.pages.for_runs(part, [&](Part run, const PageState& now) {
    if (alike.length != 0 && (!is_tiered(now) || now.locked != state.locked)) {
      flush();
    }
    if (result != 0) {
      return false;
    }
    if (is_tiered(now)) {
      if (alike.length == 0) {
        alike.begin = run.begin;
        state = now;
      }
      alike.length += run.length;
    } else if (is_foreign(now)) {
      result = tiermem_plain_madvise(run.begin, run.length, advice);
      if (result != 0 && errno == ENOMEM && goes_on) {  // A foreign run with a hole.
        hole = true;
        result = 0;
      }
    } else {
      hole = true;
    }
    return result == 0 && (goes_on || !hole);
  });
  flush();
  return result == 0 && hole ? no_memory(part) : result;
}

int lock_part(Entry& entry, Part part, int flags) {
  const Part front = mapped_front(entry, part);
  if (front.length == 0) {
    return hole_behind(front, part);
  }
  PageStates::Change change =
      entry.pages.prepare(front, [](PageState& state) { state.locked = true; });
  alter(entry);
  if (!apply_settled(entry, front, change)) {
    return -1;
  }
  // In front of a hole the kernel locks the pages and brings none in.
  constexpr unsigned kOnFault = 1;  // MLOCK_ONFAULT
  const unsigned how = static_cast<unsigned>(flags) | (front.length < part.length ? kOnFault : 0U);
  if (plain_mlock(front.begin, front.length, how) == 0) {
    return hole_behind(front, part);
  }
  const int error = errno;
  // The kernel also locks pages that it may not bring in, and returns an error.
  const bool inaccessible =
      entry.pages.any(front, [](const PageState& state) { return state.protection == PROT_NONE; });
  if (error != ENOMEM || !inaccessible) {
    undo_settled(entry, front, change);
    best_effort(plain_munlock(front.begin, front.length), "it need not have been locked");
  }
  errno = error;
  return -1;
}

int unlock_part(Entry& entry, Part part) {
  const Part front = mapped_front(entry, part);
  if (front.length != 0) {
    PageStates::Change change =
        entry.pages.prepare(front, [](PageState& state) { state.locked = false; });
    if (plain_munlock(front.begin, front.length) != 0) {
      return -1;
    }
    entry.pages.apply(change);
    release_pins(entry, extent_at(entry, front.begin), extent_at(entry, front.end() - 1));
  }
  return hole_behind(front, part);
}

// The tier gives up all that it has of the part, and extents that stay partly tiered are pinned.
// The part is lent before it is discarded, so that no read-ahead brings it in between.
int lend_part(Entry& entry, Part part, int protection) {
  const Counting counting(entry, part);
  const std::size_t unmapped = part.length - mapped_bytes(entry, part);
  const bool locked = entry.pages.any(part, [](const PageState& state) { return state.locked; });
  PageStates::Change change = entry.pages.prepare(part, [&](PageState& state) {
    state = PageState{};
    state.kind = PageState::Kind::foreign;
    state.protection = static_cast<std::uint8_t>(protection);
  });
  if (!apply_settled(entry, part, change)) {
    return -1;
  }
  alter(entry);
  if (!context()->impl().lend_window(part.begin, part.length)) {
    errno = ENOMEM;
    undo_settled(entry, part, change);
    return -1;
  }
  if (locked) {
    best_effort(plain_munlock(part.begin, part.length), "what is mapped there next is not locked");
  }
  split_by_pins(
      entry, with_dead_edges(entry, part), [&](Part unpinned) { empty_by_mover(entry, unpinned); },
      [](Part) {});
  entry.live += unmapped;
  return 0;
}

// Whether all of the part is mapped, of one kind, with one protection, and equally locked.
bool is_alike(const Entry& entry, Part part, PageState& state) {
  state = entry.pages.at(part.begin);
  return !is_unmapped(state) && !entry.pages.any(part, [&](const PageState& other) {
    return other.kind != state.kind || other.protection != state.protection ||
           other.locked != state.locked;
  });
}

// Addresses outside regions become the program's for good. The mover may still be releasing the
// buffer that was there.
int give_away(Part part) {
  constexpr int kTries = 2000;
  for (int tries = 0; !context()->impl().give_away(part.begin, part.length); ++tries) {
    if (tries == kTries) {
      return no_memory(part);
    }
    const timespec pause{.tv_sec = 0, .tv_nsec = 500'000};
    best_effort(::nanosleep(&pause, nullptr), "a shorter pause will do");
  }
  return 0;
}

// If the kernel's own faults are not served, this thread touches the pages, without the lock.
int populate_parts(Part range, int advice, Rest rest) {
  const int access = advice == kPopulateWrite ? PROT_WRITE : PROT_READ;
  while (range.length != 0) {
    Part part = range;
    PageState state;
    PageState::Kind kind = PageState::Kind::foreign;
    {
      const ArenaScope inside;
      const Reading lock;
      const auto found = at_or_after(range.begin);
      if (found == table().entries.end() || found->first > range.begin) {
        std::byte* const end = found == table().entries.end() ? range.end() : found->first;
        bool own = false;
        part.length = context()->impl().stretch(
            range.begin, static_cast<std::size_t>(std::min(end, range.end()) - range.begin), own);
        kind = own ? PageState::Kind::unmapped : PageState::Kind::foreign;
      } else {
        const Entry& entry = found->second;
        std::byte* const end = std::min(range.end(), entry.begin + entry.capacity);
        const PageStates::Run run =
            entry.pages.first_of({range.begin, static_cast<std::size_t>(end - range.begin)});
        part = run.part;
        state = run.state;
        kind = state.kind;
      }
    }
    const bool tiered = kind == PageState::Kind::tiered;
    if (kind == PageState::Kind::unmapped) {
      return no_memory(part);
    }
    if (!tiered && rest(part.begin, part.length, advice) != 0) {
      return -1;
    }
    if (tiered && (state.protection & access) == 0) {
      errno = EINVAL;
      return -1;
    }
    for (std::byte* at = part.begin; tiered && at < part.end(); at += kPage) {
      if (access == PROT_WRITE) {
        std::atomic_ref(reinterpret_cast<unsigned char&>(*at)).fetch_or(0);
      } else {
        (void)*static_cast<const volatile std::byte*>(at);
      }
    }
    range = {part.end(), range.length - part.length};
  }
  return 0;
}

}  // namespace

int unmap_parts(Part range, Rest rest) {
  return guarded([&] { return for_parts(range, 0, rest, pass_over, unmap_part); }, -1);
}

int renew_parts(Part range, int protection, Rest rest) {
  return guarded(
      [&] {
        const auto fresh = [&](Part part) {
          return give_away(part) == 0 ? rest(part.begin, part.length, protection) : -1;
        };
        return for_parts(range, protection, rest, fresh, [&](Entry& entry, Part part) {
          return renew_part(entry, part, protection);
        });
      },
      -1);
}

int protect_parts(Part range, int protection, Rest rest) {
  return guarded(
      [&] {
        return for_parts(range, protection, rest, no_memory, [&](Entry& entry, Part part) {
          return protect_part(entry, part, protection);
        });
      },
      -1);
}

int protect_by_key(Part range, int protection, int key, Rest rest) {
  return guarded(
      [&] {
        return for_parts(range, protection, rest, no_memory, [&](Entry& entry, Part part) {
          return key_part(entry, part, protection, key);
        });
      },
      -1);
}

// The kernel continues after a hole and reports it at the end.
int advise_parts(Part range, int advice, Rest rest) {
  const bool goes_on = advice != kPopulateRead && advice != kPopulateWrite;
  if (!goes_on &&
      context()->impl().host_space().facts().userfault.source == UserfaultSource::user_mode) {
    return populate_parts(range, advice, rest);
  }
  const Reading lock;
  bool hole = false;
  const auto passed_over = [&](int result) {
    const bool over = result != 0 && errno == ENOMEM && goes_on;
    hole = hole || over;
    return over ? 0 : result;
  };
  const int result = for_parts(
      range, advice,
      [&](std::byte* begin, std::size_t length, int what) {
        return passed_over(rest(begin, length, what));
      },
      [&](Part part) { return passed_over(no_memory(part)); },
      [&](Entry& entry, Part part) {
        return passed_over(advise_part(entry, part, advice, goes_on));
      });
  if (result == 0 && hole) {
    if (tiermem_plain_madvise(range.begin, 0, advice) == 0) {  // Checks the advice.
      errno = ENOMEM;
    }
    return -1;
  }
  return result;
}

int lock_parts(Part range, int flags, Rest rest) {
  return guarded(
      [&] {
        return for_parts(range, flags, rest, no_memory,
                         [&](Entry& entry, Part part) { return lock_part(entry, part, flags); });
      },
      -1);
}

int unlock_parts(Part range, Rest rest) {
  return guarded([&] { return for_parts(range, 0, rest, no_memory, unlock_part); }, -1);
}

int check_mapped(Part range) {
  const Reading lock;
  return for_parts(range, 0, nothing, no_memory, [](Entry& entry, Part part) {
    return hole_behind(mapped_front(entry, part), part);
  });
}

void* lend_parts(Part range, int protection, void* (*place)(Part range, void* argument),
                 void* argument) {
  return guarded(
      [&]() -> void* {
        Part lent{range.begin, 0};
        const auto lend = [&](Entry& entry, Part part) {
          if (lend_part(entry, part, protection) != 0) {
            return -1;
          }
          lent.length = static_cast<std::size_t>(part.end() - lent.begin);
          return 0;
        };
        void* const placed = for_parts(range, 0, nothing, give_away, lend) == 0
                                 ? place(range, argument)
                                 : MAP_FAILED;
        if (placed == MAP_FAILED) {
          const int error = errno;
          (void)for_parts(lent, 0, nothing, pass_over, [](Entry& entry, Part part) {
            return renew_part(entry, part, PROT_READ | PROT_WRITE);
          });
          errno = error;
        }
        return placed;
      },
      MAP_FAILED);
}

bool alike_part(Part part, PageState& state) {
  const Reading lock;
  const auto found = at_or_after(part.begin);
  return found != table().entries.end() && found->first <= part.begin &&
         part.end() <= found->first + found->second.capacity &&
         is_alike(found->second, part, state);
}

void take_back_holes(std::byte* begin, bool (*is_hole)(std::byte* page)) {
  (void)guarded(
      [&] {
        Vector<Part> holes;
        const auto end = table().entries.end();
        for (auto at = at_or_after(begin); at != end; ++at) {
          const Entry& entry = at->second;
          std::byte* const from = std::max(begin, entry.begin);
          const Part rest{from, static_cast<std::size_t>(entry.begin + entry.capacity - from)};
          entry.pages.for_runs(rest, [&](Part run, const PageState& state) {
            for (std::size_t done = 0; is_foreign(state) && done < run.length; done += kPage) {
              if (is_hole(run.begin + done)) {
                holes.push_back({run.begin + done, kPage});
              }
            }
            return true;
          });
        }
        // Unmapping the last mapped page ends the region.
        return std::all_of(holes.begin(), holes.end(), [](Part hole) {
          return for_parts(hole, 0, nothing, pass_over, unmap_part) == 0;
        });
      },
      false);
}

bool claim_unmapped(Part range, Rest claim, Rest give_back) {
  Part claimed{range.begin, 0};
  const auto goes_on = [&](Part part, int result) {
    claimed.length += result == 0 ? part.length : 0;
    return result;
  };
  const Reading lock;
  const int result = for_parts(
      range, 0,
      [&](std::byte* begin, std::size_t length, int argument) {
        return goes_on({begin, length}, claim(begin, length, argument));
      },
      [&](Part part) { return goes_on(part, 0); },
      [&](Entry& entry, Part part) {
        return goes_on(part, mapped_bytes(entry, part) == 0 ? 0 : -1);
      });
  if (result != 0) {
    (void)for_parts(claimed, 0, give_back, pass_over, [](Entry&, Part) { return 0; });
  }
  return result == 0;
}

void give_back_claims(Part range, Rest give_back) {
  const Reading lock;
  (void)for_parts(range, 0, give_back, pass_over, [](Entry&, Part) { return 0; });
}

std::byte* create_pool(std::size_t length, std::size_t capacity, std::size_t extent) {
  std::byte* const begin = create_region(Use::mapping, length, capacity, extent);
  return guarded(
      [&] {
        if (begin != nullptr) {
          at_or_after(begin)->second.pool = true;
        }
        return begin;
      },
      begin);
}

std::byte* map_in_pool(std::byte* pool, std::size_t length) {
  return guarded(
      [&]() -> std::byte* {
        const auto found = table().entries.find(pool);
        if (found == table().entries.end() || !found->second.pool) {
          return nullptr;
        }
        Entry& entry = found->second;
        std::byte* room = nullptr;
        entry.pages.for_runs({entry.begin, entry.capacity}, [&](Part run, const PageState& state) {
          room = is_unmapped(state) && run.length >= length ? run.begin : nullptr;
          return room == nullptr;
        });
        const bool mapped =
            room != nullptr && renew_part(entry, {room, length}, PROT_READ | PROT_WRITE) == 0;
        return mapped ? room : nullptr;
      },
      nullptr);
}

bool grow_part(Part part, std::size_t to) {
  return guarded(
      [&] {
        const auto found = at_or_after(part.begin);
        if (found == table().entries.end()) {
          return false;
        }
        Entry& entry = found->second;
        const Part more{part.end(), to - part.length};
        if (more.end() > entry.begin + entry.capacity || mapped_bytes(entry, more) != 0) {
          return false;
        }
        const PageState last = entry.pages.at(part.end() - kPage);
        if (renew_part(entry, more, last.protection) != 0) {
          return false;
        }
        return !last.locked || lock_part(entry, more, 0) == 0;
      },
      false);
}

}  // namespace tiermem::preload
