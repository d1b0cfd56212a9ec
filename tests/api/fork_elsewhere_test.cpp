// fork=follow beside a library that maps memory in the child before tiermem does, as one does that
// begins its threads again: it may get the addresses that were the frames' in the parent.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "support/forked_child.hpp"
#include "support/pattern.hpp"
#include "support/sanitizers.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

constexpr std::uint64_t kLarge = 24 * kMiB;
constexpr std::uint64_t kWidest = 256 * kMiB;  // A sanitizer's own mappings are wider.

struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

std::vector<Range> mappings() {
  std::vector<Range> result;
  std::FILE* const maps = std::fopen("/proc/self/maps", "r");
  Range each;
  while (std::fscanf(maps, "%" SCNx64 "-%" SCNx64 "%*[^\n]", &each.begin, &each.end) == 2) {
    result.push_back(each);
  }
  std::fclose(maps);
  return result;
}

std::vector<Range> g_parents;
std::uint64_t g_taken = 0;

// [child of fork] A page in the midst of everything that the child did not get.
void take_holes() {
  if (g_parents.empty()) {
    return;
  }
  const std::vector<Range> here = mappings();
  for (const Range& range : g_parents) {
    const bool gone = std::none_of(here.begin(), here.end(), [&](const Range& each) {
      return each.begin < range.end && range.begin < each.end;
    });
    if (gone && range.end - range.begin <= kWidest) {
      const std::uint64_t middle = (range.begin / 2 + range.end / 2) / 4096 * 4096;
      g_taken += ::mmap(reinterpret_cast<void*>(middle), 4096, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != MAP_FAILED;
    }
  }
}

// Before the library's own: handlers in the child are called in the order of registration.
const int g_registered = ::pthread_atfork(nullptr, nullptr, &take_holes);

TEST(ForkElsewhere, a_child_whose_addresses_are_taken_has_its_frames_at_others) {
  ASSERT_EQ(g_registered, 0);
  if (kThreadSanitizer) {
    GTEST_SKIP() << "the thread sanitizer does not follow a fork with threads";
  }
  const Directory directory;
  auto made = Context::create("dram=16M; nvme=" + directory.path() + ":512M; fork=follow");
  ASSERT_TRUE(made.ok()) << made.message();
  const std::unique_ptr<Context> context = std::move(made).value();
  std::vector<Buffer> buffers;
  std::vector<std::span<std::uint64_t>> words;
  for (const std::uint64_t extent : {2 * kMiB, std::uint64_t{65536}, std::uint64_t{4096}}) {
    auto buffer = context->alloc(kLarge, {.extent_bytes = extent, .flags = kMapped});
    if (buffer.code() == Code::unsupported) {
      GTEST_SKIP() << buffer.message();
    }
    ASSERT_TRUE(buffer.ok()) << buffer.message();
    const auto address = buffer->address();
    ASSERT_TRUE(address.ok()) << address.message();
    words.emplace_back(reinterpret_cast<std::uint64_t*>(*address), kLarge / 8);
    buffers.push_back(std::move(*buffer));
    fill(words.back(), extent);
  }
  const auto all_hold = [&](std::uint64_t more) {
    return std::all_of(words.begin(), words.end(), [&, which = 0](auto each) mutable {
      const std::uint64_t extents[] = {2 * kMiB, 65536, 4096};
      return wrong(each, extents[which++] + more) == 0;
    });
  };
  ASSERT_TRUE(all_hold(0));

  g_parents = mappings();
  const pid_t child = child_that([&] {
    if (g_taken == 0 || !all_hold(0)) {
      return false;
    }
    fill(words[0], 2 * kMiB + 1);
    fill(words[1], 65536 + 1);
    fill(words[2], 4096 + 1);
    g_parents = mappings();
    const pid_t grandchild = child_that([&] { return all_hold(1); });
    return all_hold(1) && ended_well(grandchild);
  });
  g_parents.clear();
  EXPECT_TRUE(ended_well(child));
  EXPECT_TRUE(all_hold(0));
}

}  // namespace
}  // namespace tiermem::test
