#include "tier/dax_pages.hpp"

#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/error.hpp"
#include "base/results.hpp"
#include "os/host_memory.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kUnit = DaxFile::kUnit;

std::uint64_t key(const std::byte* address) {
  return reinterpret_cast<std::uint64_t>(address);
}

}  // namespace

DaxPages::DaxPages(std::unique_ptr<DaxFile> file)
    : file_(std::move(file)), free_count_(file_->units()), free_((file_->units() + 63) / 64) {
  for (Unit unit = 0; unit < file_->units(); ++unit) {
    free_[unit / 64] |= std::uint64_t{1} << unit % 64;
  }
}

// Returns the first free unit from this one on, in a circle. There is one.
DaxPages::Unit DaxPages::next_free(Unit from) const {
  std::size_t word = from / 64 % free_.size();
  std::uint64_t bits = free_[word] & ~std::uint64_t{0} << from % 64;
  while (bits == 0) {
    word = (word + 1) % free_.size();
    bits = free_[word];
  }
  return static_cast<Unit>(word * 64 + static_cast<unsigned>(std::countr_zero(bits)));
}

// Units that follow those of the neighbour below make one mapping with it, of which a process has
// few.
bool DaxPages::take(std::byte* home, std::uint64_t units, Vector<Unit>& taken) {
  const std::lock_guard lock(mutex_);
  if (free_count_ < units) {
    return false;
  }
  const auto below = unit_at_.find(key(home) - kUnit);
  Unit unit = below != unit_at_.end() ? below->second + 1 : 0;
  for (std::uint64_t i = 0; i < units; ++i) {
    unit = next_free(unit);
    unit_at_[key(home) + i * kUnit] = unit;
    free_[unit / 64] &= ~(std::uint64_t{1} << unit % 64);
    --free_count_;
    taken.push_back(unit);
  }
  return true;
}

int DaxPages::map(std::byte* at, const Vector<Unit>& units) const {
  for (std::size_t begin = 0; begin < units.size();) {
    std::size_t end = begin + 1;
    while (end < units.size() && units[end] == units[end - 1] + 1) {
      ++end;
    }
    if (const int error = file_->map(at + begin * kUnit, units[begin], end - begin); error != 0) {
      return error;
    }
    begin = end;
  }
  return 0;
}

Status DaxPages::fill(std::byte* home, std::uint64_t bytes) {
  Vector<Unit> units;
  units.reserve(bytes / kUnit);
  bool taken = false;
  try {
    taken = take(home, bytes / kUnit, units);
  } catch (const std::bad_alloc&) {
    best_effort(release(home, bytes), "the units that were taken are lost to this memory");
    return fail(Code::no_capacity,
                "pmem: allocation of the records of a frame failed; free memory");
  }
  if (!taken) {
    return fail(Code::no_capacity, "pmem={:.120}: all of its {} are in use; name more",
                file_->path(), human_bytes(file_->bytes()));
  }
  if (const int error = map(home, units); error != 0) {
    best_effort(release(home, bytes), "the units that were taken are lost to this memory");
    ErrorInfo info = error_info(Code::no_capacity,
                                "pmem={:.120}: {} cannot be mapped: {}; raise vm.max_map_count",
                                file_->path(), human_bytes(bytes), std::strerror(error));
    info.native = error;
    set_text(info.setting, "vm.max_map_count");
    return Status(info);
  }
  host::clear(home, bytes);
  return {};
}

int DaxPages::release(std::byte* home, std::uint64_t bytes) {
  if (const int error = host::close_range(home, bytes); error != 0) {
    return error;
  }
  const std::lock_guard lock(mutex_);
  for (std::uint64_t done = 0; done < bytes; done += kUnit) {
    if (const auto found = unit_at_.find(key(home) + done); found != unit_at_.end()) {
      free_[found->second / 64] |= std::uint64_t{1} << found->second % 64;
      ++free_count_;
      unit_at_.erase(found);
    }
  }
  return 0;
}

int DaxPages::share(const std::byte* home, std::byte* at, std::uint64_t bytes) const {
  Vector<Unit> units;
  units.reserve(bytes / kUnit);
  {
    const std::lock_guard lock(mutex_);
    for (std::uint64_t done = 0; done < bytes; done += kUnit) {
      const auto found = unit_at_.find(key(home) + done);
      if (found == unit_at_.end()) {
        return ENOENT;
      }
      units.push_back(found->second);
    }
  }
  return map(at, units);
}

}  // namespace tiermem
