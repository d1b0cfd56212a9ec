// Mappings of tiermem's own that the preload library must leave to the kernel. A program under
// `tiermem run` may have a context of its own, and its memory must not be tiered twice: the kernel
// registers no range with two userfaultfds.
#pragma once

#include <sys/mman.h>

namespace tiermem {

/// A flag of mmap() that the kernel ignores, and that programs do not use for anonymous memory.
inline constexpr int kLeaveToKernel = MAP_DENYWRITE;

}  // namespace tiermem
