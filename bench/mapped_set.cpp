// Creates and fills the buffer of the mapped suite.
#include "bench/mapped_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "bench/random_bytes.hpp"

namespace tiermem::bench {
namespace {
// Room in the block tier for the smallest buffers.
constexpr std::uint64_t kLeastBlock = std::uint64_t{64} << 20;

template <typename Make>
Result<MappedSet> set_of(const std::string& tiers, Make&& make) {
  auto context = Context::create(tiers);
  if (!context.ok()) {
    return std::move(context).status();
  }
  auto buffer = make(**context);
  if (!buffer.ok()) {
    return std::move(buffer).status();
  }
  MappedSet set;
  set.context = std::move(*context);
  set.buffer = std::move(*buffer);
  set.data = *set.buffer.address();
  return set;
}

}  // namespace

Result<MappedSet> MappedSet::reserve(const std::string& directory, std::uint64_t dram,
                                     std::uint64_t bytes, std::uint64_t extent,
                                     std::uint64_t compressed, const std::string& options) {
  return set_of(fmt::format("dram={}; compressed={}; nvme={}:{}{}", dram, compressed, directory,
                            std::max(2 * bytes, kLeastBlock), options),
                [&](Context& context) {
                  return context.alloc(
                      bytes, {.extent_bytes = extent, .flags = kMapped, .label = "bench"});
                });
}

Result<MappedSet> MappedSet::create(const std::string& directory, std::uint64_t dram,
                                    std::uint64_t bytes, std::uint64_t extent) {
  auto set = reserve(directory, dram, bytes, extent);
  if (!set.ok()) {
    return set;
  }
  constexpr std::uint64_t kPart = std::uint64_t{64} << 20;
  for (std::uint64_t at = 0; at < bytes; at += kPart) {
    fill_random(set->data + at, std::min(kPart, bytes - at), at + 1);
  }
  return set;
}

Result<MappedSet> MappedSet::adopt(const std::string& path, std::uint64_t dram,
                                   std::uint64_t extent) {
  return set_of(fmt::format("dram={}; nvme=off", dram), [&](Context& context) {
    return context.adopt_file(path.c_str(), 0, 0,
                              {.extent_bytes = extent, .flags = kMapped, .label = "bench"});
  });
}

Status MappedSet::check(std::uint64_t sum) const {
  return sum != 0 && context->stats().poisoned_touches == 0
             ? Status()
             : fail(Code::io_error, "bytes were read that are not those written");
}

}  // namespace tiermem::bench
