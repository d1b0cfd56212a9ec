// Decides what follows a kernel call that failed while pages move. Every loop around such a call
// asks here, so that it ends for every errno: either the call is made again, at most so often, or
// the caller gives up. A caller that gives up shows no bytes: it leaves the pages where they are,
// or poisons the place, so that a touch is SIGBUS and never wrong bytes.
//
// Threads: an object belongs to one loop.
#pragma once

#include <cerrno>
#include <chrono>
#include <thread>

namespace tiermem {

class RefusedCall {
 public:
  /// Returns whether a call that failed with `error` may be made again, after a pause where one
  /// helps.
  bool again(int error) {
    switch (error) {
      case EAGAIN:  // Another thread changes the page tables, or compaction holds a page.
      case EINTR:
      case EBUSY:
      case EEXIST:  // The caller has emptied the place; a touch was first again.
      case ENOENT:  // The caller has filled the hole; the program emptied it again.
        if (++quick_ > kQuick) {
          return false;
        }
        if (quick_ > kWithoutPause) {
          pause();
        }
        return true;
      case ENOMEM:  // A lack of memory passes, or the process is ended for it.
        if (++waits_ > kWaits) {
          return false;
        }
        pause();
        return true;
      default:  // EINVAL, EPERM, EFAULT: a filter of calls may refuse one and not the next.
        if (++others_ > kOthers) {
          return false;
        }
        pause();
        return true;
    }
  }

  /// The call succeeded: what follows counts anew. Not after a page that was given up: the next one
  /// is then given up at once, or an extent of which all pages are refused would take hours.
  void succeeded() { *this = {}; }

  /// Tests make it 0.
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
