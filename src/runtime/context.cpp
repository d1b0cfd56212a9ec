// The C++ interface over Context::Impl: each call checks, calls, and translates.
#include "tiermem/context.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/arena.hpp"
#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/no_cancel.hpp"
#include "runtime/context_impl.hpp"
#include "runtime/copy_list.hpp"
#include "runtime/fit.hpp"
#include "runtime/gather.hpp"
#include "runtime/in_call.hpp"
#include "runtime/thrown.hpp"

namespace tiermem {
namespace {

Status bad_list(const char* call, std::size_t n) {
  return fail(Code::invalid_argument,
              "{}: {} ranges, but not as many views; pass one view for each range", call, n);
}

bool is_foreign(const LiveViews& live, std::span<const ViewRecord> list) {
  return std::any_of(list.begin(), list.end(), [&](const ViewRecord& view) {
    return live.is_foreign(view) && ContextTag::is_live(view.token[0] >> (64 - ContextTag::kBits));
  });
}

Status not_held(std::size_t n, bool foreign) {
  return foreign
             ? fail(Code::invalid_argument,
                    "release: one of the {} views belongs to another context; release it there", n)
             : fail(Code::invalid_argument,
                    "release: one of the {} views is not held: it was released before, or this "
                    "context never returned it; release each view once",
                    n);
}

Place host_place() {
  return {Kind::host, 0};
}

bool is_host(Place place) {
  return place.kind == Kind::any || place.kind == Kind::host || place.kind == Kind::dram;
}

/// The caller also gets the error. The configured log has it even if the caller drops it.
void log_refusal(const Status& status, std::string_view tiers, const char* toml_path) {
  const LogWish wish = log_wish(tiers, toml_path, process_environment());
  if (wish.level != LogLevel::off && !log_enabled(LogLevel::error)) {
    (void)log_open(wish.level, wish.file);
  }
  log_error("create: {}", status.message());
}

}  // namespace

void Context::operator delete(Context* context, std::destroying_delete_t) noexcept {
  const ArenaScope inside;
  const NoCancel until_the_end;
  // Sequentially consistent: partner of CallMark.
  Impl* const impl = context->impl_.exchange(Impl::tombstone(), std::memory_order_seq_cst);
  Impl::bury(impl);
}

Result<std::unique_ptr<Context>> Context::create(std::string_view tiers,
                                                 const ContextOptions& options) {
  const ArenaScope inside;
  const NoCancel until_made;
  try {
    const HostFacts facts = probe_host_facts();
    auto config = load_fitting_config(tiers, options.toml, facts);
    if (!config.ok()) {
      log_refusal(config.status(), tiers, options.toml);
      return std::move(config).status();
    }
    config->name = options.name != nullptr ? options.name : "";
    if (config->log != LogLevel::off) {
      Status opened = log_open(config->log, config->log_file);
      if (!opened.ok()) {
        return opened;
      }
    }
    tell(LogLevel::warn, config->warnings);
    if (Status made = make_default_block(*config); !made.ok()) {
      return made;
    }
    auto impl = Impl::create(*config, facts);
    if (!impl.ok()) {
      return std::move(impl).status();
    }
    // Never freed: buffers, views and operations may point to it for ever.
    void* const memory = arena_allocate(sizeof(Context));
    if (memory == nullptr) {
      throw std::bad_alloc();
    }
    return std::unique_ptr<Context>(::new (memory) Context(impl->release()));
  } catch (const std::bad_alloc&) {
    return fail(Code::no_capacity,
                "create: allocation of the context failed; free memory or raise the limit");
  } catch (const std::exception& error) {
    return fail(Code::internal, "create: {}", error.what());
  }
}

Status Context::close(bool force, Timeout timeout) try {
  const SlowCall call(*this);
  return call->close(force, timeout);
} catch (const std::exception& thrown) {
  return why_thrown("close", thrown);
}

namespace {

/// The buffer, after the hint that its options give for all of it.
Buffer begun(Context& context, Handle handle, std::uint64_t bytes, const BufferOptions& options) {
  Buffer buffer(context, handle, bytes);
  if (options.advice != Advice::normal && options.advice != Advice::preferred) {
    const Access all = buffer.range();
    (void)context.advise({&all, 1}, options.advice);
  }
  return buffer;
}

}  // namespace

Result<Buffer> Context::alloc(std::uint64_t bytes, const BufferOptions& options) try {
  const InCall call(*this);
  Status usable = call->usable("alloc");
  if (!usable.ok()) {
    return usable;
  }
  Result<Handle> handle = call->alloc(bytes, options);
  if (!handle.ok()) {
    return std::move(handle).status();
  }
  return begun(*this, *handle, bytes, options);
} catch (const std::exception& thrown) {
  return why_thrown("alloc", thrown);
}

Result<Buffer> Context::adopt_file(const char* path, std::uint64_t offset, std::uint64_t length,
                                   const BufferOptions& options) try {
  const SlowCall call(*this);
  Status usable = call->usable("adopt_file");
  if (!usable.ok()) {
    return usable;
  }
  std::uint64_t bytes = 0;
  Result<Handle> handle = call->adopt(path, offset, length, options, bytes);
  if (!handle.ok()) {
    return std::move(handle).status();
  }
  return begun(*this, *handle, bytes, options);
} catch (const std::exception& thrown) {
  return why_thrown("adopt_file", thrown);
}

Status Context::free(Handle buffer) {
  const InCall call(*this);
  Status usable = call->usable("free");
  return usable.ok() ? call->free(buffer) : std::move(usable);
}

// Neither function marks a call: that would cost a tenth of a hit. The memory of an ended context
// therefore stays mapped, so that a thread in here does no harm: Impl::bury().
bool Context::hit(const Access& access, ViewRecord& view) noexcept {
  Impl* const impl = impl_.load(std::memory_order_acquire);
  return impl->open() && impl->residency.hit(access, view);
}

bool Context::end_view(const ViewRecord& view) noexcept {
  return impl_.load(std::memory_order_acquire)->residency.end(view);
}

Status Context::acquire_list(std::span<const Access> list, Timeout timeout,
                             std::span<ViewRecord> views, const StreamOrder& order) try {
  const InCall call(*this);
  Status status = call->usable("acquire");
  if (status.ok() && !order.is_host()) {
    const NoCancel while_it_waits;
    status = call->check_order("acquire", order, list);
  }
  if (status.ok() && (views.size() < list.size() || list.empty())) {
    status = bad_list("acquire", list.size());
  }
  if (!status.ok() || call->residency.try_acquire(list, views) == Code::ok) {
    return status;
  }
  return call->acquire_through_mover(list, timeout, views, order);
} catch (const std::exception& thrown) {
  return why_thrown("acquire", thrown);
}

Status Context::release_list(std::span<const ViewRecord> views, const StreamOrder& after) try {
  const InCall call(*this);
  if (after.is_host()) {
    if (call->is_tombstone()) {
      return call->usable("release");
    }
    const bool foreign = is_foreign(call->residency.views, views);
    return call->residency.release(views) == Code::ok ? Status() : not_held(views.size(), foreign);
  }
  const NoCancel while_it_waits;
  if (Status usable = call->usable("release"); !usable.ok()) {
    return usable;
  }
  const Result<bool> all = call->release_after(views, after);
  if (!all.ok()) {
    return all.status().clone();
  }
  return *all ? Status() : not_held(views.size(), is_foreign(call->residency.views, views));
} catch (const std::exception& thrown) {
  return why_thrown("release", thrown);
}

void Context::drop_view(const ViewRecord& view, const StreamOrder& after) noexcept {
  const SlowCall call(*this);
  try {
    const Status released = release_list({&view, 1}, after);
    if (!released.ok() && call->open()) {
      log_warn("cannot release a view, which stays held: {}", released.message());
    }
  } catch (const std::exception& error) {
    log_warn("cannot release a view, which stays held: {}", error.what());
  }
}

Result<Op> Context::acquire_async(std::span<const Access> list, std::span<ViewRecord> views,
                                  const StreamOrder& order) try {
  const SlowCall call(*this);
  Status status = call->usable("acquire_async");
  if (status.ok() && !order.is_host()) {
    status = call->check_order("acquire_async", order, list);
  }
  if (status.ok() && (views.size() < list.size() || list.empty())) {
    status = bad_list("acquire_async", list.size());
  }
  auto request = std::make_unique<Request>();
  request->kind = RequestKind::acquire;
  request->views = views.data();
  request->thread = static_cast<std::int32_t>(::syscall(SYS_gettid));
  if (status.ok()) {
    status = call->resolve_all(list, *request, "acquire_async");
  }
  if (status.ok()) {
    status = call->give_windows(*request, "acquire_async");
  }
  if (!status.ok()) {
    return status;
  }
  Result<OpHandle> op = call->ask_async(std::move(request));
  if (!op.ok()) {
    return std::move(op).status();
  }
  return Op(*this, *op);
} catch (const std::exception& thrown) {
  return why_thrown("acquire_async", thrown);
}

Status Context::prefetch(std::span<const Access> list, std::uint64_t next_use, Op* op) try {
  const SlowCall call(*this);
  Status status = call->usable("prefetch");
  auto request = std::make_unique<Request>();
  request->kind = RequestKind::prefetch;
  if (status.ok()) {
    status = call->resolve_all(list, *request, "prefetch");
  }
  if (!status.ok()) {
    return status;
  }
  for (Span& span : request->spans) {
    span.writes = span.discards = false;
  }
  if (next_use != 0) {
    (void)advise(list, Advice::next_use, next_use);
  }
  if (op == nullptr) {
    call->ask_and_forget(std::move(request));
    return {};
  }
  Result<OpHandle> handle = call->ask_async(std::move(request));
  if (!handle.ok()) {
    return std::move(handle).status();
  }
  *op = Op(*this, *handle);
  return {};
} catch (const std::exception& thrown) {
  return why_thrown("prefetch", thrown);
}

Status Context::evict(std::span<const Access> list, Timeout timeout) try {
  const SlowCall call(*this);
  Status status = call->usable("evict");
  Request request;
  request.kind = RequestKind::evict;
  request.deadline_ns = deadline_of(timeout);
  if (status.ok()) {
    status = call->resolve_all(list, request, "evict");
  }
  return status.ok() ? call->ask(request) : std::move(status);
} catch (const std::exception& thrown) {
  return why_thrown("evict", thrown);
}

Status Context::migrate(std::span<const Access> list, Place to, Timeout timeout) try {
  const SlowCall call(*this);
  if (Status usable = call->usable("migrate"); !usable.ok()) {
    return usable;
  }
  if (to.kind == Kind::block && call->has_block(to.index)) {
    return evict(list, timeout);
  }
  if (!is_host(to) && !call->has_gpu(to)) {
    return fail(Code::unavailable, "migrate: {} is not a tier of this context; see `tiermem topo`",
                place_name(to));
  }
  Vector<Access> reads(list.begin(), list.end());
  for (Access& access : reads) {
    access.mode = kRead;
    access.where = is_host(to) ? host_place() : to;
  }
  Vector<ViewRecord> views(reads.size());
  Status status = acquire(reads, timeout, views);
  return status.ok() ? release(views) : std::move(status);
} catch (const std::exception& thrown) {
  return why_thrown("migrate", thrown);
}

Status Context::advise(std::span<const Access> list, Advice advice, std::uint64_t value) try {
  const SlowCall call(*this);
  Status status = call->usable("advise");
  if (status.ok() && advice > Advice::next_use) {
    status = fail(Code::invalid_argument, "advise: unknown advice {}; accepted are 0 to {}",
                  static_cast<unsigned>(advice), static_cast<unsigned>(Advice::next_use));
  }
  if (!status.ok()) {
    return status;
  }
  if (advice == Advice::will_need) {
    return prefetch(list);
  }
  if (advice == Advice::preferred) {
    return call->prefer(list);
  }
  auto request = std::make_unique<Request>();
  request->kind = advice == Advice::dont_need ? RequestKind::discard
                  : advice == Advice::frozen  ? RequestKind::clean
                                              : RequestKind::advise;
  request->advice = advice;
  request->value = value;
  if (advice == Advice::dont_need) {
    // The whole range reads as zeros afterwards, or as the file for a private copy of one: extents
    // wholly inside are dropped, edges are overwritten.
    Vector<Access> whole(list.begin(), list.end());
    for (Access& access : whole) {
      access.mode = kDiscard;
    }
    status = call->resolve_all(whole, *request, "advise");
    const auto empty_edges = [&](bool wait) {
      for (std::size_t i = 0; i < whole.size() && status.ok(); ++i) {
        status = call->empty_edges(whole[i], request->spans[i], wait);
      }
    };
    empty_edges(false);
    const bool more =
        std::any_of(request->spans.begin(), request->spans.end(), [](const Span& span) {
          return span.count > 2 || span.whole(0) || span.whole(span.count - 1) ||
                 !span.emptied(0) || !span.emptied(span.count - 1);
        });
    if (status.ok() && more) {
      status = call->ask(*request);
    }
    empty_edges(true);
    return status;
  }
  status = call->resolve_all(list, *request, "advise");
  if (status.ok()) {
    call->ask_and_forget(std::move(request));
  }
  return status;
} catch (const std::exception& thrown) {
  return why_thrown("advise", thrown);
}

namespace {

Status no_memory_to_copy(Context::Impl& context, const char* call, std::uint64_t length) {
  Status usable = context.usable(call);
  return !usable.ok() || length == 0
             ? std::move(usable)
             : fail(Code::invalid_argument,
                    "{}: the memory to copy is null; pass memory of {} bytes", call, length);
}

}  // namespace

Status Context::read(Handle buffer, std::uint64_t offset, void* to, std::uint64_t length,
                     Timeout timeout) try {
  const SlowCall call(*this);
  if (to == nullptr) {
    return no_memory_to_copy(*call, "read", length);
  }
  return call->copy(*this, buffer, offset, static_cast<std::byte*>(to), nullptr, length,
                    CallLimits::of(timeout));
} catch (const std::exception& thrown) {
  return why_thrown("read", thrown);
}

Status Context::write(Handle buffer, std::uint64_t offset, const void* from, std::uint64_t length,
                      Timeout timeout) try {
  const SlowCall call(*this);
  if (from == nullptr) {
    return no_memory_to_copy(*call, "write", length);
  }
  return call->copy(*this, buffer, offset, nullptr, static_cast<const std::byte*>(from), length,
                    CallLimits::of(timeout));
} catch (const std::exception& thrown) {
  return why_thrown("write", thrown);
}

Status Context::copy(std::span<CopyItem> list, std::uint32_t flags, Timeout timeout, Op* op) try {
  const SlowCall mark(*this);
  Status usable = mark->usable("copy");
  if (!usable.ok()) {
    return usable;
  }
  if ((flags & ~std::uint32_t{kNoPromote}) != 0) {
    return fail(Code::invalid_argument, "copy: flags {:#x}; accepted are 0 and 1 (no promote)",
                flags);
  }
  const bool promotes = (flags & kNoPromote) == 0;
  if (op == nullptr) {
    CopyCall call(*this, *mark, list, promotes, CallLimits::of(timeout));
    try {
      return call.run();
    } catch (const std::exception& thrown) {  // No item may look as if it had been copied.
      Status status = why_thrown("copy", thrown);
      call.refuse(status.code());
      return status;
    }
  }
  auto request = std::make_unique<Request>();
  auto call = std::make_unique<CopyCall>(*this, *mark, list, promotes,
                                         CallLimits::of(timeout, &request->cancel));
  Result<OpHandle> begun = mark->run_later(std::move(call), std::move(request));
  return begun.ok() ? follow(std::move(begun), op) : std::move(begun).status();
} catch (const std::exception& thrown) {
  return why_thrown("copy", thrown);
}

// `target` is the destination or the source of the rows.
template <typename Call, typename... Target>
Status Context::run_rows(const Rows& rows, Op* op, Timeout timeout, Target... target) try {
  const SlowCall mark(*this);
  if (op == nullptr) {
    return mark->run_rows(std::make_unique<Call>(*mark, target..., timeout, nullptr), rows);
  }
  auto request = std::make_unique<Request>();
  auto call = std::make_unique<Call>(*mark, target..., timeout, &request->cancel);
  Result<OpHandle> begun = mark->run_rows_later(std::move(call), rows, std::move(request));
  return begun.ok() ? follow(std::move(begun), op) : std::move(begun).status();
} catch (const std::exception& thrown) {
  return why_thrown("gather, scatter", thrown);
}

Status Context::gather(const Rows& rows, void* to, Timeout timeout, Op* op) {
  return run_rows<GatherCall>(rows, op, timeout, static_cast<std::byte*>(to));
}

Status Context::gather_into(const Rows& rows, Handle to, std::uint64_t offset, Timeout timeout,
                            Op* op) {
  return run_rows<GatherCall>(rows, op, timeout, to, offset);
}

Status Context::scatter(const Rows& rows, const void* from, Timeout timeout, Op* op) {
  return run_rows<ScatterCall>(rows, op, timeout, static_cast<const std::byte*>(from));
}

Status Context::move_bytes(Handle to, std::uint64_t to_offset, Handle from,
                           std::uint64_t from_offset, std::uint64_t length) try {
  const SlowCall call(*this);
  Status status = call->usable("move_bytes");
  if (!status.ok() || length == 0) {
    return status;
  }
  return call->move_bytes(*this, {to, to_offset, length, kWrite, {}, 0},
                          {from, from_offset, length, kRead, {}, 0});
} catch (const std::exception& thrown) {
  return why_thrown("move_bytes", thrown);
}

std::uint64_t Context::tick(Tick) {
  const CallMark call(*this);
  return call->ordinal.fetch_add(1, std::memory_order_relaxed) + 1;
}

Result<std::byte*> Context::address(Handle buffer) const try {
  const InCall call(*this);
  Status usable = call->usable("address");
  if (!usable.ok()) {
    return usable;
  }
  const BufferRecord* record = call->residency.buffers.find(buffer);
  if (record == nullptr) {
    return call->residency.buffers.stale("address", buffer);
  }
  if ((record->flags.load(std::memory_order_relaxed) & kMapped) == 0) {
    return fail(Code::unsupported,
                "address: buffer '{}' is not mapped and is touched through views only; allocate it "
                "with the flag mapped",
                record->label.get().view());
  }
  // Byte 0 of an adopted file is where its offset in the file puts it.
  return record->windows[kHost].load(std::memory_order_relaxed) +
         record->lead.load(std::memory_order_relaxed);
} catch (const std::exception& thrown) {
  return why_thrown("address", thrown);
}

Result<Position> Context::find(const void* address) const try {
  const InCall call(*this);
  Status usable = call->usable("find");
  return usable.ok() ? call->find(address) : std::move(usable);
} catch (const std::exception& thrown) {
  return why_thrown("find", thrown);
}

Status Context::prefetch_at(const void* address, std::uint64_t bytes, std::uint64_t next_use,
                            Op* op) try {
  const SlowCall call(*this);
  Vector<Access> list;
  Status status = call->find_ranges("prefetch_at", address, bytes, list);
  return status.ok() && (!list.empty() || op != nullptr) ? prefetch(list, next_use, op)
                                                         : std::move(status);
} catch (const std::exception& thrown) {
  return why_thrown("prefetch_at", thrown);
}

Status Context::evict_at(const void* address, std::uint64_t bytes, Timeout timeout) try {
  const SlowCall call(*this);
  Vector<Access> list;
  Status status = call->find_ranges("evict_at", address, bytes, list);
  return status.ok() && !list.empty() ? evict(list, timeout) : std::move(status);
} catch (const std::exception& thrown) {
  return why_thrown("evict_at", thrown);
}

Status Context::advise_at(const void* address, std::uint64_t bytes, Advice advice,
                          std::uint64_t value) try {
  const SlowCall call(*this);
  Vector<Access> list;
  Status status = call->find_ranges("advise_at", address, bytes, list);
  return status.ok() && (!list.empty() || advice > Advice::next_use) ? advise(list, advice, value)
                                                                     : std::move(status);
} catch (const std::exception& thrown) {
  return why_thrown("advise_at", thrown);
}

Result<std::byte*> Context::address_on(Handle buffer, Place where) try {
  const SlowCall call(*this);
  Status usable = call->usable("address_on");
  return usable.ok() ? call->address_on(buffer, where) : std::move(usable);
} catch (const std::exception& thrown) {
  return why_thrown("address_on", thrown);
}

namespace {

// The calls on objects that need more than the magazines of the thread. Not inlined: what they need
// would be saved on each call that does not need them.
[[gnu::noinline]] Result<void*> malloc_in_call(const Context& context, Place place,
                                               std::uint64_t bytes, std::uint64_t alignment) try {
  const SlowCall call(context);
  Status usable = call->usable("malloc");
  if (!usable.ok()) [[unlikely]] {
    return usable;
  }
  if (call->has_gpu(place)) {
    return call->device_memory.allocate(place, bytes, alignment);
  }
  return call->placed.allocate(place, bytes, alignment);
} catch (const std::exception& thrown) {
  return why_thrown("malloc", thrown);
}

[[gnu::noinline]] Status free_in_call(const Context& context, void* block,
                                      const StreamOrder& after) try {
  const SlowCall call(context);
  Status usable = call->usable("free_ptr");
  if (block == nullptr || !usable.ok()) {
    return usable;
  }
  // A device's addresses are not addresses of host memory.
  if (!after.is_host() || (!call->gpus().empty() && call->device_memory.find(block))) {
    return call->device_memory.free(block, after);
  }
  return call->placed.free(block);
} catch (const std::exception& thrown) {
  return why_thrown("free_ptr", thrown);
}

}  // namespace

// Relaxed in this call and in free_ptr: the pointer is only compared.
Result<void*> Context::malloc_at(Place place, std::uint64_t bytes, std::uint64_t alignment) {
  void* const kept =
      PlacedMemory::take_kept(impl_.load(std::memory_order_relaxed), place, bytes, alignment);
  return kept != nullptr ? Result<void*>(kept) : malloc_in_call(*this, place, bytes, alignment);
}

Result<void*> Context::calloc_at(Place place, std::uint64_t count, std::uint64_t bytes,
                                 std::uint64_t alignment) try {
  const SlowCall call(*this);
  Status usable = call->usable("calloc");
  if (!usable.ok()) [[unlikely]] {
    return usable;
  }
  const auto all = checked_mul(count, bytes);
  if (!all) {
    return fail(Code::invalid_argument,
                "calloc: {} objects of {} bytes; accepted are up to 2^47 bytes in all", count,
                bytes);
  }
  if (call->has_gpu(place)) {
    return fail(Code::unsupported,
                "calloc: the processor cannot address {}; use malloc and clear it in a stream",
                place_name(place));
  }
  return call->placed.allocate_zeros(place, *all, alignment);
} catch (const std::exception& thrown) {
  return why_thrown("calloc", thrown);
}

Result<void*> Context::realloc_at(Place place, void* block, std::uint64_t bytes,
                                  std::uint64_t alignment) try {
  if (block == nullptr) {
    return malloc_at(place, bytes, alignment);
  }
  const SlowCall call(*this);
  Status usable = call->usable("realloc");
  if (!usable.ok()) [[unlikely]] {
    return usable;
  }
  if (call->has_gpu(place) || call->device_memory.find(block)) {
    return fail(Code::unsupported,
                "realloc: an object on a GPU keeps its size; allocate another, and copy the bytes "
                "in a stream");
  }
  return call->placed.reallocate(place, block, bytes, alignment);
} catch (const std::exception& thrown) {
  return why_thrown("realloc", thrown);
}

Status Context::free_ptr(void* block, const StreamOrder& after) {
  const bool kept =
      after.is_host() && PlacedMemory::give_kept(impl_.load(std::memory_order_relaxed), block);
  return kept ? Status() : free_in_call(*this, block, after);
}

Result<std::uint64_t> Context::usable_size(const void* block) const try {
  const SlowCall call(*this);
  Status usable = call->usable("usable_size");
  if (!usable.ok()) {
    return usable;
  }
  if (const auto on_device = call->device_memory.find(block);
      on_device && on_device->begin == block) {
    return on_device->bytes;
  }
  return call->placed.usable_size(block);
} catch (const std::exception& thrown) {
  return why_thrown("usable_size", thrown);
}

void Context::gpu_tag(const char* tag) noexcept {
  set_device_tag(tag);
}

// Ends a call that may have begun an operation.
Status Context::follow(Result<OpHandle> begun, Op* op) {
  if (!begun.ok()) {
    return std::move(begun).status();
  }
  if (op == nullptr) {
    const SlowCall call(*this);
    return call->ops.wait_in_call(*begun);
  }
  *op = Op(*this, *begun);
  return {};
}

Status Context::gpu_pause(const char* tag, std::uint64_t bytes, Op* op,
                          const StreamOrder& after) try {
  const SlowCall call(*this);
  Status usable = call->usable_gpus("gpu_pause");
  return usable.ok() ? follow(call->device_memory.pause(tag, bytes, after), op) : std::move(usable);
} catch (const std::exception& thrown) {
  return why_thrown("gpu_pause", thrown);
}

Status Context::gpu_resume(const char* tag, std::uint64_t bytes, Op* op) try {
  const SlowCall call(*this);
  Status usable = call->usable_gpus("gpu_resume");
  return usable.ok() ? follow(call->device_memory.resume(tag, bytes), op) : std::move(usable);
} catch (const std::exception& thrown) {
  return why_thrown("gpu_resume", thrown);
}

Result<BufferInfo> Context::info(Handle buffer) const try {
  const SlowCall call(*this);
  Status usable = call->usable("info");
  if (!usable.ok()) {
    return usable;
  }
  BufferInfo info;
  Status status = call->tell_info(buffer, info);
  if (!status.ok()) {
    return status;
  }
  return info;
} catch (const std::exception& thrown) {
  return why_thrown("info", thrown);
}

Status Context::set_budget(Place tier, std::uint64_t bytes, Timeout timeout) try {
  const SlowCall call(*this);
  Status status = call->usable("set_budget");
  if (!status.ok()) {
    return status;
  }
  if (tier.kind != Kind::dram && tier.kind != Kind::block && !call->has_gpu(tier) &&
      !call->has_host_memory(tier)) {
    return fail(
        Code::unavailable,
        "set_budget: the context has no tier {} with a budget; accepted are dram, block, and "
        "its NUMA nodes, persistent memories and GPUs",
        place_name(tier));
  }
  if (const std::uint64_t most = call->largest_budget(tier); bytes > most) {
    return fail(Code::invalid_argument,
                "set_budget: {} bytes; accepted for {} are at most {}, which is all that there is",
                bytes, place_name(tier), most);
  }
  if (bytes < kSmallestExtent) {
    return fail(Code::invalid_argument, "set_budget: {} bytes; accepted are {} and more", bytes,
                kSmallestExtent);
  }
  Request request;
  request.kind = RequestKind::set_budget;
  request.tier = tier;
  request.value = bytes;
  request.deadline_ns = deadline_of(timeout);
  return tier.kind == Kind::dram ? call->change_dram(request) : call->ask(request);
} catch (const std::exception& thrown) {
  return why_thrown("set_budget", thrown);
}

Stats Context::stats() const try {
  const SlowCall call(*this);
  Stats stats;
  if (!call->usable("stats").ok()) {
    return stats;
  }
  Request request;
  request.kind = RequestKind::stats;
  request.stats = &stats;
  (void)call->ask(request);
  call->add_own_counts(stats);
  return stats;
} catch (const std::exception&) {
  return {};
}

Result<std::vector<LabelStats>> Context::stats_by_label() const try {
  const NoCancel while_it_waits;
  const CallMark call(*this);
  std::vector<LabelStats> labels;  // The caller's memory, not tiermem's.
  Status status = call->usable("stats_by_label");
  if (status.ok()) {
    status = call->tell_labels(labels);
  }
  if (!status.ok()) {
    return status;
  }
  return labels;
} catch (const std::exception& thrown) {
  return why_thrown("stats_by_label", thrown);
}

Result<std::string> Context::stats_json(std::uint32_t last) const try {
  const NoCancel while_it_waits;
  const CallMark call(*this);
  std::string text;
  Status status = call->usable("stats_json");
  if (status.ok()) {
    status = call->tell_stats(last, text);
  }
  if (!status.ok()) {
    return status;
  }
  return text;  // The caller's memory, not tiermem's.
} catch (const std::exception& thrown) {
  return why_thrown("stats_json", thrown);
}

Result<Whereabouts> Context::why(Handle buffer, std::uint64_t offset) const try {
  const SlowCall call(*this);
  Status status = call->usable("why");
  if (!status.ok()) {
    return status;
  }
  Whereabouts where;
  status = call->find_bytes(buffer, offset, where);
  if (!status.ok()) {
    return status;
  }
  return where;
} catch (const std::exception& thrown) {
  return why_thrown("why", thrown);
}

}  // namespace tiermem
