// Directories that are full, capped, missing or read-only. Goal: the refusal names the limit and
// the remedy, memory and disk keep every byte, and space that becomes free is used. Method: a small
// tmpfs that only a child of the test sees, so that the disk is really full; and a loop device over
// a tmpfs, so that a device under io_uring really fails.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "fault/child.hpp"
#include "support/loop_device.hpp"
#include "support/pattern.hpp"

namespace tiermem::test {
namespace {

std::uint64_t free_bytes(const std::string& directory) {
  struct statvfs room {};
  return statvfs(directory.c_str(), &room) == 0 ? std::uint64_t{room.f_bavail} * room.f_frsize : 0;
}

/// Writes, and waits for space that was freed elsewhere: after a refusal the tier asks the file
/// system again only from time to time.
Status write_when_there_is_room(Buffer& buffer, std::uint64_t seed) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  Status status = write_pattern(buffer, seed);
  while (status.code() == Code::no_capacity && std::chrono::steady_clock::now() < until) {
    status = write_pattern(buffer, seed);
  }
  return status;
}

/// If memory and disk are both full of different bytes, a read of one more byte is refused, because
/// nothing can leave to make room. The refusal names a larger memory as the remedy; with it every
/// byte must be present.
void expect_all_with_more_memory(Context& context, Buffer& buffer, std::uint64_t seed,
                                 std::uint64_t end) {
  const std::uint64_t before = context.stats().dram_budget;
  const Status raised = context.set_budget({Kind::dram, 0}, before + end);
  EXPECT_TRUE(raised.ok()) << raised.message();
  EXPECT_EQ(wrong_words(buffer, seed, end), 0u);
}

TEST(FullDisk, a_full_disk_refuses_in_words_and_keeps_every_byte) {
  Directory directory;
  SKIP_IF(in_child([&] {
    const std::string& path = directory.path();
    if (const std::string why = mount_tmpfs(path, 32 * kMiB); !why.empty()) {
      return not_here(why);
    }
    auto context = make_context("dram=8M; nvme=" + path + ":32M");
    Buffer data = make_buffer(*context, 64 * kMiB, "large");
    std::uint64_t written = 0;
    const Status refusal = write_pattern(data, 1, Timeout::seconds(20), &written);
    EXPECT_LT(written, 40 * kMiB);
    EXPECT_GE(written, 24 * kMiB) << "most of the disk was used";
    EXPECT_EQ(refusal.code(), Code::no_capacity);
    EXPECT_NE(refusal.info(), nullptr);
    EXPECT_EQ(refusal.info()->budget, 8 * kMiB);
    EXPECT_SAYS(refusal, path.substr(path.size() - 20));
    EXPECT_SAYS(refusal, "free");
    EXPECT_SAYS(refusal, "dram");
    EXPECT_GT(free_bytes(path), 0u) << "the reserve of the file system stays free";
    expect_all_with_more_memory(*context, data, 1, written);
    Buffer small = make_buffer(*context, 2 * kMiB, "small");
    data.reset();
    EXPECT_TRUE(write_pattern(small, 2).ok()) << "a free makes room";
    EXPECT_TRUE(small.evict().ok()) << "on the disk too";
    EXPECT_EQ(wrong_words(small, 2), 0u);
    return ChildEnd();
  }));
}

TEST(FullDisk, a_disk_that_others_fill_is_reported_and_used_again_when_they_leave) {
  Directory directory;
  SKIP_IF(in_child([&] {
    const std::string& path = directory.path();
    if (const std::string why = mount_tmpfs(path, 64 * kMiB); !why.empty()) {
      return not_here(why);
    }
    const std::string ballast = path + "/ballast";
    {
      std::ofstream file(ballast, std::ios::binary);
      const std::string zeros(kMiB, '\0');
      while (free_bytes(path) > 8 * kMiB && file) {
        file.write(zeros.data(), static_cast<std::streamsize>(zeros.size())).flush();
      }
    }
    auto context = make_context("dram=8M; reserve_free=4M; nvme=" + path + ":48M");
    Buffer data = make_buffer(*context, 32 * kMiB, "squeezed");
    std::uint64_t written = 0;
    const Status refusal = write_pattern(data, 3, Timeout::seconds(20), &written);
    EXPECT_LT(written, 16 * kMiB);
    EXPECT_EQ(refusal.code(), Code::no_capacity);
    EXPECT_SAYS(refusal, "stay free");
    std::filesystem::remove(ballast);
    const Status again = write_when_there_is_room(data, 4);
    EXPECT_TRUE(again.ok()) << again.message();
    EXPECT_EQ(wrong_words(data, 4), 0u);
    EXPECT_EQ(context->stats().degraded_devices, 0u) << "a full disk is not a broken disk";
    return ChildEnd();
  }));
}

TEST(FullDisk, one_full_directory_of_two_is_no_failure) {
  Directory full, roomy;
  SKIP_IF(in_child([&] {
    if (const std::string why = mount_tmpfs(full.path(), 8 * kMiB); !why.empty()) {
      return not_here(why);
    }
    auto context = make_context("dram=8M; nvme=" + full.path() + ":8M," + roomy.path() + ":256M");
    Buffer data = make_buffer(*context, 64 * kMiB, "spread");
    EXPECT_TRUE(write_pattern(data, 5).ok());
    EXPECT_EQ(wrong_words(data, 5), 0u);
    return ChildEnd();
  }));
}

TEST(FullDisk, a_full_first_tier_lets_the_second_take_the_bytes) {
  Directory full, roomy;
  SKIP_IF(in_child([&] {
    if (const std::string why = mount_tmpfs(full.path(), 16 * kMiB); !why.empty()) {
      return not_here(why);
    }
    auto context =
        make_context("dram=8M; nvme=" + full.path() + ":16M; slow=" + roomy.path() + ":256M");
    Buffer data = make_buffer(*context, 64 * kMiB, "overflow");
    EXPECT_TRUE(write_pattern(data, 5).ok());
    EXPECT_EQ(wrong_words(data, 5), 0u);
    const Stats stats = context->stats();
    EXPECT_GE(stats.tier({Kind::block, 1})->used, 32 * kMiB);
    EXPECT_EQ(stats.degraded_devices, 0u) << "a full disk is not a broken disk";
    return ChildEnd();
  }));
}

TEST(FullDisk, the_cap_is_never_exceeded_and_the_refusal_names_it) {
  Directory directory;
  auto context = make_context("dram=8M; nvme=" + directory.path() + ":16M");
  ASSERT_NE(context, nullptr);
  Buffer data = make_buffer(*context, 64 * kMiB, "capped");
  std::uint64_t written = 0;
  const Status refusal = write_pattern(data, 6, Timeout::seconds(20), &written);
  EXPECT_LE(written, 24 * kMiB);
  EXPECT_GE(written, 20 * kMiB);
  ASSERT_EQ(refusal.code(), Code::no_capacity);
  EXPECT_SAYS(refusal, "16.0 MiB");
  EXPECT_SAYS(refusal, "nvme=");
  EXPECT_LE(context->stats().block_used, 16 * kMiB);
  const Status evicted = data.evict();
  EXPECT_EQ(evicted.code(), Code::no_capacity);
  EXPECT_SAYS(evicted, "nvme=");
  expect_all_with_more_memory(*context, data, 6, written);
  ASSERT_TRUE(context->set_budget({Kind::dram, 0}, 64 * kMiB).ok());
  EXPECT_TRUE(write_pattern(data, 7).ok());
  EXPECT_EQ(wrong_words(data, 7), 0u);
}

TEST(FullDisk, a_block_budget_below_what_is_used_takes_no_byte_away) {
  Directory directory;
  auto context = make_context("dram=8M; nvme=" + directory.path() + ":128M");
  ASSERT_NE(context, nullptr);
  Buffer data = make_buffer(*context, 48 * kMiB, "shrunk");
  ASSERT_TRUE(write_pattern(data, 8).ok());
  ASSERT_TRUE(data.evict().ok());
  ASSERT_TRUE(context->set_budget({Kind::block, 0}, 8 * kMiB).ok());
  EXPECT_EQ(wrong_words(data, 8), 0u);
  Buffer more = make_buffer(*context, 16 * kMiB, "more");
  EXPECT_EQ(write_pattern(more, 9).code(), Code::no_capacity);
  ASSERT_TRUE(context->set_budget({Kind::block, 0}, 128 * kMiB).ok());
  EXPECT_TRUE(write_pattern(more, 9).ok());
  EXPECT_EQ(wrong_words(data, 8) + wrong_words(more, 9), 0u);
}

TEST(FullDisk, a_directory_removed_while_in_use_serves_to_the_end) {
  Directory directory;
  auto context = make_context("dram=8M; nvme=" + directory.path() + ":128M");
  ASSERT_NE(context, nullptr);
  Buffer data = make_buffer(*context, 48 * kMiB, "homeless");
  ASSERT_TRUE(data.write(0, "x", 1).ok());
  ASSERT_TRUE(data.evict().ok());
  EXPECT_TRUE(std::filesystem::is_empty(directory.path())) << "nothing there has a name";
  std::filesystem::remove_all(directory.path());
  EXPECT_TRUE(write_pattern(data, 10).ok());
  EXPECT_EQ(wrong_words(data, 10), 0u);
  auto second = Context::create("dram=8M; nvme=" + directory.path() + ":128M");
  ASSERT_EQ(second.code(), Code::invalid_argument);
  EXPECT_SAYS(second, directory.path().substr(0, 60));
  EXPECT_SAYS(second, "No such file or directory");
  EXPECT_SAYS(second, "nvme=");
}

TEST(FullDisk, a_read_only_directory_is_refused_at_the_start) {
  Directory directory;
  SKIP_IF(in_child([&] {
    std::string why = mount_tmpfs(directory.path(), 32 * kMiB);
    why += why.empty() ? make_read_only(directory.path()) : "";
    if (!why.empty()) {
      return not_here(why);
    }
    auto context = Context::create("dram=8M; nvme=" + directory.path() + ":16M");
    EXPECT_EQ(context.code(), Code::unavailable);
    EXPECT_SAYS(context, directory.path());
    EXPECT_SAYS(context, "Read-only file system");
    EXPECT_SAYS(context, "nvme=");
    return ChildEnd();
  }));
}

TEST(FullDisk, a_directory_of_another_user_is_refused_at_the_start) {
  Directory directory;
  ASSERT_EQ(chmod(directory.path().c_str(), 0555), 0);
  SKIP_IF(in_child([&] {
    if (const std::string why = become_nobody(); !why.empty()) {
      return not_here(why);
    }
    auto context = Context::create("dram=8M; nvme=" + directory.path() + ":16M");
    EXPECT_EQ(context.code(), Code::unavailable);
    EXPECT_SAYS(context, directory.path());
    EXPECT_SAYS(context, "Permission denied");
    EXPECT_SAYS(context, "may write to");
    return ChildEnd();
  }));
}

// Above this limit the kernel would kill the process with SIGXFSZ.
TEST(FullDisk, a_limit_on_file_sizes_is_a_refusal_and_not_a_signal) {
  Directory directory;
  SKIP_IF(in_child([&] {
    const rlimit limit{12 * kMiB, 12 * kMiB};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    auto context = make_context("dram=8M; nvme=" + directory.path() + ":128M");
    Buffer data = make_buffer(*context, 64 * kMiB, "limited");
    std::uint64_t written = 0;
    const Status refusal = write_pattern(data, 11, Timeout::seconds(20), &written);
    EXPECT_LT(written, 24 * kMiB);
    EXPECT_EQ(refusal.code(), Code::no_capacity);
    EXPECT_SAYS(refusal, "RLIMIT_FSIZE");
    expect_all_with_more_memory(*context, data, 11, written);
    return ChildEnd();
  }));
}

// A loop device over a file in a tmpfs that is too small. Its sectors can be read, and written
// until the tmpfs is full. It then returns an error, like a thin volume or a dying disk.
TEST(FullDisk, a_raw_device_that_begins_to_fail_keeps_what_it_has_and_is_given_up) {
  Directory directory;
  SKIP_IF(in_child([&] {
    if (const std::string why = mount_tmpfs(directory.path(), 24 * kMiB); !why.empty()) {
      return not_here(why);
    }
    const LoopDevice device(directory.path() + "/sectors", 64 * kMiB);
    if (!device.why_not().empty()) {
      return not_here(device.why_not());
    }
    auto context = make_context("dram=8M; nvme=" + device.path() + ":64M");
    if (context == nullptr) {
      return ChildEnd();
    }
    Buffer data = make_buffer(*context, 48 * kMiB, "on a thin volume");
    std::uint64_t written = 0;
    const Status refusal = write_pattern(data, 12, Timeout::seconds(20), &written);
    EXPECT_GE(written, 20 * kMiB);
    EXPECT_LT(written, 40 * kMiB);
    EXPECT_EQ(refusal.code(), Code::no_capacity);
    EXPECT_SAYS(refusal, device.path());
    EXPECT_GT(context->stats().io_errors, 0u);
    expect_all_with_more_memory(*context, data, 12, written);
    return ChildEnd();
  }));
}

}  // namespace
}  // namespace tiermem::test
