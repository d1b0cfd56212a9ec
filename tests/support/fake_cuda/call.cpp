// Decides whether a call is admitted.
#include "support/fake_cuda/call.hpp"

#include <chrono>
#include <thread>

namespace tiermem::test {
namespace {

thread_local bool in_host_function = false;

bool looks_at_context(Needs needs) {
  return needs != Needs::nothing && needs != Needs::driver;
}

bool releases(Needs needs) {
  return needs == Needs::release || needs == Needs::release_memory;
}

bool must_have_context(Needs needs) {
  return needs == Needs::context || needs == Needs::release;
}

}  // namespace

ContextStack& context_stack() {
  thread_local ContextStack stack;
  if (const std::uint64_t now = world().age; stack.age != now) {
    stack = {};
    stack.age = now;
  }
  return stack;
}

InHostFunction::InHostFunction() {
  in_host_function = true;
}

InHostFunction::~InHostFunction() {
  in_host_function = false;
}

Call::Call(const char* name, Needs needs) : world(test::world()), lock(world.mutex), needs_(needs) {
  refusal_ = refuse(name, needs);
}

cuda::Result Call::refuse(const char* name, Needs needs) {
  const cuda::Result ordered = world.faults.count(name);
  if (const auto slow = world.faults.slowness(name); slow.count() > 0) {
    lock.unlock();
    std::this_thread::sleep_for(slow);
    lock.lock();
  }
  if (ordered != cuda::kSuccess) {
    return ordered;
  }
  if (needs == Needs::nothing) {
    return cuda::kSuccess;
  }
  if (world.forked || !world.initialized) {
    return cuda::kNotInitialized;
  }
  if (in_host_function) {
    return cuda::kNotPermitted;
  }
  const auto current = world.contexts.find(context_stack().top());
  context = current == world.contexts.end() ? nullptr : current->second;
  if (must_have_context(needs)) {
    if (context == nullptr) {
      return cuda::kInvalidContext;
    }
    if (context->destroyed) {
      return cuda::kContextIsDestroyed;
    }
  }
  const bool broken = looks_at_context(needs) && !releases(needs) && context != nullptr &&
                      context->failure != cuda::kSuccess;
  return broken ? context->failure : cuda::kSuccess;
}

cuda::Result Call::end(cuda::Result result) const {
  const bool broken = looks_at_context(needs_) && context != nullptr && !context->destroyed &&
                      context->failure != cuda::kSuccess;
  return broken ? context->failure : result;
}

cuda::Result Call::find(cuda::Stream handle, StreamPointer& stream) const {
  if (handle == cuda::per_thread_stream()) {
    handle = world.own_stream(*context);
  }
  if (handle == nullptr || handle == cuda::legacy_stream()) {
    stream = context->legacy;
    return cuda::kSuccess;
  }
  const auto known = world.streams.find(handle);
  if (known == world.streams.end()) {
    return cuda::kInvalidHandle;
  }
  stream = known->second;
  return stream->context->failure;
}

cuda::Result Call::find(cuda::Event handle, EventState*& event) const {
  const auto known = world.events.find(handle);
  if (known == world.events.end()) {
    return cuda::kInvalidHandle;
  }
  event = &known->second;
  return cuda::kSuccess;
}

}  // namespace tiermem::test
