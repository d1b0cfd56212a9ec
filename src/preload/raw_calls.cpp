// syscall(2). Programs use it for calls without a name in libc, or to avoid that name. Calls on
// memory go the same way as libc's (mapping.cpp). With some interfaces the kernel
// uses the memory after the call that names it: io_uring and the kernel's asynchronous I/O. When
// system calls are wrapped, they answer as a kernel without them, because tiermem could not keep
// the pages in place until the kernel is done.
//
// Threads: any. Without wrapping, all calls except those on memory are libc's.
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "preload/call_shapes.hpp"
#include "preload/kernel.hpp"
#include "preload/next.hpp"
#include "preload/transfers.hpp"
#include "preload/wrap.hpp"
#include "preload/wrapped_calls.hpp"

#if defined(__x86_64__)

#define TIERMEM_INTERPOSED __attribute__((visibility("default")))

namespace tiermem::preload {
namespace {

bool is_refused(long number) {
  return (number == SYS_io_uring_setup || number == SYS_io_setup) && !inside_tiermem();
}

bool refuses() {
  return wrapping() && !inside_tiermem();
}

bool refuses(const aiocb& request) {
  return wrapping() && in_wrapped_range(const_cast<const void*>(request.aio_buf));
}

int not_here() {
  errno = ENOSYS;
  return -1;
}

constexpr std::array kOnMemory = {
    SYS_mmap,          SYS_munmap,     SYS_mremap,          SYS_mprotect,
    SYS_pkey_mprotect, SYS_madvise,    SYS_process_madvise, SYS_msync,
    SYS_mincore,       SYS_mlock,      SYS_mlock2,          SYS_munlock,
    SYS_mlockall,      SYS_munlockall, SYS_shmat,           SYS_shmdt};

bool is_on_memory(long number) {
  return std::find(kOnMemory.begin(), kOnMemory.end(), number) != kOnMemory.end();
}

// Makes a call of kOnMemory as libc's function does, with its result and errno. tiermem's own calls
// go to the kernel without the mark of pass(), because the sixth argument of mmap uses all 64 bits.
long call_on_memory(long number, const std::uint64_t (&a)[6]) {
  const auto pointer = [](std::uint64_t address) { return reinterpret_cast<void*>(address); };
  const auto answer = [](const void* address) { return reinterpret_cast<long>(address); };
  const auto flags = [&](unsigned i) { return static_cast<int>(a[i]); };
  if (inside_tiermem()) {
    return direct(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  }
  switch (number) {
    case SYS_mmap:
      return answer(
          ::mmap(pointer(a[0]), a[1], flags(2), flags(3), flags(4), static_cast<off_t>(a[5])));
    case SYS_munmap:
      return ::munmap(pointer(a[0]), a[1]);
    case SYS_mremap:
      return answer(::mremap(pointer(a[0]), a[1], a[2], flags(3), pointer(a[4])));
    case SYS_mprotect:
      return ::mprotect(pointer(a[0]), a[1], flags(2));
    case SYS_pkey_mprotect:
      return ::pkey_mprotect(pointer(a[0]), a[1], flags(2), flags(3));
    case SYS_madvise:
      return ::madvise(pointer(a[0]), a[1], flags(2));
    case SYS_process_madvise:
      return ::process_madvise(flags(0), static_cast<const iovec*>(pointer(a[1])), a[2], flags(3),
                               static_cast<unsigned>(a[4]));
    case SYS_msync:
      return ::msync(pointer(a[0]), a[1], flags(2));
    case SYS_mincore:
      return ::mincore(pointer(a[0]), a[1], static_cast<unsigned char*>(pointer(a[2])));
    case SYS_mlock:
      return ::mlock(pointer(a[0]), a[1]);
    case SYS_mlock2:
      return ::mlock2(pointer(a[0]), a[1], static_cast<unsigned>(a[2]));
    case SYS_munlock:
      return ::munlock(pointer(a[0]), a[1]);
    case SYS_mlockall:
      return ::mlockall(flags(0));
    case SYS_munlockall:
      return ::munlockall();
    case SYS_shmat:
      return answer(::shmat(flags(0), pointer(a[1]), flags(2)));
    default:
      return ::shmdt(pointer(a[0]));
  }
}

// A zero-copy send refers to pages, and these may move before the kernel has sent them. Programs
// send by copying if the kernel does not offer zero-copy. Also before anything is tiered, because
// the option stays.
bool refuses_option(int level, int name) {
  if (level != SOL_SOCKET || name != SO_ZEROCOPY || inside_tiermem()) {
    return false;
  }
  errno = EOPNOTSUPP;
  return true;
}

// Makes the calls of descriptors and limits, and those that refer to pages, as libc's functions do.
// Returns nothing for any other call.
std::optional<long> call_as_function(long number, const std::uint64_t (&a)[6]) {
  const auto whole = [&](unsigned i) { return static_cast<int>(a[i]); };
  switch (number) {
    case SYS_close:
      return ::close(whole(0));
    case SYS_close_range:
      return ::close_range(static_cast<unsigned>(a[0]), static_cast<unsigned>(a[1]), whole(2));
    case SYS_dup2:
      return ::dup2(whole(0), whole(1));
    case SYS_dup3:
      return ::dup3(whole(0), whole(1), whole(2));
    case SYS_vmsplice:
      return ::vmsplice(whole(0), reinterpret_cast<const iovec*>(a[1]), a[2],
                        static_cast<unsigned>(a[3]));
    case SYS_setrlimit:
      return ::setrlimit(static_cast<__rlimit_resource>(a[0]),
                         reinterpret_cast<const rlimit*>(a[1]));
    case SYS_prlimit64:
      return ::prlimit(whole(0), static_cast<__rlimit_resource>(a[1]),
                       reinterpret_cast<const rlimit*>(a[2]), reinterpret_cast<rlimit*>(a[3]));
    case SYS_setsockopt:
      return refuses_option(whole(1), whole(2)) ? std::optional<long>(-1) : std::nullopt;
    default:
      return std::nullopt;
  }
}

bool refers_to_regions(long number, const std::uint64_t (&a)[6]) {
  const auto pointer = [](std::uint64_t address) { return reinterpret_cast<void*>(address); };
  if (has_vectors(number)) {
    return any_wrapped(static_cast<const iovec*>(pointer(a[1])), a[2]);
  }
  if (has_message(number)) {
    return any_wrapped(static_cast<const msghdr*>(pointer(a[1])));
  }
  // The code that reads a program's strings (exec.cpp) finds out whether they are in regions.
  return number == SYS_execve || number == SYS_execveat;
}

}  // namespace
}  // namespace tiermem::preload

using namespace tiermem::preload;  // NOLINT: the definitions below are C's.

extern "C" {

void tiermem_rights_shrink(long number, unsigned long first, unsigned long second,
                           unsigned long third);  // rights.cpp
#ifdef TIERMEM_OWN_URING
int tiermem_uring_queue_init(unsigned entries, void* ring, unsigned flags);  // Our copy's.
#endif

// For each number, whether syscall() below must examine the call.
extern __attribute__((visibility("hidden"))) const std::array<std::uint8_t, 512>
    tiermem_syscall_looked_at;
constinit const std::array<std::uint8_t, 512> tiermem_syscall_looked_at = [] {
  std::array<std::uint8_t, 512> numbers{};
  for (const long number :
       {SYS_readv,       SYS_writev,         SYS_preadv,  SYS_pwritev,  SYS_preadv2,
        SYS_pwritev2,    SYS_sendmsg,        SYS_recvmsg, SYS_execve,   SYS_execveat,
        SYS_io_setup,    SYS_io_uring_setup, SYS_prctl,   SYS_seccomp,  SYS_close,
        SYS_close_range, SYS_dup2,           SYS_dup3,    SYS_vmsplice, SYS_setsockopt,
        SYS_setrlimit,   SYS_prlimit64}) {
    numbers[static_cast<std::size_t>(number)] = 1;
  }
  for (const long number : kOnMemory) {
    numbers[static_cast<std::size_t>(number)] = 1;
  }
  return numbers;
}();

// Handles the calls that the assembly of syscall() below does not make by itself.
__attribute__((visibility("hidden"))) long tiermem_syscall_slowly(long number, std::uint64_t a,
                                                                  std::uint64_t b, std::uint64_t c,
                                                                  std::uint64_t d, std::uint64_t e,
                                                                  std::uint64_t f) {
  const std::uint64_t arguments[6] = {a, b, c, d, e, f};
  if (number == SYS_prctl || number == SYS_seccomp) {
    tiermem_rights_shrink(number, a, b, c);
  }
  if (is_on_memory(number)) {
    return call_on_memory(number, arguments);
  }
  if (!tiermem::inside_tiermem()) {
    if (const std::optional<long> answer = call_as_function(number, arguments)) {
      return *answer;
    }
  }
  long result = -ENOSYS;
  if (!wrapping() || (!is_refused(number) && !refers_to_regions(number, arguments))) {
    result = pass({number, {a, b, c, d, e, f}});
  } else if (!is_refused(number)) {
    result = wrapped_call({number, {a, b, c, d, e, f}});
  }
  if (result < 0 && result > -4096) {
    errno = static_cast<int>(-result);
    return -1;
  }
  return result;
}

__attribute__((visibility("hidden"))) long tiermem_syscall_failed(long result) {
  errno = static_cast<int>(-result);
  return -1;
}

// Assembly without a frame of its own: some programs create children through it that continue on
// the same stack.
asm(R"(
  .text
  .globl syscall
  .type syscall, @function
syscall:
  .cfi_startproc
  cmpq $512, %rdi
  jae 1f
  leaq tiermem_syscall_looked_at(%rip), %rax
  cmpb $0, (%rax,%rdi)
  jne tiermem_syscall_slowly
1:
  movq %rdi, %rax
  movq %rsi, %rdi
  movq %rdx, %rsi
  movq %rcx, %rdx
  movq %r8, %r10
  movq %r9, %r8
  movq 8(%rsp), %r9
  syscall
  cmpq $-4095, %rax
  jae 2f
  ret
2:
  movq %rax, %rdi
  jmp tiermem_syscall_failed
  .cfi_endproc
  .size syscall, .-syscall
)");

TIERMEM_INTERPOSED int setsockopt(int fd, int level, int name, const void* value,
                                  socklen_t bytes) noexcept {
  return refuses_option(level, name)
             ? -1
             : static_cast<int>(direct(SYS_setsockopt, fd, level, name, value, bytes));
}

using Init = int (*)(unsigned, void*, unsigned);
using InitBy = int (*)(unsigned, void*, void*);

TIERMEM_INTERPOSED int io_uring_queue_init(unsigned entries, void* ring, unsigned flags) {
#ifdef TIERMEM_OWN_URING
  if (tiermem::inside_tiermem()) {
    return tiermem_uring_queue_init(entries, ring, flags);
  }
#endif
  static const auto real = next<Init>("io_uring_queue_init");
  return refuses() || real == nullptr ? -ENOSYS : real(entries, ring, flags);
}

TIERMEM_INTERPOSED int io_uring_queue_init_params(unsigned entries, void* ring, void* parameters) {
  static const auto real = next<InitBy>("io_uring_queue_init_params");
  return refuses() || real == nullptr ? -ENOSYS : real(entries, ring, parameters);
}

TIERMEM_INTERPOSED int io_setup(int events, void* context) {
  static const auto real = next<int (*)(int, void*)>("io_setup");
  return refuses() || real == nullptr ? -ENOSYS : real(events, context);
}

TIERMEM_INTERPOSED int io_queue_init(int events, void* context) {
  static const auto real = next<int (*)(int, void*)>("io_queue_init");
  return refuses() || real == nullptr ? -ENOSYS : real(events, context);
}

// libc makes these calls in threads that block all signals.
TIERMEM_INTERPOSED int aio_read(aiocb* request) noexcept {
  static const auto real = next<int (*)(aiocb*)>("aio_read");
  return refuses(*request) ? not_here() : real(request);
}
TIERMEM_INTERPOSED int aio_write(aiocb* request) noexcept {
  static const auto real = next<int (*)(aiocb*)>("aio_write");
  return refuses(*request) ? not_here() : real(request);
}
TIERMEM_INTERPOSED int aio_read64(aiocb64* request) noexcept {
  return aio_read(reinterpret_cast<aiocb*>(request));
}
TIERMEM_INTERPOSED int aio_write64(aiocb64* request) noexcept {
  return aio_write(reinterpret_cast<aiocb*>(request));
}
TIERMEM_INTERPOSED int lio_listio(int mode, aiocb* const requests[], int count,
                                  sigevent* event) noexcept {
  static const auto real = next<int (*)(int, aiocb* const*, int, sigevent*)>("lio_listio");
  for (int i = 0; i < count; ++i) {
    if (requests[i] != nullptr && refuses(*requests[i])) {
      return not_here();
    }
  }
  return real(mode, requests, count, event);
}
TIERMEM_INTERPOSED int lio_listio64(int mode, aiocb64* const requests[], int count,
                                    sigevent* event) noexcept {
  return lio_listio(mode, reinterpret_cast<aiocb* const*>(requests), count, event);
}

}  // extern "C"

#endif
