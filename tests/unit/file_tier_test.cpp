// Adopted files, tested through the tier's own interface. Goal: reads return every byte of the
// range as in the file and zeros past its end. Once the file differs from the adopted one, they
// return an error and never other bytes. Failing reads are in file_tier_faults_test.cpp.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "file_tier_fixture.hpp"
#include "in_child.hpp"

namespace tiermem {
namespace {

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST_F(FileTierTest, files_of_any_length_are_read_to_their_last_byte_and_zeros_follow) {
  for (const std::uint64_t size :
       {std::uint64_t{1}, std::uint64_t{511}, std::uint64_t{512}, kBlock - 1, kBlock, kBlock + 1,
        2 * kMiB - 1, 2 * kMiB, 2 * kMiB + 1, 5 * kMiB + 123}) {
    const std::string path = file("sized", size);
    const FileTier::Adopted adopted = adopt(path);
    EXPECT_EQ(adopted.begin, 0U);
    EXPECT_EQ(adopted.length, size);
    for (const std::uint64_t extent : {kBlock, 64 * kKiB, 2 * kMiB, 8 * kMiB}) {
      if (size / extent < 100) {
        expect_whole(adopted, size, extent);
      }
    }
    tier_.free(adopted.base);
  }
}

TEST_F(FileTierTest, a_file_that_is_adopted_by_its_descriptor_has_its_name_in_messages) {
  const std::string path = file("named", kBlock);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  for (const std::string folder : {"/proc/self/fd/", "/dev/fd/"}) {
    const FileTier::Adopted adopted = adopt(folder + std::to_string(fd));
    EXPECT_EQ(tier_.name(adopted.base), path);
    tier_.free(adopted.base);
  }
  ::close(fd);
}

TEST_F(FileTierTest, parts_are_copied_as_they_are_in_the_file_with_zeros_behind_its_end) {
  constexpr std::uint64_t kSize = 3 * kBlock + 77, kBegin = 5000;
  const std::string path = file("data", kSize);
  const FileTier::Adopted adopted = adopt(path, kBegin, 0);
  std::ifstream in(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  bytes.resize(8 * kBlock, '\0');
  for (const auto& [offset, length] : {std::pair{std::uint64_t{0}, std::uint64_t{1}},
                                       {904, 2 * kBlock},
                                       {kSize - adopted.begin - 1, 10},
                                       {kSize - adopted.begin, kBlock},
                                       {4 * kBlock, kBlock}}) {
    std::string got(length, 'x');
    const Status copied = tier_.copy(adopted.base, offset, got.data(), length);
    ASSERT_TRUE(copied.ok()) << copied.message();
    EXPECT_EQ(got, bytes.substr(adopted.begin + offset, length)) << offset;
  }
  std::filesystem::resize_file(path, kSize - 1);
  std::string got(10, 'x');
  const Status refused = tier_.copy(adopted.base, 0, got.data(), got.size());
  EXPECT_EQ(refused.code(), Code::io_error);
  EXPECT_NE(std::string(refused.message()).find(path), std::string::npos) << refused.message();
  EXPECT_EQ(got, "xxxxxxxxxx");
  tier_.free(adopted.base);
}

TEST_F(FileTierTest, a_range_may_begin_and_end_anywhere_in_the_file) {
  constexpr std::uint64_t kSize = 9 * kBlock + 77;
  const std::string path = file("data", kSize);
  for (const auto& [offset, length] : {std::pair{std::uint64_t{0}, std::uint64_t{1}},
                                       {1, 1},
                                       {kBlock - 1, 2},
                                       {5000, 3000},
                                       {5000, 0},
                                       {kBlock, kBlock},
                                       {kSize - 1, 1},
                                       {kSize - 1, 0},
                                       {9 * kBlock, 77}}) {
    const FileTier::Adopted adopted = adopt(path, offset, length);
    EXPECT_EQ(adopted.begin, offset / kBlock * kBlock);
    EXPECT_EQ(adopted.length, length != 0 ? length : kSize - offset);
    expect_whole(adopted, kSize, kBlock);
    expect_whole(adopted, kSize, 64 * kKiB);
    tier_.free(adopted.base);
  }
}

TEST_F(FileTierTest, whole_blocks_are_read_direct_and_the_rest_through_the_page_cache) {
  const std::string path = file("data", 5 * kMiB + 100);
  const int direct = ::open(path.c_str(), O_RDONLY | O_DIRECT);
  if (direct < 0) {
    GTEST_SKIP() << "O_DIRECT is refused on " << path;
  }
  ::close(direct);
  const FileTier::Adopted adopted = adopt(path);
  const Bytes bytes = pattern(8 * kMiB, 0);
  ASSERT_EQ(read(adopted.base, bytes.get(), 8 * kMiB).code, Code::ok);
  ASSERT_EQ(port_.log.size(), 4U);
  for (const IoRequest& request : port_.log) {
    EXPECT_EQ(request.buffered, request.length == 100);
    EXPECT_LE(request.length, 2 * kMiB);
    const std::uint64_t bits =
        reinterpret_cast<std::uintptr_t>(request.data) | request.offset | request.length;
    EXPECT_TRUE(request.buffered || bits % kBlock == 0);
  }
}

TEST_F(FileTierTest, a_file_in_memory_is_read_too) {
  struct statfs fs {};
  if (::statfs("/dev/shm", &fs) != 0 || fs.f_type != TMPFS_MAGIC || ::access("/dev/shm", W_OK)) {
    GTEST_SKIP() << "/dev/shm is not a writable tmpfs";
  }
  const test::Directory memory("/dev/shm");
  const std::string path = memory.path() + "/data";
  std::filesystem::copy_file(file("data", 2 * kMiB + 7), path);
  expect_whole(adopt(path, 4097), 2 * kMiB + 7, 64 * kKiB);
}

TEST_F(FileTierTest, ranges_that_are_not_inside_are_refused_with_path_size_and_range) {
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  const std::string path = file("data", 10'000);
  const std::string empty = file("empty", 0);
  const std::size_t before = open_descriptors();
  for (const auto& [offset, length] : {std::pair{std::uint64_t{10'000}, std::uint64_t{0}},
                                       {10'001, 0},
                                       {10'000, 1},
                                       {0, 10'001},
                                       {9'999, 2},
                                       {kMost, 1},
                                       {1, kMost},
                                       {kMost, kMost}}) {
    const auto adopted = tier_.adopt(path.c_str(), offset, length);
    EXPECT_EQ(adopted.code(), Code::invalid_argument) << offset << " " << length;
    for (const std::string& part :
         {path, std::string("10000 bytes"), std::to_string(offset), std::to_string(length)}) {
      EXPECT_TRUE(says(adopted.message(), part)) << adopted.message();
    }
  }
  const auto none = tier_.adopt(empty.c_str(), 0, 0);
  EXPECT_EQ(none.code(), Code::invalid_argument);
  EXPECT_TRUE(says(none.message(), empty)) << none.message();
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(FileTierTest, what_is_no_readable_file_is_refused_by_name) {
  const std::size_t before = open_descriptors();
  const std::string plain = file("plain", 10);
  const std::string loop = directory_.path() + "/loop";
  std::filesystem::create_symlink(loop, loop);
  struct Case {
    std::string path;
    int native;
    const char* word;
  };
  for (const Case& one :
       {Case{directory_.path() + "/missing", ENOENT, "No such file"},
        Case{directory_.path(), EISDIR, "directory"},
        Case{plain + "/below", ENOTDIR, "Not a directory"}, Case{loop, ELOOP, "symbolic links"}}) {
    const auto adopted = tier_.adopt(one.path.c_str(), 0, 0);
    ASSERT_FALSE(adopted.ok()) << one.path;
    EXPECT_EQ(adopted.status().info()->native, one.native);
    EXPECT_TRUE(says(adopted.message(), one.path)) << adopted.message();
    EXPECT_TRUE(says(adopted.message(), one.word)) << adopted.message();
  }
  EXPECT_EQ(tier_.adopt((directory_.path() + "/missing").c_str(), 0, 0).code(),
            Code::invalid_argument);
  const auto device = tier_.adopt("/dev/null", 0, 0);
  EXPECT_EQ(device.code(), Code::invalid_argument);
  EXPECT_TRUE(says(device.message(), "not a regular file")) << device.message();
  EXPECT_FALSE(says(device.message(), "Is a directory")) << device.message();
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(FileTierTest, a_file_without_permission_is_refused_by_name) {
  const std::string path = file("secret", 10);
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  EXPECT_TRUE(in_child([&] {
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) {
      return false;
    }
    const auto adopted = tier_.adopt(path.c_str(), 0, 0);
    return adopted.code() == Code::io_error && adopted.status().info()->native == EACCES &&
           says(adopted.message(), path);
  }));
}

// Opening a FIFO for reading blocks until it has a writer.
TEST_F(FileTierTest, a_fifo_is_refused_and_not_waited_for) {
  const std::string path = directory_.path() + "/fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_TRUE(in_child([&] {
    const auto adopted = tier_.adopt(path.c_str(), 0, 0);
    return adopted.code() == Code::invalid_argument &&
           says(adopted.message(), "not a regular file") && says(adopted.message(), path);
  }));
}

TEST_F(FileTierTest, descriptors_are_given_back_and_files_keep_their_names) {
  const std::size_t before = open_descriptors();
  {
    FileTier tier(port_, 8);
    std::vector<std::pair<std::string, SlotId>> live;
    std::mt19937 random(3);
    for (int i = 0; i < 200; ++i) {
      if (live.size() < 20) {
        const std::string path = file("file" + std::to_string(i), 100);
        const auto adopted = tier.adopt(path.c_str(), 0, 0);
        ASSERT_TRUE(adopted.ok()) << adopted.message();
        live.emplace_back(path, adopted->base);
      } else {
        std::swap(live[random() % live.size()], live.back());
        tier.free(live.back().second);
        live.pop_back();
      }
      for (const auto& [path, slot] : live) {
        ASSERT_EQ(tier.device_name(tier.device_of(slot)), path);
      }
      ASSERT_LE(open_descriptors(), before + 2 * live.size());
    }
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(FileTierTest, files_are_adopted_by_many_threads_while_others_are_read) {
  const std::string path = file("data", 3 * kBlock + 5);
  const FileTier::Adopted mine = adopt(path);
  std::vector<std::thread> threads;
  std::vector<std::vector<SlotId>> theirs(4);
  for (auto& slots : theirs) {
    threads.emplace_back([&] {
      for (int i = 0; i < 30; ++i) {
        const auto adopted = tier_.adopt(path.c_str(), kBlock, 0);
        ASSERT_TRUE(adopted.ok()) << adopted.message();
        slots.push_back(adopted->base);
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    expect_whole(mine, 3 * kBlock + 5, 64 * kKiB);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const auto& slots : theirs) {
    for (const SlotId slot : slots) {
      expect_whole({slot, kBlock, 2 * kBlock + 5}, 3 * kBlock + 5, kBlock);
      tier_.free(slot);
    }
  }
}

// ---- A file that has changed -------------------------------------------------------------------

struct Change {
  const char* name;
  std::function<void(const std::string& path)> make;
};
void PrintTo(const Change& change, std::ostream* out) {
  *out << change.name;
}

class ChangedFile : public FileTierTest, public ::testing::WithParamInterface<Change> {
 protected:
  const std::string path_ = file("data", kMiB);
};

TEST_P(ChangedFile, is_an_error_that_names_the_file) {
  const FileTier::Adopted adopted = adopt(path_);
  expect_whole(adopted, kMiB, 64 * kKiB);
  GetParam().make(path_);
  const Bytes bytes = pattern(kMiB, 0);
  const SlotCompletion completion = read(adopted.base, bytes.get(), kMiB);
  EXPECT_EQ(completion.code, Code::io_error);
  EXPECT_EQ(completion.native, ESTALE);
  EXPECT_EQ(tier_.device_name(completion.device), path_);
  // The file that is now at the path can be adopted like any other.
  if (std::filesystem::exists(path_) && std::filesystem::file_size(path_) != 0) {
    const FileTier::Adopted again = adopt(path_);
    EXPECT_EQ(read(again.base, bytes.get(), kMiB).code, Code::ok);
  }
}

TEST_P(ChangedFile, is_an_error_when_it_happens_during_the_read) {
  const FileTier::Adopted adopted = adopt(path_, 0, 0);
  port_.script = [&](std::size_t n, const IoRequest&) {
    if (n == 0) {
      GetParam().make(path_);
    }
    return ScriptedIoPort::Answer{};
  };
  const Bytes bytes = pattern(kMiB, 0);
  const SlotCompletion completion = read(adopted.base, bytes.get(), kMiB);
  EXPECT_EQ(completion.code, Code::io_error);
  EXPECT_EQ(completion.native, ESTALE) << "the errno of a read of a changed file is not the cause";
}

void overwrite(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY);
  EXPECT_EQ(::pwrite(fd, "other", 5, 70'000), 5);
  ::close(fd);
}

INSTANTIATE_TEST_SUITE_P(
    by, ChangedFile,
    ::testing::Values(
        Change{"overwrite", overwrite},
        Change{"another_modification_time",
               [](const std::string& path) {
                 const timespec times[2] = {{0, UTIME_OMIT}, {1000, 0}};
                 EXPECT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
               }},
        Change{"growth",
               [](const std::string& path) {
                 std::ofstream(path, std::ios::binary | std::ios::app) << "more";
               }},
        Change{"truncation",
               [](const std::string& path) { std::filesystem::resize_file(path, kBlock + 5); }},
        Change{"truncation_to_nothing",
               [](const std::string& path) { std::filesystem::resize_file(path, 0); }}),
    [](const auto& i) { return std::string(i.param.name); });

TEST_F(FileTierTest, a_deleted_file_keeps_its_bytes) {
  const std::string path = file("data", kMiB);
  const FileTier::Adopted adopted = adopt(path);
  expect_whole(adopted, kMiB, 64 * kKiB);
  std::filesystem::remove(path);
  expect_whole(adopted, kMiB, 64 * kKiB);
}

TEST_F(FileTierTest, a_file_whose_name_was_given_to_another_keeps_its_bytes) {
  const std::string path = file("data", kMiB);
  const FileTier::Adopted adopted = adopt(path);
  std::ofstream(path + ".new", std::ios::binary) << std::string(kMiB, 'n');
  std::filesystem::rename(path + ".new", path);
  expect_whole(adopted, kMiB, 64 * kKiB);
}

// The mover compares the bytes: FaultsFound.L09_*.
TEST_F(FileTierTest, other_rights_links_and_times_of_access_are_no_change) {
  const std::string path = file("data", kMiB);
  const FileTier::Adopted adopted = adopt(path);
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  std::filesystem::create_hard_link(path, path + ".link");
  EXPECT_EQ(::chown(path.c_str(), ::getuid(), ::getgid()), 0);
  const timespec times[2] = {{1000, 0}, {0, UTIME_OMIT}};
  EXPECT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  expect_whole(adopted, kMiB, 64 * kKiB);
}

TEST_F(FileTierTest, without_proc_all_reads_are_buffered_and_right) {
  const std::string path = file("data", kMiB + 5);
  const bool well = in_child([&] {
    if (::chroot(directory_.path().c_str()) != 0) {
      return errno == EPERM;  // Without /proc an ordinary user cannot do this.
    }
    const auto adopted = tier_.adopt("/data", 0, 0);
    const Bytes bytes = pattern(2 * kMiB, 0);
    const SlotCompletion read_all =
        adopted.ok() ? read(adopted->base, bytes.get(), 2 * kMiB) : SlotCompletion{};
    return adopted.ok() && read_all.code == Code::ok && read_all.buffered;
  });
  EXPECT_TRUE(well);
}

TEST_F(FileTierTest, reading_a_file_elsewhere_changes_nothing) {
  const std::string path = file("data", kMiB);
  const FileTier::Adopted adopted = adopt(path);
  std::ifstream(path).get();
  expect_whole(adopted, kMiB, 2 * kMiB);
}

}  // namespace
}  // namespace tiermem
