// dlopen and dlmopen without RTLD_DEEPBIND: with it a module would find libc's malloc before ours,
// and free with one what came from the other. PHP and Julia load their modules so.
//
// They jump to libc's: the loader looks at the return address, for the run path of the module that
// called. Any thread.
#include <dlfcn.h>

#include "preload/next.hpp"

#define TIERMEM_INTERPOSED __attribute__((visibility("default")))

namespace {

using Open = void* (*)(const char*, int);
using OpenIn = void* (*)(Lmid_t, const char*, int);

}  // namespace

extern "C" {

// Read by the assembly below. Null before the first call.
__attribute__((visibility("hidden"))) constinit Open tiermem_next_dlopen = nullptr;
__attribute__((visibility("hidden"))) constinit OpenIn tiermem_next_dlmopen = nullptr;

__attribute__((visibility("hidden"), used)) void tiermem_find_loader() {
  tiermem_next_dlmopen = tiermem::preload::next<OpenIn>("dlmopen");
  tiermem_next_dlopen = tiermem::preload::next<Open>("dlopen");
}

#if defined(__x86_64__)

asm(R"(
    .text
    .p2align 4
    .globl dlopen
    .type dlopen, @function
dlopen:
    .cfi_startproc
    endbr64
    andl $-9, %esi
    movq tiermem_next_dlopen(%rip), %rax
    testq %rax, %rax
    jne 1f
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call tiermem_find_loader
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    movq tiermem_next_dlopen(%rip), %rax
1:  jmp *%rax
    .cfi_endproc
    .size dlopen, .-dlopen
    .p2align 4
    .globl dlmopen
    .type dlmopen, @function
dlmopen:
    .cfi_startproc
    endbr64
    andl $-9, %edx
    movq tiermem_next_dlmopen(%rip), %rax
    testq %rax, %rax
    jne 1f
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    pushq %rdx
    .cfi_adjust_cfa_offset 8
    call tiermem_find_loader
    popq %rdx
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    movq tiermem_next_dlmopen(%rip), %rax
1:  jmp *%rax
    .cfi_endproc
    .size dlmopen, .-dlmopen
)");
static_assert(RTLD_DEEPBIND == 8, "the assembly has the number");

#else

// Calls in the last place: the compiler makes jumps of them.
TIERMEM_INTERPOSED void* dlopen(const char* file, int mode) noexcept {
  if (tiermem_next_dlopen == nullptr) {
    tiermem_find_loader();
  }
  return tiermem_next_dlopen(file, mode & ~RTLD_DEEPBIND);
}
TIERMEM_INTERPOSED void* dlmopen(Lmid_t space, const char* file, int mode) noexcept {
  if (tiermem_next_dlmopen == nullptr) {
    tiermem_find_loader();
  }
  return tiermem_next_dlmopen(space, file, mode & ~RTLD_DEEPBIND);
}

#endif

}  // extern "C"
