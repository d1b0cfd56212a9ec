// The states of a context's allocator tables: one for each place that a table was asked for. They
// are never freed, like the record of the context, because copies of a table may be used for ever.
//
// Threads: any. A state is constant once it is in the list.
#pragma once

#include <atomic>

#include "base/arena.hpp"
#include "tiermem/types.hpp"

struct tm_context;

namespace tiermem::c_abi {

struct AllocatorState : InArena {
  tm_context* context = nullptr;
  Place place{};
  AllocatorState* next = nullptr;
};

class AllocatorStates {
 public:
  /// Returns the state of a place. Throws bad_alloc.
  AllocatorState* of(tm_context& context, Place place) {
    AllocatorState* made = nullptr;
    // Acquire: partner of the release below.
    AllocatorState* first = first_.load(std::memory_order_acquire);
    for (;;) {
      for (AllocatorState* state = first; state != nullptr; state = state->next) {
        if (state->place == place) {
          delete made;
          return state;
        }
      }
      if (made == nullptr) {
        const ArenaScope inside;
        made = new AllocatorState;
        made->context = &context;
        made->place = place;
      }
      made->next = first;
      if (first_.compare_exchange_weak(first, made, std::memory_order_acq_rel)) {
        return made;
      }
    }
  }

 private:
  std::atomic<AllocatorState*> first_{nullptr};
};

}  // namespace tiermem::c_abi
