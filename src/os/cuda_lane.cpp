// The thread of one device.
#include "os/cuda_lane.hpp"

#include <sched.h>
#include <sys/prctl.h>

#include <chrono>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/own_thread.hpp"

namespace tiermem {
namespace {

// A copy of 2 MiB takes 40 us: so long whoever waits for the next end of one stays awake.
constexpr unsigned kYields = 64;
constexpr std::chrono::microseconds kNap{20};

}  // namespace

Result<std::unique_ptr<CudaLane>> CudaLane::open(const CudaDriver& driver, unsigned device) {
  auto facts = probe_device(driver, device);
  if (!facts.ok()) {
    return std::move(facts).status();
  }
  if (!facts->virtual_memory) {
    return fail(Code::unavailable,
                "gpu {}, {:.80}, has no virtual memory management (cuMemCreate), which the gpu "
                "tier needs",
                device, facts->name);
  }
  std::unique_ptr<CudaLane> lane(new CudaLane(driver, std::move(*facts)));
  try {
    lane->thread_ = own_thread("tiermem-gpu", [raw = lane.get()] { raw->run(); });
  } catch (const std::system_error&) {
    return fail(Code::unavailable, "gpu {}: no thread can be created for it", device);
  }
  if (Status begun = lane->call([raw = lane.get()] { return raw->begin(); }); !begun.ok()) {
    return begun;
  }
  return lane;
}

CudaLane::CudaLane(const CudaDriver& driver, CudaDeviceFacts facts)
    : driver_(driver), facts_(std::move(facts)), device_(static_cast<cuda::Device>(facts_.index)) {}

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

Status CudaLane::check(cuda::Result result, std::string_view doing) const {
  return result == cuda::kSuccess
             ? Status()
             : driver_.check(result, fmt::format("gpu {}: {}", facts_.index, doing));
}

// For whoever waits.

Status CudaLane::call(const std::function<Status()>& body) {
  Order order;
  order.body = &body;
  return give(order);
}

Status CudaLane::copy_in(cuda::DevicePointer to, const std::byte* from, std::uint64_t bytes) {
  Order order;
  order.kind = Kind::copy_in;
  order.device = to;
  order.host = const_cast<std::byte*>(from);  // NOLINT: read only.
  order.bytes = bytes;
  return give(order);
}

Status CudaLane::copy_out(std::byte* to, cuda::DevicePointer from, std::uint64_t bytes) {
  Order order;
  order.kind = Kind::copy_out;
  order.device = from;
  order.host = to;
  order.bytes = bytes;
  return give(order);
}

Status CudaLane::clear(cuda::DevicePointer at, std::uint64_t bytes) {
  Order order;
  order.kind = Kind::clear;
  order.device = at;
  order.bytes = bytes;
  return give(order);
}

Status CudaLane::give(Order& order) {
  {
    const std::lock_guard lock(mutex_);
    orders_.push_back(&order);
  }
  asked_.notify_one();
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return order.done; });
  return std::move(order.status);
}

// In the thread.

void CudaLane::run() {
  ::prctl(PR_SET_TIMERSLACK, 1000UL);  // A nap is to be as short as it says.
  unsigned idle = 0;
  while (Order* const order = next()) {
    start(*order);
    while (busy()) {
      const bool ended = watch(in_) | watch(out_);
      std::unique_lock lock(mutex_);
      if (!orders_.empty()) {
        break;
      }
      lock.unlock();
      idle = ended ? 0 : idle + 1;
      if (idle > kYields) {
        std::this_thread::sleep_for(kNap);
      } else if (!ended) {
        ::sched_yield();
      }
    }
  }
  end();
}

// What is asked next; nullptr: nothing is, and nothing will be.
CudaLane::Order* CudaLane::next() {
  std::unique_lock lock(mutex_);
  asked_.wait(lock, [&] { return stop_ || !orders_.empty(); });
  if (orders_.empty()) {
    return nullptr;
  }
  Order* const order = orders_.front();
  orders_.pop_front();
  return order;
}

void CudaLane::start(Order& order) {
  if (order.kind == Kind::call) {
    finish(order, (*order.body)());
    return;
  }
  Channel& channel = order.kind == Kind::copy_out ? out_ : in_;
  UnderWay begun{&order, nullptr};
  Status status = submit(order, channel, begun.event);
  if (status.ok()) {
    channel.under_way.push_back(begun);
    return;
  }
  if (begun.event != nullptr) {
    events_.push_back(begun.event);
    // The copy itself may be under way: whose memory it is must not go on before it has ended.
    (void)driver_.cuStreamSynchronize(channel.stream);
  }
  finish(order, std::move(status));
}

Status CudaLane::submit(const Order& order, Channel& channel, cuda::Event& event) {
  Status status = new_event(event);
  if (!status.ok()) {
    return status;
  }
  switch (order.kind) {
    case Kind::copy_in:
      status =
          check(driver_.cuMemcpyHtoDAsync(order.device, order.host, order.bytes, channel.stream),
                "a copy to it");
      break;
    case Kind::copy_out:
      status =
          check(driver_.cuMemcpyDtoHAsync(order.host, order.device, order.bytes, channel.stream),
                "a copy from it");
      break;
    case Kind::clear:
      status = check(driver_.cuMemsetD8Async(order.device, 0, order.bytes, channel.stream),
                     "clearing its memory");
      break;
    case Kind::call:
      break;
  }
  return status.ok() ? check(driver_.cuEventRecord(event, channel.stream), "cuEventRecord")
                     : std::move(status);
}

Status CudaLane::new_event(cuda::Event& event) {
  if (events_.empty()) {
    return check(driver_.cuEventCreate(&event, cuda::kEventDisableTiming), "cuEventCreate");
  }
  event = events_.back();
  events_.pop_back();
  return {};
}

// True if something has ended.
bool CudaLane::watch(Channel& channel) {
  bool ended = false;
  while (!channel.under_way.empty()) {
    const UnderWay& oldest = channel.under_way.front();
    const cuda::Result result = driver_.cuEventQuery(oldest.event);
    if (result == cuda::kNotReady) {
      break;
    }
    ended = true;
    events_.push_back(oldest.event);
    Order& order = *oldest.order;
    channel.under_way.pop_front();
    finish(order, check(result, order.kind == Kind::copy_out  ? "a copy from it"
                                : order.kind == Kind::copy_in ? "a copy to it"
                                                              : "clearing its memory"));
  }
  return ended;
}

void CudaLane::finish(Order& order, Status status) {
  {
    const std::lock_guard lock(mutex_);
    order.status = std::move(status);
    order.done = true;
  }
  done_.notify_all();
}

Status CudaLane::begin() {
  cuda::Context context = nullptr;
  Status status = check(driver_.cuDevicePrimaryCtxRetain(&context, device_), "its context");
  retained_ = status.ok();
  if (status.ok()) {
    status = check(driver_.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  }
  for (Channel* channel : {&in_, &out_}) {
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
  for (const Channel* channel : {&in_, &out_}) {
    if (channel->stream != nullptr) {
      (void)driver_.cuStreamSynchronize(channel->stream);
      (void)driver_.cuStreamDestroy(channel->stream);
    }
  }
  for (const cuda::Event event : events_) {
    (void)driver_.cuEventDestroy(event);
  }
  if (retained_) {
    (void)driver_.cuCtxSetCurrent(nullptr);
    (void)driver_.cuDevicePrimaryCtxRelease(device_);
  }
}

}  // namespace tiermem
