// fork=follow when the child differs from the parent. A library may map memory in the child before
// tiermem does, for example when it starts its threads again. It may get addresses that held frames
// in the parent. Or the child may lack a permission that its parent had.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "support/answered_calls.hpp"
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

// [child of fork] Maps a page in the middle of each range that the child did not inherit.
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

bool g_refuses_userfaultfd = false;
bool g_refused = false;

// [child of fork] Refuses userfaultfd, as a sandbox does.
void refuse_userfaultfd() {
  constexpr std::uint32_t kOfUserfault = 0xAA00;  // The ioctl requests of userfaultfd.
  g_refused = g_refuses_userfaultfd && answer_calls(SYS_userfaultfd, EPERM) &&
              answer_calls(SYS_ioctl, EPERM, 1, kOfUserfault);
}

// Registered before the library's own handlers: in the child, handlers run in the order of
// registration.
const int g_registered = ::pthread_atfork(nullptr, nullptr, &take_holes) |
                         ::pthread_atfork(nullptr, nullptr, &refuse_userfaultfd);

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

/// A context that logs to a file, and a mapped buffer with bytes.
class ForkLog : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kThreadSanitizer) {
      GTEST_SKIP() << "the thread sanitizer does not follow a fork with threads";
    }
    std::filesystem::create_directory(disk_);
    auto made = Context::create("dram=16M; nvme=" + disk_ + ":512M; fork=follow; log_file=" +
                                directory_.path() + "/log; log=warn");
    ASSERT_TRUE(made.ok()) << made.message();
    context_ = std::move(made).value();
    auto buffer = context_->alloc(kLarge, {.flags = kMapped});
    if (buffer.code() == Code::unsupported) {
      GTEST_SKIP() << buffer.message();
    }
    ASSERT_TRUE(buffer.ok()) << buffer.message();
    buffer_ = std::move(*buffer);
    const auto address = buffer_.address();
    ASSERT_TRUE(address.ok()) << address.message();
    words_ = {reinterpret_cast<std::uint64_t*>(*address), kLarge / 8};
    fill(words_, 1);
  }
  std::string log() const {
    std::ifstream file(directory_.path() + "/log");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const Directory directory_;
  const std::string disk_ = directory_.path() + "/disk";
  std::unique_ptr<Context> context_;
  Buffer buffer_;
  std::span<std::uint64_t> words_;
};

TEST_F(ForkLog, child_may_not_use_userfaultfd_then_it_has_no_context_and_the_log_says_why) {
  g_refuses_userfaultfd = true;
  const Handle handle = buffer_.handle();
  const pid_t child = child_that([&] { return g_refused && !context_->address(handle).ok(); });
  g_refuses_userfaultfd = false;
  EXPECT_TRUE(ended_well(child));
  EXPECT_NE(log().find("this child has no context, and a touch of its mapped buffers is SIGSEGV: "
                       "no userfaultfd: "),
            std::string::npos)
      << log();
  EXPECT_EQ(wrong(words_, 1), 0u);
}

TEST_F(ForkLog, directory_is_gone_then_the_child_has_no_files_of_its_own_and_the_log_says_why) {
  ASSERT_TRUE(std::filesystem::remove(disk_));
  const pid_t child = child_that([] { return true; });
  EXPECT_TRUE(ended_well(child));
  EXPECT_NE(log().find("fork: block device " + disk_ + ": cannot be found"), std::string::npos)
      << log();
  EXPECT_EQ(wrong(words_, 1), 0u);
}

}  // namespace
}  // namespace tiermem::test
