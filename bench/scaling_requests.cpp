// 0 to 10,000 requests wait for memory: the cost of freeing a buffer that none of them is for.
#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "bench/scaling.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kDram = 128 * kMiB;
constexpr std::uint64_t kPinned = 64 * kMiB;
constexpr std::uint64_t kWanted = kDram - kPinned + 2 * kMiB;  // More than is left.
constexpr std::uint64_t kBytes = 64 << 10;
constexpr unsigned kFreed = 500;  // Buffers per sample.

/// Half of the context's memory is pinned. The first request wants more than the other half, and
/// waits until a pin is released. The other requests wait behind it.
struct Waiting {
  std::unique_ptr<Context> context;
  Buffer pinned, wanted;
  ViewRecord pin;
  std::vector<ViewRecord> views;
  std::vector<Op> ops;

  static Result<std::unique_ptr<Waiting>> create(std::uint64_t requests) {
    auto all = std::make_unique<Waiting>();
    auto context = Context::create(fmt::format("dram={}; nvme=off", kDram));
    if (!context.ok()) {
      return std::move(context).status();
    }
    all->context = std::move(*context);
    auto pinned = all->context->alloc(kPinned);
    auto wanted = all->context->alloc(kWanted);
    if (!pinned.ok() || !wanted.ok()) {
      return pinned.ok() ? std::move(wanted).status() : std::move(pinned).status();
    }
    all->pinned = std::move(*pinned);
    all->wanted = std::move(*wanted);
    const Access pin = all->pinned.range(0, kPinned, kWrite);
    Status status = all->context->acquire({&pin, 1}, Timeout::forever(), {&all->pin, 1});
    if (!status.ok()) {
      return status;
    }
    all->views.resize(requests);
    for (std::uint64_t i = 0; i < requests; ++i) {
      const Access access = all->wanted.range(0, i == 0 ? kWanted : 1, kWrite);
      auto op = all->context->acquire_async({&access, 1}, {&all->views[i], 1});
      if (!op.ok()) {
        return std::move(op).status();
      }
      all->ops.push_back(std::move(*op));
    }
    return all;
  }
  ~Waiting() {
    for (Op& op : ops) {
      (void)op.cancel();
    }
    for (Op& op : ops) {
      (void)op.wait(Timeout::forever());
    }
    if (pin.data != nullptr) {
      (void)context->release({&pin, 1});
    }
  }
};

/// Nanoseconds per free of a buffer that cannot become a spare, so that the mover frees it.
Result<double> cost_of_free(Context& context) {
  std::vector<Handle> buffers(kFreed);
  for (Handle& buffer : buffers) {
    auto made = context.alloc(kBytes, {.flags = kIsolated});
    if (!made.ok()) {
      return std::move(made).status();
    }
    buffer = made->detach();
  }
  const double start = now_seconds();
  for (const Handle buffer : buffers) {
    (void)context.free(buffer);
  }
  (void)context.stats();  // After this, all frees have ended.
  return (now_seconds() - start) * 1e9 / kFreed;
}

}  // namespace

Status scaling_requests(Session& session) {
  for (const std::uint64_t requests : {0ULL, 100ULL, 1'000ULL, 10'000ULL}) {
    auto waiting = Waiting::create(requests);
    if (!waiting.ok()) {
      return std::move(waiting).status();
    }
    Status status = add_points(session, "requests", static_cast<double>(requests),
                               fmt::format("{} requests", requests),
                               {{"free beside requests that wait", "ns",
                                 [&] { return cost_of_free(*(*waiting)->context); }}});
    if (!status.ok()) {
      return status;
    }
    for (Op& op : (*waiting)->ops) {
      if (op.poll().code() != Code::busy) {
        return fail(Code::internal, "a request did not wait");
      }
    }
  }
  return {};
}

}  // namespace tiermem::bench
