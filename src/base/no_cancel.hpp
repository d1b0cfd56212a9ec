// Delays pthread_cancel while tiermem works: a thread that ended in the middle of a call would
// leave locks and pins behind. Affects the calling thread only, and costs a few nanoseconds.
#pragma once

#include <pthread.h>

#include "base/results.hpp"

namespace tiermem {

/// While it lives, the calling thread is not cancelled; a cancellation takes effect afterwards.
/// Objects nest. Only for threads with deferred cancellation, which is the default.
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
