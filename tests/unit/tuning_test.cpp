// The stored results of tuning a device: they read back exactly, and a file with any fault is
// ignored with a reason.
#include "runtime/tuning.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/directory.hpp"

namespace tiermem {
namespace {

constexpr std::int64_t kNow = 1'800'000'000;
constexpr std::int64_t kDay = 86400;

Tuning some_tuning() {
  return {"wwid eui.1, file system ef53", "6.8.0", kNow - kDay,    32,
          std::uint64_t{1} << 20,         123'456, 3'900'000'000U, 2'100'000'000U};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Tuning, is_read_back_as_it_was_written) {
  const auto read = parse_tuning(tuning_text(some_tuning()));
  ASSERT_TRUE(read.ok()) << read.message();
  EXPECT_EQ(*read, some_tuning());
}

// Property: no proper prefix of a tuning is a valid tuning.
TEST(Tuning, cut_off_anywhere_is_refused) {
  const std::string text = tuning_text(some_tuning());
  for (std::size_t n = 0; n < text.size(); ++n) {
    const auto read = parse_tuning(text.substr(0, n));
    EXPECT_EQ(read.code(), Code::invalid_argument) << n;
    EXPECT_STRNE(read.message(), "") << n;
  }
  EXPECT_FALSE(parse_tuning(text + "x").ok());
  EXPECT_FALSE(parse_tuning(text + text).ok());
}

// Property: if any byte is changed, the text is refused or has values that the options accept.
TEST(Tuning, damaged_anywhere_is_refused_or_within_bounds) {
  const std::string whole = tuning_text(some_tuning());
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string text = whole;
      text[at] = static_cast<char>(byte);
      const auto read = parse_tuning(text);
      if (!read.ok()) {
        EXPECT_EQ(read.code(), Code::invalid_argument);
        continue;
      }
      EXPECT_GE(read->depth, 1U);
      EXPECT_LE(read->depth, 1024U);
      EXPECT_EQ(read->piece & (read->piece - 1), 0U);
      EXPECT_GE(read->piece, 4096U);
      EXPECT_EQ(*parse_tuning(tuning_text(*read)), *read);
    }
  }
}

TEST(Tuning, values_that_the_options_refuse_are_refused) {
  const auto refused = [](auto change) {
    Tuning tuning = some_tuning();
    change(tuning);
    const auto read = parse_tuning(tuning_text(tuning));
    return read.ok() ? "" : std::string(read.message());
  };
  EXPECT_TRUE(contains(refused([](Tuning& t) { t.depth = 0; }), "depth"));
  EXPECT_TRUE(contains(refused([](Tuning& t) { t.depth = 5000; }), "depth"));
  EXPECT_TRUE(contains(refused([](Tuning& t) { t.piece = 12288; }), "piece"));
  EXPECT_TRUE(contains(refused([](Tuning& t) { t.piece = std::uint64_t{1} << 40; }), "piece"));
  EXPECT_TRUE(contains(refused([](Tuning& t) { t.gap = ~std::uint64_t{0}; }), "gap"));
  EXPECT_TRUE(contains(refused([](Tuning& t) { t.when = -1; }), "when"));
  EXPECT_TRUE(contains(refused([](Tuning& t) { t.kernel = ""; }), "kernel"));
  EXPECT_TRUE(contains(refused([](Tuning& t) { t.device = std::string(300, 'x'); }), "device"));
}

class KeptTuningTest : public testing::Test {
 protected:
  FoundTuning find(std::int64_t now = kNow, std::string_view kernel = "6.8.0") {
    return find_tuning(cache_, device_, kernel, now);
  }
  void overwrite(const std::string& text) { std::ofstream(tuning_file(cache_, device_)) << text; }

  const test::Directory own_;
  const std::string cache_ = own_.path() + "/not/yet/there";
  const DeviceId device_{some_tuning().device, {}};
};

TEST_F(KeptTuningTest, what_is_kept_is_found_and_replaced) {
  EXPECT_TRUE(contains(find().reason, "never measured"));
  ASSERT_TRUE(keep_tuning(cache_, some_tuning()).ok());
  ASSERT_TRUE(find().tuning.has_value()) << find().reason;
  EXPECT_EQ(*find().tuning, some_tuning());
  Tuning other = some_tuning();
  other.depth = 8;
  ASSERT_TRUE(keep_tuning(cache_, other).ok());
  EXPECT_EQ(find().tuning->depth, 8U);
  unsigned files = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(cache_ + "/tuned")) {
    ++files;
  }
  EXPECT_EQ(files, 1U) << "a part of a file was left behind";
}

TEST_F(KeptTuningTest, age_and_kernel_end_it) {
  ASSERT_TRUE(keep_tuning(cache_, some_tuning()).ok());
  EXPECT_TRUE(find(kNow + (kTuningDays - 1) * kDay).tuning.has_value());
  EXPECT_TRUE(contains(find(kNow + kTuningDays * kDay).reason, "91 days ago"));
  EXPECT_TRUE(contains(find(kNow - 5 * kDay).reason, "a date in the future"));
  EXPECT_TRUE(contains(find(kNow, "6.9.1").reason, "6.9.1"));
}

TEST_F(KeptTuningTest, what_cannot_be_used_is_passed_over_with_a_reason) {
  ASSERT_TRUE(keep_tuning(cache_, some_tuning()).ok());
  Tuning foreign = some_tuning();
  foreign.device = "wwid eui.2, file system ef53";
  overwrite(tuning_text(foreign));
  EXPECT_TRUE(contains(find().reason, "another device")) << find().reason;
  overwrite("");
  EXPECT_TRUE(contains(find().reason, "cut off")) << find().reason;
  overwrite("tiermem tuning 2\nwhole\n");
  EXPECT_TRUE(contains(find().reason, "this version")) << find().reason;
  overwrite(std::string(std::size_t{1} << 20, '\0'));
  EXPECT_TRUE(contains(find().reason, "too long")) << find().reason;
  std::filesystem::remove(tuning_file(cache_, device_));
  std::filesystem::create_directory(tuning_file(cache_, device_));
  EXPECT_FALSE(find().tuning.has_value());
  EXPECT_FALSE(find().reason.empty());
  EXPECT_FALSE(find_tuning("", device_, "6.8.0", kNow).reason.empty());
  EXPECT_EQ(keep_tuning("", some_tuning()).code(), Code::io_error);
}

TEST_F(KeptTuningTest, a_cache_that_cannot_be_written_is_an_error_that_names_it) {
  std::ofstream(own_.path() + "/not") << "a file where a directory has to be";
  const Status kept = keep_tuning(cache_, some_tuning());
  EXPECT_EQ(kept.code(), Code::io_error);
  EXPECT_TRUE(contains(kept.message(), cache_)) << kept.message();
}

}  // namespace
}  // namespace tiermem
