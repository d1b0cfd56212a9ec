// The windows of the host's address space, the touches that it receives, and what a fork changes.
// How frames appear in windows is in host_space_workers.cpp, probing in host_probe.cpp.
#include "tier/host_space.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>
#include <utility>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/kept_descriptors.hpp"
#include "base/log.hpp"
#include "base/results.hpp"

namespace tiermem {
namespace {

std::byte* page_of(std::byte* address) {
  return address - reinterpret_cast<std::uint64_t>(address) % host::kPage;
}

WindowArenaOptions arena_options(const HostSpaceOptions& options, const HostSpaceFacts& facts,
                                 const Userfault& userfault, Mechanism mechanism, bool huge,
                                 bool mapped, TouchTrap* trap) {
  WindowArenaOptions result;
  result.reserve_bytes = options.window_reserve_bytes;
  result.least_bytes = std::min(result.least_bytes, options.window_reserve_bytes);
  result.huge = huge && facts.huge_pages;
  result.accessible = mechanism != Mechanism::remap;
  // A child without a userfaultfd would read absent bytes as zeros. A child that follows the fork
  // has the mapped buffers and no others.
  result.inherited = mapped == options.follow_forks;
  const bool registered = mechanism == Mechanism::uffd_move || mechanism == Mechanism::copy;
  result.registered_with = registered ? &userfault : nullptr;
  result.watch = mapped && !huge && facts.watches;  // Only small extents can be in parts.
  result.trap = trap;
  result.map_limit = options.map_limit;
  return result;
}

WindowArenaOptions read_only_options(const HostSpaceOptions& options, const HostSpaceFacts& facts,
                                     const Userfault& userfault, bool huge, TouchTrap* trap) {
  const Mechanism mechanism = huge ? facts.windows : facts.small_windows;
  WindowArenaOptions result =
      arena_options(options, facts, userfault, mechanism, huge, false, trap);
  result.watch = options.watch && facts.userfault.watch && result.registered_with != nullptr;
  return result;
}

// Bytes come to mapped files as copies that are watched from the start, by small pages.
WindowArenaOptions mapped_files_options(const HostSpaceOptions& options,
                                        const HostSpaceFacts& facts, const Userfault& userfault,
                                        TouchTrap* trap) {
  WindowArenaOptions result =
      arena_options(options, facts, userfault, facts.mapped, false, true, trap);
  result.watch = options.watch && facts.userfault.watch && result.registered_with != nullptr;
  return result;
}

std::uint64_t map_limit_of(const HostSpaceOptions& options) {
  return options.map_limit != 0 ? options.map_limit : host::map_limit();
}

}  // namespace

HostSpace::HostSpace(const HostSpaceOptions& options, Sources sources, const HostSpaceFacts& facts,
                     Userfault userfault, std::unique_ptr<TouchTrap> trap)
    : options_(options),
      facts_(facts),
      userfault_(std::move(userfault)),
      trap_(std::move(trap)),
      stop_(keep_descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))),
      poisoned_(userfault_, facts.mapped != Mechanism::uffd_move),
      mapper_(userfault_, map_limit_of(options), poisoned_, lent_, counters_),
      windows_{WindowArena(arena_options(options, facts, userfault_, facts.windows, true, false,
                                         signalled())),
               WindowArena(arena_options(options, facts, userfault_, facts.small_windows, false,
                                         false, signalled()))},
      mapped_{WindowArena(
                  arena_options(options, facts, userfault_, facts.mapped, true, true, trap_.get())),
              WindowArena(arena_options(options, facts, userfault_, facts.mapped, false, true,
                                        trap_.get()))},
      read_only_{WindowArena(read_only_options(options, facts, userfault_, true, signalled())),
                 WindowArena(read_only_options(options, facts, userfault_, false, signalled()))},
      mapped_files_(mapped_files_options(options, facts, userfault_, signalled())),
      closed_(userfault_, map_limit_of(options)),
      homes_(facts_,
             {.require_huge = options.huge_pages == HugePages::require,
              .follow_forks = options.follow_forks},
             userfault_, mapper_, counters_) {
  assert(!options.memories.empty() && options.memories.size() <= kMostMemories);
  for (const HostMemoryOptions& each : options.memories) {
    const auto number = static_cast<unsigned>(own_.size());
    own_.push_back(std::make_unique<HostMemory>(*this, number, each, std::move(sources[number]),
                                                homes_, counters_));
    memories_.push_back(own_.back().get());
    budgets_ += each.place.kind == Kind::pmem ? 0 : each.budget;
  }
}

HostSpace::~HostSpace() {
  if (trap_ != nullptr) {
    trap_->forget_ranges();  // The addresses go back next, and another context may get them.
  }
  if (stop_ >= 0) {
    close_kept(stop_);
  }
}

WindowArena* HostSpace::arena_of(const std::byte* address) const {
  for (const WindowArena* const arena : arenas()) {
    if (arena->contains(address)) {
      return const_cast<WindowArena*>(arena);
    }
  }
  return nullptr;
}

// Windows.

Pool HostSpace::window_pool(std::uint64_t extent_bytes) const {
  return extent_bytes >= host::kHugePage ? Pool::movable : Pool::small;
}

Result<std::byte*> HostSpace::reserve_window(std::uint64_t bytes, std::uint64_t extent_bytes,
                                             bool mapped) {
  const bool huge = extent_bytes >= host::kHugePage;
  if (mapped && !maps()) {
    return fail(
        Code::unsupported,
        "a mapped buffer needs userfaultfd with UFFDIO_MOVE (Linux 6.8) or mremap(DONTUNMAP): "
        "{:.70}{}{:.50}; allow userfaultfd (sysctl, seccomp)",
        facts_.move_reason, facts_.move_reason[0] != '\0' ? "; " : "",
        facts_.copy_reason[0] != '\0' ? facts_.copy_reason : "another mechanism was asked for");
  }
  if (mapped && closes()) {
    return reserve_trapped(bytes, extent_bytes);
  }
  Arenas& arenas = mapped ? mapped_ : windows_;
  // A large mapped window begins at a huge page, whatever the size of its extents: the preload
  // library recognises its own blocks by this.
  const std::uint64_t alignment =
      mapped && bytes >= host::kHugePage ? std::max(extent_bytes, host::kHugePage) : extent_bytes;
  return (huge ? arenas.huge : arenas.small).reserve(bytes, alignment);
}

Result<std::byte*> HostSpace::reserve_read_only_window(std::uint64_t bytes,
                                                       std::uint64_t extent_bytes, bool mapped) {
  if (mapped && !maps_well()) {
    return fail(Code::unsupported,
                "a mapped file that is read-only needs userfaultfd: {}; allow userfaultfd (sysctl, "
                "seccomp), use views, or add the flag private",
                facts_.userfault.reason[0] != '\0' ? facts_.userfault.reason : facts_.copy_reason);
  }
  const bool huge = extent_bytes >= host::kHugePage;
  WindowArena& arena = mapped ? mapped_files_ : huge ? read_only_.huge : read_only_.small;
  auto window = arena.reserve(bytes, extent_bytes);
  if (window.ok()) {
    has_read_only_.store(true, std::memory_order_release);
  }
  return window;
}

void HostSpace::release_window(std::byte* window, std::uint64_t) {
  for (WindowArena* arena : {&windows_.huge, &windows_.small, &mapped_.huge, &mapped_.small,
                             &read_only_.huge, &read_only_.small, &mapped_files_}) {
    const std::uint64_t bytes = arena->size_of(window);
    if (bytes == 0) {
      continue;
    }
    (void)unprotect(window, bytes);
    poisoned_.take(window, bytes);
    // If the program has changed mappings, the whole window is made uniform. The program may have
    // mapped memory there since the buffer was freed.
    const bool altered = arena->altered(window);
    const bool empty = lent_.for_own(window, bytes, [&](std::byte* at, std::uint64_t n) {
      return !altered && host::drop(at, n) == 0 ? 0 : arena->renew(at, n);
    }) == 0;
    if (arena->options().registered_with != nullptr) {
      userfault_.wake(window, bytes);
    }
    if (arena == &mapped_.huge && closes()) {
      trapped_bytes_ -= bytes;
    }
    if (empty) {
      arena->release(window, lent_);
    } else {
      arena->retire(window);
      log_error(
          "free: the kernel refuses to empty the window at {}, so {} of memory stay in use; close "
          "the context to free them",
          static_cast<void*>(window), human_bytes(bytes));
    }
    return;
  }
}

// Each extent in its window costs mappings, and restoring one must not fail. So this reserves no
// more than the process may have. Small extents would cost too many.
Result<std::byte*> HostSpace::reserve_trapped(std::uint64_t bytes, std::uint64_t extent_bytes) {
  constexpr std::uint64_t kMappingsEach = FrameMapper::kMappingsEach;
  if (extent_bytes < host::kHugePage) {
    return fail(Code::unsupported,
                "mapped: extents of {} need userfaultfd; set extent_bytes to at least 2 MiB, or "
                "allow userfaultfd",
                human_bytes(extent_bytes));
  }
  bytes = round_up(bytes, extent_bytes);
  const std::uint64_t limit = map_limit_of(options_);
  const std::uint64_t at_once = std::min(trapped_bytes_.load() + bytes, budgets_);
  if (at_once / host::kHugePage * kMappingsEach > limit / 2) {
    ErrorInfo info = error_info(Code::no_capacity,
                                "mapped: buffers without userfaultfd would need {} mappings, of {} "
                                "that the process may have; raise vm.max_map_count",
                                at_once / host::kHugePage * kMappingsEach, limit);
    set_text(info.setting, "vm.max_map_count");
    return Status(info);
  }
  auto window = mapped_.huge.reserve(bytes, extent_bytes);
  if (window.ok()) {
    trapped_bytes_ += bytes;
  }
  return window;
}

bool HostSpace::lend_window(std::byte* address, std::uint64_t bytes) {
  WindowArena* const arena = arena_of(address);
  if (arena == nullptr) {
    return true;
  }
  try {
    lent_.add(address, bytes);
  } catch (const std::bad_alloc&) {
    return false;
  }
  arena->alter(address);
  poisoned_.take(address, bytes);
  return true;
}

int HostSpace::take_back_window(std::byte* address, std::uint64_t bytes) {
  WindowArena* const arena = arena_of(address);
  if (arena == nullptr) {
    return EINVAL;
  }
  const int error = arena->renew(address, bytes);
  lent_.remove(address, bytes);
  return error;
}

void HostSpace::alter_window(const std::byte* address) {
  if (WindowArena* const arena = arena_of(address); arena != nullptr) {
    arena->alter(address);
  }
}

std::uint64_t HostSpace::stretch(const std::byte* address, std::uint64_t bytes, bool& own) const {
  own = false;
  std::uint64_t least = bytes;
  for (const WindowArena* const arena : arenas()) {
    bool in_this = false;
    const std::uint64_t alike = arena->stretch(address, bytes, in_this);
    if (in_this) {
      own = !lent_.contains(address);
      least = std::min(alike, lent_.stretch(address, alike));
      break;
    }
    least = std::min(least, alike);
  }
  return least;
}

bool HostSpace::give_away(std::byte* address, std::uint64_t bytes) {
  WindowArena* const arena = arena_of(address);
  if (arena == nullptr || !arena->give_away(address, bytes)) {
    return arena == nullptr;
  }
  lent_.add(address, bytes);
  return true;
}

bool HostSpace::close_at(std::byte* address) {
  WindowArena* const arena = arena_of(address);
  if (arena == nullptr || !arena->close_at(address)) {
    return false;
  }
  wake(page_of(address));
  return true;
}

bool HostSpace::altered_window(const std::byte* address) const {
  const WindowArena* const arena = arena_of(address);
  return arena != nullptr && arena->altered(address);
}

// Touches.

bool HostSpace::next_fault(int timeout_ms, Fault& fault) {
  std::array<pollfd, 2> waiting = {pollfd{stop_, POLLIN, 0}, pollfd{fault_fd(), POLLIN, 0}};
  for (;;) {
    const int ready = poll(waiting.data(), waiting.size(), timeout_ms);
    if (ready < 0 && errno == EINTR) {
      continue;
    }
    if (ready <= 0 || waiting[0].revents != 0) {
      return false;
    }
    const int error = read_fault(fault);
    if (error == 0) {
      counters_.faults += 1;
      return true;
    }
    if (error != EAGAIN) {
      return false;
    }
  }
}

std::size_t HostSpace::take_faults(std::span<Fault> faults) {
  std::size_t n = 0;
  if (closes()) {
    while (n < faults.size() && trap_->read_event(faults[n]) == 0) {
      ++n;
    }
  } else if (userfault_.read_events(faults, n) != 0) {
    n = 0;
  }
  counters_.faults += n;
  return n;
}

void HostSpace::wake(std::byte* address) {
  if (trap_ != nullptr) {
    trap_->wake(page_of(address));
  } else {
    userfault_.wake(page_of(address), host::kPage);
  }
}

void HostSpace::allow_writes(std::byte* address, std::uint64_t bytes) {
  const std::lock_guard lock(watch_mutex_);
  counters_.watched_writes += 1;
  if (userfault_.allow_writes(address, bytes) != 0) {
    // The window no longer exists: the waiting thread finds that out.
    userfault_.wake(address, bytes);
  }
  for (std::uint64_t at = 0; signals() && at < bytes; at += host::kPage) {
    wake(address + at);
  }
}

bool HostSpace::is_read_only(const std::byte* address) const {
  return has_read_only_.load(std::memory_order_acquire) &&
         (read_only_.huge.contains(address) || read_only_.small.contains(address) ||
          mapped_files_.contains(address));
}

void HostSpace::refuse_store(const Fault& fault, std::byte* extent, std::uint64_t bytes) {
  counters_.stores_refused += 1;
  if (closed_.close(extent, bytes) != 0 && fault.thread != 0) {
    // No mapping is left to close. The store still waits, and then receives the signal.
    best_effort(tgkill(getpid(), static_cast<pid_t>(fault.thread), SIGSEGV),
                "the thread has ended, and its store with it");
  }
  if (signals()) {
    wake(fault.address);
  }
}

bool HostSpace::is_poisoned(std::byte* address) {
  return poisoned_.has(page_of(address));
}

bool HostSpace::poison(std::byte* address) {
  std::byte* const page = page_of(address);
  const bool done = poisoned_.add(page, arena_of(page));
  counters_.poisoned += done ? 1 : 0;
  if (trap_ != nullptr) {
    trap_->wake(page);
  }
  return done;
}

void HostSpace::clear_poison(std::byte* address, std::uint64_t bytes) {
  if (poisoned_.take(address, bytes)) {
    best_effort(host::drop(address, bytes), "a poisoned page that stays has no bytes to show");
  }
}

void HostSpace::fill_hole(std::byte* address) {
  std::byte* const page = page_of(address);
  // The kernel fills holes of closed windows by itself. Elsewhere zeros wake the waiters in the
  // kernel, unless a page has arrived.
  if (closes() || userfault_.zero(page, host::kPage) != 0 || signals()) {
    wake(page);
  }
}

void HostSpace::fill_holes(std::byte* address, std::uint64_t bytes) {
  if (closes() || (!signals() && userfault_.zero(address, bytes) == 0)) {
    return;
  }
  for (std::uint64_t done = 0; done < bytes; done += host::kPage) {  // Some pages are present.
    fill_hole(address + done);
  }
}

void HostSpace::stop_faults() {
  const std::uint64_t one = 1;
  while (write(stop_, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

// Fork.

Status HostSpace::follow_fork() {
  const auto refused = [](const char* what, int error) {
    return fail_native(Code::unavailable, error, "{}: {}", what, std::strerror(error));
  };
  leave_views_to_parent();
  const bool had_userfault = userfault_.ok();
  userfault_ = Userfault::open(options_.userfault);  // The parent's userfaultfd is closed here.
  followed_ = forks_.load();
  if (had_userfault && !userfault_.ok()) {
    return fail(Code::unavailable, "no userfaultfd: {}", userfault_.facts().reason);
  }
  for (WindowArena* const arena : arenas_of_mapped()) {
    if (const int error = arena->follow_fork(lent_); error != 0) {
      return refused("registering windows again", error);
    }
  }
  closed_.leave_to_parent([this](const std::byte* at) { return mapped_files_.contains(at); });
  mapped_files_.each_window([this](std::byte* window, std::uint64_t bytes) {
    if (mapped_files_.options().watch) {
      closed_.follow_fork(window, bytes);
    }
  });
  if (Status again = homes_.follow_fork(); !again.ok()) {
    return again;
  }
  mapper_.follow_fork();
  for (const std::unique_ptr<HostMemory>& each : own_) {
    if (Status again = each->follow_fork(); !again.ok()) {
      return again;
    }
    each->forget_windows([this](const std::byte* at) { return is_mapped(at); });
  }
  close_kept(stop_);
  stop_ = keep_descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return stop_ >= 0 ? Status() : refused("eventfd", errno);
}

void HostSpace::forget_free_pages() {
  for (const std::unique_ptr<HostMemory>& each : own_) {
    each->forget_free_pages();
  }
}

// The child has inherited nothing at these addresses.
void HostSpace::leave_views_to_parent() {
  for (WindowArena* const arena : arenas_of_views()) {
    arena->leave_to_parent();
  }
}

void HostSpace::close_windows() {
  for (WindowArena* const arena : arenas_of_mapped()) {
    arena->close(lent_);
  }
  leave_views_to_parent();
  for (const std::unique_ptr<HostMemory>& each : own_) {
    each->close_homes();
  }
}

}  // namespace tiermem
