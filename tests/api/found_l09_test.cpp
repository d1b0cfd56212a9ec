// Fault L9: the change time of an adopted file was compared. After chmod, chown, another link, a
// rename or a new access time, every later read was an error. A file is now identified by device,
// inode, size and modification time, and by the checksums of bytes that were read before.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/directory.hpp"
#include "support/made.hpp"
#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

constexpr std::size_t kFile = 3 * kMiB + 5000;

/// A file with known bytes that is adopted, read, and evicted.
struct AdoptedFile {
  AdoptedFile() {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<char>(i * 31 + i / 4096);
    }
    std::ofstream(path, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    context = make_context("dram=16M; nvme=" + directory.path() + ":64M");
    auto adopted = context->adopt_file(path.c_str(), 0, 0, {.label = "weights"});
    EXPECT_TRUE(adopted.ok()) << adopted.message();
    buffer = std::move(adopted).value();
  }
  Status read() {
    auto view = buffer.acquire(kRead);
    if (!view.ok()) {
      return std::move(view).status();
    }
    EXPECT_EQ(std::memcmp(view->data(), bytes.data(), bytes.size()), 0);
    return {};
  }
  Directory directory;
  std::string path = directory.path() + "/weights";
  std::vector<char> bytes = std::vector<char>(kFile);
  std::unique_ptr<Context> context;
  Buffer buffer;
};

TEST(FaultsFound, L09_adopted_file_gets_other_names_or_rights_then_its_bytes_are_read) {
  struct Change {
    const char* name;
    std::function<int(const std::string& path)> make;
  };
  const Change changes[] = {
      {"chmod", [](const std::string& path) { return ::chmod(path.c_str(), 0400); }},
      {"chown",
       [](const std::string& path) { return ::chown(path.c_str(), ::getuid(), ::getgid()); }},
      {"further hard link",
       [](const std::string& path) { return ::link(path.c_str(), (path + ".link").c_str()); }},
      {"one link less", [](const std::string& path) { return ::unlink((path + ".link").c_str()); }},
      {"touch -a",
       [](const std::string& path) {
         const timespec times[2] = {{1000, 0}, {0, UTIME_OMIT}};
         return ::utimensat(AT_FDCWD, path.c_str(), times, 0);
       }},
      {"rename",
       [](const std::string& path) { return std::rename(path.c_str(), (path + ".old").c_str()); }},
      {"its name for another file",
       [](const std::string& path) {
         std::ofstream(path) << "other";
         return 0;
       }},
      {"unlink", [](const std::string& path) { return ::unlink((path + ".old").c_str()); }},
  };
  AdoptedFile file;
  ASSERT_TRUE(file.read().ok());
  for (const Change& change : changes) {
    ASSERT_TRUE(file.buffer.evict().ok());
    ASSERT_EQ(change.make(file.path), 0) << change.name << ": " << std::strerror(errno);
    const Status read = file.read();
    EXPECT_TRUE(read.ok()) << change.name << ": " << read.message();
  }
}

/// Writes other bytes at `offset`, and restores the modification time.
void change_secretly(const std::string& path, off_t offset) {
  struct stat before {};
  ASSERT_EQ(::stat(path.c_str(), &before), 0);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_EQ(::pwrite(fd, "other bytes", 11, offset), 11);
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(::futimens(fd, times), 0);
  ::close(fd);
  struct stat after {};
  ASSERT_EQ(::stat(path.c_str(), &after), 0);
  ASSERT_EQ(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
}

TEST(FaultsFound, L09_bytes_change_under_the_old_time_then_a_second_read_is_an_error) {
  AdoptedFile file;
  ASSERT_TRUE(file.read().ok());
  ASSERT_TRUE(file.buffer.evict().ok());
  change_secretly(file.path, 70'000);
  auto view = file.buffer.acquire(kRead, 0, 1);
  ASSERT_EQ(view.code(), Code::io_error);
  EXPECT_SAYS(view, "weights");
  EXPECT_SAYS(view, "the file has changed");
  EXPECT_SAYS(view, "adopt it again");
  // The other extent is unchanged.
  auto other = file.buffer.acquire(kRead, 2 * kMiB, 1000);
  ASSERT_TRUE(other.ok()) << other.message();
  EXPECT_EQ(std::memcmp(other->data(), file.bytes.data() + 2 * kMiB, 1000), 0);
  other->release();
  // The changed file can be adopted.
  auto again = file.context->adopt_file(file.path.c_str());
  ASSERT_TRUE(again.ok()) << again.message();
  EXPECT_TRUE(again->acquire(kRead).ok());
}

// No view has read these rows. The first gather records the blocks' checksums, and later reads
// compare them.
TEST(FaultsFound, L09_rows_change_under_the_old_time_then_a_second_read_is_an_error) {
  AdoptedFile file;
  const std::uint64_t rows[] = {0, 70'000 / 64, 2 * kMiB / 64};
  std::array<char, 3 * 64> got{};
  ASSERT_TRUE(file.buffer.gather(64, rows, got.data()).ok());
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(std::memcmp(got.data() + i * 64, file.bytes.data() + rows[i] * 64, 64), 0);
  }
  change_secretly(file.path, 70'000);
  const Status again = file.buffer.gather(64, rows, got.data());
  EXPECT_EQ(again.code(), Code::io_error) << again.message();
  EXPECT_TRUE(std::string(again.message()).find("the file has changed") != std::string::npos)
      << again.message();
  EXPECT_EQ(file.buffer.acquire(kRead, 70'000, 1).code(), Code::io_error);
  // A block of the same extent that was never read, and the other extent.
  EXPECT_TRUE(file.buffer.gather(64, std::array<std::uint64_t, 1>{kMiB / 64}, got.data()).ok());
  EXPECT_TRUE(file.buffer.acquire(kRead, 2 * kMiB, 1).ok());
}

TEST(FaultsFound, L09_size_or_modification_time_changes_then_a_read_is_an_error) {
  const std::array<std::function<void(const std::string& path)>, 3> changes = {
      [](const std::string& path) { std::ofstream(path, std::ios::app) << "more"; },
      [](const std::string& path) { ASSERT_EQ(::truncate(path.c_str(), 4096), 0); },
      [](const std::string& path) {
        const timespec times[2] = {{0, UTIME_OMIT}, {1000, 0}};
        ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
      }};
  for (const auto& change : changes) {
    AdoptedFile file;
    ASSERT_TRUE(file.read().ok());
    ASSERT_TRUE(file.buffer.evict().ok());
    change(file.path);
    auto view = file.buffer.acquire(kRead);
    EXPECT_EQ(view.code(), Code::io_error);
    EXPECT_SAYS(view, "the file has changed");
  }
}

}  // namespace
}  // namespace tiermem::test
