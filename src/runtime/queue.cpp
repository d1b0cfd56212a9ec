// Queues of operations of the C++ interface.
#include "tiermem/queue.hpp"

#include <poll.h>

#include <atomic>
#include <utility>

#include "base/arena.hpp"
#include "base/error.hpp"
#include "base/no_cancel.hpp"
#include "base/results.hpp"
#include "runtime/context_impl.hpp"
#include "runtime/in_call.hpp"
#include "runtime/thrown.hpp"

namespace tiermem {
namespace {

constexpr int kLookAgainMs = 100;

}  // namespace

class Queue::Impl : public InArena {
 public:
  Impl(Context& of, std::shared_ptr<OpQueue> made) : context(of), queue(std::move(made)) {}

  // Returns ok if the queue can be used inside the call.
  Status usable(const char* name, const CallMark& call) const {
    if (closed.load(std::memory_order_acquire)) {
      return fail(Code::shut_down, "{}: the queue is closed", name);
    }
    return call->has_operations() ? Status() : call->usable(name);
  }

  Context& context;
  const std::shared_ptr<OpQueue> queue;
  std::atomic<bool> closed{false};
};

Queue::Queue(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}

Result<std::unique_ptr<Queue>> Queue::create(Context& context) try {
  const SlowCall call(context);
  if (Status usable = call->usable("queue_create"); !usable.ok()) {
    return usable;
  }
  Result<std::shared_ptr<OpQueue>> queue = OpQueue::create();
  if (!queue.ok()) {
    return std::move(queue).status();
  }
  std::unique_ptr<Queue> made(new Queue(std::make_unique<Impl>(context, *queue)));
  call->ops.enter(std::move(queue).value());
  return made;
} catch (const std::exception& thrown) {
  return why_thrown("queue_create", thrown);
}

Queue::~Queue() {
  const ArenaScope inside;
  const NoCancel until_the_end;
  while (close().code() == Code::busy) {
    {
      const SlowCall call(impl_->context);
      Ops::Ended ended;
      while (call->has_operations() && call->ops.take_ended(*impl_->queue, ended)) {
      }
    }
    pollfd waiting{fd(), POLLIN, 0};
    best_effort(::poll(&waiting, 1, kLookAgainMs), "the loop looks again");
  }
  impl_.reset();
}

int Queue::fd() const noexcept {
  return impl_->queue->fd();
}

Status Queue::add(OpHandle op, void* user) try {
  const SlowCall call(impl_->context);
  Status status = impl_->usable("queue_add", call);
  return status.ok() ? call->ops.add_to(*impl_->queue, op, user) : std::move(status);
} catch (const std::exception& thrown) {
  return why_thrown("queue_add", thrown);
}

Status Queue::add(Op& op, void* user) {
  Status status = add(op.handle(), user);
  if (status.ok()) {
    (void)op.detach();
  }
  return status;
}

Result<std::size_t> Queue::drain(std::span<Event> events) try {
  const SlowCall call(impl_->context);
  if (Status status = impl_->usable("queue_drain", call); !status.ok()) {
    return status;
  }
  std::size_t count = 0;
  Ops::Ended ended;
  // The table is locked for one event at a time, so that the mover never waits for long.
  while (count < events.size() && call->ops.take_ended(*impl_->queue, ended)) {
    events[count++] = {ended.op, ended.user, std::move(ended.status)};
  }
  return count;
} catch (const std::exception& thrown) {
  return why_thrown("queue_drain", thrown);
}

Status Queue::close() try {
  const SlowCall call(impl_->context);
  if (impl_->closed.load(std::memory_order_acquire)) {
    return {};
  }
  if (call->forked()) {
    impl_->queue->close();  // The table, which refers to it too, is of no use any more.
  } else if (call->has_operations()) {
    if (const std::size_t held = call->ops.leave(*impl_->queue); held != 0) {
      return fail(Code::busy,
                  "queue_destroy: {} operations of the queue were not drained; cancel them, or "
                  "wait for them, and drain the queue",
                  held);
    }
  }
  impl_->closed.store(true, std::memory_order_release);
  return {};
} catch (const std::exception& thrown) {
  return why_thrown("queue_destroy", thrown);
}

}  // namespace tiermem
