// Objects of 64 bytes by pointer, beside the machine's best allocator. Once each object is freed
// before the next is created, and once a thousand are created before the first is freed.
#include "bench/malloc_at.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/error.hpp"
#include "bench/core.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kBytes = 64;
constexpr std::size_t kObjects = 1'000'000;

/// Nanoseconds per object; negative if one could not be created. `batch` objects at a time are
/// freed in the order of their creation.
template <typename Make, typename End>
double each(std::size_t batch, Make&& make, End&& end) {
  std::array<void*, kMallocBatch> objects{};
  const double start = now_seconds();
  for (std::size_t round = 0; round < kObjects / batch; ++round) {
    for (std::size_t i = 0; i < batch; ++i) {
      objects[i] = make();
      if (objects[i] == nullptr) {
        return -1;
      }
      *static_cast<volatile std::byte*>(objects[i]) = std::byte{1};
    }
    for (std::size_t i = 0; i < batch; ++i) {
      end(objects[i]);
    }
  }
  return (now_seconds() - start) * 1e9 / static_cast<double>(kObjects);
}

Result<Sample> sample(double ns, const std::string& who) {
  if (ns < 0) {
    return fail(Code::no_capacity, "{} has no memory for {} objects of {} bytes", who, kMallocBatch,
                kBytes);
  }
  return Sample{ns};
}

Result<Sample> ours(Context& context, Place place, std::size_t batch) {
  return sample(each(
                    batch,
                    [&]() -> void* {
                      Result<void*> made = context.malloc_at(place, kBytes);
                      return made.ok() ? *made : nullptr;
                    },
                    [&](void* object) { (void)context.free_ptr(object); }),
                "tiermem");
}

Result<Sample> theirs(const Allocator& allocator, std::size_t batch) {
  return sample(each(
                    batch, [&] { return allocator.malloc(kBytes); },
                    [&](void* object) { allocator.free(object); }),
                allocator.name);
}

}  // namespace

Status compare_malloc_at(Session& session, Context& context, Place place, const std::string& name,
                         std::size_t batch, double bar, const std::vector<Allocator>& others) {
  std::vector<Peer> candidates;
  for (const Allocator& other : others) {
    candidates.push_back({other.name,
                          fmt::format("{} malloc({}), a byte written, free; {} at a time",
                                      other.name, kBytes, batch),
                          [&other, batch] { return theirs(other, batch); }});
  }
  auto peer = best_of(session, name, Better::lower, 3, std::move(candidates), "ns");
  if (!peer.ok()) {
    return std::move(peer).status();
  }
  return session.compare(
      name, "ns", Better::lower, bar, [&] { return ours(context, place, batch); }, *peer);
}

Status malloc_at(Session& session) {
  auto context = Context::create("dram=256M; nvme=off");
  if (!context.ok()) {
    return std::move(context).status();
  }
  const std::vector<Allocator> others = allocators(session, "malloc_at");
  for (const std::size_t batch : {std::size_t{1}, kMallocBatch}) {
    const std::string name = batch == 1 ? "malloc_at_64" : fmt::format("malloc_at_64_by_{}", batch);
    Status compared =
        compare_malloc_at(session, **context, {Kind::dram, 0}, name, batch, 0, others);
    if (!compared.ok()) {
      return compared;
    }
  }
  return {};
}

}  // namespace tiermem::bench
