// Adopted files with the flag private. They have views for writing; written bytes belong to the
// buffer and go to the block tier like any buffer's. Goal: stored bytes are read back, all others
// are the file's, and the file is never written.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "support/directory.hpp"
#include "support/made.hpp"
#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

constexpr std::size_t kLead = 4096 + 24;

struct PrivateFile : ::testing::Test {
  void open(std::size_t size, const std::string& dram, const BufferOptions& options) {
    file.resize(size);
    for (std::size_t i = 0; i < size; ++i) {
      file[i] = static_cast<char>(i * 29 + i / 4096);
    }
    std::ofstream(path, std::ios::binary).write(file.data(), static_cast<std::streamsize>(size));
    context = make_context("dram=" + dram + "; nvme=" + directory.path() + ":256M");
    ASSERT_NE(context, nullptr);
    BufferOptions asked = options;
    asked.flags |= kPrivate;
    auto adopted = context->adopt_file(path.c_str(), kLead, 0, asked);
    ASSERT_TRUE(adopted.ok()) << adopted.message();
    buffer = std::move(adopted).value();
    expected.assign(file.begin() + kLead, file.end());
  }
  void store(std::size_t at, std::size_t n, char what, std::uint32_t mode = kWrite) {
    auto view = buffer.acquire(mode, at, n);
    ASSERT_TRUE(view.ok()) << view.message();
    std::memset(view->data(), what, n);
    std::memset(expected.data() + at, what, n);
  }
  void expect_bytes(std::size_t at, std::size_t n) {
    auto view = buffer.acquire(kRead, at, n);
    ASSERT_TRUE(view.ok()) << view.message();
    ASSERT_EQ(std::memcmp(view->data(), expected.data() + at, n), 0) << "at " << at;
  }
  void give_up(std::size_t at, std::size_t n) {
    const Access part{buffer.handle(), at, n, kRead, {}, 0};
    const Status given = context->advise({&part, 1}, Advice::dont_need);
    ASSERT_TRUE(given.ok()) << given.message();
    std::copy_n(file.begin() + static_cast<std::ptrdiff_t>(kLead + at), n,
                expected.begin() + static_cast<std::ptrdiff_t>(at));
  }
  void expect_file_untouched() {
    std::ifstream in(path, std::ios::binary);
    const std::vector<char> now{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(now, file);
  }
  Directory directory;
  const std::string path = directory.path() + "/weights";
  std::vector<char> file, expected;
  std::unique_ptr<Context> context;
  Buffer buffer;
};

TEST_F(PrivateFile, stores_are_evicted_then_they_come_back_and_the_file_is_not_written) {
  open(5 * kMiB + 777, "16M", {});
  store(10, 100, 'x');
  store(3 * kMiB, 5000, 'y');
  ASSERT_TRUE(buffer.evict().ok());
  EXPECT_GE(context->stats().demoted, 2 * kMiB);
  expect_bytes(0, expected.size());
  store(20, 5, 'z');  // A second time, into the existing slot.
  ASSERT_TRUE(buffer.evict().ok());
  expect_bytes(0, expected.size());
  expect_file_untouched();
}

TEST_F(PrivateFile, extents_that_nobody_stored_to_are_not_written_down) {
  open(8 * kMiB, "16M", {});
  store(0, 1, 'x');
  expect_bytes(0, expected.size());
  ASSERT_TRUE(buffer.evict().ok());
  EXPECT_LE(context->stats().demoted, 2 * kMiB);
}

TEST_F(PrivateFile, of_one_extent_is_written_like_any) {
  open(kLead + 3000, "16M", {});
  store(0, 3000, 'a', kDiscard);
  ASSERT_TRUE(buffer.evict().ok());
  expect_bytes(0, 3000);
  expect_file_untouched();
}

struct PrivateFileMappedOrNot : PrivateFile, ::testing::WithParamInterface<std::uint32_t> {};

// Parts of extents, too, are the file's bytes after they are given up.
TEST_P(PrivateFileMappedOrNot, of_four_times_the_memory_keeps_every_store) {
  open(16 * kMiB, "4M", {.extent_bytes = 64 * 1024, .flags = GetParam()});
  std::mt19937 random(7);
  for (int i = 0; i < 150; ++i) {
    const std::size_t n = 1 + random() % 150'000;
    const std::size_t at = random() % (expected.size() - n);
    switch (random() % 3) {
      case 0:
        store(at, n, static_cast<char>(i), random() % 4 == 0 ? kDiscard : kWrite);
        break;
      case 1:
        give_up(at, n);
        expect_bytes(at, n);
        break;
      default:
        expect_bytes(at, n);
    }
  }
  for (std::size_t at = 0; at < expected.size(); at += kMiB) {
    expect_bytes(at, std::min<std::size_t>(kMiB, expected.size() - at));
  }
  expect_file_untouched();
}

INSTANTIATE_TEST_SUITE_P(, PrivateFileMappedOrNot, ::testing::Values(0U, std::uint32_t{kMapped}));

// The range's last extent has a hole behind the end of the file.
TEST_F(PrivateFile, bytes_that_are_given_up_up_to_the_end_are_the_files_again) {
  open(kMiB + 777, "16M", {.extent_bytes = 64 * 1024});
  store(0, expected.size(), 'x');
  give_up(expected.size() - 1000, 1000);
  give_up(100, kMiB / 2);
  expect_bytes(0, expected.size());
}

TEST_F(PrivateFile, alignment_that_the_offset_does_not_have_is_refused) {
  open(kMiB, "16M", {.extent_bytes = 64 * 1024});
  const BufferOptions aligned{.extent_bytes = 64 * 1024, .alignment = 4096, .flags = kPrivate};
  EXPECT_EQ(context->adopt_file(path.c_str(), kLead, 0, aligned).code(), Code::invalid_argument);
  auto made = context->adopt_file(path.c_str(), 8192, 0, aligned);
  ASSERT_TRUE(made.ok()) << made.message();
  auto view = made->acquire(kRead, 0, 10);
  ASSERT_TRUE(view.ok()) << view.message();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view->data()) % 4096, 0u);
}

TEST_F(PrivateFile, parts_of_a_file_that_was_cut_are_not_given_up) {
  open(kMiB, "16M", {.extent_bytes = 64 * 1024});
  store(0, expected.size(), 'x');
  ASSERT_EQ(::truncate(path.c_str(), kMiB / 2), 0);
  const Access part{buffer.handle(), 100, 100, kRead, {}, 0};
  const Status given = context->advise({&part, 1}, Advice::dont_need);
  EXPECT_EQ(given.code(), Code::io_error);
  EXPECT_NE(std::string(given.message()).find("adopt it again"), std::string::npos)
      << given.message();
  expect_bytes(0, expected.size());
}

TEST_F(PrivateFile, rows_come_from_the_file_from_slots_and_from_memory) {
  open(4 * kMiB + kLead, "16M", {.extent_bytes = 64 * 1024});
  store(0, 64, 'p');
  ASSERT_TRUE(buffer.evict().ok());
  store(kMiB, 64, 'q');
  std::vector<std::uint64_t> rows;
  for (std::uint64_t row = 0; row < expected.size() / 64; row += 97) {
    rows.push_back(row);
  }
  rows.push_back(kMiB / 64);
  std::vector<char> got(rows.size() * 64);
  for (int round = 0; round < 2; ++round) {
    const Status gathered = buffer.gather(64, rows, got.data());
    ASSERT_TRUE(gathered.ok()) << gathered.message();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      ASSERT_EQ(std::memcmp(got.data() + i * 64, expected.data() + rows[i] * 64, 64), 0) << rows[i];
    }
  }
}

TEST_F(PrivateFile, bytes_that_are_given_up_are_the_files_again) {
  open(4 * kMiB, "16M", {});
  store(0, 5000, 'x');
  ASSERT_TRUE(buffer.evict().ok());
  ASSERT_TRUE(buffer.advise(Advice::dont_need).ok());
  expected.assign(file.begin() + kLead, file.end());
  expect_bytes(0, expected.size());
}

TEST_F(PrivateFile, a_buffer_from_alloc_cannot_be_private) {
  context = make_context("dram=8M; nvme=off");
  const auto made = context->alloc(kMiB, {.flags = kPrivate});
  EXPECT_EQ(made.code(), Code::unsupported);
  EXPECT_EQ(context->adopt_file("/proc/self/exe", 0, 0, {.flags = 1u << 20}).code(),
            Code::unsupported);
}

}  // namespace
}  // namespace tiermem::test
