// Counts calls, and chooses those that fail.
#include "support/fake_cuda/faults.hpp"

#include <algorithm>

#include "support/fake_cuda/control.hpp"

namespace tiermem::test {

void Faults::fail_nth(std::string_view call, std::uint64_t nth, cuda::Result result,
                      std::uint64_t times) {
  orders_.push_back({std::string(call), std::max<std::uint64_t>(nth, 1) - 1, times, result});
}

void Faults::slow(std::string_view call, std::chrono::microseconds each) {
  slow_[std::string(call)] = each;
}

cuda::Result Faults::count(std::string_view call) {
  all_ += call == FakeCuda::kWork ? 0 : 1;  // The call of a completed copy has been counted before.
  if (const auto known = counts_.find(call); known != counts_.end()) {
    ++known->second;
  } else {
    counts_.emplace(call, 1);
  }
  cuda::Result result = cuda::kSuccess;
  // Every order counts every call, so that two orders for one name are independent.
  for (Order& order : orders_) {
    if (order.call != call) {
      continue;
    }
    if (order.skip > 0) {
      --order.skip;
    } else if (order.times > 0) {
      --order.times;
      result = result == cuda::kSuccess ? order.result : result;
    }
  }
  std::erase_if(orders_, [](const Order& order) { return order.times == 0; });
  return result;
}

std::chrono::microseconds Faults::slowness(std::string_view call) const {
  const auto known = slow_.find(call);
  return known == slow_.end() ? std::chrono::microseconds{0} : known->second;
}

std::uint64_t Faults::calls(std::string_view call) const {
  const auto known = counts_.find(call);
  return known == counts_.end() ? 0 : known->second;
}

}  // namespace tiermem::test
