// Objects of the process that are never destroyed: other threads, and exit handlers of the program,
// use tiermem while the process ends, and find them whole. Made by the compiler, before any code
// runs: the preload library uses them before constructors of static objects run. Any thread, as T.
#pragma once

namespace tiermem {

template <typename T>
class Immortal {
 public:
  constexpr Immortal() noexcept : value_() {}
  constexpr ~Immortal() {}
  Immortal(const Immortal&) = delete;
  Immortal& operator=(const Immortal&) = delete;

  T& operator*() noexcept { return value_; }
  T* operator->() noexcept { return &value_; }

 private:
  union {
    T value_;
  };
};

}  // namespace tiermem
