// The C++ interface: Context, Buffer, View, Op. They are move-only owners over the records of
// types.hpp. Any thread may call any function unless its documentation says otherwise. No function
// throws.
#pragma once

#include <atomic>
#include <cstdint>
#include <iterator>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tiermem/receipt.hpp"
#include "tiermem/status.hpp"
#include "tiermem/types.hpp"

namespace tiermem {

class Buffer;
class View;
class Op;

/// Options of Context::create().
struct ContextOptions {
  const char* toml = nullptr;  ///< Path of a TOML file; the spec string overrides the file.
  const char* name = nullptr;  ///< Name of the context in messages; copied.
};

/// The kind of a tick: one operation of the program, such as a layer, or one step, such as a token.
enum class Tick : std::uint32_t { op = 0, step = 1 };

/// One copy of Context::copy(): between `bytes` bytes of a buffer, from `offset` on, and memory of
/// the caller. Its layout is that of tm_copy_item.
struct CopyItem {
  Handle buffer = 0;
  std::uint64_t offset = 0;
  void* memory = nullptr;      ///< The target for kRead, the source for kWrite.
  std::uint64_t bytes = 0;     ///< 0: the item does nothing.
  std::uint32_t mode = kRead;  ///< kRead: out of the buffer. kWrite: into the buffer.
  Code code = Code::ok;        ///< Result.
};
static_assert(sizeof(CopyItem) == 40);

/// Flags of Context::copy().
enum CopyFlags : std::uint32_t {
  /// Bytes that are read and not in memory are read from below without promoting them, and memory
  /// keeps what it has. Where the target is aligned to 4 KiB, the device writes it directly.
  kNoPromote = 1,
};

/// A set of tiers with one mover. The destructor releases everything; call close() first to learn
/// of views that are still held.
///
/// Lifetime:
///
/// - A Buffer, View, Op or Stream may outlive its context. Its calls then return `shut_down`, and
///   its destructor does nothing. A few bytes of each destroyed context remain allocated for this.
/// - Other threads may be inside a call, or begin one, while the context is destroyed. The call
///   ends, with `shut_down` if it comes too late.
/// - A pointer to bytes of a destroyed context is invalid, as after free().
/// - Handles, views and operations belong to the context that created them. Every other context
///   refuses them, and the message says so: `stale_handle` for a buffer, `invalid_argument` for a
///   view, an operation or a pointer of malloc_at().
/// - A process has up to 4,000 contexts at a time.
///
/// Arguments that overlap:
///
/// - The memory of an argument may lie in a view or in a mapped buffer, including the buffer that
///   the call is about. read(), write(), gather(), gather_into() and scatter() refuse a source and
///   a target that overlap in one buffer with invalid_argument, and copy nothing.
/// - A list may name the same bytes several times, in any modes. Bytes that one range discards and
///   another reads or writes are kept. advise(), evict() and prefetch() process each extent once.
/// - A view that a list releases twice is released once, and the result is invalid_argument.
/// - Another thread may change a list during the call. The call checks each range and row when it
///   uses it. It uses the changed entries or returns invalid_argument, and never leaves its
///   buffers.
///
/// Threads: pthread_cancel() takes effect after a call, never inside it. Asynchronous cancellation
/// must be off.
///
/// Errors: a call that cannot allocate its records returns no_capacity and leaves nothing behind.
class TIERMEM_API Context {
 public:
  class TIERMEM_LOCAL Impl;

  /// Creates a context.
  ///
  /// - `tiers`: a spec string such as "dram=4G; nvme=/data/a:100G". An empty one uses the
  ///   environment variable `TIERMEM_TIERS`; if that is not set, tiermem uses what the machine
  ///   offers.
  /// - Errors: invalid_argument names the option, its value and the accepted values; no_capacity;
  ///   unavailable.
  static Result<std::unique_ptr<Context>> create(std::string_view tiers = {},
                                                 const ContextOptions& options = {});
  Context(const Context&) = delete;  // Buffers, views and operations point to it.
  Context& operator=(const Context&) = delete;
  /// Ends the context, as close(true) does, and frees its resources. The object itself remains:
  /// objects that point to it find that the context has ended.
  static void operator delete(Context* context, std::destroying_delete_t) noexcept;

  /// Closes the context. While views are held it returns `busy` and lists the label, holder and age
  /// of each. With `force` it proceeds: views end, and later calls return `shut_down`.
  ///
  /// - `timeout`: the max time for transfers in progress to end.
  /// - Errors: busy; timed_out.
  Status close(bool force = false, Timeout timeout = Timeout::seconds(10));

  /// Allocates a buffer of `bytes` bytes, which reads as zeros. It uses no memory until it is
  /// touched.
  Result<Buffer> alloc(std::uint64_t bytes, const BufferOptions& options = {});
  /// Creates a read-only buffer over a file. The file is the cold copy, so eviction writes nothing.
  /// A store through a host view raises SIGSEGV. With kPrivate views may write, and the written
  /// bytes belong to the buffer.
  ///
  /// With kMapped the program touches the file at address() without views. Byte 0 is at an address
  /// with `address % 4096 == offset % 4096`, so data that is aligned in the file is aligned in
  /// memory. A touch of absent bytes reads their extent from the file. If the file has changed, the
  /// touch raises SIGBUS; it never reads zeros instead. Pages that the program empties
  /// (MADV_DONTNEED) are read from the file again, and with kPrivate they are zeros. A store raises
  /// SIGSEGV, unless kPrivate is set.
  ///
  /// The file must not change while the buffer exists. Each read compares its size, its
  /// modification time, and the bytes that were read before. A change of name, mode, owner or
  /// access time is allowed, and so is a deletion.
  ///
  /// - `length`: 0 means up to the end of the file.
  /// - Errors:
  ///   - io_error with errno.
  ///   - invalid_argument: there is no such file, or the range is outside it; `offset` is not a
  ///     multiple of BufferOptions::alignment.
  ///   - unsupported: a flag that adopted files do not have; kMapped without kPrivate where
  ///     userfaultfd is refused.
  Result<Buffer> adopt_file(const char* path, std::uint64_t offset = 0, std::uint64_t length = 0,
                            const BufferOptions& options = {});
  /// Creates a buffer with a copy of device memory that the program owns. The device copies the
  /// bytes piece by piece. The memory may be larger than the GPU's budget: tiermem then moves
  /// pieces to other tiers, as it does for any buffer.
  ///
  /// - `memory`: the caller keeps it, and may free or change it once the stream reaches this point.
  ///   In host order the device must have finished with it before the call, and the copies have
  ///   ended when the call returns.
  /// - `timeout`: the max wait for room. Room may depend on pieces that the stream has yet to copy.
  /// - Errors:
  ///   - invalid_argument: a byte of `memory` does not belong to that GPU.
  ///   - unavailable: the context does not have that GPU, or the GPU is lost.
  ///   - The errors of alloc(), and for the GPU and the stream those of acquire().
  ///
  /// No buffer exists after an error; the result of copies that are already queued on the stream is
  /// unused.
  Result<Buffer> adopt_device(Place gpu, const void* memory, std::uint64_t bytes,
                              const StreamOrder& order = {}, Timeout timeout = Timeout::forever(),
                              const BufferOptions& options = {});
  /// Frees a buffer. The handle is stale at once; the bytes live until the last view and transfer
  /// end.
  Status free(Handle buffer);

  /// Pins one range of host memory if it is resident, and fills the view. Never waits. This is the
  /// fastest way to resident bytes. Returns false, and changes nothing, if the range cannot be
  /// pinned for any reason; acquire() returns the reason.
  bool hit(const Access& access, ViewRecord& view) noexcept;
  /// Releases one view. Returns false if the view is not held.
  bool end_view(const ViewRecord& view) noexcept;
  /// Pins all ranges or none: room for all is reserved before the first is pinned. Ranges may
  /// overlap: bytes that one range discards and another reads are kept.
  ///
  /// - `views`: one ViewRecord for each range.
  /// - `order`: with a stream, the views are for the work that the stream is given from now on. The
  ///   stream itself waits for copies to a GPU that are in progress.
  /// - Errors for a stream: unsupported: the stream is being captured, or the context has no GPU.
  ///   invalid_argument: the stream belongs to no GPU of the context.
  Status acquire(std::span<const Access> list, Timeout timeout, std::span<ViewRecord> views,
                 const StreamOrder& order = {}) {
    if (list.size() == 1 && !views.empty() && order.is_host() && hit(list[0], views[0]))
        [[likely]] {
      return {};
    }
    return acquire_list(list, timeout, views, order);
  }
  /// Releases views.
  ///
  /// - `after`: with a stream, the views end at once, and the call does not wait. Their bytes move,
  ///   are given up, or become readable for others only after the stream has finished all its work
  ///   so far.
  /// - Errors: invalid_argument: a view is not held (forged, or released twice, also by one list);
  ///   the other views of the list are released. For a stream those of acquire(): all views stay
  ///   held.
  Status release(std::span<const ViewRecord> views, const StreamOrder& after = {}) {
    if (views.size() == 1 && after.is_host() && end_view(views[0])) [[likely]] {
      return {};
    }
    return release_list(views, after);
  }
  /// Releases one view in a destructor. If the release fails, the view stays held until the context
  /// is closed by force, and the log has the reason.
  void drop_view(const ViewRecord& view, const StreamOrder& after) noexcept;
  /// Starts acquire() without waiting.
  ///
  /// - `views`: must stay valid until the operation has completed, which fills it.
  Result<Op> acquire_async(std::span<const Access> list, std::span<ViewRecord> views,
                           const StreamOrder& order = {});
  /// Promotes ranges before they are used.
  ///
  /// - `op`: may be null; otherwise it completes when the ranges are resident or were given up.
  /// - Errors: for bad arguments only.
  Status prefetch(std::span<const Access> list, std::uint64_t next_use = 0, Op* op = nullptr);
  /// Writes dirty extents to a lower tier, frees their frames, and waits until this is done.
  ///
  /// - Errors: busy: some extents are pinned, and stay.
  Status evict(std::span<const Access> list, Timeout timeout = Timeout::forever());
  /// Moves ranges to a tier, and waits until they are there. A promotion differs from a prefetch in
  /// that it reports its result.
  ///
  /// - `to`: `dram` or `block`.
  Status migrate(std::span<const Access> list, Place to, Timeout timeout = Timeout::forever());
  /// Gives a hint for ranges. `value` is for the hints that define one; else 0.
  ///
  /// - Errors: those of bad ranges. unavailable: Advice::preferred, and the context does not have
  ///   the tier that a range names. io_error: Advice::dont_need of a part of an extent of a file
  ///   that has changed or cannot be read.
  Status advise(std::span<const Access> list, Advice advice, std::uint64_t value = 0);
  /// Copies bytes of a buffer to `to`. The calling thread copies, one extent after the other: the
  /// result is not one atomic snapshot.
  ///
  /// - Errors: those of acquire(). invalid_argument: `to` is memory of the range itself.
  Status read(Handle buffer, std::uint64_t offset, void* to, std::uint64_t length,
              Timeout timeout = Timeout::forever());
  /// Copies `from` into a buffer. Otherwise the same as read().
  Status write(Handle buffer, std::uint64_t offset, const void* from, std::uint64_t length,
               Timeout timeout = Timeout::forever());
  /// Copies each item of a list, out of its buffer or into it. The reads of the list are under way
  /// together. The order of the copies is unspecified, and the result is not one atomic snapshot.
  ///
  /// - `list`: each item receives its own code.
  /// - `flags`: 0 or kNoPromote. With kNoPromote, whole blocks of a target that is aligned to 4 KiB
  ///   and not memory of a mapped buffer are read into it directly by the device, and are checked
  ///   there. A block is as for gather(). Other bytes come through staging memory, as for gather().
  ///   Bytes of which the newest copy is not only in a slot or a file are promoted as by read().
  /// - `op`: may be null; otherwise a thread of the context does the work, several such calls at a
  ///   time. The list and its memory must then stay valid until the operation has completed, and
  ///   must not be memory of mapped buffers.
  /// - `timeout`: counts from this call on. A read that a device has begun is waited for, also
  ///   beyond the timeout, after a cancel, and by close(): its memory is the caller's again only
  ///   then.
  /// - Result: ok if every item is copied, else the first error in the order of the list.
  /// - Errors of an item: those of read() or write(). After an error its memory is unspecified.
  ///   invalid_argument: also for its mode. busy: the timeout is 0 and its bytes are not in memory.
  /// - Errors of the call, nothing is copied: invalid_argument: an unknown flag. busy: too many
  ///   operations are in progress.
  Status copy(std::span<CopyItem> list, std::uint32_t flags = 0,
              Timeout timeout = Timeout::forever(), Op* op = nullptr);
  /// Copies rows to `to`, one behind the other in the order of the list. Rows may overlap each
  /// other. Resident rows are copied from memory. For all other rows the call reads only the blocks
  /// that hold them. It submits as many reads as the devices take, promotes no extent, and keeps no
  /// other bytes. The result is not one atomic snapshot.
  ///
  /// A block is 4 KiB in a buffer allocated with Advice::random, or without checksums. In other
  /// buffers it is 64 KiB, because one checksum covers the whole block. The memory for these reads
  /// is charged to the DRAM budget: up to 4 MiB, or a sixteenth of the budget if that is less.
  ///
  /// - `op`: may be null; otherwise a thread of the context does the work, one such call after the
  ///   other. `rows.index` and `to` must then stay valid until the operation has completed, and
  ///   must not be memory of mapped buffers.
  /// - `timeout`: counts from this call on.
  /// - Errors:
  ///   - invalid_argument names the row; also for a row that overlaps `to`, and for a list that
  ///     overlaps it.
  ///   - Those of read(), with the row that failed.
  ///   - busy: the timeout is 0 and some row is not resident.
  ///   - shut_down: also for `op` in a child of fork(), if it was in progress at the fork.
  ///
  /// After an error it is unspecified which rows were copied.
  Status gather(const Rows& rows, void* to, Timeout timeout = Timeout::forever(), Op* op = nullptr);
  /// Copies rows into the buffer `to`, from `offset` on. Otherwise the same as gather().
  ///
  /// - Errors: those of gather() and write(). invalid_argument: `to` is the buffer of the rows, and
  ///   a row overlaps the range [offset, offset + count * row_bytes).
  Status gather_into(const Rows& rows, Handle to, std::uint64_t offset = 0,
                     Timeout timeout = Timeout::forever(), Op* op = nullptr);
  /// Overwrites rows with those at `from`, which lie one behind the other in the order of the list.
  /// For a row that the list repeats, the last value remains. The call promotes each extent that
  /// holds a row, once; these extents are written back when they leave memory.
  ///
  /// - `op`: as for gather().
  /// - Errors:
  ///   - Those of gather() and write().
  ///   - invalid_argument: a row overlaps `from` or the list.
  ///
  /// After an error it is unspecified which rows were written.
  Status scatter(const Rows& rows, const void* from, Timeout timeout = Timeout::forever(),
                 Op* op = nullptr);
  /// Moves the bytes of one range to another of the same length, as a realloc needs; the source
  /// range reads as zeros afterwards. Both ranges are in mapped buffers, and no other thread may
  /// touch them during the call. Waits.
  ///
  /// Whole extents that are not in memory change owner without I/O, under two conditions: both
  /// ranges begin at the same offset within an extent, and their buffers are alike (extent size,
  /// flags, domain). The calling thread copies everything else, and its touches may raise SIGBUS
  /// like any touch. Bytes of the source that views pin are copied too, and remain in the source.
  ///
  /// - Errors, nothing was moved:
  ///   - invalid_argument: a range is beyond its buffer, or both are of one buffer.
  ///   - stale_handle.
  ///   - unsupported: a buffer is not kMapped, or is an adopted file.
  Status move_bytes(Handle to, std::uint64_t to_offset, Handle from, std::uint64_t from_offset,
                    std::uint64_t length);
  /// Marks an operation or a step of the program, and returns its ordinal.
  std::uint64_t tick(Tick kind);

  /// Returns the address of a mapped buffer: byte 0 of the whole buffer, fixed for its life. Any
  /// thread may touch it without views. If absent bytes cannot be brought, the touch raises SIGBUS,
  /// and the log has the reason (option `log`, off by default).
  ///
  /// System calls on absent bytes work where userfaultfd may serve kernel faults (`tiermem topo`);
  /// elsewhere they return EFAULT. Without userfaultfd a touch of absent bytes raises SIGSEGV,
  /// which the library handles. A handler that the program installs later must call the previous
  /// one, and no thread may block the signal.
  ///
  /// With the option `fork=follow` a child of fork() has the same buffers at the same addresses,
  /// with the bytes as of the fork. Later writes of parent and child are separate. Without the
  /// option, or if the child could not follow, its touch raises SIGSEGV. Other buffers are stale.
  ///
  /// Use Advice::dont_need to give up bytes. tiermem may miss the program's own MADV_DONTNEED on a
  /// page that is leaving memory.
  ///
  /// - Errors: stale_handle. unsupported: the buffer is not kMapped.
  Result<std::byte*> address(Handle buffer) const;
  /// Returns the buffer and the offset of the byte at an address: in a mapped buffer, or in memory
  /// that a view pins. For programs that know a pointer, such as that of a tensor, and no handle.
  ///
  /// - `address`: an address of the host. It is not touched.
  /// - Time: short for a mapped buffer. For another address it grows with the number of buffers.
  /// - Errors: invalid_argument: no buffer of this context has a byte there, or it belongs to an
  ///   object of malloc_at(), which has no handle. The hints by address accept such objects.
  Result<Position> find(const void* address) const;
  // Hints by address, for ranges of mapped buffers and of objects of malloc_at({any, 0}), as
  // madvise() takes them. A range may cross buffers that lie next to each other; 0 bytes do
  // nothing. A range with a byte in none of them is invalid_argument, which names the first such
  // address, and nothing happens. Other errors, and threads, are those of the call with handles.
  /// Does prefetch() for a range of addresses.
  Status prefetch_at(const void* address, std::uint64_t bytes, std::uint64_t next_use = 0,
                     Op* op = nullptr);
  /// Does evict() for a range of addresses.
  Status evict_at(const void* address, std::uint64_t bytes, Timeout timeout = Timeout::forever());
  /// Does advise() for a range of addresses. dont_need gives up exactly these bytes, without
  /// rounding to pages.
  Status advise_at(const void* address, std::uint64_t bytes, Advice advice,
                   std::uint64_t value = 0);
  /// Returns the device address of a buffer in a GPU's memory: byte 0 of the whole buffer, fixed
  /// for the rest of its life. Every later view of the buffer on that GPU is at this address plus
  /// its offset. Bytes that no view pins may be elsewhere, and the device must not touch them. The
  /// call reserves addresses, not memory. The first view of several extents reserves them too.
  ///
  /// - Errors:
  ///   - stale_handle.
  ///   - unavailable: the context has no such GPU.
  ///   - no_capacity: the driver has no room for the addresses.
  ///   - unsupported: the buffer is mapped, its extents are below 2 MiB, or the place is not a GPU.
  Result<std::byte*> address_on(Handle buffer, Place where);

  /// Allocates an object: at least `bytes` bytes of memory with unspecified content. For 0 bytes
  /// the pointer can be freed. The object is valid in every thread until free_ptr(), or until the
  /// context is closed.
  ///
  /// Where the object lives depends on `place`:
  ///
  /// - {dram, 0} or {host, 0}: the object stays in DRAM, as if a view pinned it.
  /// - {any, 0}: the object is memory of mapped buffers, so objects may exceed DRAM, and a touch
  ///   behaves as for address(). Where there are no mapped buffers, the object stays in DRAM.
  /// - {numa, n} or {pmem, n} of the context: the object stays in this memory. If its budget is
  ///   full, the bytes of buffers leave it, and the object never goes to another memory.
  /// - {gpu, 0}: the object is device memory, as from cudaMalloc(), in whole pieces of 2 MiB. Its
  ///   device address never changes. Its bytes stay on the device, except while gpu_pause() has
  ///   moved them. The object belongs to the set that gpu_tag() last named in the calling thread.
  ///
  /// Every object is charged to the budgets. The call waits for room that other bytes hold: up to
  /// 10 seconds for a GPU, 1 second elsewhere, and 1 second more for each 128 MiB of the object.
  /// With fork=follow a child of fork() has the objects of {any, 0}. Others stay with the parent.
  ///
  /// - `alignment`: a power of two up to 64 MiB, and not above the budget of the memory.
  /// - Errors:
  ///   - invalid_argument.
  ///   - unsupported: the processor cannot address the place, or {any, 0} cannot follow a fork.
  ///   - unavailable: the context lacks the place.
  ///   - no_capacity.
  Result<void*> malloc_at(Place place, std::uint64_t bytes, std::uint64_t alignment = 16);
  /// Allocates an object of `count` times `bytes` bytes, which are zeros. A large object of
  /// {any, 0} uses no memory until it is written.
  ///
  /// - Errors: those of malloc_at(). invalid_argument: the product is above 2^47. unsupported: the
  ///   place is a GPU.
  Result<void*> calloc_at(Place place, std::uint64_t count, std::uint64_t bytes,
                          std::uint64_t alignment = 16);
  /// Changes the size of an object from malloc_at(), calloc_at() or realloc_at() to at least
  /// `bytes` bytes, and returns it. The bytes up to the smaller of both sizes are the same; those
  /// beyond are unspecified. If the object has room and is aligned, it stays where it is, whatever
  /// `place` is. Otherwise the bytes are copied to a new object in `place`, and `block` is freed.
  /// For null the call is malloc_at(). For 0 bytes the result is an object that can be freed.
  ///
  /// - Errors, `block` is unchanged and still valid: those of malloc_at(). invalid_argument names
  ///   the address of a block that is not an object. unsupported: `place` or `block` is on a GPU.
  Result<void*> realloc_at(Place place, void* block, std::uint64_t bytes,
                           std::uint64_t alignment = 16);
  /// Frees an object from malloc_at() of this context. Null is accepted.
  ///
  /// - `after`: with a stream, frees memory of a GPU once the stream has finished all work it was
  ///   given so far. Otherwise the GPU must have finished with the memory before the call.
  /// - Errors: invalid_argument names the address: it is not an object of this context, was freed
  ///   before, or is host memory with a stream. If the address has since been allocated again, the
  ///   call frees the new object. For a stream those of acquire(): the object is not freed.
  Status free_ptr(void* block, const StreamOrder& after = {});
  /// Returns the number of usable bytes from `block` on, which is at least the size asked for.
  ///
  /// - Errors: those of free_ptr(); null is invalid_argument. stale_handle: it is the parent's.
  Result<std::uint64_t> usable_size(const void* block) const;

  /// Sets the set for GPU objects that the calling thread allocates with malloc_at() from now on,
  /// in any context.
  ///
  /// - `tag`: name of the set, of which 31 characters are kept. Null or "" means no set.
  static void gpu_tag(const char* tag) noexcept;
  /// Moves a set of GPU objects off their devices, and returns their memory to the driver. The
  /// bytes go to DRAM where it has room, and else to the block tier. The addresses stay reserved;
  /// nothing may use them until gpu_resume() has brought the bytes back.
  ///
  /// - `tag`: name of the set. Null means all sets; "" means the objects of no set.
  /// - `bytes`: 0 means the whole set. Otherwise the objects allocated first, until they hold
  ///   `bytes` bytes.
  /// - `op`: with null the call waits for the end. Otherwise the operation completes when every
  ///   byte has left or has failed to leave.
  /// - `after`: a stream; its work so far must finish first. In host order the devices must have
  ///   finished with the memory before the call.
  /// - Errors, nothing changes:
  ///   - unsupported: there is no GPU.
  ///   - invalid_argument names the sets that exist.
  ///   - busy: a part of the set is already moving.
  ///   - For a stream those of acquire().
  /// - Errors, some bytes could not leave: no_capacity or io_error. These bytes count as paused
  ///   too, and gpu_resume() resumes them.
  Status gpu_pause(const char* tag, std::uint64_t bytes = 0, Op* op = nullptr,
                   const StreamOrder& after = {});
  /// Moves paused objects back to their addresses: the whole set, or the objects allocated first
  /// until they hold `bytes` bytes. Moves all of these or none.
  ///
  /// - Errors: those of gpu_pause(). no_capacity, io_error or lost: the bytes cannot come back, and
  ///   all of them stay paused.
  Status gpu_resume(const char* tag, std::uint64_t bytes = 0, Op* op = nullptr);

  /// Returns where the bytes of a buffer are. Errors: stale_handle.
  Result<BufferInfo> info(Handle buffer) const;
  /// Changes the budget of a tier. A smaller budget of a memory evicts bytes, and the call waits for
  /// these evictions. The old budget stays if the new one cannot be reached before the timeout. A
  /// smaller budget of a block tier takes effect as slots there become free, without a wait.
  ///
  /// - `tier`: dram, block or a GPU of the context.
  /// - Errors: no_capacity: pinned bytes prevent the change.
  Status set_budget(Place tier, std::uint64_t bytes, Timeout timeout = Timeout::seconds(10));
  /// Returns the counters since the context began; all 0 once the context has ended.
  Stats stats() const;
  /// Returns where the bytes of all buffers are, summed by their labels: the label with the largest
  /// number of bytes first. Memory of malloc_at() has the label "malloc".
  ///
  /// - Each buffer is counted at one moment. The mover serves other requests between buffers, so
  ///   bytes that move during the call may be counted twice or not at all.
  /// - Errors: shut_down.
  Result<std::vector<LabelStats>> stats_by_label() const;
  /// Returns one JSON object: the counters of stats() by name, and receipts of transfers
  /// (docs/receipts.md).
  ///
  /// - `last`: max number of receipts; the newest ones are returned.
  /// - Errors: shut_down.
  Result<std::string> stats_json(std::uint32_t last = 64) const;
  /// Returns where the bytes at `offset` are, since when, and which movement brought them there or
  /// removed them.
  ///
  /// - Errors: stale_handle. invalid_argument: `offset` is beyond the end of the buffer.
  Result<Whereabouts> why(Handle buffer, std::uint64_t offset) const;

  /// Waits, and consumes a completed operation. After timed_out it is still in progress, unless its
  /// own timeout was over: op_poll() then answers invalid_argument, as it was consumed.
  Status op_wait(OpHandle op, Timeout timeout);
  /// Returns `busy` while in progress; consumes a completed operation. `busy` is never the result
  /// of an operation: one that would have to wait, and has the timeout 0, ends with timed_out.
  Status op_poll(OpHandle op);
  /// Returns a new descriptor for poll, epoll or io_uring. It is readable once the operation has
  /// completed, also after the operation was consumed. It does not carry the result.
  ///
  /// - Ownership: the caller closes the descriptor.
  /// - Errors: invalid_argument. no_capacity: the process has no descriptors left.
  Result<int> op_fd(OpHandle op);
  Status op_cancel(OpHandle op);  ///< Completes with `cancelled`, unless it completes first.

  Impl& impl() noexcept { return *impl_.load(std::memory_order_acquire); }

 private:
  friend class CallMark;
  explicit Context(Impl* impl) noexcept : impl_(impl) {}
  Status acquire_list(std::span<const Access> list, Timeout timeout, std::span<ViewRecord> views,
                      const StreamOrder& order);
  Status release_list(std::span<const ViewRecord> views, const StreamOrder& after);
  TIERMEM_LOCAL Status follow(Result<OpHandle> begun, Op* op);
  template <typename Call, typename... Target>
  TIERMEM_LOCAL Status run_rows(const Rows& rows, Op* op, Timeout timeout, Target... target);
  std::atomic<Impl*> impl_;  // Points to the tombstone once the context has ended.
};

/// A held view. The destructor releases it, after the work of the stream that it was acquired for.
/// It may move to another thread.
class View {
 public:
  View() = default;
  View(Context& context, const ViewRecord& record, const StreamOrder& order = {})
      : context_(&context), record_(record), order_(order) {}
  View(View&& other) noexcept
      : context_(other.context_), record_(other.record_), order_(other.order_) {
    other.context_ = nullptr;
  }
  View& operator=(View&& other) noexcept {
    if (this != &other) {
      release();
      context_ = other.context_;
      record_ = other.record_;
      order_ = other.order_;
      other.context_ = nullptr;
    }
    return *this;
  }
  ~View() { release(); }

  /// Returns the address of the first byte.
  std::byte* data() const noexcept { return static_cast<std::byte*>(record_.data); }
  /// Returns the length in bytes.
  std::uint64_t size() const noexcept { return record_.length; }
  std::span<std::byte> bytes() const noexcept { return {data(), size()}; }
  /// Returns the bytes as whole elements of type T.
  template <typename T>
  std::span<T> as() const noexcept {
    return {static_cast<T*>(record_.data), static_cast<std::size_t>(record_.length / sizeof(T))};
  }
  explicit operator bool() const noexcept { return context_ != nullptr; }
  /// Releases the view now. Does nothing if it is not held.
  void release() noexcept {
    if (context_ != nullptr) {
      if (order_.is_host()) [[likely]] {
        (void)context_->end_view(record_);
      } else {
        context_->drop_view(record_, order_);
      }
      context_ = nullptr;
    }
  }
  /// Releases the view after another stream, or now for StreamOrder{}. After an error it is still
  /// held.
  Status release_after(const StreamOrder& after) {
    Status status = context_ != nullptr ? context_->release({&record_, 1}, after) : Status();
    context_ = status.ok() ? nullptr : context_;
    return status;
  }

 private:
  Context* context_ = nullptr;
  ViewRecord record_{};
  StreamOrder order_{};
};

/// An operation. The destructor waits for its end, so that views are never filled after their owner
/// is gone.
class TIERMEM_API Op {
 public:
  Op() = default;
  Op(Context& context, OpHandle handle) : context_(&context), handle_(handle) {}
  Op(Op&& other) noexcept : context_(other.context_), handle_(std::exchange(other.handle_, 0)) {}
  Op& operator=(Op&& other) noexcept;
  ~Op();

  /// After timed_out the operation is still in progress while handle() is not 0. Otherwise that was
  /// its result.
  Status wait(Timeout timeout = Timeout::forever());
  Status poll();     ///< `busy` while it is in progress.
  Result<int> fd();  ///< See Context::op_fd.
  Status cancel();
  OpHandle handle() const noexcept { return handle_; }
  /// Releases the handle to the caller, which must wait for it through the Context.
  OpHandle detach() noexcept { return std::exchange(handle_, 0); }

 private:
  Context* context_ = nullptr;
  OpHandle handle_ = 0;
};

/// Iterates over chunks of a buffer in order, and prefetches the next ones: `for (auto& v :
/// buffer.stream(0, n, chunk, kRead))`.
class TIERMEM_API Stream {
 public:
  Stream(Context& context, Access range, std::uint64_t chunk, unsigned ahead);

  class iterator {
   public:
    explicit iterator(Stream* stream) : stream_(stream) {}
    View& operator*() const { return stream_->view_; }
    iterator& operator++() {
      stream_->next();
      return *this;
    }
    bool operator!=(std::default_sentinel_t) const { return !stream_->done_; }

   private:
    Stream* stream_;
  };
  iterator begin() {
    next();
    return iterator(this);
  }
  std::default_sentinel_t end() const { return {}; }
  /// Returns why the stream ended: ok at the end of the range.
  const Status& status() const noexcept { return status_; }
  /// Returns the offset of the current chunk in the buffer.
  std::uint64_t offset() const noexcept { return offset_; }

 private:
  void next();
  Context* context_;
  Access range_;
  std::uint64_t chunk_, cursor_, offset_ = 0, prefetched_;
  unsigned ahead_;
  bool done_ = false;
  Status status_;
  View view_;
};

/// Owns one buffer of a context. The destructor frees it.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Context& context, Handle handle, std::uint64_t bytes)
      : context_(&context), handle_(handle), bytes_(bytes) {}
  Buffer(Buffer&& o) noexcept
      : context_(o.context_), handle_(std::exchange(o.handle_, 0)), bytes_(o.bytes_) {}
  Buffer& operator=(Buffer&& o) noexcept {
    if (this != &o) {
      reset();
      context_ = o.context_;
      bytes_ = o.bytes_;
      handle_ = std::exchange(o.handle_, 0);
    }
    return *this;
  }
  ~Buffer() { reset(); }

  Handle handle() const noexcept { return handle_; }
  std::uint64_t size() const noexcept { return bytes_; }
  /// Undefined if this object owns no buffer.
  Context& context() const noexcept { return *context_; }

  /// Returns an Access for a range of this buffer on the host. `length` 0: up to the end.
  Access range(std::uint64_t offset = 0, std::uint64_t length = 0,
               std::uint32_t mode = kRead) const noexcept {
    return {handle_, offset, length, mode, {}, 0};
  }
  /// Acquires a view of a range on the host: see Context::acquire.
  Result<View> acquire(std::uint32_t mode, std::uint64_t offset = 0, std::uint64_t length = 0,
                       Timeout timeout = Timeout::forever()) const {
    return acquire_on({}, mode, offset, length, timeout);
  }
  /// Acquires a view in the memory of a GPU of the context: `{Kind::gpu, 0}`. The view's data() is
  /// a device address for kernels and copies, which the host must not touch. The newest bytes are
  /// there when this returns. For a stream they are there before the work that it is given next.
  /// The device must have finished with them before the release. tiermem ensures this for a view
  /// that is for a stream: see Context::acquire.
  ///
  /// - Errors:
  ///   - Those of acquire().
  ///   - unavailable: the context has no such GPU.
  ///   - unsupported: the buffer is mapped, or the range has several extents below 2 MiB.
  Result<View> acquire_on(Place where, std::uint32_t mode, std::uint64_t offset = 0,
                          std::uint64_t length = 0, Timeout timeout = Timeout::forever(),
                          const StreamOrder& order = {}) const {
    Access access = range(offset, length, mode);
    access.where = where;
    ViewRecord record;
    Status status = context_->acquire({&access, 1}, timeout, {&record, 1}, order);
    if (!status.ok()) {
      return status;
    }
    return View(*context_, record, order);
  }
  Result<View> acquire_on(Place where, std::uint32_t mode, const StreamOrder& order) const {
    return acquire_on(where, mode, 0, 0, Timeout::forever(), order);
  }
  Status prefetch(std::uint64_t offset = 0, std::uint64_t length = 0) const {
    const Access access = range(offset, length);
    return context_->prefetch({&access, 1});
  }
  Status evict(std::uint64_t offset = 0, std::uint64_t length = 0) const {
    const Access access = range(offset, length);
    return context_->evict({&access, 1});
  }
  Status advise(Advice advice, std::uint64_t value = 0, std::uint64_t offset = 0,
                std::uint64_t length = 0) const {
    const Access access = range(offset, length);
    return context_->advise({&access, 1}, advice, value);
  }
  /// Gives the hint Advice::preferred: these bytes live in the host memory `where`.
  Status prefer(Place where, std::uint64_t offset = 0, std::uint64_t length = 0) const {
    Access access = range(offset, length);
    access.where = where;
    return context_->advise({&access, 1}, Advice::preferred);
  }
  Status read(std::uint64_t offset, void* to, std::uint64_t length) const {
    return context_->read(handle_, offset, to, length);
  }
  Status write(std::uint64_t offset, const void* from, std::uint64_t length) const {
    return context_->write(handle_, offset, from, length);
  }
  /// Copies rows by number, with row 0 at the beginning of the buffer: see Context::gather.
  Status gather(std::uint64_t row_bytes, std::span<const std::uint64_t> index, void* to) const {
    return context_->gather(rows(row_bytes, index), to);
  }
  Status scatter(std::uint64_t row_bytes, std::span<const std::uint64_t> index,
                 const void* from) const {
    return context_->scatter(rows(row_bytes, index), from);
  }
  Rows rows(std::uint64_t row_bytes, std::span<const std::uint64_t> index) const noexcept {
    return {handle_, 0, row_bytes, 0, index.data(), index.size()};
  }
  /// Only for a buffer with kMapped; see Context::address.
  Result<std::byte*> address() const { return context_->address(handle_); }
  /// See Context::address_on.
  Result<std::byte*> address_on(Place where) const { return context_->address_on(handle_, where); }
  Result<BufferInfo> info() const { return context_->info(handle_); }
  /// Returns an iteration over chunks of `chunk` bytes, of which the next `ahead` are prefetched.
  Stream stream(std::uint64_t offset, std::uint64_t length, std::uint64_t chunk,
                std::uint32_t mode = kRead, unsigned ahead = 4) const {
    return Stream(*context_, range(offset, length, mode), chunk, ahead);
  }
  /// Frees the buffer now.
  void reset() noexcept {
    if (handle_ != 0) {
      (void)context_->free(std::exchange(handle_, 0));
    }
  }
  /// Releases the handle to the caller, which must free it through the Context.
  Handle detach() noexcept { return std::exchange(handle_, 0); }

 private:
  Context* context_ = nullptr;
  Handle handle_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace tiermem
