// The head of every function of the fake driver. It counts the call, waits if the call is to be
// slow, and fails it if ordered. It refuses the call when the driver would: before cuInit, in a
// forked child, in a thread without a current context, with a destroyed or broken context.
#pragma once

#include <mutex>

#include "os/cuda_types.hpp"
#include "support/fake_cuda/world.hpp"

namespace tiermem::test {

/// The requirements of a function. A function that releases something does so even with a broken
/// context, and returns the context's failure: a program that cleans up after a failure leaves
/// nothing behind.
enum class Needs : std::uint8_t {
  nothing,
  driver,          ///< cuInit was called.
  memory,          ///< The same, and the current context, if any, is not broken.
  release_memory,  ///< As `memory`, but releases.
  context,         ///< A current context.
  release,         ///< As `context`, but releases.
};

inline constexpr cuda::Result kCaptureInvalidated = 901;
inline constexpr cuda::Result kCaptureImplicit = 906;
inline constexpr cuda::Result kCapturedEvent = 907;
inline constexpr cuda::Result kCaptureWrongThread = 908;

class Call {
 public:
  Call(const char* name, Needs needs);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  World& world;
  std::unique_lock<std::mutex> lock;
  ContextState* context = nullptr;  ///< The current one; null if there is none.

  cuda::Result refusal() const { return refusal_; }
  /// Returns the body's result, or the context's failure if it broke in between.
  cuda::Result end(cuda::Result result) const;

  /// NULL and legacy_stream() mean the current context's legacy stream; per_thread_stream() means
  /// the calling thread's stream of that context.
  cuda::Result find(cuda::Stream handle, StreamPointer& stream) const;
  cuda::Result find(cuda::Event handle, EventState*& event) const;

 private:
  cuda::Result refuse(const char* name, Needs needs);

  Needs needs_;
  cuda::Result refusal_ = cuda::kSuccess;
};

/// [thread] Active while a function of cuLaunchHostFunc runs: it must not make calls.
class InHostFunction {
 public:
  InHostFunction();
  ~InHostFunction();
};

/// Runs `body(call)` with the lock held, unless the call is refused.
template <typename Body>
cuda::Result call(const char* name, Needs needs, const Body& body) {
  Call here(name, needs);
  return here.refusal() == cuda::kSuccess ? here.end(body(here)) : here.refusal();
}

/// [thread] Contexts made current, the newest last. No destructor, because an ending thread may
/// call the driver from other destructors.
struct ContextStack {
  static constexpr int kMost = 16;
  cuda::Context contexts[kMost] = {};
  int depth = 0;
  int capture_mode = 0;   // From cuThreadExchangeStreamCaptureMode: global.
  std::uint64_t age = 0;  // World::age: a context from before a reset() is not current.

  cuda::Context top() const { return depth == 0 ? nullptr : contexts[depth - 1]; }
};
ContextStack& context_stack();

}  // namespace tiermem::test
