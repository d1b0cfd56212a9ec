// Source "tiermem": the file is adopted as one buffer under a DRAM budget. A pinned view holds a
// part during the computation with it, and the following parts are prefetched. The file is the cold
// copy, so evicting a part writes nothing.
#include <algorithm>

#include "failure.hpp"
#include "weights.hpp"

namespace llm {
namespace {

using tiermem::Advice;

// Long enough for the slowest disk; a part that takes longer is an error.
constexpr tiermem::Timeout kPatience = tiermem::Timeout::seconds(60);

// Extents beside the part in use and those ahead: the row of the embedding, and frames in transit
// from one use to the next.
constexpr std::uint64_t kSlack = 3;

class TiermemWeights final : public Weights {
 public:
  TiermemWeights(const WeightsOptions& options, const Safetensors& file,
                 std::vector<ByteRange> parts)
      : Weights(std::move(parts), options.ahead),
        context_(check(tiermem::Context::create(options.tiers, {.name = "llm"}),
                       "tiers '" + options.tiers + "'")),
        buffer_(check(context_->adopt_file(file.path().c_str(), 0, 0,
                                           {.extent_bytes = options.extent, .label = "weights"}),
                      "adopting " + file.path())) {
    keep_some(options);
  }

  // Stats counts a read either as promoted or as prefetched, never as both.
  std::optional<Traffic> traffic() const override {
    const tiermem::Stats stats = context_->stats();
    return Traffic{stats.promoted, stats.prefetched};
  }

 private:
  Lease acquire(ByteRange range) override {
    // One operation per part, one step per round: a plan can be learned from a repeating step.
    if (held_++ % parts() == 0) {
      context_->tick(tiermem::Tick::step);
    }
    context_->tick(tiermem::Tick::op);
    tiermem::View view =
        check(buffer_.acquire(tiermem::kRead, range.offset, range.length, kPatience), "a part");
    const std::byte* data = view.data();
    return {data, std::move(view)};
  }

  void copy(ByteRange range, void* to) override {
    check(context_->read(buffer_.handle(), range.offset, to, range.length, kPatience), "a row");
  }

  void prefetch(ByteRange range) override {
    check(buffer_.prefetch(range.offset, range.length), "a prefetch");
  }

  // Every token uses all bytes in the same order, so the bytes used last are needed last: an order
  // by recency keeps nothing. A fixed share that stays is the best possible (Belady's MIN keeps as
  // much). It is spread over the order, so that the device never waits for a long run of parts that
  // need no reading.
  void keep_some(const WeightsOptions& options) {
    const std::uint64_t unit = check(buffer_.info(), "the buffer").extent_bytes;
    const std::uint64_t all = (buffer_.size() + unit - 1) / unit;
    std::vector<std::uint64_t> order;  // Extents, as the parts use them.
    // Number of parts that use it: two parts share the extent at their border.
    std::vector<unsigned> uses(all, 0);
    std::uint64_t largest = 0;
    for (std::size_t i = 0; i < parts(); ++i) {
      const ByteRange range = part(i);
      const std::uint64_t first = range.offset / unit, last = (range.end() - 1) / unit;
      largest = std::max(largest, last - first + 1);
      for (std::uint64_t extent = first; extent <= last; ++extent) {
        if (uses[extent]++ == 0) {
          order.push_back(extent);
        }
      }
    }
    const std::uint64_t budget = context_->stats().dram_budget / unit;
    const std::uint64_t moving = largest + options.ahead / unit + kSlack;
    const std::uint64_t kept = std::min<std::uint64_t>(
        order.size(), options.keep ? *options.keep / unit : budget - std::min(budget, moving));
    std::vector<Advice> advice(all, Advice::streamed);
    for (std::uint64_t i = 0; i < kept; ++i) {
      const std::uint64_t at = i * order.size() / kept;
      const std::uint64_t next = std::min<std::uint64_t>(at + 1, order.size() - 1);
      const bool better = uses[order[next]] > uses[order[at]] && kept < order.size() / 2;
      advice[order[better ? next : at]] = Advice::keep;
    }
    for (std::uint64_t i = 0; i < all; ++i) {
      const tiermem::Access extent =
          buffer_.range(i * unit, std::min(unit, buffer_.size() - i * unit));
      check(context_->advise({&extent, 1}, advice[i], 1), "advice");
    }
  }

  template <typename T>
  static T check(tiermem::Result<T> result, const std::string& what) {
    check(result.ok() ? tiermem::Status() : result.status().clone(), what);
    return std::move(result).value();
  }
  static void check(const tiermem::Status& status, const std::string& what) {
    if (!status.ok()) {
      throw Failure(Exit::memory, "tiermem, " + what + ": " + status.message());
    }
  }

  // In this order: the buffer ends before its context.
  std::unique_ptr<tiermem::Context> context_;
  tiermem::Buffer buffer_;
  std::size_t held_ = 0;
};

}  // namespace

std::unique_ptr<Weights> open_tiermem_weights(const WeightsOptions& options,
                                              const Safetensors& file,
                                              std::vector<ByteRange> parts) {
  return std::make_unique<TiermemWeights>(options, file, std::move(parts));
}

}  // namespace llm
