// Holds off pthread_cancel while tiermem works: a thread that ended in the middle of a call would
// leave locks and pins behind. The calling thread only; a few nanoseconds.
#pragma once

#include <pthread.h>

#include "base/results.hpp"

namespace tiermem {

/// For its life the calling thread is not cancelled; a cancellation waits until after it. Nests.
/// For threads with deferred cancellation, which is what threads have unless they ask for the other
/// kind.
class NoCancel {
 public:
  NoCancel() noexcept { must(::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_)); }
  ~NoCancel() { must(::pthread_setcancelstate(before_, nullptr)); }
  NoCancel(const NoCancel&) = delete;
  NoCancel& operator=(const NoCancel&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace tiermem
