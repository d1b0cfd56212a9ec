// The calls on contexts: the primary one of each device, and which is current in a thread.
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

// Whether a handle can be made current. Null can.
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

Result cuCtxGetDevice(Device* device) {
  return test::call("cuCtxGetDevice", Needs::context, [&](Call& here) -> Result {
    if (device == nullptr) {
      return kInvalidValue;
    }
    *device = here.context->device;
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
