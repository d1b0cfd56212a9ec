// A userfaultfd: how it was opened, what the kernel offers, and thin wrappers that report errno and
// progress. It decides nothing and does not record ranges.
//
// Threads: any, except that one thread at a time reads events. The calls that take an address never
// touch it themselves. The descriptor is non-blocking and closed on exec. It must outlive every
// registered range: closing it lets the waiters continue and read zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tiermem {

/// How the userfaultfd was opened.
enum class UserfaultSource : std::uint8_t {
  none,       ///< Refused everywhere, or not allowed by the options: see `reason`.
  syscall,    ///< userfaultfd(2), which also serves faults of the kernel on our behalf.
  device,     ///< /dev/userfaultfd, which serves the same faults.
  user_mode,  ///< UFFD_USER_MODE_ONLY: system calls on absent pages get EFAULT.
};

/// The sources that may be tried. `signal`: all of them. Touches raise SIGBUS in place of events,
/// and system calls on absent pages get EFAULT.
enum class UserfaultUse : std::uint8_t { off, automatic, user_mode, signal };

const char* userfault_source_name(UserfaultSource source);

struct UserfaultFacts {
  UserfaultSource source = UserfaultSource::none;
  std::uint64_t features = 0;  ///< The kernel's feature bits.
  bool move = false;           ///< UFFDIO_MOVE, Linux 6.8.
  bool poison = false;         ///< UFFDIO_POISON, Linux 6.6.
  bool watch = false;          ///< Write-protection of ordinary memory, Linux 5.7.
  bool signals = false;        ///< Touches raise SIGBUS, as UserfaultUse::signal asks.
  char reason[192] = {};  ///< The calls that were refused before `source` was found, with errno.
};

/// A touch of an absent page, or a write to a watched one.
struct UserfaultEvent {
  std::byte* address = nullptr;
  bool write = false;
  bool watched = false;      ///< The page is present, and the write waits for allow_writes().
  std::uint32_t thread = 0;  ///< Thread id of the toucher; 0 if the kernel does not report it.
};

/// The progress of a call before `error` (0: complete). Bytes before `done` are at the destination.
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

  /// Tries the sources that `use` allows, in order. Never fails: see `ok()` and `facts()`.
  static Userfault open(UserfaultUse use = UserfaultUse::automatic);

  bool ok() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  const UserfaultFacts& facts() const { return facts_; }

  /// The calls below return 0 or errno. Ranges are whole pages. `watch`: also for pages that copy()
  /// brings watched.
  int register_missing(std::byte* address, std::uint64_t length, bool watch = false) const;
  int unregister(std::byte* address, std::uint64_t length) const;
  int wake(std::byte* address, std::uint64_t length) const;
  /// Makes touches of the range raise SIGBUS until MADV_DONTNEED. EEXIST: a page is present.
  int poison(std::byte* address, std::uint64_t length) const;
  /// Fills absent pages with zeros, and lets their waiters continue. EEXIST: a page is present.
  int zero(std::byte* address, std::uint64_t length) const;

  /// Moves pages. `to` is registered here, and absent wherever `from` has a page. After EAGAIN it
  /// repeats from where it stopped; it reports EAGAIN only if nothing moved for a long while.
  UserfaultProgress move(std::byte* to, const std::byte* from, std::uint64_t length) const;
  /// Copies into absent pages of a range that is registered here. With `watched` the first write to
  /// a page is an event, and waits.
  UserfaultProgress copy(std::byte* to, const std::byte* from, std::uint64_t length,
                         bool watched = false) const;
  /// Makes the first write to each present page of the range an event, which waits. The range is
  /// registered for this.
  int watch_writes(std::byte* address, std::uint64_t length) const;
  /// Stops watching the range, and lets waiting writers continue.
  int allow_writes(std::byte* address, std::uint64_t length) const;

  /// Returns 0 with an event, EAGAIN if none waits, else errno. Skips messages that are not page
  /// faults.
  int read_event(UserfaultEvent& event) const;
  /// Reads all waiting events that fit, up to 16, in one call. Sets `n`, which is at least 1 on
  /// success.
  int read_events(std::span<UserfaultEvent> events, std::size_t& n) const;

  /// Moves 2 MiB there and back on scratch memory and compares every byte. Returns false with the
  /// reason.
  bool probe_move(char* reason, std::size_t room) const;
  /// Copies `bytes` in and takes them out by mremap, which must leave the range registered. At most
  /// 2 MiB, whole pages.
  bool probe_copy(std::size_t bytes, char* reason, std::size_t room) const;
  /// Copies a watched page in, which the page tables must show, and then allows a write to it.
  bool probe_watch(char* reason, std::size_t room) const;

 private:
  UserfaultProgress move_all(std::byte* to, const std::byte* from, std::uint64_t length) const;
  UserfaultProgress move_counted(std::byte* to, const std::byte* from, std::uint64_t length) const;

  int fd_ = -1;
  UserfaultFacts facts_;
};

}  // namespace tiermem
