// Devices of the block tier on real file systems: which devices are refused, direct and buffered
// reads, the physical cap, and that no file stays on the disk.

#include "os/block_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "in_child.hpp"
#include "support/directory.hpp"
#include "support/loop_device.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

using test::Directory;

bool empty(const Directory& directory) {
  return std::filesystem::is_empty(directory.path());
}

BlockFileOptions at(const std::string& path, std::uint64_t limit) {
  BlockFileOptions options;
  options.path = path;
  options.limit = limit;
  options.reserve_free_bytes = 0;
  return options;
}

std::uint64_t physical(const BlockFile& file) {
  struct stat st {};
  EXPECT_EQ(::fstat(file.fd(true), &st), 0);
  return static_cast<std::uint64_t>(st.st_blocks) * 512;
}

bool contains(const char* text, const std::string& part) {
  return std::string(text).find(part) != std::string::npos;
}

TEST(BlockFile, grown_bytes_are_physical_and_the_file_has_no_name) {
  const Directory directory;
  const auto file = BlockFile::open(at(directory.path(), 8 * kMiB));
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_TRUE(empty(directory));
  EXPECT_EQ((*file)->facts().size, 0U);
  ASSERT_TRUE((*file)->grow(3 * kMiB).ok());
  EXPECT_GE(physical(**file), 3 * kMiB);
  EXPECT_EQ((*file)->facts().size, 3 * kMiB);
  EXPECT_EQ((*file)->facts().limit, 8 * kMiB);
  EXPECT_TRUE(empty(directory));
}

TEST(BlockFile, without_tmpfile_and_fallocate_the_promises_are_the_same) {
  const Directory directory;
  BlockFileOptions options = at(directory.path(), 8 * kMiB);
  options.test_without_tmpfile = true;
  options.test_without_fallocate = true;
  const auto file = BlockFile::open(options);
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_TRUE(empty(directory));
  ASSERT_TRUE((*file)->grow(3 * kMiB + 4096).ok());
  EXPECT_GE(physical(**file), 3 * kMiB + 4096);
}

TEST(BlockFile, both_descriptors_are_the_same_file) {
  const Directory directory;
  for (const bool named : {false, true}) {
    BlockFileOptions options = at(directory.path(), kMiB);
    options.test_without_tmpfile = named;
    const auto file = BlockFile::open(options);
    ASSERT_TRUE(file.ok()) << file.message();
    struct stat direct {};
    struct stat buffered {};
    ASSERT_EQ(::fstat((*file)->fd(false), &direct), 0);
    ASSERT_EQ(::fstat((*file)->fd(true), &buffered), 0);
    EXPECT_EQ(direct.st_ino, buffered.st_ino);
    EXPECT_EQ(direct.st_dev, buffered.st_dev);
    EXPECT_EQ(direct.st_mode & 0777, 0600U);
    EXPECT_EQ((*file)->fd(false) != (*file)->fd(true), (*file)->facts().direct);
  }
}

#ifdef STATX_DIOALIGN
TEST(BlockFile, blocks_are_as_large_as_the_kernel_asks_for) {
  const Directory directory;
  const auto file = BlockFile::open(at(directory.path(), 8 * kMiB));
  ASSERT_TRUE(file.ok()) << file.message();
  const DeviceFacts facts = (*file)->facts();
  struct statx told {};
  if (!facts.direct || ::statx((*file)->fd(false), "", AT_EMPTY_PATH, STATX_DIOALIGN, &told) != 0 ||
      (told.stx_mask & STATX_DIOALIGN) == 0) {
    GTEST_SKIP() << "the kernel does not tell";
  }
  EXPECT_EQ(facts.block_bytes, std::max({512u, told.stx_dio_offset_align, told.stx_dio_mem_align}));
}
#endif

TEST(BlockFile, the_limit_is_an_error_that_names_directory_limit_and_setting) {
  const Directory directory;
  const auto file = BlockFile::open(at(directory.path(), 2 * kMiB + 5));
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_EQ((*file)->facts().limit, 2 * kMiB) << "whole slots only";
  ASSERT_TRUE((*file)->grow(2 * kMiB).ok());
  const Status status = (*file)->grow(2 * kMiB + 4096);
  ASSERT_EQ(status.code(), Code::no_capacity);
  EXPECT_TRUE(contains(status.message(), (*file)->facts().name)) << status.message();
  EXPECT_TRUE(contains(status.message(), "2.00 MiB")) << status.message();
  EXPECT_STREQ(status.info()->setting, "nvme=DIR:SIZE");
  EXPECT_EQ((*file)->facts().size, 2 * kMiB);
}

TEST(BlockFile, the_reserve_of_the_file_system_stays_free) {
  const Directory directory;
  BlockFileOptions options = at(directory.path(), 8 * kMiB);
  options.reserve_free_bytes = std::uint64_t{1} << 60;
  const auto file = BlockFile::open(options);
  ASSERT_TRUE(file.ok()) << file.message();
  const Status status = (*file)->grow(4096);
  ASSERT_EQ(status.code(), Code::no_capacity);
  EXPECT_EQ(status.info()->native, ENOSPC);
  EXPECT_TRUE(contains(status.message(), "free")) << status.message();
  EXPECT_EQ((*file)->facts().size, 0U);
}

TEST(BlockFile, paths_that_are_no_device_are_refused_by_name) {
  const Directory directory;
  const std::string missing = directory.path() + "/missing";
  const auto none = BlockFile::open(at(missing, kMiB));
  EXPECT_EQ(none.code(), Code::invalid_argument);
  EXPECT_TRUE(contains(none.message(), missing)) << none.message();
  EXPECT_EQ(none.status().info()->native, ENOENT);

  const std::string plain = directory.path() + "/plain";
  std::ofstream(plain) << "mine";
  const auto file = BlockFile::open(at(plain, kMiB));
  EXPECT_EQ(file.code(), Code::invalid_argument);
  EXPECT_TRUE(contains(file.message(), "neither a directory nor a block device"));
  EXPECT_EQ(std::filesystem::file_size(plain), 4U);

  const auto empty = BlockFile::open(at(directory.path(), 4095));
  EXPECT_EQ(empty.code(), Code::invalid_argument);
  EXPECT_TRUE(contains(empty.message(), "4096")) << empty.message();
}

TEST(BlockFile, a_directory_without_permission_is_unavailable) {
  const Directory directory;
  ASSERT_EQ(::chmod(directory.path().c_str(), 0555), 0);
  EXPECT_TRUE(in_child([&] {
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) {
      return false;
    }
    const auto file = BlockFile::open(at(directory.path(), kMiB));
    return file.code() == Code::unavailable && file.status().info()->native == EACCES;
  }));
}

TEST(BlockFile, the_file_size_limit_of_the_process_is_an_error_and_not_a_signal) {
  const Directory directory;
  EXPECT_TRUE(in_child([&] {
    const rlimit small{kMiB, kMiB};
    ::setrlimit(RLIMIT_FSIZE, &small);
    const auto file = BlockFile::open(at(directory.path(), 8 * kMiB));
    return file.ok() && (*file)->grow(kMiB).ok() &&
           (*file)->grow(2 * kMiB).code() == Code::no_capacity;
  }));
}

TEST(BlockFile, a_file_system_in_memory_is_buffered_and_says_so) {
  struct statfs fs {};
  if (::statfs("/dev/shm", &fs) != 0 || fs.f_type != TMPFS_MAGIC) {
    GTEST_SKIP() << "/dev/shm is not a tmpfs here";
  }
  const Directory directory("/dev/shm");
  BlockFileOptions options = at(directory.path(), kMiB);
  const auto file = BlockFile::open(options);
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_FALSE((*file)->facts().direct);
  EXPECT_TRUE(contains((*file)->facts().reason, "memory"));
  EXPECT_TRUE((*file)->grow(kMiB).ok());
  options.require_direct = true;
  const auto required = BlockFile::open(options);
  EXPECT_EQ(required.code(), Code::unsupported);
  EXPECT_TRUE(contains(required.message(), "direct I/O is required")) << required.message();
}

TEST(BlockFile, a_full_file_system_refuses_growth_and_keeps_what_was_there) {
  const Directory directory;
  if (::mount("tiermem-test", directory.path().c_str(), "tmpfs", 0, "size=4m") != 0) {
    GTEST_SKIP() << "mounting is not permitted: " << strerror(errno);
  }
  for (const bool zeros : {false, true}) {
    BlockFileOptions options = at(directory.path(), 64 * kMiB);
    options.test_without_fallocate = zeros;
    const auto file = BlockFile::open(options);
    ASSERT_TRUE(file.ok()) << file.message();
    ASSERT_TRUE((*file)->grow(kMiB).ok());
    EXPECT_EQ((*file)->grow(16 * kMiB).code(), Code::no_capacity);
    std::ofstream other(directory.path() + "/other", std::ios::binary);
    other << std::string(2 * kMiB, 'x') << std::flush;
    EXPECT_EQ((*file)->grow(3 * kMiB).code(), Code::no_capacity);
    EXPECT_EQ((*file)->facts().size, kMiB);
    EXPECT_EQ(physical(**file), kMiB);
    std::filesystem::remove(directory.path() + "/other");
    other.close();
    EXPECT_TRUE((*file)->grow(3 * kMiB).ok());
  }
  EXPECT_EQ(::umount2(directory.path().c_str(), MNT_DETACH), 0);
}

TEST(BlockFile, a_raw_device_has_its_own_size_as_limit) {
  const Directory directory;
  const test::LoopDevice device(directory.path() + "/backing", 2 * kMiB + 512);
  if (!device.why_not().empty()) {
    GTEST_SKIP() << device.why_not();
  }
  const auto file = BlockFile::open(at(device.path(), 0));
  ASSERT_TRUE(file.ok()) << file.message();
  const DeviceFacts facts = (*file)->facts();
  EXPECT_EQ(facts.limit, 2 * kMiB);
  EXPECT_EQ(device.path(), facts.name);
  ASSERT_TRUE((*file)->grow(2 * kMiB).ok());
  EXPECT_EQ((*file)->grow(2 * kMiB + 4096).code(), Code::no_capacity);
  const std::string data(4096, 'd');
  ASSERT_EQ(::pwrite((*file)->fd(true), data.data(), data.size(), kMiB), 4096);
  alignas(4096) static char back[4096];
  ASSERT_EQ(::pread((*file)->fd(false), back, sizeof(back), kMiB), 4096) << strerror(errno);
  EXPECT_EQ(std::string(back, sizeof(back)), data);
  EXPECT_EQ(BlockFile::open(at(device.path(), 0)).code(), Code::unavailable)
      << "claimed by the first";
}

TEST(BlockFile, has_a_name_for_those_who_open_it_once_more) {
  const Directory directory;
  BlockFileOptions options = at(directory.path(), 8 * kMiB);
  options.nameable = true;
  const auto file = BlockFile::open(options);
  ASSERT_TRUE(file.ok()) << file.message();
  int own = -1;
  const Status named = (*file)->with_name([&](int descriptor) -> Status {
    own = descriptor;
    const auto name = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor));
    struct stat by_name {};
    struct stat ours {};
    EXPECT_EQ(::stat(name.c_str(), &by_name), 0) << name << ": " << strerror(errno);
    EXPECT_EQ(::fstat((*file)->fd(true), &ours), 0);
    EXPECT_EQ(by_name.st_ino, ours.st_ino);
    EXPECT_NE(::fcntl(descriptor, F_GETFL) & O_DIRECT, 0);
    return fail(Code::unsupported, "as the body says");
  });
  EXPECT_EQ(named.code(), Code::unsupported);
  EXPECT_TRUE(empty(directory));
  ASSERT_TRUE((*file)->grow(2 * kMiB).ok());
  struct stat by_descriptor {};
  ASSERT_EQ(::fstat(own, &by_descriptor), 0);
  EXPECT_EQ(static_cast<std::uint64_t>(by_descriptor.st_size), 2 * kMiB);
  ::close(own);
}

TEST(BlockFile, that_can_have_no_name_says_so) {
  const Directory directory;
  const auto unwilling = BlockFile::open(at(directory.path(), 8 * kMiB));
  ASSERT_TRUE(unwilling.ok());
  BlockFileOptions options = at(directory.path(), 8 * kMiB);
  options.nameable = options.test_without_tmpfile = true;
  const auto removed = BlockFile::open(options);
  ASSERT_TRUE(removed.ok());
  for (const auto* const file : {&unwilling, &removed}) {
    const Status status = (**file)->with_name([](int) -> Status {
      ADD_FAILURE() << "there is none";
      return {};
    });
    EXPECT_EQ(status.info()->native, ENOENT);
    EXPECT_TRUE(contains(status.message(), "cannot give a file without a name one"))
        << status.message();
    EXPECT_TRUE(empty(directory));
  }
}

TEST(BlockFile, a_killed_process_leaves_nothing_behind) {
  const Directory directory;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto file = BlockFile::open(at(directory.path(), 4 * kMiB));
    const char ok = file.ok() && (*file)->grow(4 * kMiB).ok() ? 'y' : 'n';
    if (::write(ready[1], &ok, 1) == 1) {
      ::pause();
    }
    ::_exit(1);
  }
  char answer = 0;
  ASSERT_EQ(::read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
  EXPECT_TRUE(empty(directory));
}

}  // namespace
}  // namespace tiermem
