// The records of page-locked memory.
#include "support/fake_cuda/host_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <iterator>

namespace tiermem::test {
namespace {

std::uintptr_t page() {
  return static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
}

std::uintptr_t page_down(std::uintptr_t at) {
  return at / page() * page();
}

std::uintptr_t page_up(std::uintptr_t at) {
  return page_down(at + page() - 1);
}

}  // namespace

HostMemory::~HostMemory() {
  for (const auto& [at, range] : ranges_) {
    if (range.ours) {
      ::munmap(reinterpret_cast<void*>(at), range.pages);
    }
  }
}

cuda::Result HostMemory::register_range(const void* at, std::uint64_t bytes) {
  const auto start = reinterpret_cast<std::uintptr_t>(at);
  if (at == nullptr || bytes == 0 || start + bytes < start) {
    return cuda::kInvalidValue;
  }
  return add(start, bytes, false);
}

cuda::Result HostMemory::unregister(const void* at) {
  const auto start = reinterpret_cast<std::uintptr_t>(at);
  const auto found = ranges_.find(start);
  if (found == ranges_.end() || found->second.ours) {
    return around(start) == ranges_.end() ? cuda::kNotRegistered : cuda::kInvalidValue;
  }
  locked_bytes_ -= found->second.pages;
  ranges_.erase(found);
  return cuda::kSuccess;
}

cuda::Result HostMemory::allocate(std::uint64_t bytes, void*& at) {
  if (bytes == 0) {
    return cuda::kInvalidValue;
  }
  const std::uint64_t whole = page_up(bytes);
  void* const made =
      ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) {
    return cuda::kOutOfMemory;
  }
  const cuda::Result added = add(reinterpret_cast<std::uintptr_t>(made), bytes, true);
  if (added != cuda::kSuccess) {
    ::munmap(made, whole);
    return added;
  }
  ++allocations_;
  at = made;
  return cuda::kSuccess;
}

cuda::Result HostMemory::free(void* at) {
  const auto found = ranges_.find(reinterpret_cast<std::uintptr_t>(at));
  if (found == ranges_.end() || !found->second.ours) {
    return cuda::kInvalidValue;
  }
  ::munmap(at, found->second.pages);
  locked_bytes_ -= found->second.pages;
  ranges_.erase(found);
  --allocations_;
  return cuda::kSuccess;
}

cuda::Result HostMemory::add(std::uintptr_t at, std::uint64_t bytes, bool ours) {
  const std::uintptr_t first = page_down(at);
  const std::uintptr_t end = page_up(at + bytes);
  // The next range after the end of this one. The range before it may overlap by a page or more.
  const auto next = ranges_.lower_bound(end);
  if (next != ranges_.begin()) {
    const auto before = std::prev(next);
    if (page_up(before->first + before->second.bytes) > first) {
      return cuda::kAlreadyRegistered;
    }
  }
  if (end - first > lockable || locked_bytes_ > lockable - (end - first)) {
    return cuda::kOutOfMemory;
  }
  ranges_[at] = {bytes, end - first, ours};
  locked_bytes_ += end - first;
  return cuda::kSuccess;
}

std::map<std::uintptr_t, HostMemory::Range>::const_iterator HostMemory::around(
    std::uintptr_t at) const {
  const auto after = ranges_.upper_bound(at);
  if (after == ranges_.begin()) {
    return ranges_.end();
  }
  const auto before = std::prev(after);
  return at - before->first < before->second.bytes ? before : ranges_.end();
}

HostMemory::Sort HostMemory::sort_of(const void* at, std::uint64_t bytes) const {
  const auto start = reinterpret_cast<std::uintptr_t>(at);
  const auto found = around(start);
  if (found == ranges_.end()) {
    return Sort::pageable;
  }
  const std::uint64_t left = found->second.bytes - (start - found->first);
  return bytes <= left ? Sort::locked : Sort::leaving;
}

}  // namespace tiermem::test
