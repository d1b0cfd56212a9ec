// Decides what follows after a failed kernel call while pages move. Every loop around such a call
// asks here, so the loop ends for every errno: either it repeats the call, up to a fixed number of
// times, or it gives up. A caller that gives up shows no bytes. It leaves the pages where they are
// or poisons the place, so a touch raises SIGBUS and never reads wrong bytes.
//
// Threads: an object belongs to one loop.
#pragma once

#include <cerrno>
#include <chrono>
#include <thread>

namespace tiermem {

class RefusedCall {
 public:
  /// Returns whether a call that failed with `error` may be repeated. Pauses first if this helps.
  bool again(int error) {
    switch (error) {
      case EAGAIN:  // Another thread changes the page tables, or compaction holds a page.
      case EINTR:
      case EBUSY:
      case EEXIST:  // The caller has emptied the place, but a touch filled it first.
      case ENOENT:  // The caller has filled the hole, but the program emptied it again.
        if (++quick_ > kQuick) {
          return false;
        }
        if (quick_ > kWithoutPause) {
          pause();
        }
        return true;
      case ENOMEM:  // A shortage of memory passes, or the kernel kills the process for it.
        if (++waits_ > kWaits) {
          return false;
        }
        pause();
        return true;
      default:  // EINVAL, EPERM, EFAULT: a system call filter may refuse one call and not the next.
        if (++others_ > kOthers) {
          return false;
        }
        pause();
        return true;
    }
  }

  /// Resets the count after a successful call. Do not call it after a page was given up: the next
  /// page is then given up at once. Otherwise an extent would take hours if all of its pages are
  /// refused.
  void succeeded() { *this = {}; }

  /// Tests set it to 0.
  static inline std::chrono::microseconds pause_between{1000};

 private:
  static constexpr unsigned kWithoutPause = 64;
  static constexpr unsigned kQuick = 2'000;
  static constexpr unsigned kWaits = 60'000;  // About a minute.
  static constexpr unsigned kOthers = 50;

  static void pause() { std::this_thread::sleep_for(pause_between); }

  unsigned quick_ = 0;
  unsigned waits_ = 0;
  unsigned others_ = 0;
};

}  // namespace tiermem
