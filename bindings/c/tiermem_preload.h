/**
 * @file tiermem_preload.h
 * What a CUDA program may ask of the preload library that it runs under (`tiermem run --gpu 0`): to
 * take the device memory of a part of it away for a while, and to bring it back to where it was.
 * C11 and C++.
 *
 * Nothing is linked: the functions are weak, and null where the library is not there. Compile as
 * position-independent code, as compilers do by default, and ask first:
 *
 * @code
 * if (tiermem_gpu_pause) { tiermem_gpu_pause("weights", 0, 0); }
 * @endcode
 *
 * Each returns 0, or one of the numbers of `tm_status` (tiermem.h), and then tiermem_gpu_error()
 * has the sentence. They may be called from any thread; not while a stream is being captured, and
 * not in a host function of a stream.
 *
 * While a set is paused its addresses stay reserved, and nothing may use them, neither a kernel nor
 * a copy: the device faults, as on memory that was freed. To free paused memory is allowed.
 */
#ifndef TIERMEM_PRELOAD_H
#define TIERMEM_PRELOAD_H

#include <stdint.h>

#define TIERMEM_PRELOADED __attribute__((weak, visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/** A flag: begin, and let tiermem_gpu_wait() wait. */
#define TIERMEM_GPU_ASYNC 1u

/**
 * Device memory that the calling thread allocates from now on is of the set of this name, of 31
 * characters at most. Null or "": of none.
 */
TIERMEM_PRELOADED int tiermem_gpu_tag(const char* tag);

/**
 * Moves a set out of the devices: their memory is the driver's again, for whoever allocates next.
 * Waits until the devices have done what they were given so far. `tag` null: all memory that is
 * tiered; "": what is of no set. `bytes` above 0: only the blocks first allocated that hold so
 * much. invalid_argument for a set that has no memory; busy while a part of it is on its way; what
 * could not leave is no_capacity or io_error, and counts as paused: it is resumed as the rest.
 */
TIERMEM_PRELOADED int tiermem_gpu_pause(const char* tag, uint64_t bytes, uint32_t flags);

/**
 * Moves a set back, to the addresses where it was. `tag` and `bytes` as above. All of it or
 * nothing: no_capacity where the device has no room for it.
 */
TIERMEM_PRELOADED int tiermem_gpu_resume(const char* tag, uint64_t bytes, uint32_t flags);

/**
 * Waits for what was begun with #TIERMEM_GPU_ASYNC for this set; null: for any. The first failure
 * among them.
 */
TIERMEM_PRELOADED int tiermem_gpu_wait(const char* tag);

/** Why the calling thread's last call of these failed; "" where none has. */
TIERMEM_PRELOADED const char* tiermem_gpu_error(void);

#ifdef __cplusplus
}
#endif

#endif
