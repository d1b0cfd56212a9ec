// Random touches of a mapped buffer of twice DRAM in extents of 64 KiB, counted in misses. The peer
// is the sum of the unavoidable costs: a random read of the device, and a bare trip through
// userfaultfd that copies a page; with many threads the slower of the two.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "bench/mapped.hpp"
#include "bench/mapped_set.hpp"
#include "bench/random_bytes.hpp"
#include "os/block_file.hpp"
#include "os/host_memory.hpp"
#include "os/userfault.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kDram = 256 * kMiB;
constexpr std::uint64_t kBytes = 2 * kDram;
constexpr std::uint64_t kExtent = std::uint64_t{64} << 10;  // As in the preload library.
constexpr std::uint64_t kBareBytes = 64 * kMiB;
constexpr double kSeconds = 1.0;

/// Runs `part(thread)` on `threads` threads at once.
template <typename Part>
void on_threads(unsigned threads, Part&& part) {
  std::vector<std::thread> running;
  for (unsigned i = 0; i < threads; ++i) {
    running.emplace_back([&, i] { part(i); });
  }
  for (std::thread& thread : running) {
    thread.join();
  }
}

Result<Sample> touch(const MappedSet& set, unsigned threads) {
  static std::atomic<std::uint64_t> seed{0};
  const std::uint64_t before = set.context->stats().faults;
  const double start = now_seconds();
  std::atomic<std::uint64_t> sum{0};
  on_threads(threads, [&](unsigned i) {
    std::mt19937_64 dice(++seed * 100 + i);
    std::uint64_t mine = 0;
    while (now_seconds() - start < kSeconds) {
      for (int k = 0; k < 8; ++k) {
        mine += std::to_integer<std::uint64_t>(set.data[dice() % kBytes]);
      }
    }
    sum += mine;
  });
  const double took = now_seconds() - start;
  if (Status bad = set.check(sum); !bad.ok()) {
    return bad;
  }
  return Sample{static_cast<double>(set.context->stats().faults - before) / took};
}

/// The device through pread, and userfaultfd with a thread that copies a page for each fault.
class Floor {
 public:
  ~Floor() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
    if (area_ != MAP_FAILED) {
      ::munmap(area_, kBareBytes);
    }
  }
  Status open(const std::string& directory) {
    fd_ = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    if (fd_ < 0) {
      return fail_native(Code::unavailable, errno, "{}: {}", directory, std::strerror(errno));
    }
    auto* const block = static_cast<std::byte*>(std::aligned_alloc(host::kPage, kMiB));
    bool written = block != nullptr;
    for (std::uint64_t at = 0; written && at < kBytes; at += kMiB) {
      fill_random(block, kMiB, at);
      written = ::pwrite(fd_, block, kMiB, static_cast<off_t>(at)) == static_cast<ssize_t>(kMiB);
    }
    std::free(block);
    userfault_ = Userfault::open();
    area_ = ::mmap(nullptr, kBareBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!written || !userfault_.ok() || area_ == MAP_FAILED) {
      return fail(Code::unavailable, "no file to read, or no userfaultfd: {}",
                  userfault_.facts().reason);
    }
    (void)::madvise(area_, kBareBytes, MADV_NOHUGEPAGE);
    const int error = userfault_.register_missing(static_cast<std::byte*>(area_), kBareBytes);
    return error == 0
               ? Status()
               : fail_native(Code::unavailable, error, "userfaultfd: {}", std::strerror(error));
  }
  double device(unsigned threads) {
    std::atomic<std::uint64_t> reads{0};
    const double start = now_seconds();
    on_threads(threads, [&](unsigned i) {
      auto* const page = static_cast<std::byte*>(std::aligned_alloc(host::kPage, host::kPage));
      std::mt19937_64 dice(++seed_ * 100 + i);
      std::uint64_t mine = 0;
      while (now_seconds() - start < kSeconds / 2) {
        const std::uint64_t at = dice() % (kBytes / host::kPage) * host::kPage;
        mine += ::pread(fd_, page, host::kPage, static_cast<off_t>(at)) > 0 ? 1 : 0;
      }
      reads += mine;
      std::free(page);
    });
    return static_cast<double>(reads) / (now_seconds() - start);
  }
  double trips(unsigned threads) {
    auto* const area = static_cast<std::byte*>(area_);
    std::atomic<bool> stop{false};
    std::thread server([&] {
      auto* const page = static_cast<std::byte*>(std::aligned_alloc(host::kPage, host::kPage));
      std::memset(page, 1, host::kPage);
      pollfd waiting{userfault_.fd(), POLLIN, 0};
      UserfaultEvent event;
      while (!stop.load(std::memory_order_relaxed)) {
        if (::poll(&waiting, 1, 20) > 0) {
          while (userfault_.read_event(event) == 0) {
            std::byte* const at =
                event.address - reinterpret_cast<std::uintptr_t>(event.address) % host::kPage;
            if (userfault_.copy(at, page, host::kPage).error == EEXIST) {
              (void)userfault_.wake(at, host::kPage);
            }
          }
        }
      }
      std::free(page);
    });
    (void)::madvise(area_, kBareBytes, MADV_DONTNEED);
    const std::uint64_t pages = kBareBytes / host::kPage / threads;
    const double start = now_seconds();
    std::atomic<std::uint64_t> sum{0};
    on_threads(threads, [&](unsigned i) {
      // 7919 is prime: each page once, none beside the previous one.
      std::uint64_t mine = 0;
      for (std::uint64_t k = 0; k < pages; ++k) {
        mine += std::to_integer<std::uint64_t>(area[(i * pages + k * 7919 % pages) * host::kPage]);
      }
      sum += mine;
    });
    const double took = now_seconds() - start;
    stop = true;
    server.join();
    return static_cast<double>(sum) / took;
  }

 private:
  int fd_ = -1;
  void* area_ = MAP_FAILED;
  Userfault userfault_;
  std::atomic<std::uint64_t> seed_{0};
};

}  // namespace

Status mapped_random_4k(Session& session) {
  session.tell("mapped_random_4k: writing the buffer");
  auto set = MappedSet::create(session.settings().directory, kDram, kBytes, kExtent);
  if (!set.ok()) {
    return std::move(set).status();
  }
  // All bytes are in slots: extents that leave from now on are not written.
  if (Status down = set->buffer.evict(); !down.ok()) {
    return down;
  }
  Floor floor;
  Status opened = floor.open(session.settings().directory);
  if (!opened.ok()) {
    return opened;
  }
  for (const unsigned threads : {1U, 16U}) {
    double device = 0, trips = 0;
    const Peer peer{
        threads == 1 ? "device + bare userfaultfd" : "slower of device, userfaultfd",
        "pread of 4 KiB with O_DIRECT; UFFDIO_COPY of a page by another thread",
        [&]() -> Result<Sample> {
          device = floor.device(threads);
          trips = floor.trips(threads);
          return Sample{threads == 1 ? 1 / (1 / device + 1 / trips) : std::min(device, trips)};
        }};
    Status compared = session.compare(
        fmt::format("mapped_random_4k_{}_thread{}", threads, threads == 1 ? "" : "s"), "misses/s",
        Better::higher, bars::kMappedRandom, [&] { return touch(*set, threads); }, peer);
    if (!compared.ok()) {
      return compared;
    }
    session.note(
        fmt::format("mapped_random_4k, {} threads, last pair: device {:.0f} reads/s, bare "
                    "userfaultfd {:.0f} faults/s",
                    threads, device, trips));
  }
  return {};
}

}  // namespace tiermem::bench
