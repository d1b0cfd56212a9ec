// Disk to the device: buffers of 2 MiB with their only copy in a slot. The peer is the slower of
// the disk (the fastest bare loop on it) and the link (one large copy), both measured in the same
// pair.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "bench/bare_io.hpp"
#include "bench/gpu.hpp"
#include "bench/gpu_set.hpp"

namespace tiermem::bench {
namespace {

Result<Sample> run(GpuSet& set, std::uint64_t bytes, bool direct) {
  Status evicted = set.context().evict(set.list(set.all(), {}));
  if (!evicted.ok()) {
    return evicted;
  }
  const auto came_in = [&] {
    const Stats stats = set.context().stats();
    return direct ? stats.gpu_direct_in : stats.promoted + stats.prefetched;
  };
  const std::uint64_t before = came_in();
  const std::vector<Access> list = set.list(set.all(), GpuSet::kGpu);
  auto sample = timed(bytes, [&] { return set.bring(list); });
  const std::uint64_t read = came_in() - before;
  if (sample.ok() && read < bytes) {
    return fail(Code::internal, "{} of {} were read from the disk{}", human_bytes(read),
                human_bytes(bytes), direct ? " past the host" : "");
  }
  return sample;
}

}  // namespace

Status gpu_promote_from_nvme(Session& session) {
  const std::string& directory = session.settings().directory;
  auto gpu = GpuDevice::open();
  if (!gpu.ok()) {
    return std::move(gpu).status();
  }
  const auto bytes = (*gpu)->choose_bytes(session, {});
  if (!bytes.ok()) {
    return bytes.status().clone();
  }
  auto link = LinkPeer::create(**gpu, *bytes);
  if (!link.ok()) {
    return std::move(link).status();
  }
  session.tell("gpu_promote_from_nvme: writing the peer's file");
  auto bare = BareIo::create(directory, *bytes);
  if (!bare.ok()) {
    return std::move(bare).status();
  }
  auto disk = best_of(session, "gpu_promote_from_nvme", Better::higher, 3,
                      (*bare)->candidates(Traffic::read, *bytes), "GB/s");
  if (!disk.ok()) {
    return std::move(disk).status();
  }
  const Peer slower{"the slower of disk and link",
                    fmt::format("the slower of: {}; {}", disk->command, (*link)->in_peer().command),
                    [&]() -> Result<Sample> {
                      auto read = disk->measure();
                      auto copied = (*link)->in();
                      if (!read.ok() || !copied.ok()) {
                        return read.ok() ? std::move(copied) : std::move(read);
                      }
                      return read->value < copied->value ? *read : *copied;
                    }};
  struct Way {
    const char* row;
    bool checksum, direct;
  };
  for (const Way& way : {Way{"gpu_promote_from_nvme", true, false},
                         Way{"gpu_promote_from_nvme_no_checksum", false, false},
                         Way{"gpu_promote_from_nvme_direct", false, true}}) {
    session.tell("gpu_promote_from_nvme: writing the set");
    auto set = GpuSet::create(
        **gpu,
        {.bytes = *bytes, .directory = directory, .checksum = way.checksum, .direct = way.direct});
    if (way.direct && set.code() == Code::unavailable) {
      session.skip(way.row, set.message());
      continue;
    }
    if (!set.ok()) {
      return std::move(set).status();
    }
    Status status = session.compare(
        way.row, "GB/s", Better::higher, bars::kGpuFromNvme,
        [&] { return run(**set, *bytes, way.direct); }, slower);
    if (status.ok()) {
      status = (*set)->check_on_device();
    }
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

}  // namespace tiermem::bench
