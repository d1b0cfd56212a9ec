// Streams and events: what was submitted, in which order it runs, and the threads that run it.
//
// Every stream has a queue and, from its first operation on, a thread that takes from it in order.
// An operation begins when all Marks it comes after are done. That is how events make streams wait,
// and how the legacy stream orders with the blocking streams of its context:
//
//   legacy: after the last operation of each blocking stream;  blocking: after legacy's last
//
// A context that has failed runs nothing any more: its operations end at once, undone.
//
// Guarded by World::mutex, which an operation may leave while it copies or sleeps.
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

/// The end of an operation. Shared by the stream that gets there and by whoever waits for it.
struct Mark {
  bool done = false;
  std::chrono::steady_clock::time_point at;  ///< When it was done.
};
using MarkPointer = std::shared_ptr<Mark>;

/// A context. Never freed, so that waiters and threads may keep pointers.
struct ContextState {
  cuda::Context handle = nullptr;
  int device = 0;
  bool destroyed = false;
  cuda::Result failure = cuda::kSuccess;  ///< Sticks, once it is not kSuccess.
  std::shared_ptr<StreamState> legacy;
  std::vector<MarkPointer> orphans;  ///< Last operations of destroyed streams.
};

/// [stream's thread] With the lock held, which it may leave and must take again.
using Run = std::function<cuda::Result(std::unique_lock<std::mutex>& lock)>;

struct Operation {
  Run run;  ///< Null: it only takes its turn.
  std::vector<MarkPointer> after;
  MarkPointer mark;
};

struct Capture {
  enum class Status : int { none = 0, active = 1, invalidated = 2 };
  Status status = Status::none;
  int mode = 0;
  std::thread::id thread;
};

/// Shared by its handle, its context where it is the legacy stream, and its thread.
struct StreamState {
  ContextState* context = nullptr;
  bool legacy = false;
  bool blocking = true;
  Capture capture;
  MarkPointer last;  ///< Null before the first operation.

  // Of the thread.
  std::condition_variable asked;
  std::deque<Operation> queue;
  bool has_thread = false;
  bool running = false;    ///< An operation has begun.
  bool closed = false;     ///< Destroyed: the thread ends when the queue is empty.
  bool abandoned = false;  ///< By reset(): what has not begun never does.
};
using StreamPointer = std::shared_ptr<StreamState>;

struct EventState {
  ContextState* context = nullptr;
  bool timed = true;
  MarkPointer last;       ///< Of the newest record; null before the first.
  bool captured = false;  ///< Recorded in a capture: there is nothing to wait for.
};

// [any] With the lock held.

/// Puts an operation in the stream's queue, after `also` (null: nothing more).
MarkPointer submit(World& world, const StreamPointer& stream, Run run, MarkPointer also = {});
/// Until it is done; a null mark is.
void await(World& world, std::unique_lock<std::mutex>& lock, const MarkPointer& mark);
/// What is under way in a context, or in all of them (null).
std::vector<MarkPointer> under_way(const World& world, const ContextState* context);
void await_all(World& world, std::unique_lock<std::mutex>& lock, const ContextState* context);

/// Sleeps so long in a stream's thread, or until the context fails or the stream is abandoned.
void take_time(World& world, std::unique_lock<std::mutex>& lock, const StreamState& stream,
               std::chrono::nanoseconds time);
void close_stream(StreamState& stream);
void fail_context(World& world, ContextState& context, cuda::Result failure);

}  // namespace tiermem::test
