// A buffer larger than DRAM, used in order: written and then summed, 8 MiB at a time, while the
// next bytes are in flight.
//
//   c++ -std=c++20 stream.cpp -ltiermem -o stream
//   TIERMEM_TIERS="dram=64M; nvme=/data/scratch:1G" ./stream
#include <cstdint>
#include <cstdio>

#include <tiermem/tiermem.hpp>

int main() {
  constexpr std::uint64_t kBytes = 256 << 20, kChunk = 8 << 20;
  auto context = tiermem::Context::create();
  if (!context.ok()) {
    std::puts(context.message());
    return 1;
  }
  auto buffer = (*context)->alloc(kBytes, {.label = "numbers"});
  if (!buffer.ok()) {
    std::puts(buffer.message());
    return 1;
  }

  std::uint64_t number = 0, sum = 0;
  // Discard: no bytes are read to be overwritten.
  auto written = buffer->stream(0, 0, kChunk, tiermem::kDiscard);
  for (tiermem::View& view : written) {
    for (std::uint64_t& word : view.as<std::uint64_t>()) {
      word = number++;
    }
  }
  auto read = buffer->stream(0, 0, kChunk);
  for (tiermem::View& view : read) {
    for (const std::uint64_t word : view.as<std::uint64_t>()) {
      sum += word;
    }
  }
  if (!written.status().ok() || !read.status().ok()) {
    std::puts(!written.status().ok() ? written.status().message() : read.status().message());
    return 1;
  }

  const tiermem::Stats stats = (*context)->stats();
  std::printf("%llu numbers, sum %llu; %llu MiB of DRAM for %llu MiB\n",
              static_cast<unsigned long long>(number), static_cast<unsigned long long>(sum),
              static_cast<unsigned long long>(stats.dram_budget >> 20),
              static_cast<unsigned long long>(kBytes >> 20));
  return sum == number * (number - 1) / 2 ? 0 : 1;
}
