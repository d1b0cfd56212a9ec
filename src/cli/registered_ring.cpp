// The ring; see registered_ring.hpp.
#include "cli/registered_ring.hpp"

#include <sys/uio.h>

#include <cstring>
#include <utility>
#include <vector>

#ifdef TIERMEM_HAVE_URING
#include <liburing.h>

#include "base/results.hpp"
#endif

namespace tiermem::cli {

#ifdef TIERMEM_HAVE_URING

namespace {

// Bytes of memory in one registered buffer of the ring.
constexpr std::uint64_t kPart = std::uint64_t{64} << 20;

}  // namespace

struct RegisteredRing::Ring {
  io_uring ring{};
  const std::byte* memory = nullptr;
  bool open = false;
  ~Ring() {
    if (open) {
      io_uring_queue_exit(&ring);
    }
  }
};

RegisteredRing::RegisteredRing(std::unique_ptr<Ring> ring) : ring_(std::move(ring)) {}
RegisteredRing::~RegisteredRing() = default;

std::unique_ptr<RegisteredRing> RegisteredRing::create(const host::AddressRange& memory,
                                                       unsigned depth, std::string& reason) {
  auto made = std::make_unique<Ring>();
  made->memory = memory.data();
  int error = io_uring_queue_init(depth, &made->ring, 0);
  made->open = error == 0;
  if (error == 0) {
    // A block lies within one part, because both are powers of two.
    std::vector<iovec> parts;
    for (std::uint64_t at = 0; at < memory.bytes(); at += kPart) {
      parts.push_back({memory.data() + at, std::min(kPart, memory.bytes() - at)});
    }
    error =
        io_uring_register_buffers(&made->ring, parts.data(), static_cast<unsigned>(parts.size()));
  }
  if (error != 0) {
    reason = std::strerror(-error);
    return nullptr;
  }
  return std::unique_ptr<RegisteredRing>(new RegisteredRing(std::move(made)));
}

bool RegisteredRing::submit(const IoRequest& request) {
  io_uring_sqe* entry = io_uring_get_sqe(&ring_->ring);
  if (entry == nullptr) {
    return false;
  }
  const auto part =
      static_cast<int>(static_cast<std::uint64_t>(request.data - ring_->memory) / kPart);
  if (request.write) {
    io_uring_prep_write_fixed(entry, request.fd, request.data, request.length, request.offset,
                              part);
  } else {
    io_uring_prep_read_fixed(entry, request.fd, request.data, request.length, request.offset, part);
  }
  if (request.buffered) {
    io_uring_sqe_set_flags(entry, IOSQE_ASYNC);
  }
  io_uring_sqe_set_data64(entry, request.cookie);
  return true;
}

std::size_t RegisteredRing::reap(std::span<IoCompletion> completions) {
  std::size_t n = 0;
  unsigned head = 0;
  io_uring_cqe* entry = nullptr;
  io_uring_for_each_cqe(&ring_->ring, head, entry) {
    if (n == completions.size()) {
      break;
    }
    completions[n++] = {entry->user_data, entry->res};
  }
  io_uring_cq_advance(&ring_->ring, static_cast<unsigned>(n));
  return n;
}

void RegisteredRing::wait(std::int64_t) {
  best_effort(io_uring_submit_and_wait(&ring_->ring, 1), "the caller looks and waits again");
}

#else

struct RegisteredRing::Ring {};
RegisteredRing::RegisteredRing(std::unique_ptr<Ring> ring) : ring_(std::move(ring)) {}
RegisteredRing::~RegisteredRing() = default;
std::unique_ptr<RegisteredRing> RegisteredRing::create(const host::AddressRange&, unsigned,
                                                       std::string& reason) {
  reason = "built without liburing";
  return nullptr;
}
bool RegisteredRing::submit(const IoRequest&) {
  return false;
}
std::size_t RegisteredRing::reap(std::span<IoCompletion>) {
  return 0;
}
void RegisteredRing::wait(std::int64_t) {}

#endif

}  // namespace tiermem::cli
