// A mutex for locks that are held for about a microsecond. A waiter spins for a moment before it
// sleeps. It is a kind of mutex of glibc that std::mutex does not offer.
#pragma once

#include <pthread.h>

#include "base/results.hpp"

namespace tiermem {

class AdaptiveMutex {
 public:
  AdaptiveMutex() = default;
  ~AdaptiveMutex() { must(::pthread_mutex_destroy(&mutex_)); }
  AdaptiveMutex(const AdaptiveMutex&) = delete;
  AdaptiveMutex& operator=(const AdaptiveMutex&) = delete;

  void lock() { must(::pthread_mutex_lock(&mutex_)); }
  void unlock() { must(::pthread_mutex_unlock(&mutex_)); }

 private:
  pthread_mutex_t mutex_ = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
};

}  // namespace tiermem
