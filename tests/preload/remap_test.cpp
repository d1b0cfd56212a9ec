// mremap under the preload library. Each call is made on tiered memory and on plain memory, and
// both must answer alike: the result, errno, and every page of the source, the target and the
// result.
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "preload/words.hpp"

namespace tiermem::test {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kPages = 64;  // The size of the source and the target.

/// Memory. Its page i is filled with the byte i + `first`.
class Pages {
 public:
  Pages(bool tiered, unsigned first) {
    // The library leaves stacks to the kernel.
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (tiered ? 0 : MAP_STACK);
    void* const got = mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, flags, -1, 0);
    EXPECT_NE(got, MAP_FAILED);
    at = static_cast<std::byte*>(got);
    for (std::size_t i = 0; i < kPages; ++i) {
      memset(page(i), static_cast<int>(first + i), kPage);
    }
  }
  ~Pages() { munmap(at, kPages * kPage); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* page(std::size_t i) const { return at + i * kPage; }

  std::byte* at = nullptr;
};

/// Describes pages as system calls see them: for each page its byte, `.` if it is unmapped, `-` if
/// it may not be read, `?` if its bytes differ; and `w` if it may be written.
class Describer {
 public:
  Describer() : fd_(memfd_create("pages", MFD_CLOEXEC)) { EXPECT_GE(fd_, 0); }
  ~Describer() { close(fd_); }
  Describer(const Describer&) = delete;
  Describer& operator=(const Describer&) = delete;

  std::string of(const std::byte* begin, std::size_t pages) {
    std::string text;
    for (std::size_t i = 0; i < pages; ++i) {
      text += page(const_cast<std::byte*>(begin) + i * kPage) + " ";
    }
    return text;
  }

 private:
  std::string page(std::byte* at) {
    unsigned char present = 0;
    if (mincore(at, kPage, &present) != 0) {
      return ".";
    }
    if (pwrite(fd_, at, kPage, 0) != static_cast<ssize_t>(kPage)) {
      return "-";
    }
    unsigned char bytes[kPage];
    EXPECT_EQ(pread(fd_, bytes, kPage, 0), static_cast<ssize_t>(kPage));
    const bool alike = memcmp(bytes, bytes + 1, kPage - 1) == 0;
    const bool writable = pread(fd_, at, kPage, 0) == static_cast<ssize_t>(kPage);
    return (alike ? std::to_string(bytes[0]) : "?") + (writable ? "w" : "");
  }

  int fd_;
};

enum class Around { mapped, hole_behind, hole_inside, hole_at_the_begin };

struct Case {
  std::size_t from, length, to;  // In pages.
  int flags;
  int protection = PROT_READ | PROT_WRITE;
  Around around = Around::mapped;
  bool evicted = false;
  bool to_tiered = false;  // With MREMAP_FIXED, if the source is tiered.
};

std::string answer_of(const Case& call, bool tiered, Describer& describer) {
  const Pages source(tiered, 1);
  const Pages target(tiered && call.to_tiered, 101);
  EXPECT_EQ(mprotect(source.page(call.from), call.length * kPage, call.protection), 0);
  if (call.around == Around::hole_behind) {
    const std::size_t behind = call.from + call.length;
    EXPECT_EQ(munmap(source.page(behind), (kPages - behind) * kPage), 0);
  } else if (call.around == Around::hole_inside) {
    EXPECT_EQ(munmap(source.page(call.from + call.length / 2), kPage), 0);
  } else if (call.around == Around::hole_at_the_begin) {
    EXPECT_EQ(munmap(source.page(call.from), kPage), 0);
  }
  if (call.evicted && tiered) {
    (void)madvise(source.at, kPages * kPage, MADV_PAGEOUT);
  }
  void* const result = mremap(source.page(call.from), call.length * kPage, call.to * kPage,
                              call.flags, target.page(4));
  std::string text;
  auto* const at = static_cast<std::byte*>(result);
  if (result == MAP_FAILED) {
    text = "refused: " + std::string(strerrorname_np(errno));
  } else if (at == source.page(call.from)) {
    text = "in place";
  } else if (at == target.page(4)) {
    text = "at the target";
  } else {
    text = "moved\nresult: " + describer.of(at, call.to);
    EXPECT_EQ(munmap(at, call.to * kPage), 0);
  }
  return text + "\nsource: " + describer.of(source.at, kPages) +
         "\ntarget: " + describer.of(target.at, kPages);
}

class Remap : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Flags, Remap,
                         testing::Values(0, MREMAP_MAYMOVE, MREMAP_MAYMOVE | MREMAP_FIXED,
                                         MREMAP_MAYMOVE | MREMAP_DONTUNMAP,
                                         MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP),
                         [](const auto& flags) { return std::to_string(flags.param); });

TEST_P(Remap, of_every_part_answers_as_the_kernel_does) {
  Describer describer;
  const auto compare = [&](const Case& call) {
    EXPECT_EQ(answer_of(call, true, describer), answer_of(call, false, describer))
        << "from " << call.from << ", " << call.length << " pages to " << call.to << ", protection "
        << call.protection << ", around " << static_cast<int>(call.around)
        << (call.evicted ? ", evicted" : "") << (call.to_tiered ? ", to tiered memory" : "");
    return !HasFailure();
  };
  struct Part {
    std::size_t from, length;
  };
  for (const Part part : {Part{0, kPages}, Part{0, 20}, Part{15, 18}, Part{44, 20}}) {
    for (const std::size_t to : {std::size_t{1}, part.length - 3, part.length, part.length + 5}) {
      if (to > kPages - 4 && (GetParam() & MREMAP_FIXED) != 0) {
        continue;  // The target has no room for it.
      }
      for (const int protection : {PROT_READ | PROT_WRITE, PROT_READ, PROT_NONE}) {
        for (const bool evicted : {false, true}) {
          for (const bool to_tiered : {false, true}) {
            for (const Around around : {Around::mapped, Around::hole_behind, Around::hole_inside,
                                        Around::hole_at_the_begin}) {
              // Since Linux 6.17 a call with MREMAP_FIXED moves several mappings.
              if (around == Around::hole_inside && (GetParam() & MREMAP_FIXED) != 0 &&
                  to > part.length / 2) {
                continue;
              }
              // Kernels differ in whether the cut pages are unmapped before the refusal.
              if (around == Around::hole_at_the_begin && (GetParam() & MREMAP_FIXED) != 0) {
                continue;
              }
              const bool at_the_end = part.from + part.length == kPages;
              // Beyond the end of the mapping anything may be.
              if (at_the_end && (to > part.length || around == Around::hole_behind)) {
                continue;
              }
              ASSERT_TRUE(compare({part.from, part.length, to, GetParam(), protection, around,
                                   evicted, to_tiered}));
            }
          }
        }
      }
    }
  }
}

// A window has at least 64 pages.
TEST(Mappings, few_pages_that_mremap_moves_have_nothing_mapped_behind_them) {
  const Pages source(true, 1);
  for (const std::size_t to : {std::size_t{21}, kPages - 1, kPages}) {
    void* const moved = mremap(source.at, 20 * kPage, to * kPage, MREMAP_MAYMOVE);
    ASSERT_NE(moved, MAP_FAILED) << strerror(errno);
    for (std::size_t i = 0; i < kPages; ++i) {
      unsigned char present = 0;
      EXPECT_EQ(mincore(static_cast<std::byte*>(moved) + i * kPage, kPage, &present),
                i < to ? 0 : -1)
          << i;
    }
    ASSERT_EQ(munmap(moved, to * kPage), 0);
    ASSERT_EQ(mmap(source.at, 20 * kPage, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
              source.at);
  }
}

// While the kernel moves foreign pages away, another thread maps memory in the hole, as the kernel
// allows. It keeps its bytes.
TEST(Mappings, another_thread_maps_where_foreign_pages_were_then_it_keeps_its_memory) {
  constexpr std::size_t kParts = 400, kLength = 2 * kPage, kStride = 4 * kPage;
  constexpr int kFixed = MAP_FIXED | MAP_ANONYMOUS, kBoth = PROT_READ | PROT_WRITE;
  constexpr std::size_t kBytes = kParts * kStride + 4 * kMiB;
  auto* const memory =
      static_cast<std::byte*>(mmap(nullptr, kBytes, kBoth, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  const auto part = [&](std::size_t i) { return memory + i * kStride; };
  for (std::size_t i = 0; i < kParts; ++i) {
    ASSERT_EQ(mmap(part(i), kLength, kBoth, MAP_SHARED | kFixed, -1, 0), part(i));
  }
  void* const elsewhere = mmap(nullptr, kLength, kBoth, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  std::atomic<std::size_t> turn{0};
  std::vector<std::byte*> taken;
  std::thread other([&] {
    for (std::size_t i = turn; i < kParts; i = turn) {
      void* const got = mmap(part(i), kLength, kBoth, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (got == part(i)) {
        memset(got, static_cast<int>(i % 251 + 1), kLength);
        taken.push_back(part(i));
      } else if (got != MAP_FAILED) {
        munmap(got, kLength);
      }
    }
  });
  for (std::size_t i = 0; i < kParts; ++i) {
    turn = i;
    EXPECT_EQ(mremap(part(i), kLength, kLength, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere),
              elsewhere);
  }
  turn = kParts;
  other.join();
  RecordProperty("taken", static_cast<int>(taken.size()));
  for (std::byte* const at : taken) {
    const auto i = static_cast<std::size_t>(at - memory) / kStride;
    unsigned char present = 0;
    ASSERT_EQ(mincore(at, kPage, &present), 0) << i;
    EXPECT_EQ(at[0], static_cast<std::byte>(i % 251 + 1)) << i;
    EXPECT_EQ(at[kLength - 1], static_cast<std::byte>(i % 251 + 1)) << i;
  }
  EXPECT_EQ(munmap(elsewhere, kLength), 0);
  EXPECT_EQ(munmap(memory, kBytes), 0);
}

}  // namespace
}  // namespace tiermem::test
