// An idle context: its processor time with 100,000 live buffers, some of them on disk.
#include <fmt/format.h>
#include <time.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "bench/core.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kBuffers = 100000;
constexpr std::uint64_t kBytes = 4096;
constexpr unsigned kTouchEvery = 10;
constexpr double kSeconds = 2;

/// Sleeps for the whole time, whatever signals arrive.
void sleep_seconds(double seconds) {
  timespec left{static_cast<time_t>(seconds), 0};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

}  // namespace

Status idle(Session& session) {
  session.tell("idle");
  auto context =
      Context::create(fmt::format("dram=64M; nvme={}:256M", session.settings().directory));
  if (!context.ok()) {
    return std::move(context).status();
  }
  std::vector<Buffer> buffers;
  for (std::uint64_t i = 0; i < kBuffers; ++i) {
    auto buffer = (*context)->alloc(kBytes);
    if (!buffer.ok()) {
      return std::move(buffer).status();
    }
    if (i % kTouchEvery == 0) {
      Status written = buffer->write(0, &i, sizeof(i));
      if (!written.ok()) {
        return written;
      }
    }
    buffers.push_back(std::move(*buffer));
  }
  sleep_seconds(1);  // Lets earlier work end.
  std::vector<double> samples;
  for (int i = 0; i < 3; ++i) {
    const double cpu = cpu_seconds();
    const double start = now_seconds();
    sleep_seconds(kSeconds);
    samples.push_back((cpu_seconds() - cpu) / (now_seconds() - start));
  }
  Row row;
  row.name = "idle";
  row.unit = "CPU s/s";
  row.value = median(samples);
  row.value_bar = bars::kIdle;
  session.add(std::move(row));
  return {};
}

}  // namespace tiermem::bench
