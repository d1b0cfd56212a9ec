// The calls on streams and events, except captures.
#include <utility>

#include "support/fake_cuda/call.hpp"
#include "support/fake_cuda/capture.hpp"
#include "support/fake_cuda/entry_points.hpp"

namespace tiermem::cuda {

using test::Call;
using test::EventState;
using test::MarkPointer;
using test::Needs;
using test::StreamPointer;
using test::StreamState;

namespace {

Result make_stream(const char* name, Stream* stream, unsigned flags) {
  return test::call(name, Needs::context, [&](Call& here) -> Result {
    if (stream == nullptr || (flags & ~kStreamNonBlocking) != 0) {
      return kInvalidValue;
    }
    const auto made = std::make_shared<StreamState>();
    made->context = here.context;
    made->blocking = (flags & kStreamNonBlocking) == 0;
    *stream = here.world.new_handle<Stream>();
    here.world.streams[*stream] = made;
    return kSuccess;
  });
}

// A call on a stream: runs `body(call, stream)`.
template <typename Body>
Result on_stream(const char* name, Needs needs, Stream handle, const Body& body) {
  return test::call(name, needs, [&](Call& here) -> Result {
    StreamPointer stream;
    const Result found = here.find(handle, stream);
    return found == kSuccess ? body(here, stream) : found;
  });
}

// A call on an event: runs `body(call, event)`.
template <typename Body>
Result on_event(const char* name, Event handle, const Body& body) {
  return test::call(name, Needs::context, [&](Call& here) -> Result {
    EventState* event = nullptr;
    if (const Result found = here.find(handle, event); found != kSuccess) {
      return found;
    }
    return event->context->failure == kSuccess ? body(here, *event) : event->context->failure;
  });
}

bool is_done(const MarkPointer& mark) {
  return mark == nullptr || mark->done;
}

// Whether a thread may query or await the end of an event or a stream.
Result may_wait(Call& here, const EventState& event) {
  const Result refused = test::refuse_in_capture(here.world);
  return refused == kSuccess && event.captured ? test::kCapturedEvent : refused;
}

Result may_wait(Call& here, StreamState& stream) {
  const Result capturing = test::refuse_if_capturing(stream);
  const Result refused = test::refuse_in_capture(here.world);
  return capturing != kSuccess ? capturing : refused;
}

// For the legacy stream this includes the streams that it is ordered with.
bool is_idle(const Call& here, const StreamState& stream) {
  return stream.legacy ? test::under_way(here.world, stream.context).empty() : is_done(stream.last);
}

}  // namespace

Result cuStreamCreate(Stream* stream, unsigned flags) {
  return make_stream("cuStreamCreate", stream, flags);
}

Result cuStreamCreateWithPriority(Stream* stream, unsigned flags, int) {
  return make_stream("cuStreamCreateWithPriority", stream, flags);
}

Result cuStreamDestroy_v2(Stream handle) {
  return test::call("cuStreamDestroy", Needs::release, [&](Call& here) -> Result {
    const auto known = here.world.streams.find(handle);
    if (known == here.world.streams.end()) {
      return kInvalidHandle;
    }
    test::close_stream(*known->second);
    here.world.streams.erase(known);
    return kSuccess;
  });
}

Result cuStreamGetCtx(Stream handle, Context* context) {
  return on_stream("cuStreamGetCtx", Needs::context, handle,
                   [&](Call&, const StreamPointer& stream) -> Result {
                     if (context == nullptr) {
                       return kInvalidValue;
                     }
                     *context = stream->context->handle;
                     return kSuccess;
                   });
}

Result cuStreamQuery(Stream handle) {
  return on_stream("cuStreamQuery", Needs::context, handle,
                   [&](Call& here, const StreamPointer& stream) -> Result {
                     const Result may = may_wait(here, *stream);
                     return may != kSuccess ? may : is_idle(here, *stream) ? kSuccess : kNotReady;
                   });
}

Result cuStreamSynchronize(Stream handle) {
  return on_stream("cuStreamSynchronize", Needs::context, handle,
                   [&](Call& here, const StreamPointer& stream) -> Result {
                     if (const Result may = may_wait(here, *stream); may != kSuccess) {
                       return may;
                     }
                     const MarkPointer last =
                         stream->legacy ? test::submit(here.world, stream, {}) : stream->last;
                     test::await(here.world, here.lock, last);
                     return stream->context->failure;
                   });
}

Result cuStreamWaitEvent(Stream handle, Event event_handle, unsigned flags) {
  return on_stream("cuStreamWaitEvent", Needs::context, handle,
                   [&](Call& here, const StreamPointer& stream) -> Result {
                     EventState* event = nullptr;
                     if (const Result found = here.find(event_handle, event); found != kSuccess) {
                       return found;
                     }
                     if (flags > 1) {
                       return kInvalidValue;
                     }
                     bool captured = false;
                     const Result taken = test::accept(here.world, *stream, captured);
                     if (taken != kSuccess || captured) {
                       return taken;
                     }
                     if (event->captured) {
                       return kNotSupported;  // The stream would join the capture.
                     }
                     if (!is_done(event->last)) {
                       test::submit(here.world, stream, {}, event->last);
                     }
                     return kSuccess;
                   });
}

Result cuLaunchHostFunc(Stream handle, test::HostFunction function, void* data) {
  return on_stream("cuLaunchHostFunc", Needs::context, handle,
                   [&](Call& here, const StreamPointer& stream) -> Result {
                     if (function == nullptr) {
                       return kInvalidValue;
                     }
                     bool captured = false;
                     const Result taken = test::accept(here.world, *stream, captured);
                     if (taken == kSuccess && !captured) {
                       test::submit(here.world, stream, [function, data](auto& lock) {
                         lock.unlock();
                         {
                           const test::InHostFunction marked;
                           function(data);
                         }
                         lock.lock();
                         return kSuccess;
                       });
                     }
                     return taken;
                   });
}

Result cuEventCreate(Event* event, unsigned flags) {
  return test::call("cuEventCreate", Needs::context, [&](Call& here) -> Result {
    if (event == nullptr || flags > 7) {
      return kInvalidValue;
    }
    *event = here.world.new_handle<Event>();
    here.world.events[*event].context = here.context;
    here.world.events[*event].timed = (flags & kEventDisableTiming) == 0;
    return kSuccess;
  });
}

Result cuEventDestroy_v2(Event event) {
  return test::call("cuEventDestroy", Needs::release, [&](Call& here) {
    return here.world.events.erase(event) == 1 ? kSuccess : kInvalidHandle;
  });
}

Result cuEventRecord(Event handle, Stream stream_handle) {
  return on_event("cuEventRecord", handle, [&](Call& here, EventState& event) -> Result {
    StreamPointer stream;
    if (const Result found = here.find(stream_handle, stream); found != kSuccess) {
      return found;
    }
    if (stream->context != event.context) {
      return kInvalidHandle;
    }
    const Result taken = test::accept(here.world, *stream, event.captured);
    if (taken == kSuccess && !event.captured) {
      event.last = test::submit(here.world, stream, {});
    }
    return taken;
  });
}

Result cuEventQuery(Event handle) {
  return on_event("cuEventQuery", handle, [&](Call& here, EventState& event) -> Result {
    const Result may = may_wait(here, event);
    return may != kSuccess ? may : is_done(event.last) ? kSuccess : kNotReady;
  });
}

Result cuEventElapsedTime(float* ms, Event first_handle, Event last_handle) {
  return on_event("cuEventElapsedTime", first_handle, [&](Call& here, EventState& first) -> Result {
    EventState* last = nullptr;
    if (const Result found = here.find(last_handle, last); found != kSuccess) {
      return found;
    }
    if (ms == nullptr) {
      return kInvalidValue;
    }
    if (!first.timed || !last->timed || first.last == nullptr || last->last == nullptr) {
      return kInvalidHandle;
    }
    if (!is_done(first.last) || !is_done(last->last)) {
      return kNotReady;
    }
    *ms = std::chrono::duration<float, std::milli>(last->last->at - first.last->at).count();
    return kSuccess;
  });
}

Result cuEventSynchronize(Event handle) {
  return on_event("cuEventSynchronize", handle, [&](Call& here, EventState& event) -> Result {
    if (const Result may = may_wait(here, event); may != kSuccess) {
      return may;
    }
    // Another thread may destroy the event during the wait; its context is never freed.
    const test::ContextState& context = *event.context;
    const MarkPointer last = event.last;
    test::await(here.world, here.lock, last);
    return context.failure;
  });
}

}  // namespace tiermem::cuda
