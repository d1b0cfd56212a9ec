// Makes device memory of the program a buffer. It copies the bytes on the device, piece by piece,
// in the order of a stream. Any thread; the calling thread makes the calls that must be in its
// stream's order.
#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "residency/buffer_limits.hpp"
#include "runtime/context_impl.hpp"
#include "runtime/in_call.hpp"
#include "runtime/thrown.hpp"

namespace tiermem {
namespace {

// Bytes requested on the device at once: a list of small extents that fits into any budget.
constexpr std::uint64_t kPiece = std::uint64_t{2} << 20;

cuda::DevicePointer number(const void* memory) {
  return reinterpret_cast<cuda::DevicePointer>(memory);
}

Status copy_piece(CudaLane& lane, const StreamOrder& order, std::span<const ViewRecord> views,
                  cuda::DevicePointer from) {
  for (const ViewRecord& view : views) {
    Status copied = lane.copy_within(static_cast<cuda::Stream>(order.handle), order.is_host(),
                                     number(view.data), from, view.length);
    if (!copied.ok()) {
      return copied;
    }
    from += view.length;
  }
  return {};
}

}  // namespace

Status Context::Impl::check_adopted(Place gpu, const void* memory, std::uint64_t bytes,
                                    const BufferOptions& options, const StreamOrder& order) {
  if (memory == nullptr || bytes == 0) {
    return fail(Code::invalid_argument,
                "adopt_device: the memory is null or has 0 bytes; pass memory of a GPU");
  }
  if (bytes > kLargestBuffer) {
    return fail(Code::invalid_argument, "adopt_device: {} bytes; accepted are 1 to 2^47", bytes);
  }
  if (gpu.kind != Kind::gpu || !has_gpu(gpu)) {
    return fail(Code::unavailable,
                "adopt_device: {} is not a GPU of this context; see `tiermem topo`",
                place_name(gpu));
  }
  if ((options.flags & kMapped) != 0) {
    return fail(Code::unsupported,
                "adopt_device: a mapped buffer is not on a GPU; remove the flag mapped");
  }
  CudaLane& lane = gpus_[residency.space_of(gpu) - 1U]->lane();
  if (lane.lost()) {
    return lane.loss();
  }
  if (!order.is_host()) {
    const Access there{0, 0, 0, kDiscard, gpu, 0};
    if (Status refused = check_order("adopt_device", order, {&there, 1}); !refused.ok()) {
      return refused;
    }
  }
  const cuda::DevicePointer at = number(memory);
  const auto end = checked_add<std::uint64_t>(at, bytes);
  if (!end || !lane.has(at) || !lane.has(*end - 1)) {
    return fail(Code::invalid_argument,
                "adopt_device: {} bytes at {} are not memory of gpu {}; pass memory of that GPU",
                bytes, memory, gpu.index);
  }
  return {};
}

Status Context::Impl::copy_adopted(Context& context, Handle buffer, Place gpu, const void* memory,
                                   std::uint64_t bytes, const StreamOrder& order, Timeout timeout) {
  const BufferRecord& record = residency.buffers.at(Buffers::index_of(buffer));
  const std::uint64_t extent = std::uint64_t{1}
                               << record.extent_shift.load(std::memory_order_relaxed);
  CudaLane& lane = gpus_[residency.space_of(gpu) - 1U]->lane();
  const std::uint64_t piece = std::max(kPiece, extent);
  const std::int64_t deadline = deadline_of(timeout);
  Vector<Access> list;
  Vector<ViewRecord> views;
  for (std::uint64_t done = 0; done < bytes;) {
    list.clear();
    for (std::uint64_t in_piece = 0; in_piece + extent <= piece && done + in_piece < bytes;
         in_piece += extent) {
      list.push_back(
          {buffer, done + in_piece, std::min(extent, bytes - done - in_piece), kDiscard, gpu, 0});
    }
    views.assign(list.size(), {});
    Timeout left = timeout;
    if (timeout.ns > 0) {
      left.ns = std::max<std::int64_t>(1, deadline - now_ns());
    }
    Status status = context.acquire(list, left, views, order);
    if (!status.ok()) {
      return status;
    }
    struct Held {  // Also releases them if copy_piece() throws.
      ~Held() {
        for (const ViewRecord& view : views) {
          context.drop_view(view, order);
        }
      }
      Context& context;
      std::span<const ViewRecord> views;
      const StreamOrder& order;
    } held{context, views, order};
    status = copy_piece(lane, order, views, number(memory) + done);
    held.views = {};
    Status released = context.release(views, order);
    if (!status.ok() || !released.ok()) {
      return status.ok() ? std::move(released) : std::move(status);
    }
    done += list.back().offset + list.back().length - done;
  }
  return {};
}

Result<Buffer> Context::adopt_device(Place gpu, const void* memory, std::uint64_t bytes,
                                     const StreamOrder& order, Timeout timeout,
                                     const BufferOptions& options) try {
  const SlowCall call(*this);
  Status status = call->usable("adopt_device");
  if (status.ok()) {
    status = call->check_adopted(gpu, memory, bytes, options, order);
  }
  if (!status.ok()) {
    return status;
  }
  Result<Buffer> buffer = alloc(bytes, options);
  if (!buffer.ok()) {
    return buffer;
  }
  status = call->copy_adopted(*this, buffer->handle(), gpu, memory, bytes, order, timeout);
  if (!status.ok()) {
    return status;  // The buffer is freed as soon as the stream no longer uses it.
  }
  return buffer;
} catch (const std::exception& thrown) {
  return why_thrown("adopt_device", thrown);
}

}  // namespace tiermem
