// Disk to DRAM: queued prefetches over a working set of four times DRAM, beside the fastest bare
// loop on the same disk. With and without checksums, and the cost of checksums alone.
#include <fmt/format.h>
#include <xxhash.h>

#include <memory>
#include <utility>

#include "base/error.hpp"
#include "bench/bare_io.hpp"
#include "bench/core.hpp"
#include "bench/random_bytes.hpp"
#include "bench/working_set.hpp"

namespace tiermem::bench {
namespace {

/// XXH3-128 in blocks of 64 KiB, as in slots, over memory that is in no cache.
void note_hash_rate(Session& session, std::uint64_t bytes) {
  constexpr std::uint64_t kBlock = 64 << 10;
  std::vector<std::byte> data(bytes);
  fill_random(data.data(), bytes, 7);
  std::uint64_t sum = 0;
  const double start = now_seconds();
  for (std::uint64_t at = 0; at < bytes; at += kBlock) {
    sum += XXH3_128bits(data.data() + at, kBlock).low64;
  }
  const double took = now_seconds() - start;
  const double gib = static_cast<double>(bytes) / (1024.0 * 1024 * 1024);
  session.note(fmt::format("XXH3-128 alone: {:.3g} GB/s, {:.3g} CPU s/GiB (last bits {:x})",
                           static_cast<double>(bytes) / took / 1e9, took / gib, sum & 0xff));
}

}  // namespace

Status promote_2m(Session& session) {
  const std::string& directory = session.settings().directory;
  const std::uint64_t dram = benchmark_dram();
  session.tell("promote_2m: writing the peer's file");
  auto bare = BareIo::create(directory, dram);
  if (!bare.ok()) {
    return std::move(bare).status();
  }
  auto peer = best_of(session, "promote_2m", Better::higher, 3,
                      (*bare)->candidates(Traffic::read, dram), "GB/s");
  if (!peer.ok()) {
    return std::move(peer).status();
  }
  note_hash_rate(session, dram / 4);
  for (const bool checksum : {true, false}) {
    session.tell("promote_2m: writing the working set");
    auto set = WorkingSet::create(directory, dram, checksum);
    if (!set.ok()) {
      return std::move(set).status();
    }
    Status compared = session.compare(
        checksum ? "promote_2m" : "promote_2m_no_checksum", "GB/s", Better::higher, bars::kDisk,
        [&] { return (*set)->promote(dram); }, *peer);
    if (!compared.ok()) {
      return compared;
    }
  }
  return {};
}

}  // namespace tiermem::bench
