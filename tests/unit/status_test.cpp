// Status, Result and their messages: the text that a caller reads after a failure.
#include "tiermem/status.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace tiermem {
namespace {

TEST(Status, a_default_status_is_success_without_detail) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), Code::ok);
  EXPECT_EQ(status.info(), nullptr);
  EXPECT_STREQ(status.message(), "ok");
}

TEST(Status, a_bare_code_speaks_by_its_name) {
  const Status status = Code::no_capacity;
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.info(), nullptr);
  EXPECT_STREQ(status.message(), "no_capacity");
}

TEST(Status, every_code_has_a_name_of_its_own) {
  std::set<std::string> names;
  for (int code = 0; code <= static_cast<int>(Code::internal); ++code) {
    names.insert(code_name(static_cast<Code>(code)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(Code::internal) + 1);
  EXPECT_EQ(names.count("unknown"), 0U);
  EXPECT_STREQ(code_name(Code::internal), "internal");
}

TEST(Status, a_code_from_a_newer_version_is_named_unknown) {
  EXPECT_STREQ(code_name(static_cast<Code>(static_cast<int>(Code::internal) + 1)), "unknown");
  EXPECT_STREQ(code_name(static_cast<Code>(-1)), "unknown");
}

TEST(Status, the_values_of_codes_never_change) {
  // The C interface guarantees these numbers to compiled programs.
  EXPECT_EQ(static_cast<int>(Code::ok), 0);
  EXPECT_EQ(static_cast<int>(Code::invalid_argument), 1);
  EXPECT_EQ(static_cast<int>(Code::no_capacity), 3);
  EXPECT_EQ(static_cast<int>(Code::io_error), 9);
  EXPECT_EQ(static_cast<int>(Code::internal), 13);
}

TEST(Status, fail_writes_the_sentence) {
  const Status status =
      fail(Code::invalid_argument, "extent of {} bytes; accepted: {}", 5000, "2^n");
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_STREQ(status.message(), "extent of 5000 bytes; accepted: 2^n");
  ASSERT_NE(status.info(), nullptr);
  EXPECT_EQ(status.info()->native, 0);
}

TEST(Status, fail_native_keeps_errno_beside_the_sentence) {
  const Status status = fail_native(Code::io_error, EIO, "read of {} at {}", "/dev/x", 4096);
  ASSERT_NE(status.info(), nullptr);
  EXPECT_EQ(status.info()->native, EIO);
  EXPECT_STREQ(status.message(), "read of /dev/x at 4096");
}

TEST(Status, a_sentence_that_is_too_long_is_cut_and_terminated) {
  const std::size_t room = sizeof(ErrorInfo::text);
  for (const std::size_t length : {room - 2, room - 1, room, room + 1, 10 * room}) {
    const std::string sentence(length, 'x');
    const Status status = fail(Code::internal, "{}", sentence);
    EXPECT_EQ(std::strlen(status.message()), std::min(length, room - 1)) << "of " << length;
  }
}

TEST(Status, a_defect_ends_with_report_it_once) {
  const Status status = fail(Code::internal, "frame {}: it is free twice", 7);
  EXPECT_STREQ(status.message(), "frame 7: it is free twice; report it");
  const Status outer = fail(Code::internal, "alloc: {}", status.message());
  EXPECT_STREQ(outer.message(), "alloc: frame 7: it is free twice; report it");
}

TEST(Status, a_clone_has_the_same_detail_and_its_own_life) {
  ErrorInfo info = error_info(Code::no_capacity, "dram is full");
  info.needed = 10;
  set_text(info.holder, "weights");
  Status copy;
  {
    const Status original(info);
    copy = original.clone();
    EXPECT_NE(copy.info(), original.info());
  }
  EXPECT_EQ(copy.code(), Code::no_capacity);
  EXPECT_STREQ(copy.message(), "dram is full");
  ASSERT_NE(copy.info(), nullptr);
  EXPECT_EQ(copy.info()->needed, 10U);
  EXPECT_STREQ(copy.info()->holder, "weights");
  EXPECT_TRUE(Status().clone().ok());
}

TEST(ErrorText, a_text_that_fits_exactly_is_kept_whole) {
  char field[5] = {'#', '#', '#', '#', '#'};
  set_text(field, "abcd");
  EXPECT_STREQ(field, "abcd");
  set_text(field, "abcde");
  EXPECT_STREQ(field, "abcd");
  set_text(field, "");
  EXPECT_STREQ(field, "");
}

TEST(Result, carries_a_value_or_the_reason_why_not) {
  const Result<int> good = 7;
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, 7);
  EXPECT_EQ(good.code(), Code::ok);

  const Result<int> bad = fail(Code::unavailable, "no device {}", 3);
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.code(), Code::unavailable);
  EXPECT_STREQ(bad.message(), "no device 3");
}

TEST(Result, gives_its_owner_and_its_status_away) {
  Result<std::unique_ptr<int>> owner = std::make_unique<int>(5);
  const std::unique_ptr<int> taken = *std::move(owner);
  EXPECT_EQ(*taken, 5);

  Result<std::unique_ptr<int>> bad = fail(Code::busy, "pinned by {}", "kv");
  const Status status = std::move(bad).status();
  EXPECT_STREQ(status.message(), "pinned by kv");
}

TEST(HumanBytes, chooses_the_unit_that_people_would) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1024), "1.00 KiB");
  EXPECT_EQ(human_bytes(1536), "1.50 KiB");
  EXPECT_EQ(human_bytes(std::uint64_t{2} << 20), "2.00 MiB");
  EXPECT_EQ(human_bytes(std::uint64_t{100} << 30), "100.0 GiB");
  EXPECT_EQ(human_bytes(std::uint64_t{3} << 40), "3.00 TiB");
}

TEST(HumanBytes, has_no_unit_above_pebibytes) {
  EXPECT_EQ(human_bytes(~std::uint64_t{0}), "16384.0 PiB");
}

}  // namespace
}  // namespace tiermem
