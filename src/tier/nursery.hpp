// The nursery: it creates pages for homes that are registered with userfaultfd. Populating such a
// home in place would fault, and the fault would wait for a fault reader that knows nothing of
// homes. The pages are therefore created in a slot of the nursery, which is not registered, and
// moved home. A slot is 2 MiB; a larger home takes several turns. Outside a turn no slot has pages,
// so the nursery needs no charge.
//
// Threads: any number of workers may call fill at once. If all slots are taken, fill waits for one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <semaphore>

#include "os/host_memory.hpp"
#include "os/userfault.hpp"

namespace tiermem {

class Nursery {
 public:
  /// `huge`: huge pages, else 4 KiB pages. `userfault` outlives this object.
  static Result<std::unique_ptr<Nursery>> create(const Userfault& userfault, bool huge);

  struct Filled {
    std::uint64_t huge = 0;  ///< Number of 2 MiB pages among them, if the kernel reports it.
  };
  /// Fills an absent home with zeroed pages. `require_huge`: no_capacity unless all are huge. After
  /// a failure the home is absent.
  Result<Filled> fill(std::byte* home, std::uint64_t bytes, bool require_huge);
  /// [child of fork, its only thread] Maps the slots again; all of them are free.
  Status follow_fork();

 private:
  Nursery(const Userfault& userfault, bool huge, host::AddressRange range);
  std::byte* take_slot();
  void give_slot(std::byte* slot);
  Status fill_piece(std::byte* slot, std::byte* home, std::uint64_t bytes, bool require_huge,
                    Filled& filled);

  const Userfault& userfault_;
  const bool huge_;
  host::AddressRange range_;
  static constexpr unsigned kSlots = 32;  // More than the number of workers.
  static constexpr std::uint64_t kAllFree = (std::uint64_t{1} << kSlots) - 1;
  std::counting_semaphore<kSlots> slots_{kSlots};  // Counts the free slots.
  std::mutex mutex_;
  std::uint64_t free_ = kAllFree;  // A bit for each slot. Guarded by mutex_, like the next member.
  std::uint64_t opened_ = 0;       // Slots below this number are accessible.
};

/// Populates accessible addresses with zeroed pages. With `huge`, returns the number of 2 MiB
/// pages, or no_capacity if `require_huge` is not met. After a failure there are no pages.
Result<std::uint64_t> bring_pages(std::byte* address, std::uint64_t bytes, bool huge,
                                  bool require_huge);

}  // namespace tiermem
