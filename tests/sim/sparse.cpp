#include "tests/sim/sparse.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <vector>

#include "mover/mover.hpp"
#include "tests/sim/fake_devices.hpp"
#include "tests/sim/fake_memory.hpp"
#include "tests/sim/simulation.hpp"
#include "tier/block.hpp"

namespace tiermem::sim {
namespace {

constexpr std::uint32_t kMany = 1u << 20;

class Sparse {
 public:
  explicit Sparse(std::uint64_t seed)
      : world_(seed),
        extent_bytes_(std::uint64_t{4096} << world_.below(6)),
        has_device_(world_.one_in(2)),
        dice_(world_, rates_),
        host_((4 + world_.below(6) + (has_device_ ? 2 : 0)) * extent_bytes_, {Kind::dram, 0},
              dice_),
        device_(3 * extent_bytes_, {Kind::gpu, 0}, dice_),
        port_(world_, rates_, 2, std::uint64_t{64} << 20),
        block_(port_, {.depth = 4, .piece_bytes = extent_bytes_}),
        workers_(world_, rates_),
        // A run of extents is rounded up to a power of two; this includes the extents before and
        // behind it.
        residency_(16, 4 * kMany, has_device_ ? 2 : 1),
        mover_(residency_, spaces(), slots_, nullptr, workers_, options()) {
    residency_.bias_each = 1;
    residency_.device_space[1] = &device_;
    device_.copy_by(workers_);
    make(1);
    make(kMany + 1 + static_cast<std::uint32_t>(world_.below(kMany / 2)));
    make(1);
    const std::uint32_t last = buffers_[1].extents - 1;
    for (const std::uint32_t extent : {0u, 1u, 65535u, 65536u, kMany - 1, kMany, last - 1, last,
                                       static_cast<std::uint32_t>(world_.below(last))}) {
      spots_.push_back({1, extent});
    }
    spots_.push_back({0, 0});
    spots_.push_back({2, 0});
  }

  void run() {
    for (unsigned n = 0; n < 120; ++n) {
      const Spot spot = spots_[world_.below(spots_.size())];
      switch (world_.below(8)) {
        case 0:
          finish(ask(RequestKind::evict, spot));
          break;
        case 1:
          finish(ask(RequestKind::clean, spot));
          break;
        case 2:
          finish(ask(RequestKind::discard, spot));
          values_[spot] = 0;
          break;
        default:
          touch(spot);
      }
    }
    check_books();
    for (const Spot& spot : spots_) {
      touch(spot);
    }
    for (const Buffer& buffer : buffers_) {
      if (!residency_.buffers.mark_freed(buffer.handle)) {
        throw Failure("sparse: a handle is stale");
      }
      Request request;
      request.kind = RequestKind::free;
      request.index = Buffers::index_of(buffer.handle);
      finish(request);
    }
    check_books();
    if (residency_.buffers.live_extents() != 0 || block_.usage().in_use != 0) {
      throw Failure("sparse: extents or slots are left of freed buffers");
    }
  }

 private:
  struct Buffer {
    Handle handle;
    std::uint32_t extents;
  };
  struct Spot {
    std::size_t buffer;
    std::uint32_t extent;
    friend auto operator<=>(const Spot&, const Spot&) = default;
  };

  std::vector<AddressSpace*> spaces() {
    std::vector<AddressSpace*> all = {&host_};
    if (has_device_) {
      all.push_back(&device_);
    }
    return all;
  }
  MoverOptions options() const {
    MoverOptions o;
    o.checksum_block_bytes = 4096;
    o.bounce_area_bytes = extent_bytes_;
    o.budget_per_bounce_area = ~std::uint64_t{0};
    o.staging_bytes = has_device_ ? 2 * extent_bytes_ : 0;
    o.staging_frame_bytes = extent_bytes_;
    return o;
  }

  // Without a window, like heap memory on devices: a view covers one extent.
  void make(std::uint32_t extents) {
    BufferShape shape;
    shape.bytes = extents * extent_bytes_;
    shape.extent_shift = static_cast<std::uint8_t>(std::countr_zero(extent_bytes_));
    shape.extents = extents;
    shape.flags = extents > 1 ? kOfHeaps : 0;
    shape.label = "sparse";
    buffers_.push_back({*residency_.buffers.create(shape), extents});
  }

  Access access(const Spot& spot, std::uint32_t mode) {
    const bool on_device = has_device_ && world_.one_in(3);
    return {buffers_[spot.buffer].handle,
            spot.extent * extent_bytes_,
            extent_bytes_,
            mode,
            {on_device ? Kind::gpu : Kind::dram, 0},
            0};
  }
  Request& ask(RequestKind want, const Spot& spot) {
    request_ = std::make_unique<Request>();
    request_->kind = want;
    request_->spans.resize(1);
    Access all = access(spot, want == RequestKind::discard ? kDiscard : kRead);
    all.where = {};
    const Status status = residency_.resolve(all, request_->spans[0], "sparse");
    if (!status.ok()) {
      throw Failure(std::string("sparse: ") + status.message());
    }
    return *request_;
  }

  // A view shows the bytes written last, and may write.
  void touch(const Spot& spot) {
    const bool writes = world_.one_in(2);
    const Access list[] = {access(spot, writes ? kWrite : kRead)};
    ViewRecord views[1];
    if (residency_.try_acquire(list, views) != Code::ok) {
      Request& request = ask(RequestKind::acquire, spot);
      request.views = views;
      const Status status = residency_.resolve(list[0], request.spans[0], "sparse");
      if (!status.ok()) {
        throw Failure(std::string("sparse: ") + status.message());
      }
      finish(request);
    }
    std::byte* const data = static_cast<std::byte*>(views[0].data);
    const bool on_device = list[0].where.kind == Kind::gpu;
    const auto value = static_cast<unsigned char>(1 + world_.below(255));
    for (std::uint64_t i = 0; i < extent_bytes_; ++i) {
      const std::byte shown = on_device ? device_.load(data + i) : data[i];
      if (shown != std::byte{values_[spot]}) {
        throw Failure(fmt::format("sparse: byte {} of extent {} of buffer {} is {}, not {}", i,
                                  spot.extent, spot.buffer, static_cast<int>(shown),
                                  static_cast<int>(values_[spot])));
      }
      if (writes && on_device) {
        device_.store(data + i, std::byte{value});
      } else if (writes) {
        data[i] = std::byte{value};
      }
    }
    values_[spot] = writes ? value : values_[spot];
    if (residency_.release(views) != Code::ok) {
      throw Failure("sparse: a view is not held");
    }
  }

  void finish(Request& request) {
    bool done = false;
    request.context = &done;
    request.on_done = [](Request& ended) { *static_cast<bool*>(ended.context) = true; };
    mover_.post(&request);
    unsigned steps = 0;
    while (!done) {
      const std::int64_t next = mover_.step(world_.now);
      const std::int64_t due = std::min({next, port_.next_due(), workers_.next_due()});
      if (!done && (due == INT64_MAX || steps > 100'000)) {
        throw Failure("sparse: a request does not end\n" + mover_.describe());
      }
      world_.now = std::max(world_.now + 1, due == INT64_MAX ? world_.now : due);
      ++steps;
    }
    if (!request.status.ok()) {
      throw Failure(std::string("sparse: refused: ") + request.status.message());
    }
  }
  void check_books() {
    if (const std::string broken = mover_.check_invariants(); !broken.empty()) {
      throw Failure("sparse: " + broken);
    }
  }

  World world_;
  const FaultRates rates_;
  const std::uint64_t extent_bytes_;
  const bool has_device_;
  Dice dice_;
  FakeMemory host_, device_;
  FakePort port_;
  BlockTier block_;
  std::array<SlotTier*, 1> slots_{&block_};
  FakeWorkers workers_;
  Residency residency_;
  std::vector<Buffer> buffers_;
  std::vector<Spot> spots_;
  std::map<Spot, unsigned char> values_;  // The value of every byte of the extent.
  std::unique_ptr<Request> request_;      // It outlives its time in the mover.
  Mover mover_;
};

}  // namespace

void touch_sparse_buffer(std::uint64_t seed) {
  Sparse(seed).run();
}

}  // namespace tiermem::sim
