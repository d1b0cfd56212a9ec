// Two regions, and a thread that sleeps in poll(2).
#include "bench/bare_trip.hpp"

#include <poll.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace tiermem::bench {

double touch_us(const std::byte* at) {
  const double start = now_seconds();
  (void)*static_cast<const volatile std::byte*>(at);
  return (now_seconds() - start) * 1e6;
}

BareTrip::~BareTrip() {
  stop_ = true;
  if (handler_.joinable()) {
    handler_.join();
  }
}

Status BareTrip::open(std::uint64_t bytes, bool moves) {
  bytes_ = bytes;
  moves_ = moves;
  userfault_ = Userfault::open();
  if (!userfault_.ok() || (moves && !userfault_.facts().move)) {
    return fail(Code::unavailable, "no userfaultfd that moves: {}", userfault_.facts().reason);
  }
  for (host::AddressRange* range : {&window_, &home_}) {
    auto reserved = host::reserve({.bytes = host::kHugePage});
    if (!reserved.ok()) {
      return std::move(reserved).status();
    }
    *range = std::move(*reserved);
    (void)host::advise(range->data(), range->bytes(),
                       bytes == host::kHugePage ? host::Advise::huge : host::Advise::no_huge);
  }
  std::memset(home_.data(), 1, bytes);
  for (const host::AddressRange* range : {&window_, &home_}) {
    const int error = userfault_.register_missing(range->data(), range->bytes());
    if (error != 0) {
      return fail_native(Code::unavailable, error, "userfaultfd: {}", std::strerror(error));
    }
  }
  handler_ = std::thread([this] { handle(); });
  return {};
}

Result<Sample> BareTrip::run() {
  std::vector<double> took;
  for (unsigned i = 0; i < kTrips; ++i) {
    took.push_back(touch_us(window_.data()));
    const int error = moves_ ? userfault_.move(home_.data(), window_.data(), bytes_).error
                             : host::drop(window_.data(), bytes_);
    if (error != 0) {
      return fail_native(Code::internal, error, "taking the page back: {}", std::strerror(error));
    }
  }
  return Sample{median(std::move(took))};
}

void BareTrip::handle() {
  pollfd waiting{userfault_.fd(), POLLIN, 0};
  UserfaultEvent event;
  while (!stop_) {
    if (::poll(&waiting, 1, 20) > 0 && userfault_.read_event(event) == 0) {
      (void)(moves_ ? userfault_.move(window_.data(), home_.data(), bytes_)
                    : userfault_.copy(window_.data(), home_.data(), bytes_));
    }
  }
}

Status BareTrips::open(std::uint64_t bytes) {
  Status opened = move_.open(bytes, true);
  return opened.ok() ? copy_.open(bytes, false) : std::move(opened);
}
Result<Peer> BareTrips::best(Session& session, const std::string& name) {
  return best_of(session, name, Better::lower, 3,
                 {{"bare UFFDIO_MOVE", "poll, read, UFFDIO_MOVE by another thread",
                   [this] { return move_.run(); }},
                  {"bare UFFDIO_COPY", "poll, read, UFFDIO_COPY by another thread",
                   [this] { return copy_.run(); }}},
                 "us");
}

}  // namespace tiermem::bench
