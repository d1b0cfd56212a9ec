// The pages of a memory with homes in a DaxFile. A home gets its pages as units of the file,
// in one mapping for each run of units, and returns them to the file. A window that shows a frame
// gets a second mapping of the same units: nothing moves, and both addresses show the same bytes.
//
//   a unit is free, or belongs to exactly one home;  taken units + free units == file.units()
//
// Threads: workers, for frames that they hold. One mutex guards the records, and is never held
// across a system call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/arena.hpp"
#include "os/dax_file.hpp"

namespace tiermem {

class DaxPages {
 public:
  explicit DaxPages(std::unique_ptr<DaxFile> file);

  const DaxFile& file() const { return *file_; }

  /// Maps free units at an empty home, and fills them with zeros. Errors: no_capacity: no unit is
  /// free, or the kernel has no mapping left. The home is empty after an error.
  Status fill(std::byte* home, std::uint64_t bytes);
  /// Empties a home, and frees its units. Returns 0 or errno; after an error nothing has changed.
  [[nodiscard]] int release(std::byte* home, std::uint64_t bytes);
  /// Maps the units of a home at `at`, too. Returns 0 or errno; after an error the range at `at`
  /// may be mapped in part.
  [[nodiscard]] int share(const std::byte* home, std::byte* at, std::uint64_t bytes) const;

 private:
  using Unit = std::uint32_t;

  bool take(std::byte* home, std::uint64_t units, Vector<Unit>& taken);
  Unit next_free(Unit from) const;
  int map(std::byte* at, const Vector<Unit>& units) const;

  const std::unique_ptr<DaxFile> file_;
  mutable std::mutex mutex_;
  std::uint64_t free_count_ = 0;
  Vector<std::uint64_t> free_;            // A bit for each unit.
  HashMap<std::uint64_t, Unit> unit_at_;  // By the address of each unit of a home.
};

}  // namespace tiermem
