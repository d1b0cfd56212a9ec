// A table of embeddings larger than DRAM: 2 million rows of 256 bytes. Each request needs a few
// hundred rows. tiermem reads only their blocks, and no row pushes another out of memory.
//
//   c++ -std=c++20 embedding.cpp -ltiermem -o embedding
//   TIERMEM_TIERS="dram=64M; nvme=/data/scratch:1G" ./embedding
#include <array>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <tiermem/tiermem.hpp>

int main() {
  using Row = std::array<float, 64>;
  constexpr std::uint64_t kRows = 2 << 20, kAtOnce = 4096, kRequests = 100, kWanted = 300;
  auto context = tiermem::Context::create();
  if (!context.ok()) {
    std::puts(context.message());
    return 1;
  }
  // `random`: a checksum for each 4 KiB, so that reading a row costs at most one such block.
  auto table = (*context)->alloc(kRows * sizeof(Row),
                                 {.advice = tiermem::Advice::random, .label = "embeddings"});
  tiermem::Status status = table.status().clone();

  std::vector<Row> rows(kAtOnce);
  std::vector<std::uint64_t> index(kAtOnce);
  for (std::uint64_t first = 0; first < kRows && status.ok(); first += kAtOnce) {
    for (std::uint64_t i = 0; i < kAtOnce; ++i) {
      index[i] = first + i;
      rows[i].fill(static_cast<float>(first + i));
    }
    status = table->scatter(sizeof(Row), index, rows.data());
  }

  float wrong = 0;
  index.resize(kWanted);
  for (std::uint64_t request = 0; request < kRequests && status.ok(); ++request) {
    for (std::uint64_t i = 0; i < kWanted; ++i) {
      index[i] = (request * kWanted + i) * 2654435761 % kRows;
    }
    status = table->gather(sizeof(Row), index, rows.data());
    for (std::uint64_t i = 0; i < kWanted; ++i) {
      wrong += rows[i][63] - static_cast<float>(index[i]);
    }
  }
  if (!status.ok()) {
    std::puts(status.message());
    return 1;
  }
  const tiermem::Stats stats = (*context)->stats();
  std::printf("%llu rows, %llu reads of %llu KiB in all, sum of differences %g\n",
              static_cast<unsigned long long>(kRequests * kWanted),
              static_cast<unsigned long long>(stats.gather_reads),
              static_cast<unsigned long long>(stats.gather_bytes >> 10), wrong);
  return wrong == 0 ? 0 : 1;
}
