// A userfaultfd: which way it could be opened, what the kernel offers, and thin wrappers that
// report errno and progress. It decides nothing and remembers no ranges.
//
// Threads: every call is for any thread, except that one thread at a time reads events. The calls
// that take an address never touch it themselves. The descriptor is non-blocking and closed on
// exec; it must outlive every registered range, because closing it lets waiters go on and read
// zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tiermem {

/// Which door was open.
enum class UserfaultSource : std::uint8_t {
  none,       ///< Refused everywhere, or not allowed by the options: `reason` says which.
  syscall,    ///< userfaultfd(2): faults of the kernel on our behalf are served too.
  device,     ///< /dev/userfaultfd: likewise.
  user_mode,  ///< UFFD_USER_MODE_ONLY: system calls on absent pages get EFAULT.
};

/// Which doors may be tried.
enum class UserfaultUse : std::uint8_t { off, automatic, user_mode };

const char* userfault_source_name(UserfaultSource source);

struct UserfaultFacts {
  UserfaultSource source = UserfaultSource::none;
  std::uint64_t features = 0;  ///< The kernel's feature bits.
  bool move = false;           ///< UFFDIO_MOVE, Linux 6.8.
  bool poison = false;         ///< UFFDIO_POISON, Linux 6.6.
  bool watch = false;          ///< Write-protection of ordinary memory, Linux 5.7.
  char reason[192] = {};       ///< What was refused on the way to `source`, with errno.
};

/// A touch of an absent page, or a write to a watched one.
struct UserfaultEvent {
  std::byte* address = nullptr;
  bool write = false;
  bool watched = false;      ///< The page is there, and waits for allow_writes().
  std::uint32_t thread = 0;  ///< The toucher's tid; 0 when the kernel does not tell.
};

/// How far a call got before `error` (0: all the way). Bytes before `done` are at the destination.
struct UserfaultProgress {
  std::uint64_t done = 0;
  int error = 0;
};

class Userfault {
 public:
  Userfault() = default;
  ~Userfault();
  Userfault(Userfault&& other) noexcept;
  Userfault& operator=(Userfault&& other) noexcept;

  /// Tries each door that `use` allows in turn. Never fails: `ok()` and `facts()` tell.
  static Userfault open(UserfaultUse use = UserfaultUse::automatic);

  bool ok() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  const UserfaultFacts& facts() const { return facts_; }

  /// These return 0 or errno. Ranges are whole pages.
  /// `watch`: also for pages that copy() brings watched.
  int register_missing(std::byte* address, std::uint64_t length, bool watch = false) const;
  int unregister(std::byte* address, std::uint64_t length) const;
  int wake(std::byte* address, std::uint64_t length) const;
  /// Touches of the range raise SIGBUS until MADV_DONTNEED. EEXIST when a page is there.
  int poison(std::byte* address, std::uint64_t length) const;
  /// Zeros appear in absent pages, and their waiters go on. EEXIST when a page is there.
  int zero(std::byte* address, std::uint64_t length) const;

  /// Moves pages; `to` is registered here, and where `from` has a page, it is absent. Repeats after
  /// EAGAIN from where it stopped; reports EAGAIN only when nothing moved for a long while.
  UserfaultProgress move(std::byte* to, const std::byte* from, std::uint64_t length) const;
  /// Copies into absent pages of a range registered here. `watched`: the first write to a page is
  /// an event, and waits.
  UserfaultProgress copy(std::byte* to, const std::byte* from, std::uint64_t length,
                         bool watched = false) const;
  /// The first write to each present page of the range is an event from now on, and waits. The
  /// range is registered for it.
  int watch_writes(std::byte* address, std::uint64_t length) const;
  /// Nothing in the range is watched any more, and who waits to write goes on.
  int allow_writes(std::byte* address, std::uint64_t length) const;

  /// 0 with an event, EAGAIN when none waits, else errno. Skips messages that are no page faults.
  int read_event(UserfaultEvent& event) const;
  /// The same for as many as wait and have room, 16 at most, in one call: `n` of them, at least
  /// one.
  int read_events(std::span<UserfaultEvent> events, std::size_t& n) const;

  /// Moves 2 MiB there and back on scratch memory and compares every byte. False with the reason.
  bool probe_move(char* reason, std::size_t room) const;
  /// Copies 2 MiB in, and takes them out by mremap, which must leave the range registered.
  bool probe_copy(char* reason, std::size_t room) const;
  /// Copies a watched page in, which the page tables must show, and lets it be written.
  bool probe_watch(char* reason, std::size_t room) const;

 private:
  UserfaultProgress move_all(std::byte* to, const std::byte* from, std::uint64_t length) const;
  UserfaultProgress move_counted(std::byte* to, const std::byte* from, std::uint64_t length) const;

  int fd_ = -1;
  UserfaultFacts facts_;
};

}  // namespace tiermem
