// Between DRAM and the device: one list requests buffers of 2 MiB, beside one large copy of as many
// bytes. In each direction, and in both at once.
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "bench/gpu.hpp"
#include "bench/gpu_set.hpp"

namespace tiermem::bench {
namespace {

/// The device and the objects on it, in order of creation.
struct Link {
  std::unique_ptr<GpuDevice> gpu;
  std::unique_ptr<LinkPeer> peer;
  std::unique_ptr<GpuSet> set;
};

Result<Link> make_link(Session& session, const char* name) {
  session.tell(name);
  Link link;
  auto gpu = GpuDevice::open();
  if (!gpu.ok()) {
    return std::move(gpu).status();
  }
  link.gpu = std::move(*gpu);
  auto bytes = link.gpu->choose_bytes(session, {});
  if (!bytes.ok()) {
    return std::move(bytes).status();
  }
  auto peer = LinkPeer::create(*link.gpu, *bytes);
  if (!peer.ok()) {
    return std::move(peer).status();
  }
  link.peer = std::move(*peer);
  auto set = GpuSet::create(*link.gpu, {.bytes = *bytes});
  if (!set.ok()) {
    return std::move(set).status();
  }
  link.set = std::move(*set);
  return link;
}

/// One direction, or both: the unmeasured preparation of each run, and the run's request.
struct Way {
  const char* name;
  double bar;
  Status (*prepare)(GpuSet& set);
  std::vector<Access> list;
  Peer peer;
};

Status compare(Session& session, Link& link, const Way& way) {
  const auto ours = [&]() -> Result<Sample> {
    Status ready = way.prepare(*link.set);
    if (!ready.ok()) {
      return ready;
    }
    const Stats before = link.set->context().stats();
    auto sample = timed(link.peer->bytes(), [&] { return link.set->bring(way.list); });
    const Stats after = link.set->context().stats();
    const std::uint64_t moved =
        after.gpu_bytes_in - before.gpu_bytes_in + after.gpu_bytes_out - before.gpu_bytes_out;
    if (sample.ok() && moved < link.peer->bytes()) {
      return fail(Code::internal, "{} of {} went over the link", human_bytes(moved),
                  human_bytes(link.peer->bytes()));
    }
    return sample;
  };
  Status status = session.compare(way.name, "GB/s", Better::higher, way.bar, ours, way.peer);
  if (status.ok()) {
    status = link.set->check_on_device();
  }
  return status.ok() ? link.set->check_in_dram() : std::move(status);
}

}  // namespace

Status gpu_h2d_2m(Session& session) {
  auto link = make_link(session, "gpu_h2d_2m");
  if (!link.ok()) {
    return std::move(link).status();
  }
  return compare(
      session, *link,
      {"gpu_h2d_2m", bars::kGpuLink, [](GpuSet& set) { return set.write_in_dram(set.all()); },
       link->set->list(link->set->all(), GpuSet::kGpu), link->peer->in_peer()});
}

Status gpu_d2h_2m(Session& session) {
  auto link = make_link(session, "gpu_d2h_2m");
  if (!link.ok()) {
    return std::move(link).status();
  }
  return compare(
      session, *link,
      {"gpu_d2h_2m", bars::kGpuLink, [](GpuSet& set) { return set.write_on_device(set.all()); },
       link->set->list(link->set->all(), GpuSet::kDram), link->peer->out_peer()});
}

Status gpu_both_ways(Session& session) {
  auto link = make_link(session, "gpu_both_ways");
  if (!link.ok()) {
    return std::move(link).status();
  }
  GpuSet& set = *link->set;
  // One list: its first half comes to the device while the second half leaves it.
  std::vector<Access> list = set.list(set.first_half(), GpuSet::kGpu);
  for (const Access& access : set.list(set.second_half(), GpuSet::kDram)) {
    list.push_back(access);
  }
  return compare(session, *link,
                 {"gpu_both_ways", bars::kGpuBothWays,
                  [](GpuSet& each) {
                    Status status = each.write_in_dram(each.first_half());
                    return status.ok() ? each.write_on_device(each.second_half())
                                       : std::move(status);
                  },
                  std::move(list), link->peer->both_peer()});
}

}  // namespace tiermem::bench
