// The C++ interface over Context::Impl: each call checks, asks, translates.
#include "tiermem/context.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/arena.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "runtime/context_impl.hpp"
#include "runtime/gather.hpp"
#include "runtime/thrown.hpp"

namespace tiermem {
namespace {

Status bad_list(const char* call, std::size_t n) {
  return fail(Code::invalid_argument, "{}: {} ranges and no room for as many views", call, n);
}

Status not_held(std::size_t n) {
  return fail(
      Code::invalid_argument,
      "release: a view of the list of {} is not held: it was released before, or is not from here",
      n);
}

Place host_place() {
  return {Kind::host, 0};
}

bool is_host(Place place) {
  return place.kind == Kind::any || place.kind == Kind::host || place.kind == Kind::dram;
}

}  // namespace

Context::Context(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}

Context::~Context() {
  const ArenaScope inside;
  impl_.reset();
}

Result<std::unique_ptr<Context>> Context::create(std::string_view tiers,
                                                 const ContextOptions& options) {
  const ArenaScope inside;
  try {
    const HostFacts facts = probe_host_facts();
    auto config = load_config(tiers, options.toml, process_environment(), facts);
    if (!config.ok()) {
      return std::move(config).status();
    }
    config->name = options.name != nullptr ? options.name : "";
    if (config->log != LogLevel::off) {
      Status opened = log_open(config->log, config->log_file);
      if (!opened.ok()) {
        return opened;
      }
    }
    auto impl = Impl::create(*config, facts);
    if (!impl.ok()) {
      return std::move(impl).status();
    }
    return std::unique_ptr<Context>(new Context(std::move(impl).value()));
  } catch (const std::bad_alloc&) {
    return fail(Code::no_capacity, "create: out of memory for the context itself");
  } catch (const std::exception& error) {
    return fail(Code::internal, "create: {}", error.what());
  }
}

Status Context::close(bool force, Timeout timeout) try {
  const ArenaScope inside;
  return impl_->close(force, timeout);
} catch (const std::exception& thrown) {
  return why_thrown("close", thrown);
}

Result<Buffer> Context::alloc(std::uint64_t bytes, const BufferOptions& options) try {
  const ArenaScope inside;
  Status usable = impl_->usable("alloc");
  if (!usable.ok()) {
    return usable;
  }
  Result<Handle> handle = impl_->alloc(bytes, options);
  if (!handle.ok()) {
    return std::move(handle).status();
  }
  Buffer buffer(*this, *handle, bytes);
  if (options.advice != Advice::normal) {
    const Access all = buffer.range();
    (void)advise({&all, 1}, options.advice);
  }
  return buffer;
} catch (const std::exception& thrown) {
  return why_thrown("alloc", thrown);
}

Result<Buffer> Context::adopt_file(const char* path, std::uint64_t offset, std::uint64_t length,
                                   const BufferOptions& options) try {
  const ArenaScope inside;
  Status usable = impl_->usable("adopt_file");
  if (!usable.ok()) {
    return usable;
  }
  std::uint64_t bytes = 0;
  Result<Handle> handle = impl_->adopt(path, offset, length, options, bytes);
  if (!handle.ok()) {
    return std::move(handle).status();
  }
  return Buffer(*this, *handle, bytes);
} catch (const std::exception& thrown) {
  return why_thrown("adopt_file", thrown);
}

Status Context::free(Handle buffer) {
  const ArenaScope inside;
  Status usable = impl_->usable("free");
  return usable.ok() ? impl_->free(buffer) : std::move(usable);
}

bool Context::hit(const Access& access, ViewRecord& view) noexcept {
  return impl_->open() && impl_->residency.hit(access, view);
}

bool Context::end_view(const ViewRecord& view) noexcept {
  return impl_->residency.end(view);
}

Status Context::acquire_list(std::span<const Access> list, Timeout timeout,
                             std::span<ViewRecord> views, const StreamOrder& order) try {
  const ArenaScope inside;
  Status status = impl_->usable("acquire");
  if (status.ok() && !order.is_host()) {
    status = impl_->check_order("acquire", order, list);
  }
  if (status.ok() && (views.size() < list.size() || list.empty())) {
    status = bad_list("acquire", list.size());
  }
  if (!status.ok() || impl_->residency.try_acquire(list, views) == Code::ok) {
    return status;
  }
  return impl_->acquire_through_mover(list, timeout, views, order);
} catch (const std::exception& thrown) {
  return why_thrown("acquire", thrown);
}

Status Context::release_list(std::span<const ViewRecord> views, const StreamOrder& after) try {
  const ArenaScope inside;
  if (after.is_host()) {
    return impl_->residency.release(views) == Code::ok ? Status() : not_held(views.size());
  }
  if (Status usable = impl_->usable("release"); !usable.ok()) {
    return usable;
  }
  const Result<bool> all = impl_->release_after(views, after);
  if (!all.ok()) {
    return all.status().clone();
  }
  return *all ? Status() : not_held(views.size());
} catch (const std::exception& thrown) {
  return why_thrown("release", thrown);
}

void Context::drop_view(const ViewRecord& view, const StreamOrder& after) noexcept {
  const ArenaScope inside;
  try {
    const Status released = release_list({&view, 1}, after);
    if (!released.ok() && impl_->open()) {
      log_warn("a view stays held: {}", released.message());
    }
  } catch (const std::exception& error) {
    log_warn("a view stays held: {}", error.what());
  }
}

Result<Op> Context::acquire_async(std::span<const Access> list, std::span<ViewRecord> views,
                                  const StreamOrder& order) try {
  const ArenaScope inside;
  Status status = impl_->usable("acquire_async");
  if (status.ok() && !order.is_host()) {
    status = impl_->check_order("acquire_async", order, list);
  }
  if (status.ok() && (views.size() < list.size() || list.empty())) {
    status = bad_list("acquire_async", list.size());
  }
  auto request = std::make_unique<Request>();
  request->want = Want::acquire;
  request->views = views.data();
  request->thread = static_cast<std::int32_t>(::syscall(SYS_gettid));
  if (status.ok()) {
    status = impl_->resolve_all(list, *request, "acquire_async");
  }
  if (status.ok()) {
    status = impl_->give_windows(*request, "acquire_async");
  }
  if (!status.ok()) {
    return status;
  }
  Result<OpHandle> op = impl_->ask_async(std::move(request));
  if (!op.ok()) {
    return std::move(op).status();
  }
  return Op(*this, *op);
} catch (const std::exception& thrown) {
  return why_thrown("acquire_async", thrown);
}

Status Context::prefetch(std::span<const Access> list, std::uint64_t next_use, Op* op) try {
  const ArenaScope inside;
  Status status = impl_->usable("prefetch");
  auto request = std::make_unique<Request>();
  request->want = Want::prefetch;
  if (status.ok()) {
    status = impl_->resolve_all(list, *request, "prefetch");
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
    impl_->ask_and_forget(std::move(request));
    return {};
  }
  Result<OpHandle> handle = impl_->ask_async(std::move(request));
  if (!handle.ok()) {
    return std::move(handle).status();
  }
  *op = Op(*this, *handle);
  return {};
} catch (const std::exception& thrown) {
  return why_thrown("prefetch", thrown);
}

Status Context::evict(std::span<const Access> list, Timeout timeout) try {
  const ArenaScope inside;
  Status status = impl_->usable("evict");
  Request request;
  request.want = Want::evict;
  request.deadline_ns = deadline_of(timeout);
  if (status.ok()) {
    status = impl_->resolve_all(list, request, "evict");
  }
  return status.ok() ? impl_->ask(request) : std::move(status);
} catch (const std::exception& thrown) {
  return why_thrown("evict", thrown);
}

Status Context::migrate(std::span<const Access> list, Place to, Timeout timeout) try {
  const ArenaScope inside;
  if (to.kind == Kind::block && impl_->block() != nullptr) {
    return evict(list, timeout);
  }
  if (!is_host(to) && !impl_->has_gpu(to)) {
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
  const ArenaScope inside;
  Status status = impl_->usable("advise");
  if (status.ok() && advice > Advice::next_use) {
    status =
        fail(Code::invalid_argument, "advise: {} is not an advice", static_cast<unsigned>(advice));
  }
  if (!status.ok()) {
    return status;
  }
  if (advice == Advice::will_need) {
    return prefetch(list);
  }
  auto request = std::make_unique<Request>();
  request->want = advice == Advice::dont_need ? Want::discard
                  : advice == Advice::frozen  ? Want::clean
                                              : Want::advise;
  request->advice = advice;
  request->value = value;
  if (advice == Advice::dont_need) {
    // The whole range reads as zeros afterwards: extents wholly inside are dropped, edges
    // overwritten.
    Vector<Access> whole(list.begin(), list.end());
    for (Access& access : whole) {
      access.mode = kDiscard;
    }
    status = impl_->resolve_all(whole, *request, "advise");
    const auto zero_edges = [&](bool wait) {
      for (std::size_t i = 0; i < whole.size() && status.ok(); ++i) {
        status = impl_->zero_edges(whole[i], request->spans[i], wait);
      }
    };
    zero_edges(false);
    const bool more =
        std::any_of(request->spans.begin(), request->spans.end(), [](const Span& span) {
          return span.count > 2 || span.whole(0) || span.whole(span.count - 1) ||
                 !span.emptied(0) || !span.emptied(span.count - 1);
        });
    if (status.ok() && more) {
      status = impl_->ask(*request);
    }
    zero_edges(true);
    return status;
  }
  status = impl_->resolve_all(list, *request, "advise");
  if (status.ok()) {
    impl_->ask_and_forget(std::move(request));
  }
  return status;
} catch (const std::exception& thrown) {
  return why_thrown("advise", thrown);
}

Status Context::read(Handle buffer, std::uint64_t offset, void* to, std::uint64_t length,
                     Timeout timeout) try {
  const ArenaScope inside;
  return impl_->copy(*this, buffer, offset, static_cast<std::byte*>(to), nullptr, length, timeout);
} catch (const std::exception& thrown) {
  return why_thrown("read", thrown);
}

Status Context::write(Handle buffer, std::uint64_t offset, const void* from, std::uint64_t length,
                      Timeout timeout) try {
  const ArenaScope inside;
  return impl_->copy(*this, buffer, offset, nullptr, static_cast<const std::byte*>(from), length,
                     timeout);
} catch (const std::exception& thrown) {
  return why_thrown("write", thrown);
}

// `target`: what rows go to, or come from.
template <typename Call, typename... Target>
Status Context::run_rows(const Rows& rows, Op* op, Timeout timeout, Target... target) try {
  const ArenaScope inside;
  if (op == nullptr) {
    return impl_->run_rows(std::make_unique<Call>(*impl_, target..., timeout, nullptr), rows);
  }
  auto request = std::make_unique<Request>();
  auto call = std::make_unique<Call>(*impl_, target..., timeout, &request->cancel);
  Result<OpHandle> begun = impl_->run_rows_later(std::move(call), rows, std::move(request));
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
  const ArenaScope inside;
  Status status = impl_->usable("move_bytes");
  if (!status.ok() || length == 0) {
    return status;
  }
  return impl_->move_bytes(*this, {to, to_offset, length, kWrite, {}, 0},
                           {from, from_offset, length, kRead, {}, 0});
} catch (const std::exception& thrown) {
  return why_thrown("move_bytes", thrown);
}

std::uint64_t Context::tick(Tick) {
  return impl_->ordinal.fetch_add(1, std::memory_order_relaxed) + 1;
}

Result<std::byte*> Context::address(Handle buffer) const try {
  const ArenaScope inside;
  Status usable = impl_->usable("address");
  if (!usable.ok()) {
    return usable;
  }
  const BufferRecord* record = impl_->residency.buffers.find(buffer);
  if (record == nullptr) {
    return fail(Code::stale_handle,
                "address: handle {:#x} is not a live buffer: it was freed, or never given out",
                buffer);
  }
  if ((record->flags.load(std::memory_order_relaxed) & kMapped) == 0) {
    return fail(Code::unsupported,
                "address: buffer '{}' is not mapped and is touched through views only; allocate it "
                "with the flag mapped",
                record->label.get().view());
  }
  return record->windows[kHost].load(std::memory_order_relaxed);
} catch (const std::exception& thrown) {
  return why_thrown("address", thrown);
}

Result<std::byte*> Context::address_on(Handle buffer, Place where) try {
  const ArenaScope inside;
  Status usable = impl_->usable("address_on");
  return usable.ok() ? impl_->address_on(buffer, where) : std::move(usable);
} catch (const std::exception& thrown) {
  return why_thrown("address_on", thrown);
}

Result<void*> Context::malloc_at(Place place, std::uint64_t bytes, std::uint64_t alignment) try {
  const ArenaScope inside;
  Status usable = impl_->usable("malloc");
  if (!usable.ok()) [[unlikely]] {
    return usable;
  }
  return impl_->has_gpu(place) ? impl_->device_memory.allocate(place, bytes, alignment)
                               : impl_->placed.allocate(place, bytes, alignment);
} catch (const std::exception& thrown) {
  return why_thrown("malloc", thrown);
}

Status Context::free_ptr(void* block, const StreamOrder& after) try {
  const ArenaScope inside;
  Status usable = impl_->usable("free_ptr");
  if (block == nullptr || !usable.ok()) {
    return usable;
  }
  // A device's addresses are no memory's of the host.
  if (!after.is_host() || impl_->device_memory.find(block)) {
    return impl_->device_memory.free(block, after);
  }
  return impl_->placed.free(block);
} catch (const std::exception& thrown) {
  return why_thrown("free_ptr", thrown);
}

Result<std::uint64_t> Context::usable_size(const void* block) const try {
  const ArenaScope inside;
  Status usable = impl_->usable("usable_size");
  if (!usable.ok()) {
    return usable;
  }
  if (const auto on_device = impl_->device_memory.find(block);
      on_device && on_device->begin == block) {
    return on_device->bytes;
  }
  return impl_->placed.usable_size(block);
} catch (const std::exception& thrown) {
  return why_thrown("usable_size", thrown);
}

void Context::gpu_tag(const char* tag) noexcept {
  set_device_tag(tag);
}

// The end of a call that has begun an operation, or not.
Status Context::follow(Result<OpHandle> begun, Op* op) {
  if (!begun.ok()) {
    return std::move(begun).status();
  }
  if (op == nullptr) {
    return impl_->ops.wait(*begun, Request::kForever);
  }
  *op = Op(*this, *begun);
  return {};
}

Status Context::gpu_pause(const char* tag, std::uint64_t bytes, Op* op,
                          const StreamOrder& after) try {
  const ArenaScope inside;
  Status usable = impl_->usable_gpus("gpu_pause");
  return usable.ok() ? follow(impl_->device_memory.pause(tag, bytes, after), op)
                     : std::move(usable);
} catch (const std::exception& thrown) {
  return why_thrown("gpu_pause", thrown);
}

Status Context::gpu_resume(const char* tag, std::uint64_t bytes, Op* op) try {
  const ArenaScope inside;
  Status usable = impl_->usable_gpus("gpu_resume");
  return usable.ok() ? follow(impl_->device_memory.resume(tag, bytes), op) : std::move(usable);
} catch (const std::exception& thrown) {
  return why_thrown("gpu_resume", thrown);
}

Result<BufferInfo> Context::info(Handle buffer) const try {
  const ArenaScope inside;
  Status usable = impl_->usable("info");
  if (!usable.ok()) {
    return usable;
  }
  BufferInfo info;
  Status status = impl_->tell_info(buffer, info);
  if (!status.ok()) {
    return status;
  }
  return info;
} catch (const std::exception& thrown) {
  return why_thrown("info", thrown);
}

Status Context::set_budget(Place tier, std::uint64_t bytes, Timeout timeout) try {
  const ArenaScope inside;
  Status status = impl_->usable("set_budget");
  if (!status.ok()) {
    return status;
  }
  if (tier.kind != Kind::dram && tier.kind != Kind::block && !impl_->has_gpu(tier)) {
    return fail(Code::invalid_argument,
                "set_budget: {}; accepted are dram, block and the GPUs of the context",
                place_name(tier));
  }
  if (tier.kind == Kind::gpu && bytes > impl_->gpu(tier).facts().total) {
    return fail(Code::invalid_argument, "set_budget: {} bytes; {} has {}", bytes, place_name(tier),
                impl_->gpu(tier).facts().total);
  }
  if (bytes < kSmallestExtent) {
    return fail(Code::invalid_argument, "set_budget: {} bytes; accepted are {} and more", bytes,
                kSmallestExtent);
  }
  Request request;
  request.want = Want::set_budget;
  request.tier = tier;
  request.value = bytes;
  request.deadline_ns = deadline_of(timeout);
  return impl_->ask(request);
} catch (const std::exception& thrown) {
  return why_thrown("set_budget", thrown);
}

Stats Context::stats() const try {
  const ArenaScope inside;
  Stats stats;
  if (!impl_->usable("stats").ok()) {
    return stats;
  }
  Request request;
  request.want = Want::stats;
  request.stats = &stats;
  (void)impl_->ask(request);
  impl_->add_own_counts(stats);
  return stats;
} catch (const std::exception&) {
  return {};
}

Result<std::string> Context::stats_json(std::uint32_t last) const try {
  std::string text;
  Status status = impl_->usable("stats_json");
  if (status.ok()) {
    status = impl_->tell_stats(last, text);
  }
  if (!status.ok()) {
    return status;
  }
  return text;  // The caller's memory, not ours.
} catch (const std::exception& thrown) {
  return why_thrown("stats_json", thrown);
}

Result<Whereabouts> Context::why(Handle buffer, std::uint64_t offset) const try {
  const ArenaScope inside;
  Status status = impl_->usable("why");
  if (!status.ok()) {
    return status;
  }
  Whereabouts where;
  status = impl_->find_bytes(buffer, offset, where);
  if (!status.ok()) {
    return status;
  }
  return where;
} catch (const std::exception& thrown) {
  return why_thrown("why", thrown);
}

Status Context::op_wait(OpHandle op, Timeout timeout) try {
  const ArenaScope inside;
  if (impl_->forked()) [[unlikely]] {
    return impl_->usable("op_wait");  // Its operations are the parent's: here they would never end.
  }
  Status status = impl_->ops.wait(op, timeout.ns == 0 ? 0 : deadline_of(timeout));
  if (status.code() == Code::busy && status.info() == nullptr && timeout.ns != 0) {
    return fail(Code::timed_out, "operation {:#x} is still under way", op);
  }
  return status;
} catch (const std::exception& thrown) {
  return why_thrown("op_wait", thrown);
}

Status Context::op_poll(OpHandle op) {
  return op_wait(op, Timeout::none());
}

Result<int> Context::op_fd(OpHandle op) try {
  const ArenaScope inside;
  if (impl_->forked()) [[unlikely]] {
    return impl_->usable("op_fd");
  }
  return impl_->ops.descriptor(op);
} catch (const std::exception& thrown) {
  return why_thrown("op_fd", thrown);
}

Status Context::op_cancel(OpHandle op) {
  const ArenaScope inside;
  if (impl_->forked()) [[unlikely]] {
    return impl_->usable("op_cancel");  // The table and the mover are the parent's.
  }
  if (!impl_->ops.cancel(op)) {
    return fail(Code::invalid_argument,
                "operation {:#x} is not under way: it was consumed, or never begun", op);
  }
  impl_->note_cancel();
  return {};
}

// ---- Op and Stream -----------------------------------------------------------------------------

Op& Op::operator=(Op&& other) noexcept {
  if (this != &other) {
    this->~Op();
    context_ = other.context_;
    handle_ = std::exchange(other.handle_, 0);
  }
  return *this;
}

Op::~Op() {
  if (handle_ != 0) {
    (void)context_->op_wait(std::exchange(handle_, 0), Timeout::forever());
  }
}

Status Op::wait(Timeout timeout) {
  if (handle_ == 0) {
    return fail(Code::invalid_argument, "this operation was waited for before");
  }
  Status status = context_->op_wait(handle_, timeout);
  if (status.code() != Code::timed_out && status.code() != Code::busy) {
    handle_ = 0;
  }
  return status;
}

Status Op::poll() {
  return wait(Timeout::none());
}

Status Op::cancel() {
  return handle_ != 0 ? context_->op_cancel(handle_)
                      : fail(Code::invalid_argument, "this operation has ended");
}

Stream::Stream(Context& context, Access range, std::uint64_t chunk, unsigned ahead)
    : context_(&context),
      range_(range),
      chunk_(chunk),
      cursor_(range.offset),
      prefetched_(range.offset),
      ahead_(ahead) {
  if (range_.length == 0) {
    Result<BufferInfo> info = context.info(range.buffer);
    if (!info.ok()) {
      status_ = std::move(info).status();
      done_ = true;
      return;
    }
    range_.length = info->bytes - std::min(info->bytes, range.offset);
  }
  if (chunk_ == 0) {
    status_ = fail(Code::invalid_argument, "stream: chunks of 0 bytes");
    done_ = true;
  }
}

void Stream::next() {
  view_.release();
  const std::uint64_t end = range_.offset + range_.length;
  if (done_ || cursor_ >= end) {
    done_ = true;
    return;
  }
  const bool reads = (range_.mode & kDiscard) == 0;
  while (reads && prefetched_ < end &&
         prefetched_ < cursor_ + (ahead_ + std::uint64_t{1}) * chunk_) {
    Access access = range_;
    access.offset = prefetched_;
    access.length = std::min(chunk_, end - prefetched_);
    access.mode = kRead;
    (void)context_->prefetch({&access, 1});
    prefetched_ += access.length;
  }
  Access access = range_;
  access.offset = offset_ = cursor_;
  access.length = std::min(chunk_, end - cursor_);
  ViewRecord record;
  status_ = context_->acquire({&access, 1}, Timeout::forever(), {&record, 1});
  if (!status_.ok()) {
    done_ = true;
    return;
  }
  view_ = View(*context_, record);
  cursor_ += access.length;
}

}  // namespace tiermem
