// Both directions at once: every promoted extent evicts a dirty one. The peer is a bare loop that
// writes a block and reads another into its place.
#include <memory>
#include <utility>

#include "bench/bare_io.hpp"
#include "bench/core.hpp"
#include "bench/working_set.hpp"

namespace tiermem::bench {

Status promote_demote_mix(Session& session) {
  const std::string& directory = session.settings().directory;
  const std::uint64_t dram = benchmark_dram();
  session.tell("promote_demote_mix: writing the peer's file");
  auto bare = BareIo::create(directory, dram);
  if (!bare.ok()) {
    return std::move(bare).status();
  }
  auto peer = best_of(session, "promote_demote_mix", Better::higher, 3,
                      (*bare)->candidates(Traffic::mixed, 2 * dram), "GB/s");
  if (!peer.ok()) {
    return std::move(peer).status();
  }
  session.tell("promote_demote_mix: writing the working set");
  auto set = WorkingSet::create(directory, dram, true);
  if (!set.ok()) {
    return std::move(set).status();
  }
  // The unmeasured run fills DRAM with dirty extents.
  return session.compare(
      "promote_demote_mix", "GB/s", Better::higher, bars::kDiskMix,
      [&] { return (*set)->mix(dram); }, *peer);
}

}  // namespace tiermem::bench
