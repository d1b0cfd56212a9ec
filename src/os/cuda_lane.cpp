// The thread of one device.
#include "os/cuda_lane.hpp"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/own_thread.hpp"
#include "base/results.hpp"

namespace tiermem {
namespace {

// A copy of 2 MiB takes 40 us: the thread stays awake this long to wait for the next end of a copy.
constexpr unsigned kYields = 64;
constexpr std::chrono::microseconds kNap{20};
// Work of the program's streams has no known length, so a watcher of a mark sleeps longer.
constexpr std::chrono::microseconds kLongNap{100};

// For a thread of ours. By default a global capture of the program forbids every thread to query
// events, and a thread that does so breaks the capture.
void leave_captures_alone(const CudaDriver& driver) {
  int mode = cuda::kCaptureRelaxed;
  (void)driver.cuThreadExchangeStreamCaptureMode(&mode);
}

void finish(Completion& end, Status status) {
  end.status = std::move(status);
  end.ended(end);
}

}  // namespace

// Makes our context current in a thread of the program.
class CudaLane::CurrentContext {
 public:
  CurrentContext(const CudaDriver& driver, cuda::Context ours) : driver_(driver) {
    (void)driver_.cuCtxGetCurrent(&theirs_);
    changed_ = theirs_ != ours && driver_.cuCtxSetCurrent(ours) == cuda::kSuccess;
  }
  ~CurrentContext() {
    if (changed_) {
      (void)driver_.cuCtxSetCurrent(theirs_);
    }
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const CudaDriver& driver_;
  cuda::Context theirs_ = nullptr;
  bool changed_ = false;
};

Result<std::unique_ptr<CudaLane>> CudaLane::open(const CudaDriver& driver, unsigned device) {
  auto facts = probe_device(driver, device);
  if (!facts.ok()) {
    return std::move(facts).status();
  }
  if (!facts->virtual_memory) {
    return fail(
        Code::unavailable,
        "gpu {}, {:.80}, lacks virtual memory management (cuMemCreate); name another GPU in gpu=",
        device, facts->name);
  }
  std::unique_ptr<CudaLane> lane(new CudaLane(driver, std::move(*facts)));
  try {
    lane->thread_ = own_thread("tiermem-gpu", [raw = lane.get()] { raw->run(); });
  } catch (const std::system_error&) {
    return fail(Code::unavailable,
                "gpu {}: no thread can be created (RLIMIT_NPROC or pids.max); raise the limit",
                device);
  }
  if (Status begun = lane->call([raw = lane.get()] { return raw->begin(); }); !begun.ok()) {
    return begun;
  }
  return lane;
}

CudaLane::CudaLane(const CudaDriver& driver, CudaDeviceFacts facts)
    : driver_(driver), facts_(std::move(facts)), device_(static_cast<cuda::Device>(facts_.index)) {
  watched_.reserve(64);  // See watch().
}

CudaLane::~CudaLane() {
  if (!thread_.joinable()) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  asked_.notify_one();
  thread_.join();
}

std::string_view CudaLane::what(Kind kind) {
  switch (kind) {
    case Kind::copy_in:
      return "a copy to it";
    case Kind::copy_out:
      return "a copy from it";
    case Kind::copy_peer:
      return "a copy to it from another";
    case Kind::copy_within:
      return "a copy within its memory";
    case Kind::clear:
      return "clearing its memory";
    case Kind::call:
      break;
  }
  return "what the program does there";
}

Status CudaLane::check(cuda::Result result, std::string_view doing) {
  if (result == cuda::kSuccess) {
    return {};
  }
  if (ends_context(result)) {
    cuda::Result none = cuda::kSuccess;
    lost_with_.compare_exchange_strong(none, result);
  }
  return driver_.check(result, text("gpu {}: {}", facts_.index, doing));
}

Status CudaLane::loss() const {
  const cuda::Result result = lost_with_.load(std::memory_order_acquire);
  return result == cuda::kSuccess ? Status()
                                  : driver_.check(result, text("gpu {}: it is lost", facts_.index));
}

// For a stream of the program: an error of the stream says nothing about the device.
Status CudaLane::check_stream(cuda::Result result) const {
  return result == cuda::kSuccess
             ? Status()
             : driver_.check(result, text("gpu {}: a stream of the program's", facts_.index));
}

// ---- for requesters ---------------------------------------------------------------------------

Status CudaLane::call(const std::function<Status()>& body) {
  Order order;
  order.body = &body;
  return give_and_wait(order);
}

void CudaLane::call_later(std::function<Status()> body) {
  struct Later : Completion, InArena {
    std::function<Status()> body;
  };
  auto later = std::make_unique<Later>();
  later->body = std::move(body);
  later->ended = [](Completion& end) {
    const std::unique_ptr<Later> self(static_cast<Later*>(&end));
    if (!self->status.ok()) {
      log_warn("{}", self->status.message());
    }
  };
  Order order;
  order.body = &later->body;
  order.end = later.release();
  give(order);
}

Status CudaLane::here(const std::function<Status()>& body) {
  const CurrentContext ours(driver_, context_);
  leave_captures_alone(driver_);
  return body();
}

void CudaLane::copy_in(cuda::DevicePointer to, const std::byte* from, std::uint64_t bytes,
                       Completion& end) {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): read only.
  give({Kind::copy_in, nullptr, to, const_cast<std::byte*>(from), bytes, &end});
}

void CudaLane::copy_out(std::byte* to, cuda::DevicePointer from, std::uint64_t bytes,
                        Completion& end) {
  give({Kind::copy_out, nullptr, from, to, bytes, &end});
}

void CudaLane::copy_peer(cuda::DevicePointer to, const CudaLane& other, cuda::DevicePointer from,
                         std::uint64_t bytes, Completion& end) {
  give({Kind::copy_peer, nullptr, to, nullptr, bytes, &end, other.context_, from});
}

bool CudaLane::reaches(const CudaLane& other) const {
  int can = 0;
  return driver_.cuDeviceCanAccessPeer(&can, device_, other.device_) == cuda::kSuccess && can != 0;
}

bool CudaLane::has(cuda::DevicePointer at) const {
  const CurrentContext ours(driver_, context_);
  unsigned type = 0;
  int device = 0;
  return driver_.cuPointerGetAttribute(&type, cuda::kMemoryType, at) == cuda::kSuccess &&
         type == cuda::kMemoryOfDevice &&
         driver_.cuPointerGetAttribute(&device, cuda::kDeviceOrdinal, at) == cuda::kSuccess &&
         device == device_;
}

Status CudaLane::copy_within(cuda::Stream stream, bool in_host_order, cuda::DevicePointer to,
                             cuda::DevicePointer from, std::uint64_t bytes) {
  if (in_host_order) {
    return give_and_wait({Kind::copy_within, nullptr, to, nullptr, bytes, nullptr, nullptr, from});
  }
  const CurrentContext ours(driver_, context_);
  return check_stream(driver_.cuMemcpyDtoDAsync(to, from, bytes, stream));
}

Status CudaLane::clear(cuda::DevicePointer at, std::uint64_t bytes) {
  return give_and_wait({Kind::clear, nullptr, at, nullptr, bytes, nullptr});
}

void CudaLane::give(const Order& order) {
  {
    const std::lock_guard lock(mutex_);
    orders_.push_back(order);
  }
  asked_.notify_one();
}

Status CudaLane::give_and_wait(Order order) {
  struct Waiter : Completion {
    std::atomic<std::uint32_t> done{0};
  } waiter;
  waiter.ended = [](Completion& end) {
    auto& word = static_cast<Waiter&>(end).done;
    // The waiter may return as soon as it sees the store. Waking an address without waiters is
    // harmless.
    word.store(1, std::memory_order_release);
    word.notify_one();
  };
  order.end = &waiter;
  give(order);
  waiter.done.wait(0, std::memory_order_acquire);
  return std::move(waiter.status);
}

Result<bool> CudaLane::owns(cuda::Stream stream) const {
  const CurrentContext ours(driver_, context_);
  cuda::Context its = nullptr;
  const cuda::Result result = driver_.cuStreamGetCtx(stream, &its);
  if (result == cuda::kInvalidHandle || result == cuda::kInvalidContext ||
      result == cuda::kInvalidValue) {
    return false;
  }
  Status asked = check_stream(result);
  return asked.ok() ? Result<bool>(its == context_) : std::move(asked);
}

Status CudaLane::check_capture(cuda::Stream stream) const {
  const CurrentContext ours(driver_, context_);
  int capturing = 0;
  const cuda::Result result = driver_.cuStreamIsCapturing(stream, &capturing);
  if (cuda::is_of_capture(result) || (result == cuda::kSuccess && capturing != 0)) {
    return fail_native(Code::unsupported, result,
                       "gpu {}: the stream is being captured; acquire before the capture, and "
                       "release after the graph has run",
                       facts_.index);
  }
  return check_stream(result);
}

Result<CudaLane::Mark> CudaLane::mark(cuda::Stream stream) {
  const CurrentContext ours(driver_, context_);
  if (Status refused = check_capture(stream); !refused.ok()) {
    return refused;
  }
  Result<cuda::Event> event = take_mark();
  if (!event.ok()) {
    return std::move(event).status();
  }
  if (Status recorded = check_stream(driver_.cuEventRecord(*event, stream)); !recorded.ok()) {
    give_mark(*event);
    return recorded;
  }
  return Mark{stream, *event};
}

namespace {

/// Reserves room for one more element. Returns false if the allocation fails.
template <typename List>
bool has_room(List& list) noexcept {
  try {
    if (list.size() == list.capacity()) {
      list.reserve(2 * list.size() + 16);
    }
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace

// The views are no longer held at this point, so this function must not fail. If the list cannot
// grow, it waits until the lane's thread has emptied the list.
void CudaLane::watch(const Mark& mark, Completion& end) noexcept {
  for (bool added = false; !added; std::this_thread::yield()) {
    const std::lock_guard lock(mutex_);
    if (has_room(watched_)) {
      watched_.push_back({mark, &end});
      added = true;
    }
    if (asleep_) {
      asked_.notify_one();
    }
  }
}

void CudaLane::forget(const Mark& mark) {
  give_mark(mark.event);
}

Status CudaLane::follow(cuda::Stream stream, std::uint64_t ordinal) {
  cuda::Event event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    for (const CopyIn& copy : following_) {
      event = copy.ordinal == ordinal ? copy.event : event;
    }
  }
  if (event == nullptr) {
    return {};  // The copy has ended.
  }
  const CurrentContext ours(driver_, context_);
  return check(driver_.cuStreamWaitEvent(stream, event, 0), "cuStreamWaitEvent");
}

Result<cuda::Event> CudaLane::new_event() {
  cuda::Event event = nullptr;
  Status made = check(driver_.cuEventCreate(&event, cuda::kEventDisableTiming), "cuEventCreate");
  if (!made.ok()) {
    return made;
  }
  return event;
}

// Returns an event from the pool, or a new one. Our context is current.
Result<cuda::Event> CudaLane::take_mark() {
  {
    const std::lock_guard lock(mutex_);
    if (!marks_.empty()) {
      const cuda::Event event = marks_.back();
      marks_.pop_back();
      return event;
    }
  }
  return new_event();
}

void CudaLane::give_mark(cuda::Event event) {
  const std::lock_guard lock(mutex_);
  marks_.push_back(event);
}

// ---- in the thread ----------------------------------------------------------------------------

void CudaLane::run() {
  best_effort(::prctl(PR_SET_TIMERSLACK, 1000UL), "naps are then longer than they say");
  unsigned idle = 0;
  Group group;
  for (;;) {
    take_requests();
    if (next(group)) {
      start(group);
      idle = 0;
      (void)watch_all();
      continue;  // There may be more to submit.
    }
    if (watch_all()) {
      idle = 0;
      continue;  // Copies may have waited for this.
    }
    ++idle;
    const bool copies =
        !in_.under_way.empty() || !out_.under_way.empty() || !within_.under_way.empty();
    std::unique_lock lock(mutex_);
    if (!orders_.empty() || !watched_.empty()) {
      continue;
    }
    if (copies && idle <= kYields) {
      lock.unlock();
      ::sched_yield();
    } else if (copies || !programs_.empty()) {
      asked_.wait_for(lock, copies ? kNap : kLongNap);
    } else if (stop_) {
      break;
    } else {
      asleep_ = true;
      asked_.wait(lock, [&] { return stop_ || !orders_.empty() || !watched_.empty(); });
      asleep_ = false;
    }
  }
  end();
}

void CudaLane::take_requests() {
  const std::lock_guard lock(mutex_);
  for (const Watched& each : watched_) {
    auto at = std::find_if(programs_.begin(), programs_.end(), [&](const Channel& channel) {
      return channel.stream == each.mark.stream;
    });
    if (at == programs_.end()) {
      programs_.push_back({each.mark.stream, {}, {}});
      at = programs_.end() - 1;
    }
    at->under_way.push_back({Kind::call, each.mark.event, each.end});
  }
  watched_.clear();
  for (; !orders_.empty(); orders_.pop_front()) {
    const Order& order = orders_.front();
    (order.kind == Kind::call ? calls_ : channel_of(order.kind).waiting).push_back(order);
  }
}

CudaLane::Channel& CudaLane::channel_of(Kind kind) {
  switch (kind) {
    case Kind::copy_out:
      return out_;
    case Kind::clear:
    case Kind::copy_within:
      return within_;
    default:
      return in_;
  }
}

// Copies come before calls: a call takes as long as a copy, and the device must not be idle then.
bool CudaLane::next(Group& group) {
  if (next_of(within_, group) || next_of(in_, group) || next_of(out_, group)) {
    return true;
  }
  if (calls_.empty()) {
    return false;
  }
  group.assign(1, calls_.front());
  calls_.pop_front();
  return true;
}

bool CudaLane::next_of(Channel& channel, Group& group) {
  if (channel.waiting.empty() || channel.bytes_under_way >= kManyUnderWay) {
    return false;
  }
  const Kind kind = channel.waiting.front().kind;
  const auto together = [kind](const Order& order) {
    return (kind == Kind::copy_in || kind == Kind::copy_out) && order.kind == kind &&
           order.bytes <= kSmall;
  };
  std::uint64_t bytes = 0;
  auto end = channel.waiting.begin();
  while (end != channel.waiting.end() && together(*end) && bytes + end->bytes <= kMostTogether) {
    bytes += end->bytes;
    ++end;
  }
  const bool may_grow = end == channel.waiting.end() && bytes < kMostTogether;
  if (end == channel.waiting.begin()) {
    ++end;  // Not for a group.
  } else if (may_grow && channel.bytes_under_way > kFewUnderWay) {
    return false;
  }
  group.assign(channel.waiting.begin(), end);
  channel.waiting.erase(channel.waiting.begin(), end);
  return true;
}

// Submits a group. Copies that cannot be submitted end at once; the others end with one event.
void CudaLane::start(Group& group) {
  const Kind kind = group.front().kind;
  if (kind == Kind::call) {
    finish(*group.front().end, (*group.front().body)());
    return;
  }
  Channel& channel = channel_of(kind);
  Status status;
  if (events_.empty()) {
    Result<cuda::Event> made = new_event();
    made.ok() ? events_.push_back(*made) : void(status = std::move(made).status());
  }
  if (status.ok() && !submit_at_once(group, channel)) {
    std::erase_if(group, [&](const Order& order) {
      Status submitted = submit(order, channel);
      const bool refused = !submitted.ok();
      if (refused) {
        finish(*order.end, std::move(submitted));
      }
      return refused;
    });
  }
  if (group.empty()) {
    return;
  }
  if (status.ok()) {
    status = check(driver_.cuEventRecord(events_.back(), channel.stream), "cuEventRecord");
  }
  if (!status.ok()) {
    // The copies may be in progress: the owner of the memory must not continue before they have
    // ended.
    (void)driver_.cuStreamSynchronize(channel.stream);
    for (const Order& order : group) {
      finish(*order.end, status.clone());
    }
    return;
  }
  const cuda::Event event = events_.back();
  events_.pop_back();
  for (const Order& order : group) {
    const bool comes = kind == Kind::copy_in || kind == Kind::copy_peer;
    const bool last = &order == &group.back();
    channel.under_way.push_back(
        {kind, last ? event : nullptr, order.end, comes ? ++copies_in_ : 0, order.bytes});
    channel.bytes_under_way += order.bytes;
  }
  // Call back only after all copies are recorded, because a callback may ask to follow one.
  for (std::size_t i = channel.under_way.size() - group.size(); i < channel.under_way.size(); ++i) {
    note_begun(channel.under_way[i], event);
  }
}

void CudaLane::note_begun(const UnderWay& begun, cuda::Event event) {
  if (begun.ordinal == 0 || begun.end->begun == nullptr) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    following_.push_back({begun.ordinal, event});
  }
  begun.end->begun(*begun.end, begun.ordinal);
}

// Submits several copies with one call. Returns false if each must be submitted on its own, which
// then reports the error.
bool CudaLane::submit_at_once(const Group& group, const Channel& channel) {
  if (group.size() < 2 || driver_.cuMemcpyBatchAsync == nullptr) {
    return false;
  }
  const bool comes = group.front().kind == Kind::copy_in;
  Vector<cuda::DevicePointer> to, from;
  Vector<std::size_t> bytes;
  for (const Order& order : group) {
    const auto host = reinterpret_cast<cuda::DevicePointer>(order.host);
    to.push_back(comes ? order.device : host);
    from.push_back(comes ? host : order.device);
    bytes.push_back(order.bytes);
  }
  cuda::BatchAttributes attributes;
  std::size_t first = 0;
  std::size_t failed = 0;
  return driver_.cuMemcpyBatchAsync(to.data(), from.data(), bytes.data(), group.size(), &attributes,
                                    &first, 1, &failed, channel.stream) == cuda::kSuccess;
}

Status CudaLane::submit(const Order& order, const Channel& channel) {
  Status status;
  switch (order.kind) {
    case Kind::copy_in:
      status =
          check(driver_.cuMemcpyHtoDAsync(order.device, order.host, order.bytes, channel.stream),
                what(order.kind));
      break;
    case Kind::copy_out:
      status =
          check(driver_.cuMemcpyDtoHAsync(order.host, order.device, order.bytes, channel.stream),
                what(order.kind));
      break;
    case Kind::copy_peer:
      status = driver_.check(driver_.cuMemcpyPeerAsync(order.device, context_, order.from,
                                                       order.other, order.bytes, channel.stream),
                             fmt::format("gpu {}: {}", facts_.index, what(order.kind)));
      break;
    case Kind::copy_within:
      status =
          check(driver_.cuMemcpyDtoDAsync(order.device, order.from, order.bytes, channel.stream),
                what(order.kind));
      break;
    case Kind::clear:
      status = check(driver_.cuMemsetD8Async(order.device, 0, order.bytes, channel.stream),
                     what(order.kind));
      break;
    case Kind::call:
      break;
  }
  return status;
}

// Returns true if an operation has ended.
bool CudaLane::watch_all() {
  bool ended = watch_channel(within_);
  ended = watch_channel(in_) || ended;
  ended = watch_channel(out_) || ended;
  for (Channel& channel : programs_) {
    ended = watch_channel(channel) || ended;
  }
  std::erase_if(programs_, [](const Channel& channel) { return channel.under_way.empty(); });
  return ended;
}

void CudaLane::recycle(const UnderWay& ended) {
  if (ended.kind == Kind::call) {
    give_mark(ended.event);
    return;
  }
  if (ended.event != nullptr) {
    events_.push_back(ended.event);
  }
  if (ended.ordinal != 0) {
    const std::lock_guard lock(mutex_);
    while (!following_.empty() && following_.front().ordinal <= ended.ordinal) {
      following_.pop_front();
    }
  }
}

bool CudaLane::watch_channel(Channel& channel) {
  bool ended = false;
  while (!channel.under_way.empty()) {
    const auto marked = std::find_if(channel.under_way.begin(), channel.under_way.end(),
                                     [](const UnderWay& each) { return each.event != nullptr; });
    const cuda::Result result = driver_.cuEventQuery(marked->event);
    if (result == cuda::kNotReady) {
      break;
    }
    ended = true;
    for (auto left = marked - channel.under_way.begin() + 1; left != 0; --left) {
      const UnderWay oldest = channel.under_way.front();
      channel.under_way.pop_front();
      channel.bytes_under_way -= oldest.bytes;
      recycle(oldest);
      finish(*oldest.end, check(result, what(oldest.kind)));
    }
  }
  return ended;
}

Status CudaLane::begin() {
  leave_captures_alone(driver_);
  Status status = check(driver_.cuDevicePrimaryCtxRetain(&context_, device_), "its context");
  retained_ = status.ok();
  if (status.ok()) {
    status = check(driver_.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
  }
  for (Channel* channel : {&in_, &out_, &within_}) {
    if (status.ok()) {
      status = check(driver_.cuStreamCreate(&channel->stream, cuda::kStreamNonBlocking),
                     "cuStreamCreate");
    }
  }
  std::size_t free = 0;
  std::size_t total = 0;
  if (status.ok()) {
    status = check(driver_.cuMemGetInfo(&free, &total), "cuMemGetInfo");
  }
  free_at_start_ = free;
  return status;
}

void CudaLane::end() {
  for (const Channel* channel : {&in_, &out_, &within_}) {
    if (channel->stream != nullptr) {
      (void)driver_.cuStreamSynchronize(channel->stream);
      (void)driver_.cuStreamDestroy(channel->stream);
    }
  }
  for (const Vector<cuda::Event>* events : {&events_, &marks_}) {
    for (const cuda::Event event : *events) {
      (void)driver_.cuEventDestroy(event);
    }
  }
  if (retained_) {
    (void)driver_.cuCtxSetCurrent(nullptr);
    (void)driver_.cuDevicePrimaryCtxRelease(device_);
  }
}

}  // namespace tiermem
