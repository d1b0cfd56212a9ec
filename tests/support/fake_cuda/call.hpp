// The head of every function of the fake driver: it counts the call, waits where the call is to be
// slow, fails it where it is to fail, and refuses it where the driver would: before cuInit, in a
// forked child, in a thread without a current context, with a context that is gone or broken.
#pragma once

#include <mutex>

#include "os/cuda_types.hpp"
#include "support/fake_cuda/world.hpp"

namespace tiermem::test {

/// What a function cannot do without. Those that release something do so with a broken context,
/// too, and then tell its failure: a program that cleans up after one leaves nothing behind.
enum class Needs : std::uint8_t {
  nothing,
  driver,          ///< cuInit was called.
  memory,          ///< The same, and the current context, if there is one, is not broken.
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
  ContextState* context = nullptr;  ///< The current one; null when there is none.

  cuda::Result refusal() const { return refusal_; }
  /// What the body's result is, once the context is asked whether it still stands.
  cuda::Result end(cuda::Result result) const;

  /// NULL and legacy_stream() are the current context's legacy stream, per_thread_stream() is the
  /// calling thread's of that context.
  cuda::Result find(cuda::Stream handle, StreamPointer& stream) const;
  cuda::Result find(cuda::Event handle, EventState*& event) const;

 private:
  cuda::Result refuse(const char* name, Needs needs);

  Needs needs_;
  cuda::Result refusal_ = cuda::kSuccess;
};

/// [thread] What a function of cuLaunchHostFunc runs under: it may make no calls.
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

/// [thread] Contexts made current, the newest last. No destructor: a thread that ends may call us
/// from those of others.
struct ContextStack {
  static constexpr int kMost = 16;
  cuda::Context contexts[kMost] = {};
  int depth = 0;
  int capture_mode = 0;   // Of cuThreadExchangeStreamCaptureMode: global.
  std::uint64_t age = 0;  // World::age: what was current before a reset() is not.

  cuda::Context top() const { return depth == 0 ? nullptr : contexts[depth - 1]; }
};
ContextStack& context_stack();

}  // namespace tiermem::test
