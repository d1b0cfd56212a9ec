// Streams and events: submitted work, the order in which it runs, and the threads that run it.
//
// Every stream has a queue and, from its first operation on, a thread that takes from it in order.
// An operation begins when all Marks before it are done. Events use this to make streams wait, and
// the legacy stream uses it for its order with the blocking streams of its context:
//
//   legacy: after the last operation of each blocking stream;  blocking: after legacy's last
//
// A context that has failed runs nothing more: its operations end at once, without effect.
//
// Guarded by World::mutex; an operation may release it while it copies or sleeps.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "os/cuda_types.hpp"

namespace tiermem::test {

struct World;
struct StreamState;

/// The end of an operation. Shared by the stream that reaches it and by its waiters.
struct Mark {
  bool done = false;
  std::chrono::steady_clock::time_point at;  ///< The time at which it was done.
};
using MarkPointer = std::shared_ptr<Mark>;

/// A context. Never freed, so that waiters and threads may keep pointers.
struct ContextState {
  cuda::Context handle = nullptr;
  int device = 0;
  bool destroyed = false;
  cuda::Result failure = cuda::kSuccess;  ///< Permanent once it is not kSuccess.
  std::shared_ptr<StreamState> legacy;
  std::vector<MarkPointer> orphans;  ///< Last operations of destroyed streams.
};

/// [stream's thread] Called with the lock held. It may release the lock and must take it again.
using Run = std::function<cuda::Result(std::unique_lock<std::mutex>& lock)>;

struct Operation {
  Run run;  ///< Null: it only waits for its position.
  std::vector<MarkPointer> after;
  MarkPointer mark;
};

struct Capture {
  enum class Status : int { none = 0, active = 1, invalidated = 2 };
  Status status = Status::none;
  int mode = 0;
  std::thread::id thread;
};

/// Shared by its handle, by its context if it is the legacy stream, and by its thread.
struct StreamState {
  ContextState* context = nullptr;
  bool legacy = false;
  bool blocking = true;
  Capture capture;
  MarkPointer last;  ///< Null before the first operation.

  // Used by the thread.
  std::condition_variable asked;
  std::deque<Operation> queue;
  bool has_thread = false;
  bool running = false;    ///< An operation has begun.
  bool closed = false;     ///< Destroyed: the thread ends when the queue is empty.
  bool abandoned = false;  ///< By reset(): operations that have not begun never do.
};
using StreamPointer = std::shared_ptr<StreamState>;

struct EventState {
  ContextState* context = nullptr;
  bool timed = true;
  MarkPointer last;       ///< From the newest record; null before the first.
  bool captured = false;  ///< Recorded in a capture: no thread may wait for it.
};

// [any] Call these with the lock held.

/// Puts an operation into the stream's queue, after `also` (null: no further condition).
MarkPointer submit(World& world, const StreamPointer& stream, Run run, MarkPointer also = {});
/// Waits until the mark is done; a null mark is done.
void await(World& world, std::unique_lock<std::mutex>& lock, const MarkPointer& mark);
/// The work under way in a context, or in all contexts (null).
std::vector<MarkPointer> under_way(const World& world, const ContextState* context);
void await_all(World& world, std::unique_lock<std::mutex>& lock, const ContextState* context);

/// Sleeps for `time` in a stream's thread, or until the context fails or the stream is abandoned.
void take_time(World& world, std::unique_lock<std::mutex>& lock, const StreamState& stream,
               std::chrono::nanoseconds time);
void close_stream(StreamState& stream);
void fail_context(World& world, ContextState& context, cuda::Result failure);

}  // namespace tiermem::test
