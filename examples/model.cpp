// A file four times as large as DRAM, mapped: the program reads it at an address, without views,
// and then changes a private copy of it. The file stays as it is.
//
//   c++ -std=c++20 model.cpp -ltiermem -o model
//   TIERMEM_TIERS="dram=32M; nvme=/data/scratch:1G" ./model [FILE]
//
// Without FILE the program writes one of 128 MiB to the current folder.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <tiermem/tiermem.hpp>

namespace {

using tiermem::Buffer;

constexpr std::uint64_t kBytes = std::uint64_t{128} << 20;

bool write_model(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "wb"),
                                                             &std::fclose);
  std::vector<std::uint64_t> piece(std::size_t{1} << 17);
  std::uint64_t next = 0;
  for (std::uint64_t done = 0; file != nullptr && done < kBytes; done += piece.size() * 8) {
    for (std::uint64_t& number : piece) {
      number = next++;
    }
    if (std::fwrite(piece.data(), 8, piece.size(), file.get()) != piece.size()) {
      return false;
    }
  }
  return file != nullptr;
}

std::span<std::uint64_t> numbers_of(Buffer& buffer) {
  return {reinterpret_cast<std::uint64_t*>(*buffer.address()), buffer.size() / 8};
}

std::uint64_t sum_of(std::span<const std::uint64_t> numbers) {
  std::uint64_t sum = 0;
  for (const std::uint64_t number : numbers) {
    sum += number;
  }
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "example_model.bin";
  if (argc == 1 && !write_model(path)) {
    std::perror(path.c_str());
    return 1;
  }
  auto context = tiermem::Context::create();
  if (!context.ok()) {
    std::puts(context.message());
    return 1;
  }
  auto model = (*context)->adopt_file(path.c_str(), 0, 0, {.flags = tiermem::kMapped});
  auto copy =
      (*context)->adopt_file(path.c_str(), 0, 0, {.flags = tiermem::kMapped | tiermem::kPrivate});
  if (argc == 1) {
    std::remove(path.c_str());  // The buffers keep it open.
  }
  if (!model.ok() || !copy.ok()) {
    std::puts(model.ok() ? copy.message() : model.message());
    return model.code() == tiermem::Code::unsupported ? 77 : 1;
  }
  const std::uint64_t sum = sum_of(numbers_of(*model));
  const std::span<std::uint64_t> numbers = numbers_of(*copy);
  for (std::uint64_t i = 0; i < numbers.size(); i += numbers.size() / 8) {
    numbers[i] += 1;
  }
  const std::uint64_t changed = sum_of(numbers);
  const bool good = changed == sum + 8 && sum_of(numbers_of(*model)) == sum;
  const tiermem::Stats stats = (*context)->stats();
  std::printf("%llu MiB read with %llu MiB of DRAM; 8 numbers changed, %llu MiB written: %s\n",
              static_cast<unsigned long long>(model->size() >> 20),
              static_cast<unsigned long long>(stats.dram_budget >> 20),
              static_cast<unsigned long long>(stats.demoted >> 20), good ? "right" : "wrong");
  return good ? 0 : 1;
}
