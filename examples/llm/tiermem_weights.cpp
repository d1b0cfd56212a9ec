// Source "tiermem": the file adopted as one buffer under a DRAM budget. A part is held as a pinned
// view while it is computed with; the parts that follow are prefetched; the file is the cold copy,
// so giving a part up writes nothing.
#include "failure.hpp"
#include "weights.hpp"

namespace llm {
namespace {

// Long enough for the slowest disk; a part that takes longer is an error worth reading.
constexpr tiermem::Timeout kPatience = tiermem::Timeout::seconds(60);

class TiermemWeights final : public Weights {
 public:
  TiermemWeights(const WeightsOptions& options, const Safetensors& file,
                 std::vector<ByteRange> parts)
      : Weights(std::move(parts), options.ahead),
        context_(check(tiermem::Context::create(options.tiers, {.name = "llm"}),
                       "tiers '" + options.tiers + "'")),
        buffer_(check(context_->adopt_file(file.path().c_str(), 0, 0, {.label = "weights"}),
                      "adopting " + file.path())) {}

  // Stats counts a read either as promoted or as prefetched, never as both.
  std::optional<Traffic> traffic() const override {
    const tiermem::Stats stats = context_->stats();
    return Traffic{stats.promoted, stats.prefetched};
  }

 private:
  Lease acquire(ByteRange range) override {
    // One operation a part, one step a round: a repeating step is what a plan can be learned from.
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
