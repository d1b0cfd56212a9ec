// A buffer is allocated, one byte of each page is written, and it is freed, beside the machine's
// best allocator. Once with bytes that need not be zero (discard, malloc), once with zeros (write,
// calloc). Both sides reuse memory, as in a program that has run for a while.
#include <fmt/format.h>

#include <utility>

#include "base/error.hpp"
#include "bench/allocators.hpp"
#include "bench/core.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kPage = 4096;

void touch_pages(std::byte* data, std::uint64_t bytes) {
  for (std::uint64_t at = 0; at < bytes; at += kPage) {
    *static_cast<volatile std::byte*>(data + at) = std::byte{1};
  }
}

/// Takes some milliseconds.
std::uint64_t rounds_of(std::uint64_t bytes) {
  return 4096 * kMiB / bytes;
}

Result<Sample> ours(Context& context, std::uint64_t bytes, std::uint32_t mode) {
  const std::uint64_t rounds = rounds_of(bytes);
  const double start = now_seconds();
  for (std::uint64_t i = 0; i < rounds; ++i) {
    auto buffer = context.alloc(bytes);
    if (!buffer.ok()) {
      return std::move(buffer).status();
    }
    auto view = buffer->acquire(mode);
    if (!view.ok()) {
      return std::move(view).status();
    }
    touch_pages(view->data(), bytes);
  }
  return Sample{(now_seconds() - start) * 1e6 / static_cast<double>(rounds)};
}

Result<Sample> theirs(const Allocator& allocator, std::uint64_t bytes, bool zeroed) {
  const std::uint64_t rounds = rounds_of(bytes);
  const double start = now_seconds();
  for (std::uint64_t i = 0; i < rounds; ++i) {
    void* data = zeroed ? allocator.calloc(1, bytes) : allocator.malloc(bytes);
    if (data == nullptr) {
      return fail(Code::no_capacity, "{} has no memory", allocator.name);
    }
    touch_pages(static_cast<std::byte*>(data), bytes);
    allocator.free(data);
  }
  return Sample{(now_seconds() - start) * 1e6 / static_cast<double>(rounds)};
}

}  // namespace

Status alloc_free(Session& session) {
  auto context = Context::create("dram=256M; nvme=off");
  if (!context.ok()) {
    return std::move(context).status();
  }
  const std::vector<Allocator> others = allocators(session, "alloc_free");
  for (const std::uint64_t bytes : {1 * kMiB, 16 * kMiB}) {
    for (const bool zeroed : {false, true}) {
      const std::string name =
          fmt::format("alloc_free_{}m{}", bytes / kMiB, zeroed ? "_zeroed" : "");
      std::vector<Peer> candidates;
      for (const Allocator& other : others) {
        candidates.push_back({other.name,
                              fmt::format("{} {}({}), a byte written in each page, free",
                                          other.name, zeroed ? "calloc" : "malloc", bytes),
                              [&other, bytes, zeroed] { return theirs(other, bytes, zeroed); }});
      }
      auto peer = best_of(session, name, Better::lower, 3, std::move(candidates), "us");
      if (!peer.ok()) {
        return std::move(peer).status();
      }
      Status compared = session.compare(
          name, "us", Better::lower, bars::kAlloc,
          [&] { return ours(**context, bytes, zeroed ? kWrite : kDiscard); }, *peer);
      if (!compared.ok()) {
        return compared;
      }
    }
  }
  return {};
}

}  // namespace tiermem::bench
