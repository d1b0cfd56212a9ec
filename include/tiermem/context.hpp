// The C++ interface: Context, Buffer, View, Op. Move-only owners over the records of types.hpp.
// All calls are safe from any thread unless a line says otherwise; none throws.
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

struct ContextOptions {
  const char* toml = nullptr;  ///< Path of a TOML file; options of the spec string win over it.
  const char* name = nullptr;  ///< Shown in messages; copied.
};

enum class Tick : std::uint32_t { op = 0, step = 1 };

/// Arguments that overlap:
///  - Memory of a call may lie in a view or in a mapped buffer, also of the buffer that the call is
///    about. read(), write(), gather(), gather_into() and scatter() refuse a source and a target
///    that overlap in one buffer with invalid_argument, and copy nothing.
///  - A list may name the same bytes several times, in any modes. What one range discards and
///    another reads or writes keeps its bytes. advise(), evict() and prefetch() do each extent once.
///  - A view that a list releases twice is released once, and the answer is invalid_argument.
///  - Another thread may change a list during the call: each range and row is checked as it is used,
///    so that the call uses wrong ones or answers invalid_argument, and never leaves its buffers.
///
/// Where the system gives no memory for the records of a call, the call is no_capacity and leaves
/// nothing behind.
///
/// One set of tiers with one mover. Destroying it releases everything; call close() first to learn
/// of views that are still held.
///
/// A Buffer, View, Op or Stream may outlive its context. Its calls answer `shut_down` from then on,
/// and destroying it does nothing. Only a few bytes of a destroyed context stay behind. Another
/// thread may be inside of a call with it, or begin one: the call ends, with `shut_down` where it
/// comes too late. A pointer to bytes of the context is invalid, as after free().
///
/// Handles, views and operations belong to the context that gave them out. Every other context
/// refuses them, and the sentence says so: `stale_handle` for a buffer, `invalid_argument` for a
/// view, an operation or a pointer of malloc_at(). A process has up to 4,000 contexts at a time.
///
/// A thread is not cancelled (pthread_cancel) inside of a call, but after it. Asynchronous
/// cancellation must be off.
class TIERMEM_API Context {
 public:
  class TIERMEM_LOCAL Impl;

  /// `tiers` as "dram=4G; nvme=/data/a:100G". Empty: `TIERMEM_TIERS`, else what the machine offers.
  /// Errors: invalid_argument naming option, value and what is accepted; no_capacity; unavailable.
  static Result<std::unique_ptr<Context>> create(std::string_view tiers = {},
                                                 const ContextOptions& options = {});
  Context(const Context&) = delete;  // Buffers, views and operations point to it.
  Context& operator=(const Context&) = delete;
  /// Ends the context, as close(true) and more. The object itself stays: what points to it finds
  /// that the context has ended.
  static void operator delete(Context* context, std::destroying_delete_t) noexcept;

  /// Refuses with `busy`, listing live views with label, holder and age, unless `force`; then views
  /// end, later calls answer `shut_down`, transfers drain. `timed_out` if draining takes longer.
  Status close(bool force = false, Timeout timeout = Timeout::seconds(10));

  /// A buffer of `bytes`, reading as zeros. Costs no memory until touched.
  Result<Buffer> alloc(std::uint64_t bytes, const BufferOptions& options = {});
  /// A read-only buffer whose cold copy is the file itself: eviction writes nothing. `length` 0: to
  /// the end. A store through one of its views on the host is SIGSEGV; with kPrivate views may
  /// write, and what they write is the buffer's own.
  ///
  /// The file must not change while the buffer lives: each read compares its size, its modification
  /// time, and the bytes that were read before. Another name, mode, owner or access time is no
  /// change, nor is a deletion. Errors: io_error with errno; invalid_argument if there is no such
  /// file or the range is not in it; unsupported for a flag that adopted files do not have.
  Result<Buffer> adopt_file(const char* path, std::uint64_t offset = 0, std::uint64_t length = 0,
                            const BufferOptions& options = {});
  /// A buffer with the bytes of device memory that the program has, of any size: copied on the
  /// device, piece by piece, and moved on as any buffer's where there is more than the GPU's budget.
  /// The memory stays its owner's, who may free or change it once the stream has come here; in host
  /// order the device must be done with it, and the copies have ended when this returns. Waits for
  /// room at most so long, which may be for pieces that the stream is still to copy.
  ///
  /// Errors: invalid_argument for memory that is not that GPU's, from first to last byte;
  /// unavailable for a GPU that the context has not, or that is lost; those of alloc() and, on the
  /// GPU and for the stream, of acquire(). Then there is no buffer, and what the stream was given to
  /// copy is of no use to anybody.
  Result<Buffer> adopt_device(Place gpu, const void* memory, std::uint64_t bytes,
                              const StreamOrder& order = {}, Timeout timeout = Timeout::forever(),
                              const BufferOptions& options = {});
  /// The handle is stale at once; the bytes live until the last view and transfer end.
  Status free(Handle buffer);

  /// One range of host memory, if it is resident: pins it, fills the view, and waits for nothing.
  /// False leaves all as it was, whatever the reason; acquire() says which it is. The shortest way
  /// to bytes that are there.
  bool hit(const Access& access, ViewRecord& view) noexcept;
  /// Releases one view; false if it is not held.
  bool end_view(const ViewRecord& view) noexcept;
  /// All ranges or none: room for all is reserved before the first is pinned. One ViewRecord per
  /// range. Ranges may overlap: bytes that one range discards and another reads are kept.
  ///
  /// `order`: for work on that stream. The views are there for what it is given from then on: it
  /// waits by itself for copies to a GPU that are still under way. unsupported while the stream is
  /// being captured, and in a context without a GPU; invalid_argument for a stream that is of no
  /// GPU of the context.
  Status acquire(std::span<const Access> list, Timeout timeout, std::span<ViewRecord> views,
                 const StreamOrder& order = {}) {
    if (list.size() == 1 && !views.empty() && order.is_host() && hit(list[0], views[0]))
        [[likely]] {
      return {};
    }
    return acquire_list(list, timeout, views, order);
  }
  /// Errors: invalid_argument for a view that is not held (released twice, also by one list, or
  /// forged); the others of the list are released.
  ///
  /// `after`: once the stream has done all that it was given so far. Nobody waits: the bytes are
  /// read by others, moved and given up only then, while these views are no longer held. Errors
  /// besides: those of acquire; then all are held as before.
  Status release(std::span<const ViewRecord> views, const StreamOrder& after = {}) {
    if (views.size() == 1 && after.is_host() && end_view(views[0])) [[likely]] {
      return {};
    }
    return release_list(views, after);
  }
  /// For destructors: what cannot be released stays held until the context is closed by force, and
  /// the log says why.
  void drop_view(const ViewRecord& view, const StreamOrder& after) noexcept;
  /// As acquire; `views` must stay valid until the operation completed, and is filled by then.
  Result<Op> acquire_async(std::span<const Access> list, std::span<ViewRecord> views,
                           const StreamOrder& order = {});
  /// Promotes before it is asked for. Fails only for bad arguments; `op`, if given, completes when
  /// the ranges are resident or were given up.
  Status prefetch(std::span<const Access> list, std::uint64_t next_use = 0, Op* op = nullptr);
  /// Writes dirty extents down and gives up their frames. Waits. Pinned extents stay: `busy`.
  Status evict(std::span<const Access> list, Timeout timeout = Timeout::forever());
  /// Moves ranges to a tier (`dram`, `block`). Waits; promoting is a prefetch that reports.
  Status migrate(std::span<const Access> list, Place to, Timeout timeout = Timeout::forever());
  Status advise(std::span<const Access> list, Advice advice, std::uint64_t value = 0);
  /// Copies by the calling thread, extent by extent; not one atomic snapshot. Errors: those of
  /// acquire(); invalid_argument where `to` is memory of the range itself.
  Status read(Handle buffer, std::uint64_t offset, void* to, std::uint64_t length,
              Timeout timeout = Timeout::forever());
  Status write(Handle buffer, std::uint64_t offset, const void* from, std::uint64_t length,
               Timeout timeout = Timeout::forever());
  /// Copies rows to `to`, one behind the other in the order of the list. What is resident is copied
  /// from there, of all else only the blocks are read that have rows in them, as many at once as
  /// the devices take: no extent is promoted for it, and what is not asked for is not kept. A block
  /// is 4 KiB in buffers that were allocated with Advice::random, or whose bytes carry no
  /// checksums; in others 64 KiB, as its checksum is of all of it. Memory to read into is of the
  /// DRAM budget: 4 MiB at most, a sixteenth of it where that is less. Not one atomic snapshot.
  ///
  /// `op`, if given: a thread of the context does it, one such call after the other. `rows.index`
  /// and `to` must stay valid until the operation completed, and be no memory of mapped buffers;
  /// the timeout counts from now. unsupported with the option fork=follow.
  ///
  /// Rows may overlap each other. Errors: invalid_argument naming the row, also for a row that
  /// overlaps `to`, and for a list that does; those of read(), naming the row that met them;
  /// `busy` for a timeout of 0 if not all rows are resident. After an error it is not said which
  /// rows have been copied.
  Status gather(const Rows& rows, void* to, Timeout timeout = Timeout::forever(), Op* op = nullptr);
  /// As gather, into a buffer, from `offset` on. It may be the buffer of the rows: then rows that
  /// overlap the range [offset, offset + count * row_bytes) are invalid_argument. Errors besides:
  /// those of write().
  Status gather_into(const Rows& rows, Handle to, std::uint64_t offset = 0,
                     Timeout timeout = Timeout::forever(), Op* op = nullptr);
  /// Overwrites rows by those at `from`, which lie one behind the other in the order of the list;
  /// of rows that come twice the last one stays. The extents they are in are promoted, each once,
  /// and written back when they leave memory. `op`, and errors: as gather, and those of write();
  /// invalid_argument for a row that overlaps `from` or the list.
  /// After an error it is not said which rows have been written.
  Status scatter(const Rows& rows, const void* from, Timeout timeout = Timeout::forever(),
                 Op* op = nullptr);
  /// The bytes of one range become those of another of the same length, and the first reads as
  /// zeros: what a realloc needs. Both are of mapped buffers, and nobody else touches them
  /// meanwhile. Whole extents that are not in memory change hands without I/O, where both ranges
  /// begin at the same place of an extent and their buffers are alike (extent size, flags, domain);
  /// all else is copied by the calling thread, whose touches may be SIGBUS as anybody's. What views
  /// of the first range pin is copied, too, and keeps its bytes there. Waits.
  /// Errors: invalid_argument for a range beyond its buffer, or two of one buffer; stale_handle;
  /// unsupported for a buffer without kMapped. After an error nothing was moved.
  Status move_bytes(Handle to, std::uint64_t to_offset, Handle from, std::uint64_t from_offset,
                    std::uint64_t length);
  /// Marks an operation or a step of the program; returns its ordinal.
  std::uint64_t tick(Tick kind);

  /// Where a mapped buffer is: byte 0 of all of it, for its whole life. Touched without views from
  /// any thread; system calls on absent bytes work where userfaultfd may serve the kernel's faults
  /// (`tiermem topo`), and get EFAULT elsewhere. Without userfaultfd a touch of absent bytes is
  /// SIGSEGV, which the library handles: a handler that the program sets later must call the one it
  /// found, and no thread may block the signal. What cannot be brought is SIGBUS, with the reason
  /// in the log (option `log`, off by default). With the option `fork=follow` a child of fork has
  /// the same buffers at the same addresses, with the bytes as of the fork, and parent and child go
  /// on apart; else, or where it could not follow, its touch is SIGSEGV. Bytes are given up with
  /// Advice::dont_need: the program's own MADV_DONTNEED may be missed where a page leaves at that
  /// moment. Errors: stale_handle; unsupported for a buffer without kMapped.
  Result<std::byte*> address(Handle buffer) const;
  /// Where a buffer is in a GPU's memory: byte 0 of all of it, a device address, for the rest of its
  /// life. Every view of it there that is acquired from now on is at this address and its offset;
  /// bytes that no view holds may be elsewhere, and the device must not touch them. Reserves the
  /// addresses, and no memory. A view of several extents does the same by itself.
  /// Errors: stale_handle; unavailable where the context has no such GPU; no_capacity where the
  /// driver has no room for the addresses; unsupported for a mapped buffer, for extents below 2 MiB,
  /// and for a place that is no GPU.
  Result<std::byte*> address_on(Handle buffer, Place where);

  /// An object by pointer: at least `bytes` of memory, with whatever is in it, at a multiple of
  /// `alignment` (a power of two up to 64 MiB). 0 bytes are a pointer that can be freed. Valid for
  /// any thread until free_ptr(), or until the context is closed.
  ///
  /// {dram, 0} and {host, 0}: it stays in DRAM, as if a view held it. {any, 0}: it is memory of
  /// mapped buffers, so there may be more of it than DRAM, and what address() says of a touch
  /// holds; where there are no mapped buffers it stays in DRAM. All of it is charged to the
  /// budgets; for room in DRAM it waits a second at most, more where much must leave. In a child of
  /// fork the pointers are valid with fork=follow only, which has {any, 0} only.
  ///
  /// {gpu, 0}: device memory, as cudaMalloc gives it: a device address that never changes, of whole
  /// pieces of 2 MiB, whose bytes stay on the device but while gpu_pause() has them elsewhere. Of the
  /// set that gpu_tag() named last in the calling thread. The device's other bytes make room for it:
  /// for those that views hold it waits ten seconds at most, more where much must leave.
  ///
  /// Errors: invalid_argument; unsupported for a place that the processor does not address, or
  /// that cannot follow a fork; unavailable for a place that the context lacks; no_capacity.
  Result<void*> malloc_at(Place place, std::uint64_t bytes, std::uint64_t alignment = 16);
  /// Null is accepted. Memory of a GPU must not be in use there any more, or, with a stream, no longer
  /// once the stream has done all that it was given so far.
  /// Errors: invalid_argument naming the address, for one that malloc_at of this context did not
  /// give, or that was freed, and for memory of the host with a stream; memory that was given out again
  /// in between is the new owner's, and is freed. With a stream those of acquire; then it is not freed.
  Status free_ptr(void* block, const StreamOrder& after = {});
  /// Bytes that may be used from `block` on: what was asked for, or more. Errors: as free_ptr(),
  /// null included.
  Result<std::uint64_t> usable_size(const void* block) const;

  /// The set to which belongs what the calling thread asks of malloc_at on GPUs from now on, in any
  /// context: a name, of which 31 characters are kept. Null or "": none.
  static void gpu_tag(const char* tag) noexcept;
  /// The memory of a set, of malloc_at on GPUs, leaves its device, to DRAM where that has room and
  /// else to the block tier, and as much goes back to the driver. Its addresses stay its own: nothing
  /// may be done there until gpu_resume() has brought it back. `bytes` 0: all of the set; else the
  /// blocks first allocated, until they hold so many. `tag` null: of all sets; "": of none. `after`:
  /// once the stream has done all that it was given so far; else the devices must be done with it.
  /// With `op` nobody waits: the operation completes when all has left, or could not.
  ///
  /// Errors: unsupported without a GPU; invalid_argument naming the sets there are; busy while a part
  /// of the set is on its way; those of acquire for a stream: then all is as before. What could not
  /// leave is no_capacity or io_error; it counts as paused, and is resumed as what could.
  Status gpu_pause(const char* tag, std::uint64_t bytes = 0, Op* op = nullptr,
                   const StreamOrder& after = {});
  /// What was paused comes back to where it was: all of the set, or the blocks first allocated until
  /// they hold `bytes`. All of these or none. Errors: as gpu_pause(); no_capacity, io_error or lost
  /// where it cannot come: then it is paused as before.
  Status gpu_resume(const char* tag, std::uint64_t bytes = 0, Op* op = nullptr);

  Result<BufferInfo> info(Handle buffer) const;
  /// `tier` dram or block. Shrinking evicts; no_capacity if pinned bytes do not let it.
  Status set_budget(Place tier, std::uint64_t bytes, Timeout timeout = Timeout::seconds(10));
  Stats stats() const;
  /// What stats() has, by name, and what transfers did: one JSON object (docs/receipts.md). `last`:
  /// so many of the newest receipts. Errors: shut_down.
  Result<std::string> stats_json(std::uint32_t last = 64) const;
  /// Where the bytes at `offset` are, since when, and what brought them there or took them away.
  /// Errors: stale_handle; invalid_argument beyond the end of the buffer.
  Result<Whereabouts> why(Handle buffer, std::uint64_t offset) const;

  Status op_wait(OpHandle op, Timeout timeout);  ///< Consumes it when it completed.
  Status op_poll(OpHandle op);  ///< `busy` while under way; consumes it when completed.
  /// A new descriptor, which the caller closes, for poll, epoll or io_uring: readable once the
  /// operation has completed, also after it was consumed. It says nothing of how it ended.
  /// Errors: invalid_argument; no_capacity when the process may have no more descriptors.
  Result<int> op_fd(OpHandle op);
  Status op_cancel(OpHandle op);  ///< It then completes with `cancelled` unless it was faster.

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
  std::atomic<Impl*> impl_;  // The tombstone once the context has ended.
};

/// A held view. Releases itself, after the stream for whose work it was acquired; movable to
/// another thread.
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

  std::byte* data() const noexcept { return static_cast<std::byte*>(record_.data); }
  std::uint64_t size() const noexcept { return record_.length; }
  std::span<std::byte> bytes() const noexcept { return {data(), size()}; }
  template <typename T>
  std::span<T> as() const noexcept {
    return {static_cast<T*>(record_.data), static_cast<std::size_t>(record_.length / sizeof(T))};
  }
  explicit operator bool() const noexcept { return context_ != nullptr; }
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
  /// After another stream, or (StreamOrder{}) now. With an error it is held as before.
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

/// An operation under way. Destroying it waits for its end, so that views are never filled behind
/// the caller's back.
class TIERMEM_API Op {
 public:
  Op() = default;
  Op(Context& context, OpHandle handle) : context_(&context), handle_(handle) {}
  Op(Op&& other) noexcept : context_(other.context_), handle_(std::exchange(other.handle_, 0)) {}
  Op& operator=(Op&& other) noexcept;
  ~Op();

  Status wait(Timeout timeout = Timeout::forever());  ///< timed_out leaves it under way.
  Status poll();                                      ///< `busy` while it is under way.
  Result<int> fd();                                   ///< See Context::op_fd.
  Status cancel();
  OpHandle handle() const noexcept { return handle_; }
  /// Gives the handle up to the caller, who must wait for it through the Context.
  OpHandle detach() noexcept { return std::exchange(handle_, 0); }

 private:
  Context* context_ = nullptr;
  OpHandle handle_ = 0;
};

/// Chunks of a buffer in order, the next ones prefetched: `for (auto& v : buffer.stream(0, n,
/// chunk, kRead))`.
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
  /// Why the stream ended: ok at the end of the range.
  const Status& status() const noexcept { return status_; }
  std::uint64_t offset() const noexcept {
    return offset_;
  }  ///< Of the current chunk, in the buffer.

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

/// Owns one buffer of a context; frees it at the end of its life.
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
  /// Undefined for a Buffer without a buffer.
  Context& context() const noexcept { return *context_; }

  Access range(std::uint64_t offset = 0, std::uint64_t length = 0,
               std::uint32_t mode = kRead) const noexcept {
    return {handle_, offset, length, mode, {}, 0};
  }
  Result<View> acquire(std::uint32_t mode, std::uint64_t offset = 0, std::uint64_t length = 0,
                       Timeout timeout = Timeout::forever()) const {
    return acquire_on({}, mode, offset, length, timeout);
  }
  /// As acquire, in the memory of a GPU of the context: `{Kind::gpu, 0}`. The view's data() is a
  /// device address, for kernels and copies, and nothing that the host may touch; the newest bytes
  /// are there when this returns, or, for a stream, before what it is given next. The device must
  /// have done with them before the release, which tiermem sees to where the view is for a stream:
  /// see Context::acquire. Errors besides: unavailable where the context has no such GPU;
  /// unsupported for a mapped buffer, and for a range of several extents below 2 MiB.
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
  Status read(std::uint64_t offset, void* to, std::uint64_t length) const {
    return context_->read(handle_, offset, to, length);
  }
  Status write(std::uint64_t offset, const void* from, std::uint64_t length) const {
    return context_->write(handle_, offset, from, length);
  }
  /// Rows by their numbers, row 0 at the begin of the buffer: see Context::gather.
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
  /// Of a buffer with kMapped; see Context::address.
  Result<std::byte*> address() const { return context_->address(handle_); }
  /// See Context::address_on.
  Result<std::byte*> address_on(Place where) const { return context_->address_on(handle_, where); }
  Result<BufferInfo> info() const { return context_->info(handle_); }
  Stream stream(std::uint64_t offset, std::uint64_t length, std::uint64_t chunk,
                std::uint32_t mode = kRead, unsigned ahead = 4) const {
    return Stream(*context_, range(offset, length, mode), chunk, ahead);
  }
  /// Frees now.
  void reset() noexcept {
    if (handle_ != 0) {
      (void)context_->free(std::exchange(handle_, 0));
    }
  }
  /// Gives the handle up to the caller, who must free it through the Context.
  Handle detach() noexcept { return std::exchange(handle_, 0); }

 private:
  Context* context_ = nullptr;
  Handle handle_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace tiermem
