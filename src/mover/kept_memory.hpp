// Memory that others keep for their next use, and that the mover cannot take by itself: the heaps
// of small objects keep blocks and chunks.
#pragma once

namespace tiermem {

class KeptMemory {
 public:
  /// [stepping thread] On: gives back what is kept, and keeps nothing until it is off. Returns
  /// whether memory came back. May wait for threads that do not run, a bounded time.
  virtual bool press(bool on) = 0;

 protected:
  ~KeptMemory() = default;
};

}  // namespace tiermem
