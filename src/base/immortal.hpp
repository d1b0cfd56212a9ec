// Objects of the process that are never destroyed: other threads, and exit handlers of the program,
// use tiermem while the process ends, and find them whole. The first use makes the object, so no
// constructor runs at load: the preload library uses tiermem before constructors of static objects
// run, and a constructor that runs later would empty what is in use.
//
// Threads: a lock of the owner covers every use.
#pragma once

#include <cstddef>
#include <new>

namespace tiermem {

template <typename T>
class Immortal {
 public:
  constexpr Immortal() noexcept = default;
  Immortal(const Immortal&) = delete;
  Immortal& operator=(const Immortal&) = delete;

  T& operator*() noexcept {
    if (!made_) {
      new (room_) T;
      made_ = true;
    }
    return *std::launder(reinterpret_cast<T*>(room_));
  }
  T* operator->() noexcept { return &**this; }

 private:
  bool made_ = false;
  alignas(T) std::byte room_[sizeof(T)]{};
};

}  // namespace tiermem
