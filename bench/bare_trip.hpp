// The minimum cost of a touch of an absent page: userfaultfd wakes a sleeping thread, and that
// thread installs the page. No I/O, no records. The peer of the fault benchmarks. One thread,
// beside the handlers' own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>

#include "bench/harness.hpp"
#include "os/host_memory.hpp"
#include "os/userfault.hpp"

namespace tiermem::bench {

/// Touches in one sample.
inline constexpr unsigned kTrips = 100;

/// Microseconds until a byte can be read.
double touch_us(const std::byte* at);

/// A region that is touched, a region that holds its page, and one mechanism between them.
class BareTrip {
 public:
  BareTrip() = default;
  ~BareTrip();
  BareTrip(const BareTrip&) = delete;
  BareTrip& operator=(const BareTrip&) = delete;

  /// `bytes`: a page, or a huge page. `moves`: with UFFDIO_MOVE, otherwise with UFFDIO_COPY.
  /// Errors: unavailable if the kernel lacks it; those of reserving memory.
  Status open(std::uint64_t bytes, bool moves);
  /// The median of kTrips touches, in microseconds.
  Result<Sample> run();

 private:
  void handle();

  std::uint64_t bytes_ = 0;
  bool moves_ = false;
  host::AddressRange window_, home_;
  Userfault userfault_;
  std::atomic<bool> stop_{false};
  std::thread handler_;  // It uses all members above.
};

/// Both mechanisms; the faster one is the peer.
class BareTrips {
 public:
  Status open(std::uint64_t bytes);
  /// Errors: those of best_of. The result uses this object.
  Result<Peer> best(Session& session, const std::string& name);

 private:
  BareTrip move_, copy_;
};

}  // namespace tiermem::bench
