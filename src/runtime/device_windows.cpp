// Windows of buffers in GPUs' memory. A window is made when a view of several extents there, or the
// address itself, is first requested. The buffer keeps it for the rest of its life. Any thread.
#include "base/error.hpp"
#include "runtime/context_impl.hpp"

namespace tiermem {

Status Context::Impl::give_windows(Request& request, const char* call) {
  for (Span& span : request.spans) {
    if (!Residency::has_addresses(span)) {
      if (Status given = give_window(span, call); !given.ok()) {
        return given;
      }
    }
  }
  return {};
}

Status Context::Impl::give_window(Span& span, const char* call) {
  GpuTier& gpu = *gpus_[span.space - 1u];
  const std::uint64_t extent = std::uint64_t{1} << span.shift;
  const std::uint64_t bytes = span.record->extents.load(std::memory_order_relaxed) * extent;
  const Result<std::byte*> window = gpu.reserve_window(bytes, extent, false);
  if (!window.ok()) {
    const ErrorInfo* const info = window.status().info();
    return fail_native(window.code(), info != nullptr ? info->native : 0, "{}: {}", call,
                       window.message());
  }
  span.window = residency.buffers.set_device_window(span.buffer, span.space, *window);
  if (span.window != *window) {
    gpu.release_window(*window, bytes);  // Another thread was first, or the buffer has been freed.
  }
  return span.window != nullptr
             ? Status()
             : fail(Code::stale_handle,
                    "{}: handle {:#x} was freed during the call; free it after the call", call,
                    span.buffer);
}

Result<std::byte*> Context::Impl::address_on(Handle buffer, Place where) {
  if (where.kind != Kind::gpu) {
    return fail(
        Code::unsupported,
        "address_on: {} is not a GPU; name a GPU, or allocate with the flag mapped and call "
        "address()",
        place_name(where));
  }
  Span span;
  Status status = residency.resolve({buffer, 0, 1, kRead, where, 0}, span, "address_on");
  if (status.ok() && span.window == nullptr) {
    status = give_window(span, "address_on");
  }
  if (!status.ok()) {
    return status;
  }
  return span.window + span.offset;
}

}  // namespace tiermem
