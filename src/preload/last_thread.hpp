// The end of a process after that of its first thread. libc ends the process with its last thread,
// but would count those of tiermem, too.
#pragma once

namespace tiermem::preload {

/// Watches for the end of the calling thread, the first of its process. After it, the process exits
/// with status 0 when no thread except tiermem's is left, as without tiermem. Call it in each
/// process.
void watch_first_thread() noexcept;

}  // namespace tiermem::preload
