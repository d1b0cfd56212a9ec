// Files of the block tier when one system call fails: the error, the fallback, and that no file
// stays on the disk or open. Method: a child of the test makes the call fail.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "in_child.hpp"
#include "os/block_file.hpp"
#include "os/file_identity.hpp"
#include "os/handed_descriptors.hpp"
#include "support/answered_calls.hpp"
#include "support/directory.hpp"

namespace tiermem {
namespace {

using test::answer_calls;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

bool contains(const Status& status, const std::string& part) {
  return std::string(status.message()).find(part) != std::string::npos;
}

int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 256; ++fd) {
    count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  }
  return count;
}

class BlockFileFaults : public testing::Test {
 protected:
  ~BlockFileFaults() override { EXPECT_TRUE(std::filesystem::is_empty(directory_.path())); }

  /// Runs `body` in a child; its failed expectations fail the test.
  static bool holds_in_child(const std::function<void()>& body) {
    return in_child([&] {
      body();
      return !HasFailure();
    });
  }
  std::unique_ptr<BlockFile> open() const {
    auto file = BlockFile::open(options_);
    EXPECT_TRUE(file.ok()) << file.message();
    return file.ok() ? std::move(*file) : nullptr;
  }
  std::string path(const std::string& name) const { return directory_.path() + "/" + name; }

  const test::Directory directory_;
  BlockFileOptions options_{.path = directory_.path(), .limit = 8 * kMiB, .reserve_free_bytes = 0};
};

TEST_F(BlockFileFaults, zeros_are_not_written_then_the_file_does_not_grow) {
  options_.test_without_fallocate = true;
  for (const int error : {0, EIO, ENOSPC}) {  // 0: no byte is written, and no error is returned.
    EXPECT_TRUE(holds_in_child([&] {
      const auto file = open();
      ASSERT_TRUE(file->grow(kMiB).ok());
      ASSERT_TRUE(answer_calls(SYS_pwrite64, error));
      const Status grown = file->grow(2 * kMiB);
      EXPECT_EQ(grown.code(), error == ENOSPC ? Code::no_capacity : Code::io_error);
      EXPECT_EQ(grown.info()->native, error == 0 ? EIO : error);
      EXPECT_TRUE(error == ENOSPC || contains(grown, "preallocating 1.00 MiB at offset 1048576"))
          << grown.message();
      EXPECT_EQ(file->facts().size, kMiB);
      EXPECT_EQ(::lseek(file->fd(true), 0, SEEK_END), static_cast<off_t>(kMiB));
    })) << error;
  }
}

TEST_F(BlockFileFaults, zeros_do_not_reach_the_disk_then_the_file_does_not_grow) {
  options_.test_without_fallocate = true;
  EXPECT_TRUE(holds_in_child([&] {
    const auto file = open();
    ASSERT_TRUE(answer_calls(SYS_fdatasync, EIO));
    const Status grown = file->grow(kMiB);
    EXPECT_EQ(grown.code(), Code::io_error);
    EXPECT_EQ(grown.info()->native, EIO);
    EXPECT_EQ(file->facts().size, 0u);
  }));
}

TEST_F(BlockFileFaults, preallocation_is_refused_then_the_cause_decides) {
  struct Case {
    int error;
    Code code;
  };
  for (const Case& each :
       {Case{EOPNOTSUPP, Code::ok}, Case{ENOSYS, Code::ok}, Case{EINTR, Code::io_error},
        Case{EIO, Code::io_error}, Case{ENOSPC, Code::no_capacity}, Case{EDQUOT, Code::no_capacity},
        Case{EFBIG, Code::no_capacity}}) {
    EXPECT_TRUE(holds_in_child([&] {
      const auto file = open();
      ASSERT_TRUE(answer_calls(SYS_fallocate, each.error));
      const Status grown = file->grow(kMiB);
      EXPECT_EQ(grown.code(), each.code) << grown.message();
      EXPECT_EQ(file->facts().size, grown.ok() ? kMiB : 0);
      if (!grown.ok()) {
        EXPECT_EQ(grown.info()->native, each.error);
      }
    })) << each.error;
  }
}

TEST_F(BlockFileFaults, file_cannot_be_cut_again_then_both_errors_are_told) {
  EXPECT_TRUE(holds_in_child([&] {
    const auto file = open();
    ASSERT_TRUE(answer_calls(SYS_fallocate, ENOSPC));
    ASSERT_TRUE(answer_calls(SYS_ftruncate, EROFS));
    const Status grown = file->grow(kMiB);
    EXPECT_EQ(grown.code(), Code::io_error);
    EXPECT_EQ(grown.info()->native, EROFS);
    EXPECT_TRUE(contains(grown, "cannot shrink after No space left on device: Read-only"))
        << grown.message();
  }));
}

TEST_F(BlockFileFaults, free_space_is_unknown_then_the_file_does_not_grow) {
  EXPECT_TRUE(holds_in_child([&] {
    const auto file = open();
    ASSERT_TRUE(answer_calls(SYS_fstatfs, EIO));
    const Status grown = file->grow(kMiB);
    EXPECT_EQ(grown.code(), Code::io_error);
    EXPECT_TRUE(contains(grown, "cannot read its free space")) << grown.message();
  }));
}

TEST_F(BlockFileFaults, direct_io_is_refused_then_the_file_is_buffered_or_refused) {
  EXPECT_TRUE(holds_in_child([&] {
    ASSERT_TRUE(answer_calls(SYS_openat, EINVAL, 2, O_DIRECT));
    const auto file = open();
    EXPECT_FALSE(file->facts().direct);
    EXPECT_EQ(file->facts().block_bytes, 512u);
    EXPECT_STREQ(file->facts().reason, "O_DIRECT refused: Invalid argument");
    EXPECT_EQ(file->fd(false), file->fd(true));
    options_.require_direct = true;
    const auto refused = BlockFile::open(options_);
    EXPECT_EQ(refused.code(), Code::unsupported);
    EXPECT_TRUE(contains(refused.status(), "direct I/O is required and refused: O_DIRECT refused"))
        << refused.message();
  }));
}

TEST_F(BlockFileFaults, file_is_given_no_name_then_the_error_is_told) {
  options_.nameable = true;
  struct Case {
    long number;
    const char* said;
  };
  for (const Case& each : {Case{SYS_mkdirat, "cannot give a file a name"},
                           Case{SYS_linkat, "cannot give a file without a name one"},
                           Case{SYS_openat, "cannot give a file without a name one"}}) {
    EXPECT_TRUE(holds_in_child([&] {
      const auto file = open();
      const int before = open_descriptors();
      ASSERT_TRUE(each.number == SYS_openat ? answer_calls(SYS_openat, EACCES, 2, O_DIRECTORY)
                                            : answer_calls(each.number, EACCES));
      const Status named = file->with_name([](int) -> Status {
        ADD_FAILURE() << "there is none";
        return {};
      });
      EXPECT_EQ(named.info()->native, EACCES);
      EXPECT_TRUE(contains(named, each.said)) << named.message();
      EXPECT_EQ(open_descriptors(), before);
    })) << each.number;
  }
}

TEST_F(BlockFileFaults, file_cannot_be_opened_by_its_name_then_the_error_is_told) {
  options_.nameable = true;
  EXPECT_TRUE(holds_in_child([&] {
    const auto file = open();
    const int before = open_descriptors();
    ASSERT_TRUE(answer_calls(SYS_openat, EMFILE, 2, O_DIRECT));
    const Status named = file->with_name([](int) -> Status { return {}; });
    EXPECT_EQ(named.info()->native, EMFILE);
    EXPECT_TRUE(contains(named, "cannot be opened once more")) << named.message();
    EXPECT_EQ(open_descriptors(), before);
  }));
}

// The descriptors that hand_out() passes to a program that may not create files. Set in a child.
int g_handed[kMostHanded] = {-1, -1};

int hand_out(Handed what, const char* path, int (&descriptors)[kMostHanded]) {
  if (what != Handed::scratch_file || std::string(path).empty()) {
    return 0;
  }
  std::copy_n(g_handed, kMostHanded, descriptors);
  return kMostHanded;
}

TEST_F(BlockFileFaults, file_is_handed_then_it_is_used) {
  for (const bool has_path : {true, false}) {
    EXPECT_TRUE(holds_in_child([&] {
      const int before = open_descriptors();
      g_handed[0] = ::open(directory_.path().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
      g_handed[1] = reopen(g_handed[0], O_RDWR | O_DIRECT | O_CLOEXEC);
      set_descriptor_source(hand_out);
      if (has_path) {
        ASSERT_TRUE(answer_calls(SYS_openat, EACCES, 2, O_TMPFILE & ~O_DIRECTORY & ~O_RDWR));
      }
      options_.path = has_path ? directory_.path() : path("hidden");
      {
        const auto file = open();
        ASSERT_NE(file, nullptr);
        EXPECT_TRUE(file->facts().direct || *file->facts().reason != '\0');
        EXPECT_TRUE(file->grow(kMiB).ok());
        EXPECT_EQ(identity_of(file->fd(true)), identity_of(file->fd(false)));
      }
      EXPECT_EQ(open_descriptors(), before);
    })) << has_path;
  }
}

TEST_F(BlockFileFaults, file_in_memory_is_handed_then_its_direct_descriptor_is_closed) {
  EXPECT_TRUE(holds_in_child([&] {
    const int before = open_descriptors();
    g_handed[0] = ::memfd_create("handed", MFD_CLOEXEC);
    g_handed[1] = ::dup(g_handed[0]);
    set_descriptor_source(hand_out);
    options_.path = path("hidden");
    const auto file = open();
    ASSERT_NE(file, nullptr);
    EXPECT_FALSE(file->facts().direct);
    EXPECT_EQ(file->fd(false), file->fd(true));
    EXPECT_EQ(open_descriptors(), before + 1);
  }));
}

// ---- Small files

TEST_F(BlockFileFaults, file_is_not_replaced_then_it_is_unchanged) {
  struct Case {
    long number;
    int error;
    int expected;
  };
  for (const Case& each : {Case{SYS_write, 0, ENOSPC}, Case{SYS_write, EIO, EIO},
                           Case{SYS_renameat, EXDEV, EXDEV}, Case{SYS_close, EIO, EIO}}) {
    EXPECT_TRUE(holds_in_child([&] {
      ASSERT_EQ(replace_file(path("file"), "before", 0600), 0);
      ASSERT_TRUE(answer_calls(each.number, each.error));
      EXPECT_EQ(replace_file(path("file"), "after", 0600), each.expected);
      struct stat status {};
      EXPECT_EQ(::stat(path("file").c_str(), &status), 0);
      EXPECT_EQ(status.st_size, 6);
      EXPECT_EQ(::unlink(path("file").c_str()), 0);
      EXPECT_EQ(::rmdir(directory_.path().c_str()), 0) << "a file is left";
      EXPECT_EQ(::mkdir(directory_.path().c_str(), 0700), 0);
    })) << each.number;
  }
}

TEST_F(BlockFileFaults, kernel_gives_no_random_number_then_names_differ_all_the_same) {
  EXPECT_TRUE(holds_in_child([&] {
    ASSERT_TRUE(answer_calls(SYS_getrandom, EAGAIN));
    const std::string first = random_name("a-");
    const std::string second = random_name("a-");
    EXPECT_EQ(first.size(), 2u + 16);
    EXPECT_EQ(first.substr(0, 2), "a-");
    EXPECT_NE(first, second);
  }));
}

TEST_F(BlockFileFaults, every_name_is_taken_then_creating_ends) {
  EXPECT_TRUE(holds_in_child([&] {
    ASSERT_TRUE(answer_calls(SYS_openat, EEXIST, 2, O_CREAT));
    std::string name;
    EXPECT_EQ(create_random(AT_FDCWD, "a-", 0600, name), -1);
    EXPECT_EQ(errno, EEXIST);
    EXPECT_EQ(replace_file(path("file"), "text", 0600), EEXIST);
  }));
}

}  // namespace
}  // namespace tiermem
