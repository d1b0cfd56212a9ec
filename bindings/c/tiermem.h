/**
 * @file tiermem.h
 * The C interface of tiermem: buffers larger than any one memory. C11 and C++.
 *
 * These rules hold for every function, unless its own documentation says otherwise:
 *
 * - Result: a function returns a ::tm_status. #TM_OK is 0; every other code says what to do next.
 *   tm_error() returns the message.
 * - Threads: any thread may call any function. Several threads may use one context at the same
 *   time.
 * - Output: a function writes its result through its last pointer. It leaves the target untouched
 *   on failure.
 * - Input: a function reads its pointer arguments during the call only. It copies strings.
 * - Handles: buffers, views and operations belong to the context that created them. Every other
 *   context refuses them, and the message says so. The code is #TM_STALE_HANDLE for a buffer. It is
 *   #TM_INVALID_ARGUMENT for a view, an operation or a pointer from tm_malloc().
 * - Lifetime: calls with a context that has ended return #TM_SHUT_DOWN. The pointer to the context
 *   stays valid for such calls.
 * - Cancellation: pthread_cancel() takes effect after a call, never inside it. Asynchronous
 *   cancellation must be off.
 * - Units: sizes, offsets and lengths are in bytes. Times are in nanoseconds. A negative timeout
 *   waits forever; 0 never waits.
 * - Null arguments: a null context, a null result pointer, or a null list with n > 0 is
 *   #TM_INVALID_ARGUMENT.
 *
 * The layouts of ::tm_access, ::tm_view and ::tm_rows never change. Structs that begin with `size`
 * grow: set `size` to `sizeof` of the struct that you compile with. In an array the `size` of the
 * first element holds for all. In a smaller (older) options struct, missing fields have their
 * defaults. A larger (newer) one is accepted if every byte that this library does not know is 0.
 * Information structs are filled as far as both sides know them; the rest is set to 0.
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

/** The version of this header. tm_version() returns the version of the library. */
#define TM_VERSION_MAJOR 0
#define TM_VERSION_MINOR 2 /**< Before 1.0, a new minor version may break compatibility. */
#define TM_VERSION_PATCH 0 /**< Corrections only. */
/** The version as one number, which grows with each version. */
#define TM_VERSION ((TM_VERSION_MAJOR << 16) | (TM_VERSION_MINOR << 8) | TM_VERSION_PATCH)

/* ---- Status ---------------------------------------------------------------------------------- */

/** The result of a call: one of the codes below, named for what the caller does next. */
typedef int32_t tm_status;

enum {
  TM_OK = 0,           /**< Success. */
  TM_INVALID_ARGUMENT, /**< Fix the call. */
  TM_STALE_HANDLE,     /**< The buffer was freed, or the handle never existed. */
  TM_NO_CAPACITY, /**< Free, release or wait; tm_error() names the tier, its budget and a holder. */
  /** Try again: the bytes are pinned or moving, or the timeout is 0 and the call would wait. */
  TM_BUSY,
  TM_TIMED_OUT,   /**< The timeout expired first. */
  TM_CANCELLED,   /**< The owner cancelled the operation. */
  TM_UNSUPPORTED, /**< This version does not support it: choose another tier or option. */
  TM_UNAVAILABLE, /**< There is no driver, device, permission or tier for it in this context. */
  TM_IO_ERROR,    /**< A device refused the request; the bytes are where they were. */
  TM_DISCARDED,   /**< A droppable buffer's bytes were dropped: recompute them. */
  TM_LOST,        /**< The bytes are lost, and the loss is an error. */
  TM_SHUT_DOWN,   /**< The context is closing, is closed, or belongs to the parent process. */
  TM_INTERNAL     /**< A defect of tiermem. */
};

/* ---- Handles and records --------------------------------------------------------------------- */

/** A set of tiers and the thread that moves bytes between them. Opaque. */
typedef struct tm_context tm_context;
/**
 * A handle to a buffer: an index and a generation. The handle of a freed buffer is an error, never
 * a wild pointer. 0 is never a buffer.
 */
typedef uint64_t tm_buffer;
/** A handle to an operation, valid in the context that created it. 0 is never an operation. */
typedef uint64_t tm_op;

/** A tier by kind and number. With {#TM_ANY, 0} tiermem chooses. */
typedef struct tm_place {
  uint16_t kind;  /**< #TM_ANY to #TM_FILE. */
  uint16_t index; /**< The number among tiers of this kind, from 0. */
} tm_place;

enum {
  TM_ANY = 0, /**< tiermem chooses. */
  TM_HOST,    /**< Any memory that the CPU can address. */
  TM_DRAM,    /**< The DRAM tier. */
  TM_NUMA,    /**< The memory of a NUMA node, such as a CXL expander. The number is the node's. */
  TM_PMEM,    /**< Persistent memory. The number is its position in the option `pmem`, from 0. */
  TM_GPU,     /**< The memory of a GPU. Views there hold device addresses. */
  TM_BLOCK,   /**< Files and raw devices. */
  TM_REMOTE,  /**< An object store. Not in this version. */
  TM_COMPRESSED, /**< Compressed pages in DRAM: the option `compressed`. */
  TM_FILE        /**< Adopted files. */
};

/**
 * The order that an acquire or a release follows: the calling thread's (#TM_HOST_ORDER), or that of
 * a CUDA stream. A CUDA stream needs a context with a GPU (#TM_CAN_CUDA_STREAM).
 */
typedef struct tm_stream {
  uint32_t kind;     /**< #TM_STREAM_HOST or #TM_STREAM_CUDA. */
  uint32_t reserved; /**< 0. */
  /** The CUDA stream; NULL is the legacy default stream, not "none". NULL with #TM_STREAM_HOST. */
  void* handle;
} tm_stream;

enum {
  TM_STREAM_HOST = 0, /**< The calling thread. */
  TM_STREAM_CUDA = 1  /**< A CUDA stream of the primary context of one of this context's GPUs. */
};

/** The order of the calling thread. */
#ifdef __cplusplus
#define TM_HOST_ORDER (tm_stream{0, 0, nullptr})
#else
#define TM_HOST_ORDER ((tm_stream){0})
#endif

/** One range of one buffer. Its size is 40 bytes in every version. */
typedef struct tm_access {
  tm_buffer buffer;  /**< A live buffer of the context. */
  uint64_t offset;   /**< Offset of the first byte in the buffer. */
  uint64_t length;   /**< Length in bytes; 0 means up to the end of the buffer. */
  uint32_t mode;     /**< #TM_READ, #TM_WRITE or #TM_DISCARD, or several of them combined with |. */
  tm_place where;    /**< Where the pointer must be usable. All 0 means the host. */
  uint64_t reserved; /**< 0. */
} tm_access;

enum {
  TM_READ = 1,  /**< The caller reads the bytes. */
  TM_WRITE = 2, /**< The caller reads and writes the bytes. */
  /**
   * The caller overwrites every byte before the release, so the bytes are not read from lower
   * tiers. Until the caller writes them, the view shows zeros or older bytes of the same context.
   */
  TM_DISCARD = 4
};

/**
 * A pinned range: its bytes do not move until tm_release(), which any thread may call. Its size is
 * 40 bytes in every version.
 */
typedef struct tm_view {
  void* data;        /**< Address of the first byte of the range. */
  uint64_t length;   /**< Length in bytes that the caller may access from `data` on. */
  uint64_t token[2]; /**< Private to tiermem. Copy the record as a whole, and release it once. */
  tm_place place;    /**< The address space of `data`: {#TM_HOST, 0} or {#TM_GPU, n}. */
  uint32_t flags;    /**< 0 in this version. */
} tm_view;

/** Hints for tm_advise() and tm_alloc(), named after those of madvise and CUDA. */
enum {
  TM_ADVICE_NORMAL = 0, /**< No hint. */
  TM_READ_MOSTLY,       /**< Rarely written. */
  TM_WILL_NEED,         /**< The same as tm_prefetch(), without an operation. */
  /** The caller gives up the bytes: the range reads as zeros afterwards, or as the bytes of the
   * file if the buffer is a private copy of one. */
  TM_DONT_NEED,
  TM_COLD,       /**< Evict these bytes first. */
  TM_SEQUENTIAL, /**< Used in order. */
  /**
   * Used in random order. A buffer allocated with this hint has one checksum for each 4 KiB in
   * block tiers (0.4 % more space). tm_gather() then reads only 4 KiB for a small row.
   */
  TM_RANDOM,
  TM_STREAMED, /**< Used once; evict first afterwards. */
  TM_TOUCHED,  /**< Used without a view: counts as a use and has no other effect. */
  /**
   * Not written again: the bytes are written to a block tier now, so a later eviction writes
   * nothing.
   */
  TM_FROZEN,
  /**
   * The `where` of a range names the host memory where its bytes live: see
   * #tm_buffer_options.preferred. They go there in the background. Another place takes the
   * preference back, and moves nothing.
   */
  TM_PREFERRED,
  TM_KEEP, /**< With value 1, evict only when nothing else is left; with value 0, evict as usual. */
  TM_NEXT_USE /**< `value` is the tm_tick() ordinal of the next use. */
};

/* ---- Context --------------------------------------------------------------------------------- */

/** Options of tm_context_create(). */
typedef struct tm_context_options {
  size_t size;       /**< sizeof(tm_context_options). */
  const char* toml;  /**< Path of a TOML file, or NULL. The spec string overrides the file. */
  const char* name;  /**< Name of the context in messages, or NULL. */
  uint32_t flags;    /**< 0. */
  uint32_t reserved; /**< 0. */
} tm_context_options;

enum {
  TM_DESTROY_FORCE = 1 /**< For tm_context_destroy(): end the context even while views are held. */
};

/**
 * Creates a context.
 *
 * - `tiers`: a spec string such as "dram=4G; nvme=/data/a:100G". NULL or "" uses the environment
 *   variable `TIERMEM_TIERS`; if that is not set, tiermem uses what the machine offers.
 * - `options`: may be NULL.
 * - Ownership: the caller owns the context, and ends it with tm_context_destroy().
 *   tm_context_retain() adds an owner.
 * - Errors:
 *   - #TM_INVALID_ARGUMENT names the option, its value and the accepted values.
 *   - #TM_UNSUPPORTED: this build lacks the kind of tier.
 *   - #TM_IO_ERROR or #TM_UNAVAILABLE: a requested file, directory or mechanism is not usable.
 *   - #TM_NO_CAPACITY.
 */
TIERMEM_API tm_status tm_context_create(const char* tiers, const tm_context_options* options,
                                        tm_context** out);

/**
 * Ends a context and all its buffers, whatever the number of references.
 *
 * #TM_OK means that the context has ended. Each later call with it returns #TM_SHUT_DOWN, including
 * tm_free() and tm_release(); calls that other threads are making may return it too. Pointers to
 * bytes of the context are invalid. After any other result the context still exists, and the call
 * may be repeated.
 *
 * While views are held, the call returns #TM_BUSY and lists the label, holder and age of each. With
 * #TM_DESTROY_FORCE it proceeds: the pointers of these views become invalid at once, and waiting
 * requests end with #TM_SHUT_DOWN.
 *
 * - `flags`: 0 or #TM_DESTROY_FORCE.
 * - `timeout_ns`: the max time for transfers in progress to end. After #TM_TIMED_OUT the context is
 *   closed, and a second call ends it.
 * - Ownership: releases the reference that tm_context_create() returned.
 * - Errors: #TM_BUSY, #TM_TIMED_OUT. #TM_SHUT_DOWN: the context has already ended.
 */
TIERMEM_API tm_status tm_context_destroy(tm_context* context, uint32_t flags, int64_t timeout_ns);

/**
 * Adds a reference to a context, for one more owner. A new context has one reference.
 *
 * - Errors: #TM_SHUT_DOWN: the context has ended. #TM_NO_CAPACITY: the context has 2^32 - 1
 *   references.
 */
TIERMEM_API tm_status tm_context_retain(tm_context* context);

/**
 * Releases one reference. The last release ends the context, as tm_context_destroy() does with
 * #TM_DESTROY_FORCE and a timeout of 10 seconds.
 *
 * - Ownership: references that remain when a context is destroyed may be released later.
 * - Errors: #TM_SHUT_DOWN: all references were released.
 */
TIERMEM_API tm_status tm_context_release(tm_context* context);

/**
 * Returns the context that all users in this process share: libraries that do not know each other
 * then share one budget. The first call creates it with the tiers of tm_context_create() with NULL.
 *
 * - Ownership: the call adds a reference, and the caller releases it with tm_context_release(). The
 *   context itself lives until the process ends. A caller must not destroy it.
 * - Fork: a child gets a context of its own, unless the shared one has followed the fork.
 * - Errors: those of tm_context_create().
 */
TIERMEM_API tm_status tm_context_default(tm_context** out);

/**
 * Changes the budget of a tier. A smaller DRAM budget evicts bytes, and the call waits for these
 * evictions. The old budget stays if the new one cannot be reached before the timeout. A smaller
 * budget of a block tier takes effect as slots there become free, and the call does not wait.
 *
 * - `tier`: {#TM_DRAM, 0}, {#TM_BLOCK, n}, or a NUMA node, persistent memory or GPU of the context.
 * - `bytes`: the new budget.
 * - Errors: #TM_NO_CAPACITY: pinned bytes prevent the change; the message names a holder.
 *   #TM_UNAVAILABLE: the context has no such tier.
 */
TIERMEM_API tm_status tm_set_budget(tm_context* context, tm_place tier, uint64_t bytes,
                                    int64_t timeout_ns);

enum {
  TM_TICK_OP = 0,  /**< One operation of the program, such as a layer. */
  TM_TICK_STEP = 1 /**< One step of the program, such as a token or a training step. */
};

/**
 * Marks an operation or a step of the program.
 *
 * - `kind`: #TM_TICK_OP or #TM_TICK_STEP.
 * - `out_ordinal`: receives the ordinal of the tick, counted from 1, or is NULL. #TM_NEXT_USE and
 *   tm_prefetch() refer to this ordinal.
 */
TIERMEM_API tm_status tm_tick(tm_context* context, uint32_t kind, uint64_t* out_ordinal);

/* ---- Buffers --------------------------------------------------------------------------------- */

/** Options of tm_alloc(), tm_adopt_file() and tm_adopt_device(). */
typedef struct tm_buffer_options {
  size_t size; /**< sizeof(tm_buffer_options). */
  /** Unit of movement in bytes: a power of two, 4 KiB to 64 MiB; 0: tiermem chooses. */
  uint64_t extent_bytes;
  /** Alignment of view addresses: a power of two up to the extent size; 0: 4096. */
  uint64_t alignment;
  /** #TM_MAPPED, #TM_DROPPABLE, #TM_NO_CHECKSUM, #TM_ISOLATED, #TM_PRIVATE, #TM_INTERLEAVED. */
  uint32_t flags;
  uint32_t advice; /**< A hint for the whole buffer; #TM_ADVICE_NORMAL for none. */
  /**
   * The host memory where the bytes live: {#TM_DRAM, 0}, {#TM_NUMA, n} of the option `numa`, or
   * {#TM_PMEM, n} of the option `pmem`, which takes no mapped buffers. Bytes that come to memory
   * get frames there first. If it has no room, they get frames in the other memories. Uses do not
   * bring them to a faster memory. Any other place has no effect.
   */
  tm_place preferred;
  /** Name of the buffer in error messages, or NULL; up to 31 characters are kept. */
  const char* label;
} tm_buffer_options;

enum {
  TM_MAPPED = 1, /**< The buffer has a fixed address, tm_address(), and is used without views. */
  /**
   * If no block tier takes the bytes when they must leave memory, they are dropped. Reading them
   * returns #TM_DISCARDED until the caller overwrites them with #TM_DISCARD.
   */
  TM_DROPPABLE = 2,
  TM_KEEP_ON_FREE = 4, /**< For named buffers. Not in this version. */
  TM_NO_CHECKSUM = 8,  /**< Bytes of the buffer in block tiers have no checksums. */
  /** Memory that held bytes of this buffer is cleared before another buffer uses it. */
  TM_ISOLATED = 16,
  /**
   * For tm_adopt_file(): views, and with #TM_MAPPED the program, may write. The written bytes
   * belong to the buffer; the file is never written.
   */
  TM_PRIVATE = 32,
  /**
   * The extents are spread over DRAM and the memories of the option `numa`, in the ratio of their
   * bandwidths: extent by extent they prefer one of these. It is for large buffers that all threads
   * read. Without such memories it has no effect. Not together with #tm_buffer_options.preferred.
   */
  TM_INTERLEAVED = 64
};

/**
 * Allocates a buffer, which reads as zeros. It uses no memory until it is touched.
 *
 * - `bytes`: length of the buffer.
 * - `options`: may be NULL.
 * - Ownership: the caller owns the buffer, and ends it with tm_free(). The end of the context also
 *   ends it.
 * - Errors:
 *   - #TM_INVALID_ARGUMENT.
 *   - #TM_UNSUPPORTED for a flag, or #TM_UNAVAILABLE for a place, that this version or this context
 *     lacks; the message names it.
 *   - #TM_NO_CAPACITY: no handles or no address space are left.
 */
TIERMEM_API tm_status tm_alloc(tm_context* context, uint64_t bytes,
                               const tm_buffer_options* options, tm_buffer* out);

/**
 * Creates a read-only buffer over a file. The file is the cold copy, so evicting the buffer writes
 * nothing.
 *
 * A store through a host view raises SIGSEGV, and tiermem reports it in the log or on standard
 * error. With #TM_PRIVATE views may write.
 *
 * With #TM_MAPPED the program touches the file at tm_address() without views. Byte 0 is at an
 * address with `address % 4096 == offset % 4096`, so data that is aligned in the file is aligned in
 * memory. A touch of absent bytes reads their extent from the file. If the file has changed, the
 * touch raises SIGBUS; it never reads zeros instead. Pages that the program empties (MADV_DONTNEED)
 * are read from the file again, and with #TM_PRIVATE they are zeros. A store raises SIGSEGV, unless
 * #TM_PRIVATE is set.
 *
 * The file must not change while the buffer exists. Each read compares the file's size, its
 * modification time and the bytes that were read before; a difference is #TM_IO_ERROR. A change of
 * name, mode, owner or access time is allowed, and so is a deletion.
 *
 * - `offset`, `length`: the range of the file; a length of 0 means up to its end.
 * - `options`: may be NULL.
 * - Ownership: as for tm_alloc().
 * - Errors:
 *   - #TM_INVALID_ARGUMENT: the path is not a file, or the range is outside it; `offset` is not
 *     a multiple of the alignment of the options.
 *   - #TM_IO_ERROR with errno: the file is not usable.
 *   - #TM_UNSUPPORTED: #TM_MAPPED without #TM_PRIVATE where userfaultfd is refused; a flag that
 *     adopted files do not have.
 *   - For the options, the errors of tm_alloc().
 */
TIERMEM_API tm_status tm_adopt_file(tm_context* context, const char* path, uint64_t offset,
                                    uint64_t length, const tm_buffer_options* options,
                                    tm_buffer* out);

/**
 * Creates a buffer with a copy of device memory that the program owns.
 *
 * The device `gpu` copies the bytes piece by piece. The memory may be larger than the GPU's budget:
 * tiermem then moves pieces to other tiers, as it does for any buffer.
 *
 * - `memory`: a device address. The caller keeps it, and may free or change it once the stream
 *   `after` reaches this point. With #TM_HOST_ORDER the device must have finished with it before
 *   the call, and the copies have ended when the call returns.
 * - `bytes`: length of `memory`.
 * - `timeout_ns`: the max wait for room; -1 waits forever. Room may depend on pieces that the
 *   stream has yet to copy.
 * - `options`: may be NULL.
 * - Ownership: as for tm_alloc().
 * - Errors:
 *   - #TM_INVALID_ARGUMENT: a byte of `memory` does not belong to that GPU.
 *   - #TM_UNAVAILABLE: the context does not have that GPU, or the GPU is lost.
 *   - The errors of tm_alloc(), and for the GPU and the stream those of tm_acquire().
 *
 * No buffer exists after an error; the result of copies that are already queued on the stream is
 * unused.
 */
TIERMEM_API tm_status tm_adopt_device(tm_context* context, tm_place gpu, const void* memory,
                                      uint64_t bytes, tm_stream after, int64_t timeout_ns,
                                      const tm_buffer_options* options, tm_buffer* out);

/**
 * Frees a buffer. The handle is stale at once; the bytes live until the last view and transfer end.
 *
 * - Errors: #TM_STALE_HANDLE.
 */
TIERMEM_API tm_status tm_free(tm_context* context, tm_buffer buffer);

/**
 * Where the bytes of a buffer are, similar to mincore(). Counts bytes of whole extents; an extent
 * counts once for every copy.
 */
typedef struct tm_residency {
  size_t size;           /**< sizeof(tm_residency). */
  uint64_t bytes;        /**< Length of the buffer. */
  uint64_t extent_bytes; /**< Size of an extent. */
  uint64_t extents;      /**< Number of extents. */
  uint64_t resident;     /**< Bytes that the CPU can address. */
  uint64_t dirty;        /**< Part of `resident` that no block tier holds yet. */
  uint64_t in_slots;     /**< Bytes with their newest copy in a block tier. */
  uint64_t zero;         /**< Bytes never written. */
  uint64_t pinned;       /**< Bytes pinned by views. */
  uint64_t lost;         /**< Lost bytes: reading them is #TM_LOST. */
  char label[32];        /**< The label given at allocation, terminated. */
} tm_residency;

/**
 * Fills `out` with the state of a buffer at one moment.
 *
 * - Errors: #TM_STALE_HANDLE.
 */
TIERMEM_API tm_status tm_buffer_info(tm_context* context, tm_buffer buffer, tm_residency* out);

/**
 * Returns the address of a buffer with #TM_MAPPED: byte 0 of the whole buffer, fixed for its life.
 *
 * The program uses this memory without views, from any thread. A touch of absent bytes waits until
 * they are resident. If they cannot be brought, the touch raises SIGBUS, and the log (option `log`)
 * has the reason.
 *
 * System calls on absent bytes work where userfaultfd may serve kernel faults (`tiermem topo`);
 * elsewhere they return EFAULT. Without userfaultfd a touch of absent bytes raises SIGSEGV, which
 * the library handles. A handler that the program installs later must call the previous one, and no
 * thread may block the signal.
 *
 * With the option `fork=follow` a child of fork() has the same buffers at the same addresses, with
 * the bytes as of the fork. Later writes of parent and child are separate. Without the option, or
 * if the child could not follow, its touch raises SIGSEGV. In the child the handles of all other
 * buffers are stale, and their views can be released and no longer touched.
 *
 * Use #TM_DONT_NEED to give up bytes. tiermem may miss the program's own MADV_DONTNEED on a page
 * that is leaving memory.
 *
 * - Ownership: the address is valid until the buffer ends.
 * - Errors: #TM_STALE_HANDLE. #TM_UNSUPPORTED: the buffer does not have #TM_MAPPED.
 */
TIERMEM_API tm_status tm_address(tm_context* context, tm_buffer buffer, void** out);

/**
 * Returns the device address of a buffer in the memory of the GPU `where`: byte 0 of the whole
 * buffer, fixed for the rest of its life.
 *
 * Every later view of the buffer on that GPU is at this address plus its offset. Bytes that no view
 * pins may be elsewhere, and the device must not touch them. The call reserves addresses, not
 * memory. The first view of several extents reserves them too.
 *
 * - Errors:
 *   - #TM_STALE_HANDLE.
 *   - #TM_UNAVAILABLE: the context has no such GPU.
 *   - #TM_NO_CAPACITY: the driver has no room for the addresses.
 *   - #TM_UNSUPPORTED: the buffer has #TM_MAPPED, its extents are below 2 MiB, or the place is not
 *     a GPU.
 */
TIERMEM_API tm_status tm_address_on(tm_context* context, tm_buffer buffer, tm_place where,
                                    void** out);

/**
 * Copies bytes of a buffer to `to`. The calling thread copies, one extent after the other: the
 * result is not one atomic snapshot. On failure some bytes of `to` may have been written.
 *
 * - Errors: those of tm_acquire(). #TM_INVALID_ARGUMENT: `to` overlaps the range itself, for
 *   example through a view.
 */
TIERMEM_API tm_status tm_read(tm_context* context, tm_buffer buffer, uint64_t offset, void* to,
                              uint64_t length, int64_t timeout_ns);

/**
 * Copies `from` into a buffer, as tm_read() copies out of it. On failure some bytes of the range
 * may have been written.
 *
 * - Errors: those of tm_read(), with `from` in the place of `to`.
 */
TIERMEM_API tm_status tm_write(tm_context* context, tm_buffer buffer, uint64_t offset,
                               const void* from, uint64_t length, int64_t timeout_ns);

/** One copy of tm_copy(). Its size is 40 bytes in every version. */
typedef struct tm_copy_item {
  tm_buffer buffer; /**< A live buffer of the context. */
  uint64_t offset;  /**< Offset in the buffer. */
  void* memory;     /**< The target of a read, or the source of a write. */
  uint64_t bytes;   /**< Length; 0: the item does nothing. */
  uint32_t mode;    /**< #TM_READ: out of the buffer. #TM_WRITE: into the buffer. */
  tm_status status; /**< Result. */
} tm_copy_item;

enum {
  /**
   * Bytes that are read and not in memory are read from below without promoting them. Where
   * `memory` is aligned to 4 KiB, the device writes it directly.
   */
  TM_COPY_NO_PROMOTE = 1
};

/**
 * Copies each item of a list, out of its buffer or into it. The reads of the list are under way
 * together. The order of the copies is unspecified, and the result is not one atomic snapshot.
 *
 * With #TM_COPY_NO_PROMOTE, whole blocks of a target that is aligned to 4 KiB and not memory of a
 * mapped buffer are read into it directly by the device, and are checked there. A block is as for
 * tm_gather(). Other bytes come through staging memory. Bytes of which the newest copy is not only
 * in a slot or a file are promoted, as by tm_read().
 *
 * - `list`: `n` items. Each receives its own status.
 * - `flags`: 0 or #TM_COPY_NO_PROMOTE.
 * - `timeout_ns`: counts from this call on. A read that a device has begun is waited for, also
 *   beyond the timeout, after a cancel, and by tm_context_destroy(): its memory is the caller's
 *   again only then.
 * - `out`: with NULL the call waits for the end. Otherwise it receives an operation, and a thread
 *   of the context does the work, several such calls at a time. The list and its memory must stay
 *   valid until the operation has completed. They must not be memory of buffers with #TM_MAPPED.
 * - Ownership: the caller ends the operation with tm_op_wait().
 * - Result: #TM_OK if every item is copied, else the first error in the order of the list.
 * - Errors of an item: those of tm_read() or tm_write(). After an error its memory is unspecified.
 *   #TM_INVALID_ARGUMENT: also for its mode. #TM_BUSY: the timeout is 0, and its bytes are not in
 *   memory.
 * - Errors of the call, nothing is copied: #TM_INVALID_ARGUMENT: an unknown flag. #TM_BUSY: too
 *   many operations are in progress.
 */
TIERMEM_API tm_status tm_copy(tm_context* context, tm_copy_item* list, size_t n, uint32_t flags,
                              int64_t timeout_ns, tm_op* out);

/* ---- Small objects ----------------------------------------------------------------------------
 */

/**
 * Allocates an object: `*out` receives the address of at least `bytes` bytes at a multiple of 16.
 * Their content is unspecified. For 0 bytes the address is unique and can be freed.
 *
 * Where the object lives depends on `place`:
 *
 * - {#TM_DRAM, 0} or {#TM_HOST, 0}: the object stays in DRAM, as if a view pinned it.
 * - {#TM_ANY, 0}: the object is memory of mapped buffers, so objects may exceed DRAM. A touch
 *   behaves as for tm_address(). Where there are no mapped buffers (#TM_CAN_MAP), the object stays
 *   in DRAM.
 * - {#TM_NUMA, n} or {#TM_PMEM, n} of the context: the object stays in this memory. If its
 *   budget is full, the bytes of buffers leave it, and the object never goes to another memory.
 * - {#TM_GPU, 0}: the object is device memory, as from cudaMalloc(). Its device address never
 *   changes and is a multiple of 2 MiB. Its bytes stay on the device, except while tm_gpu_pause()
 *   has moved them. The object belongs to the set that tm_gpu_tag() last named in the calling
 *   thread.
 *
 * Every object is charged to the budgets. The call waits for room that other bytes hold: up to 10
 * seconds for a GPU, 1 second elsewhere, and 1 second more for each 128 MiB of the object.
 *
 * - Ownership: the caller owns the object, and frees it with tm_free_ptr(). It is valid in every
 *   thread until that call, or until the context ends. With the option `fork=follow` a child of
 *   fork() has the objects of {#TM_ANY, 0}, and others stay with the parent: tm_free_ptr() of such
 *   an object succeeds there, other calls return #TM_STALE_HANDLE, and a touch raises SIGSEGV.
 * - Errors:
 *   - #TM_INVALID_ARGUMENT: more than 2^47 bytes.
 *   - #TM_UNSUPPORTED: the processor cannot address the place, or {#TM_ANY, 0} cannot follow a
 *     fork.
 *   - #TM_UNAVAILABLE: the context lacks the place.
 *   - #TM_NO_CAPACITY.
 */
TIERMEM_API tm_status tm_malloc(tm_context* context, tm_place place, uint64_t bytes, void** out);

/**
 * tm_malloc() with an alignment.
 *
 * - `alignment`: the address is a multiple of it. A power of two up to 64 MiB, and at most the
 *   budget of the memory, because a large object moves in pieces of at least its alignment.
 * - Ownership: as for tm_malloc().
 * - Errors: those of tm_malloc(). #TM_INVALID_ARGUMENT: the alignment is another number.
 *   #TM_NO_CAPACITY: the alignment is above the budget of the memory.
 */
TIERMEM_API tm_status tm_malloc_aligned(tm_context* context, tm_place place, uint64_t bytes,
                                        uint64_t alignment, void** out);

/**
 * Allocates an object of `count` times `bytes` bytes, which are zeros. A large object of
 * {#TM_ANY, 0} uses no memory until it is written.
 *
 * - Ownership: as for tm_malloc().
 * - Errors: those of tm_malloc(). #TM_INVALID_ARGUMENT: the product is above 2^47.
 *   #TM_UNSUPPORTED: the place is a GPU.
 */
TIERMEM_API tm_status tm_calloc(tm_context* context, tm_place place, uint64_t count, uint64_t bytes,
                                void** out);

/**
 * Changes the size of an object to at least `bytes` bytes. The bytes up to the smaller of both
 * sizes are the same; those beyond are unspecified. If the object has room, it stays where it is,
 * whatever `place` is. Otherwise the bytes are copied to a new object in `place`, at a multiple of
 * 16, and `pointer` is freed.
 *
 * - `pointer`: an object of this context. With NULL the call is tm_malloc().
 * - `bytes`: with 0 the result is an object that can be freed.
 * - `out`: receives the object, which may be `pointer`. It may point to the variable that holds
 *   `pointer`.
 * - Ownership: as for tm_malloc(). After #TM_OK, `pointer` is valid only if it is the result.
 * - Errors: `pointer` is unchanged and still valid. Those of tm_malloc() and of tm_free_ptr().
 *   #TM_UNSUPPORTED: the place or the object is on a GPU.
 */
TIERMEM_API tm_status tm_realloc(tm_context* context, tm_place place, void* pointer, uint64_t bytes,
                                 void** out);

/**
 * Frees an object from tm_malloc() or its relatives, of the same context. Any thread may free it;
 * NULL is accepted. A GPU must have finished with an object in its memory: see tm_free_ptr_after().
 *
 * - Errors: #TM_INVALID_ARGUMENT names the address: it is not an object, or was freed before. If
 *   the address has since been allocated again, the call frees the new object.
 */
TIERMEM_API tm_status tm_free_ptr(tm_context* context, void* pointer);

/**
 * Frees an object in the memory of a GPU once the stream `after` has finished all work it was given
 * so far. Does not wait.
 *
 * - Errors: those of tm_free_ptr(), and those of tm_acquire() for a stream. On a stream error the
 *   object is not freed.
 */
TIERMEM_API tm_status tm_free_ptr_after(tm_context* context, void* pointer, tm_stream after);

/**
 * Returns the number of usable bytes from `pointer` on, which is at least the size asked for.
 *
 * - Errors: those of tm_free_ptr(). #TM_INVALID_ARGUMENT: `pointer` is NULL.
 */
TIERMEM_API tm_status tm_usable_size(tm_context* context, const void* pointer, uint64_t* out);

/**
 * A table of functions in the form that many libraries take for an allocator: objects of one
 * context in one place. tm_allocator_init() fills it. The table may be copied, and any thread may
 * call its functions; they are tm_malloc() and its relatives, with these differences:
 *
 * - A failure returns NULL and sets errno to ENOMEM, or to EINVAL for a wrong argument. tm_error()
 *   returns the reason.
 * - `free` of a pointer that is not an object does nothing; tm_error() returns the reason.
 * - After the end of the context, all functions fail, and `free` does nothing.
 */
typedef struct tm_allocator {
  size_t size; /**< sizeof(tm_allocator). */
  void* state; /**< The first argument of each function. Valid for ever. */
  void* (*malloc)(void* state, size_t bytes); /**< For 0 bytes, a pointer that can be freed. */
  /** The address is a multiple of `alignment`, a power of two up to 64 MiB. */
  void* (*aligned)(void* state, size_t alignment, size_t bytes);
  void* (*calloc)(void* state, size_t count, size_t bytes); /**< Zeros. NULL on a GPU. */
  /** NULL leaves `pointer` as it was. For 0 bytes, an object that can be freed. NULL on a GPU. */
  void* (*realloc)(void* state, void* pointer, size_t bytes);
  void (*free)(void* state, void* pointer); /**< Accepts NULL. */
  /** Returns the number of usable bytes; 0 for NULL, and for a pointer that is not an object. */
  size_t (*usable)(void* state, const void* pointer);
} tm_allocator;

/**
 * Fills `out` with functions for objects in `place`. Adds no reference to the context.
 *
 * - `place`: as for tm_malloc(), which reports whether the context has it.
 * - Errors: #TM_INVALID_ARGUMENT. #TM_UNAVAILABLE: this version has no such tier. #TM_NO_CAPACITY.
 *   #TM_SHUT_DOWN.
 */
TIERMEM_API tm_status tm_allocator_init(tm_context* context, tm_place place, tm_allocator* out);

/* ---- Sets of device memory ----------------------------------------------------------------------
 */

/**
 * Sets the set for GPU objects that the calling thread allocates with tm_malloc() from now on, in
 * any context. Never fails.
 *
 * - `tag`: name of the set, of which 31 characters are kept. NULL or "" means no set.
 */
TIERMEM_API tm_status tm_gpu_tag(const char* tag);

/**
 * Moves a set of GPU objects off their devices, and returns their memory to the driver.
 *
 * The bytes go to DRAM where it has room, and else to the block tier. The addresses stay reserved;
 * nothing may use them until tm_gpu_resume() has brought the bytes back.
 *
 * - `tag`: name of the set. NULL means all sets; "" means the objects of no set.
 * - `bytes`: 0 means the whole set. Otherwise the objects allocated first, until they hold `bytes`
 *   bytes.
 * - `after`: a CUDA stream; its work so far must finish first. With #TM_HOST_ORDER the devices
 *   must have finished with the memory before the call.
 * - `out`: with NULL the call waits for the end. Otherwise it receives an operation, which
 *   completes when every byte has left or has failed to leave.
 * - Ownership: the caller ends the operation with tm_op_wait().
 * - Errors, nothing changes:
 *   - #TM_UNSUPPORTED: there is no GPU.
 *   - #TM_INVALID_ARGUMENT names the sets that exist.
 *   - #TM_BUSY: a part of the set is already moving.
 *   - For a stream, the errors of tm_acquire().
 * - Errors, some bytes could not leave: #TM_NO_CAPACITY or #TM_IO_ERROR. These bytes count as
 *   paused too, and tm_gpu_resume() resumes them.
 */
TIERMEM_API tm_status tm_gpu_pause(tm_context* context, const char* tag, uint64_t bytes,
                                   tm_stream after, tm_op* out);

/**
 * Moves paused objects back to their addresses: all of those selected, or none.
 *
 * - `tag`, `bytes`, `out`: as for tm_gpu_pause().
 * - Errors: those of tm_gpu_pause(). #TM_NO_CAPACITY, #TM_IO_ERROR or #TM_LOST: the bytes cannot
 *   come back, and all of them stay paused.
 */
TIERMEM_API tm_status tm_gpu_resume(tm_context* context, const char* tag, uint64_t bytes,
                                    tm_op* out);

/* ---- Device memory for frameworks ------------------------------------------------------------ */

/**
 * Sets the context of tm_cuda_malloc(), for all threads, and takes a reference to it. Blocks that
 * exist stay with their context, and keep it.
 *
 * - `context`: NULL: tm_context_default() at the next tm_cuda_malloc().
 * - Errors, nothing changes: #TM_SHUT_DOWN. #TM_UNAVAILABLE: the context has no GPU.
 */
TIERMEM_API tm_status tm_cuda_context(tm_context* context);

/**
 * Allocates memory of a GPU: tm_malloc() in the form that frameworks load by name, such as
 * PyTorch's CUDAPluggableAllocator. A block takes whole pieces of 2 MiB, so it suits allocators
 * that cut large blocks themselves, such as PyTorch's MemPool. The block belongs to the set of
 * tm_gpu_tag().
 *
 * - `device`: number of the GPU, as in the option gpu.
 * - `stream`: not used; the block is usable on any stream at once.
 * - Result: the device address. NULL for 0 bytes, and after an error: tm_error() returns it.
 */
TIERMEM_API void* tm_cuda_malloc(int64_t bytes, int device, void* stream);

/**
 * Frees a block of tm_cuda_malloc() once `stream` has finished its work so far. Does not wait. If
 * the stream cannot be followed, for example because it is being captured, the block stays
 * allocated and can be freed later: the device may still use it. tm_error() returns the reason.
 *
 * - `block`: NULL does nothing.
 * - `bytes`, `device`: not used.
 * - `stream`: a CUDA stream; NULL is the default stream.
 */
TIERMEM_API void tm_cuda_free(void* block, size_t bytes, int device, void* stream);

/* ---- Views ----------------------------------------------------------------------------------- */

/**
 * Pins all `n` ranges (1 or more) or none. Room for all is reserved before the first is pinned, so
 * two callers never wait for each other's half.
 *
 * Views are pins, not locks: several threads may pin the same bytes, as with plain memory. Ranges
 * of the list may overlap, in any modes: bytes that one range discards and another reads are kept.
 * Another thread may change the list during the call; each view then matches the range that the
 * call read and checked.
 *
 * - `list`: `n` ranges.
 * - `stream`: with a CUDA stream the views are for the work that the stream is given from now on.
 *   The stream itself waits for copies to a GPU that are in progress. The program orders what its
 *   streams do with the same bytes among themselves.
 * - `timeout_ns`: the max wait.
 * - `out`: room for `n` views, in the order of the list. It must not overlap the list.
 * - Ownership: the caller owns the views, and releases each once with tm_release().
 * - Errors:
 *   - #TM_INVALID_ARGUMENT: also for a CUDA stream that belongs to no GPU of the context.
 *   - #TM_STALE_HANDLE.
 *   - #TM_BUSY: the timeout is 0 and bytes must be promoted first.
 *   - #TM_NO_CAPACITY or #TM_TIMED_OUT, when the timeout expires at the latest.
 *   - #TM_UNSUPPORTED: the CUDA stream is being captured, or the context has no GPU.
 *   - #TM_UNAVAILABLE: the context lacks the place.
 *   - #TM_IO_ERROR, #TM_DISCARDED, #TM_LOST, #TM_SHUT_DOWN.
 */
TIERMEM_API tm_status tm_acquire(tm_context* context, const tm_access* list, size_t n,
                                 tm_stream stream, int64_t timeout_ns, tm_view* out);

/**
 * Starts tm_acquire() without waiting.
 *
 * - `out_views`: room for `n` views, which must stay valid until the operation has completed. Its
 *   records are views only if the operation ends with #TM_OK.
 * - Ownership: the caller ends the operation with tm_op_wait(), and releases the views.
 * - Errors of this call: #TM_INVALID_ARGUMENT, #TM_STALE_HANDLE, #TM_UNSUPPORTED, #TM_UNAVAILABLE,
 *   #TM_SHUT_DOWN. #TM_BUSY: 65536 operations have not been waited for. The operation reports all
 *   others.
 */
TIERMEM_API tm_status tm_acquire_async(tm_context* context, const tm_access* list, size_t n,
                                       tm_stream stream, tm_view* out_views, tm_op* out);

/**
 * Releases views. Any thread may release a view.
 *
 * - `views`: `n` views. A view in the list twice is released once, and the result is
 *   #TM_INVALID_ARGUMENT.
 * - `after`: with a CUDA stream, the views end at once; the call records one event and does not
 *   wait. Their bytes move, are given up, or become readable for others only after the stream has
 *   finished all its work so far.
 * - Errors: #TM_INVALID_ARGUMENT: a view was released before, or never existed; the other views of
 *   the list are released. The errors of tm_acquire() for a stream, and those of the driver: all
 *   views stay held.
 */
TIERMEM_API tm_status tm_release(tm_context* context, const tm_view* views, size_t n,
                                 tm_stream after);

/** A `next_use` for tm_prefetch(): needed soon, at no particular tick. */
#define TM_SOON 0

/**
 * Promotes ranges before they are used. Does nothing if there is no room.
 *
 * - `next_use`: the tm_tick() ordinal of the next use, or #TM_SOON.
 * - `out`: NULL, or it receives an operation, which completes when the ranges are resident or were
 *   given up.
 * - Ownership: the caller ends the operation with tm_op_wait().
 * - Errors: for bad arguments only.
 */
TIERMEM_API tm_status tm_prefetch(tm_context* context, const tm_access* list, size_t n,
                                  uint64_t next_use, tm_op* out);

/**
 * Moves ranges to a tier, and waits until they are there.
 *
 * - `to`: {#TM_DRAM, 0}, {#TM_HOST, 0} or {#TM_BLOCK, 0}.
 * - Errors: those of tm_acquire() for a promotion, and those of tm_evict() for a demotion.
 *   #TM_UNAVAILABLE: another tier.
 */
TIERMEM_API tm_status tm_migrate(tm_context* context, const tm_access* list, size_t n, tm_place to,
                                 int64_t timeout_ns);

/**
 * Writes dirty bytes of ranges to a lower tier, frees their memory, and waits until this is done.
 * Bytes outside a range leave too if they share an extent with it. A range that the list names
 * twice is evicted once.
 *
 * - Errors:
 *   - #TM_BUSY: some bytes are pinned, and stay.
 *   - #TM_NO_CAPACITY: the lower tiers have no room.
 *   - #TM_IO_ERROR, #TM_TIMED_OUT.
 */
TIERMEM_API tm_status tm_evict(tm_context* context, const tm_access* list, size_t n,
                               int64_t timeout_ns);

/**
 * Gives a hint for ranges.
 *
 * - `advice`: #TM_ADVICE_NORMAL to #TM_NEXT_USE.
 * - `value`: for the hints that define one; else 0.
 * - Errors: those of bad ranges. #TM_UNAVAILABLE: #TM_PREFERRED, and the context does not have the
 *   tier that a range names. #TM_IO_ERROR: #TM_DONT_NEED of a part of an extent of a file that has
 *   changed or cannot be read.
 */
TIERMEM_API tm_status tm_advise(tm_context* context, const tm_access* list, size_t n,
                                uint32_t advice, uint64_t value);

/* ---- Hints by address ------------------------------------------------------------------------ */

/**
 * Returns the buffer and the offset of the byte at an address: in a buffer with #TM_MAPPED, or in
 * memory that a view pins. For programs that know a pointer, such as that of a tensor, and no
 * handle. The call is short for a buffer with #TM_MAPPED. For another address its time grows with
 * the number of buffers.
 *
 * - `address`: an address of the host. It is not touched.
 * - `out_offset`: receives the offset of the byte in the buffer, or is NULL.
 * - Errors: #TM_INVALID_ARGUMENT: no buffer of this context has a byte there, or it belongs to an
 *   object of tm_malloc(), which has no handle.
 */
TIERMEM_API tm_status tm_find(tm_context* context, const void* address, tm_buffer* out,
                              uint64_t* out_offset);

/**
 * Does tm_prefetch() for the bytes at a range of addresses.
 *
 * This and the next two functions take ranges of buffers with #TM_MAPPED, and of objects of
 * tm_malloc() in {#TM_ANY, 0}. As for madvise(), a range may cross buffers that lie next to each
 * other, and 0 bytes do nothing. Unlike it they round nothing to pages, and a range with a byte
 * that is in none of these buffers does nothing at all.
 *
 * - `address`, `bytes`: the range.
 * - Errors: those of tm_prefetch(). #TM_INVALID_ARGUMENT names the first address that is in no such
 *   buffer.
 */
TIERMEM_API tm_status tm_prefetch_at(tm_context* context, const void* address, uint64_t bytes,
                                     uint64_t next_use, tm_op* out);

/**
 * Does tm_evict() for the bytes at a range of addresses: see tm_prefetch_at().
 *
 * - Errors: those of tm_evict(). #TM_INVALID_ARGUMENT as for tm_prefetch_at().
 */
TIERMEM_API tm_status tm_evict_at(tm_context* context, const void* address, uint64_t bytes,
                                  int64_t timeout_ns);

/**
 * Does tm_advise() for the bytes at a range of addresses: see tm_prefetch_at(). #TM_DONT_NEED gives
 * up exactly these bytes.
 *
 * - Errors: those of tm_advise(). #TM_INVALID_ARGUMENT as for tm_prefetch_at().
 */
TIERMEM_API tm_status tm_advise_at(tm_context* context, const void* address, uint64_t bytes,
                                   uint32_t advice, uint64_t value);

/* ---- Rows ------------------------------------------------------------------------------------ */

/**
 * Rows of one buffer: row i has `row_bytes` bytes from `offset + index[i] * stride` on. In plain
 * memory, and in another buffer, rows lie one behind the other in the order of the list. The list
 * may repeat rows, and rows may overlap. The size of this struct is 48 bytes in every version.
 */
typedef struct tm_rows {
  tm_buffer buffer;   /**< A live buffer of the context. */
  uint64_t offset;    /**< Offset of row 0 in the buffer. */
  uint64_t row_bytes; /**< Length of a row: 1 byte to 64 KiB. */
  uint64_t stride; /**< Bytes from one row to the next; 0: `row_bytes`; 1: `index` holds offsets. */
  const uint64_t* index; /**< The list of row numbers. */
  uint64_t count;        /**< Length of the list; 0: the call does nothing. */
} tm_rows;

/**
 * Copies rows to `to`. Resident rows are copied from memory. For all other rows the call reads only
 * the blocks that hold them, and promotes no extent.
 *
 * A block is 4 KiB in a buffer allocated with #TM_RANDOM, or without checksums; in other buffers it
 * is 64 KiB. The call submits as many reads as the devices take, and reads neighbouring blocks
 * together. The memory for these reads is charged to the DRAM budget: up to 4 MiB, or a sixteenth
 * of the budget if that is less. The result is not one atomic snapshot.
 *
 * - `to`: memory for `count * row_bytes` bytes.
 * - `timeout_ns`: counts from this call on.
 * - `out`: with NULL the call waits for the end. Otherwise it receives an operation, and a thread
 *   of the context does the work, one such call after the other. The list and `to` must stay valid
 *   until the operation has completed. They must not be memory of buffers with #TM_MAPPED.
 * - Ownership: the caller ends the operation with tm_op_wait().
 * - Errors:
 *   - #TM_INVALID_ARGUMENT names the row; also for a row that overlaps `to` in a view or window of
 *     the same buffer, and for a list that overlaps `to`.
 *   - #TM_STALE_HANDLE.
 *   - #TM_BUSY: the timeout is 0 and some row is not resident.
 *   - #TM_NO_CAPACITY, #TM_TIMED_OUT, #TM_CANCELLED, #TM_IO_ERROR, #TM_DISCARDED, #TM_LOST,
 *     #TM_SHUT_DOWN; the message names the row that failed.
 *
 * After an error it is unspecified which rows were copied.
 */
TIERMEM_API tm_status tm_gather(tm_context* context, const tm_rows* rows, void* to,
                                int64_t timeout_ns, tm_op* out);

/**
 * Copies rows into the buffer `to`, from `offset` on. `to` may be the buffer of the rows. Otherwise
 * the same as tm_gather().
 *
 * - Errors: those of tm_gather(). #TM_INVALID_ARGUMENT: the range is outside the buffer, is
 *   read-only, or overlaps a row.
 */
TIERMEM_API tm_status tm_gather_into(tm_context* context, const tm_rows* rows, tm_buffer to,
                                     uint64_t offset, int64_t timeout_ns, tm_op* out);

/**
 * Overwrites rows with those at `from`, which lie one behind the other in the order of the list.
 * For a row that the list repeats, the last value remains. The call promotes each extent that holds
 * a row, once; these extents are written back when they leave memory.
 *
 * - `timeout_ns`, `out`, ownership: as for tm_gather(), with `from` in the place of `to`.
 * - Errors:
 *   - Those of tm_gather().
 *   - #TM_INVALID_ARGUMENT: the buffer is read-only, or a row overlaps `from` or the list.
 *
 * After an error it is unspecified which rows were written.
 */
TIERMEM_API tm_status tm_scatter(tm_context* context, const tm_rows* rows, const void* from,
                                 int64_t timeout_ns, tm_op* out);

/* ---- Objects by key -------------------------------------------------------------------------- */

/**
 * A store of objects by key, bounded by bytes: the cache of an engine, such as KV blocks. Objects
 * are in buffers of a context, so they live in memory or on its drives, and are checked when they
 * come back. When the store is full, it drops the objects that its policy expects last. Opaque.
 */
typedef struct tm_store tm_store;

enum {
  TM_STORE_PERSIST = 1 /**< Objects that survive the process. Not in this version. */
};

/** Options of tm_store_open(). */
typedef struct tm_store_options {
  size_t size;             /**< sizeof(tm_store_options). */
  const char* name;        /**< Label of its buffers, or NULL; 31 characters are kept. */
  uint64_t capacity_bytes; /**< Bytes of all objects, each rounded up to 4 KiB. */
  uint32_t flags;          /**< 0. */
  uint32_t reserved;       /**< 0. */
} tm_store_options;

/** One object of a call. Its size is 48 bytes in every version. */
typedef struct tm_object {
  const void* key;  /**< The key. */
  size_t key_bytes; /**< 1 to 255. */
  void* memory;     /**< The bytes to put, or room for those to get. */
  uint64_t bytes;   /**< Their number, up to 128 MiB; for a get, the room. */
  uint64_t stored;  /**< Result: bytes of the object in the store. */
  tm_status status; /**< Result. A miss is #TM_OK, with `found` 0. */
  /** Result: 1 if the store has the object, or had it. A get that fails for any other reason than
   * its arguments sets 0, whether the store has the object or not: look at `status` first. */
  uint32_t found;
} tm_object;

/**
 * Opens an empty store.
 *
 * - Ownership: the caller ends it with tm_store_close(). After the end of the context every call
 *   returns #TM_SHUT_DOWN. With the option `fork=follow` the store is empty in a child of fork().
 * - Errors: #TM_INVALID_ARGUMENT: also for a capacity of 0. #TM_UNSUPPORTED: #TM_STORE_PERSIST.
 *   #TM_NO_CAPACITY.
 */
TIERMEM_API tm_status tm_store_open(tm_context* context, const tm_store_options* options,
                                    tm_store** out);

/**
 * Waits for operations of the store that are in progress, drops all objects, and ends the store. No
 * other thread may use the store during the call or after it.
 */
TIERMEM_API tm_status tm_store_close(tm_store* store);

/**
 * Stores each object; one with the same key is replaced as a whole. A get beside it finds the old
 * or the new bytes, or none.
 *
 * - `list`: `n` objects. Each receives its own status.
 * - `timeout_ns`: the max wait; -1 waits for room in the tiers without a limit.
 * - `out`: with NULL the call waits for the end. Otherwise it receives an operation, and a thread
 *   of the context does the work, several such calls at a time. The list, keys and memory must stay
 *   valid until the operation has completed. They must not be memory of buffers with #TM_MAPPED.
 * - Ownership: the caller ends the operation with tm_op_wait().
 * - Result: #TM_OK if every object is stored, else the first error in the order of the list.
 * - Errors of an object:
 *   - #TM_INVALID_ARGUMENT: its key or its size.
 *   - #TM_NO_CAPACITY: it is larger than the store, pinned objects leave no room, or the tiers are
 *     full.
 *   - #TM_TIMED_OUT, #TM_CANCELLED, #TM_SHUT_DOWN.
 */
TIERMEM_API tm_status tm_store_put(tm_store* store, tm_object* list, size_t n, int64_t timeout_ns,
                                   tm_op* out);

/**
 * Copies each object that the store has to its memory. Objects that are not in memory are read
 * together. An object with damaged bytes is a miss, and leaves the store.
 *
 * - `list`, `timeout_ns`, `out`, ownership, result: as for tm_store_put(). A miss is not an error.
 * - Errors of an object:
 *   - #TM_INVALID_ARGUMENT: its key, or less room than `stored`; nothing is copied.
 *   - #TM_IO_ERROR: a device refused the read, and the object stays.
 *   - #TM_TIMED_OUT, #TM_CANCELLED, #TM_SHUT_DOWN.
 */
TIERMEM_API tm_status tm_store_get(tm_store* store, tm_object* list, size_t n, int64_t timeout_ns,
                                   tm_op* out);

/**
 * Sets `found` and `stored` of each object, without reading any. Never waits for a device.
 *
 * - Errors: #TM_INVALID_ARGUMENT: a key. #TM_SHUT_DOWN.
 */
TIERMEM_API tm_status tm_store_exists(tm_store* store, tm_object* list, size_t n);

/**
 * Drops each object, pinned or not, and sets `found`.
 *
 * - Errors: those of tm_store_exists().
 */
TIERMEM_API tm_status tm_store_delete(tm_store* store, tm_object* list, size_t n);

/**
 * Keeps each object from being dropped for room, until as many calls of tm_store_unpin(). Sets
 * `found`.
 *
 * - Errors: those of tm_store_exists().
 */
TIERMEM_API tm_status tm_store_pin(tm_store* store, tm_object* list, size_t n);

/**
 * Removes one pin of each object. `found` is 0 if there is no such object, or if it has no pin.
 *
 * - Errors: those of tm_store_exists().
 */
TIERMEM_API tm_status tm_store_unpin(tm_store* store, tm_object* list, size_t n);

/** Counters since the store was opened, and what it holds. */
typedef struct tm_store_counters {
  size_t size;       /**< sizeof(tm_store_counters). */
  uint64_t capacity; /**< Capacity in bytes. */
  uint64_t used;     /**< Bytes of objects, each rounded up to 4 KiB. */
  uint64_t objects;  /**< Number of objects. */
  uint64_t pinned;   /**< Number of pinned objects. */
  uint64_t hits;     /**< Number of objects that a get returned. */
  uint64_t misses;   /**< Number of objects that a get did not find. */
  uint64_t puts;     /**< Number of objects that were stored. */
  uint64_t refused;  /**< Number of objects that had no room. */
  uint64_t evicted;  /**< Number of objects that were dropped to make room. */
  uint64_t damaged;  /**< Number of objects with bytes that a device lost: each is a miss. */
} tm_store_counters;

/** Fills `out` with the counters of a store. */
TIERMEM_API tm_status tm_store_stats(tm_store* store, tm_store_counters* out);

/* ---- Operations ------------------------------------------------------------------------------ */

/**
 * Returns #TM_BUSY while an operation is in progress, else its result. The operation exists until
 * tm_op_wait() or tm_queue_drain() consumes it. #TM_BUSY is never a result: an operation that would
 * have to wait, and has the timeout 0, ends with #TM_TIMED_OUT.
 *
 * - Errors: #TM_INVALID_ARGUMENT: there is no such operation, or it was consumed.
 */
TIERMEM_API tm_status tm_op_poll(tm_context* context, tm_op op);

/**
 * Waits until all `n` operations have completed, and consumes them: their handles are invalid
 * afterwards.
 *
 * Returns #TM_OK, or the result of the first operation in the list that failed. tm_op_poll() and
 * tm_error() report each one before it is consumed.
 *
 * - Errors, nothing is consumed:
 *   - #TM_TIMED_OUT: some operations have not completed; the same list may be waited for again.
 *     Where an operation has a timeout of its own, this may be its result: tm_op_poll() then
 *     returns #TM_INVALID_ARGUMENT, as all of the list were consumed.
 *   - #TM_BUSY: another thread waits for one of them.
 *   - #TM_INVALID_ARGUMENT: one does not exist, was consumed, or is in a queue.
 */
TIERMEM_API tm_status tm_op_wait(tm_context* context, const tm_op* ops, size_t n,
                                 int64_t timeout_ns);

/**
 * Returns a new descriptor for poll, epoll or io_uring. It is readable once the operation has
 * completed, also after the operation was consumed. tm_op_poll() and tm_op_wait() return the
 * result.
 *
 * - Ownership: the caller closes the descriptor.
 * - Errors: #TM_INVALID_ARGUMENT: there is no such operation, or it was consumed. #TM_NO_CAPACITY:
 *   the process has no descriptors left.
 */
TIERMEM_API tm_status tm_op_fd(tm_context* context, tm_op op, int* out);

/**
 * Asks an operation to end early. It then completes with #TM_CANCELLED, unless it completes first.
 * The caller must still wait for it.
 *
 * - Errors: #TM_INVALID_ARGUMENT: there is no such operation, or it was consumed.
 */
TIERMEM_API tm_status tm_op_cancel(tm_context* context, tm_op op);

/**
 * A queue of operations: one descriptor that is readable while any of them has ended, and a call
 * that returns those that have. For event loops with many operations in progress. Opaque.
 *
 * Each operation that was added gives one event, also if it ended before it was added, or was
 * cancelled. An operation has the room for its event, so no event is lost for want of memory. The
 * mover never waits for a queue, whether it is drained or not.
 *
 * - End of the context: operations in progress end with #TM_SHUT_DOWN. After tm_context_destroy()
 *   has returned #TM_OK, events that were not drained are gone, and the descriptor stays readable.
 *   The queue can only be destroyed.
 * - Fork: in a child the functions return #TM_SHUT_DOWN, and leave the parent's queue as it is.
 *   With the option `fork=follow` the child has a queue of its own with the same operations; those
 *   in progress end with #TM_SHUT_DOWN. Its descriptor has the same number and is another one, so
 *   an epoll set of the child needs it again.
 */
typedef struct tm_queue tm_queue;

/** The end of an operation. */
typedef struct tm_event {
  size_t size;      /**< sizeof(tm_event). */
  tm_op op;         /**< The operation. It was consumed: its handle is invalid. */
  void* user;       /**< As given to tm_queue_add(). */
  tm_status status; /**< The result of the operation. If it is #TM_OK, all fields below are 0. */
  int32_t native;   /**< errno, or the driver's code; 0 for none. */
  tm_place tier;    /**< The tier of the error. */
  int32_t device;   /**< Number of the device of `tier`, as in the option nvme; -1 for none. */
  tm_buffer buffer; /**< The buffer of the error. */
  uint64_t offset;  /**< Offset in the buffer; on the device if `tier` is a block tier. */
  uint64_t needed;  /**< Bytes asked for. */
  uint64_t budget;  /**< Budget of the tier in bytes. */
  uint64_t used;    /**< Bytes that the tier uses. */
  uint64_t pinned;  /**< Part of `used` that cannot move. */
  char holder[64];  /**< Label of the buffer with the largest number of pinned bytes. */
  char setting[64]; /**< The option to change, as it is spelled. */
  char text[256];   /**< The message: one sentence, terminated. */
} tm_event;

/**
 * Creates an empty queue for operations of a context.
 *
 * - Ownership: the caller ends it with tm_queue_destroy(), also after the end of the context.
 * - Errors: #TM_NO_CAPACITY: the process has no descriptor left. #TM_SHUT_DOWN.
 */
TIERMEM_API tm_status tm_queue_create(tm_context* context, tm_queue** out);

/**
 * Ends a queue. No other thread may use it during the call or after it.
 *
 * - Errors, the queue is as before: #TM_BUSY: operations of the queue have not been drained; the
 *   message has their number. Cancel them or wait for the descriptor, and drain.
 */
TIERMEM_API tm_status tm_queue_destroy(tm_queue* queue);

/**
 * Returns the descriptor for poll, epoll or io_uring. It is readable, level triggered, while an
 * event can be drained. Only tm_queue_drain() may read it.
 *
 * - Ownership: the queue closes it.
 * - Errors: #TM_UNAVAILABLE: this is a child of fork that had no descriptor left.
 */
TIERMEM_API tm_status tm_queue_fd(tm_queue* queue, int* out);

/**
 * Adds an operation, which any function with an `out` for one has begun. tm_queue_drain() consumes
 * it: tm_op_wait() refuses it. tm_op_poll(), tm_op_fd(), tm_op_cancel() and tm_error() accept it
 * until then. Memory that the operation uses must stay valid until its event is drained. Never
 * fails for want of memory.
 *
 * - `user`: returned with the event, and not used otherwise.
 * - Errors, the operation is as before:
 *   - #TM_INVALID_ARGUMENT: the operation was consumed, is in a queue, or belongs to another
 *     context.
 *   - #TM_BUSY: another thread waits for it.
 *   - #TM_SHUT_DOWN.
 */
TIERMEM_API tm_status tm_queue_add(tm_queue* queue, tm_op op, void* user);

/**
 * Fills `events` with the ends of up to `n` operations, in the order in which they ended or were
 * added, whichever was later. Never waits. Several threads may drain at once: each event goes to
 * one of them.
 *
 * - `events`: room for `n` events (1 or more). Set `size` of the first one; all have that size.
 * - `out_count`: receives the number of events; 0 if no operation has ended.
 * - Result: #TM_OK also if operations failed. The last error of the thread stays.
 * - Errors: #TM_INVALID_ARGUMENT. #TM_SHUT_DOWN.
 */
TIERMEM_API tm_status tm_queue_drain(tm_queue* queue, tm_event* events, size_t n,
                                     size_t* out_count);

/* ---- What went wrong, what there is ---------------------------------------------------------- */

/** Everything needed to act on an error. A field that does not apply is 0 or "". */
typedef struct tm_error_info {
  size_t size;      /**< sizeof(tm_error_info). */
  tm_status status; /**< #TM_OK when there is no error. */
  int32_t native;   /**< errno, or the driver's code; 0 for none. */
  tm_place tier;    /**< The tier of the error. */
  tm_buffer buffer; /**< The buffer of the error. */
  uint64_t offset;  /**< Offset in the buffer; on the device if `tier` is a block tier. */
  uint64_t needed;  /**< Bytes asked for. */
  uint64_t budget;  /**< Budget of the tier in bytes. */
  uint64_t used;    /**< Bytes that the tier uses. */
  uint64_t pinned;  /**< Part of `used` that cannot move. */
  /**
   * Label of the buffer with the largest number of pinned bytes. Valid until this thread's next
   * call of any function except tm_status_name().
   */
  const char* holder;
  const char* setting; /**< The option to change, as it is spelled. Valid as long as `holder`. */
  char text[256];      /**< The message: one sentence, terminated. */
  /** Number of the device of `tier`, as in the option nvme; -1 for none. */
  int32_t device;
} tm_error_info;

/**
 * Fills `out` with an error.
 *
 * - `context`: may be NULL if `op` is 0.
 * - `op`: with 0, the last error of this thread, from any context; like errno, it stays until the
 *   thread's next failure. Otherwise the result of this operation, #TM_BUSY while it is in
 *   progress; a failure becomes the thread's last error. The operation is not consumed.
 * - Errors: #TM_INVALID_ARGUMENT: `out` is null, its `size` is not valid, or there is no such
 *   operation. The thread's last error stays unchanged.
 */
TIERMEM_API tm_status tm_error(tm_context* context, tm_op op, tm_error_info* out);

/**
 * Returns the name of a status without its prefix, such as "no_capacity", or "unknown". The string
 * is never NULL and stays valid forever.
 */
TIERMEM_API const char* tm_status_name(tm_status status);

/** Returns the version of the library, in the form of #TM_VERSION. */
TIERMEM_API uint32_t tm_version(void);

/** Counters since the context began. The unit is bytes, unless the text says otherwise. */
typedef struct tm_counters {
  size_t size;                /**< sizeof(tm_counters). */
  uint64_t dram_budget;       /**< Budget of the DRAM tier. */
  uint64_t dram_used;         /**< Bytes that the DRAM tier uses. */
  uint64_t dram_pinned;       /**< Part of `dram_used` that views pin. */
  uint64_t block_budget;      /**< Budget of the block tier; 0: there is none. */
  uint64_t block_used;        /**< Bytes that the block tier uses. */
  uint64_t buffers;           /**< Number of live buffers. */
  uint64_t extents;           /**< Number of extents of live buffers. */
  uint64_t misses;            /**< Number of acquires that had to wait. */
  uint64_t promoted;          /**< Bytes promoted on demand. */
  uint64_t demoted;           /**< Bytes written to slots. */
  uint64_t evicted_clean;     /**< Bytes evicted without a write. */
  uint64_t prefetched;        /**< Bytes promoted before a use; not in `promoted`. */
  uint64_t prefetched_unused; /**< Part of `prefetched` that was evicted before a use. */
  uint64_t io_errors;         /**< Number of requests that a device refused. */
  uint64_t io_retries;        /**< Number of requests that were repeated. */
  uint64_t checksum_errors;   /**< Number of reads that did not match their checksum. */
  uint64_t degraded_devices;  /**< Number of devices that get no writes at present. */
  uint64_t moved_by_uffd;     /**< Number of extents moved into windows by userfaultfd. */
  uint64_t moved_by_remap;    /**< Number of extents moved into windows by mremap. */
  uint64_t moved_in_place;    /**< Number of extents read directly into their windows. */
  uint64_t poisoned_touches;  /**< Number of touches of absent bytes without a view. */
  uint64_t steps;             /**< Number of steps of the mover, the thread that moves bytes. */
  /** 99th percentile of the duration of a step in nanoseconds, to within 2 %. */
  uint64_t step_ns_p99;
  uint64_t dropped;  /**< Bytes of droppable buffers that were dropped to make room. */
  uint64_t faults;   /**< Number of touches of absent pages of mapped buffers. */
  uint64_t recalled; /**< Number of mapped extents that were touched again while they left. */
  /** Number of mapped extents that stayed, because pages were locked for I/O. */
  uint64_t withdrawals_refused;
  uint64_t fault_wait_ns; /**< Nanoseconds that all threads together waited for `faults`. */
  uint64_t placed_used;   /**< Bytes in live objects of tm_malloc(). */
  uint64_t placed_held;   /**< Bytes in the buffers that hold these objects. */
  uint64_t moved_by_copy; /**< Number of extents, or parts of one, copied into windows. */
  uint64_t gpu_budget;    /**< Budget of all GPU tiers together; 0: there is none. */
  uint64_t gpu_used;      /**< Bytes that the GPU tiers use. */
  uint64_t gpu_pinned;    /**< Part of `gpu_used` that views pin. */
  uint64_t gpu_bytes_in;  /**< Bytes copied to GPUs. */
  uint64_t gpu_bytes_out; /**< Bytes copied from GPUs. */
  uint64_t gpu_placed;    /**< Bytes in live objects of tm_malloc() on GPUs. */
  uint64_t gpu_paused;    /**< Part of `gpu_placed` that tm_gpu_pause() moved off its device. */
  /** Number of reads that tm_gather(), and tm_copy() without promoting, submitted to devices. */
  uint64_t gather_reads;
  uint64_t gather_bytes; /**< Bytes of these reads; not in `promoted`. */
  /** Part of both GPU byte counts: to and from DRAM that is not page-locked. */
  uint64_t gpu_bytes_pageable;
  uint64_t gpu_bytes_staged; /**< Part of both: through the staging, as between device and disk. */
  uint64_t gpu_bytes_peer;   /**< Part of both, so counted twice: directly between two GPUs. */
  uint64_t host_bytes_in;  /**< Bytes that entered host memory from block tiers, files and GPUs. */
  uint64_t host_bytes_out; /**< Bytes that left host memory for block tiers and GPUs. */
  /**
   * Absent bytes of the ranges, rows and touched pages that callers asked for. Bytes that a
   * prefetch brings are not included.
   */
  uint64_t demanded;
  /** Part of `gpu_bytes_in`: from the block tier without a copy in host memory. */
  uint64_t gpu_direct_in;
  /** Part of `gpu_bytes_out`: to the block tier without a copy in host memory. */
  uint64_t gpu_direct_out;
  /** Number of such copies that failed and were repeated through the host. */
  uint64_t gpu_direct_errors;
  /**
   * Memory of the records of used extents. The part above 1 MiB is charged to the DRAM budget and
   * counts in `dram_used`.
   */
  uint64_t metadata_bytes;
} tm_counters;

/** Fills `out` with the context's counters. */
TIERMEM_API tm_status tm_stats(tm_context* context, tm_counters* out);

/**
 * The figures of one tier of a context, in bytes. The fields `dram_*`, `block_*`, `gpu_budget`,
 * `gpu_used` and `gpu_pinned` of ::tm_counters have the same figures, and remain for one release.
 */
typedef struct tm_tier_counters {
  size_t size;        /**< sizeof(tm_tier_counters). */
  tm_place tier;      /**< The tier. */
  uint32_t reserved;  /**< 0. */
  uint64_t budget;    /**< 0 for adopted files, which have none. */
  uint64_t used;      /**< 0 for adopted files. */
  uint64_t pinned;    /**< Part of `used` that views pin; 0 for tiers without views. */
  uint64_t bytes_in;  /**< Bytes that came from other tiers. */
  uint64_t bytes_out; /**< Bytes that went to other tiers. */
} tm_tier_counters;

/**
 * Fills `out` with the figures of one tier.
 *
 * - `i`: from 0 to the number of tiers of the context, which is `tiers` in ::tm_capabilities.
 * - Errors: #TM_INVALID_ARGUMENT: the context has no tier with this number.
 */
TIERMEM_API tm_status tm_stats_tier(tm_context* context, uint32_t i, tm_tier_counters* out);

/** The buffers with one label, and where their bytes are. Sums of ::tm_residency, except `tiers`.
 */
typedef struct tm_label_counters {
  size_t size;       /**< sizeof(tm_label_counters). */
  char label[32];    /**< The label, terminated; "" for buffers without one. */
  uint64_t buffers;  /**< Number of buffers. */
  uint64_t bytes;    /**< Their length. */
  uint64_t resident; /**< Bytes that the CPU can address. */
  uint64_t dirty;    /**< Part of `resident` that no block tier holds yet. */
  uint64_t in_slots; /**< Bytes with their newest copy in a block tier. */
  uint64_t zero;     /**< Bytes never written. */
  uint64_t pinned;   /**< Bytes pinned by views. */
  uint64_t lost;     /**< Lost bytes: reading them is #TM_LOST. */
  /**
   * Bytes in each tier, in the order of tm_stats_tier(). A byte counts once for each copy with its
   * newest value.
   */
  uint64_t tiers[16];
} tm_label_counters;

/**
 * Sums up where the bytes of all buffers are, by the label given at allocation: the label with the
 * largest number of bytes first. Memory of tm_malloc() has the label "malloc".
 *
 * Each buffer is counted at one moment. The mover serves other requests between buffers, so bytes
 * that move during the call may be counted twice or not at all.
 *
 * - `list`: room for `n` labels; may be NULL if `n` is 0. Set `size` of the first one; all have
 *   that size.
 * - `out_count`: receives the number of labels, which may be above `n`: the first `n` are filled.
 * - Errors: #TM_INVALID_ARGUMENT. #TM_SHUT_DOWN.
 */
TIERMEM_API tm_status tm_stats_by_label(tm_context* context, tm_label_counters* list, size_t n,
                                        size_t* out_count);

/**
 * Writes one JSON object to `text`: the counters of tm_stats() by name, and receipts of transfers.
 * docs/receipts.md describes it.
 *
 * - `last`: max number of receipts; the newest ones are written.
 * - `text`: memory for `room` bytes, including the terminating zero. With NULL the call returns
 *   only the length. Allocate some more than that, because the text grows.
 * - `out_length`: receives the length in bytes without the terminating zero.
 * - Errors: #TM_NO_CAPACITY: `room` is too small.
 */
TIERMEM_API tm_status tm_stats_json(tm_context* context, uint32_t last, char* text, size_t room,
                                    size_t* out_length);

/** The state of bytes. */
enum {
  TM_STATE_ZERO = 0,     /**< Never written. */
  TM_STATE_RESIDENT = 1, /**< In the memory that `place` names. */
  TM_STATE_IN_SLOT = 2,  /**< Only in the block tier or in an adopted file. */
  TM_STATE_MOVING = 3,   /**< A transfer is in progress. */
  TM_STATE_LOST = 4      /**< Lost: damaged on a device, or dropped. */
};

/** The reason for a movement. */
enum {
  TM_REASON_NONE = 0,     /**< No movement, or none recent enough: option `receipts`. */
  TM_REASON_DEMAND = 1,   /**< A caller waited for the bytes. */
  TM_REASON_PREFETCH = 2, /**< Promoted before a use. */
  TM_REASON_ROOM = 3,     /**< Moved to make room for bytes that a caller waited for. */
  TM_REASON_AHEAD = 4,    /**< Moved to make room before any caller waited. */
  TM_REASON_ASKED = 5,    /**< tm_evict(), tm_migrate(), advice, tm_gpu_pause(). */
  TM_REASON_GIVEN_UP = 6  /**< Given up: no caller needs the bytes. */
};

enum {
  TM_WHERE_DIRTY = 1,   /**< No slot holds the bytes yet. */
  TM_WHERE_PINNED = 2,  /**< Views pin the bytes. */
  TM_WHERE_BUFFERED = 4 /**< The transfer used the page cache. */
};

/** The path of bytes to or from the memory of a GPU. */
enum {
  TM_PATH_NONE = 0,   /**< The transfer did not involve a GPU, or copied no byte. */
  TM_PATH_LOCKED = 1, /**< The device accessed page-locked DRAM where the bytes live. */
  /** Through staging memory in DRAM: to or from a block tier, a file or another GPU. */
  TM_PATH_STAGED = 2,
  TM_PATH_PAGEABLE = 3, /**< DRAM that could not be page-locked: the driver made one more copy. */
  TM_PATH_PEER = 4,     /**< Directly from one GPU to another. */
  TM_PATH_DIRECT = 5    /**< Between a GPU and the block tier without a copy in host memory. */
};

/** Where bytes are, since when, and which movement brought them there or removed them. */
typedef struct tm_whereabouts {
  size_t size;       /**< sizeof(tm_whereabouts). */
  uint32_t state;    /**< One of #TM_STATE_ZERO to #TM_STATE_LOST. */
  uint32_t flags;    /**< #TM_WHERE_DIRTY, #TM_WHERE_PINNED, #TM_WHERE_BUFFERED. */
  tm_place place;    /**< Place of the newest bytes; #TM_ANY for zero and lost. */
  uint32_t reason;   /**< Reason of the last movement: #TM_REASON_NONE to #TM_REASON_GIVEN_UP. */
  int64_t since_ns;  /**< Nanoseconds since the movement ended; -1 for no movement. */
  int64_t took_ns;   /**< Nanoseconds from the decision to the end of the movement. */
  uint64_t bytes;    /**< Bytes moved. */
  uint32_t requests; /**< Number of requests submitted to a device. */
  uint32_t retries;  /**< Number of these that were repeated. */
  uint32_t depth;    /**< Number of extents in progress on the device, including this one. */
  uint32_t path;     /**< One of #TM_PATH_NONE to #TM_PATH_DIRECT. */
  char text[208];    /**< All of it as one sentence, terminated. */
} tm_whereabouts;

/**
 * Fills `out` with the location of the byte at `offset` of a buffer, and the reason for it.
 *
 * - Errors: #TM_STALE_HANDLE. #TM_INVALID_ARGUMENT: `offset` is beyond the end of the buffer.
 */
TIERMEM_API tm_status tm_why(tm_context* context, tm_buffer buffer, uint64_t offset,
                             tm_whereabouts* out);

/** The capabilities of this build and, with a context, of this machine. */
typedef struct tm_capabilities {
  size_t size;              /**< sizeof(tm_capabilities). */
  uint32_t version;         /**< Version of the library, as from tm_version(). */
  uint32_t kinds_known;     /**< Bit 1 << kind for each kind of tier that this build has. */
  uint32_t kinds_here;      /**< The same for this context; 0 without a context. */
  uint32_t spaces;          /**< Number of address spaces: the host's, and one for each GPU. */
  uint64_t extent_smallest; /**< Min extent_bytes of a buffer. */
  uint64_t extent_largest;  /**< Max extent_bytes of a buffer. */
  uint64_t extent_default;  /**< Extent size of a large buffer that does not specify one. */
  uint64_t buffer_largest;  /**< Max bytes of a buffer, with extents of extent_largest. */
  uint64_t ops_most; /**< Max number of operations per context that have not been waited for. */
  uint64_t flags;    /**< #TM_CAN_CHECKSUM to #TM_CAN_SEE_TOUCHES. */
  /**
   * Max number of extents of one buffer. The largest buffer with extents of `extent_bytes` has
   * extents_per_buffer * extent_bytes bytes, or 2^47 if that is less.
   */
  uint64_t extents_per_buffer;
  uint32_t tiers;    /**< With a context: its number of tiers, for tm_stats_tier(). */
  uint32_t reserved; /**< 0. */
} tm_capabilities;

enum {
  TM_CAN_CHECKSUM = 1,    /**< Block tiers have checksums. With a context: checksums are on. */
  TM_CAN_ADOPT_FILE = 2,  /**< tm_adopt_file() is supported. */
  TM_CAN_MAP = 4,         /**< With a context: #TM_MAPPED is supported. */
  TM_CAN_CUDA_STREAM = 8, /**< With a context: it has a GPU, so #TM_STREAM_CUDA is supported. */
  TM_CAN_IO_URING = 16,   /**< With a context: it uses io_uring. */
  TM_CAN_HUGE_PAGES = 32, /**< With a context: it gets huge pages. */
  TM_CAN_MOVE_PAGES = 64, /**< With a context: extents enter windows without a copy. */
  /** With a context: touches of absent bytes without a view are detected. */
  TM_CAN_SEE_TOUCHES = 128
};

/**
 * Fills `out` with the capabilities.
 *
 * - `context`: NULL reports those of the build only.
 */
TIERMEM_API tm_status tm_caps(tm_context* context, tm_capabilities* out);

#ifdef __cplusplus
}
#endif
#endif
