// The calls that page-lock host memory. Giving it back waits for all that runs, on any device, as
// was seen of the real driver: no copy can find its memory gone.
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
