// One thread that makes the driver calls for one device. The driver has a current context for each
// thread, and a call of ours in the program's thread could break a capture there (docs/decisions/
// gpu-facts.md). Callers therefore pass their requests for the device to this thread. Only calls
// that need a place in the order of the program's own calls run in the program's thread: mark().
//
// Copies use one stream for each direction, and the directions overlap. Clearing and copies within
// the device's memory use a third stream, so that they never wait for the link. The thread submits
// the requests, watches their events in order, and notifies the requester. Copies of 2 MiB and less
// that wait together are submitted together: in one call where the driver has a batch call (CUDA
// 12.8), and with one event. A direction that has enough bytes in progress submits no more, so that
// such a group can form. The thread never waits for a device while there is work to submit. The
// exception is a wait inside the driver, as for a copy of memory that is not page-locked.
//
// Threads: any, except that the mover's thread must not make calls that wait. In a forked child the
// thread does not exist, and the driver belongs to the parent: the child must not call or destroy
// anything here.
#pragma once

#include <atomic>
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
#include "base/completion.hpp"
#include "os/cuda_driver.hpp"

namespace tiermem {

class CudaLane {
 public:
  /// Creates the device's primary context. If no other code has created it, this takes 0.1 s and
  /// half a gigabyte of device memory. unavailable: there is no such device, or it has no virtual
  /// memory management.
  static Result<std::unique_ptr<CudaLane>> open(const CudaDriver& driver, unsigned device);
  /// Waits for all requests and all watched marks.
  ~CudaLane();
  CudaLane(const CudaLane&) = delete;
  CudaLane& operator=(const CudaLane&) = delete;

  const CudaDriver& driver() const { return driver_; }
  const CudaDeviceFacts& facts() const { return facts_; }
  /// Returns the free bytes of device memory after the context was created.
  std::uint64_t free_at_start() const { return free_at_start_; }

  /// Runs `body` in the thread, with the context current, and waits for it.
  Status call(const std::function<Status()>& body);
  /// The same as call(), but returns at once and logs an error.
  void call_later(std::function<Status()> body);
  /// The same as call(), but in the calling thread, which is one of tiermem's. For long operations
  /// that need no order.
  Status here(const std::function<Status()>& body);
  /// The same as CudaDriver::check, but also names the device. Only for results of calls on the
  /// device itself: a result that ends the context makes lost() true.
  Status check(cuda::Result result, std::string_view doing);
  /// Returns whether the device is gone or its context is broken: no call on it succeeds until the
  /// process ends. Any thread.
  bool lost() const { return lost_with_.load(std::memory_order_acquire) != cuda::kSuccess; }
  Status loss() const;

  // Copies. The thread calls `end.ended`, and for a copy to the device also `end.begun`. Copies of
  // one direction end in the order in which they were requested.
  void copy_in(cuda::DevicePointer to, const std::byte* from, std::uint64_t bytes, Completion& end);
  void copy_out(std::byte* to, cuda::DevicePointer from, std::uint64_t bytes, Completion& end);
  /// Copies from the memory of another device, in the order of the copies in. A refusal does not
  /// make lost() true, because the other device may be the lost one.
  void copy_peer(cuda::DevicePointer to, const CudaLane& other, cuda::DevicePointer from,
                 std::uint64_t bytes, Completion& end);
  /// Returns whether the device can address the other device's memory, if that device allows it.
  bool reaches(const CudaLane& other) const;
  /// Returns whether the address is in this device's memory, not the host's or another device's.
  /// Runs in the calling thread.
  bool has(cuda::DevicePointer at) const;
  /// Copies between two ranges of this device's memory. In the order of a stream, it runs in the
  /// calling thread. With `in_host_order` it runs now, and the call waits for it.
  Status copy_within(cuda::Stream stream, bool in_host_order, cuda::DevicePointer to,
                     cuda::DevicePointer from, std::uint64_t bytes);
  /// Clears device memory, and waits for it.
  Status clear(cuda::DevicePointer at, std::uint64_t bytes);

  /// A position in the order of a program's stream: after all work that the stream was given so
  /// far.
  struct Mark {
    cuda::Stream stream = nullptr;
    cuda::Event event = nullptr;
  };
  /// Returns whether the stream, which is not a default stream, belongs to the device's primary
  /// context. Runs in the calling thread.
  Result<bool> owns(cuda::Stream stream) const;
  /// Returns unsupported while the stream is being captured; the stream is one of the device's or a
  /// default stream. The query leaves the capture intact. Runs in the calling thread.
  Status check_capture(cuda::Stream stream) const;
  /// Records a mark. Runs in the calling thread and does not wait. The caller must follow it with
  /// watch() or forget(). Errors: those of check_capture(), and the driver's.
  Result<Mark> mark(cuda::Stream stream);
  /// Watches a mark: the thread calls `end.ended` once the device has reached it. An error means
  /// that the context is broken: no work runs on the device any more.
  void watch(const Mark& mark, Completion& end) noexcept;
  void forget(const Mark& mark);
  /// Makes the stream's later work wait for the copy in with this ordinal, and for all copies in
  /// before it. Runs in the calling thread and does not wait. The stream may belong to another
  /// device; a default stream is this device's.
  Status follow(cuda::Stream stream, std::uint64_t ordinal);

 private:
  enum class Kind : std::uint8_t { call, copy_in, copy_out, copy_peer, copy_within, clear };
  struct Order {
    Kind kind = Kind::call;
    const std::function<Status()>* body = nullptr;
    cuda::DevicePointer device = 0;
    std::byte* host = nullptr;
    std::uint64_t bytes = 0;
    Completion* end = nullptr;
    cuda::Context other = nullptr;  // For a copy from another device.
    cuda::DevicePointer from = 0;   // Also for a copy within a device.
  };
  struct UnderWay {
    Kind kind = Kind::call;
    cuda::Event event = nullptr;  // Null: it ends with the next one that has an event.
    Completion* end = nullptr;
    std::uint64_t ordinal = 0;  // For a copy in.
    std::uint64_t bytes = 0;
  };
  /// Copies of one direction that are submitted together, in the order of the requests.
  using Group = Vector<Order>;
  /// Larger copies are submitted alone. On the link, single copies of 2 MiB lose 7 % to the gaps
  /// between them, and copies of 4 MiB lose 3 % (docs/decisions/gpu-facts.md).
  static constexpr std::uint64_t kSmall = std::uint64_t{2} << 20;
  /// Max bytes of a group: no copy of a group ends before the last, which takes 0.15 ms on the
  /// link.
  static constexpr std::uint64_t kMostTogether = std::uint64_t{8} << 20;
  /// While more bytes than this are in progress, an incomplete group waits for more copies: the
  /// link is busy for another 0.08 ms.
  static constexpr std::uint64_t kFewUnderWay = std::uint64_t{4} << 20;
  /// While this many bytes are in progress, nothing more is submitted: the link is busy for 0.3 ms,
  /// much longer than the thread needs for the next submission.
  static constexpr std::uint64_t kManyUnderWay = std::uint64_t{16} << 20;
  /// A stream of ours, or a stream of the program: its operations end in this order.
  struct Channel {
    cuda::Stream stream = nullptr;
    Deque<Order> waiting;  // Not submitted yet.
    Deque<UnderWay> under_way;
    std::uint64_t bytes_under_way = 0;
  };
  struct Watched {
    Mark mark;
    Completion* end = nullptr;
  };

  class CurrentContext;

  CudaLane(const CudaDriver& driver, CudaDeviceFacts facts);
  void give(const Order& order);
  Status give_and_wait(Order order);
  static std::string_view what(Kind kind);
  Status check_stream(cuda::Result result) const;

  // Runs in the thread.
  void run();
  Status begin();
  void end();
  void take_requests();
  bool next(Group& group);
  static bool next_of(Channel& channel, Group& group);
  Channel& channel_of(Kind kind);
  void start(Group& group);
  Status submit(const Order& order, const Channel& channel);
  bool submit_at_once(const Group& group, const Channel& channel);
  void note_begun(const UnderWay& begun, cuda::Event event);
  bool watch_all();
  bool watch_channel(Channel& channel);
  void recycle(const UnderWay& ended);

  Result<cuda::Event> new_event();
  Result<cuda::Event> take_mark();
  void give_mark(cuda::Event event);

  const CudaDriver driver_;
  const CudaDeviceFacts facts_;
  std::uint64_t free_at_start_ = 0;
  cuda::Context context_ = nullptr;  // Constant once open() has returned.
  std::atomic<cuda::Result> lost_with_{cuda::kSuccess};

  // Used by the thread only.
  const cuda::Device device_;
  bool retained_ = false;  // We hold a reference to the primary context.
  Channel in_, out_, within_;
  Deque<Order> calls_;           // Not made yet.
  std::uint64_t copies_in_ = 0;  // Number of copies in that have begun.
  /// Unused events, for copies. They are not used for marks: a late waiter for a copy would then
  /// wait for another copy, but never for work of the program.
  Vector<cuda::Event> events_;
  Vector<Channel> programs_;  // By stream; streams with nothing to watch are removed.

  std::mutex mutex_;               // Guards the members below.
  std::condition_variable asked_;  // Signals a request, something to watch, or stop_.
  Deque<Order> orders_;
  Vector<Watched> watched_;    // Not in programs_ yet.
  Vector<cuda::Event> marks_;  // Unused events.
  struct CopyIn {
    std::uint64_t ordinal = 0;
    cuda::Event event = nullptr;
  };
  Deque<CopyIn> following_;  // Copies in progress, for follow().
  bool asleep_ = false;      // The thread waits for a request without a timeout.
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tiermem
