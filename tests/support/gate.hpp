// Holds up a stream of the fake driver from a test. Any thread.
#pragma once

#include <future>
#include <utility>

namespace tiermem::test {

/// A host function that lets a stream continue on command.
class Gate {
 public:
  static void wait(void* gate) { static_cast<Gate*>(gate)->opened_.wait(); }
  void open() {
    if (!std::exchange(told_, true)) {
      open_.set_value();
    }
  }

 private:
  std::promise<void> open_;
  std::shared_future<void> opened_ = open_.get_future().share();
  bool told_ = false;
};

}  // namespace tiermem::test
