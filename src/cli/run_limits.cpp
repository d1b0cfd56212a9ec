#include "cli/run_limits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/shown.hpp"

namespace tiermem::cli {

LimitWatch::LimitWatch(const HostFacts& at_start, std::uint64_t asked)
    : asked_(asked), total_(asked), least_total_(asked) {
  if (const auto limit = at_start.cgroup_limit.number()) {
    limits_[at_start.cgroup_file.value] = *limit;
  }
}

// Only a changed limit counts. Other users' memory comes and goes, and with it changes which of
// several nested cgroups leaves least. If the tightest cgroup is not the one that lowered the
// budget, the limit of that one may be gone.
std::optional<std::uint64_t> LimitWatch::look(const HostFacts& now, std::uint64_t resident) {
  constexpr std::uint64_t kLeast = std::uint64_t{8} << 20;
  const std::uint64_t limit = now.cgroup_limit.number().value_or(0);  // 0: there is none.
  const std::string file = limit != 0 ? now.cgroup_file.value : "";
  const bool changed = limit != 0 && std::exchange(limits_[file], limit) != limit;
  if (!changed && (total_ == asked_ || file == lowered_by_)) {
    return std::nullopt;
  }
  const auto left = now.memory_left();
  const std::uint64_t may = left ? (*left + resident) / 10 * 9 : asked_;
  const std::uint64_t total = std::min(asked_, std::max(may, kLeast));
  if (total == total_ || (!changed && total < total_)) {
    return std::nullopt;
  }
  if (total < total_) {
    lowered_by_ = file;
  }
  total_ = total;
  if (total < least_total_) {
    least_total_ = total;
    sentence_ = fmt::format(
        "the memory limit of the cgroup ({}) is {} now: the budget was lowered to {}, from {}",
        shown(file), human_bytes(limit), human_bytes(total), human_bytes(asked_));
  }
  return total;
}

}  // namespace tiermem::cli
