/**
 * @file tiermem_preload.h
 * The interface between a CUDA program and the preload library that it runs under (`tiermem run
 * --gpu 0`). The program can move a part of its device memory off the device, and later bring it
 * back to the same addresses. C11 and C++.
 *
 * Link no library. The functions are weak, and null without the library. Compile
 * position-independent code, which is the default of compilers, and test before a call:
 *
 * @code
 * if (tiermem_gpu_pause) { tiermem_gpu_pause("weights", 0, 0); }
 * @endcode
 *
 * - Result: each function returns 0 or a code of `tm_status` (tiermem.h). After a failure
 *   tiermem_gpu_error() returns the message.
 * - Threads: any thread may call them, except while a stream is being captured, and except from a
 *   host function of a stream.
 *
 * The addresses of a paused set stay reserved, and neither a kernel nor a copy may use them: the
 * device faults, as on freed memory. The program may free paused memory.
 */
#ifndef TIERMEM_PRELOAD_H
#define TIERMEM_PRELOAD_H

#include <stdint.h>

#define TIERMEM_PRELOADED __attribute__((weak, visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/** A flag: start the move and return; tiermem_gpu_wait() waits for its end. */
#define TIERMEM_GPU_ASYNC 1u

/**
 * Sets the set for device memory that the calling thread allocates from now on.
 *
 * - `tag`: name of the set, up to 31 characters. Null or "" means no set.
 */
TIERMEM_PRELOADED int tiermem_gpu_tag(const char* tag);

/**
 * Moves a set off its devices, and returns its memory to the driver for other allocations. Waits
 * until the devices have finished all work they were given so far.
 *
 * - `tag`: name of the set. Null means all tiered memory; "" means the memory of no set.
 * - `bytes`: 0 means the whole set. Otherwise the blocks allocated first, until they hold `bytes`
 *   bytes.
 * - `flags`: 0 or #TIERMEM_GPU_ASYNC.
 * - Errors:
 *   - invalid_argument: the set has no memory.
 *   - busy: a part of the set is already moving.
 *   - no_capacity or io_error: some bytes could not leave; they count as paused, and are resumed
 *     like the rest.
 */
TIERMEM_PRELOADED int tiermem_gpu_pause(const char* tag, uint64_t bytes, uint32_t flags);

/**
 * Moves a set back to its addresses: all of it or nothing.
 *
 * - `tag`, `bytes`, `flags`: as for tiermem_gpu_pause().
 * - Errors: no_capacity: the device has no room for the set.
 */
TIERMEM_PRELOADED int tiermem_gpu_resume(const char* tag, uint64_t bytes, uint32_t flags);

/**
 * Waits for the moves of this set that #TIERMEM_GPU_ASYNC started, and returns their first failure.
 *
 * - `tag`: name of the set. Null means any set.
 */
TIERMEM_PRELOADED int tiermem_gpu_wait(const char* tag);

/**
 * Returns why the calling thread's last call of these functions failed, or "" if none has failed.
 */
TIERMEM_PRELOADED const char* tiermem_gpu_error(void);

#ifdef __cplusplus
}
#endif

#endif
