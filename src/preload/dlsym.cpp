// `dlsym` itself, because libcudart and others use it to find the driver's functions. The loader's
// `dlsym` uses its return address to find the calling library: RTLD_NEXT continues after that
// library, and RTLD_DEFAULT sees its dependencies. Our function therefore never calls the loader's
// for the program. It is a few instructions that jump to the loader's and leave no frame. Only for
// a replaced function of the driver and a real handle does it return our function instead.
//
// Threads: any, from the loader's first constructors on. It allocates nothing. If no device is
// tiered, it is a load, a compare and a jump.
#include <dlfcn.h>
#include <stdlib.h>

#include <atomic>
#include <cstdint>

#include "base/arena.hpp"
#include "preload/cuda_symbols.hpp"
#include "preload/device_tiering.hpp"

#if defined(__x86_64__) || defined(__aarch64__)

#if defined(__x86_64__)
#define TIERMEM_FIRST_LIBC "GLIBC_2.2.5"
#else
#define TIERMEM_FIRST_LIBC "GLIBC_2.17"
#endif

extern "C" {
// The instructions below read these by name. The second is true only after the first is set.
__attribute__((visibility("hidden"))) constinit std::atomic<void*> tiermem_next_dlsym{nullptr};
__attribute__((visibility("hidden"))) constinit std::atomic<bool> tiermem_dlsym_passes{false};

/// Returns the program's function, or null if the next dlsym must answer.
__attribute__((visibility("hidden"), used)) void* tiermem_find_symbol(void* handle,
                                                                      const char* name);
}

namespace tiermem::preload {
namespace {

using Dlsym = void* (*)(void*, const char*);

// Takes the first version of dlsym, which every later libc still has.
Dlsym next_dlsym() {
  void* next = tiermem_next_dlsym.load(std::memory_order_relaxed);
  if (next == nullptr) {
    const ArenaScope inside;
    next = ::dlvsym(RTLD_NEXT, "dlsym", TIERMEM_FIRST_LIBC);
    tiermem_next_dlsym.store(next, std::memory_order_relaxed);
  }
  return reinterpret_cast<Dlsym>(next);
}

}  // namespace
}  // namespace tiermem::preload

void* tiermem_find_symbol(void* handle, const char* name) {
  using namespace tiermem::preload;  // NOLINT
  const Dlsym next = next_dlsym();
  if (!device_tiering_asked()) {
    tiermem_dlsym_passes.store(next != nullptr, std::memory_order_release);
    return nullptr;
  }
  // With RTLD_DEFAULT the loader finds ours by itself. A library that uses RTLD_NEXT precedes the
  // driver as we do, so its call comes from us, if at all.
  if (next == nullptr || tiermem::inside_tiermem() || handle == RTLD_NEXT ||
      handle == RTLD_DEFAULT || name == nullptr || !is_replaced(name)) {
    return nullptr;
  }
  void* const theirs = next(handle, name);
  void* const ours = replaced(theirs);
  return ours != theirs ? ours : nullptr;
}

// Both versions: jump on if nothing is replaced. Otherwise ask, return the answer, and without one
// jump on.
#if defined(__x86_64__)
asm(R"(
    .text
    .p2align 4
    .globl dlsym
    .type dlsym, @function
dlsym:
    .cfi_startproc
    endbr64
    cmpb $0, tiermem_dlsym_passes(%rip)
    jne 1f
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call tiermem_find_symbol
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %rax, %rax
    jne 2f
1:  movq tiermem_next_dlsym(%rip), %rax
    testq %rax, %rax
    je 2f
    jmp *%rax
2:  ret
    .cfi_endproc
    .size dlsym, .-dlsym
)");
#else
asm(R"(
    .text
    .p2align 4
    .globl dlsym
    .type dlsym, @function
dlsym:
    .cfi_startproc
    hint #34
    adrp x16, tiermem_dlsym_passes
    add x16, x16, :lo12:tiermem_dlsym_passes
    ldarb w17, [x16]
    cbnz w17, 1f
    stp x29, x30, [sp, #-32]!
    .cfi_adjust_cfa_offset 32
    .cfi_rel_offset x29, 0
    .cfi_rel_offset x30, 8
    mov x29, sp
    stp x0, x1, [sp, #16]
    bl tiermem_find_symbol
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_adjust_cfa_offset -32
    .cfi_restore x29
    .cfi_restore x30
    cbnz x16, 2f
1:  adrp x16, tiermem_next_dlsym
    ldr x16, [x16, :lo12:tiermem_next_dlsym]
    cbz x16, 2f
    br x16
2:  mov x0, x16
    ret
    .cfi_endproc
    .size dlsym, .-dlsym
)");
#endif

#endif
