// Files of memories in persistent memory, and their units as pages of homes. On a file system
// without DAX these work in the same way.
#include "os/dax_file.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "os/host_memory.hpp"
#include "runtime/fit.hpp"
#include "support/directory.hpp"
#include "support/pattern.hpp"
#include "tier/dax_pages.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20, kGiB = 1024 * kMiB;
constexpr std::uint64_t kUnit = DaxFile::kUnit;

DaxPath directory() {
  return {.kind = DaxPath::Kind::directory, .total = 64 * kGiB, .free = 40 * kGiB, .dax = true};
}
DaxPath device() {
  return {.kind = DaxPath::Kind::device,
          .total = 64 * kGiB,
          .free = 64 * kGiB,
          .align = 2 * kMiB,
          .dax = true};
}

TEST(DaxFile, path_offers_too_little_then_it_is_refused_with_the_limit_and_the_remedy) {
  EXPECT_TRUE(refuse_dax_path("/pm", directory(), 32 * kGiB).ok());
  EXPECT_TRUE(refuse_dax_path("/dev/dax0.0", device(), 0).ok());
  const Status more = refuse_dax_path("/pm", directory(), 65 * kGiB);
  EXPECT_EQ(more.code(), Code::invalid_argument);
  EXPECT_STREQ(more.message(),
               "pmem=/pm: 65.0 GiB is more than its file system has, which is 64.0 GiB; name less");
  const Status full = refuse_dax_path("/pm", directory(), 50 * kGiB);
  EXPECT_EQ(full.code(), Code::no_capacity);
  EXPECT_SAYS(full, "40.0 GiB");
  EXPECT_SAYS(full, "; name less, or free some");
  DaxPath coarse = device();
  coarse.align = kGiB;
  const Status aligned = refuse_dax_path("/dev/dax0.0", coarse, kGiB);
  EXPECT_EQ(aligned.code(), Code::unsupported);
  EXPECT_SAYS(aligned, "--align 2M");
  EXPECT_EQ(refuse_dax_path("/a", {.error = ENOENT}, kGiB).code(), Code::invalid_argument);
  EXPECT_EQ(refuse_dax_path("/a", {.error = EACCES}, kGiB).code(), Code::unavailable);
  EXPECT_EQ(refuse_dax_path("/a", {}, kGiB).code(), Code::invalid_argument);
}

TEST(DaxFile, paths_are_looked_up_then_the_kind_of_each_is_known) {
  const test::Directory here;
  EXPECT_EQ(look_at_dax_path(here.path()).kind, DaxPath::Kind::directory);
  EXPECT_GT(look_at_dax_path(here.path()).total, 0U);
  EXPECT_EQ(look_at_dax_path(here.path() + "/none").error, ENOENT);
  EXPECT_EQ(look_at_dax_path("/dev/null").kind, DaxPath::Kind::other);
  // /dev/null is 1:3. Here it is a DAX device by the files that describe it.
  const std::string described = here.path() + "/sys/dev/char/1:3";
  std::filesystem::create_directories(described);
  std::filesystem::create_directories(here.path() + "/sys/bus/dax");
  std::filesystem::create_directory_symlink(here.path() + "/sys/bus/dax", described + "/subsystem");
  std::ofstream(described + "/size") << "1073741824\n";
  std::ofstream(described + "/align") << "2097152\n";
  const DaxPath found = look_at_dax_path("/dev/null", here.path() + "/sys");
  EXPECT_EQ(found.kind, DaxPath::Kind::device);
  EXPECT_EQ(found.total, kGiB);
  EXPECT_EQ(found.align, 2 * kMiB);
}

TEST(DaxFile, directory_has_no_dax_then_one_warning_says_so) {
  const test::Directory here("/dev/shm");
  Config config;
  config.pmem = {{here.path(), 4 * kMiB}};
  const Status judged = judge_pmem(config);
  ASSERT_TRUE(judged.ok()) << judged.message();
  ASSERT_EQ(config.warnings.size(), 1U);
  EXPECT_TRUE(test::says(config.warnings[0].c_str(), "mount it with dax")) << config.warnings[0];
  config.pmem = {{here.path(), 0}};
  EXPECT_SAYS(judge_pmem(config), "needs a size");
}

TEST(DaxFile, file_is_created_then_it_has_no_name_and_all_its_blocks) {
  const test::Directory here;
  const std::uint64_t before = look_at_dax_path(here.path()).free;
  const auto file = DaxFile::open(here.path(), 9 * kMiB);
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_EQ((*file)->bytes(), 8 * kMiB) << "whole units";
  EXPECT_TRUE(std::filesystem::is_empty(here.path()));
  // Others use the file system, too.
  EXPECT_LT(look_at_dax_path(here.path()).free, before - std::min(before, 4 * kMiB));
  EXPECT_SAYS(DaxFile::open(here.path(), kMiB), "at least 2 MiB");
}

/// Four units of a file, and room for homes and a window.
struct DaxPagesTest : ::testing::Test {
  void SetUp() override {
    auto file = DaxFile::open(directory.path(), 4 * kUnit);
    ASSERT_TRUE(file.ok()) << file.message();
    pages = std::make_unique<DaxPages>(std::move(*file));
    auto reserved = host::reserve({.bytes = 16 * kUnit, .accessible = false});
    ASSERT_TRUE(reserved.ok()) << reserved.message();
    range = std::move(*reserved);
  }
  std::byte* at(unsigned unit) const { return range.data() + unit * kUnit; }
  static bool zeros(const std::byte* from, std::uint64_t bytes) {
    return std::all_of(from, from + bytes, [](std::byte each) { return each == std::byte{0}; });
  }
  test::Directory directory;
  std::unique_ptr<DaxPages> pages;
  host::AddressRange range;
};

TEST_F(DaxPagesTest, units_of_several_homes_are_released_then_one_large_home_gets_them_all) {
  for (unsigned i = 0; i < 4; ++i) {
    ASSERT_TRUE(pages->fill(at(2 * i), kUnit).ok());
    std::memset(at(2 * i), static_cast<int>(i + 1), kUnit);
  }
  const Status full = pages->fill(at(9), kUnit);
  EXPECT_EQ(full.code(), Code::no_capacity);
  EXPECT_SAYS(full, "all of its 8.00 MiB are in use");
  EXPECT_EQ(at(4)[kUnit - 1], std::byte{3});
  for (const unsigned i : {3, 1, 0, 2}) {
    EXPECT_EQ(pages->release(at(2 * i), kUnit), 0);
  }
  ASSERT_TRUE(pages->fill(at(8), 4 * kUnit).ok());
  EXPECT_TRUE(zeros(at(8), 4 * kUnit)) << "nothing of the earlier homes shows";
  EXPECT_EQ(pages->release(at(8), 4 * kUnit), 0);
}

TEST_F(DaxPagesTest, home_is_shared_then_both_addresses_show_the_same_bytes) {
  ASSERT_TRUE(pages->fill(at(0), kUnit).ok());
  ASSERT_TRUE(pages->fill(at(5), kUnit).ok());
  ASSERT_EQ(pages->release(at(0), kUnit), 0);
  ASSERT_TRUE(pages->fill(at(1), 2 * kUnit).ok()) << "its units are not neighbours";
  ASSERT_EQ(pages->share(at(1), at(10), 2 * kUnit), 0);
  at(1)[7] = std::byte{1};
  at(11)[9] = std::byte{2};
  EXPECT_EQ(at(10)[7], std::byte{1});
  EXPECT_EQ(at(2)[9], std::byte{2});
  ASSERT_EQ(host::close_range(at(10), 2 * kUnit), 0);
  EXPECT_EQ(at(2)[9], std::byte{2});
  EXPECT_EQ(pages->share(at(12), at(10), kUnit), ENOENT) << "a home without pages";
}

// The records of free units have 64 to a word.
TEST(DaxPagesOfManyUnits, no_two_homes_get_the_same_unit) {
  constexpr unsigned kUnits = 67;
  const test::Directory directory;
  auto file = DaxFile::open(directory.path(), kUnits * kUnit);
  ASSERT_TRUE(file.ok()) << file.message();
  DaxPages pages(std::move(*file));
  auto range = host::reserve({.bytes = 2 * kUnits * kUnit, .accessible = false});
  ASSERT_TRUE(range.ok()) << range.message();
  const auto at = [&](unsigned unit) { return range->data() + unit * kUnit; };
  ASSERT_TRUE(pages.fill(at(0), 64 * kUnit).ok());
  for (unsigned unit = 0; unit < 64; ++unit) {
    *at(unit) = static_cast<std::byte>(unit + 1);
  }
  ASSERT_TRUE(pages.fill(at(70), 2 * kUnit).ok());
  ASSERT_TRUE(pages.fill(at(80), kUnit).ok());
  EXPECT_EQ(pages.fill(at(90), kUnit).code(), Code::no_capacity);
  for (const unsigned unit : {70u, 71u, 80u}) {
    EXPECT_EQ(*at(unit), std::byte{0});
  }
  for (unsigned unit = 0; unit < 64; ++unit) {
    ASSERT_EQ(*at(unit), static_cast<std::byte>(unit + 1)) << unit;
  }
  // The search goes round: the only free unit is behind its beginning.
  ASSERT_EQ(pages.release(at(70), 2 * kUnit), 0);
  ASSERT_TRUE(pages.fill(at(81), kUnit).ok());
  ASSERT_TRUE(pages.fill(at(82), kUnit).ok());
  EXPECT_EQ(*at(81), std::byte{0});
  EXPECT_EQ(*at(63), std::byte{64});
}

}  // namespace
}  // namespace tiermem
