// One thread that makes the driver calls for one device. The driver has a current context for each
// thread, and a call of ours in the program's thread could break a capture there (docs/decisions/
// gpu-facts.md); so whoever wants something of the device gives it to this thread. Only what must
// stand in the order of the program's own calls is done in its thread: mark().
//
// Copies go on a stream for each direction and overlap: the thread submits what is asked, watches
// their events in order, and tells whoever asked. Small ones that wait together go together: one
// call where the driver has one for many (CUDA 12.8), and one event. It never waits for a device
// while there is work to submit, but where the driver itself does: a copy of memory that is not
// page-locked.
//
// Threads: any; not for the mover's, where the call waits. In a forked child the thread does not
// exist, and the driver works for its parent: nothing may be called there, nor destroyed.
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
#include "base/ending.hpp"
#include "os/cuda_driver.hpp"

namespace tiermem {

class CudaLane {
 public:
  /// Makes the device's primary context, which takes 0.1 s and half a gigabyte of it where nobody
  /// has it yet. unavailable when there is no such device, or without virtual memory management.
  static Result<std::unique_ptr<CudaLane>> open(const CudaDriver& driver, unsigned device);
  /// Waits for what was asked, and for what is watched.
  ~CudaLane();
  CudaLane(const CudaLane&) = delete;
  CudaLane& operator=(const CudaLane&) = delete;

  const CudaDriver& driver() const { return driver_; }
  const CudaDeviceFacts& facts() const { return facts_; }
  /// Bytes of its memory that nobody used once our context was made.
  std::uint64_t free_at_start() const { return free_at_start_; }

  /// Runs `body` in the thread, with the context current, and waits for it.
  Status call(const std::function<Status()>& body);
  /// The same, and returns at once; an error is logged.
  void call_later(std::function<Status()> body);
  /// As call(), in the calling thread, one of our own: for what takes long and needs no order.
  Status here(const std::function<Status()>& body);
  /// As CudaDriver::check, and names the device. Of calls on the device itself: one that says that
  /// its context has ended makes lost() true.
  Status check(cuda::Result result, std::string_view doing);
  /// The device is gone, or its context broken: nothing works there until the process ends. Any
  /// thread.
  bool lost() const { return lost_with_.load(std::memory_order_acquire) != cuda::kSuccess; }
  Status loss() const;

  // Copies: `end.ended` is called in the thread, and for copies in `end.begun`. Those of one
  // direction end in the order in which they were given.
  void copy_in(cuda::DevicePointer to, const std::byte* from, std::uint64_t bytes, Ending& end);
  void copy_out(std::byte* to, cuda::DevicePointer from, std::uint64_t bytes, Ending& end);
  /// From the memory of another device, in the order of the copies in. A refusal does not make
  /// lost() true: it may be the other device that is.
  void copy_peer(cuda::DevicePointer to, const CudaLane& other, cuda::DevicePointer from,
                 std::uint64_t bytes, Ending& end);
  /// The device can address the other one's memory, if that allows it.
  bool reaches(const CudaLane& other) const;
  /// Memory of this device's is there; not the host's, and not another's. In the calling thread.
  bool has(cuda::DevicePointer at) const;
  /// From memory of this device's to other such memory: in the order of a stream, in the calling
  /// thread; or now (`in_host_order`), and waits for it.
  Status copy_within(cuda::Stream stream, bool in_host_order, cuda::DevicePointer to,
                     cuda::DevicePointer from, std::uint64_t bytes);
  /// Waits for it.
  Status clear(cuda::DevicePointer at, std::uint64_t bytes);

  /// A place in the order of a stream of the program's: after all that the stream was given so far.
  struct Mark {
    cuda::Stream stream = nullptr;
    cuda::Event event = nullptr;
  };
  /// The stream, which is no default one, is of the device's primary context. In the calling
  /// thread.
  Result<bool> owns(cuda::Stream stream) const;
  /// unsupported while the stream, one of the device's or a default one, is being captured, which
  /// the asking leaves whole. In the calling thread.
  Status check_capture(cuda::Stream stream) const;
  /// In the calling thread, and waits for nothing. Errors: as check_capture(), and the driver's.
  /// watch() or forget() follows.
  Result<Mark> mark(cuda::Stream stream);
  /// `end.ended` is called in the thread once the device is there. An error says that the context
  /// is broken: then nothing runs there any more.
  void watch(const Mark& mark, Ending& end) noexcept;
  void forget(const Mark& mark);
  /// What the stream is given from now on begins after the copy in with this ordinal, and those
  /// before it. In the calling thread, and waits for nothing. It need not be a stream of the
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
    Ending* end = nullptr;
    cuda::Context other = nullptr;  // Of a copy from another device.
    cuda::DevicePointer from = 0;   // Of a copy from a device to itself, too.
  };
  struct UnderWay {
    Kind kind = Kind::call;
    cuda::Event event = nullptr;  // Null: it ends with the next one that has an event.
    Ending* end = nullptr;
    std::uint64_t ordinal = 0;  // Of a copy in.
  };
  /// Copies of one direction that are submitted together, in the order in which they were asked.
  using Group = Vector<Order>;
  static constexpr std::uint64_t kSmall = std::uint64_t{2} << 20;  ///< Below it copies are grouped.
  /// None of them ends before the last: 0.15 ms of the link's.
  static constexpr std::uint64_t kMostTogether = std::uint64_t{8} << 20;
  /// What a stream does for us, or has been given by the program: it ends in this order.
  struct Channel {
    cuda::Stream stream = nullptr;
    Deque<UnderWay> under_way;
  };
  struct Watched {
    Mark mark;
    Ending* end = nullptr;
  };

  class CurrentContext;

  CudaLane(const CudaDriver& driver, CudaDeviceFacts facts);
  void give(const Order& order);
  Status give_and_wait(Order order);
  static std::string_view what(Kind kind);
  Status check_stream(cuda::Result result) const;

  // In the thread.
  void run();
  Status begin();
  void end();
  bool next(Group& group);
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

  // Of the thread.
  const cuda::Device device_;
  bool retained_ = false;  // The primary context is ours, too.
  Channel in_, out_;
  std::uint64_t copies_in_ = 0;  // Begun so far.
  /// Free ones, for copies. Not for marks: who follows a copy and is late waits for another copy
  /// then, and not for what the program does.
  Vector<cuda::Event> events_;
  Vector<Channel> programs_;  // By stream; those of which nothing is watched go.

  std::mutex mutex_;               // Of the rest.
  std::condition_variable asked_;  // There is an order, something to watch, or stop_ is set.
  Deque<Order> orders_;
  Vector<Watched> watched_;    // Not in programs_ yet.
  Vector<cuda::Event> marks_;  // Free ones.
  struct CopyIn {
    std::uint64_t ordinal = 0;
    cuda::Event event = nullptr;
  };
  Deque<CopyIn> following_;  // Those under way, for follow().
  bool asleep_ = false;      // The thread waits for whoever asks, without a time.
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tiermem
