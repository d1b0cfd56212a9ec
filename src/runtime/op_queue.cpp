// The list of ended operations, and its descriptor.
#include "runtime/op_queue.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/results.hpp"

namespace tiermem {

Result<std::shared_ptr<OpQueue>> OpQueue::create() {
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) {
    return fail_native(Code::no_capacity, errno,
                       "queue_create: no descriptor is left ({}); close some, or raise `ulimit -n`",
                       std::strerror(errno));
  }
  return std::shared_ptr<OpQueue>(new OpQueue(fd));
}

OpQueue::~OpQueue() {
  close();
}

void OpQueue::add(Link& link, OpHandle op, void* user) noexcept {
  link = {this, user, op, nullptr};
  ++held_;
}

void OpQueue::signal() noexcept {
  const std::uint64_t one = 1;
  if (fd_ >= 0) {
    best_effort(::write(fd_, &one, sizeof(one)), "where it is full it is ready already");
  }
}

void OpQueue::push(Link& link) noexcept {
  link.next = nullptr;
  if (first_ == nullptr) {
    first_ = last_ = &link;
    signal();
  } else {
    last_ = last_->next = &link;
  }
}

OpQueue::Link* OpQueue::pop() noexcept {
  Link* const link = first_;
  if (link == nullptr) {
    return nullptr;
  }
  first_ = link->next;
  link->queue = nullptr;
  --held_;
  if (first_ == nullptr && !ended_) {
    std::uint64_t count = 0;
    if (fd_ >= 0) {
      best_effort(::read(fd_, &count, sizeof(count)), "it is not readable in any case");
    }
  }
  return link;
}

void OpQueue::end() noexcept {
  ended_ = true;
  signal();
}

bool OpQueue::follow_fork() noexcept {
  const int own = ::eventfd(first_ != nullptr ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (own < 0 || ::dup3(own, fd_, O_CLOEXEC) < 0) {
    fd_ = -1;  // Not closed: the program may have the number in a set of descriptors.
  }
  if (own >= 0) {
    best_effort(::close(own), "the descriptor is gone in any case");
  }
  return fd_ >= 0;
}

void OpQueue::close() noexcept {
  if (fd_ >= 0) {
    best_effort(::close(std::exchange(fd_, -1)), "the descriptor is gone in any case");
  }
}

}  // namespace tiermem
