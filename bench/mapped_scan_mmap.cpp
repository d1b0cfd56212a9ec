// A buffer of twice DRAM, scanned again and again by one thread, beside a file of the same size
// under mmap in a memory cgroup of the same limit, with the best of its advice. Once reading, once
// writing a word of each page.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "bench/limited_child.hpp"
#include "bench/mapped.hpp"
#include "bench/mapped_set.hpp"
#include "bench/random_bytes.hpp"
#include "bench/working_set.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kTimesDram = 2;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
// The peer's program needs a little itself.
constexpr std::uint64_t kSlack = 16 * kMiB;

std::uint64_t pass(std::byte* data, std::uint64_t bytes, bool writes) {
  std::uint64_t sum = 0;
  for (std::uint64_t at = 0; at < bytes; at += writes ? 4096 : 64) {
    auto* const word = reinterpret_cast<std::uint64_t*>(data + at);
    sum += writes ? ++*word : *word;
  }
  return sum;
}

/// The second of two passes; 0 when it cannot be.
double mmap_passes(const char* path, std::uint64_t bytes, bool writes, int advice) {
  const int fd = ::open(path, O_RDWR | O_CLOEXEC);
  void* const area =
      fd < 0 ? MAP_FAILED : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (area == MAP_FAILED) {
    return 0;
  }
  (void)::madvise(area, bytes, advice);
  std::uint64_t sum = pass(static_cast<std::byte*>(area), bytes, writes);
  const double start = now_seconds();
  sum += pass(static_cast<std::byte*>(area), bytes, writes);
  const double took = now_seconds() - start;
  return sum != 0 ? static_cast<double>(bytes) / took / 1e9 : 0;
}

class File {
 public:
  File(const std::string& directory, std::uint64_t bytes)
      : path_(fmt::format("{}/tiermem-bench-mmap-{}", directory, ::getpid())) {
    const int fd = ::open(path_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    auto* const block = static_cast<std::byte*>(std::aligned_alloc(4096, kMiB));
    good_ = fd >= 0 && block != nullptr;
    for (std::uint64_t at = 0; good_ && at < bytes; at += kMiB) {
      fill_random(block, kMiB, at + 1);
      good_ = ::pwrite(fd, block, kMiB, static_cast<off_t>(at)) == static_cast<ssize_t>(kMiB);
    }
    error_ = errno;
    std::free(block);
    if (fd >= 0) {
      ::close(fd);
    }
  }
  ~File() { ::unlink(path_.c_str()); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  /// Nothing of it is in the page cache: what a cgroup read before is not charged to the next.
  void forget() const {
    const int fd = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
      (void)::fdatasync(fd);
      (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
      ::close(fd);
    }
  }
  bool good() const { return good_; }
  int error() const { return error_; }
  const char* path() const { return path_.c_str(); }

 private:
  const std::string path_;
  bool good_ = false;
  int error_ = 0;
};

}  // namespace

Status mapped_scan_mmap(Session& session) {
  const std::string& directory = session.settings().directory;
  const std::uint64_t dram = std::min(benchmark_dram(), 512 * kMiB);
  const std::uint64_t bytes = dram * kTimesDram;
  session.tell("mapped_scan_mmap: writing the peer's file");
  const File file(directory, bytes);
  if (!file.good()) {
    return fail_native(Code::io_error, file.error(), "{}: {}", file.path(),
                       std::strerror(file.error()));
  }
  session.tell("mapped_scan_mmap: writing the buffer");
  auto set = MappedSet::create(directory, dram, bytes);
  if (!set.ok()) {
    return std::move(set).status();
  }
  for (const bool writes : {false, true}) {
    const std::string name = writes ? "mapped_scan_write_mmap" : "mapped_scan_read_mmap";
    std::vector<Peer> candidates;
    for (const auto& [advice, word] :
         {std::pair{MADV_NORMAL, "normal"}, std::pair{MADV_SEQUENTIAL, "sequential"},
          std::pair{MADV_RANDOM, "random"}, std::pair{MADV_HUGEPAGE, "huge pages"}}) {
      candidates.push_back({fmt::format("mmap, {}", word),
                            fmt::format("MAP_SHARED of a file, madvise {}, in a cgroup of {} bytes",
                                        word, dram + kSlack),
                            [&file, bytes, writes, dram, advice = advice] {
                              file.forget();
                              return in_limited_child(dram + kSlack, [&] {
                                return mmap_passes(file.path(), bytes, writes, advice);
                              });
                            }});
    }
    auto peer = best_of(session, name, Better::higher, 1, std::move(candidates), "GB/s");
    if (!peer.ok()) {
      return std::move(peer).status();
    }
    const Measure ours = [&]() -> Result<Sample> {
      const double start = now_seconds();
      const std::uint64_t sum = pass(set->data, bytes, writes);
      const double took = now_seconds() - start;
      if (Status bad = set->check(sum); !bad.ok()) {
        return bad;
      }
      return Sample{static_cast<double>(bytes) / took / 1e9};
    };
    Status compared =
        session.compare(name, "GB/s", Better::higher,
                        writes ? bars::kMappedWriteMmap : bars::kMappedReadMmap, ours, *peer);
    if (!compared.ok()) {
      return compared;
    }
  }
  return {};
}

}  // namespace tiermem::bench
