// C: queues of operations.
#include "tiermem/queue.hpp"

#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "checks.hpp"
#include "tm_context.hpp"

using namespace tiermem;
using namespace tiermem::c_abi;

struct tm_queue : InArena {
  explicit tm_queue(std::unique_ptr<Queue> made) : queue(std::move(made)) {}

  std::unique_ptr<Queue> queue;
};

namespace {

constexpr std::size_t kAtOnce = 32;

tm_event event_of(const Queue::Event& from) {
  tm_event event{};
  event.op = from.op;
  event.user = from.user;
  event.status = static_cast<tm_status>(from.status.code());
  if (from.status.ok()) {
    return event;
  }
  ErrorInfo plain;  // If the message could not be allocated.
  set_text(plain.text, from.status.message());
  const ErrorInfo& info = from.status.info() != nullptr ? *from.status.info() : plain;
  fill_error(event, info);
  static_assert(sizeof(event.holder) == sizeof(info.holder));
  static_assert(sizeof(event.setting) == sizeof(info.setting));
  std::memcpy(event.holder, info.holder, sizeof(event.holder));
  std::memcpy(event.setting, info.setting, sizeof(event.setting));
  return event;
}

}  // namespace

extern "C" tm_status tm_queue_create(tm_context* context, tm_queue** out) {
  if (tm_status bad = check_not_null("queue_create", context, "context")) {
    return bad;
  }
  if (tm_status bad = check_not_null("queue_create", out, "out")) {
    return bad;
  }
  return guarded([&]() -> Status {
    auto made = Queue::create(*context->context);
    if (!made.ok()) {
      return std::move(made).status();
    }
    const ArenaScope inside;
    *out = new tm_queue(std::move(made).value());
    return {};
  });
}

extern "C" tm_status tm_queue_destroy(tm_queue* queue) {
  if (tm_status bad = check_not_null("queue_destroy", queue, "queue")) {
    return bad;
  }
  return guarded([&]() -> Status {
    Status status = queue->queue->close();
    if (status.ok()) {
      const ArenaScope inside;
      delete queue;
    }
    return status;
  });
}

extern "C" tm_status tm_queue_fd(tm_queue* queue, int* out) {
  if (tm_status bad = check_not_null("queue_fd", queue, "queue")) {
    return bad;
  }
  if (tm_status bad = check_not_null("queue_fd", out, "out")) {
    return bad;
  }
  return guarded([&]() -> Status {
    const int fd = queue->queue->fd();
    if (fd < 0) {
      return fail(Code::unavailable,
                  "queue_fd: no descriptor was left for the queue after fork; close some before "
                  "fork, or raise `ulimit -n`");
    }
    *out = fd;
    return {};
  });
}

extern "C" tm_status tm_queue_add(tm_queue* queue, tm_op op, void* user) {
  if (tm_status bad = check_not_null("queue_add", queue, "queue")) {
    return bad;
  }
  return guarded([&] { return queue->queue->add(op, user); });
}

extern "C" tm_status tm_queue_drain(tm_queue* queue, tm_event* events, size_t n,
                                    size_t* out_count) {
  if (tm_status bad = check_not_null("queue_drain", queue, "queue")) {
    return bad;
  }
  if (tm_status bad = check_not_null("queue_drain", out_count, "out_count")) {
    return bad;
  }
  if (n == 0 || n > kLongestList) {
    return refuse(Code::invalid_argument,
                  "queue_drain: room for {} events; pass room for 1 or more", n);
  }
  if (tm_status bad = check_info("queue_drain", events, kEvent1)) {
    return bad;
  }
  const std::size_t size = events->size;
  return guarded([&]() -> Status {
    std::size_t count = 0;
    std::array<Queue::Event, kAtOnce> drained;
    for (std::size_t got = kAtOnce; got == kAtOnce && count < n;) {
      Result<std::size_t> more =
          queue->queue->drain(std::span(drained).first(std::min(kAtOnce, n - count)));
      if (!more.ok()) {
        // Events that were taken before stay taken: the context ended during the call.
        if (count != 0) {
          break;
        }
        return std::move(more).status();
      }
      got = *more;
      for (std::size_t i = 0; i < got; ++i) {
        fill_element(events, count++, size, event_of(drained[i]));
      }
    }
    *out_count = count;
    return {};
  });
}
