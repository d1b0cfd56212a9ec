// Calls in the order of one of the program's streams. The program's thread puts a mark into the
// stream; the device's lane sees when the stream reaches it.
#include <algorithm>
#include <memory>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "runtime/context_impl.hpp"

namespace tiermem {
namespace {

// The place of the first record on a GPU; empty if there is none.
template <typename Record>
Place first_gpu(std::span<const Record> records, Place Record::*place) {
  const auto found = std::find_if(records.begin(), records.end(), [&](const Record& record) {
    return (record.*place).kind == Kind::gpu;
  });
  return found == records.end() ? Place{} : (*found).*place;
}

}  // namespace

/// Views that have ended, and the pins that they still hold.
struct Context::Impl::StreamRelease : Completion, InArena {
  Impl* impl = nullptr;
  Vector<PinnedRun> runs;

  static void done(Completion& ending) {
    const std::unique_ptr<StreamRelease> self(static_cast<StreamRelease*>(&ending));
    if (!self->status.ok()) {
      log_warn("released views: {}", self->status.message());
    }
    Impl& impl = *self->impl;
    for (const PinnedRun run : self->runs) {
      impl.residency.unpin(run);
    }
    // The context may be destroyed as soon as the mutex is free.
    const std::lock_guard lock(impl.releases_mutex_);
    --impl.releases_;
    impl.released_.notify_all();
  }
};

// A default stream belongs to the current device; this takes the device of the bytes.
Result<CudaLane*> Context::Impl::lane_of(const char* call, const StreamOrder& order, Place where) {
  if (order.kind != StreamOrder::kCuda || order.reserved != 0) {
    return fail(Code::invalid_argument,
                "{}: a stream of kind {}, reserved {}; accepted are 0 (host) and 1 (CUDA), with "
                "reserved 0",
                call, order.kind, order.reserved);
  }
  if (gpus_.empty()) {
    return fail(
        Code::unsupported,
        "{}: the stream is a CUDA stream, but this context has no GPU; name one with gpu=", call);
  }
  const auto stream = static_cast<cuda::Stream>(order.handle);
  if (cuda::is_default(stream)) {
    return &gpus_[has_gpu(where) ? residency.space_of(where) - 1u : 0]->lane();
  }
  Status refused = fail(
      Code::invalid_argument,
      "{}: {} is not a stream of the primary context of a GPU of this context; pass one that is",
      call, order.handle);
  for (const std::unique_ptr<GpuTier>& gpu : gpus_) {
    Result<bool> owns = gpu->lane().owns(stream);
    if (!owns.ok()) {
      refused = std::move(owns).status();
    } else if (*owns) {
      return &gpu->lane();
    }
  }
  return refused;
}

Status Context::Impl::check_order(const char* call, const StreamOrder& order,
                                  std::span<const Access> list) {
  const Result<CudaLane*> lane = lane_of(call, order, first_gpu(list, &Access::where));
  return lane.ok() ? (*lane)->check_capture(static_cast<cuda::Stream>(order.handle))
                   : lane.status().clone();
}

// On the calling thread: its next work in the stream comes after the copies.
Status Context::Impl::follow_copies(const Request& request, const StreamOrder& order) {
  Status status;
  for (unsigned space = kHost + 1; space < residency.extents.spaces() && status.ok(); ++space) {
    if (request.arrivals[space] != 0) {
      status = gpus_[space - 1]->lane().follow(static_cast<cuda::Stream>(order.handle),
                                               request.arrivals[space]);
    }
  }
  return status;
}

Result<bool> Context::Impl::release_after(std::span<const ViewRecord> views,
                                          const StreamOrder& after) {
  const Result<CudaLane*> lane = lane_of("release", after, first_gpu(views, &ViewRecord::place));
  if (!lane.ok()) {
    return lane.status().clone();
  }
  auto release = std::make_unique<StreamRelease>();
  release->ended = StreamRelease::done;
  release->impl = this;
  release->runs.reserve(views.size());
  const Result<CudaLane::Mark> mark = (*lane)->mark(static_cast<cuda::Stream>(after.handle));
  if (!mark.ok()) {
    return mark.status().clone();
  }
  for (const ViewRecord& view : views) {
    PinnedRun run;
    if (residency.end_and_keep(view, run)) {
      release->runs.push_back(run);
    }
  }
  const bool all = release->runs.size() == views.size();
  if (release->runs.empty()) {
    (*lane)->forget(*mark);
    return all;
  }
  {
    const std::lock_guard lock(releases_mutex_);
    ++releases_;
  }
  (*lane)->watch(*mark, *release.release());
  return all;
}

// Returns false at the deadline.
bool Context::Impl::await_releases(std::int64_t deadline_ns) {
  std::unique_lock lock(releases_mutex_);
  const auto none = [&] { return releases_ == 0; };
  if (deadline_ns == Request::kForever) {
    released_.wait(lock, none);
    return true;
  }
  return released_.wait_for(
      lock, std::chrono::nanoseconds(std::max<std::int64_t>(0, deadline_ns - now_ns())), none);
}

}  // namespace tiermem
