// DRAM to disk: evictions of dirty extents, beside the fastest bare loop on the same disk.
#include <memory>
#include <utility>

#include "bench/bare_io.hpp"
#include "bench/core.hpp"
#include "bench/working_set.hpp"

namespace tiermem::bench {

Status demote_2m(Session& session) {
  const std::string& directory = session.settings().directory;
  const std::uint64_t dram = benchmark_dram();
  session.tell("demote_2m: writing the peer's file");
  auto bare = BareIo::create(directory, dram);
  if (!bare.ok()) {
    return std::move(bare).status();
  }
  auto peer = best_of(session, "demote_2m", Better::higher, 3,
                      (*bare)->candidates(Traffic::write, dram), "GB/s");
  if (!peer.ok()) {
    return std::move(peer).status();
  }
  for (const bool checksum : {true, false}) {
    session.tell("demote_2m: writing the working set");
    auto set = WorkingSet::create(directory, dram, checksum);
    if (!set.ok()) {
      return std::move(set).status();
    }
    Status compared = session.compare(
        checksum ? "demote_2m" : "demote_2m_no_checksum", "GB/s", Better::higher, bars::kDisk,
        [&] { return (*set)->demote(dram); }, *peer);
    if (!compared.ok()) {
      return compared;
    }
  }
  return {};
}

}  // namespace tiermem::bench
