// One thread that makes all driver calls for one device. The driver has a current context for each
// thread, and a call of ours in the program's thread could break a capture there (docs/decisions/
// gpu-facts.md); so whoever wants something of the device gives it to this thread and waits.
//
// Copies go on a stream for each direction and overlap: the thread submits what is asked, watches
// their events in order, and wakes who waits. It never waits for a device while there is work to
// submit, but where the driver itself does: a copy of memory that is not page-locked.
//
// Threads: any; each call waits until it is done. Not for the mover's thread. In a forked child
// the thread does not exist, and the driver works for its parent: nothing may be called there, nor
// destroyed.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "base/arena.hpp"
#include "os/cuda_driver.hpp"

namespace tiermem {

class CudaLane {
 public:
  /// Makes the device's primary context, which takes 0.1 s and half a gigabyte of it where nobody
  /// has it yet. unavailable when there is no such device, or without virtual memory management.
  static Result<std::unique_ptr<CudaLane>> open(const CudaDriver& driver, unsigned device);
  ~CudaLane();
  CudaLane(const CudaLane&) = delete;
  CudaLane& operator=(const CudaLane&) = delete;

  const CudaDriver& driver() const { return driver_; }
  const CudaDeviceFacts& facts() const { return facts_; }
  /// Bytes of its memory that nobody used once our context was made.
  std::uint64_t free_at_start() const { return free_at_start_; }

  /// Runs `body` in the thread, with the context current.
  Status call(const std::function<Status()>& body);
  /// As CudaDriver::check, and names the device.
  Status check(cuda::Result result, std::string_view doing) const;

  Status copy_in(cuda::DevicePointer to, const std::byte* from, std::uint64_t bytes);
  Status copy_out(std::byte* to, cuda::DevicePointer from, std::uint64_t bytes);
  Status clear(cuda::DevicePointer at, std::uint64_t bytes);

 private:
  enum class Kind : std::uint8_t { call, copy_in, copy_out, clear };
  /// On the stack of whoever waits for it.
  struct Order {
    Kind kind = Kind::call;
    const std::function<Status()>* body = nullptr;
    cuda::DevicePointer device = 0;
    std::byte* host = nullptr;
    std::uint64_t bytes = 0;
    Status status;
    bool done = false;
  };
  struct UnderWay {
    Order* order = nullptr;
    cuda::Event event = nullptr;
  };
  /// One direction. What is under way ends in this order.
  struct Channel {
    cuda::Stream stream = nullptr;
    Deque<UnderWay> under_way;
  };

  CudaLane(const CudaDriver& driver, CudaDeviceFacts facts);
  Status give(Order& order);

  // In the thread.
  void run();
  Status begin();
  void end();
  Order* next();
  void start(Order& order);
  Status submit(const Order& order, Channel& channel, cuda::Event& event);
  Status new_event(cuda::Event& event);
  bool watch(Channel& channel);
  void finish(Order& order, Status status);
  bool busy() const { return !in_.under_way.empty() || !out_.under_way.empty(); }

  const CudaDriver driver_;
  const CudaDeviceFacts facts_;
  std::uint64_t free_at_start_ = 0;

  // Of the thread.
  const cuda::Device device_;
  bool retained_ = false;  // The primary context is ours, too.
  Channel in_, out_;
  Vector<cuda::Event> events_;  // Free ones.

  std::mutex mutex_;               // Of the rest; of Order::done, too.
  std::condition_variable asked_;  // Something is in orders_, or stop_ is set.
  std::condition_variable done_;   // Some order is.
  Deque<Order*> orders_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tiermem
