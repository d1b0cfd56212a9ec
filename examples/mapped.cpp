// An array larger than DRAM as plain memory: filled out of order, sorted by the standard library,
// and checked. Only its allocation uses tiermem.
//
//   c++ -std=c++20 mapped.cpp -ltiermem -o mapped
//   TIERMEM_TIERS="dram=64M; nvme=/data/scratch:1G" ./mapped
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <span>

#include <tiermem/tiermem.hpp>

int main() {
  constexpr std::uint64_t kNumbers = std::uint64_t{16} << 20;  // 128 MiB.
  auto context = tiermem::Context::create();
  if (!context.ok()) {
    std::puts(context.message());
    return 1;
  }
  auto buffer = (*context)->alloc(kNumbers * sizeof(std::uint64_t),
                                  {.flags = tiermem::kMapped, .label = "numbers"});
  if (buffer.code() == tiermem::Code::unsupported) {
    std::puts(buffer.message());  // An old kernel, or userfaultfd is refused.
    return 77;
  }
  if (!buffer.ok()) {
    std::puts(buffer.message());
    return 1;
  }
  const std::span<std::uint64_t> numbers(reinterpret_cast<std::uint64_t*>(*buffer->address()),
                                         kNumbers);

  for (std::uint64_t i = 0; i < kNumbers; ++i) {
    numbers[i] = i * 0x9E3779B97F4A7C15 % kNumbers;  // An odd factor: each number once.
  }
  std::sort(numbers.begin(), numbers.end());
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < kNumbers; ++i) {
    wrong += numbers[i] != i ? 1 : 0;
  }

  const tiermem::Stats stats = (*context)->stats();
  std::printf("%llu numbers sorted, %llu wrong; %llu MiB of DRAM for %llu MiB, %llu page faults\n",
              static_cast<unsigned long long>(kNumbers), static_cast<unsigned long long>(wrong),
              static_cast<unsigned long long>(stats.dram_budget >> 20),
              static_cast<unsigned long long>(buffer->size() >> 20),
              static_cast<unsigned long long>(stats.faults));
  return wrong == 0 ? 0 : 1;
}
