// The calls that copy and set. A copy with pageable host memory on one side returns when it is
// done, as in the real driver, which stages it; so do calls without "Async" in the name.
#include <limits>
#include <utility>
#include <vector>

#include "support/fake_cuda/call.hpp"
#include "support/fake_cuda/capture.hpp"
#include "support/fake_cuda/copies.hpp"
#include "support/fake_cuda/entry_points.hpp"

namespace tiermem::cuda {

using test::Call;
using test::Copy;
using test::Needs;
using test::Side;
using test::StreamPointer;

namespace {

DevicePointer number(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

/// The contexts of the two sides of a copy between devices.
struct Peers {
  Context to = nullptr;
  Context from = nullptr;
};

// Finds the device of an existing context.
Result device_of(const Call& here, Context context, int& device) {
  const auto known = here.world.contexts.find(context);
  if (known == here.world.contexts.end() || known->second->destroyed) {
    return kInvalidContext;
  }
  device = known->second->device;
  return known->second->failure;
}

// `waits`: a call without "Async", on the legacy stream.
Result copy_one(const char* name, Copy copy, Stream handle, bool waits,
                const Peers* peers = nullptr) {
  return test::call(name, Needs::context, [&](Call& here) -> Result {
    if (peers != nullptr) {
      const Result to = device_of(here, peers->to, copy.to_device);
      const Result from = device_of(here, peers->from, copy.from_device);
      if (to != kSuccess || from != kSuccess) {
        return to != kSuccess ? to : from;
      }
    }
    StreamPointer stream;
    if (const Result found = here.find(handle, stream); found != kSuccess) {
      return found;
    }
    if (stream->context != here.context) {
      return kInvalidHandle;
    }
    if (const Result refused = waits ? test::refuse_in_capture(here.world) : kSuccess;
        refused != kSuccess) {
      return refused;
    }
    const Result seen = test::examine(here.world, copy);
    return seen == kSuccess ? test::start(here, stream, {copy}, waits || copy.pageable) : seen;
  });
}

struct Batch {
  DevicePointer* to;
  DevicePointer* from;
  std::size_t* bytes;
  std::size_t count;
  BatchAttributes* attributes;
  std::size_t* first;  // first[k]: the first copy that attributes[k] apply to.
  std::size_t kinds;
};

enum : int { kDuringCall = 2, kAnyOrder = 3 };  // Values of CUmemcpySrcAccessOrder.

bool well_formed(const Batch& batch) {
  bool good = batch.to != nullptr && batch.from != nullptr && batch.bytes != nullptr &&
              batch.attributes != nullptr && batch.first != nullptr && batch.kinds > 0 &&
              batch.kinds <= batch.count && batch.first[0] == 0;
  for (std::size_t k = 0; good && k < batch.kinds; ++k) {
    const int order = batch.attributes[k].source_order;
    good = order >= 1 && order <= kAnyOrder && batch.first[k] < batch.count &&
           (k == 0 || batch.first[k] > batch.first[k - 1]);
  }
  return good;
}

Result copy_batch(const Batch& batch, std::size_t* failed, Stream handle) {
  std::size_t unused = 0;
  std::size_t& which = failed == nullptr ? unused : *failed;
  which = std::numeric_limits<std::size_t>::max();  // Not a single one.
  return test::call("cuMemcpyBatchAsync", Needs::context, [&](Call& here) -> Result {
    StreamPointer stream;
    if (const Result found = here.find(handle, stream); found != kSuccess) {
      return found;
    }
    // According to the reference, not on the legacy stream.
    if (stream->legacy || !well_formed(batch)) {
      return kInvalidValue;
    }
    if (stream->context != here.context) {
      return kInvalidHandle;
    }
    bool blocks = false;
    std::vector<Copy> copies;
    for (std::size_t i = 0; i < batch.count; ++i) {
      Copy copy{batch.to[i], batch.from[i], batch.bytes[i]};
      const Result seen = copy.bytes == 0 ? kInvalidValue : test::examine(here.world, copy);
      if (seen != kSuccess) {
        which = i;
        return seen;
      }
      blocks = blocks || copy.pageable;
      copies.push_back(copy);
    }
    for (std::size_t k = 0; k < batch.kinds; ++k) {
      blocks = blocks || batch.attributes[k].source_order == kDuringCall;
    }
    return test::start(here, stream, std::move(copies), blocks);
  });
}

Copy set(DevicePointer at, unsigned char value, std::size_t bytes) {
  return {at, 0, bytes, Side::device, Side::device, true, value};
}

}  // namespace

Result cuMemcpyHtoD_v2(DevicePointer to, const void* from, std::size_t bytes) {
  return copy_one("cuMemcpyHtoD", {to, number(from), bytes, Side::device, Side::host}, nullptr,
                  true);
}

Result cuMemcpyDtoH_v2(void* to, DevicePointer from, std::size_t bytes) {
  return copy_one("cuMemcpyDtoH", {number(to), from, bytes, Side::host, Side::device}, nullptr,
                  true);
}

Result cuMemcpyDtoD_v2(DevicePointer to, DevicePointer from, std::size_t bytes) {
  return copy_one("cuMemcpyDtoD", {to, from, bytes, Side::device, Side::device}, nullptr, true);
}

Result cuMemcpy(DevicePointer to, DevicePointer from, std::size_t bytes) {
  return copy_one("cuMemcpy", {to, from, bytes}, nullptr, true);
}

Result cuMemcpyPeer(DevicePointer to, Context to_context, DevicePointer from, Context from_context,
                    std::size_t bytes) {
  const Peers peers{to_context, from_context};
  return copy_one("cuMemcpyPeer", {to, from, bytes, Side::device, Side::device}, nullptr, true,
                  &peers);
}

Result cuMemcpyPeerAsync(DevicePointer to, Context to_context, DevicePointer from,
                         Context from_context, std::size_t bytes, Stream stream) {
  const Peers peers{to_context, from_context};
  return copy_one("cuMemcpyPeerAsync", {to, from, bytes, Side::device, Side::device}, stream, false,
                  &peers);
}

Result cuMemcpyAsync(DevicePointer to, DevicePointer from, std::size_t bytes, Stream stream) {
  return copy_one("cuMemcpyAsync", {to, from, bytes}, stream, false);
}

Result cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, std::size_t bytes, Stream stream) {
  return copy_one("cuMemcpyHtoDAsync", {to, number(from), bytes, Side::device, Side::host}, stream,
                  false);
}

Result cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, std::size_t bytes, Stream stream) {
  return copy_one("cuMemcpyDtoHAsync", {number(to), from, bytes, Side::host, Side::device}, stream,
                  false);
}

Result cuMemcpyDtoDAsync_v2(DevicePointer to, DevicePointer from, std::size_t bytes,
                            Stream stream) {
  return copy_one("cuMemcpyDtoDAsync", {to, from, bytes, Side::device, Side::device}, stream,
                  false);
}

Result cuMemcpyBatchAsync(DevicePointer* to, DevicePointer* from, std::size_t* bytes,
                          std::size_t count, BatchAttributes* attributes, std::size_t* first,
                          std::size_t kinds, std::size_t* failed, Stream stream) {
  return copy_batch({to, from, bytes, count, attributes, first, kinds}, failed, stream);
}

Result cuMemcpyBatchAsync_v2(DevicePointer* to, DevicePointer* from, std::size_t* bytes,
                             std::size_t count, BatchAttributes* attributes, std::size_t* first,
                             std::size_t kinds, Stream stream) {
  return copy_batch({to, from, bytes, count, attributes, first, kinds}, nullptr, stream);
}

Result cuMemsetD8_v2(DevicePointer at, unsigned char value, std::size_t bytes) {
  return copy_one("cuMemsetD8", set(at, value, bytes), nullptr, true);
}

Result cuMemsetD8Async(DevicePointer at, unsigned char value, std::size_t bytes, Stream stream) {
  return copy_one("cuMemsetD8Async", set(at, value, bytes), stream, false);
}

}  // namespace tiermem::cuda
