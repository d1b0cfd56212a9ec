// Memory in the order of a stream: cuMemAllocAsync and cuMemFreeAsync. Allocated memory exists at
// once; freed memory exists until the stream reaches the call.
#include "support/fake_cuda/call.hpp"
#include "support/fake_cuda/capture.hpp"
#include "support/fake_cuda/entry_points.hpp"

namespace tiermem::cuda {

using test::Call;
using test::Needs;
using test::StreamPointer;

namespace {

// Finds the stream, and whether it only records its work for a graph.
Result take(Call& here, Stream handle, StreamPointer& stream, bool& captured) {
  const Result found = here.find(handle, stream);
  return found == kSuccess ? test::accept(here.world, *stream, captured) : found;
}

Result allocate(DevicePointer* at, std::size_t bytes, Stream handle) {
  return test::call("cuMemAllocAsync", Needs::context, [&](Call& here) -> Result {
    if (at == nullptr || bytes == 0) {
      return kInvalidValue;
    }
    StreamPointer stream;
    bool captured = false;
    if (const Result taken = take(here, handle, stream, captured); taken != kSuccess) {
      return taken;
    }
    // A graph's allocation has an address now, and gets memory when the graph runs, which never
    // happens here.
    return captured ? here.world.memory->reserve(here.world.memory->granularity, 0, 0, *at)
                    : here.world.memory->allocate(stream->context->device, bytes, *at);
  });
}

Result free(DevicePointer at, Stream handle) {
  return test::call("cuMemFreeAsync", Needs::context, [&](Call& here) -> Result {
    StreamPointer stream;
    bool captured = false;
    if (const Result taken = take(here, handle, stream, captured); taken != kSuccess || captured) {
      return taken;
    }
    if (!here.world.memory->allocated(at)) {
      return kInvalidValue;
    }
    test::submit(here.world, stream, [at](auto&) { return test::world().memory->free(at); });
    return kSuccess;
  });
}

Stream own_if_default(Stream stream) {
  return stream == nullptr ? per_thread_stream() : stream;
}

}  // namespace

Result cuMemAllocAsync(DevicePointer* at, std::size_t bytes, Stream stream) {
  return allocate(at, bytes, stream);
}

Result cuMemAllocAsync_ptsz(DevicePointer* at, std::size_t bytes, Stream stream) {
  return allocate(at, bytes, own_if_default(stream));
}

Result cuMemFreeAsync(DevicePointer at, Stream stream) {
  return free(at, stream);
}

Result cuMemFreeAsync_ptsz(DevicePointer at, Stream stream) {
  return free(at, own_if_default(stream));
}

}  // namespace tiermem::cuda
