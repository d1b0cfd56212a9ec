// Reservation and commit. A private mapping that is not writable is charged neither to
// vm.overcommit_memory=2 nor to RLIMIT_DATA.
#include "base/reserved_array.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/checked.hpp"
#include "base/plain_mapping.hpp"
#include "base/results.hpp"

namespace tiermem {
namespace {

constexpr std::size_t kCommitUnit = 4096;

}  // namespace

ReservedBytes::ReservedBytes(std::size_t bytes) : bytes_(round_up(bytes, kCommitUnit)) {
  void* const memory = ::mmap(nullptr, bytes_, PROT_READ,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | kLeaveToKernel, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::bad_alloc();
  }
  data_ = static_cast<std::byte*>(memory);
  // After mlockall(MCL_FUTURE) the kernel would fill the range.
  best_effort(::munlock(data_, bytes_), "it need not have been locked");
  best_effort(::madvise(data_, bytes_, MADV_DONTDUMP), "core dumps then are larger");
}

ReservedBytes::~ReservedBytes() {
  best_effort(::munmap(data_, bytes_), "it stays reserved");
}

bool ReservedBytes::commit_more(std::size_t bytes) noexcept {
  if (bytes > bytes_) {
    errno = ENOMEM;
    return false;
  }
  const std::size_t step = std::clamp(committed_, kLeastStep, kMostStep);
  return open(std::min(bytes_, std::max(round_up(bytes, kCommitUnit), committed_ + step))) ||
         open(round_up(bytes, kCommitUnit));
}

bool ReservedBytes::open(std::size_t bytes) noexcept {
  if (::mprotect(data_ + committed_, bytes - committed_, PROT_READ | PROT_WRITE) != 0) {
    return false;
  }
  committed_ = bytes;
  return true;
}

void ReservedBytes::drop(std::size_t from, std::size_t to) noexcept {
  from = round_up(from, kCommitUnit);
  to &= ~(kCommitUnit - 1);
  to = to < committed_ ? to : committed_;
  // The kernel does not release locked memory, so the bytes are overwritten.
  if (from < to && ::madvise(data_ + from, to - from, MADV_DONTNEED) != 0) {
    std::memset(data_ + from, 0, to - from);
  }
}

std::size_t next_page_offset() noexcept {
  constexpr std::size_t kLine = 64;
  // An odd number reaches every line; this one is also large enough for elements of several lines.
  constexpr std::size_t kStride = 11;
  static std::atomic<std::size_t> arrays{0};
  return arrays.fetch_add(1, std::memory_order_relaxed) * kStride % (kCommitUnit / kLine) * kLine;
}

}  // namespace tiermem
