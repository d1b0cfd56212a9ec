// The calls on contexts: the primary context of each device, other contexts, and the current
// context of a thread.
#include "support/fake_cuda/call.hpp"
#include "support/fake_cuda/capture.hpp"
#include "support/fake_cuda/entry_points.hpp"

namespace tiermem::cuda {

using test::Call;
using test::ContextStack;
using test::ContextState;
using test::DeviceState;
using test::Needs;

namespace {

// Whether a handle can be made current; null can.
Result usable(Call& here, Context handle) {
  if (handle == nullptr) {
    return kSuccess;
  }
  const auto known = here.world.contexts.find(handle);
  if (known == here.world.contexts.end()) {
    return kInvalidContext;
  }
  return known->second->destroyed ? kContextIsDestroyed : kSuccess;
}

}  // namespace

Result cuDevicePrimaryCtxRetain(Context* context, Device device) {
  return test::call("cuDevicePrimaryCtxRetain", Needs::driver, [&](Call& here) -> Result {
    if (context == nullptr) {
      return kInvalidValue;
    }
    if (!here.world.has_device(device)) {
      return kInvalidDevice;
    }
    DeviceState& state = here.world.device(device);
    if (state.lost) {
      return kDeviceUnavailable;
    }
    if (state.retained == 0) {
      state.primary = &here.world.make_context(device);
    }
    ++state.retained;
    *context = state.primary->handle;
    return kSuccess;
  });
}

Result cuDevicePrimaryCtxRelease_v2(Device device) {
  return test::call("cuDevicePrimaryCtxRelease", Needs::driver, [&](Call& here) -> Result {
    if (!here.world.has_device(device)) {
      return kInvalidDevice;
    }
    DeviceState& state = here.world.device(device);
    if (state.retained == 0) {
      return kInvalidContext;
    }
    if (--state.retained == 0) {
      ContextState& last = *state.primary;
      state.primary = nullptr;
      test::await_all(here.world, here.lock, &last);
      here.world.destroy_context(last);
    }
    return kSuccess;
  });
}

Result cuDevicePrimaryCtxGetState(Device device, unsigned* flags, int* active) {
  return test::call("cuDevicePrimaryCtxGetState", Needs::driver, [&](Call& here) -> Result {
    if (!here.world.has_device(device)) {
      return kInvalidDevice;
    }
    if (flags == nullptr || active == nullptr) {
      return kInvalidValue;
    }
    *flags = 0;
    *active = here.world.device(device).retained > 0 ? 1 : 0;
    return kSuccess;
  });
}

Result cuCtxSetCurrent(Context context) {
  return test::call("cuCtxSetCurrent", Needs::driver, [&](Call& here) -> Result {
    if (const Result can = usable(here, context); can != kSuccess) {
      return can;
    }
    ContextStack& stack = test::context_stack();
    if (context == nullptr) {
      stack.depth -= stack.depth > 0 ? 1 : 0;
    } else {
      stack.depth += stack.depth == 0 ? 1 : 0;
      stack.contexts[stack.depth - 1] = context;
    }
    return kSuccess;
  });
}

Result cuCtxGetCurrent(Context* context) {
  return test::call("cuCtxGetCurrent", Needs::driver, [&](Call&) -> Result {
    if (context == nullptr) {
      return kInvalidValue;
    }
    *context = test::context_stack().top();
    return kSuccess;
  });
}

Result cuCtxPushCurrent_v2(Context context) {
  return test::call("cuCtxPushCurrent", Needs::driver, [&](Call& here) -> Result {
    ContextStack& stack = test::context_stack();
    if (context == nullptr || stack.depth == ContextStack::kMost) {
      return kInvalidValue;
    }
    const Result can = usable(here, context);
    if (can == kSuccess) {
      stack.contexts[stack.depth++] = context;
    }
    return can;
  });
}

Result cuCtxPopCurrent_v2(Context* context) {
  return test::call("cuCtxPopCurrent", Needs::driver, [&](Call&) -> Result {
    ContextStack& stack = test::context_stack();
    if (stack.depth == 0) {
      return kInvalidContext;
    }
    const Context top = stack.contexts[--stack.depth];
    if (context != nullptr) {
      *context = top;
    }
    return kSuccess;
  });
}

Result cuCtxCreate_v2(Context* context, unsigned, Device device) {
  return test::call("cuCtxCreate", Needs::driver, [&](Call& here) -> Result {
    ContextStack& stack = test::context_stack();
    if (context == nullptr || stack.depth == ContextStack::kMost) {
      return kInvalidValue;
    }
    if (!here.world.has_device(device)) {
      return kInvalidDevice;
    }
    *context = here.world.make_context(device).handle;
    stack.contexts[stack.depth++] = *context;
    return kSuccess;
  });
}

Result cuCtxDestroy_v2(Context handle) {
  return test::call("cuCtxDestroy", Needs::driver, [&](Call& here) -> Result {
    const Result can = handle == nullptr ? kInvalidContext : usable(here, handle);
    if (can != kSuccess) {
      return can;
    }
    ContextState& context = *here.world.contexts.at(handle);
    if (here.world.device(context.device).primary == &context) {
      return kInvalidContext;  // It has been released.
    }
    test::await_all(here.world, here.lock, &context);
    here.world.destroy_context(context);
    ContextStack& stack = test::context_stack();
    stack.depth -= stack.top() == handle ? 1 : 0;
    return kSuccess;
  });
}

Result cuDeviceCanAccessPeer(int* can, Device device, Device peer) {
  return test::call("cuDeviceCanAccessPeer", Needs::driver, [&](Call& here) -> Result {
    if (can == nullptr || !here.world.has_device(device) || !here.world.has_device(peer)) {
      return can == nullptr ? kInvalidValue : kInvalidDevice;
    }
    *can = device != peer && here.world.settings.peers ? 1 : 0;
    return kSuccess;
  });
}

Result cuCtxEnablePeerAccess(Context peer, unsigned flags) {
  return test::call("cuCtxEnablePeerAccess", Needs::context, [&](Call& here) -> Result {
    const Result can = peer == nullptr ? kInvalidContext : usable(here, peer);
    if (can != kSuccess || flags != 0) {
      return can != kSuccess ? can : kInvalidValue;
    }
    return here.world.settings.peers ? kSuccess : kPeerAccessUnsupported;
  });
}

Result cuCtxGetDevice(Device* device) {
  return test::call("cuCtxGetDevice", Needs::context, [&](Call& here) -> Result {
    if (device == nullptr) {
      return kInvalidValue;
    }
    *device = here.context->device;
    return kSuccess;
  });
}

Result cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return test::call("cuCtxGetStreamPriorityRange", Needs::context, [&](Call&) -> Result {
    constexpr int kGreatest = -5;  // Today's value; all streams are alike here.
    if (least != nullptr) {
      *least = 0;
    }
    if (greatest != nullptr) {
      *greatest = kGreatest;
    }
    return kSuccess;
  });
}

Result cuCtxSynchronize() {
  return test::call("cuCtxSynchronize", Needs::context, [&](Call& here) -> Result {
    if (const Result refused = test::refuse_in_capture(here.world); refused != kSuccess) {
      return refused;
    }
    test::await_all(here.world, here.lock, here.context);
    return kSuccess;
  });
}

}  // namespace tiermem::cuda
