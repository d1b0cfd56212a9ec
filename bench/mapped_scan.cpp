// One thread scans a buffer of twice DRAM repeatedly. The peers are swap, zswap, and a file of the
// same size under mmap, each in a memory cgroup with the same limit. Once it reads a word of each
// cache line, once it writes a word in each page.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "bench/mapped.hpp"
#include "bench/random_bytes.hpp"
#include "bench/sides.hpp"
#include "bench/swap.hpp"
#include "bench/working_set.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kTimesDram = 2;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// GB/s. Each pass sums what it reads and compares that with the sum of the written values.
class Scan : public Workload {
 public:
  Scan(std::uint64_t bytes, bool writes, bool compressible)
      : bytes_(bytes), writes_(writes), compressible_(compressible) {}
  std::uint64_t bytes() const override { return bytes_; }

  void fill(std::byte* data) override {
    for (std::uint64_t at = 0; at < bytes_; at += kMiB) {
      (compressible_ ? fill_compressible : fill_random)(data + at, std::min(kMiB, bytes_ - at),
                                                        at + 1);
      sum_ += words(data + at, std::min(kMiB, bytes_ - at));
    }
  }

  double run(std::byte* data) override {
    const double start = now_seconds();
    std::uint64_t sum = 0;
    for (std::uint64_t at = 0; at < bytes_; at += step()) {
      auto* const word = reinterpret_cast<std::uint64_t*>(data + at);
      sum += writes_ ? (*word)++ : *word;
    }
    const double took = now_seconds() - start;
    const bool right = sum == sum_;
    sum_ += writes_ ? bytes_ / step() : 0;
    return right ? static_cast<double>(bytes_) / took / 1e9 : 0;
  }

  bool whole(const std::byte* data) override { return words(data, bytes_) == sum_; }

 private:
  std::uint64_t step() const { return writes_ ? 4096 : 64; }
  std::uint64_t words(const std::byte* data, std::uint64_t length) const {
    std::uint64_t sum = 0;
    for (std::uint64_t at = 0; at < length; at += step()) {
      sum += *reinterpret_cast<const std::uint64_t*>(data + at);
    }
    return sum;
  }

  const std::uint64_t bytes_;
  const bool writes_, compressible_;
  std::uint64_t sum_ = 0;
};

constexpr std::array kAdvices = {
    std::pair{MADV_NORMAL, "normal"}, std::pair{MADV_SEQUENTIAL, "sequential"},
    std::pair{MADV_RANDOM, "random"}, std::pair{MADV_HUGEPAGE, "huge pages"}};

Contest contest(std::uint64_t dram, bool writes, const char* peer, double bar,
                bool compressible = false) {
  return {.name = fmt::format("mapped_scan_{}_{}", writes ? "write" : "read", peer),
          .unit = "GB/s",
          .bar = bar,
          .make =
              [=, bytes = dram * kTimesDram] {
                return std::make_unique<Scan>(bytes, writes, compressible);
              },
          .dram = dram};
}

}  // namespace

Status mapped_scan_swap(Session& session) {
  const std::uint64_t dram = std::min(benchmark_dram(), 512 * kMiB);
  for (const bool writes : {false, true}) {
    const Contest scan = contest(dram, writes, "swap", bars::kMappedScanSwap);
    Status status = beside_swap(session, scan, swap_sides(scan));
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

Status mapped_scan_zswap(Session& session) {
  const std::uint64_t dram = std::min(benchmark_dram(), 512 * kMiB);
  for (const bool writes : {false, true}) {
    Status status = beside_zswap(session, contest(dram, writes, "zswap", 0, true));
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

Status mapped_scan_mmap(Session& session) {
  const std::uint64_t dram = std::min(benchmark_dram(), 512 * kMiB);
  for (const bool writes : {false, true}) {
    const Contest scan =
        contest(dram, writes, "mmap", writes ? bars::kMappedWriteMmap : bars::kMappedReadMmap);
    std::vector<SideChoice> peers;
    for (const auto& [advice, word] : kAdvices) {
      peers.push_back(mmap_side(scan, session.settings().directory, advice, word));
    }
    Status status = compare_sides(session, scan, std::move(peers));
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

// The bytes are those of a file from the beginning, and no side writes.
Status mapped_file_scan(Session& session) {
  Contest scan = contest(std::min(benchmark_dram(), 512 * kMiB), false, "", bars::kMappedReadMmap);
  scan.name = "mapped_file_scan";
  scan.reads_file = true;
  std::vector<SideChoice> peers;
  for (const auto& [advice, word] : kAdvices) {
    peers.push_back(mmap_side(scan, session.settings().directory, advice, word));
  }
  return compare_sides(session, scan, std::move(peers));
}

}  // namespace tiermem::bench
