#include "cli/run_limits.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/shown.hpp"

namespace tiermem::cli {

// Only when the limit itself has changed: what others use comes and goes.
std::optional<std::uint64_t> LimitWatch::look(const HostFacts& now, std::uint64_t resident) {
  constexpr std::uint64_t kLeast = std::uint64_t{8} << 20;
  const auto limit = now.cgroup_limit.number();
  if (limit == limit_) {
    return std::nullopt;
  }
  limit_ = limit;
  const auto left = now.memory_left();
  const std::uint64_t may = left ? (*left + resident) / 10 * 9 : asked_;
  const std::uint64_t total = std::min(asked_, std::max(may, kLeast));
  if (total == total_) {
    return std::nullopt;
  }
  total_ = total;
  if (total < least_total_ && limit) {
    least_total_ = total;
    least_limit_ = *limit;
    file_ = now.cgroup_file.value;
  }
  return total;
}

std::string LimitWatch::sentence() const {
  return file_.empty()
             ? ""
             : fmt::format(
                   "the memory limit of the cgroup ({}) fell to {} while it ran: the budget "
                   "was {} then, not {}",
                   shown(file_), human_bytes(least_limit_), human_bytes(least_total_),
                   human_bytes(asked_));
}

}  // namespace tiermem::cli
