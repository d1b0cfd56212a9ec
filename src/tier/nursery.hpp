// Where pages are born for homes that are registered with userfaultfd. Populating such a home in
// place would fault on itself, and wait for a fault reader that knows nothing of homes. So pages
// are made in a slot of the nursery, which is not registered, and moved home. A slot is 2 MiB,
// larger homes take several turns; outside a turn no slot has pages, so the nursery needs no
// charge.
//
// Threads: fill is for hands, any number at once; when all slots are taken it waits for one.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/arena.hpp"
#include "os/host_memory.hpp"
#include "os/userfault.hpp"

namespace tiermem {

class Nursery {
 public:
  /// `huge`: of huge pages, else of 4 KiB pages. `userfault` outlives this.
  static Result<std::unique_ptr<Nursery>> create(const Userfault& userfault, bool huge);

  struct Filled {
    std::uint64_t huge = 0;  ///< 2 MiB pages among them, where the kernel tells.
  };
  /// Zeroed pages for an absent home. `require_huge`: no_capacity unless all are huge. After a
  /// failure the home is absent.
  Result<Filled> fill(std::byte* home, std::uint64_t bytes, bool require_huge);
  /// [child of fork, its only thread] The slots, all free, are mapped again.
  Status follow_fork();

 private:
  Nursery(const Userfault& userfault, bool huge, host::AddressRange range);
  void free_all();
  std::byte* take_slot();
  void give_slot(std::byte* slot);
  Status fill_piece(std::byte* slot, std::byte* home, std::uint64_t bytes, bool require_huge,
                    Filled& filled);

  const Userfault& userfault_;
  const bool huge_;
  host::AddressRange range_;
  std::mutex mutex_;
  std::condition_variable slot_free_;
  Vector<std::byte*> free_;   // Guarded by mutex_, as the next.
  std::uint64_t opened_ = 0;  // Slots below this number can be touched.
};

/// Zeroed pages at an address that may be touched. With `huge`, how many 2 MiB pages came of it,
/// and no_capacity when `require_huge` is not met. After a failure there are no pages.
Result<std::uint64_t> bring_pages(std::byte* address, std::uint64_t bytes, bool huge,
                                  bool require_huge);

}  // namespace tiermem
