// Operations and streams of the C++ interface: what a caller holds while a call is under way.
#include <algorithm>
#include <utility>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "runtime/context_impl.hpp"
#include "runtime/in_call.hpp"
#include "runtime/thrown.hpp"
#include "tiermem/context.hpp"

namespace tiermem {

Status Context::op_wait(OpHandle op, Timeout timeout) try {
  const SlowCall call(*this);
  if (!call->has_operations()) [[unlikely]] {
    return call->usable("op_wait");
  }
  Status status = call->ops.wait(op, timeout.ns == 0 ? 0 : deadline_of(timeout));
  if (status.code() == Code::busy && status.info() == nullptr && timeout.ns != 0) {
    return fail(Code::timed_out,
                "op_wait: operation {:#x} is still under way; wait longer, or cancel it", op);
  }
  return status;
} catch (const std::exception& thrown) {
  return why_thrown("op_wait", thrown);
}

Status Context::op_poll(OpHandle op) {
  return op_wait(op, Timeout::none());
}

Result<int> Context::op_fd(OpHandle op) try {
  const SlowCall call(*this);
  if (!call->has_operations()) [[unlikely]] {
    return call->usable("op_fd");
  }
  return call->ops.descriptor(op);
} catch (const std::exception& thrown) {
  return why_thrown("op_fd", thrown);
}

Status Context::op_cancel(OpHandle op) {
  const SlowCall call(*this);
  if (!call->has_operations()) [[unlikely]] {
    return call->usable("op_cancel");
  }
  if (!call->ops.cancel(op)) {
    return Ops::unknown("op_cancel", op, call->residency.tag.value());
  }
  call->note_cancel();
  call->end_cancelled_errands();
  return {};
}

// ---- Op and Stream -----------------------------------------------------------------------------

Op& Op::operator=(Op&& other) noexcept {
  if (this != &other) {
    this->~Op();
    context_ = other.context_;
    handle_ = std::exchange(other.handle_, 0);
  }
  return *this;
}

Op::~Op() {
  if (handle_ != 0) {
    (void)context_->op_wait(std::exchange(handle_, 0), Timeout::forever());
  }
}

Status Op::wait(Timeout timeout) {
  if (handle_ == 0) {
    return fail(Code::invalid_argument,
                "wait: this operation has already been waited for; wait for it once");
  }
  const SlowCall call(*context_);
  Status status = context_->op_wait(handle_, timeout);
  // These two can also say that it goes on.
  const bool ended = (status.code() != Code::timed_out && status.code() != Code::busy) ||
                     !call->has_operations() ||
                     call->ops.look("op_wait", handle_).state == Ops::State::none;
  if (ended) {
    handle_ = 0;
  }
  return status;
}

Result<int> Op::fd() {
  return handle_ != 0
             ? context_->op_fd(handle_)
             : fail(Code::invalid_argument, "fd: this operation has ended; call fd before wait");
}

Status Op::poll() {
  return wait(Timeout::none());
}

Status Op::cancel() {
  return handle_ != 0 ? context_->op_cancel(handle_)
                      : fail(Code::invalid_argument,
                             "cancel: this operation has ended; call cancel before wait");
}

Stream::Stream(Context& context, Access range, std::uint64_t chunk, unsigned ahead)
    : context_(&context),
      range_(range),
      chunk_(chunk),
      cursor_(range.offset),
      prefetched_(range.offset),
      ahead_(ahead) {
  if (range_.length == 0) {
    Result<BufferInfo> info = context.info(range.buffer);
    if (!info.ok()) {
      status_ = std::move(info).status();
      done_ = true;
      return;
    }
    if (range_.offset > info->bytes) {
      status_ = fail(Code::invalid_argument,
                     "stream: offset {} is not inside the buffer of {} bytes; name one inside",
                     range_.offset, info->bytes);
      done_ = true;
      return;
    }
    range_.length = info->bytes - range.offset;
  }
  if (!checked_add(range_.offset, range_.length)) {
    status_ = fail(Code::invalid_argument,
                   "stream: range of {} bytes at offset {} ends above 2^64; name a range inside "
                   "the buffer",
                   range_.length, range_.offset);
    done_ = true;
  }
  if (chunk_ == 0) {
    status_ = fail(Code::invalid_argument, "stream: chunks of 0 bytes; accepted are 1 and more");
    done_ = true;
  }
}

void Stream::next() {
  view_.release();
  const std::uint64_t end = range_.offset + range_.length;
  if (done_ || cursor_ >= end) {
    done_ = true;
    return;
  }
  const bool reads = (range_.mode & kDiscard) == 0;
  while (reads && prefetched_ < end &&
         prefetched_ < saturating_add(cursor_, saturating_mul(ahead_ + std::uint64_t{1}, chunk_))) {
    Access access = range_;
    access.offset = prefetched_;
    access.length = std::min(chunk_, end - prefetched_);
    access.mode = kRead;
    if (!context_->prefetch({&access, 1}).ok()) {
      break;  // The view of the range says why.
    }
    prefetched_ += access.length;
  }
  Access access = range_;
  access.offset = offset_ = cursor_;
  access.length = std::min(chunk_, end - cursor_);
  ViewRecord record;
  status_ = context_->acquire({&access, 1}, Timeout::forever(), {&record, 1});
  if (!status_.ok()) {
    done_ = true;
    return;
  }
  view_ = View(*context_, record);
  cursor_ += access.length;
}

}  // namespace tiermem
