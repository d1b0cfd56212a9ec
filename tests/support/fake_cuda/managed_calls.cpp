// Managed memory, as far as our programs use it: host memory that kernels can also reach. Nothing
// is moved, and it uses no capacity of a device.
#include <sys/mman.h>

#include "support/fake_cuda/call.hpp"
#include "support/fake_cuda/capture.hpp"
#include "support/fake_cuda/entry_points.hpp"

namespace tiermem::cuda {

using test::Call;
using test::Needs;
using test::StreamPointer;

namespace {

Result in_managed(Call& here, DevicePointer at, std::size_t bytes, Device device) {
  if (bytes == 0 || here.world.managed_at(at, bytes) == nullptr) {
    return kInvalidValue;
  }
  return device == kProcessor || here.world.has_device(device) ? kSuccess : kInvalidDevice;
}

}  // namespace

Result cuMemAllocManaged(DevicePointer* at, std::size_t bytes, unsigned flags) {
  return test::call("cuMemAllocManaged", Needs::context, [&](Call& here) -> Result {
    if (at == nullptr || bytes == 0 || flags != kAttachGlobal) {
      return kInvalidValue;
    }
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      return kOutOfMemory;
    }
    *at = reinterpret_cast<DevicePointer>(memory);
    here.world.managed[*at] = bytes;
    return kSuccess;
  });
}

Result cuMemAdvise(DevicePointer at, std::size_t bytes, int advice, Device device) {
  return test::call("cuMemAdvise", Needs::context, [&](Call& here) -> Result {
    return advice < 1 || advice > 6 ? kInvalidValue : in_managed(here, at, bytes, device);
  });
}

Result cuMemPrefetchAsync(DevicePointer at, std::size_t bytes, Device to, Stream handle) {
  return test::call("cuMemPrefetchAsync", Needs::context, [&](Call& here) -> Result {
    StreamPointer stream;
    if (const Result found = here.find(handle, stream); found != kSuccess) {
      return found;
    }
    if (const Result refused = in_managed(here, at, bytes, to); refused != kSuccess) {
      return refused;
    }
    bool captured = false;
    const Result taken = test::accept(here.world, *stream, captured);
    if (taken == kSuccess && !captured) {
      test::submit(here.world, stream, {});
    }
    return taken;
  });
}

}  // namespace tiermem::cuda
