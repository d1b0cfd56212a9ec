// Goal: if malloc refuses memory to tiermem's own threads, from some allocation on and permanently,
// every call still ends with right bytes, or with an error and a code that says what to do. Method:
// the program's own malloc. Each number of granted allocations runs in its own child, because a
// failure would end the process.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "arena/own_malloc.hpp"
#include "support/forked_child.hpp"
#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

constexpr std::uint64_t kDram = 8 * kMiB;
constexpr std::uint64_t kFileBytes = 6 * kMiB;

void write_file(const std::string& path) {
  std::vector<std::uint64_t> words(kFileBytes / 8);
  fill(words, 9);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(words.data()), kFileBytes);
}

/// Moves bytes to the disk and back, in large and small buffers.
void beyond_memory(Context& context) {
  auto large = context.alloc(2 * kDram, {.label = "large"});
  ASSERT_TRUE(large.ok());
  ASSERT_EQ(write_pattern(*large, 1).code(), Code::ok);
  EXPECT_EQ(wrong_words(*large, 1), 0u);
  std::vector<Buffer> small;
  for (std::uint64_t i = 0; i < 600; ++i) {
    auto buffer = context.alloc(i % 2 == 0 ? 4096 : 32768);
    ASSERT_TRUE(buffer.ok());
    ASSERT_EQ(write_pattern(*buffer, 100 + i).code(), Code::ok);
    small.push_back(std::move(*buffer));
  }
  for (std::uint64_t i = 0; i < small.size(); ++i) {
    EXPECT_EQ(wrong_words(small[i], 100 + i), 0u);
  }
}

/// Causes refusals; the mover's thread makes the message of each.
void no_room(Context& context) {
  auto all = context.alloc(kDram, {.label = "a holder with a name of more than 31 bytes"});
  ASSERT_TRUE(all.ok());
  auto view = all->acquire(kDiscard);
  ASSERT_EQ(view.code(), Code::ok);
  auto more = context.alloc(2 * kMiB);
  ASSERT_TRUE(more.ok());
  EXPECT_EQ(more->acquire(kWrite, 0, 1, Timeout::seconds(1)).code(), Code::no_capacity);
  auto impossible = context.alloc(2 * kDram);
  ASSERT_TRUE(impossible.ok());
  EXPECT_EQ(impossible->acquire(kWrite).code(), Code::no_capacity);
  view->release();
  EXPECT_EQ(more->acquire(kWrite).code(), Code::ok);
}

void full_disk(Context& context) {
  auto huge = context.alloc(16 * kDram);
  ASSERT_TRUE(huge.ok());
  std::uint64_t written = 0;
  EXPECT_EQ(write_pattern(*huge, 2, Timeout::seconds(30), &written).code(), Code::no_capacity);
  EXPECT_GT(written, 2 * kDram);
  ASSERT_EQ(context.set_budget({Kind::dram, 0}, 2 * kDram).code(), Code::ok);
  EXPECT_EQ(wrong_words(*huge, 2, written), 0u);
}

void damaged_file(Context& context, const std::string& path) {
  auto file = context.adopt_file(path.c_str());
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(wrong_words(*file, 9), 0u);
  ASSERT_EQ(file->evict().code(), Code::ok);
  ASSERT_EQ(::truncate(path.c_str(), kMiB), 0);
  EXPECT_EQ(file->acquire(kRead).code(), Code::io_error);
}

/// Uses everything. Returns whether an allocation was refused.
bool everything(const std::string& directory, std::uint64_t granted) {
  auto context = Context::create("dram=8M; nvme=" + directory + ":32M; workers=1");
  EXPECT_TRUE(context.ok()) << context.message();
  {
    auto first = (*context)->alloc(kMiB);  // All threads have started when its view is acquired.
    EXPECT_TRUE(first->acquire(kWrite).ok());
  }
  grant_to_other_threads(granted);
  beyond_memory(**context);
  no_room(**context);
  damaged_file(**context, directory + "/file");
  full_disk(**context);
  EXPECT_EQ((*context)->close().code(), Code::ok);
  const bool refused = refused_to_other_threads() != 0;
  grant_to_other_threads(kAll);
  return refused;
}

TEST(RefusedMalloc, to_tiermems_threads_for_good_is_an_error_and_not_the_end) {
  for (std::uint64_t n = 0;; n += 1 + n / 8) {
    const Directory directory;
    write_file(directory.path() + "/file");
    int said[2];
    ASSERT_EQ(::pipe(said), 0);
    const pid_t child = child_that([&] {
      const bool met = everything(directory.path(), n);
      return ::write(said[1], met ? "y" : "n", 1) == 1 && !HasFailure();
    });
    ASSERT_TRUE(ended_well(child)) << n << " allocations were granted before";
    char met = 0;
    ASSERT_EQ(::read(said[0], &met, 1), 1);
    ::close(said[0]);
    ::close(said[1]);
    if (met == 'n') {
      std::printf("%llu granted: none was refused\n", static_cast<unsigned long long>(n));
      break;
    }
  }
}

}  // namespace
}  // namespace tiermem::test
