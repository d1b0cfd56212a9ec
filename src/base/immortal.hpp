// Objects of the process that are never destroyed. Other threads and the program's exit handlers
// use tiermem while the process ends, and must find these objects intact. The first use constructs
// the object, so no constructor runs at load. The preload library needs this: it uses tiermem
// before the constructors of static objects run, and a later constructor would clear an object in
// use.
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
