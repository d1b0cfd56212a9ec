// dlopen and dlmopen without RTLD_DEEPBIND. With that flag a module would find libc's malloc before
// ours, and would free a block of one with the other. PHP and Julia load their modules this way.
//
// Both jump to libc's functions, because the loader uses the return address to find the run path of
// the calling module. Any thread.
#include <dlfcn.h>

#include "preload/next.hpp"

#define TIERMEM_INTERPOSED __attribute__((visibility("default")))

namespace {

using Open = void* (*)(const char*, int);
using OpenIn = void* (*)(Lmid_t, const char*, int);

}  // namespace

extern "C" {

// The assembly below reads these. Null before the first call.
__attribute__((visibility("hidden"))) constinit Open tiermem_next_dlopen = nullptr;
__attribute__((visibility("hidden"))) constinit OpenIn tiermem_next_dlmopen = nullptr;

__attribute__((visibility("hidden"), used)) void tiermem_find_loader() {
  tiermem_next_dlmopen = tiermem::preload::next<OpenIn>("dlmopen");
  tiermem_next_dlopen = tiermem::preload::next<Open>("dlopen");
}

#if defined(__x86_64__)

// `flags` is the register with the flags. All three arguments survive the first call.
#define TIERMEM_WITHOUT_DEEPBIND(name, flags) \
  asm(".text\n"                               \
      ".p2align 4\n"                          \
      ".globl " #name                         \
      "\n"                                    \
      ".type " #name ", @function\n" #name    \
      ":\n"                                   \
      ".cfi_startproc\n"                      \
      "endbr64\n"                             \
      "andl $-9, %" #flags                    \
      "\n"                                    \
      "movq tiermem_next_" #name              \
      "(%rip), %rax\n"                        \
      "testq %rax, %rax\n"                    \
      "jne 1f\n"                              \
      "pushq %rdi\n"                          \
      ".cfi_adjust_cfa_offset 8\n"            \
      "pushq %rsi\n"                          \
      ".cfi_adjust_cfa_offset 8\n"            \
      "pushq %rdx\n"                          \
      ".cfi_adjust_cfa_offset 8\n"            \
      "call tiermem_find_loader\n"            \
      "popq %rdx\n"                           \
      ".cfi_adjust_cfa_offset -8\n"           \
      "popq %rsi\n"                           \
      ".cfi_adjust_cfa_offset -8\n"           \
      "popq %rdi\n"                           \
      ".cfi_adjust_cfa_offset -8\n"           \
      "movq tiermem_next_" #name              \
      "(%rip), %rax\n"                        \
      "1: jmp *%rax\n"                        \
      ".cfi_endproc\n"                        \
      ".size " #name ", .-" #name "\n")

TIERMEM_WITHOUT_DEEPBIND(dlopen, esi);
TIERMEM_WITHOUT_DEEPBIND(dlmopen, edx);
static_assert(RTLD_DEEPBIND == 8, "the assembly has the number");

#else

// Tail calls: the compiler turns them into jumps.
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
