// Creates pages in a slot, and moves them home.
#include "tier/nursery.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/error.hpp"
#include "base/results.hpp"
#include "os/memory_limits.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kSlotBytes = host::kHugePage;

Status dress(std::byte* address, std::uint64_t bytes, bool huge) {
  best_effort(host::advise(address, bytes, huge ? host::Advise::huge : host::Advise::no_huge),
              "the kernel's default decides");
  best_effort(host::advise(address, bytes, host::Advise::dont_dump), "a core dump is larger");
  // A page that a fork shares cannot be moved.
  if (const int error = host::advise(address, bytes, host::Advise::dont_fork); error != 0) {
    return fail_native(Code::unavailable, error, "MADV_DONTFORK: {}", std::strerror(error));
  }
  return {};
}

}  // namespace

Result<std::uint64_t> bring_pages(std::byte* address, std::uint64_t bytes, bool huge,
                                  bool require_huge) {
  if (const int error = host::populate(address, bytes); error != 0) {
    best_effort(host::drop(address, bytes), "new pages have no bytes");
    return fail_native(Code::no_capacity, error, "the kernel has no pages for {}: {}",
                       human_bytes(bytes), std::strerror(error));
  }
  if (!huge) {
    return std::uint64_t{0};
  }
  auto got = host::huge_bytes(address, bytes);
  if (require_huge && got.has_value() && *got < bytes) {
    best_effort(host::advise(address, bytes, host::Advise::collapse), "the next line looks");
    got = host::huge_bytes(address, bytes);
    if (got.has_value() && *got < bytes) {
      best_effort(host::drop(address, bytes), "new pages have no bytes");
      return fail(Code::no_capacity,
                  "huge_pages=require: only {} of {} came as huge pages; free memory, or set "
                  "huge_pages=auto",
                  human_bytes(*got), human_bytes(bytes));
    }
  }
  return got.value_or(0) / host::kHugePage;
}

Result<std::unique_ptr<Nursery>> Nursery::create(const Userfault& userfault, bool huge) {
  auto range = host::reserve({.bytes = kSlots * kSlotBytes, .accessible = false});
  if (!range.ok()) {
    return std::move(range).status();
  }
  if (Status dressed = dress(range->data(), range->bytes(), huge); !dressed.ok()) {
    return dressed;
  }
  return std::unique_ptr<Nursery>(new Nursery(userfault, huge, std::move(*range)));
}

Nursery::Nursery(const Userfault& userfault, bool huge, host::AddressRange range)
    : userfault_(userfault), huge_(huge), range_(std::move(range)) {}

Status Nursery::follow_fork() {
  if (Status again = host::reserve_again(range_, kSlotBytes); !again.ok()) {
    return again;
  }
  opened_ = kSlots;
  free_ = kAllFree;
  new (&slots_) std::counting_semaphore<kSlots>(kSlots);
  return dress(range_.data(), range_.bytes(), huge_);
}

// Takes the lowest free slot, and opens it when it is taken for the first time. Returns null, with
// errno, if the kernel refuses that.
std::byte* Nursery::take_slot() {
  slots_.acquire();
  const std::lock_guard lock(mutex_);
  const auto number = static_cast<unsigned>(std::countr_zero(free_));
  std::byte* const slot = range_.data() + number * kSlotBytes;
  // The slots below are open: each was the lowest free one when it was taken first.
  if (number >= opened_) {
    if (host::open_range(slot, kSlotBytes) != 0) {
      slots_.release();
      return nullptr;
    }
    opened_ = number + 1;
  }
  free_ &= free_ - 1;
  return slot;
}

void Nursery::give_slot(std::byte* slot) {
  {
    const auto number = static_cast<std::uint64_t>(slot - range_.data()) / kSlotBytes;
    const std::lock_guard lock(mutex_);
    free_ |= std::uint64_t{1} << number;
  }
  slots_.release();
}

Result<Nursery::Filled> Nursery::fill(std::byte* home, std::uint64_t bytes, bool require_huge) {
  Filled filled;
  std::byte* const slot = take_slot();
  if (slot == nullptr) {
    return host::refused(errno, kSlotBytes, host::Wanted::memory, "new pages for a frame");
  }
  Status status;
  for (std::uint64_t done = 0; done < bytes && status.ok(); done += kSlotBytes) {
    status =
        fill_piece(slot, home + done, std::min(bytes - done, kSlotBytes), require_huge, filled);
  }
  give_slot(slot);
  if (!status.ok()) {
    best_effort(host::drop(home, bytes), "new pages have no bytes");
    return status;
  }
  return filled;
}

Status Nursery::fill_piece(std::byte* slot, std::byte* home, std::uint64_t bytes, bool require_huge,
                           Filled& filled) {
  const bool huge = huge_ && bytes == kSlotBytes;
  auto got = bring_pages(slot, bytes, huge, require_huge);
  if (!got.ok()) {
    return std::move(got).status();
  }
  const UserfaultProgress moved = userfault_.move(home, slot, bytes);
  if (moved.error != 0) {
    best_effort(host::drop(slot, bytes), "new pages have no bytes");
    return fail_native(moved.error == ENOMEM ? Code::no_capacity : Code::internal, moved.error,
                       "new pages could not be moved home: {}", std::strerror(moved.error));
  }
  filled.huge += *got;
  if (huge && *got == 0) {
    // Small pages left their page table behind, which would prevent the next huge page.
    best_effort(host::renew(slot, kSlotBytes), "the next frame gets small pages");
    return dress(slot, kSlotBytes, huge_);
  }
  return {};
}

}  // namespace tiermem
