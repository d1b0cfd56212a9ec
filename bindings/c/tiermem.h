/**
 * @file tiermem.h
 * The C interface of tiermem: buffers larger than any one memory. C11 and C++.
 *
 * Rules that hold for every function, unless its own text says otherwise:
 *
 * - It returns a ::tm_status: #TM_OK (0), or a code that says what to do next. tm_error() has the
 *   sentence.
 * - It may be called from any thread, and from several at once with the same context.
 * - Results leave through the last pointer, which is untouched on failure.
 * - Pointers that go in are read during the call only; strings are copied.
 * - Buffers, views and operations belong to the context that gave them out. Every other context
 *   refuses them, and the sentence says so: #TM_STALE_HANDLE for a buffer, #TM_INVALID_ARGUMENT for
 * a view, an operation or a pointer of tm_malloc().
 * - A context that has ended answers #TM_SHUT_DOWN; its pointer stays valid for that.
 * - A thread is not cancelled (pthread_cancel) inside of a call, but after it. Asynchronous
 *   cancellation must be off.
 * - Sizes, offsets and lengths are bytes. Times are nanoseconds. A timeout below 0 waits for ever,
 *   0 takes what is there now.
 * - #TM_INVALID_ARGUMENT answers a null context, a null result pointer, or a null list with n > 0.
 *
 * ::tm_access, ::tm_view and ::tm_rows never change. Structs that begin with `size` grow: set
 * `size` to `sizeof` of the struct you compiled with. A smaller (older) options struct means
 * defaults for what is missing; a larger (newer) one is accepted if all that this library does not
 * know is 0. Information structs are filled as far as both sides know them, and with 0 from there
 * on.
 */
#ifndef TIERMEM_H
#define TIERMEM_H

#include <stddef.h>
#include <stdint.h>

#ifndef TIERMEM_API
#define TIERMEM_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** The version of this header, as tm_version() tells that of the library. */
#define TM_VERSION_MAJOR 0
#define TM_VERSION_MINOR 1 /**< Before 1.0, a new minor version may break what was there. */
#define TM_VERSION_PATCH 0 /**< Corrections only. */
/** One number that grows from version to version. */
#define TM_VERSION ((TM_VERSION_MAJOR << 16) | (TM_VERSION_MINOR << 8) | TM_VERSION_PATCH)

/* ---- Status ---------------------------------------------------------------------------------- */

/** What happened, by what to do about it: one of the codes that begin with #TM_OK. */
typedef int32_t tm_status;

enum {
  TM_OK = 0,           /**< Done. */
  TM_INVALID_ARGUMENT, /**< Fix the call. */
  TM_STALE_HANDLE,     /**< The buffer was freed, or the handle was never one. */
  TM_NO_CAPACITY, /**< Free, release or wait; tm_error() names the tier, its budget, a holder. */
  TM_BUSY,        /**< Try again: pinned, under way, or would have to wait with a timeout of 0. */
  TM_TIMED_OUT,   /**< The time given was not enough. */
  TM_CANCELLED,   /**< The operation was cancelled by its owner. */
  TM_UNSUPPORTED, /**< This version has no such thing: choose another tier or option. */
  TM_UNAVAILABLE, /**< No driver, no device, no permission, or no such tier in this context. */
  TM_IO_ERROR,    /**< A device refused; the bytes are where they were. */
  TM_DISCARDED,   /**< A droppable buffer's bytes were dropped: recompute them. */
  TM_LOST,        /**< The bytes are gone, and that is an error. */
  TM_SHUT_DOWN,   /**< The context is closing, closed, or belongs to the parent process. */
  TM_INTERNAL     /**< A defect of tiermem. */
};

/* ---- Handles and records --------------------------------------------------------------------- */

/** One set of tiers with the thread that moves bytes between them. Opaque. */
typedef struct tm_context tm_context;
/** A buffer: index and generation, so that a freed one is an error and never a wild pointer. 0 is
 *  never a buffer. */
typedef uint64_t tm_buffer;
/** An operation under way, of the context that gave it out. 0 is never an operation. */
typedef uint64_t tm_op;

/** A tier by kind and number. {#TM_ANY, 0}: tiermem chooses. */
typedef struct tm_place {
  uint16_t kind;  /**< #TM_ANY to #TM_REMOTE. */
  uint16_t index; /**< Which one of its kind, from 0. */
} tm_place;

enum {
  TM_ANY = 0, /**< tiermem chooses. */
  TM_HOST,    /**< Any memory that the CPU addresses. */
  TM_DRAM,    /**< The DRAM tier. */
  TM_NUMA,    /**< Another NUMA node, or a CXL expander. Not in this version. */
  TM_PMEM,    /**< Persistent memory. Not in this version. */
  TM_GPU,     /**< A GPU's memory: views there are device addresses. */
  TM_BLOCK,   /**< Files and raw devices. */
  TM_REMOTE   /**< An object store. Not in this version. */
};

/** Whose order of work an acquire or a release follows: the calling thread's, #TM_HOST_ORDER, or
 *  that of a CUDA stream, in a context with a GPU (#TM_CAN_CUDA_STREAM). */
typedef struct tm_stream {
  uint32_t kind;     /**< #TM_STREAM_HOST or #TM_STREAM_CUDA. */
  uint32_t reserved; /**< 0. */
  void* handle;      /**< The CUDA stream; NULL is the legacy default stream, not "none". With
                          #TM_STREAM_HOST: NULL. */
} tm_stream;

enum {
  TM_STREAM_HOST = 0, /**< The calling thread. */
  TM_STREAM_CUDA = 1  /**< A CUDA stream, of the primary context of a GPU of the context. */
};

/** The order of the calling thread. */
#ifdef __cplusplus
#define TM_HOST_ORDER (tm_stream{0, 0, nullptr})
#else
#define TM_HOST_ORDER ((tm_stream){0})
#endif

/** One range of one buffer. 40 bytes, for ever. */
typedef struct tm_access {
  tm_buffer buffer;  /**< A live buffer of the context. */
  uint64_t offset;   /**< First byte, in the buffer. */
  uint64_t length;   /**< Bytes; 0: to the end of the buffer. */
  uint32_t mode;     /**< #TM_READ, #TM_WRITE, #TM_DISCARD, or several of them. */
  tm_place where;    /**< Where the pointer must be usable. All 0: on the host. */
  uint64_t reserved; /**< 0. */
} tm_access;

enum {
  TM_READ = 1,   /**< The bytes are read. */
  TM_WRITE = 2,  /**< The bytes are read and written. */
  TM_DISCARD = 4 /**< All bytes will be overwritten before the release, so they need not be read
                      from below. Until then the view shows zeros or older bytes of the context. */
};

/** A pinned range: its bytes do not move until tm_release(), by whichever thread. 40 bytes, for
 *  ever. */
typedef struct tm_view {
  void* data;        /**< Address of the range's first byte. */
  uint64_t length;   /**< Bytes that may be touched from there. */
  uint64_t token[2]; /**< tiermem's own. Copy the record whole, and release it once. */
  tm_place place;    /**< Where the bytes are. */
  uint32_t flags;    /**< 0 in this version. */
} tm_view;

/** Hints for tm_advise() and tm_alloc(), in the words of madvise and CUDA. */
enum {
  TM_ADVICE_NORMAL = 0, /**< No hint. */
  TM_READ_MOSTLY,       /**< Rarely written. */
  TM_WILL_NEED,         /**< As tm_prefetch(), without an operation. */
  TM_DONT_NEED,  /**< The bytes are not needed any more: the range reads as zeros afterwards. */
  TM_COLD,       /**< First victims. */
  TM_SEQUENTIAL, /**< Used in order. */
  TM_RANDOM,     /**< Used in no order. At allocation: a checksum for each 4 KiB in block tiers (0.4 %
                      of the bytes there), so that tm_gather() reads no more for a row. */
  TM_STREAMED,   /**< Used once, then first victim. */
  TM_TOUCHED,    /**< Used without a view: counts as a use, does nothing else. */
  TM_FROZEN,     /**< Will not be written again: written behind now, so that eviction is free. */
  TM_PREFERRED,  /**< Stays where it is if it can. */
  TM_KEEP,       /**< value 1: not a victim while anything else is; value 0: as any other. */
  TM_NEXT_USE    /**< value: the tm_tick() ordinal of the next use. */
};

/* ---- Context --------------------------------------------------------------------------------- */

/** Options of tm_context_create(). */
typedef struct tm_context_options {
  size_t size;       /**< sizeof(tm_context_options). */
  const char* toml;  /**< Path of a TOML file, or NULL; what the spec string names wins over it. */
  const char* name;  /**< Shown in messages, or NULL. */
  uint32_t flags;    /**< 0. */
  uint32_t reserved; /**< 0. */
} tm_context_options;

enum {
  TM_DESTROY_FORCE = 1 /**< tm_context_destroy(): also while views are held. */
};

/**
 * Makes a context. `tiers` is a spec string such as "dram=4G; nvme=/data/a:100G"; NULL or "": the
 * environment (`TIERMEM_TIERS`), else what the machine offers. `options` may be NULL. The caller
 * owns the context and ends it with tm_context_destroy(), or shares it: tm_context_retain().
 *
 * Errors: #TM_INVALID_ARGUMENT naming option, value and what is accepted; #TM_UNSUPPORTED for a
 * kind of tier that this build lacks; #TM_IO_ERROR or #TM_UNAVAILABLE for a file, a directory or a
 * mechanism that was asked for and cannot be used; #TM_NO_CAPACITY.
 */
TIERMEM_API tm_status tm_context_create(const char* tiers, const tm_context_options* options,
                                        tm_context** out);

/**
 * Ends a context and all its buffers. #TM_OK: it has ended. Other threads may be inside of calls
 * with it, or begin some: from now on each call with it, tm_free() and tm_release() included,
 * answers #TM_SHUT_DOWN. Pointers to bytes of the context are invalid. After any other answer it
 * still exists, and the call may be repeated.
 *
 * While views are held it refuses with #TM_BUSY and lists label, holder and age of them.
 * With #TM_DESTROY_FORCE it goes on: their pointers are invalid at once. Requests that wait end
 * with #TM_SHUT_DOWN; transfers under way get `timeout_ns` to end, else #TM_TIMED_OUT: the context
 * is then closed, and a second call ends it.
 *
 * It gives the reference of tm_context_create() back, and ends the context whether there are others
 * or not. Errors: #TM_SHUT_DOWN for a context that has ended.
 */
TIERMEM_API tm_status tm_context_destroy(tm_context* context, uint32_t flags, int64_t timeout_ns);

/**
 * Takes one more reference to a context, for one more owner: a context has one from
 * tm_context_create(). Errors: #TM_SHUT_DOWN for a context that has ended.
 */
TIERMEM_API tm_status tm_context_retain(tm_context* context);

/**
 * Gives one reference back. With the last one the context ends, as by tm_context_destroy() with
 * #TM_DESTROY_FORCE and 10 seconds. References that are left when a context is destroyed may be
 * given back later. Errors: #TM_SHUT_DOWN when all were given back.
 */
TIERMEM_API tm_status tm_context_release(tm_context* context);

/**
 * Changes the budget of a tier, {#TM_DRAM, 0} or {#TM_BLOCK, 0}. Shrinking DRAM evicts, and waits
 * for it; if it cannot be met in time, the old budget stays. Errors: #TM_NO_CAPACITY if pinned
 * bytes are in the way, naming a holder; #TM_UNAVAILABLE if the context has no such tier.
 */
TIERMEM_API tm_status tm_set_budget(tm_context* context, tm_place tier, uint64_t bytes,
                                    int64_t timeout_ns);

enum {
  TM_TICK_OP = 0,  /**< One operation of the program, such as a layer. */
  TM_TICK_STEP = 1 /**< One step, such as a token or a training step. */
};

/** Marks an operation or a step of the program. `out_ordinal`, which may be NULL, gets its number,
 *  counted from 1: what #TM_NEXT_USE and tm_prefetch() refer to. */
TIERMEM_API tm_status tm_tick(tm_context* context, uint32_t kind, uint64_t* out_ordinal);

/* ---- Buffers --------------------------------------------------------------------------------- */

/** Options of tm_alloc(), tm_adopt_file() and tm_adopt_device(). */
typedef struct tm_buffer_options {
  size_t size;           /**< sizeof(tm_buffer_options). */
  uint64_t extent_bytes; /**< What moves as one: a power of two, 4 KiB to 64 MiB; 0: chosen. */
  uint64_t alignment;    /**< Of view addresses: a power of two up to the extent; 0: 4096. */
  uint32_t flags;        /**< #TM_MAPPED, #TM_DROPPABLE, #TM_NO_CHECKSUM, #TM_ISOLATED, #TM_PRIVATE. */
  uint32_t advice;       /**< A hint for the whole buffer; #TM_ADVICE_NORMAL: none. */
  tm_place preferred;    /**< Where it should live if it can; all 0: anywhere. */
  const char* label;     /**< Named in errors, or NULL; at most 31 characters are kept. */
} tm_buffer_options;

enum {
  TM_MAPPED = 1,    /**< An address that never changes, tm_address(), touched without views. */
  TM_DROPPABLE = 2, /**< Dropped where it must leave memory and no block tier takes it; reading it
                       is #TM_DISCARDED then, until it is overwritten with #TM_DISCARD. */
  TM_KEEP_ON_FREE = 4, /**< For named buffers. Not in this version. */
  TM_NO_CHECKSUM = 8,  /**< Its bytes in block tiers carry no checksums. */
  TM_ISOLATED = 16,    /**< Memory that held its bytes is cleared before other buffers see it. */
  TM_PRIVATE = 32      /**< Of tm_adopt_file(): views may write. What they write is the buffer's own;
                          the file is never written. */
};

/**
 * Makes a buffer of `bytes`, which reads as zeros and costs no memory until it is touched.
 * `options` may be NULL. The caller owns the buffer and ends it with tm_free(), or with the
 * context.
 *
 * Errors: #TM_INVALID_ARGUMENT; #TM_UNSUPPORTED for a flag and #TM_UNAVAILABLE for a place that
 * this version or this context lacks, named in the sentence; #TM_NO_CAPACITY when handles or
 * address space are used up.
 */
TIERMEM_API tm_status tm_alloc(tm_context* context, uint64_t bytes,
                               const tm_buffer_options* options, tm_buffer* out);

/**
 * Makes a read-only buffer whose cold copy is the file itself, from `offset` on; `length` 0: to its
 * end. Evicting it writes nothing. A store through one of its views on the host is SIGSEGV, with a
 * sentence in the log or on standard error; with #TM_PRIVATE views may write. The file must not
 * change while the buffer lives. Each read compares its size, its modification time, and the bytes
 * that were read before; a change is #TM_IO_ERROR. Another name, mode, owner or access time is no
 * change, nor is a deletion.
 *
 * Errors: #TM_INVALID_ARGUMENT for a path that is no file, or a range that is not in it;
 * #TM_IO_ERROR with errno for a file that cannot be used; as tm_alloc() for the options.
 */
TIERMEM_API tm_status tm_adopt_file(tm_context* context, const char* path, uint64_t offset,
                                    uint64_t length, const tm_buffer_options* options,
                                    tm_buffer* out);

/**
 * Makes a buffer with the bytes of device memory that the program has, of any size: copied on the
 * device `gpu`, piece by piece, and moved on as any buffer's where there is more than its budget.
 * `memory` is an address of the device's and stays its owner's, who may free or change it once
 * the stream `after` has come here; with #TM_HOST_ORDER the device must be done with it, and the
 * copies have ended on return. Waits for room at most so long (-1: for ever), which may be for pieces that the
 * stream is still to copy.
 *
 * Errors: #TM_INVALID_ARGUMENT for memory that is not that GPU's, from first to last byte;
 * #TM_UNAVAILABLE for a GPU that the context has not, or that is lost; those of tm_alloc() and, on
 * the GPU and for the stream, of tm_acquire(). Then there is no buffer, and what the stream was
 * given to copy is of no use to anybody.
 */
TIERMEM_API tm_status tm_adopt_device(tm_context* context, tm_place gpu, const void* memory,
                                      uint64_t bytes, tm_stream after, int64_t timeout_ns,
                                      const tm_buffer_options* options, tm_buffer* out);

/** The handle is stale at once; the bytes live until the last view and transfer end.
 *  Errors: #TM_STALE_HANDLE. */
TIERMEM_API tm_status tm_free(tm_context* context, tm_buffer buffer);

/** Where a buffer's bytes are, as mincore tells. In bytes of whole extents; an extent counts once
 *  for every copy. */
typedef struct tm_residency {
  size_t size;           /**< sizeof(tm_residency). */
  uint64_t bytes;        /**< Length of the buffer. */
  uint64_t extent_bytes; /**< Size of an extent. */
  uint64_t extents;      /**< How many. */
  uint64_t resident;     /**< Addressable on the host. */
  uint64_t dirty;        /**< Of these, not yet in any block tier. */
  uint64_t in_slots;     /**< Newest bytes in a block tier. */
  uint64_t zero;         /**< Never written. */
  uint64_t pinned;       /**< Held by views. */
  uint64_t lost;         /**< Gone: reading them is #TM_LOST. */
  char label[32];        /**< As given at allocation, terminated. */
} tm_residency;

/** Fills `out` for a buffer, as it is at one moment. Errors: #TM_STALE_HANDLE. */
TIERMEM_API tm_status tm_buffer_info(tm_context* context, tm_buffer buffer, tm_residency* out);

/**
 * Where a buffer with #TM_MAPPED is: byte 0 of all of it, for its whole life. It is touched without
 * views, from any thread; a touch of bytes that are elsewhere waits until they have come. System
 * calls on such bytes work where userfaultfd may serve the faults of the kernel (`tiermem topo`),
 * and get EFAULT elsewhere. Without userfaultfd a touch of absent bytes is SIGSEGV, which the library
 * handles: a handler that the program sets later must call the one it found, and no thread may block
 * the signal. What cannot be brought is SIGBUS, with the reason in the log (option
 * `log`). With the option `fork=follow` a child of fork has the same buffers at the same addresses,
 * with the bytes as of the fork, and parent and child go on apart; else, or where it could not
 * follow, its touch is SIGSEGV. Bytes are given up with #TM_DONT_NEED: the program's own
 * MADV_DONTNEED may be missed where a page leaves at that moment.
 *
 * Errors: #TM_STALE_HANDLE; #TM_UNSUPPORTED for a buffer without #TM_MAPPED.
 */
TIERMEM_API tm_status tm_address(tm_context* context, tm_buffer buffer, void** out);

/**
 * Where a buffer is in the memory of the GPU `where`: byte 0 of all of it, a device address, for the
 * rest of its life. Every view of it there that is acquired from now on is at this address and its
 * offset; bytes that no view holds may be elsewhere, and the device must not touch them. Reserves
 * the addresses, and no memory. A view of several extents does the same by itself.
 *
 * Errors: #TM_STALE_HANDLE; #TM_UNAVAILABLE where the context has no such GPU; #TM_NO_CAPACITY where
 * the driver has no room for the addresses; #TM_UNSUPPORTED for a buffer with #TM_MAPPED, for
 * extents below 2 MiB, and for a place that is no GPU.
 */
TIERMEM_API tm_status tm_address_on(tm_context* context, tm_buffer buffer, tm_place where,
                                    void** out);

/** Copies bytes of a buffer to `to`, by the calling thread, extent by extent: not one atomic
 *  snapshot. On failure some bytes of `to` may have been written. Errors: as tm_acquire();
 *  #TM_INVALID_ARGUMENT where `to` is memory of the range itself, as a view has it. */
TIERMEM_API tm_status tm_read(tm_context* context, tm_buffer buffer, uint64_t offset, void* to,
                              uint64_t length, int64_t timeout_ns);

/** Copies `from` to a buffer, as tm_read() does the other way. On failure some bytes of the range
 *  may have been written. Errors: as tm_read(), of `from`. */
TIERMEM_API tm_status tm_write(tm_context* context, tm_buffer buffer, uint64_t offset,
                               const void* from, uint64_t length, int64_t timeout_ns);

/* ---- Small objects ---------------------------------------------------------------------------- */

/**
 * An object by pointer: `*out` gets the address of at least `bytes` of memory, with whatever is in
 * it, at a multiple of 16. 0 bytes are a pointer of its own, which can be freed. It is valid for
 * any thread until tm_free_ptr(), or until the context ends.
 *
 * `place` {#TM_DRAM, 0} or {#TM_HOST, 0}: it stays in DRAM, as if a view held it. {#TM_ANY, 0}: it
 * is memory of mapped buffers, so there may be more of it than DRAM, and what tm_address() says of
 * a touch holds; where there are no mapped buffers (#TM_CAN_MAP) it stays in DRAM. All of it is
 * charged to the budgets; for room in DRAM it waits a second at most, more where much must leave.
 * In a child of fork the pointers are valid with the option `fork=follow` only, which has
 * {#TM_ANY, 0} only.
 *
 * {#TM_GPU, 0}: device memory, as cudaMalloc gives it: a device address that never changes, at a
 * multiple of 2 MiB, whose bytes stay on the device but while tm_gpu_pause() has them elsewhere. It
 * is of the set that tm_gpu_tag() named last in the calling thread. Other bytes that are on the
 * device make room for it: for those that views hold it waits ten seconds at most, more where much
 * must leave.
 *
 * Errors: #TM_INVALID_ARGUMENT above 2^47 bytes; #TM_UNSUPPORTED for a place that the processor
 * does not address, or that cannot follow a fork; #TM_UNAVAILABLE for one that the context lacks;
 * #TM_NO_CAPACITY.
 */
TIERMEM_API tm_status tm_malloc(tm_context* context, tm_place place, uint64_t bytes, void** out);

/** Frees what tm_malloc() of the same context gave, from any thread; NULL is accepted. A GPU must be
 *  done with memory of its own: see tm_free_ptr_after(). Errors:
 *  #TM_INVALID_ARGUMENT, naming the address, for any other pointer and for one that was freed. What
 *  was given out again in between is the new owner's, and is freed. */
TIERMEM_API tm_status tm_free_ptr(tm_context* context, void* pointer);

/** As tm_free_ptr(), of memory of a GPU, once the stream has done all that it was given so far.
 *  Nobody waits. Errors besides: those that tm_acquire() names for a stream; then it is not freed. */
TIERMEM_API tm_status tm_free_ptr_after(tm_context* context, void* pointer, tm_stream after);

/** Bytes that may be used from `pointer` on: what was asked for, or more. Errors: as tm_free_ptr();
 *  NULL is #TM_INVALID_ARGUMENT. */
TIERMEM_API tm_status tm_usable_size(tm_context* context, const void* pointer, uint64_t* out);

/* ---- Sets of device memory ---------------------------------------------------------------------- */

/** The set to which belongs what the calling thread asks of tm_malloc() on GPUs from now on, in any
 *  context: a name, of which 31 characters are kept. NULL or "": none. Never fails. */
TIERMEM_API tm_status tm_gpu_tag(const char* tag);

/**
 * The memory of a set, of tm_malloc() on GPUs, leaves its device, to DRAM where that has room and
 * else to the block tier, and as much goes back to the driver. Its addresses stay its own: nothing
 * may be done there until tm_gpu_resume() has brought it back. `tag` NULL: of all sets; "": of
 * none. `bytes` 0: all of the set; else the blocks first allocated, until they hold so many.
 * `after`: once that CUDA stream has done all that it was given so far; with #TM_HOST_ORDER the
 * devices must be done with the memory. `out` NULL: waits for the end; else the operation completes
 * when all has left or could not, and must be ended with tm_op_wait().
 *
 * Errors: #TM_UNSUPPORTED without a GPU; #TM_INVALID_ARGUMENT naming the sets there are; #TM_BUSY
 * while a part of the set is on its way; for a stream those of tm_acquire(): then all is as before.
 * What could not leave is #TM_NO_CAPACITY or #TM_IO_ERROR; it counts as paused, and is resumed as
 * what could.
 */
TIERMEM_API tm_status tm_gpu_pause(tm_context* context, const char* tag, uint64_t bytes,
                                   tm_stream after, tm_op* out);

/**
 * What was paused comes back to where it was: all of the set, or the blocks first allocated until
 * they hold `bytes`; all of these or none. `out` as for tm_gpu_pause(). Errors: as there;
 * #TM_NO_CAPACITY, #TM_IO_ERROR or #TM_LOST where it cannot come: then it is paused as before.
 */
TIERMEM_API tm_status tm_gpu_resume(tm_context* context, const char* tag, uint64_t bytes,
                                    tm_op* out);

/* ---- Views ----------------------------------------------------------------------------------- */

/**
 * Pins all `n` ranges, 1 or more, or none: room for all is reserved before the first is pinned, so
 * two callers never wait for each other's half. `out` has room for `n` views, in the list's order.
 * Views are pins, not locks: several threads may hold the same bytes, as with plain memory. Ranges
 * of the list may overlap, in any modes: bytes that one discards and another reads are kept. `out`
 * must not overlap the list. Another thread may change the list during the call: the views are then
 * of the ranges as they were read, each checked against its buffer.
 *
 * With a CUDA stream the views are for what the stream is given from then on: it waits by itself
 * for copies to a GPU that are still under way. What the program's streams do with the same bytes
 * among themselves is the program's to order.
 *
 * Errors: #TM_INVALID_ARGUMENT, #TM_STALE_HANDLE; #TM_BUSY if the timeout is 0 and something must
 * be brought first; #TM_NO_CAPACITY or #TM_TIMED_OUT at the latest when the time is over;
 * #TM_UNSUPPORTED for a CUDA stream that is being captured, or in a context without a GPU, and
 * #TM_INVALID_ARGUMENT for one that is of no GPU of it; #TM_UNAVAILABLE for a place that it lacks;
 * #TM_IO_ERROR, #TM_DISCARDED, #TM_LOST, #TM_SHUT_DOWN.
 */
TIERMEM_API tm_status tm_acquire(tm_context* context, const tm_access* list, size_t n,
                                 tm_stream stream, int64_t timeout_ns, tm_view* out);

/**
 * As tm_acquire() without waiting. `out_views` must stay valid until the operation has completed;
 * its records are views only if the operation ended with #TM_OK, and the caller releases them. The
 * operation must be ended with tm_op_wait(). Errors of the call itself: #TM_INVALID_ARGUMENT,
 * #TM_STALE_HANDLE, #TM_UNSUPPORTED, #TM_UNAVAILABLE, #TM_SHUT_DOWN; #TM_BUSY when 65536 operations
 * have not been waited for.
 */
TIERMEM_API tm_status tm_acquire_async(tm_context* context, const tm_access* list, size_t n,
                                       tm_stream stream, tm_view* out_views, tm_op* out);

/**
 * Ends views, which any thread may do. Views that are held are released even when others of the
 * list are not: then the answer is #TM_INVALID_ARGUMENT, for a view that was released before or
 * never given out. A view that the list names twice is one of these.
 *
 * `after`, where it is a CUDA stream: the views are ended, and what they pin is moved, given up, or
 * read by others once the stream has done all that it was given so far. One event is recorded, and
 * nobody waits. Errors: those that tm_acquire() names for a stream, and of the driver's; then all
 * views are held as before.
 */
TIERMEM_API tm_status tm_release(tm_context* context, const tm_view* views, size_t n,
                                 tm_stream after);

/** For tm_prefetch(): needed soon, at no particular tick. */
#define TM_SOON 0

/**
 * Brings ranges to where they will be used, before they are asked for. `next_use`: the tm_tick()
 * ordinal at which they are needed, or #TM_SOON. Fails only for bad arguments; there may be no
 * room, and then nothing happens. `out` may be NULL; else the operation completes when the
 * ranges are resident or were given up, and must be ended with tm_op_wait().
 */
TIERMEM_API tm_status tm_prefetch(tm_context* context, const tm_access* list, size_t n,
                                  uint64_t next_use, tm_op* out);

/** Moves ranges to a tier, {#TM_DRAM, 0}, {#TM_HOST, 0} or {#TM_BLOCK, 0}, and waits for it.
 * Errors: as tm_acquire() upwards, as tm_evict() downwards; #TM_UNAVAILABLE for another tier. */
TIERMEM_API tm_status tm_migrate(tm_context* context, const tm_access* list, size_t n, tm_place to,
                                 int64_t timeout_ns);

/** Writes what is dirty down, gives the memory of the ranges up, and waits for it. Bytes outside a
 *  range go along when they share an extent with it. Ranges that are named twice are done once. Errors: #TM_BUSY for pinned bytes, which
 *  stay; #TM_NO_CAPACITY if there is no room below; #TM_IO_ERROR; #TM_TIMED_OUT. */
TIERMEM_API tm_status tm_evict(tm_context* context, const tm_access* list, size_t n,
                               int64_t timeout_ns);

/** Gives a hint for ranges: #TM_ADVICE_NORMAL to #TM_NEXT_USE. `value` is for those that say so,
 *  else 0. */
TIERMEM_API tm_status tm_advise(tm_context* context, const tm_access* list, size_t n,
                                uint32_t advice, uint64_t value);

/* ---- Rows ------------------------------------------------------------------------------------ */

/** Rows of one buffer: the i-th has `row_bytes` bytes from `offset + index[i] * stride` on. In
 * plain memory, and in another buffer, they lie one behind the other in the order of the list. They
 * may come twice, and may overlap. 48 bytes, for ever. */
typedef struct tm_rows {
  tm_buffer buffer;      /**< A live buffer of the context. */
  uint64_t offset;       /**< Of row 0, in the buffer. */
  uint64_t row_bytes;    /**< 1 to 64 KiB. */
  uint64_t stride;       /**< From a row to the next; 0: `row_bytes`. 1: `index` has offsets. */
  const uint64_t* index; /**< The list. */
  uint64_t count;        /**< Of the list; 0: nothing is done. */
} tm_rows;

/**
 * Copies rows to `to`, from memory where they are resident. Of all else only the blocks are read
 * that have rows in them, as many at once as the devices take; neighbours are read together. No
 * extent is brought up for it. A block is 4 KiB in buffers that were allocated with #TM_RANDOM, or
 * whose bytes carry no checksums; in others 64 KiB. Memory to read into is of the DRAM budget: 4
 * MiB at most, a sixteenth of it where that is less. Not one atomic snapshot.
 *
 * `out` NULL: waits for the end. Else a thread of the context does it, one such call after the
 * other: the list and `to` must stay valid until the operation has completed, be no memory of
 * buffers with #TM_MAPPED, and the operation must be ended with tm_op_wait(). The timeout counts
 * from the call on; with a timeout of 0 it is #TM_BUSY if not all rows are resident.
 *
 * Errors: #TM_INVALID_ARGUMENT naming the row, also for a row that overlaps `to` in a view or window
 * of the same buffer, and for a list that overlaps `to`; #TM_STALE_HANDLE; #TM_UNSUPPORTED for an operation
 * with the option fork=follow; #TM_NO_CAPACITY, #TM_TIMED_OUT, #TM_CANCELLED, #TM_IO_ERROR,
 * #TM_DISCARDED, #TM_LOST, #TM_SHUT_DOWN. A row that could not be had is named in the sentence.
 * After an error it is not said which rows have been copied.
 */
TIERMEM_API tm_status tm_gather(tm_context* context, const tm_rows* rows, void* to,
                                int64_t timeout_ns, tm_op* out);

/** As tm_gather(), into the buffer `to`, from `offset` on. `to` may be the buffer of the rows.
 *  Errors: as there, and #TM_INVALID_ARGUMENT for a range that is not inside the buffer, one that is
 *  read-only, and one that overlaps a row. */
TIERMEM_API tm_status tm_gather_into(tm_context* context, const tm_rows* rows, tm_buffer to,
                                     uint64_t offset, int64_t timeout_ns, tm_op* out);

/**
 * Overwrites rows by those at `from`, one behind the other in the order of the list; of rows that
 * come twice the last one stays. The extents they are in are brought up, each once, and written
 * back when they leave memory. `out` as for tm_gather(). Errors: as there, and
 * #TM_INVALID_ARGUMENT for a buffer that is read-only, and for a row that overlaps `from` or the
 * list. After an error it is not said which rows have been written.
 */
TIERMEM_API tm_status tm_scatter(tm_context* context, const tm_rows* rows, const void* from,
                                 int64_t timeout_ns, tm_op* out);

/* ---- Operations ------------------------------------------------------------------------------ */

/** Looks at an operation: #TM_BUSY while it is under way, else how it ended. It stays until
 *  tm_op_wait() consumes it. Errors: #TM_INVALID_ARGUMENT for what is no operation (any more). */
TIERMEM_API tm_status tm_op_poll(tm_context* context, tm_op op);

/**
 * Waits until all `n` operations have completed, and consumes them: their numbers mean nothing
 * afterwards. Answers how the first of the list that failed ended, else #TM_OK; tm_op_poll() and
 * tm_error() tell of each one before it is consumed.
 *
 * #TM_TIMED_OUT: not all have completed; none was consumed, and the same list can be waited for
 * again. #TM_BUSY, likewise: another thread waits for one of them. #TM_INVALID_ARGUMENT: one is no
 * operation (any more), and nothing was consumed.
 */
TIERMEM_API tm_status tm_op_wait(tm_context* context, const tm_op* ops, size_t n,
                                 int64_t timeout_ns);

/** A new descriptor for poll, epoll or io_uring, which the caller closes: readable once the
 *  operation has completed, also after it was consumed. How it ended is for tm_op_poll() and
 *  tm_op_wait() to say. Errors: #TM_INVALID_ARGUMENT for what is no operation (any more);
 *  #TM_NO_CAPACITY when the process may have no more descriptors. */
TIERMEM_API tm_status tm_op_fd(tm_context* context, tm_op op, int* out);

/** Asks an operation to end early; it then completes with #TM_CANCELLED unless it was faster, and
 *  must still be waited for. Errors: #TM_INVALID_ARGUMENT for what is no operation (any more). */
TIERMEM_API tm_status tm_op_cancel(tm_context* context, tm_op op);

/* ---- What went wrong, what there is ---------------------------------------------------------- */

/** Everything a stranger needs to act on an error. What does not apply is 0 or "". */
typedef struct tm_error_info {
  size_t size;         /**< sizeof(tm_error_info). */
  tm_status status;    /**< #TM_OK when there is no error to tell of. */
  int32_t native;      /**< errno, or the driver's code; 0 when there is none. */
  tm_place tier;       /**< Where it happened. */
  tm_buffer buffer;    /**< Whose bytes. */
  uint64_t offset;     /**< In the buffer, or on the device when `tier` is a block tier. */
  uint64_t needed;     /**< Bytes asked for. */
  uint64_t budget;     /**< Bytes the tier may use. */
  uint64_t used;       /**< Bytes it uses. */
  uint64_t pinned;     /**< Of these, bytes that cannot move. */
  const char* holder;  /**< Label of the buffer that holds most pinned bytes. Valid until this
                            thread's next call of any function but tm_status_name(). */
  const char* setting; /**< The option to change, as it is spelled. Valid as long as `holder`. */
  char text[256];      /**< One sentence for a person, terminated. */
} tm_error_info;

/**
 * `op` 0: this thread's last error, whichever context it came from; `context` may then be NULL. It
 * stays until the thread's next failure, as errno does. Else: how the operation ended (#TM_BUSY:
 * under way), which becomes this thread's last error if it failed; the operation is not consumed.
 *
 * Answers #TM_INVALID_ARGUMENT for a null `out`, a bad `size`, or what is no operation (any more);
 * this thread's last error then stays what it was.
 */
TIERMEM_API tm_status tm_error(tm_context* context, tm_op op, tm_error_info* out);

/** The name of a status without its prefix, such as "no_capacity"; "unknown" for other numbers.
 *  Never NULL; lives for ever. */
TIERMEM_API const char* tm_status_name(tm_status status);

/** The version of the library, as #TM_VERSION. */
TIERMEM_API uint32_t tm_version(void);

/** Counters since the context began. Bytes, unless the name says otherwise. */
typedef struct tm_counters {
  size_t size;                  /**< sizeof(tm_counters). */
  uint64_t dram_budget;         /**< What the DRAM tier may use. */
  uint64_t dram_used;           /**< What it uses. */
  uint64_t dram_pinned;         /**< Of this, held by views. */
  uint64_t block_budget;        /**< What the block tier may use; 0: there is none. */
  uint64_t block_used;          /**< What it uses. */
  uint64_t buffers;             /**< Live buffers. */
  uint64_t extents;             /**< Their extents. */
  uint64_t misses;              /**< Acquires that had to wait. */
  uint64_t promoted;            /**< Brought up because it was asked for. */
  uint64_t demoted;             /**< Written down. */
  uint64_t evicted_clean;       /**< Given up without a write. */
  uint64_t prefetched;          /**< Brought up before it was asked for. */
  uint64_t prefetched_unused;   /**< Of this, given up without a use. */
  uint64_t io_errors;           /**< Requests that a device refused. */
  uint64_t io_retries;          /**< Requests made again. */
  uint64_t checksum_errors;     /**< Reads that did not match their checksum. */
  uint64_t degraded_devices;    /**< Devices that get no writes for now. */
  uint64_t moved_by_uffd;       /**< Extents moved into windows by userfaultfd. */
  uint64_t moved_by_remap;      /**< By mremap. */
  uint64_t moved_in_place;      /**< Read where they are used. */
  uint64_t poisoned_touches;    /**< Touches of absent bytes without a view. */
  uint64_t steps;               /**< Steps of the thread that moves bytes. */
  uint64_t step_ns_p99;         /**< 99 of 100 steps took less, to 2 %. */
  uint64_t dropped;             /**< Of droppable buffers, given up to make room. */
  uint64_t faults;              /**< Touches of absent pages of mapped buffers. */
  uint64_t recalled;            /**< Mapped extents touched again while they left. */
  uint64_t withdrawals_refused; /**< Mapped extents that stayed: pages locked for I/O. */
  uint64_t fault_wait_ns;       /**< What threads waited for `faults`, all threads together. */
  uint64_t placed_used;         /**< In live blocks of tm_malloc(). */
  uint64_t placed_held;         /**< In buffers that these are cut from. */
  uint64_t moved_by_copy;       /**< Extents, or parts of one, copied into windows. */
  uint64_t gpu_budget;          /**< What the tiers of all GPUs may use; 0: there is none. */
  uint64_t gpu_used;            /**< What they use. */
  uint64_t gpu_pinned;          /**< Of this, held by views. */
  uint64_t gpu_bytes_in;        /**< Copied to GPUs. */
  uint64_t gpu_bytes_out;       /**< Copied from GPUs. */
  uint64_t gpu_placed;          /**< In live blocks of tm_malloc() on GPUs. */
  uint64_t gpu_paused;          /**< Of this, not on its device: tm_gpu_pause(). */
  uint64_t gather_reads;        /**< Reads that tm_gather() gave to devices. */
  uint64_t gather_bytes;        /**< What these read; not in `promoted`. */
  uint64_t gpu_bytes_pageable;  /**< Of both: to and from DRAM that is not page-locked. */
  uint64_t gpu_bytes_staged;    /**< Of both: through the staging, as between device and disk. */
  uint64_t gpu_bytes_peer;      /**< Of both, so twice: straight between two GPUs. */
  uint64_t host_bytes_in;       /**< Came into the host's memory, from block tiers, files and GPUs. */
  uint64_t host_bytes_out;      /**< Left it for block tiers and GPUs. */
  uint64_t demanded;            /**< Bytes of the ranges, rows and touched pages that were asked for
                                     and were not there; what a prefetch brings is not in it. */
  uint64_t gpu_direct_in;       /**< Of `gpu_bytes_in`: from the block tier past the host's memory. */
  uint64_t gpu_direct_out;      /**< Of `gpu_bytes_out`: to the block tier, likewise. */
  uint64_t gpu_direct_errors;   /**< Such copies that failed, and went through the host instead. */
  uint64_t metadata_bytes;      /**< Memory of the records of extents that were used. Above the first
                                     MiB it is charged to the DRAM budget and is in `dram_used`. */
} tm_counters;

/** Fills `out` with the context's counters. */
TIERMEM_API tm_status tm_stats(tm_context* context, tm_counters* out);

/**
 * What tm_stats() has, by name, and what transfers did: one JSON object, docs/receipts.md. `last`: so
 * many of the newest receipts. `text` takes at most `room` bytes, the terminating zero included;
 * `out_length` is the length without it. With a null `text` only the length is told: ask for some
 * more, as it grows. Errors: #TM_NO_CAPACITY where `room` is too little.
 */
TIERMEM_API tm_status tm_stats_json(tm_context* context, uint32_t last, char* text, size_t room,
                                    size_t* out_length);

/** Where bytes are. */
enum {
  TM_STATE_ZERO = 0,     /**< Never written. */
  TM_STATE_RESIDENT = 1, /**< In the memory that `place` names. */
  TM_STATE_IN_SLOT = 2,  /**< In the block tier or an adopted file only. */
  TM_STATE_MOVING = 3,   /**< A transfer is under way. */
  TM_STATE_LOST = 4      /**< Gone: damaged on a device, or dropped. */
};

/** Why bytes moved. */
enum {
  TM_REASON_NONE = 0,     /**< They never did, or too long ago: option `receipts`. */
  TM_REASON_DEMAND = 1,   /**< Somebody waited for them. */
  TM_REASON_PREFETCH = 2, /**< Fetched before they were asked for. */
  TM_REASON_ROOM = 3,     /**< They made room for what somebody waited for. */
  TM_REASON_AHEAD = 4,    /**< They made room before anybody waited. */
  TM_REASON_ASKED = 5,    /**< tm_evict(), tm_migrate(), advice, tm_gpu_pause(). */
  TM_REASON_GIVEN_UP = 6  /**< Nobody wants them. */
};

enum {
  TM_WHERE_DIRTY = 1,   /**< In no slot yet. */
  TM_WHERE_PINNED = 2,  /**< Held by views. */
  TM_WHERE_BUFFERED = 4 /**< They came or went through the page cache. */
};

/** By which way bytes came to a GPU's memory or left it. */
enum {
  TM_PATH_NONE = 0,     /**< No GPU was an end of it, or no byte was copied. */
  TM_PATH_LOCKED = 1,   /**< The device read or wrote the DRAM that they live in, page-locked. */
  TM_PATH_STAGED = 2,   /**< Through other DRAM: from or to a block tier, a file, another GPU. */
  TM_PATH_PAGEABLE = 3, /**< DRAM that could not be page-locked: the driver copied once more. */
  TM_PATH_PEER = 4,     /**< From one GPU straight to another. */
  TM_PATH_DIRECT = 5    /**< Between a GPU and the block tier past the host's memory. */
};

/** Where bytes are, since when, and what brought them there or took them away. */
typedef struct tm_whereabouts {
  size_t size;       /**< sizeof(tm_whereabouts). */
  uint32_t state;    /**< #TM_STATE_ZERO and those below it. */
  uint32_t flags;    /**< #TM_WHERE_DIRTY and those below it. */
  tm_place place;    /**< Of the newest bytes; #TM_ANY for zero and lost. */
  uint32_t reason;   /**< Of the last movement: #TM_REASON_NONE and those below it. */
  int64_t since_ns;  /**< Nanoseconds since that movement ended; -1 without one. */
  int64_t took_ns;   /**< Nanoseconds from its decision to its end. */
  uint64_t bytes;    /**< That moved. */
  uint32_t requests; /**< Given to a device. */
  uint32_t retries;  /**< Of these, given again. */
  uint32_t depth;    /**< Extents that its device worked at with it, itself included. */
  uint32_t path;     /**< #TM_PATH_NONE and those below it. */
  char text[208];    /**< All of it in a sentence, terminated. */
} tm_whereabouts;

/** Fills `out` for the byte at `offset` of a buffer. Errors: #TM_STALE_HANDLE;
 *  #TM_INVALID_ARGUMENT beyond the end of the buffer. */
TIERMEM_API tm_status tm_why(tm_context* context, tm_buffer buffer, uint64_t offset,
                             tm_whereabouts* out);

/** What this build, and with a context this machine, can do. */
typedef struct tm_capabilities {
  size_t size;              /**< sizeof(tm_capabilities). */
  uint32_t version;         /**< Of the library, as tm_version(). */
  uint32_t kinds_known;     /**< Bit 1 << kind for each kind of tier that this build has. */
  uint32_t kinds_here;      /**< The same, of this context; 0 without a context. */
  uint32_t spaces;          /**< Address spaces: the host's, and one for each GPU. */
  uint64_t extent_smallest; /**< Smallest extent_bytes of a buffer. */
  uint64_t extent_largest;  /**< Largest. */
  uint64_t extent_default;  /**< What a large buffer gets that names none. */
  uint64_t buffer_largest;  /**< Bytes of the largest buffer, with extents of extent_largest. */
  uint64_t ops_most;        /**< Operations that may be not yet waited for, per context. */
  uint64_t flags;           /**< #TM_CAN_CHECKSUM and those below it. */
  /** Extents of one buffer, at most: the largest buffer with extents of `extent_bytes` has
   *  extents_per_buffer * extent_bytes bytes, or 2^47 if that is less. */
  uint64_t extents_per_buffer;
} tm_capabilities;

enum {
  TM_CAN_CHECKSUM = 1,    /**< Block tiers have checksums; with a context: they are on. */
  TM_CAN_ADOPT_FILE = 2,  /**< tm_adopt_file(). */
  TM_CAN_MAP = 4,         /**< With a context: #TM_MAPPED. */
  TM_CAN_CUDA_STREAM = 8, /**< With a context: #TM_STREAM_CUDA, it has a GPU. */
  TM_CAN_IO_URING = 16,   /**< With a context: it uses io_uring. */
  TM_CAN_HUGE_PAGES = 32, /**< With a context: it gets huge pages. */
  TM_CAN_MOVE_PAGES = 64, /**< With a context: extents enter windows without a copy. */
  TM_CAN_SEE_TOUCHES =
      128 /**< With a context: touches of absent bytes without a view are caught. */
};

/** Fills `out`; `context` may be NULL. */
TIERMEM_API tm_status tm_caps(tm_context* context, tm_capabilities* out);

#ifdef __cplusplus
}
#endif
#endif
