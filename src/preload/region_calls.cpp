// The calls of a program on memory, as transitions of the table of pages. Functions that end in _part
// take a part of one region; those of region.hpp take any range.
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

// The mapping of some pages is no longer what the tier made it: it mends that when the region ends.
void alter(Entry& entry) {
  if (!entry.altered.exchange(true)) {
    context()->impl().alter_window(entry.begin);
  }
}

// What is tiered of the part, in stretches as long as can be.
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

// Of an extent with a view, which the mover does not touch. No hole stays: a system call on it
// could fail where the kernel's faults are not served.
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

}  // namespace

// All of the part is tiered, by `pins` as they are.
void discard_tiered(Entry& entry, Part part) {
  std::byte* at = part.begin;
  const auto by_mover = [&](std::byte* end) {
    if (at >= end) {
      return;
    }
    const Access access = access_of(entry, {at, static_cast<std::size_t>(end - at)}, kDiscard);
    if (const Status status = context()->advise({&access, 1}, Advice::dont_need); !status.ok()) {
      log_error("{} bytes at {} could not be emptied: {}", access.length,
                static_cast<void*>(at), status.message());
    }
  };
  for (auto pin = entry.pins.lower_bound(extent_at(entry, part.begin)); pin != entry.pins.end();
       ++pin) {
    const Part extent = extents_part(entry, pin->first, pin->first);
    if (extent.begin >= part.end()) {
      break;
    }
    by_mover(extent.begin);
    std::byte* const begin = std::max(at, extent.begin);
    std::byte* const end = std::min(extent.end(), part.end());
    empty_in_place({begin, static_cast<std::size_t>(end - begin)});
    at = end;
  }
  by_mover(part.end());
}

// Foreign pages of the part are tiermem's again, and absent.
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

// Bringing out what a call asks for may have to wait for devices.
constexpr Timeout kPatience = Timeout::seconds(60);
constexpr int kPopulateRead = 22, kPopulateWrite = 23;  // Linux 5.14. Unlike others, end at a hole.

void discard(Entry& entry, const Vector<Part>& tiered) {
  for (const Part& part : tiered) {
    discard_tiered(entry, part);
  }
}

// Of extents in which no page is tiered any more the tier forgets what it still has: it would bring
// that back with its neighbours. Those in the middle of the part are known to be empty.
void forget_dead_extents(Entry& entry, Part part) {
  const std::uint64_t first = extent_at(entry, part.begin);
  const std::uint64_t last = extent_at(entry, part.end() - 1);
  for (std::uint64_t extent = first; extent <= last; extent += std::max<std::uint64_t>(1, last - first)) {
    const Part whole = extents_part(entry, extent, extent);
    if (!entry.pins.contains(extent) && !entry.pages.any(whole, is_tiered)) {
      discard_tiered(entry, whole);
    }
  }
}

std::size_t mapped_bytes(const Entry& entry, Part part) {
  std::size_t sum = 0;
  entry.pages.for_runs(part, [&](Part run, const PageState& state) {
    sum += is_unmapped(state) ? 0 : run.length;
    return true;
  });
  return sum;
}

// tiered_bytes() counts what the program may touch: a reservation is no need for memory.
std::uint64_t usable_bytes(const Entry& entry, Part part) {
  std::uint64_t sum = 0;
  entry.pages.for_runs(part, [&](Part run, const PageState& state) {
    sum += is_tiered(state) && state.protection != PROT_NONE ? run.length : 0;
    return true;
  });
  return sum;
}

/// Around a change of the states of a part.
class Counting {
 public:
  Counting(Entry& entry, Part part) : entry_(entry), part_(part), before_(usable_bytes(entry, part)) {}
  ~Counting() {
    const std::uint64_t change = usable_bytes(entry_, part_) - before_;  // Wraps, and back.
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

// What lies in front of the first unmapped page.
Part mapped_front(const Entry& entry, Part part) {
  Part front{part.begin, 0};
  entry.pages.for_runs(part, [&](Part run, const PageState& state) {
    front.length += is_unmapped(state) ? 0 : run.length;
    return !is_unmapped(state);
  });
  return front;
}

// As the kernel answers where a range has a hole: what is in front of it was done.
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
  const Vector<Part> tiered = tiered_in(entry, part);
  PageStates::Change change =
      entry.pages.prepare(part, [](PageState& state) { state = kUnmapped; });
  alter(entry);
  unlock_pages(entry, part);
  // mprotect: ENOMEM, as munmap of a part may answer: there are too many mappings.
  if (take_back(entry, part) != 0 ||
      tiermem_plain_mprotect(part.begin, part.length, PROT_NONE) != 0) {
    return -1;
  }
  discard(entry, tiered);
  entry.pages.apply(change);
  entry.live -= mapped;
  release_pins(entry, extent_at(entry, part.begin), extent_at(entry, part.end() - 1));
  if (!entry.pages.any(outer_extents(entry, part), is_foreign)) {
    forget_dead_extents(entry, part);
  }
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
  entry.pages.apply(change);
  if (!settle(entry, part)) {  // Beside foreign pages.
    entry.pages.apply(change);
    return -1;
  }
  discard(entry, tiered);
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
    PageStates::Change change = entry.pages.prepare(front, [&](PageState& state) {
      state.protection = static_cast<std::uint8_t>(protection);
    });
    alter(entry);
    if (tiermem_plain_mprotect(front.begin, front.length, protection) != 0) {
      return -1;
    }
    entry.pages.apply(change);
    if (!settle(entry, front)) {  // Locked pages can be accessed again, and do not fit.
      return -1;
    }
    if (protection == PROT_NONE) {
      // No access is allowed, so that nothing is gained by memory for it.
      const Access access = access_of(entry, front, kRead);
      (void)context()->advise({&access, 1}, Advice::cold);
    }
  }
  return hole_behind(front, part);
}

// The mover copies pages that it cannot move by a mapping of its own, to which the key would not
// give access: pages with a key stay.
int key_part(Entry& entry, Part part, int protection, int key) {
  const Part front = mapped_front(entry, part);
  if (front.length != 0) {
    PageStates::Change change = entry.pages.prepare(front, [&](PageState& state) {
      state.protection = static_cast<std::uint8_t>(protection);
      state.keyed = key != 0;
    });
    alter(entry);
    entry.pages.apply(change);
    if (!settle(entry, front) ||
        ::syscall(SYS_pkey_mprotect, front.begin, front.length, protection, key) != 0) {
      const int error = errno;
      entry.pages.apply(change);
      (void)settle(entry, front);
      errno = error;
      return -1;
    }
  }
  return hole_behind(front, part);
}

// What the kernel does to the mapping itself, and does not move a page for.
int advise_mapping(Entry& entry, Part run, int advice) {
  alter(entry);
  return tiermem_plain_madvise(run.begin, run.length, advice);
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
      discard_tiered(entry, run);
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
    case MADV_HUGEPAGE:  // The extents' size decides.
    case MADV_NOHUGEPAGE:
    case MADV_MERGEABLE:
    case MADV_UNMERGEABLE:
    case MADV_DONTFORK:  // A child has the range all the same: the mover keeps it whole.
    case MADV_DOFORK:
    case MADV_KEEPONFORK:
    case kCollapse:
      return tiermem_plain_madvise(run.begin, 0, advice);  // Whether the kernel knows it.
    case MADV_REMOVE:  // For shared memory only.
    case MADV_WIPEONFORK:
    case kGuardInstall:  // As from a kernel before 6.13.
    case kGuardRemove:
      errno = EINVAL;
      return -1;
    default:
      return advise_mapping(entry, run, advice);
  }
}

int advise_part(Entry& entry, Part part, int advice, bool goes_on) {
  int result = 0;
  bool hole = false;
  Part alike{part.begin, 0};  // Tiered runs that differ in protection are advised at once.
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
      if (result != 0 && errno == ENOMEM && goes_on) {  // A hole in it.
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
  entry.pages.apply(change);
  const bool settled = settle(entry, front);
  if (settled) {
    fill_pinned(entry, front);  // The kernel brings each page, and its own faults may not be served.
  }
  // In front of a hole the kernel locks and brings nothing.
  constexpr unsigned kOnFault = 1;  // MLOCK_ONFAULT
  const unsigned how =
      static_cast<unsigned>(flags) | (front.length < part.length ? kOnFault : 0U);
  if (settled && plain_mlock(front.begin, front.length, how) == 0) {
    return hole_behind(front, part);
  }
  const int error = errno;
  // The kernel locks what it may not bring, too, and says that it could not.
  const bool inaccessible = entry.pages.any(
      front, [](const PageState& state) { return state.protection == PROT_NONE; });
  if (!settled || error != ENOMEM || !inaccessible) {
    entry.pages.apply(change);
    (void)settle(entry, front);
    if (settled) {
      best_effort(plain_munlock(front.begin, front.length), "it need not have been locked");
    }
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

// All that the tier has of the part is given up, and extents that are tiered in part are pinned.
int lend_part(Entry& entry, Part part, int protection) {
  const Counting counting(entry, part);
  const std::size_t unmapped = part.length - mapped_bytes(entry, part);
  const Vector<Part> tiered = tiered_in(entry, part);
  const bool locked = entry.pages.any(part, [](const PageState& state) { return state.locked; });
  const bool foreign_before = entry.pages.any(outer_extents(entry, part), is_foreign);
  PageStates::Change change = entry.pages.prepare(part, [&](PageState& state) {
    state = PageState{};
    state.kind = PageState::Kind::foreign;
    state.protection = static_cast<std::uint8_t>(protection);
  });
  entry.pages.apply(change);
  if (!settle(entry, part)) {
    entry.pages.apply(change);
    return -1;
  }
  if (locked) {
    best_effort(plain_munlock(part.begin, part.length), "what is mapped there next is not locked");
  }
  entry.altered = true;
  discard(entry, tiered);
  if (!foreign_before) {
    forget_dead_extents(entry, part);
  }
  context()->impl().lend_window(part.begin, part.length);
  entry.live += unmapped;
  return 0;
}

// Whether the part is tiered, mapped and alike.
bool is_alike(const Entry& entry, Part part, PageState& state) {
  state = entry.pages.at(part.begin);
  return is_tiered(state) && !entry.pages.any(part, [&](const PageState& other) {
    return !is_tiered(other) || other.protection != state.protection ||
           other.locked != state.locked;
  });
}

// Addresses of no region become the program's for good. The buffer that was there may still be on
// its way out.
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

// Where the kernel's own faults are not served: this thread touches the pages, without the lock.
int populate_parts(Part range, int advice, Rest rest) {
  const int access = advice == kPopulateWrite ? PROT_WRITE : PROT_READ;
  while (range.length != 0) {
    Part part = range;
    PageState state;
    enum class Whose : std::uint8_t { others, ours, nobody } whose = Whose::others;
    {
      const ArenaScope inside;
      const std::shared_lock lock(table().mutex);
      const auto found = at_or_after(range.begin);
      if (found == table().entries.end() || found->first > range.begin) {
        std::byte* const end = found == table().entries.end() ? range.end() : found->first;
        bool own = false;
        part.length = context()->impl().stretch(
            range.begin, static_cast<std::size_t>(std::min(end, range.end()) - range.begin), own);
        whose = own ? Whose::nobody : Whose::others;
      } else {
        const Entry& entry = found->second;
        std::byte* const end = std::min(range.end(), entry.begin + entry.capacity);
        const PageStates::Run run = entry.pages.first_of(
            {range.begin, static_cast<std::size_t>(end - range.begin)});
        part = run.part;
        state = run.state;
        whose = is_unmapped(state)  ? Whose::nobody
                : is_tiered(state) ? Whose::ours
                                   : Whose::others;
      }
    }
    if (whose == Whose::nobody) {
      return no_memory(part);
    }
    if (whose == Whose::others && rest(part.begin, part.length, advice) != 0) {
      return -1;
    }
    if (whose == Whose::ours && (state.protection & access) == 0) {
      errno = EINVAL;
      return -1;
    }
    for (std::byte* at = part.begin; whose == Whose::ours && at < part.end(); at += kPage) {
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

// A hole does not end it: the kernel goes on, and says so at last.
int advise_parts(Part range, int advice, Rest rest) {
  const bool goes_on = advice != kPopulateRead && advice != kPopulateWrite;
  if (!goes_on && context()->impl().dram().facts().userfault.source == UserfaultSource::user_mode) {
    return populate_parts(range, advice, rest);
  }
  const std::shared_lock lock(table().mutex);
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
      [&](Entry& entry, Part part) { return passed_over(advise_part(entry, part, advice, goes_on)); });
  if (result == 0 && hole) {
    if (tiermem_plain_madvise(range.begin, 0, advice) == 0) {  // The kernel judges that first.
      errno = ENOMEM;
    }
    return -1;
  }
  return result;
}

int lock_parts(Part range, int flags, Rest rest) {
  return guarded(
      [&] {
        return for_parts(range, flags, rest, no_memory, [&](Entry& entry, Part part) {
          return lock_part(entry, part, flags);
        });
      },
      -1);
}

int unlock_parts(Part range, Rest rest) {
  return guarded([&] { return for_parts(range, 0, rest, no_memory, unlock_part); }, -1);
}

int check_mapped(Part range) {
  const std::shared_lock lock(table().mutex);
  return for_parts(range, 0, nothing, no_memory, [](Entry& entry, Part part) {
    return hole_behind(mapped_front(entry, part), part);
  });
}

// Where the new mapping is refused after all, the pages are fresh memory: its bytes were to be
// replaced.
void* lend_parts(Part range, int protection, void* (*place)(Part range, void* argument),
                 void* argument) {
  return guarded(
      [&]() -> void* {
        const auto lend = [&](Entry& entry, Part part) {
          return lend_part(entry, part, protection);
        };
        if (for_parts(range, 0, nothing, give_away, lend) != 0) {
          return MAP_FAILED;
        }
        void* const placed = place(range, argument);
        if (placed == MAP_FAILED) {
          const int error = errno;
          (void)for_parts(range, 0, nothing, pass_over, [](Entry& entry, Part part) {
            return renew_part(entry, part, PROT_READ | PROT_WRITE);
          });
          errno = error;
        }
        return placed;
      },
      MAP_FAILED);
}

bool movable_part(Part part, PageState& state) {
  const std::shared_lock lock(table().mutex);
  const auto found = at_or_after(part.begin);
  return found != table().entries.end() && found->first <= part.begin &&
         part.end() <= found->first + found->second.capacity &&
         is_alike(found->second, part, state);
}

bool all_unmapped(Part range) {
  const std::shared_lock lock(table().mutex);
  return for_parts(
             range, 0, [](std::byte*, std::size_t, int) { return -1; }, pass_over,
             [](Entry& entry, Part part) { return mapped_bytes(entry, part) == 0 ? 0 : -1; }) == 0;
}

bool is_in_region(const void* address) {
  const std::shared_lock lock(table().mutex);
  auto* const at = static_cast<std::byte*>(const_cast<void*>(address));
  const auto found = at_or_after(at);
  return found != table().entries.end() && found->first <= at;
}

bool grow_part(Part part, std::size_t to) {
  return guarded(
      [&] {
        const auto found = at_or_after(part.begin);
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
