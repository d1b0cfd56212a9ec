// One thread reads a mapped buffer of four times DRAM from beginning to end, repeatedly. The peer
// is the fastest bare loop that reads as many bytes from the same disk.
#include <utility>

#include "bench/bare_io.hpp"
#include "bench/mapped.hpp"
#include "bench/mapped_set.hpp"
#include "bench/working_set.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kTimesDram = 4;

/// One read per cache line, like a program that reads all bytes.
Result<Sample> scan(const MappedSet& set, std::uint64_t bytes) {
  const double cpu = cpu_seconds();
  const double start = now_seconds();
  std::uint64_t sum = 0;
  for (std::uint64_t at = 0; at < bytes; at += 64) {
    sum += *reinterpret_cast<const std::uint64_t*>(set.data + at);
  }
  const double took = now_seconds() - start;
  const double used = cpu_seconds() - cpu;
  if (Status bad = set.check(sum); !bad.ok()) {
    return bad;
  }
  const double gib = static_cast<double>(bytes) / (1024.0 * 1024 * 1024);
  return Sample{static_cast<double>(bytes) / took / 1e9, used / gib};
}

}  // namespace

Status mapped_scan_read(Session& session) {
  const std::string& directory = session.settings().directory;
  const std::uint64_t dram = benchmark_dram();
  const std::uint64_t bytes = dram * kTimesDram;
  session.tell("mapped_scan_read: writing the peer's file");
  auto bare = BareIo::create(directory, dram);
  if (!bare.ok()) {
    return std::move(bare).status();
  }
  auto peer = best_of(session, "mapped_scan_read", Better::higher, 3,
                      (*bare)->candidates(Traffic::read, dram), "GB/s");
  if (!peer.ok()) {
    return std::move(peer).status();
  }
  session.tell("mapped_scan_read: writing the buffer");
  auto set = MappedSet::create(directory, dram, bytes);
  if (!set.ok()) {
    return std::move(set).status();
  }
  return session.compare(
      "mapped_scan_read", "GB/s", Better::higher, bars::kMappedScan,
      [&] { return scan(*set, bytes); }, *peer);
}

}  // namespace tiermem::bench
