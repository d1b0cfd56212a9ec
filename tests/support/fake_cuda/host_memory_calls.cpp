// The calls that page-lock host memory. Releasing it waits for all running work, on every device,
// as observed on the real driver: no copy can find its memory gone.
#include "support/fake_cuda/call.hpp"
#include "support/fake_cuda/capture.hpp"
#include "support/fake_cuda/entry_points.hpp"

namespace tiermem::cuda {

using test::Call;
using test::Needs;

Result cuMemHostAlloc(void** at, std::size_t bytes, unsigned flags) {
  return test::call("cuMemHostAlloc", Needs::context, [&](Call& here) -> Result {
    if (at == nullptr || flags > 7) {
      return kInvalidValue;
    }
    if (const Result refused = test::refuse_in_capture(here.world); refused != kSuccess) {
      return refused;
    }
    return here.world.host->allocate(bytes, *at);
  });
}

Result cuMemAllocHost_v2(void** at, std::size_t bytes) {
  return cuMemHostAlloc(at, bytes, 0);
}

Result cuMemHostGetDevicePointer_v2(DevicePointer* at, void* host, unsigned flags) {
  return test::call("cuMemHostGetDevicePointer", Needs::context, [&](Call& here) -> Result {
    const bool locked = here.world.host->sort_of(host, 1) == test::HostMemory::Sort::locked;
    if (at == nullptr || flags != 0 || !locked) {
      return kInvalidValue;
    }
    *at = reinterpret_cast<std::uintptr_t>(host);  // One address for both, as with UVA.
    return kSuccess;
  });
}

Result cuMemFreeHost(void* at) {
  return test::call("cuMemFreeHost", Needs::release, [&](Call& here) -> Result {
    if (const Result refused = test::refuse_in_capture(here.world); refused != kSuccess) {
      return refused;
    }
    test::await_all(here.world, here.lock, nullptr);
    return here.world.host->free(at);
  });
}

Result cuMemHostRegister_v2(void* at, std::size_t bytes, unsigned flags) {
  return test::call("cuMemHostRegister", Needs::context, [&](Call& here) {
    const bool devices = here.world.memory->owns(reinterpret_cast<std::uintptr_t>(at));
    return devices || flags > 15 ? kInvalidValue : here.world.host->register_range(at, bytes);
  });
}

Result cuMemHostUnregister(void* at) {
  return test::call("cuMemHostUnregister", Needs::release, [&](Call& here) -> Result {
    if (const Result refused = test::refuse_in_capture(here.world); refused != kSuccess) {
      return refused;
    }
    test::await_all(here.world, here.lock, nullptr);
    return here.world.host->unregister(at);
  });
}

}  // namespace tiermem::cuda
