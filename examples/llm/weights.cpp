// The common part of all sources: the clock around waits, and prefetching.
#include "weights.hpp"

#include <chrono>

#include "failure.hpp"

namespace llm {
namespace {

class Waiting {
 public:
  explicit Waiting(double& seconds) : seconds_(seconds) {}
  ~Waiting() {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

Lease Weights::take(std::size_t part) {
  const Waiting waiting(waiting_seconds_);
  if (asked_ > 0) {  // This part was requested earlier.
    asked_ -= 1;
    asked_bytes_ -= parts_[part].length;
  }
  prefetch_after(part);
  return acquire(parts_[part]);
}

// The order is a ring: the next token's first part follows the last part.
void Weights::prefetch_after(std::size_t part) {
  while (asked_ + 1 < parts_.size()) {
    const ByteRange next = parts_[(part + 1 + asked_) % parts_.size()];
    if (asked_bytes_ + next.length > ahead_) {
      return;
    }
    prefetch(next);
    asked_ += 1;
    asked_bytes_ += next.length;
  }
}

void Weights::read(ByteRange range, void* to) {
  const Waiting waiting(waiting_seconds_);
  copy(range, to);
}

std::unique_ptr<Weights> open_weights(const WeightsOptions& options, const Safetensors& file,
                                      std::vector<ByteRange> parts) {
  if (options.source == "memory") {
    return open_memory_weights(file, std::move(parts));
  }
  if (options.source == "mmap") {
    return open_mmap_weights(options, file, std::move(parts));
  }
  if (options.source == "tiermem") {
    return open_tiermem_weights(options, file, std::move(parts));
  }
  throw Failure(Exit::usage, "weights '" + options.source + "'; accepted: memory, mmap, tiermem");
}

}  // namespace llm
