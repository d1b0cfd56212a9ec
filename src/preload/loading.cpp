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

// `flags`: the register that has them. All three arguments are kept around the first call.
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
