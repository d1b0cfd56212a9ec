// The host's memories: copies between frames, migration between nodes, writes to persistent memory,
// and small objects in each.
#include "bench/tiers.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "bench/malloc_at.hpp"
#include "bench/random_bytes.hpp"
#include "os/host_memory.hpp"
#include "os/large_copy.hpp"
#include "os/node_pages.hpp"
#include "os/topology.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kFrame = 2 * kMiB;

using Copy = void (*)(std::byte* to, const std::byte* from, std::uint64_t bytes);

void copy_by_libc(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  std::memcpy(to, from, bytes);
}
void copy_ours(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  host::copy_large(to, from, bytes);
}

/// Frames of huge pages, if the machine has some, that hold random bytes.
struct Frames {
  explicit Frames(std::uint64_t bytes) : size(bytes) {
    data = static_cast<std::byte*>(std::aligned_alloc(kFrame, bytes));
    if (data != nullptr) {
      (void)::madvise(data, bytes, MADV_HUGEPAGE);  // Small pages serve, too.
      fill_random(data, bytes, 1);
    }
  }
  ~Frames() { std::free(data); }
  Frames(const Frames&) = delete;
  Frames& operator=(const Frames&) = delete;

  std::byte* data = nullptr;
  const std::uint64_t size;
};

/// Copies all frames, by `threads` threads that take them in turn.
Result<Sample> copy_frames(const Frames& from, std::byte* to, unsigned threads, Copy copy) {
  const double cpu = cpu_seconds();
  const double start = now_seconds();
  std::vector<std::thread> running;
  for (unsigned t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      for (std::uint64_t at = t * kFrame; at < from.size; at += threads * kFrame) {
        copy(to + at, from.data + at, kFrame);
      }
    });
  }
  for (std::thread& thread : running) {
    thread.join();
  }
  const double seconds = now_seconds() - start;
  return Sample{static_cast<double>(from.size) / seconds / 1e9,
                (cpu_seconds() - cpu) / static_cast<double>(from.size) * (1 << 30)};
}

Status check_copy(const Frames& from, const std::byte* to) {
  return std::memcmp(from.data, to, from.size) == 0
             ? Status()
             : fail(Code::internal, "a copy has other bytes than its source");
}

/// Returns two nodes with memory that this process may use; one, if the machine has no more.
std::vector<unsigned> nodes_with_memory() {
  std::vector<unsigned> nodes;
  for (const MemoryNode& node : read_topology().nodes) {
    if (node.online != false && node.allowed != false && node.bytes.value_or(0) >= 256 * kMiB &&
        nodes.size() < 2) {
      nodes.push_back(node.id);
    }
  }
  return nodes;
}

/// Persistent memory that the user names, or tmpfs as a stand-in.
std::string pmem_directory() {
  const char* const named = std::getenv("TIERMEM_TEST_PMEM");
  return named != nullptr ? named : "/dev/shm";
}

}  // namespace

std::span<const Benchmark> tiers_benchmarks() {
  static constexpr std::array kBenchmarks = {
      Benchmark{"dram_copy_2m", "frames of 2 MiB from memory to memory", dram_copy},
      Benchmark{"numa_migrate_mapped", "a mapped buffer from node to node", numa_migrate_mapped},
      Benchmark{"pmem_write", "blocks of 2 MiB into persistent memory, or a stand-in", pmem_write},
      Benchmark{"malloc_at", "objects of 64 bytes on a node, and in persistent memory",
                malloc_at_memories},
  };
  return kBenchmarks;
}

Status dram_copy(Session& session) {
  const Frames from(256 * kMiB), to(256 * kMiB);
  if (from.data == nullptr || to.data == nullptr) {
    return fail(Code::no_capacity, "dram_copy_2m: no memory for two times 256 MiB; free some");
  }
  for (const unsigned threads : {1u, 2u}) {
    const std::string name =
        fmt::format("dram_copy_2m_{}_thread{}", threads, threads == 1 ? "" : "s");
    if (threads > std::thread::hardware_concurrency()) {
      session.skip(name, "the machine has one processor");
      continue;
    }
    Status compared = session.compare(
        name, "GB/s", Better::higher, threads == 1 ? bars::kCopyOneThread : bars::kCopyTwoThreads,
        [&] { return copy_frames(from, to.data, threads, copy_ours); },
        {"memcpy", fmt::format("memcpy of 2 MiB, {} MiB in all", from.size / kMiB),
         [&] { return copy_frames(from, to.data, threads, copy_by_libc); }});
    if (compared.ok()) {
      compared = check_copy(from, to.data);
    }
    if (!compared.ok()) {
      return compared;
    }
  }
  return {};
}

// All bytes of a mapped buffer go to the other node and back, by a hint. The peer is the kernel's
// call for the same pages.
Status numa_migrate_mapped(Session& session) {
  constexpr const char* kName = "numa_migrate_mapped";
  constexpr std::uint64_t kBytes = 64 * kMiB;
  const std::vector<unsigned> nodes = nodes_with_memory();
  if (nodes.size() < 2) {
    session.skip(kName, "the machine has memory on one node only");
    return {};
  }
  const Place far{Kind::numa, static_cast<std::uint16_t>(nodes[1])};
  auto context = Context::create(
      fmt::format("dram={}; numa={}:{}; nvme=off", 2 * kBytes, nodes[1], 2 * kBytes));
  if (!context.ok()) {
    return std::move(context).status();
  }
  auto buffer = (*context)->alloc(kBytes, {.flags = kMapped, .label = "bench"});
  if (!buffer.ok()) {
    return std::move(buffer).status();
  }
  auto address = buffer->address();
  if (!address.ok()) {
    return std::move(address).status();
  }
  fill_random(*address, kBytes, 1);
  const auto came_to = [&](Place place) {
    const Stats stats = (*context)->stats();
    const TierStats* const tier = stats.tier(place);
    return tier != nullptr ? tier->bytes_in : 0;
  };
  const auto goes_to = [&](Place place) -> Status {
    const std::uint64_t before = came_to(place);
    Status hinted = buffer->prefer(place);
    for (const double end = now_seconds() + 60; hinted.ok() && came_to(place) < before + kBytes;) {
      if (now_seconds() > end) {
        return fail(Code::timed_out, "{}: the buffer did not come to {} in 60 s", kName,
                    place_name(place));
      }
    }
    return hinted;
  };
  const auto both_ways = [&]() -> Result<Sample> {
    const double start = now_seconds();
    for (const Place place : {far, Place{Kind::dram, 0}}) {
      if (Status went = goes_to(place); !went.ok()) {
        return went;
      }
    }
    return Sample{2 * static_cast<double>(kBytes) / (now_seconds() - start) / 1e9};
  };
  Frames plain(kBytes);
  if (plain.data == nullptr) {
    return fail(Code::no_capacity, "{}: no memory for {} MiB; free some", kName, kBytes / kMiB);
  }
  std::vector<void*> pages;
  for (std::uint64_t at = 0; at < kBytes; at += host::kPage) {
    pages.push_back(plain.data + at);
  }
  const auto by_kernel = [&]() -> Result<Sample> {
    const double start = now_seconds();
    for (const unsigned node : {nodes[1], nodes[0]}) {
      const std::vector<int> to(pages.size(), static_cast<int>(node));
      std::vector<int> status(pages.size());
      const long result =
          host::kNodeCalls.move_pages(pages.size(), pages.data(), to.data(), status.data());
      if (result != 0) {
        return fail_native(Code::io_error, static_cast<int>(result < 0 ? -result : 0),
                           "move_pages to node {}: {} pages stayed", node, result);
      }
    }
    return Sample{2 * static_cast<double>(kBytes) / (now_seconds() - start) / 1e9};
  };
  Status compared =
      session.compare(kName, "GB/s", Better::higher, bars::kMigrate, both_ways,
                      {"move_pages", "move_pages of the same bytes, there and back", by_kernel});
  if (!compared.ok()) {
    return compared;
  }
  return std::memcmp(*address, plain.data, kBytes) == 0
             ? Status()
             : fail(Code::internal, "{}: the buffer has other bytes than before", kName);
}

Status pmem_write(Session& session) {
  constexpr const char* kName = "pmem_write";
  constexpr std::uint64_t kBytes = 256 * kMiB;
  void* const library = dlopen("libpmem.so.1", RTLD_NOW | RTLD_LOCAL);
  using Persist = void* (*)(void*, const void*, std::size_t);
  const auto persist = library != nullptr
                           ? reinterpret_cast<Persist>(dlsym(library, "pmem_memcpy_persist"))
                           : nullptr;
  if (persist == nullptr) {
    session.skip(kName, "libpmem is not installed");
    return {};
  }
  const std::string directory = pmem_directory();
  const int file = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(kBytes)) != 0) {
    session.skip(kName, fmt::format("{}: {}", directory, std::strerror(errno)));
    return {};
  }
  void* const mapped = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  (void)::close(file);  // The mapping keeps it.
  if (mapped == MAP_FAILED) {
    return fail_native(Code::no_capacity, errno, "{}: mmap of {} MiB", kName, kBytes / kMiB);
  }
  auto* const to = static_cast<std::byte*>(mapped);
  const Frames from(kBytes);
  Status compared =
      from.data != nullptr
          ? Status()
          : fail(Code::no_capacity, "{}: no memory for {} MiB; free some", kName, kBytes / kMiB);
  if (compared.ok()) {
    const auto by_libpmem = [&]() -> Result<Sample> {
      const double start = now_seconds();
      for (std::uint64_t at = 0; at < kBytes; at += kFrame) {
        (void)persist(to + at, from.data + at, kFrame);
      }
      return Sample{static_cast<double>(kBytes) / (now_seconds() - start) / 1e9};
    };
    compared = session.compare(
        kName, "GB/s", Better::higher, bars::kPmemWrite,
        [&] { return copy_frames(from, to, 1, copy_ours); },
        {"libpmem", fmt::format("pmem_memcpy_persist of 2 MiB into a file in {}", directory),
         by_libpmem});
  }
  if (compared.ok()) {
    compared = check_copy(from, to);
  }
  (void)::munmap(mapped, kBytes);
  return compared;
}

Status malloc_at_memories(Session& session) {
  const std::vector<unsigned> nodes = nodes_with_memory();
  if (nodes.empty()) {
    session.skip("malloc_at_64_numa", "sysfs shows no node with memory");
  } else if (const Allocator peer = memkind_of_nodes(session, "malloc_at_64_numa");
             !peer.name.empty()) {
    const unsigned node = nodes.back();
    auto context = Context::create(fmt::format("dram=64M; numa={}:64M; nvme=off", node));
    Status status =
        context.ok()
            ? compare_malloc_at(session, **context, {Kind::numa, static_cast<std::uint16_t>(node)},
                                "malloc_at_64_numa", 1, bars::kMallocAtMemory, {peer})
            : std::move(context).status();
    if (!status.ok()) {
      return status;
    }
  }
  const std::string directory = pmem_directory();
  const Allocator peer =
      memkind_of_directory(session, "malloc_at_64_pmem", directory, std::size_t{64} << 20);
  if (peer.name.empty()) {
    return {};
  }
  auto context = Context::create(fmt::format("dram=64M; pmem={}:64M; nvme=off", directory));
  if (!context.ok()) {
    return std::move(context).status();
  }
  return compare_malloc_at(session, **context, {Kind::pmem, 0}, "malloc_at_64_pmem", 1,
                           bars::kMallocAtMemory, {peer});
}

}  // namespace tiermem::bench
