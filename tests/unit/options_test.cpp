// The option table: every documented value is accepted, and every neighbour of a range is refused.
// The documentation shows the same table.
#include "runtime/options.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "support/places.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kLargest = std::numeric_limits<std::uint64_t>::max();

TEST(Sizes, are_read_in_every_accepted_spelling) {
  const struct {
    const char* text;
    std::uint64_t bytes;
  } cases[] = {
      {"0", 0},
      {"4096", 4096},
      {"64K", 65536},
      {"64k", 65536},
      {"64KiB", 65536},
      {"64kib", 65536},
      {"12B", 12},
      {"3M", std::uint64_t{3} << 20},
      {"4G", std::uint64_t{4} << 30},
      {"1.5G", std::uint64_t{3} << 29},
      {" 1.5 GiB ", std::uint64_t{3} << 29},
      {"0.5K", 512},
      {"1.25M", 1310720},
      {"0.000000001G", 1},
      {"0.1K", 102},
      {"2T", std::uint64_t{2} << 40},
      {"3P", std::uint64_t{3} << 50},
      {"15E", std::uint64_t{15} << 60},
      {"18446744073709551615", kLargest},
      {"007", 7},
  };
  for (const auto& one : cases) {
    const auto size = parse_size(one.text);
    ASSERT_TRUE(size.ok()) << one.text << ": " << size.message();
    EXPECT_EQ(*size, one.bytes) << one.text;
  }
}

TEST(Sizes, that_are_none_are_refused_with_the_text_and_what_is_accepted) {
  const char* cases[] = {"",
                         " ",
                         "-1",
                         "+1",
                         "K",
                         "4GB",
                         "4KB",
                         "4X",
                         "4G4",
                         "4 G 4",
                         "1.5",
                         "1.5B",
                         "1.G",
                         ".5G",
                         "1..5G",
                         "0x10",
                         "1e3",
                         "16E",
                         "4,5G",
                         "1.5.5G",
                         "4Gi",
                         "4GiBB",
                         "inf",
                         "50%",
                         "18446744073709551616",
                         "1.1234567890G",
                         "15.9999999999E",
                         "17000000T",
                         "99999999999999999999999G"};
  for (const char* text : cases) {
    const auto size = parse_size(text);
    EXPECT_EQ(size.code(), Code::invalid_argument) << text;
    const std::string message = size.message();
    EXPECT_NE(message.find("powers of 1024"), std::string::npos) << message;
    EXPECT_NE(message.find(std::string(trim(text))), std::string::npos) << message;
  }
}

RC_GTEST_PROP(Sizes, survive_being_written_and_read, (std::uint64_t bytes, unsigned shift)) {
  const std::uint64_t size = bytes << (shift % 64);
  const auto read = parse_size(format_size(size));
  RC_ASSERT(read.ok());
  RC_ASSERT(*read == size);
}

RC_GTEST_PROP(Sizes, never_read_more_than_the_text_says, (const std::string& text)) {
  // An accepted text has digits, at most one point, and a unit. Its formatted value reads back to
  // the same number.
  const auto size = parse_size(text);
  if (size.ok()) {
    RC_ASSERT(text.find_first_not_of("0123456789.KMGTPEkmgtpeiIbB \t\r\n\v\f") ==
              std::string::npos);
    RC_ASSERT(*parse_size(format_size(*size)) == *size);
  }
}

TEST(Options, have_names_variables_and_meanings_of_their_own) {
  std::set<std::string> names, variables;
  for (const Option& option : option_table()) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    EXPECT_TRUE(variables.insert(option.env).second) << option.env;
    std::string variable = "TIERMEM_";
    for (const char* c = option.name; *c != '\0'; ++c) {
      variable += *c >= 'a' && *c <= 'z' ? static_cast<char>(*c - 'a' + 'A') : *c;
    }
    EXPECT_EQ(option.env, variable);
    EXPECT_GT(std::string(option.meaning).size(), 10U) << option.name;
    EXPECT_EQ(option.apply == nullptr, option.is_tier()) << option.name;
    EXPECT_EQ(find_option(option.name), &option);
  }
  EXPECT_EQ(find_option("block"), find_option("nvme"));
  EXPECT_EQ(find_option("Depth"), nullptr);
  EXPECT_EQ(find_option(""), nullptr);
}

TEST(Options, have_the_same_defaults_in_the_table_and_in_the_struct) {
  Config config;
  // Differs from the default, so that the effect of applying the table is visible.
  config.depth = 1;
  for (const Option& option : option_table()) {
    if (!option.is_tier()) {
      const Status status = apply_option(config, option, option.fallback, "the table");
      EXPECT_TRUE(status.ok()) << status.message();
    }
  }
  EXPECT_EQ(config, Config());
}

TEST(Options, take_the_ends_of_their_ranges_and_nothing_beyond) {
  for (const Option& option : option_table()) {
    const bool number = option.type == OptionType::size || option.type == OptionType::count ||
                        option.type == OptionType::percent ||
                        option.type == OptionType::power_of_two;
    if (!number) {
      continue;
    }
    Config config;
    const auto takes = [&](std::uint64_t value) {
      return apply_option(config, option, std::to_string(value), "a test").ok();
    };
    EXPECT_TRUE(takes(option.low)) << option.name;
    EXPECT_TRUE(takes(option.high)) << option.name;
    EXPECT_FALSE(takes(option.high + 1)) << option.name;
    EXPECT_FALSE(takes(option.high * 2)) << option.name;
    if (option.low > 0) {
      EXPECT_FALSE(takes(option.low - 1)) << option.name;
      EXPECT_FALSE(takes(option.low / 2)) << option.name;
    }
    if (option.type == OptionType::power_of_two) {
      EXPECT_FALSE(takes(option.low * 3)) << option.name;
    }
    for (const std::string word : {"auto", "off"}) {
      EXPECT_EQ(apply_option(config, option, word, "a test").ok(), option.choices == word)
          << option.name << ' ' << word;
    }
    for (const char* wrong : {"", "-1", "x", "1 2"}) {
      EXPECT_FALSE(apply_option(config, option, wrong, "a test").ok()) << option.name << wrong;
    }
  }
}

TEST(Options, that_are_choices_take_every_word_of_theirs_and_no_other) {
  for (const Option& option : option_table()) {
    if (option.type != OptionType::choice) {
      continue;
    }
    std::istringstream words(option.choices);
    std::vector<Config> results;
    for (std::string word; std::getline(words, word, '|');) {
      Config config;
      EXPECT_TRUE(apply_option(config, option, word, "a test").ok()) << option.name << "=" << word;
      for (const Config& other : results) {
        EXPECT_NE(config, other) << option.name << "=" << word << " changes nothing";
      }
      results.push_back(config);
      EXPECT_FALSE(apply_option(config, option, word + "x", "a test").ok()) << option.name;
    }
    Config config;
    for (const char* wrong : {"", "true", "1", "AUTO", "off|on"}) {
      EXPECT_FALSE(apply_option(config, option, wrong, "a test").ok()) << option.name << wrong;
    }
  }
}

TEST(Options, reach_the_field_of_their_name) {
  Config config;
  const auto apply = [&](const char* name, const char* value) {
    const Status status = apply_option(config, *find_option(name), value, "a test");
    EXPECT_TRUE(status.ok()) << status.message();
  };
  apply("extent", "64K");
  apply("depth", "7");
  apply("piece", "1M");
  apply("tuned", "off");
  apply("io_engine", "threads");
  apply("direct", "require");
  apply("mechanism", "in_place");
  apply("huge_pages", "off");
  apply("userfault", "off");
  apply("checksum", "off");
  apply("workers", "3");
  apply("ahead", "20 %");
  apply("busy_poll", "0");
  apply("endurance", "3T");
  apply("reserve_free", "0");
  apply("log", "debug");
  apply("log_file", "/some/where");
  apply("receipts", "17");
  apply("stats_file", "/else/where");
  apply("inspect", "/a/directory");
  Config expected;
  expected.extent = 65536;
  expected.depth = 7;
  expected.piece = std::uint64_t{1} << 20;
  expected.tuned = false;
  expected.io_engine = Engine::threads;
  expected.direct = DirectIo::require;
  expected.mechanism = Mechanism::in_place;
  expected.huge_pages = HugePages::off;
  expected.userfault = UserfaultUse::off;
  expected.checksum = false;
  expected.workers = 3;
  expected.ahead = 20;
  expected.busy_poll = 0;
  expected.endurance = std::uint64_t{3} << 40;
  expected.reserve_free = 0;
  expected.log = LogLevel::debug;
  expected.log_file = "/some/where";
  expected.receipts = 17;
  expected.stats_file = "/else/where";
  expected.inspect = "/a/directory";
  EXPECT_EQ(config, expected);
}

TEST(Options, paths_with_control_characters_or_without_end_are_refused) {
  Config config;
  const Option& option = *find_option("log_file");
  EXPECT_FALSE(apply_option(config, option, std::string_view("/a\0b", 4), "a test").ok());
  EXPECT_FALSE(apply_option(config, option, "/a\nb", "a test").ok());
  EXPECT_FALSE(apply_option(config, option, "/" + std::string(4095, 'a'), "a test").ok());
  EXPECT_TRUE(apply_option(config, option, "/" + std::string(4094, 'a'), "a test").ok());
  EXPECT_TRUE(apply_option(config, option, "/path with blanks/and,commas", "a test").ok());
}

TEST(Options, a_refused_value_is_named_with_its_option_origin_and_what_is_accepted) {
  Config config;
  const Status status = apply_option(config, *find_option("depth"), "0", "TIERMEM_TIERS");
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_STREQ(status.message(),
               "depth: '0' (TIERMEM_TIERS) is not accepted; accepted: a number from 1 to 1024");
  EXPECT_STREQ(status.info()->setting, "depth");
  EXPECT_EQ(config, Config());
}

TEST(Options, every_refusal_fits_the_message) {
  Config config;
  for (const Option& option : option_table()) {
    const Status status = refuse_value(option, std::string(5000, 'v'), std::string(5000, 'o'));
    const std::string message = status.message();
    EXPECT_LT(message.size(), sizeof(ErrorInfo::text)) << option.name;
    EXPECT_TRUE(message.ends_with(accepted_values(option))) << message;
  }
}

TEST(Options, the_nearest_name_is_found_for_typing_errors) {
  const struct {
    const char* typed;
    const char* meant;
  } cases[] = {{"depht", "depth"},
               {"io-engine", "io_engine"},
               {"dran", "dram"},
               {"nvm", "nvme"},
               {"checksums", "checksum"},
               {"logfile", "log_file"},
               {"hugepages", "huge_pages"},
               {"aheads", "ahead"}};
  for (const auto& one : cases) {
    EXPECT_STREQ(nearest_option(one.typed), one.meant) << one.typed;
  }
  EXPECT_NE(nearest_option(std::string(100000, 'x')), nullptr);
  EXPECT_NE(nearest_option(""), nullptr);
}

TEST(Options, name_tests_that_exist) {
  std::string tests;
  const auto folder = std::filesystem::path(source_folder()) / "tests";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".cpp") {
      std::stringstream all;
      all << std::ifstream(entry.path()).rdbuf();
      tests += all.str();
    }
  }
  for (const Option& option : option_table()) {
    const std::string name = option.observed_by;
    const auto point = name.find('.');
    if (point != std::string::npos) {
      const std::string written = "(" + name.substr(0, point) + ", " + name.substr(point + 1) + ")";
      EXPECT_NE(tests.find(written), std::string::npos) << option.name << ": " << name;
    } else {
      EXPECT_EQ(name, "") << option.name;
    }
  }
}

TEST(Options, the_documentation_shows_this_table) {
  const auto path = std::filesystem::path(source_folder()) / "docs/configuration.md";
  std::ifstream file(path);
  ASSERT_TRUE(file.good()) << path;
  std::stringstream all;
  all << file.rdbuf();
  const std::string text = all.str();
  const std::string begin = "<!-- options: begin -->\n";
  const auto from = text.find(begin);
  const auto to = text.find("<!-- options: end -->");
  ASSERT_TRUE(from != std::string::npos && to != std::string::npos && from < to);
  EXPECT_EQ(text.substr(from + begin.size(), to - from - begin.size()), option_table_markdown())
      << "put this into docs/configuration.md between the two marks";
}

}  // namespace
}  // namespace tiermem
