// A mapped buffer that fits: the same reads as from plain memory in huge pages.
#include <sys/mman.h>

#include <random>
#include <utility>

#include "base/error.hpp"
#include "bench/mapped.hpp"
#include "bench/mapped_set.hpp"
#include "bench/random_bytes.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kBytes = std::uint64_t{512} << 20;

/// One scan, and random reads that take about as long. ns per read.
Result<Sample> read_all(const std::byte* data) {
  std::mt19937_64 dice(1);
  std::uint64_t sum = 0, reads = 0;
  const double start = now_seconds();
  for (std::uint64_t at = 0; at < kBytes; at += 64, ++reads) {
    sum += *reinterpret_cast<const std::uint64_t*>(data + at);
  }
  for (int i = 0; i < 2'000'000; ++i, ++reads) {
    sum += *reinterpret_cast<const std::uint64_t*>(data + dice() % kBytes / 8 * 8);
  }
  const double took = now_seconds() - start;
  if (sum == 0) {
    return fail(Code::io_error, "the bytes are gone");
  }
  return Sample{took / static_cast<double>(reads) * 1e9};
}

}  // namespace

Status mapped_resident(Session& session) {
  auto set = MappedSet::create(session.settings().directory, kBytes + kBytes / 4, kBytes);
  if (!set.ok()) {
    return std::move(set).status();
  }
  constexpr std::uint64_t kHuge = std::uint64_t{2} << 20;
  void* const area =
      mmap(nullptr, kBytes + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area == MAP_FAILED) {
    return fail(Code::no_capacity, "no memory for the peer");
  }
  auto* const plain = reinterpret_cast<std::byte*>(
      (reinterpret_cast<std::uintptr_t>(area) + kHuge - 1) / kHuge * kHuge);
  (void)madvise(plain, kBytes, MADV_HUGEPAGE);
  fill_random(plain, kBytes, 1);
  const Peer peer{"plain memory", "mmap, MADV_HUGEPAGE", [&] { return read_all(plain); }};
  Status compared = session.compare(
      "mapped_resident", "ns", Better::lower, bars::kMappedResident,
      [&] { return read_all(set->data); }, peer);
  munmap(area, kBytes + kHuge);
  return compared;
}

}  // namespace tiermem::bench
