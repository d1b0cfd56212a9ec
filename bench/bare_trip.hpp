// The least that a touch of an absent page costs: userfaultfd wakes a thread that sleeps on it, and
// that thread puts the page in its place. No I/O, no books. The peer of the fault benchmarks. One
// thread, beside the handlers' own.
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

/// Microseconds until a byte could be read.
double touch_us(const std::byte* at);

/// One region that is touched, one where its page waits, and one way between the two.
class BareTrip {
 public:
  BareTrip() = default;
  ~BareTrip();
  BareTrip(const BareTrip&) = delete;
  BareTrip& operator=(const BareTrip&) = delete;

  /// `bytes`: a page, or a huge page; `moves`: by UFFDIO_MOVE, else by UFFDIO_COPY. Errors:
  /// unavailable where the kernel lacks it; those of reserving memory.
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
  std::thread handler_;  // Uses all of the above.
};

/// Both ways; the faster one is the peer.
class BareTrips {
 public:
  Status open(std::uint64_t bytes);
  /// Errors: those of best_of. What it answers uses this object.
  Result<Peer> best(Session& session, const std::string& name);

 private:
  BareTrip move_, copy_;
};

}  // namespace tiermem::bench
