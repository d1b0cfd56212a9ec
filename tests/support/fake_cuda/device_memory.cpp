// Address ranges, physical memory, and the mappings between them.
#include "support/fake_cuda/device_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/checked.hpp"

namespace tiermem::test {
namespace {

constexpr std::uint64_t kPattern = std::uint64_t{2} << 20;

std::uint64_t page() {
  return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// A file of 2 MiB of 0xA5. Memory consists of private mappings of it: full from the start without
// any write, so that a chunk costs only its used part.
int pattern_file() {
  static const int file = [] {
    const int made = ::memfd_create("fake-cuda-fresh", MFD_CLOEXEC);
    const std::vector<unsigned char> fresh(kPattern, 0xA5);
    return made >= 0 &&
                   ::write(made, fresh.data(), fresh.size()) == static_cast<ssize_t>(fresh.size())
               ? made
               : -1;
  }();
  return file;
}

std::byte* map_nothing(void* wanted, std::uint64_t bytes, int flags) {
  void* const at =
      ::mmap(wanted, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

}  // namespace

std::uint64_t DeviceBooks::free() const {
  const std::uint64_t gone = *used + taken;
  return capacity - std::min(capacity, gone);
}

std::shared_ptr<Allocation> Allocation::make(int device, std::uint64_t bytes, DeviceBooks& books) {
  const std::uint64_t whole = round_up(bytes, page());
  std::byte* const at = pattern_file() < 0 ? nullptr : map_nothing(nullptr, whole, 0);
  if (at == nullptr) {
    return nullptr;
  }
  for (std::uint64_t done = 0; done < whole; done += kPattern) {
    if (::mmap(at + done, std::min(kPattern, whole - done), PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, pattern_file(), 0) == MAP_FAILED) {
      ::munmap(at, whole);
      return nullptr;
    }
  }
  std::shared_ptr<Allocation> made(new Allocation);
  made->device_ = device;
  made->bytes_ = bytes;
  static std::uint64_t last_id = 0;  // Guarded by the world's lock.
  made->id_ = ++last_id;
  made->at_ = at;
  made->used_ = books.used;
  *made->used_ += bytes;
  return made;
}

Allocation::~Allocation() {
  if (at_ != nullptr) {
    ::munmap(at_, round_up(bytes_, page()));
    *used_ -= bytes_;
  }
}

DeviceMemory::~DeviceMemory() {
  for (const auto& [at, reservation] : reservations_) {
    ::munmap(reinterpret_cast<void*>(at), reservation.bytes);
  }
}

// Ranges of addresses.

cuda::Result DeviceMemory::reserve(std::uint64_t bytes, std::uint64_t alignment,
                                   cuda::DevicePointer wanted, cuda::DevicePointer& at) {
  alignment = alignment == 0 ? granularity : alignment;
  if (!granular(bytes) || !granular(alignment) || !std::has_single_bit(alignment) ||
      wanted % alignment != 0 || bytes + alignment < bytes) {
    return cuda::kInvalidValue;
  }
  // `wanted` is a hint; an existing mapping wins.
  std::byte* start = wanted == 0
                         ? nullptr
                         : map_nothing(reinterpret_cast<void*>(wanted), bytes, MAP_FIXED_NOREPLACE);
  if (start == nullptr) {
    std::byte* const more = map_nothing(nullptr, bytes + alignment, 0);
    if (more == nullptr) {
      return cuda::kOutOfMemory;
    }
    const std::uint64_t before = round_up(reinterpret_cast<std::uintptr_t>(more), alignment) -
                                 reinterpret_cast<std::uintptr_t>(more);
    start = more + before;
    if (before > 0) {
      ::munmap(more, before);
    }
    ::munmap(start + bytes, alignment - before);
  }
  at = reinterpret_cast<std::uintptr_t>(start);
  reservations_[at] = {bytes, false};
  return cuda::kSuccess;
}

cuda::Result DeviceMemory::free_reservation(cuda::DevicePointer at, std::uint64_t bytes) {
  const auto found = reservations_.find(at);
  if (found == reservations_.end() || found->second.bytes != bytes ||
      found->second.of_one_allocation) {
    return cuda::kInvalidValue;
  }
  const auto mapped = mappings_.lower_bound(at);
  if (mapped != mappings_.end() && mapped->first < at + bytes) {
    return cuda::kInvalidValue;
  }
  ::munmap(reinterpret_cast<void*>(at), bytes);
  reservations_.erase(found);
  return cuda::kSuccess;
}

std::map<cuda::DevicePointer, DeviceMemory::Reservation>::const_iterator
DeviceMemory::reservation_around(cuda::DevicePointer at) const {
  const auto after = reservations_.upper_bound(at);
  if (after == reservations_.begin()) {
    return reservations_.end();
  }
  const auto before = std::prev(after);
  return at - before->first < before->second.bytes ? before : reservations_.end();
}

bool DeviceMemory::owns(cuda::DevicePointer at) const {
  return reservation_around(at) != reservations_.end();
}

// Physical memory.

cuda::Result DeviceMemory::create(int device, std::uint64_t bytes, cuda::MemoryHandle& handle) {
  if (!granular(bytes)) {
    return cuda::kInvalidValue;
  }
  DeviceBooks& of = books[static_cast<std::size_t>(device)];
  std::shared_ptr<Allocation> memory =
      bytes > of.free() ? nullptr : Allocation::make(device, bytes, of);
  if (memory == nullptr) {
    return cuda::kOutOfMemory;
  }
  handle = next_handle_++;
  handles_[handle] = std::move(memory);
  return cuda::kSuccess;
}

cuda::Result DeviceMemory::release(cuda::MemoryHandle handle) {
  return handles_.erase(handle) == 1 ? cuda::kSuccess : cuda::kInvalidValue;
}

cuda::Result DeviceMemory::allocate(int device, std::uint64_t bytes, cuda::DevicePointer& at) {
  if (bytes == 0) {
    return cuda::kInvalidValue;
  }
  DeviceBooks& of = books[static_cast<std::size_t>(device)];
  if (bytes > of.free()) {
    return cuda::kOutOfMemory;
  }
  std::shared_ptr<Allocation> memory = Allocation::make(device, bytes, of);
  std::byte* const start =
      memory == nullptr ? nullptr : map_nothing(nullptr, round_up(bytes, page()), 0);
  if (start == nullptr) {
    return cuda::kOutOfMemory;
  }
  at = reinterpret_cast<std::uintptr_t>(start);
  reservations_[at] = {round_up(bytes, page()), true};
  Mapping mapping{bytes, std::move(memory), {}, true};
  mapping.access[static_cast<std::size_t>(device)] = cuda::kAccessReadWrite;
  mappings_[at] = std::move(mapping);
  ++allocations_;
  return cuda::kSuccess;
}

bool DeviceMemory::allocated(cuda::DevicePointer at) const {
  const auto found = reservations_.find(at);
  return found != reservations_.end() && found->second.of_one_allocation;
}

cuda::Result DeviceMemory::free(cuda::DevicePointer at) {
  if (!allocated(at)) {
    return cuda::kInvalidValue;
  }
  const auto found = reservations_.find(at);
  ::munmap(reinterpret_cast<void*>(at), found->second.bytes);
  reservations_.erase(found);
  mappings_.erase(at);
  --allocations_;
  return cuda::kSuccess;
}

// Mappings.

cuda::Result DeviceMemory::map(cuda::DevicePointer at, std::uint64_t bytes,
                               cuda::MemoryHandle handle) {
  const auto memory = handles_.find(handle);
  const auto around = reservation_around(at);
  if (memory == handles_.end() || around == reservations_.end() ||
      around->second.of_one_allocation || !granular(bytes) || at % granularity != 0 ||
      bytes > memory->second->bytes() || bytes > around->second.bytes - (at - around->first)) {
    return cuda::kInvalidValue;
  }
  const auto next = mappings_.lower_bound(at);
  if (mapping_around(at) != mappings_.end() ||
      (next != mappings_.end() && next->first < at + bytes)) {
    return cuda::kInvalidValue;
  }
  mappings_[at] = {bytes, memory->second, {}, false};
  return cuda::kSuccess;
}

cuda::Result DeviceMemory::unmap(cuda::DevicePointer at, std::uint64_t bytes) {
  Mappings::iterator first;
  Mappings::iterator last;
  if (!whole_mappings(at, bytes, first, last)) {
    return cuda::kInvalidValue;
  }
  mappings_.erase(first, last);
  return cuda::kSuccess;
}

cuda::Result DeviceMemory::set_access(cuda::DevicePointer at, std::uint64_t bytes, int device,
                                      int access) {
  Mappings::iterator first;
  Mappings::iterator last;
  if (!whole_mappings(at, bytes, first, last)) {
    return cuda::kInvalidValue;
  }
  for (; first != last; ++first) {
    first->second.access[static_cast<std::size_t>(device)] = access;
  }
  return cuda::kSuccess;
}

// Finds the mappings that make up a range: whole mappings without a gap.
bool DeviceMemory::whole_mappings(cuda::DevicePointer at, std::uint64_t bytes,
                                  Mappings::iterator& first, Mappings::iterator& last) {
  first = last = mappings_.find(at);
  while (bytes > 0 && last != mappings_.end() && last->first == at && last->second.bytes <= bytes &&
         !last->second.of_one_allocation) {
    at += last->second.bytes;
    bytes -= last->second.bytes;
    ++last;
  }
  return bytes == 0 && first != last;
}

DeviceMemory::Mappings::const_iterator DeviceMemory::mapping_around(cuda::DevicePointer at) const {
  const auto after = mappings_.upper_bound(at);
  if (after == mappings_.begin()) {
    return mappings_.end();
  }
  const auto before = std::prev(after);
  return at - before->first < before->second.bytes ? before : mappings_.end();
}

bool DeviceMemory::find(cuda::DevicePointer at, cuda::DevicePointer& base, std::uint64_t& bytes,
                        int& device) const {
  const auto around = mapping_around(at);
  if (around == mappings_.end()) {
    return false;
  }
  base = around->first;
  bytes = around->second.bytes;
  device = around->second.memory->device();
  return true;
}

std::uint64_t DeviceMemory::id_at(cuda::DevicePointer at) const {
  const auto around = mapping_around(at);
  return around == mappings_.end() ? 0 : around->second.memory->id();
}

bool DeviceMemory::resolve(cuda::DevicePointer at, std::uint64_t bytes, int device, int access,
                           std::vector<Piece>& to) const {
  for (auto around = mapping_around(at); bytes > 0; ++around) {
    if (around == mappings_.end() || at < around->first ||
        (around->second.access[static_cast<std::size_t>(device)] & access) != access) {
      return false;
    }
    const std::uint64_t offset = at - around->first;
    const std::uint64_t here = std::min(bytes, around->second.bytes - offset);
    to.push_back({around->second.memory->at(offset), here, around->second.memory});
    at += here;
    bytes -= here;
  }
  return true;
}

}  // namespace tiermem::test
