// The calls made so far, and the calls that must fail or be slow. Guarded by World::mutex.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "os/cuda_types.hpp"

namespace tiermem::test {

class Faults {
 public:
  void fail_nth(std::string_view call, std::uint64_t nth, cuda::Result result, std::uint64_t times);
  void slow(std::string_view call, std::chrono::microseconds each);
  void forgive() { orders_.clear(); }

  /// Counts a call. Returns the result that it must return without doing anything, or kSuccess.
  cuda::Result count(std::string_view call);
  std::chrono::microseconds slowness(std::string_view call) const;
  std::uint64_t calls(std::string_view call) const;
  std::uint64_t all_calls() const { return all_; }

 private:
  struct Order {
    std::string call;
    std::uint64_t skip = 0;  // Number of calls that succeed first.
    std::uint64_t times = 0;
    cuda::Result result = cuda::kSuccess;
  };

  std::map<std::string, std::uint64_t, std::less<>> counts_;
  std::uint64_t all_ = 0;
  std::map<std::string, std::chrono::microseconds, std::less<>> slow_;
  std::vector<Order> orders_;
};

}  // namespace tiermem::test
