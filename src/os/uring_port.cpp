// The io_uring port: a single issuer with deferred task run where the kernel has it, registered
// files, and one sleep for completions, wake-ups and deadlines. It sleeps only in wait() and in the
// destructor, and never wakes while nothing happens.

#include "os/uring_port.hpp"

#ifndef TIERMEM_HAVE_URING

namespace tiermem {

std::unique_ptr<WaitableIoPort> make_uring_port(std::vector<std::unique_ptr<BlockFile>>&,
                                                const PortOptions&, std::string& reason) {
  reason = "io_uring refused: built without liburing";
  return nullptr;
}

}  // namespace tiermem

#else

#include <liburing.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/kept_descriptors.hpp"
#include "base/results.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kWakeCookie = ~std::uint64_t{0};
constexpr std::uint64_t kWatchCookie = kWakeCookie - 1;

const char* hint_for(int native) {
  switch (native) {
    case EPERM:
    case EACCES:
      return " (seccomp or kernel.io_uring_disabled)";
    case ENOSYS:
      return " (a kernel without io_uring, or seccomp)";
    case ENOMEM:
      return " (RLIMIT_MEMLOCK)";
    case EMFILE:
      return " (RLIMIT_NOFILE)";
    default:
      return "";
  }
}

class UringPort final : public WaitableIoPort {
 public:
  static std::unique_ptr<UringPort> create(std::vector<std::unique_ptr<BlockFile>>& files,
                                           const PortOptions& options, std::string& reason);
  ~UringPort() override;

  unsigned devices() const override { return static_cast<unsigned>(files_.size()); }
  DeviceFacts facts(std::uint16_t device) const override { return files_.at(device)->facts(); }
  Status grow(std::uint16_t device, std::uint64_t bytes) override {
    return files_.at(device)->grow(bytes);
  }
  bool reads_here() const override { return true; }
  std::int32_t read_here(const IoRequest& request) override { return read_file(files_, request); }
  bool submit(const IoRequest& request) override;
  void flush() override;
  std::size_t reap(std::span<IoCompletion> completions) override;
  void wait(std::int64_t deadline_ns) override;
  void wake() override;
  bool watch(int fd) override {
    watch_fd_ = fd;
    return true;
  }
  std::vector<std::unique_ptr<BlockFile>> leave() override;
  const char* engine() const override { return "io_uring"; }
  const char* reason() const override { return ""; }

 private:
  UringPort() = default;
  int set_up_ring();
  int register_files(const std::vector<std::unique_ptr<BlockFile>>& files);
  void become_owner();
  void arm_wake();
  void arm_watch();
  unsigned unsubmitted() const;
  void drain();
  void close_ring_and_wait_for_its_end();

  // Constant after creation.
  std::vector<std::unique_ptr<BlockFile>> files_;
  /// Max requests in flight. The ring has more entries, so it is never full.
  unsigned capacity_ = 0;
  int wake_fd_ = -1;
  int end_fd_ = -1;  ///< Reads end-of-file once the kernel has freed the ring.
  bool deferred_ = false;

  // Used by the owner only.
  io_uring ring_{};
  bool ring_made_ = false;
  bool owned_ = false;
  pthread_t owner_{};
  unsigned in_flight_ = 0;  ///< Submitted by our caller and not yet reaped.
  int watch_fd_ = -1;       ///< A descriptor of the caller: wait() returns while it is readable.
  bool watch_armed_ = false;
  bool wake_armed_ = false;
  std::uint64_t wake_count_ = 0;  ///< The kernel writes the eventfd's counter here.

  // The protocol of wake() without lost wake-ups. Every step on this word is a read-modify-write,
  // so all steps have one order. The owner changes awake -> sleeping just before it sleeps, and
  // back afterwards. wake() exchanges in `notified`, and writes the eventfd only if it found
  // `sleeping`. In that order a wake() falls into one of three places:
  //  - before awake -> sleeping: the owner's compare fails and it does not sleep;
  //  - between the two: the write to the eventfd completes its armed read, which ends the sleep;
  //  - after the owner's way back: the next wait() finds `notified`.
  // A burst of wakes writes the eventfd at most once per sleep. The exchange of the waking thread
  // releases and that of the owner acquires, so the owner sees everything written before wake().
  enum : std::uint32_t { awake, sleeping, notified };
  std::atomic<std::uint32_t> wake_state_{awake};
};

std::unique_ptr<UringPort> UringPort::create(std::vector<std::unique_ptr<BlockFile>>& files,
                                             const PortOptions& options, std::string& reason) {
  std::unique_ptr<UringPort> port(new UringPort);
  port->capacity_ =
      // One more for files that are read by descriptor.
      std::clamp(options.depth, 1U, 4096U) * static_cast<unsigned>(files.size() + 1);
  int native = port->set_up_ring();
  const char* what = "";
  if (native == 0 && (port->ring_.features & IORING_FEAT_EXT_ARG) == 0) {
    native = EOPNOTSUPP;  // Linux 5.11: wait with a deadline.
    what = "waiting with a deadline: ";
  }
  if (native == 0) {
    native = port->register_files(files);
    what = "registering files: ";
  }
  if (native == 0) {
    // Intentionally blocking: io_uring then waits for the counter instead of returning EAGAIN.
    port->wake_fd_ = keep_descriptor(::eventfd(0, EFD_CLOEXEC));
    native = port->wake_fd_ < 0 ? errno : 0;
    what = "eventfd: ";
  }
  if (native != 0) {
    reason = std::string("io_uring refused: ") + what + strerror(native) + hint_for(native);
    return nullptr;
  }
  port->files_ = std::move(files);
  return port;
}

int UringPort::set_up_ring() {
  // The completion queue has twice as many entries, so it cannot overflow either. R_DISABLED: the
  // thread that enables the ring becomes its single issuer.
  const unsigned entries = capacity_ + 2;  // The wake-up, and the watch.
  const unsigned best[] = {
      IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
          IORING_SETUP_TASKRUN_FLAG,
      IORING_SETUP_R_DISABLED | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
      IORING_SETUP_R_DISABLED};
  int rc = -EINVAL;
  for (const unsigned flags : best) {
    rc = ::io_uring_queue_init(entries, &ring_, flags);
    if (rc != -EINVAL) {
      deferred_ = (flags & IORING_SETUP_DEFER_TASKRUN) != 0;
      break;
    }
  }
  ring_made_ = rc == 0;
  if (ring_made_) {
    ring_.ring_fd = ring_.enter_ring_fd = keep_descriptor(ring_.ring_fd);
  }
  return -rc;
}

int UringPort::register_files(const std::vector<std::unique_ptr<BlockFile>>& files) {
  // Index 2i: direct, 2i + 1: buffered. The last one is the write end of a pipe, which only the
  // ring keeps open: end-of-file on the pipe means that the kernel has released the ring and all
  // its requests.
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return errno;
  }
  std::vector<int> fds;
  for (const auto& file : files) {
    fds.push_back(file->fd(false));
    fds.push_back(file->fd(true));
  }
  fds.push_back(ends[1]);
  const int rc = ::io_uring_register_files(&ring_, fds.data(), static_cast<unsigned>(fds.size()));
  best_effort(::close(ends[1]), "the descriptor is gone in any case");
  end_fd_ = keep_descriptor(ends[0]);
  return -rc;
}

UringPort::~UringPort() {
  if (ring_made_) {
    const bool ours = owned_ && ::pthread_equal(owner_, ::pthread_self()) != 0;
    if (in_flight_ > 0 && (ours || !deferred_)) {
      drain();
    }
    close_ring_and_wait_for_its_end();
  }
  for (const int fd : {end_fd_, wake_fd_}) {
    close_kept(fd);
  }
}

// This unmaps and closes this process's references only. The ring belongs to the parent and lives
// on.
std::vector<std::unique_ptr<BlockFile>> UringPort::leave() {
  forget_descriptor(ring_.ring_fd);
  ::io_uring_queue_exit(&ring_);
  ring_made_ = false;
  return std::move(files_);
}

void UringPort::drain() {
  IoCompletion rest[64];
  while (in_flight_ > unsubmitted()) {
    const int rc = ::io_uring_submit_and_wait(&ring_, 1);
    if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY) {
      // The ring itself is broken; closing it waits for the requests that the kernel holds.
      return;
    }
    while (reap(rest) > 0) {
    }
  }
}

/// Returns the number of requests that the kernel has not received.
unsigned UringPort::unsubmitted() const {
  unsigned requests = 0;
  const unsigned taken = __atomic_load_n(ring_.sq.khead, __ATOMIC_ACQUIRE);
  for (unsigned at = taken; at != ring_.sq.sqe_tail; ++at) {
    requests += ring_.sq.sqes[at & ring_.sq.ring_mask].user_data < kWatchCookie ? 1 : 0;
  }
  return requests;
}

void UringPort::close_ring_and_wait_for_its_end() {
  // Another thread cannot reap a deferred ring. If its owner left requests behind, wait for the end
  // of the ring instead: the kernel frees the ring, and with it the pipe's write end, after the
  // last request.
  const bool must_wait = in_flight_ > unsubmitted();
  forget_descriptor(ring_.ring_fd);
  ::io_uring_queue_exit(&ring_);
  pollfd end{end_fd_, POLLIN, 0};
  while (must_wait && ::poll(&end, 1, -1) < 0 && errno == EINTR) {
  }
}

void UringPort::become_owner() {
  if (owned_) {
    return;
  }
  owner_ = ::pthread_self();
  // By number, because liburing 2.3 does not export io_uring_enable_rings from its shared library.
  // If the kernel refuses, the next call repeats this; no request leaves the ring before.
  owned_ = ::syscall(__NR_io_uring_register, ring_.ring_fd, IORING_REGISTER_ENABLE_RINGS, nullptr,
                     0) == 0;
}

bool UringPort::submit(const IoRequest& request) {
  become_owner();
  if (in_flight_ == capacity_) {
    return false;
  }
  io_uring_sqe* sqe = ::io_uring_get_sqe(&ring_);
  if (sqe == nullptr) {
    return false;  // The kernel accepts no more at present (EAGAIN): flush and try again.
  }
  const bool file = request.fd >= 0;
  const int index = file ? request.fd : 2 * request.device + (request.buffered ? 1 : 0);
  const auto vectors = static_cast<unsigned>(request.vectors.size());
  if (vectors > 0 && request.write) {
    ::io_uring_prep_writev(sqe, index, request.vectors.data(), vectors, request.offset);
  } else if (vectors > 0) {
    ::io_uring_prep_readv(sqe, index, request.vectors.data(), vectors, request.offset);
  } else if (request.write) {
    ::io_uring_prep_write(sqe, index, request.data, request.length, request.offset);
  } else {
    ::io_uring_prep_read(sqe, index, request.data, request.length, request.offset);
  }
  unsigned flags = file ? 0 : IOSQE_FIXED_FILE;
  const bool buffered =
      file ? request.buffered
           : files_[request.device]->fd(request.buffered) == files_[request.device]->fd(true);
  if (buffered || request.to_program) {
    // Buffered I/O copies data, and absent pages of the program may have to be waited for: let a
    // worker of the kernel do it, not our submit call.
    flags |= IOSQE_ASYNC;
  }
  ::io_uring_sqe_set_flags(sqe, flags);
  ::io_uring_sqe_set_data64(sqe, request.cookie);
  ++in_flight_;
  return true;
}

void UringPort::flush() {
  become_owner();
  // After EAGAIN and EBUSY the requests stay in the ring for the next flush or wait.
  best_effort(::io_uring_submit(&ring_),
              "what the kernel did not take stays in the ring for the next time");
}

std::size_t UringPort::reap(std::span<IoCompletion> completions) {
  become_owner();
  if (::io_uring_cq_ready(&ring_) == 0 &&
      (__atomic_load_n(ring_.sq.kflags, __ATOMIC_RELAXED) & IORING_SQ_TASKRUN) != 0) {
    best_effort(::io_uring_get_events(&ring_), "a completion that is missed is seen by wait()");
  }
  std::size_t n = 0;
  unsigned head = 0;
  unsigned seen = 0;
  io_uring_cqe* cqe = nullptr;
  io_uring_for_each_cqe(&ring_, head, cqe) {
    if (cqe->user_data == kWakeCookie) {
      wake_armed_ = false;
    } else if (cqe->user_data == kWatchCookie) {
      watch_armed_ = false;
    } else if (n == completions.size()) {
      break;
    } else {
      completions[n++] = {cqe->user_data, cqe->res};
    }
    ++seen;
  }
  ::io_uring_cq_advance(&ring_, seen);
  in_flight_ -= static_cast<unsigned>(n);
  return n;
}

void UringPort::arm_wake() {
  if (wake_armed_) {
    return;
  }
  io_uring_sqe* sqe = ::io_uring_get_sqe(&ring_);
  if (sqe == nullptr) {
    return;  // Unsubmitted requests fill the ring; wait() does not sleep in this case.
  }
  ::io_uring_prep_read(sqe, wake_fd_, &wake_count_, sizeof(wake_count_), 0);
  ::io_uring_sqe_set_data64(sqe, kWakeCookie);
  wake_armed_ = true;
}

// The watch is one-shot: the caller reads the descriptor, and the next wait() arms it again.
void UringPort::arm_watch() {
  if (watch_fd_ < 0 || watch_armed_) {
    return;
  }
  io_uring_sqe* sqe = ::io_uring_get_sqe(&ring_);
  if (sqe == nullptr) {
    return;
  }
  ::io_uring_prep_poll_add(sqe, watch_fd_, POLLIN);
  ::io_uring_sqe_set_data64(sqe, kWatchCookie);
  watch_armed_ = true;
}

void UringPort::wait(std::int64_t deadline_ns) {
  become_owner();
  if (::io_uring_cq_ready(&ring_) > 0) {
    // This may also consume an old wake-up: the reap that follows takes it, for at most one early
    // return.
    best_effort(::io_uring_submit(&ring_),
                "what the kernel did not take stays in the ring for the next time");
    return;
  }
  arm_wake();
  arm_watch();
  std::uint32_t expected = awake;
  if (!wake_armed_ || (watch_fd_ >= 0 && !watch_armed_) ||
      !wake_state_.compare_exchange_strong(expected, sleeping)) {
    wake_state_.exchange(awake);
    best_effort(::io_uring_submit(&ring_),
                "what the kernel did not take stays in the ring for the next time");
    return;
  }
  __kernel_timespec left{};
  if (deadline_ns >= 0) {
    const std::int64_t ns = std::max<std::int64_t>(0, deadline_ns - now_ns());
    left.tv_sec = ns / 1'000'000'000;
    left.tv_nsec = ns % 1'000'000'000;
  }
  io_uring_cqe* first = nullptr;
  const int rc = ::io_uring_submit_and_wait_timeout(&ring_, &first, 1,
                                                    deadline_ns >= 0 ? &left : nullptr, nullptr);
  wake_state_.exchange(awake);
  if (rc == -EAGAIN || rc == -EBUSY) {
    // The kernel is short of memory and accepted nothing. Pause, so that the retry is not a busy
    // loop.
    pollfd wake{wake_fd_, POLLIN, 0};
    best_effort(::poll(&wake, 1, 1), "a nap");
  }
}

void UringPort::wake() {
  if (wake_state_.exchange(notified) == sleeping) {
    const std::uint64_t one = 1;
    best_effort(::write(wake_fd_, &one, sizeof(one)), "where it is full it is ready already");
  }
}

}  // namespace

std::unique_ptr<WaitableIoPort> make_uring_port(std::vector<std::unique_ptr<BlockFile>>& devices,
                                                const PortOptions& options, std::string& reason) {
  return UringPort::create(devices, options, reason);
}

}  // namespace tiermem

#endif  // TIERMEM_HAVE_URING
