// The signals and cancellations that may interrupt the calling thread. Without tiermem's headers, because tests of the preload
// library use it, too.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <string.h>

namespace tiermem::test {

struct MayInterrupt {
  sigset_t blocked{};
  int cancel = -1;

  static MayInterrupt now() {
    MayInterrupt state;
    pthread_sigmask(SIG_BLOCK, nullptr, &state.blocked);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state.cancel);
    pthread_setcancelstate(state.cancel, nullptr);
    return state;
  }
  bool operator==(const MayInterrupt& other) const {
    return memcmp(&blocked, &other.blocked, sizeof blocked) == 0 && cancel == other.cancel;
  }
};

}  // namespace tiermem::test
