// The rules of capture, and its calls.
#include "support/fake_cuda/capture.hpp"

#include <utility>

#include "support/fake_cuda/call.hpp"
#include "support/fake_cuda/entry_points.hpp"

namespace tiermem::test {
namespace {

enum Mode : int { global = 0, thread_local_mode = 1, relaxed = 2 };

bool beside(const StreamState& legacy, const StreamState& other) {
  return other.context == legacy.context && other.blocking &&
         other.capture.status == Capture::Status::active;
}

}  // namespace

cuda::Result refuse_in_capture(World& world) {
  cuda::Result result = cuda::kSuccess;
  const int mine = context_stack().capture_mode;
  for (const auto& [handle, stream] : world.streams) {
    Capture& capture = stream->capture;
    const bool here = capture.thread == std::this_thread::get_id();
    const bool counts = here ? capture.mode != relaxed : capture.mode == global && mine == global;
    if (capture.status != Capture::Status::none && mine != relaxed && counts) {
      capture.status = Capture::Status::invalidated;
      result = cuda::kCaptureUnsupported;
    }
  }
  return result;
}

cuda::Result refuse_if_capturing(StreamState& stream) {
  if (stream.capture.status == Capture::Status::none) {
    return cuda::kSuccess;
  }
  stream.capture.status = Capture::Status::invalidated;
  return cuda::kCaptureUnsupported;
}

cuda::Result accept(World& world, StreamState& stream, bool& captured) {
  captured = stream.capture.status == Capture::Status::active;
  if (stream.capture.status == Capture::Status::invalidated) {
    return kCaptureInvalidated;
  }
  if (!stream.legacy || !captures_beside(world, stream)) {
    return cuda::kSuccess;
  }
  // The legacy stream would wait for the capturing one.
  for (const auto& [handle, each] : world.streams) {
    if (beside(stream, *each)) {
      each->capture.status = Capture::Status::invalidated;
    }
  }
  return kCaptureImplicit;
}

bool captures_beside(const World& world, const StreamState& legacy) {
  for (const auto& [handle, each] : world.streams) {
    if (beside(legacy, *each)) {
      return true;
    }
  }
  return false;
}

}  // namespace tiermem::test

namespace tiermem::cuda {

using test::Call;
using test::Needs;
using test::StreamPointer;
using Status = test::Capture::Status;

Result cuStreamBeginCapture_v2(Stream handle, int mode) {
  return test::call("cuStreamBeginCapture", Needs::context, [&](Call& here) -> Result {
    StreamPointer stream;
    if (const Result found = here.find(handle, stream); found != kSuccess) {
      return found;
    }
    if (stream->legacy) {
      return kCaptureUnsupported;
    }
    if (mode < 0 || mode > test::relaxed || stream->capture.status != Status::none) {
      return kInvalidValue;
    }
    stream->capture = {Status::active, mode, std::this_thread::get_id()};
    return kSuccess;
  });
}

Result cuStreamEndCapture(Stream handle, test::Graph* graph) {
  return test::call("cuStreamEndCapture", Needs::context, [&](Call& here) -> Result {
    StreamPointer stream;
    if (const Result found = here.find(handle, stream); found != kSuccess) {
      return found;
    }
    const test::Capture capture = stream->capture;
    if (graph == nullptr || capture.status == Status::none) {
      return kInvalidValue;
    }
    *graph = nullptr;
    if (capture.mode != test::relaxed && capture.thread != std::this_thread::get_id()) {
      return test::kCaptureWrongThread;
    }
    stream->capture = {};
    if (capture.status == Status::invalidated) {
      return test::kCaptureInvalidated;
    }
    *graph = here.world.new_handle<test::Graph>();
    here.world.graphs.insert(reinterpret_cast<std::uintptr_t>(*graph));
    return kSuccess;
  });
}

Result cuThreadExchangeStreamCaptureMode(int* mode) {
  return test::call("cuThreadExchangeStreamCaptureMode", Needs::driver, [&](Call&) -> Result {
    if (mode == nullptr || *mode < 0 || *mode > test::relaxed) {
      return kInvalidValue;
    }
    std::swap(*mode, test::context_stack().capture_mode);
    return kSuccess;
  });
}

Result cuStreamIsCapturing(Stream handle, int* status) {
  return test::call("cuStreamIsCapturing", Needs::context, [&](Call& here) -> Result {
    StreamPointer stream;
    if (const Result found = here.find(handle, stream); found != kSuccess) {
      return found;
    }
    if (status == nullptr) {
      return kInvalidValue;
    }
    if (stream->legacy && test::captures_beside(here.world, *stream)) {
      return test::kCaptureImplicit;
    }
    *status = static_cast<int>(stream->capture.status);
    return kSuccess;
  });
}

Result cuGraphDestroy(test::Graph graph) {
  return test::call("cuGraphDestroy", Needs::driver, [&](Call& here) {
    return here.world.graphs.erase(reinterpret_cast<std::uintptr_t>(graph)) == 1 ? kSuccess
                                                                                 : kInvalidValue;
  });
}

}  // namespace tiermem::cuda
