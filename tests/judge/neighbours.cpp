#include "neighbours.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "draw.hpp"
#include "sequence.hpp"

namespace judge {
namespace {

constexpr int kReadWrite = PROT_READ | PROT_WRITE;
constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS;

// A mapping of a Caller, and the expected contents of each page.
class Mapping {
 public:
  Mapping(Draw& draw, int memory_file) : draw_(draw), file_(memory_file) {}
  ~Mapping() {
    for (std::size_t i = 0; i < pages_.size(); ++i) {
      if (pages_[i].mapped) {
        munmap(at(i), kPage);
      }
    }
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  bool map(std::size_t pages) {
    void* const got = mmap(nullptr, pages * kPage, kReadWrite, kPrivate, -1, 0);
    begin_ = static_cast<std::byte*>(got);
    pages_.assign(got == MAP_FAILED ? 0 : pages, {});
    return got != MAP_FAILED;
  }

  // Makes one call. Returns true if its result differs from the kernel's promise.
  bool step() {
    const std::size_t first = draw_.below(static_cast<unsigned>(pages_.size()));
    const std::size_t most = std::min<std::size_t>(pages_.size() - first, 40);
    const std::size_t count = 1 + draw_.below(static_cast<unsigned>(most));
    kind_ = draw_.below(9);
    if (kind_ > 1 && !all_mapped(first, count)) {
      return false;  // Another thread's mapping may be in the hole.
    }
    switch (kind_) {
      case 0:
      case 1:
        store(first, count);
        return false;
      case 2:
        return protect(first, count);
      case 3:
        return madvise(at(first), count * kPage, MADV_DONTNEED) != 0 || zero(first, count);
      case 4:
        (void)madvise(at(first), count * kPage, MADV_PAGEOUT);
        return false;
      case 5:
        return count < pages_.size() / 4 && unmap(first, count);
      case 6:
        return map_over(first, count);
      case 7:
        return !cut_ && pages_.size() < kMostPages && grow(count);
      default:
        return through_a_file(first, count);
    }
  }

  unsigned kind() const { return kind_; }

  bool differs() const {
    for (std::size_t i = 0; i < pages_.size(); ++i) {
      const volatile auto* const words = reinterpret_cast<const std::uint64_t*>(at(i));
      if (pages_[i].mapped && (words[0] != pages_[i].first || words[511] != pages_[i].last)) {
        return true;
      }
    }
    return false;
  }

 private:
  struct Page {
    bool mapped = true;
    std::uint64_t first = 0, last = 0;  // Words.
  };

  std::byte* at(std::size_t page) const { return begin_ + page * kPage; }

  bool all_mapped(std::size_t first, std::size_t count) const {
    return std::all_of(pages_.begin() + static_cast<long>(first),
                       pages_.begin() + static_cast<long>(first + count),
                       [](const Page& page) { return page.mapped; });
  }

  void store(std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) {
      if (pages_[i].mapped) {
        volatile auto* const words = reinterpret_cast<std::uint64_t*>(at(i));
        words[0] = pages_[i].first = draw_.next();
        words[511] = pages_[i].last = draw_.next();
      }
    }
  }

  bool zero(std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) {
      pages_[i].first = pages_[i].last = 0;
    }
    return false;
  }

  bool protect(std::size_t first, std::size_t count) {
    cut_ = true;
    return mprotect(at(first), count * kPage, PROT_READ) != 0 || differs() ||
           mprotect(at(first), count * kPage, kReadWrite) != 0;
  }

  bool unmap(std::size_t first, std::size_t count) {
    cut_ = true;
    const bool failed = munmap(at(first), count * kPage) != 0;
    for (std::size_t i = first; i < first + count; ++i) {
      pages_[i].mapped = false;
    }
    return failed;
  }

  bool map_over(std::size_t first, std::size_t count) {
    cut_ = true;
    return mmap(at(first), count * kPage, kReadWrite, kPrivate | MAP_FIXED, -1, 0) != at(first) ||
           zero(first, count);
  }

  bool grow(std::size_t more) {
    const std::size_t old = pages_.size();
    void* const moved = mremap(begin_, old * kPage, (old + more) * kPage, MREMAP_MAYMOVE);
    if (moved == MAP_FAILED) {
      return true;
    }
    begin_ = static_cast<std::byte*>(moved);
    pages_.resize(old + more);
    return false;
  }

  // The kernel reads the pages into a file, and writes them back from it.
  bool through_a_file(std::size_t first, std::size_t count) {
    const auto bytes = static_cast<ssize_t>(count * kPage);
    const ssize_t written = pwrite(file_, at(first), count * kPage, 0);
    const int dropped = written == bytes ? madvise(at(first), count * kPage, MADV_DONTNEED) : 0;
    const ssize_t got = dropped == 0 ? pread(file_, at(first), count * kPage, 0) : 0;
    if (written != bytes || dropped != 0 || got != bytes) {
      std::fprintf(stderr, "judge: of %zd bytes %zd were written, madvise %d, %zd read\n", bytes,
                   written, dropped, got);
      return true;
    }
    return false;
  }

  Draw& draw_;
  const int file_;
  unsigned kind_ = 0;  // The kind of the last step.
  bool cut_ = false;   // The kernel may have several mappings here, but mremap needs a single one.
  std::byte* begin_ = nullptr;
  std::vector<Page> pages_;
};

constexpr std::size_t kCounted = 160;  // Pages.

}  // namespace

bool Counter::start() {
  void* const got = mmap(nullptr, kCounted * kPage, kReadWrite, kPrivate, -1, 0);
  if (got == MAP_FAILED) {
    return false;
  }
  words_ = static_cast<std::uint64_t*>(got);
  std::thread([this] { count(); }).detach();
  return true;
}

void Counter::count() {
  for (std::uint64_t round = 0;; ++round) {
    for (std::size_t page = 0; page < kCounted; ++page) {
      volatile std::uint64_t& word = words_[page * (kPage / 8) + page];
      wrong_ += word != round ? 1 : 0;
      word = round + 1;
    }
    poll(nullptr, 0, 1);
  }
}

void Caller::start() {
  std::thread([this] { call(); }).detach();
}

void Caller::call() {
  const int file = memfd_create("judge-caller", MFD_CLOEXEC);
  for (std::uint64_t round = 1;; ++round) {
    poll(nullptr, 0, 5);
    const std::lock_guard lock(round_);
    if (!on_) {
      continue;
    }
    Draw draw(round);
    Mapping mapping(draw, file);
    if (!mapping.map(draw.chance(3) ? 8 + draw.below(56) : 64 + draw.below(140))) {
      ++wrong_;
      continue;
    }
    for (int step = 0; step < 40; ++step) {
      errno = 0;
      const bool refused = mapping.step();
      if (refused || mapping.differs()) {
        std::fprintf(stderr,
                     "judge: round %llu of a calling thread is wrong at step %d of kind %u: %s\n",
                     static_cast<unsigned long long>(round), step, mapping.kind(),
                     refused ? std::strerror(errno) : "other bytes");
        ++wrong_;
        break;
      }
    }
  }
}

}  // namespace judge
