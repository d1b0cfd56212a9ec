// Which transfers the device gets when more are wanted than it accepts: by priority, but none waits
// for ever.
#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "tests/unit/mover_fixture.hpp"

namespace tiermem {
namespace {

using M = SteppedMover;

constexpr unsigned kAtOnce = 48;  // More extents than the device takes at once.
constexpr unsigned kCold = 160;

/// Threads that request extents of the device without end.
class Readers {
 public:
  explicit Readers(M& m) : m_(m) {
    for (unsigned i = 0; i < kCold; ++i) {
      cold_.push_back(m_.cold(static_cast<unsigned char>(i)));
    }
  }
  /// Keeps the number of requests constant: an answered thread releases its view and requests the
  /// next extent.
  void ask() {
    while (!waiting_.empty() && waiting_.front()->done()) {
      EXPECT_EQ(waiting_.front()->code(), Code::ok);
      m_.release(*waiting_.front());
      waiting_.pop_front();
    }
    while (waiting_.size() < kAtOnce) {
      waiting_.push_back(&m_.acquire(cold_[next_++ % kCold], kRead));
    }
    m_.run_workers();
  }

 private:
  M& m_;
  std::vector<Handle> cold_;
  std::deque<Call*> waiting_;
  std::size_t next_ = 0;
};

constexpr Machine kBusy{.frames = kAtOnce + 16, .on_disk = 4 * kCold};

/// Returns the number of reads that ended before `call` was done.
std::uint64_t reads_before(M& m, Readers& readers, const Call& call) {
  const std::uint64_t before = m.port.reads;
  while (!call.done() && m.port.reads < before + 300) {
    readers.ask();
    EXPECT_FALSE(m.port.requests.empty());
    m.end_io();
  }
  return m.port.reads - before;
}

TEST(MoverShares, a_write_that_nobody_waits_for_has_its_turn_beside_reads_without_end) {
  M m(kBusy);
  Readers readers(m);
  const Handle dirty = m.buffer();
  m.write(dirty, 0x77);
  readers.ask();
  const Call& clean = m.ask(RequestKind::clean, {M::access(dirty, kRead)});
  m.run_workers();
  EXPECT_FALSE(clean.done());
  const std::uint64_t reads = reads_before(m, readers, clean);
  EXPECT_EQ(clean.code(), Code::ok);
  EXPECT_GE(reads, 16u) << "a sixteenth is its share, and no more";
  EXPECT_LE(reads, 16u + kAtOnce);
}

TEST(MoverShares, what_is_fetched_ahead_comes_beside_reads_without_end) {
  M m(kBusy);
  const Handle ahead = m.cold(0x55);
  Readers readers(m);
  readers.ask();
  const Call& prefetch = m.ask(RequestKind::prefetch, {M::access(ahead, kRead)});
  m.run_workers();
  std::uint64_t before = m.port.reads;
  while (!m.resident(ahead) && m.port.reads < before + 300) {
    readers.ask();
    m.end_io();
  }
  EXPECT_TRUE(prefetch.done());
  EXPECT_TRUE(m.resident(ahead));
  EXPECT_LE(m.port.reads - before, 8u + 2 * kAtOnce);
}

TEST(MoverShares, nothing_is_saved_up_while_nobody_of_the_priority_waits) {
  M m(kBusy);
  Readers readers(m);
  const Handle dirty = m.buffer();
  m.write(dirty, 0x77);
  for (int i = 0; i < 100; ++i) {  // A hundred reads pass while no write waits.
    readers.ask();
    m.end_io();
  }
  const Call& clean = m.ask(RequestKind::clean, {M::access(dirty, kRead)});
  m.run_workers();
  EXPECT_GE(reads_before(m, readers, clean), 16u);
}

}  // namespace
}  // namespace tiermem
