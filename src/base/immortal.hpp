// Objects of the process that are never destroyed: other threads, and exit handlers of the program,
// use tiermem while the process ends, and find them whole. Any thread, as T.
#pragma once

#include <cstddef>
#include <new>

namespace tiermem {

template <typename T>
class Immortal {
 public:
  Immortal() { new (room_) T; }
  Immortal(const Immortal&) = delete;
  Immortal& operator=(const Immortal&) = delete;

  T& operator*() noexcept { return *std::launder(reinterpret_cast<T*>(room_)); }
  T* operator->() noexcept { return &**this; }

 private:
  alignas(T) std::byte room_[sizeof(T)];
};

}  // namespace tiermem
