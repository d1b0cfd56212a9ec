// mmap, madvise and mremap, with the constants that the distribution's headers lack.
#include "os/host_memory.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/kept_descriptors.hpp"
#include "base/plain_mapping.hpp"
#include "base/results.hpp"
#include "os/memory_limits.hpp"

namespace tiermem::host {
namespace {

constexpr int kAdvicePopulateWrite = 23;   // Linux 5.14
constexpr int kAdviceDontNeedLocked = 24;  // Linux 5.18
constexpr int kAdviceCollapse = 25;        // Linux 6.1
constexpr int kRemapDontUnmap = 4;         // Linux 5.7
constexpr int kSelf = -10001;              // PIDFD_SELF_THREAD_GROUP, Linux 6.14

struct ScanRegion {  // struct page_region
  std::uint64_t start, end, categories;
};
struct ScanCall {  // struct pm_scan_arg
  std::uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, category_inverted,
      category_mask, category_anyof_mask, return_mask;
};
constexpr unsigned long kPagemapScan = _IOWR('f', 16, ScanCall);
constexpr std::uint64_t kPageIsHuge = 1U << 6;

std::uint64_t number(const std::byte* address) {
  return reinterpret_cast<std::uint64_t>(address);
}

std::byte* map_nothing(std::byte* where, std::uint64_t bytes, int extra_flags) {
  void* got =
      mmap(where, bytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | kLeaveToKernel | extra_flags, -1, 0);
  return got == MAP_FAILED ? nullptr : static_cast<std::byte*>(got);
}

// Maps `bytes` at the alignment, or returns nullptr with errno. Maps more and unmaps the excess.
std::byte* map_aligned(std::uint64_t bytes, std::uint64_t alignment) {
  const std::uint64_t room = bytes + alignment - kPage;
  std::byte* const raw = map_nothing(nullptr, room, 0);
  if (raw == nullptr) {
    return nullptr;
  }
  std::byte* const aligned = raw + ((alignment - number(raw) % alignment) % alignment);
  if (aligned != raw) {
    best_effort(munmap(raw, static_cast<std::size_t>(aligned - raw)),
                "what is not unmapped stays reserved");
  }
  if (aligned + bytes != raw + room) {
    best_effort(munmap(aligned + bytes, static_cast<std::size_t>(raw + room - (aligned + bytes))),
                "what is not unmapped stays reserved");
  }
  return aligned;
}

std::byte* map_near(const ReserveOptions& options) {
  if (options.near == nullptr || number(options.near) % options.alignment != 0) {
    return nullptr;
  }
  std::byte* const got = map_nothing(options.near, options.bytes, MAP_FIXED_NOREPLACE);
  if (got != nullptr &&
      got != options.near) {  // A kernel without MAP_FIXED_NOREPLACE treats the address as a hint.
    best_effort(munmap(got, options.bytes), "what is not unmapped stays reserved");
    return nullptr;
  }
  return got;
}

// EINVAL: the kernel does not know the advice (before 5.14).
int populate_write(std::byte* address, std::uint64_t bytes) {
  for (int tries = 0; madvise(address, bytes, kAdvicePopulateWrite) != 0; ++tries) {
    if ((errno != EAGAIN && errno != EINTR) || tries == 64) {
      return errno;
    }
  }
  return 0;
}

int touch_pages(std::byte* address, std::uint64_t bytes) {
  for (std::uint64_t at = 0; at < bytes; at += kPage) {
    auto* const word = reinterpret_cast<volatile unsigned char*>(address + at);
    *word = *word;
  }
  return 0;
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The descriptor belongs to the address space of the process that opened it, so a forked child
// opens its own. If two threads open it at once, one descriptor stays unused.
int pagemap() {
  // The process in the upper half, the descriptor in the lower half.
  static std::atomic<std::int64_t> opened{-1};
  const std::int64_t process = getpid();
  std::int64_t known = opened.load();
  if (known < 0 || known >> 32 != process) {
    const int fd = keep_descriptor(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
    if (fd < 0) {
      return fd;
    }
    known = process << 32 | fd;
    opened.store(known);
  }
  return static_cast<int>(known & 0x7fffffff);
}

}  // namespace

AddressRange::AddressRange(std::byte* data, std::uint64_t bytes)
    : data_(data), bytes_(bytes), owner_(getpid()) {}

AddressRange::~AddressRange() {
  if (data_ != nullptr && owner_ == getpid()) {
    best_effort(munmap(data_, bytes_), "what is not unmapped stays reserved");
  }
}

AddressRange::AddressRange(AddressRange&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      owner_(other.owner_) {}

AddressRange& AddressRange::operator=(AddressRange&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(owner_, other.owner_);
  return *this;
}

void AddressRange::adopt() {
  owner_ = getpid();
}

int map_again(std::byte* address, std::uint64_t bytes) {
  if (map_nothing(address, bytes, MAP_FIXED_NOREPLACE) == nullptr) {
    return errno;
  }
  best_effort(munlock(address, bytes), "it need not have been locked");
  return open_range(address, bytes);
}

Result<AddressRange> reserve(const ReserveOptions& options) {
  std::byte* data = map_near(options);
  if (data == nullptr && !options.exactly) {
    data = map_aligned(options.bytes, options.alignment);
  }
  if (data == nullptr) {
    return refused(errno, options.bytes, Wanted::addresses, "mmap");
  }
  AddressRange range(data, options.bytes);
  best_effort(munlock(data, options.bytes), "it need not have been locked");
  if (options.accessible && mprotect(data, options.bytes, PROT_READ | PROT_WRITE) != 0) {
    return refused(errno, options.bytes, Wanted::memory, "mprotect");
  }
  if (!options.dumped) {
    // If this is refused, core dumps are larger.
    (void)advise(data, options.bytes, Advise::dont_dump);
  }
  return range;
}

Status reserve_again(AddressRange& range, std::uint64_t alignment) {
  if (map_again(range.data(), range.bytes()) == 0) {
    range.adopt();
    return {};
  }
  auto elsewhere = reserve({.bytes = range.bytes(), .alignment = alignment});
  if (!elsewhere.ok()) {
    return std::move(elsewhere).status();
  }
  range = std::move(*elsewhere);
  return {};
}

// Around mappings that exist already the range is closed in pieces.
void close_again(std::byte* address, std::uint64_t bytes) {
  const ReserveOptions closed{.bytes = bytes, .alignment = kPage, .near = address};
  if (map_near(closed) != nullptr) {
    best_effort(munlock(address, bytes), "closed memory has no pages to lock");
  } else if (bytes > kPage) {
    const std::uint64_t half = bytes / kPage / 2 * kPage;
    close_again(address, half);
    close_again(address + half, bytes - half);
  }
}

int advise(std::byte* address, std::uint64_t bytes, Advise advice) {
  static constexpr std::array kNative = {MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DONTFORK,
                                         MADV_DOFORK,   kAdviceCollapse, MADV_DONTDUMP,
                                         MADV_DODUMP};
  return madvise(address, bytes, kNative[static_cast<std::size_t>(advice)]) == 0 ? 0 : errno;
}

int populate(std::byte* address, std::uint64_t bytes) {
  const int error = populate_write(address, bytes);
  return error == EINVAL ? touch_pages(address, bytes) : error;
}

int unshare(std::byte* address, std::uint64_t bytes) {
  return populate_write(address, bytes);
}

int drop(std::byte* address, std::uint64_t bytes) {
  if (madvise(address, bytes, MADV_DONTNEED) == 0) {
    return 0;
  }
  const int error = errno;
  return error == EINVAL && madvise(address, bytes, kAdviceDontNeedLocked) == 0 ? 0 : error;
}

int drop(std::span<const Range> ranges) {
  constexpr std::size_t kMost = 512;  // Linux takes 1024.
  std::array<iovec, kMost> calls;
  int error = 0;
  while (!ranges.empty()) {
    const std::span<const Range> some = ranges.first(std::min(ranges.size(), kMost));
    ranges = ranges.subspan(some.size());
    std::transform(some.begin(), some.end(), calls.begin(), [](const Range& range) {
      return iovec{range.address, range.bytes};
    });
    std::int64_t done = 0;
    if (some.size() > 1) {
      done = ::syscall(SYS_process_madvise, kSelf, calls.data(), some.size(), MADV_DONTNEED, 0);
    }
    for (const Range& range : some) {
      done -= static_cast<std::int64_t>(range.bytes);
      if (done < 0) {
        const int own = drop(range.address, range.bytes);
        error = error == 0 ? own : error;
      }
    }
  }
  return error;
}

int remap(std::byte* to, std::byte* from, std::uint64_t bytes) {
  void* const got = mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | kRemapDontUnmap, to);
  return got == MAP_FAILED ? errno : 0;
}

int close_range(std::byte* address, std::uint64_t bytes) {
  return map_nothing(address, bytes, MAP_FIXED) == nullptr ? errno : 0;
}

int renew(std::byte* address, std::uint64_t bytes) {
  void* const got = mmap(address, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return got == MAP_FAILED ? errno : 0;
}

int shut_range(std::byte* address, std::uint64_t bytes) {
  return mprotect(address, bytes, PROT_NONE) == 0 ? 0 : errno;
}

int close_for_stores(std::byte* address, std::uint64_t bytes) {
  return mprotect(address, bytes, PROT_READ) == 0 ? 0 : errno;
}

int open_range(std::byte* address, std::uint64_t bytes) {
  return mprotect(address, bytes, PROT_READ | PROT_WRITE) == 0 ? 0 : errno;
}

// The file is created for each call, because calls are rare. The program could close a kept
// descriptor, and the number could then belong to another file.
void must_open_range(std::byte* address, std::uint64_t bytes) {
  constexpr int kTries = 1000;
  constexpr timespec kMillisecond{.tv_sec = 0, .tv_nsec = 1'000'000};
  for (int tries = 1; open_range(address, bytes) != 0; ++tries) {
    must(tries < kTries ? 0 : -1);
    best_effort(::nanosleep(&kMillisecond, nullptr), "a shorter pause will do");
  }
}

int map_no_bytes(std::byte* address, std::uint64_t bytes) {
  const int file = memfd_create("tiermem-absent", MFD_CLOEXEC);
  if (file < 0) {
    return close_range(address, bytes);
  }
  void* const got =
      mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file, 0);
  const int error = got == MAP_FAILED ? errno : 0;
  best_effort(close(file), "the descriptor is gone in any case");
  return error;
}

std::optional<std::uint64_t> huge_bytes(const std::byte* address, std::uint64_t bytes) {
  std::array<ScanRegion, 64> regions{};
  std::uint64_t found = 0;
  std::uint64_t start = number(address);
  const std::uint64_t end = start + bytes;
  while (start < end) {
    ScanCall call{};
    call.size = sizeof(call);
    call.start = start;
    call.end = end;
    call.vec = reinterpret_cast<std::uint64_t>(regions.data());
    call.vec_len = regions.size();
    call.category_mask = kPageIsHuge;
    call.return_mask = kPageIsHuge;
    const int got = ioctl(pagemap(), kPagemapScan, &call);
    if (got < 0) {
      return std::nullopt;
    }
    for (int i = 0; i < got; ++i) {
      const ScanRegion& region = regions[static_cast<std::size_t>(i)];
      found += region.end - region.start;
    }
    if (call.walk_end <= start) {
      break;
    }
    start = call.walk_end;
  }
  return found;
}

std::uint64_t leading_bytes(const std::byte* address, std::uint64_t bytes, bool there) {
  // The file is opened for each call, because calls are rare. The program could close a kept
  // descriptor and reuse its number, and this would then read the program's own file.
  const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  std::uint64_t leading = 0;
  for (bool alike = true; alike && leading < bytes;) {
    constexpr std::uint64_t kSomething = std::uint64_t{3} << 62;  // Present, or in swap.
    std::array<std::uint64_t, 64> entries{};
    const std::uint64_t pages = std::min<std::uint64_t>(entries.size(), (bytes - leading) / kPage);
    const auto at = static_cast<off_t>(number(address + leading) / kPage * sizeof(entries[0]));
    if (pread(fd, entries.data(), pages * sizeof(entries[0]), at) !=
        static_cast<ssize_t>(pages * sizeof(entries[0]))) {
      std::array<unsigned char, entries.size()> resident{};
      best_effort(
          mincore(const_cast<std::byte*>(address) + leading, pages * kPage, resident.data()),
          "nothing counts as there then");
      std::transform(resident.begin(), resident.end(), entries.begin(),
                     [](unsigned char page) { return (page & 1) != 0 ? kSomething : 0; });
    }
    for (std::uint64_t i = 0; i < pages && alike; ++i) {
      alike = ((entries[i] & kSomething) != 0) == there;
      leading += alike ? kPage : 0;
    }
  }
  if (fd >= 0) {
    best_effort(close(fd), "the descriptor is gone in any case");
  }
  return leading;
}

std::uint32_t watched_pages(const std::byte* address, unsigned pages) {
  constexpr std::uint64_t kWatched = std::uint64_t{1} << 63 | std::uint64_t{1} << 57;
  std::array<std::uint64_t, 32> entries{};
  const auto at = static_cast<off_t>(number(address) / kPage * sizeof(entries[0]));
  const std::size_t bytes = std::min<std::size_t>(pages, entries.size()) * sizeof(entries[0]);
  if (pread(pagemap(), entries.data(), bytes, at) != static_cast<ssize_t>(bytes)) {
    return 0;
  }
  std::uint32_t result = 0;
  for (unsigned i = 0; i < bytes / sizeof(entries[0]); ++i) {
    result |= (entries[i] & kWatched) == kWatched ? std::uint32_t{1} << i : 0;
  }
  return result;
}

bool huge_pages_available(char* reason, std::size_t room) {
  const std::string enabled = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  if (enabled.empty()) {
    set_text(reason, room, "the kernel has no transparent huge pages");
    return false;
  }
  if (enabled.find("[never]") != std::string::npos) {
    set_text(reason, room, "transparent_hugepage/enabled is never");
    return false;
  }
  if (prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1) {
    set_text(reason, room, "the process was started with PR_SET_THP_DISABLE");
    return false;
  }
  if (sysconf(_SC_PAGESIZE) != static_cast<long>(kPage)) {
    set_text(reason, room, "pages are not 4 KiB");
    return false;
  }
  return true;
}

bool probe_remap(char* reason, std::size_t room) {
  auto window = reserve({.bytes = kHugePage, .accessible = false});
  auto scratch = reserve({.bytes = kHugePage});
  if (!window.ok() || !scratch.ok()) {
    set_text(reason, room, window.ok() ? scratch.message() : window.message());
    return false;
  }
  best_effort(advise(scratch->data(), kHugePage, Advise::huge), "small pages do, too");
  write_pattern(scratch->data(), kHugePage);
  int error = remap(window->data(), scratch->data(), kHugePage);
  bool right = error == 0 && check_pattern(window->data(), kHugePage);
  if (right) {
    error = remap(scratch->data(), window->data(), kHugePage);
    right = error == 0 && check_pattern(scratch->data(), kHugePage);
  }
  if (!right) {
    set_text(reason, room,
             error != 0 ? fmt::format("mremap(DONTUNMAP): {}", std::strerror(error))
                        : std::string("mremap brought other bytes"));
  }
  return right;
}

std::uint64_t map_count() {
  std::ifstream maps("/proc/self/maps");
  std::uint64_t lines = 0;
  for (std::string line; std::getline(maps, line);) {
    ++lines;
  }
  return lines;
}

std::uint64_t map_limit() {
  std::uint64_t limit = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> limit;
  return limit;
}

std::uint64_t address_space_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::numeric_limits<std::uint64_t>::max();
  }
  return limit.rlim_cur;
}

std::uint64_t address_space_left() {
  const std::uint64_t limit = address_space_limit();
  if (limit == std::numeric_limits<std::uint64_t>::max()) {
    return limit;
  }
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return limit - std::min(limit, pages * kPage);
}

// 2 MiB: 38 µs by streaming stores, 76 by memset, 183 by releasing the pages and taking new ones.
// 64 KiB: 1.5 and 2.4 µs (2 cores, EPYC).
void clear(std::byte* address, std::uint64_t bytes) {
#if defined(__SSE2__)
  if (bytes >= 65536) {
    const __m128i zero = _mm_setzero_si128();
    for (std::uint64_t at = 0; at < bytes; at += sizeof(zero)) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(address + at), zero);
    }
    _mm_sfence();  // Nothing else orders streaming stores.
    return;
  }
#endif
  std::memset(address, 0, bytes);
}

void write_pattern(std::byte* address, std::uint64_t bytes) {
  auto* const words = reinterpret_cast<std::uint64_t*>(address);
  for (std::uint64_t i = 0; i < bytes / 8; ++i) {
    words[i] = (i + 1) * 0x9e3779b97f4a7c15;
  }
}

bool check_pattern(const std::byte* address, std::uint64_t bytes) {
  const auto* const words = reinterpret_cast<const std::uint64_t*>(address);
  for (std::uint64_t i = 0; i < bytes / 8; ++i) {
    if (words[i] != (i + 1) * 0x9e3779b97f4a7c15) {
      return false;
    }
  }
  return true;
}

}  // namespace tiermem::host
