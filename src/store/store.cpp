// Store: copies between objects and the caller's memory. The shelf has the records.
#include "tiermem/store.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "runtime/context_impl.hpp"
#include "runtime/errands.hpp"
#include "runtime/fork.hpp"
#include "runtime/in_call.hpp"
#include "runtime/prefetcher.hpp"
#include "runtime/range_reader.hpp"
#include "runtime/thrown.hpp"
#include "store/shelf.hpp"

namespace tiermem {

namespace {
// Messages take references, and a static member would have to be exported for them.
constexpr std::size_t kMostKeyBytes = Store::kLongestKey;
constexpr std::uint64_t kMostObjectBytes = Store::kLargestObject;
}  // namespace

class Store::Impl : public InArena {
 public:
  Impl(Context& context, const StoreOptions& options)
      : context_(context),
        name_(options.name != nullptr ? options.name : "store"),
        capacity_(options.capacity_bytes),
        books_(new Books(capacity_)) {}
  ~Impl() {
    Books* const books = books_.load();
    if (books->forks != forks_behind()) {
      return;  // Those of the parent: see books().
    }
    while (const Handle buffer = books->shelf.remove_any()) {
      (void)context_.free(buffer);
    }
    delete books;
  }

  /// Which of the two copies a call makes.
  enum class Copy : bool { in, out };

  Context& context() { return context_; }
  Status run(Copy what, std::span<StoreObject> list, const CallLimits& limits) noexcept;
  Status exists(std::span<StoreObject> list) const;
  Status erase(std::span<StoreObject> list);
  Status pin(std::span<StoreObject> list, int by);
  StoreStats stats() const;

  // Operations in progress: their errands use this object.
  using Operations = std::atomic<std::uint32_t>;
  /// Returns the count that end_operation() decreases: after a fork, the parent's.
  Operations& begin_operation() {
    Operations& operations = books().operations;
    operations.fetch_add(1, std::memory_order_relaxed);
    return operations;
  }
  static void end_operation(Operations& operations) {
    // Release: the destructor sees what the errand did.
    if (operations.fetch_sub(1, std::memory_order_release) == 1) {
      operations.notify_all();
    }
  }
  void await_operations() {
    Books* const books = books_.load();
    if (books->forks != forks_behind()) {
      return;  // Those of the parent, and their threads do not exist here.
    }
    for (std::uint32_t count; (count = books->operations.load(std::memory_order_acquire)) != 0;) {
      books->operations.wait(count, std::memory_order_acquire);
    }
  }

 private:
  /// The records of one process.
  struct Books : InArena {
    explicit Books(std::uint64_t capacity) : shelf(capacity) {}
    Shelf shelf;
    Operations operations{0};
    const std::uint64_t forks = forks_behind();
  };
  /// Buffers of objects that have left the shelf. They are freed at its end, also if something
  /// throws before.
  struct Gone {
    explicit Gone(Context& context) : of(context) {}
    ~Gone() { free(); }
    Gone(const Gone&) = delete;
    Gone& operator=(const Gone&) = delete;
    void free() noexcept {
      for (const Handle buffer : list) {
        (void)of.free(buffer);  // The end of the context has freed all.
      }
      list.clear();
    }
    Context& of;
    Vector<Handle> list;
  };
  Books& books() const;
  Shelf& shelf() const { return books().shelf; }
  Status check(const char* call, const StoreObject& object) const;
  template <typename Change>
  Status each(const char* call, std::span<StoreObject> list, Change&& change) const;
  Status copy_all(Copy what, std::span<StoreObject> list, const CallLimits& limits);
  Status put_all(std::span<StoreObject> list, const CallLimits& limits);
  Status put(StoreObject& object, const CallLimits& limits);
  Status store(StoreObject& object, const CallLimits& limits, Gone& gone);
  Status get(StoreObject& object, const CallLimits& limits);
  bool get_resident(StoreObject& object, Shelf::Found& found);
  Status get_all(std::span<StoreObject> list, const CallLimits& limits);
  /// An object of a get with bytes that must be read.
  struct Absent {
    StoreObject* object;
    Status* status;
    Shelf::Found found;
  };
  void get_below(std::span<const Absent> objects, const CallLimits& limits, Vector<Absent>& again);
  void promote(std::span<const Absent> objects, const CallLimits& limits);
  void drop_damaged(const StoreObject& object, Handle buffer);
  Status missed(StoreObject& object);
  void count(std::atomic<std::uint64_t>& counter) {
    counter.fetch_add(1, std::memory_order_relaxed);
  }

  Context& context_;
  const String name_;
  const std::uint64_t capacity_;
  mutable std::atomic<Books*> books_;
  std::atomic<std::uint64_t> hits_{0}, misses_{0}, puts_{0}, refused_{0}, damaged_{0};
};

// A child of fork begins with an empty store, because the buffers of the objects stay with the
// parent. The inherited records may be locked by a thread that does not exist, so they are neither
// used nor freed. To free them would also copy their memory.
Store::Impl::Books& Store::Impl::books() const {
  Books* books = books_.load(std::memory_order_acquire);
  if (books->forks != forks_behind()) [[unlikely]] {
    auto fresh = std::make_unique<Books>(capacity_);
    if (books_.compare_exchange_strong(books, fresh.get(), std::memory_order_acq_rel)) {
      books = fresh.release();
    }
  }
  return *books;
}

namespace {

/// Overwrites the results that the objects have from before.
void begin(std::span<StoreObject> list, Code code) noexcept {
  for (StoreObject& object : list) {
    object.found = 0;
    object.stored = 0;
    object.code = code;
  }
}

/// A put or a get that runs as an operation.
class StoreCall final : public Errand {
 public:
  StoreCall(Store::Impl& store, Store::Impl::Copy what, std::span<StoreObject> list,
            Timeout timeout, const std::atomic<bool>& cancel)
      : store_(store),
        what_(what),
        list_(list),
        limits_(CallLimits::of(timeout, &cancel)),
        operations_(store.begin_operation()) {}
  ~StoreCall() override { Store::Impl::end_operation(operations_); }
  Status run() override { return store_.run(what_, list_, limits_); }
  void refuse(Code why) noexcept override { begin(list_, why); }
  std::int64_t deadline() const noexcept override { return limits_.deadline_to_begin(); }

 private:
  Store::Impl& store_;
  const Store::Impl::Copy what_;
  const std::span<StoreObject> list_;
  const CallLimits limits_;
  Store::Impl::Operations& operations_;
};

/// Room for an object on the shelf, given back unless the object keeps it.
class ShelfRoom {
 public:
  ShelfRoom(Shelf& shelf, std::uint64_t bytes, Vector<Handle>& gone)
      : shelf_(shelf), bytes_(shelf.reserve(bytes, gone) ? bytes : 0) {}
  ~ShelfRoom() {
    if (bytes_ != 0) {
      shelf_.cancel(bytes_);
    }
  }
  ShelfRoom(const ShelfRoom&) = delete;
  ShelfRoom& operator=(const ShelfRoom&) = delete;
  explicit operator bool() const { return bytes_ != 0; }
  void keep() { bytes_ = 0; }

 private:
  Shelf& shelf_;
  std::uint64_t bytes_;
};

/// Copies the bytes of an object.
void copy(Store::Impl::Copy what, const ViewRecord& view, StoreObject& object) {
  what == Store::Impl::Copy::in ? std::memcpy(view.data, object.memory, view.length)
                                : std::memcpy(object.memory, view.data, view.length);
}

}  // namespace

Status Store::Impl::check(const char* call, const StoreObject& object) const {
  if (object.key == nullptr || object.key_bytes == 0 || object.key_bytes > kMostKeyBytes) {
    return fail(Code::invalid_argument, "{}: store '{}': a key of {} bytes; give it 1 to {}", call,
                name_, object.key_bytes, kMostKeyBytes);
  }
  return {};
}

Status Store::Impl::run(Copy what, std::span<StoreObject> list, const CallLimits& limits) noexcept
    try {
  const SlowCall mark(context_);
  Status usable = mark->usable(what == Copy::in ? "store_put" : "store_get");
  begin(list, usable.code());
  return usable.ok() ? copy_all(what, list, limits) : std::move(usable);
} catch (const std::exception& thrown) {
  // No object may look as if it had been stored, returned or missed.
  Status status = why_thrown(what == Copy::in ? "store_put" : "store_get", thrown);
  begin(list, status.code());
  return status;
}

// The caller may change its list during the call, and must not: each object is read once.
Status Store::Impl::copy_all(Copy what, std::span<StoreObject> list, const CallLimits& limits) {
  Vector<StoreObject> objects(list.begin(), list.end());
  Status status = what == Copy::in ? put_all(objects, limits) : get_all(objects, limits);
  for (std::size_t i = 0; i < list.size(); ++i) {
    list[i].stored = objects[i].stored;
    list[i].code = objects[i].code;
    list[i].found = objects[i].found;
  }
  return status;
}

Status Store::Impl::put_all(std::span<StoreObject> list, const CallLimits& limits) {
  Status first;
  for (StoreObject& object : list) {
    Status status;
    try {
      status = limits.cancelled() ? fail(Code::cancelled, "store_put: cancelled by its owner")
                                  : put(object, limits);
    } catch (const std::exception& thrown) {  // The objects before it are stored.
      status = why_thrown("store_put", thrown);
    }
    object.code = status.code();
    if (first.ok() && !status.ok()) {
      first = std::move(status);
    }
  }
  return first;
}

Status Store::Impl::put(StoreObject& object, const CallLimits& limits) {
  Status status = check("store_put", object);
  if (!status.ok()) {
    return status;
  }
  if (object.bytes == 0 || object.bytes > kMostObjectBytes || object.memory == nullptr) {
    return fail(Code::invalid_argument,
                "store_put: store '{}': an object of {} bytes{}; give it 1 to {}", name_,
                object.bytes, object.memory == nullptr ? " at a null address" : "",
                kMostObjectBytes);
  }
  // Other objects must not leave for one that cannot come. The budget costs a call.
  constexpr std::uint64_t kAlwaysFits = std::uint64_t{1} << 20;
  const std::uint64_t dram =
      object.bytes > kAlwaysFits ? context_.stats().dram_budget : kAlwaysFits;
  if (object.bytes > dram) {
    count(refused_);
    return fail(Code::no_capacity,
                "store_put: store '{}': an object of {} must be in DRAM whole, which has {}; raise "
                "`dram`, or store smaller objects",
                name_, human_bytes(object.bytes), human_bytes(dram));
  }
  // One copy of the key: its hash and its bytes must be those of one moment.
  std::array<char, kMostKeyBytes> key{};
  std::memcpy(key.data(), object.key, object.key_bytes);
  StoreObject mine = object;
  mine.key = key.data();
  Gone gone(context_);
  ShelfRoom room(shelf(), mine.bytes, gone.list);
  gone.free();
  if (!room) {
    count(refused_);
    StoreStats now;
    shelf().count_into(now);
    return fail(
        Code::no_capacity,
        "store_put: store '{}' has no room for {} bytes: its capacity is {} bytes, of which "
        "{} are used, and {} objects are pinned; unpin objects, or raise the capacity",
        name_, object.bytes, now.capacity, now.used, now.pinned);
  }
  status = store(mine, limits, gone);
  if (!status.ok()) {
    if (status.code() == Code::no_capacity) {
      count(refused_);
    }
    return status;
  }
  room.keep();
  count(puts_);
  object.found = 1;
  object.stored = object.bytes;
  return status;
}

// Fills a new buffer, and puts it on the shelf. `gone`: the buffer that it replaces.
Status Store::Impl::store(StoreObject& object, const CallLimits& limits, Gone& gone) {
  Result<Buffer> made = context_.alloc(object.bytes, {.label = name_.c_str()});
  if (!made.ok()) {
    return std::move(made).status();
  }
  const Access access{made->handle(), 0, object.bytes, kDiscard, {}, 0};
  ViewRecord view;
  Status status = CallMark(context_)->acquire_within("store_put", {&access, 1}, limits, {&view, 1});
  if (status.code() == Code::busy) {
    return fail(Code::busy,
                "store_put: store '{}': memory for an object must be found, which takes some "
                "microseconds; give a timeout",
                name_);
  }
  if (!status.ok()) {
    return status;  // The buffer ends here.
  }
  copy(Copy::in, view, object);
  (void)context_.end_view(view);
  gone.list.reserve(1);
  const Handle replaced = shelf().add(object.name(), made->handle(), object.bytes);
  (void)made->detach();
  if (replaced != 0) {
    gone.list.push_back(replaced);
  }
  return {};
}

// The device has lost bytes of the object.
void Store::Impl::drop_damaged(const StoreObject& object, Handle buffer) {
  count(damaged_);
  (void)context_.free(shelf().remove(object.name(), buffer));
}

Status Store::Impl::missed(StoreObject& object) {
  object.found = 0;
  object.stored = 0;
  count(misses_);
  return {};
}

// Copies the object if no byte must be read. Also true for one that is not there.
bool Store::Impl::get_resident(StoreObject& object, Shelf::Found& found) {
  found = shelf().use(object.name());
  object.stored = found.bytes;
  object.found = found ? 1 : 0;
  if (!found) {
    (void)missed(object);
    return true;
  }
  if (object.bytes < found.bytes || object.memory == nullptr) {
    return false;
  }
  const Access access{found.buffer, 0, found.bytes, kRead, {}, 0};
  ViewRecord view;
  if (!context_.hit(access, view)) {
    return false;
  }
  copy(Copy::out, view, object);
  (void)context_.end_view(view);
  count(hits_);
  return true;
}

Status Store::Impl::get(StoreObject& object, const CallLimits& limits) {
  // Another thread may replace the object in between: its new buffer is looked up then.
  for (int tries = 0; tries < 8; ++tries) {
    const Shelf::Found found = shelf().use(object.name());
    if (!found) {
      break;
    }
    object.found = 1;
    object.stored = found.bytes;
    if (object.bytes < found.bytes || object.memory == nullptr) {
      return fail(Code::invalid_argument,
                  "store_get: store '{}': room for {} bytes; the object has {}; give it as much as "
                  "`stored` says",
                  name_, object.memory == nullptr ? 0 : object.bytes, found.bytes);
    }
    const Access access{found.buffer, 0, found.bytes, kRead, {}, 0};
    ViewRecord view;
    Status status =
        CallMark(context_)->acquire_within("store_get", {&access, 1}, limits, {&view, 1});
    if (status.ok()) {
      copy(Copy::out, view, object);
      (void)context_.end_view(view);
      count(hits_);
      return status;
    }
    if (status.code() == Code::lost || status.code() == Code::discarded) {
      drop_damaged(object, found.buffer);
      break;
    }
    if (status.code() != Code::stale_handle) {
      return status;
    }
  }
  return missed(object);
}

// Resident objects are copied at once. The others are read from below without promoting them. An
// object that is wanted again so soon that it would still be in memory is promoted.
Status Store::Impl::get_all(std::span<StoreObject> list, const CallLimits& limits) {
  Vector<Absent> below, promoted;
  Vector<Status> status(list.size());
  const std::uint64_t budget = CallMark(context_)->config.dram.budget;
  for (std::size_t i = 0; i < list.size(); ++i) {
    StoreObject& object = list[i];
    status[i] = check("store_get", object);
    Shelf::Found found;
    if (!status[i].ok() || get_resident(object, found)) {
      continue;
    }
    const bool fits = object.memory != nullptr && object.bytes >= found.bytes;
    (fits && !shelf().note_read(object.name(), budget) ? below : promoted)
        .push_back({&object, &status[i], found});
  }
  get_below(below, limits, promoted);
  promote(promoted, limits);
  Status first;
  for (std::size_t i = 0; i < list.size(); ++i) {
    list[i].code = status[i].code();
    if (!status[i].ok() && status[i].code() != Code::invalid_argument) {
      list[i].found = 0;  // Its bytes were not copied.
    }
    if (first.ok() && !status[i].ok()) {
      first = std::move(status[i]);
    }
  }
  return first;
}

// Reads objects that are not in memory, all together. Objects that were replaced during the call
// are appended to `again`.
void Store::Impl::get_below(std::span<const Absent> objects, const CallLimits& limits,
                            Vector<Absent>& again) {
  Vector<RangeReader::Range> ranges(objects.size());
  for (std::size_t i = 0; i < objects.size(); ++i) {
    ranges[i].buffer = objects[i].found.buffer;
    ranges[i].length = objects[i].found.bytes;
    ranges[i].to = static_cast<std::byte*>(objects[i].object->memory);
  }
  RangeReader(*CallMark(context_), "store_get", limits).run(ranges);
  for (std::size_t i = 0; i < objects.size(); ++i) {
    StoreObject& object = *objects[i].object;
    switch (ranges[i].status.code()) {
      case Code::ok:
        count(hits_);
        break;
      case Code::stale_handle:
        again.push_back(objects[i]);
        break;
      case Code::lost:
      case Code::discarded:
        drop_damaged(object, ranges[i].buffer);
        (void)missed(object);
        break;
      default:
        *objects[i].status = std::move(ranges[i].status);
        break;
    }
  }
}

// Reads objects ahead, up to a quarter of the memory at a time, and copies them in order.
void Store::Impl::promote(std::span<const Absent> objects, const CallLimits& limits) {
  Vector<Access> ranges;
  ranges.reserve(objects.size());
  for (const Absent& each : objects) {
    ranges.push_back({each.found.buffer, 0, each.found.bytes, kRead, {}, 0});
  }
  Prefetcher prefetcher(context_, CallMark(context_)->config.dram.budget / 4, ranges);
  for (std::size_t i = 0; i < objects.size(); ++i) {
    prefetcher.begin(i);
    *objects[i].status = limits.cancelled()
                             ? fail(Code::cancelled, "store_get: cancelled by its owner")
                             : get(*objects[i].object, limits);
    prefetcher.end(i);
  }
}

// Runs `change` on each object with a valid key. An object with a bad key does not stop the others.
template <typename Change>
Status Store::Impl::each(const char* call, std::span<StoreObject> list, Change&& change) const {
  const SlowCall mark(context_);
  Status first = mark->usable(call);
  if (!first.ok()) {
    return first;
  }
  for (StoreObject& object : list) {
    Status status = check(call, object);
    object.found = status.ok() && change(object) ? 1 : 0;
    object.code = status.code();
    if (first.ok() && !status.ok()) {
      first = std::move(status);
    }
  }
  return first;
}

Status Store::Impl::exists(std::span<StoreObject> list) const {
  return each("store_exists", list, [&](StoreObject& object) {
    const Shelf::Found found = shelf().find(object.name());
    object.stored = found.bytes;
    return bool(found);
  });
}

Status Store::Impl::erase(std::span<StoreObject> list) {
  return each("store_delete", list, [&](const StoreObject& object) {
    const Handle buffer = shelf().remove(object.name());
    if (buffer != 0) {
      (void)context_.free(buffer);
    }
    return buffer != 0;
  });
}

Status Store::Impl::pin(std::span<StoreObject> list, int by) {
  return each(by > 0 ? "store_pin" : "store_unpin", list,
              [&](const StoreObject& object) { return shelf().pin(object.name(), by); });
}

StoreStats Store::Impl::stats() const {
  StoreStats stats;
  shelf().count_into(stats);
  const auto value = [](const std::atomic<std::uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  stats.hits = value(hits_);
  stats.misses = value(misses_);
  stats.puts = value(puts_);
  stats.refused = value(refused_);
  stats.damaged = value(damaged_);
  return stats;
}

// ---- The public face

Store::Store(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}

Store::~Store() {
  const ArenaScope inside;
  impl_->await_operations();
  impl_.reset();
}

Result<std::unique_ptr<Store>> Store::open(Context& context, const StoreOptions& options) try {
  const SlowCall mark(context);
  Status usable = mark->usable("store_open");
  if (!usable.ok()) {
    return usable;
  }
  if (options.capacity_bytes == 0) {
    return fail(Code::invalid_argument,
                "store_open: capacity_bytes is 0; set it to the bytes that all objects may have");
  }
  return std::unique_ptr<Store>(new Store(std::make_unique<Impl>(context, options)));
} catch (const std::exception& thrown) {
  return why_thrown("store_open", thrown);
}

namespace {

Status copy_list(Store::Impl& store, Store::Impl::Copy what, std::span<StoreObject> list,
                 Timeout timeout, Op* op) try {
  if (op == nullptr) {
    return store.run(what, list, CallLimits::of(timeout));
  }
  const SlowCall mark(store.context());
  Status usable = mark->usable(what == Store::Impl::Copy::in ? "store_put" : "store_get");
  if (!usable.ok()) {
    return usable;
  }
  auto request = std::make_unique<Request>();
  auto call = std::make_unique<StoreCall>(store, what, list, timeout, request->cancel);
  Result<OpHandle> begun = mark->run_later(std::move(call), std::move(request));
  if (!begun.ok()) {
    return std::move(begun).status();
  }
  *op = Op(store.context(), *begun);
  return {};
} catch (const std::exception& thrown) {
  return why_thrown("store_put, store_get", thrown);
}

}  // namespace

Status Store::put(std::span<StoreObject> list, Timeout timeout, Op* op) {
  return copy_list(*impl_, Impl::Copy::in, list, timeout, op);
}

Status Store::get(std::span<StoreObject> list, Timeout timeout, Op* op) {
  return copy_list(*impl_, Impl::Copy::out, list, timeout, op);
}

Status Store::exists(std::span<StoreObject> list) const try {
  return impl_->exists(list);
} catch (const std::exception& thrown) {
  return why_thrown("store_exists", thrown);
}

Status Store::erase(std::span<StoreObject> list) try {
  return impl_->erase(list);
} catch (const std::exception& thrown) {
  return why_thrown("store_delete", thrown);
}

Status Store::pin(std::span<StoreObject> list) try {
  return impl_->pin(list, 1);
} catch (const std::exception& thrown) {
  return why_thrown("store_pin", thrown);
}

Status Store::unpin(std::span<StoreObject> list) try {
  return impl_->pin(list, -1);
} catch (const std::exception& thrown) {
  return why_thrown("store_unpin", thrown);
}

StoreStats Store::stats() const {
  return impl_->stats();
}

}  // namespace tiermem
