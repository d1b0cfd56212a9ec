// Adam over twice the device's budget: parameters, gradients and two moments of all layers. They
// pass through the device layer by layer in the order of a stream, and the next ones are
// prefetched. The peers are the slower of the necessary transfers and the necessary computation,
// and managed memory.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "bench/adam.hpp"
#include "bench/gpu.hpp"
#include "bench/managed_adam.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr std::uint64_t kLayers = 16;
constexpr std::uint64_t kAhead = 2;  // Layers requested in advance.
constexpr std::size_t kArrays = 4;   // Parameters, gradients, first and second moments.
constexpr std::size_t kGradients = 1;
constexpr Place kGpu{Kind::gpu, 0};

/// `layer_bytes` is the size of one array. In a step all arrays come in, and the written ones
/// leave.
struct Size {
  std::uint64_t layer_bytes = 0;
  std::uint64_t in() const { return kArrays * kLayers * layer_bytes; }
  std::uint64_t out() const { return in() / kArrays * (kArrays - 1); }
  std::uint64_t budget() const { return in() / 2; }
  std::uint64_t elements() const { return layer_bytes / sizeof(float); }
};

class TieredAdam {
 public:
  static Result<std::unique_ptr<TieredAdam>> create(GpuDevice& gpu, const AdamKernel& kernel,
                                                    const Size& size) {
    std::unique_ptr<TieredAdam> made(new TieredAdam(gpu, kernel, size));
    Status begun = made->begin();
    if (!begun.ok()) {
      return begun;
    }
    return made;
  }
  ~TieredAdam() {
    arrays_.clear();
    context_.reset();
    if (stream_ != nullptr) {
      (void)gpu_.driver().cuStreamDestroy(stream_);
    }
  }
  TieredAdam(const TieredAdam&) = delete;
  TieredAdam& operator=(const TieredAdam&) = delete;

  /// Runs all layers once, and returns when they are done.
  Status step() {
    Status status;
    for (std::uint64_t layer = 0; layer < kLayers && status.ok(); ++layer) {
      const std::vector<Access> next = layer_list((layer + kAhead) % kLayers);
      status = context_->prefetch(next);
      if (status.ok()) {
        status = step_layer(layer);
      }
    }
    Status done = gpu_.wait(stream_);
    ++steps_;
    return status.ok() ? std::move(done) : std::move(status);
  }

  /// Checks all elements on the host, one layer at a time.
  Status check() const {
    for (std::uint64_t layer = 0; layer < kLayers; ++layer) {
      std::array<View, kArrays> views;
      std::array<std::span<const float>, kArrays> elements;
      for (std::size_t i = 0; i < kArrays; ++i) {
        auto view = arrays_[i].acquire(kRead, layer * size_.layer_bytes, size_.layer_bytes);
        if (!view.ok()) {
          return std::move(view).status();
        }
        views[i] = std::move(*view);
        elements[i] = views[i].as<const float>();
      }
      Status right =
          check_adam(layer * size_.elements(), steps_, elements[0], elements[2], elements[3]);
      if (!right.ok()) {
        return right;
      }
    }
    return {};
  }

  std::string text() const {
    const Stats stats = context_->stats();
    const double bytes = static_cast<double>(size_.in()) * static_cast<double>(steps_);
    return fmt::format(
        "gpu_oversubscribe: {} of state, {} on the device; of each step {:.2f} of the state came "
        "in "
        "and {:.2f} went out",
        human_bytes(size_.in()), human_bytes(size_.budget()),
        static_cast<double>(stats.gpu_bytes_in) / bytes,
        static_cast<double>(stats.gpu_bytes_out) / bytes);
  }

 private:
  TieredAdam(GpuDevice& gpu, const AdamKernel& kernel, const Size& size)
      : gpu_(gpu), kernel_(kernel), size_(size) {}

  Status begin() {
    auto context = Context::create(fmt::format("dram={}; gpu=0:{}; gpu_driver={}; nvme=off",
                                               size_.in() + size_.in() / 8 + 96 * kMiB,
                                               size_.budget(), gpu_.library()));
    if (!context.ok()) {
      return std::move(context).status();
    }
    context_ = std::move(*context);
    Status status = gpu_.check(gpu_.driver().cuStreamCreate(&stream_, cuda::kStreamNonBlocking),
                               "cuStreamCreate");
    for (const char* const label : {"parameters", "gradients", "first moments", "second moments"}) {
      if (!status.ok()) {
        return status;
      }
      auto array = context_->alloc(kLayers * size_.layer_bytes, {.label = label});
      if (!array.ok()) {
        return std::move(array).status();
      }
      arrays_.push_back(std::move(*array));
      status = fill(arrays_.size() - 1);
    }
    return status;
  }

  Status fill(std::size_t array) {
    for (std::uint64_t layer = 0; layer < kLayers; ++layer) {
      auto view = arrays_[array].acquire(kDiscard, layer * size_.layer_bytes, size_.layer_bytes);
      if (!view.ok()) {
        return std::move(view).status();
      }
      std::uint64_t element = layer * size_.elements();
      for (float& each : view->as<float>()) {
        each = array == 0            ? first_parameter(element)
               : array == kGradients ? gradient_of(element)
                                     : 0.0F;
        ++element;
      }
    }
    return {};
  }

  std::vector<Access> layer_list(std::uint64_t layer) const {
    std::vector<Access> list;
    for (std::size_t i = 0; i < kArrays; ++i) {
      list.push_back(arrays_[i].range(layer * size_.layer_bytes, size_.layer_bytes,
                                      i == kGradients ? kRead : kWrite));
      list.back().where = kGpu;
    }
    return list;
  }

  Status step_layer(std::uint64_t layer) {
    const std::vector<Access> list = layer_list(layer);
    std::array<ViewRecord, kArrays> views;
    const StreamOrder order = cuda_stream(stream_);
    Status status = context_->acquire(list, Timeout::forever(), views, order);
    if (!status.ok()) {
      return status;
    }
    const auto at = [&](std::size_t i) {
      return reinterpret_cast<cuda::DevicePointer>(views[i].data);
    };
    status = kernel_.launch({at(0), at(1), at(2), at(3), size_.elements()}, stream_);
    Status released = context_->release(views, order);
    return status.ok() ? std::move(released) : std::move(status);
  }

  GpuDevice& gpu_;
  const AdamKernel& kernel_;
  const Size size_;
  std::unique_ptr<Context> context_;
  cuda::Stream stream_ = nullptr;
  std::vector<Buffer> arrays_;
  std::uint64_t steps_ = 0;
};

/// The kernel on the device's own memory: the computation of a step without transfers.
class Compute {
 public:
  static Result<std::unique_ptr<Compute>> create(GpuDevice& gpu, const AdamKernel& kernel,
                                                 const Size& size) {
    std::unique_ptr<Compute> made(new Compute(gpu, kernel, size));
    for (cuda::DevicePointer& array : made->arrays_) {
      Status status =
          gpu.check(gpu.driver().cuMemAlloc(&array, size.layer_bytes), "memory for the peer");
      if (status.ok()) {
        status = gpu.check(gpu.driver().cuMemsetD8Async(array, 0, size.layer_bytes, gpu.in()),
                           "clearing the peer's memory");
      }
      if (!status.ok()) {
        return status;
      }
    }
    return made;
  }
  ~Compute() {
    (void)gpu_.wait(gpu_.in());
    for (const cuda::DevicePointer array : arrays_) {
      if (array != 0) {
        (void)gpu_.driver().cuMemFree(array);
      }
    }
  }
  Compute(const Compute&) = delete;
  Compute& operator=(const Compute&) = delete;

  Result<double> seconds() {
    const double start = now_seconds();
    Status status;
    for (std::uint64_t layer = 0; layer < kLayers && status.ok(); ++layer) {
      status = kernel_.launch({arrays_[0], arrays_[1], arrays_[2], arrays_[3], size_.elements()},
                              gpu_.in());
    }
    if (status.ok()) {
      status = gpu_.wait(gpu_.in());
    }
    if (!status.ok()) {
      return status;
    }
    return now_seconds() - start;
  }

 private:
  Compute(GpuDevice& gpu, const AdamKernel& kernel, const Size& size)
      : gpu_(gpu), kernel_(kernel), size_(size) {}

  GpuDevice& gpu_;
  const AdamKernel& kernel_;
  const Size size_;
  std::array<cuda::DevicePointer, kArrays> arrays_{};
};

Result<Sample> step_of(const Size& size, auto& adam) {
  return timed(size.in() + size.out(), [&] { return adam.step(); });
}

// All arrays together have at least twice the session's bytes. The extents are whole, and at most
// 16 MiB if a layer is larger.
Result<Size> choose_size(const GpuDevice& gpu, const Session& session) {
  auto bytes = gpu.choose_bytes(session, {.of_device = 8, .of_host = 8, .most = 2 * kGiB});
  if (!bytes.ok()) {
    return std::move(bytes).status();
  }
  const std::uint64_t layer = 2 * *bytes / kArrays / kLayers;
  const std::uint64_t whole = layer > 16 * kMiB ? 16 * kMiB : 2 * kMiB;
  return Size{std::max(layer / whole, std::uint64_t{1}) * whole};
}

Status against_the_bound(Session& session, GpuDevice& gpu, const AdamKernel& kernel,
                         const Size& size, TieredAdam& adam) {
  auto link = LinkPeer::create(gpu, std::min(size.budget(), kGiB));
  if (!link.ok()) {
    return std::move(link).status();
  }
  auto compute = Compute::create(gpu, kernel, size);
  if (!compute.ok()) {
    return std::move(compute).status();
  }
  const Peer slower{
      "the slower of transfer and compute",
      fmt::format("the longer of: copies of {} in and {} out at once, page-locked, on two streams; "
                  "{} launches of the kernel on memory of the device's own",
                  human_bytes(size.in()), human_bytes(size.out()), kLayers),
      [&]() -> Result<Sample> {
        auto moved = (*link)->seconds(size.in(), size.out());
        auto computed = (*compute)->seconds();
        if (!moved.ok() || !computed.ok()) {
          return moved.ok() ? std::move(computed).status() : std::move(moved).status();
        }
        return Sample{static_cast<double>(size.in() + size.out()) / std::max(*moved, *computed) /
                      1e9};
      }};
  return session.compare(
      "gpu_oversubscribe", "GB/s", Better::higher, bars::kGpuOversubscribe,
      [&] { return step_of(size, adam); }, slower);
}

Status against_managed(Session& session, GpuDevice& gpu, const AdamKernel& kernel, const Size& size,
                       TieredAdam& adam) {
  session.tell("gpu_oversubscribe: writing managed memory");
  auto managed = ManagedAdam::create(
      gpu, kernel, {.layers = kLayers, .elements = size.elements(), .device_bytes = size.budget()});
  if (managed.code() == Code::unsupported) {
    session.skip("gpu_oversubscribe_managed", managed.message());
    return {};
  }
  if (!managed.ok()) {
    return std::move(managed).status();
  }
  Status status = session.compare(
      "gpu_oversubscribe_managed", "GB/s", Better::higher, bars::kGpuManaged,
      [&] { return step_of(size, adam); },
      {"managed memory",
       fmt::format(
           "the same kernel on cuMemAllocManaged of {}, {} of the device free; preferred "
           "location: the host, accessed by the device; each layer prefetched to the device "
           "a layer ahead, and back after its step",
           human_bytes(size.in()), human_bytes(size.budget())),
       [&] { return step_of(size, **managed); }});
  return status.ok() ? (*managed)->check() : std::move(status);
}

}  // namespace

Status gpu_oversubscribe(Session& session) {
  session.tell("gpu_oversubscribe");
  auto gpu = GpuDevice::open();
  if (!gpu.ok()) {
    return std::move(gpu).status();
  }
  auto kernel = AdamKernel::load(**gpu);
  if (!kernel.ok()) {
    return std::move(kernel).status();
  }
  const auto size = choose_size(**gpu, session);
  if (!size.ok()) {
    return size.status().clone();
  }
  session.tell("gpu_oversubscribe: writing the state");
  auto adam = TieredAdam::create(**gpu, **kernel, *size);
  if (!adam.ok()) {
    return std::move(adam).status();
  }
  Status status = against_the_bound(session, **gpu, **kernel, *size, **adam);
  if (status.ok()) {
    status = against_managed(session, **gpu, **kernel, *size, **adam);
  }
  if (!status.ok()) {
    return status;
  }
  session.note((*adam)->text());
  return (*adam)->check();
}

}  // namespace tiermem::bench
