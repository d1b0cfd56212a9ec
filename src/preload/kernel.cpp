// System calls by number: a libc wrapper would resolve to the interposed name again.
#include "preload/kernel.hpp"

#include <sys/syscall.h>
#include <unistd.h>

extern "C" {

void* tiermem_plain_mmap(void* address, std::size_t bytes, int protection, int flags, int fd,
                         off_t offset) noexcept {
  return reinterpret_cast<void*>(
      tiermem::preload::direct(SYS_mmap, address, bytes, protection, flags, fd, offset));
}

int tiermem_plain_munmap(void* address, std::size_t bytes) noexcept {
  return static_cast<int>(tiermem::preload::direct(SYS_munmap, address, bytes));
}

int tiermem_plain_madvise(void* address, std::size_t bytes, int advice) noexcept {
  return static_cast<int>(tiermem::preload::direct(SYS_madvise, address, bytes, advice));
}

int tiermem_plain_mprotect(void* address, std::size_t bytes, int protection) noexcept {
  return static_cast<int>(tiermem::preload::direct(SYS_mprotect, address, bytes, protection));
}

}  // extern "C"

namespace tiermem::preload {

void* plain_mremap(void* address, std::size_t from, std::size_t to, int flags, void* at) noexcept {
  return reinterpret_cast<void*>(direct(SYS_mremap, address, from, to, flags, at));
}

int plain_mlock(const void* address, std::size_t bytes, unsigned flags) noexcept {
  return static_cast<int>(flags == 0 ? direct(SYS_mlock, address, bytes)
                                     : direct(SYS_mlock2, address, bytes, flags));
}

int plain_munlock(const void* address, std::size_t bytes) noexcept {
  return static_cast<int>(direct(SYS_munlock, address, bytes));
}

int plain_unmap(std::byte* begin, std::size_t bytes, int) noexcept {
  return tiermem_plain_munmap(begin, bytes);
}
int plain_claim(std::byte* begin, std::size_t bytes, int) noexcept {
  constexpr int kReserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  return tiermem_plain_mmap(begin, bytes, PROT_NONE, kReserved, -1, 0) == begin ? 0 : -1;
}

}  // namespace tiermem::preload
