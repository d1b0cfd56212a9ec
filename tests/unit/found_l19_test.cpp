// A configuration without effect is never silent: an unknown name is reported with the nearest
// known name, and the table of known names is complete.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>

#include "base/log.hpp"
#include "runtime/config.hpp"
#include "runtime/fit.hpp"
#include "runtime/options.hpp"
#include "runtime/variables.hpp"
#include "support/directory.hpp"
#include "support/places.hpp"
#include "tiermem/context.hpp"

namespace tiermem {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::stringstream all;
  all << std::ifstream(path).rdbuf();
  return all.str();
}

TEST(FaultsFound, L19_a_misspelt_variable_is_named_with_the_nearest_one) {
  const char* const environment[] = {
      "PATH=/bin",        "TIERMEM_DARM=4G", "TIERMEM_DRAM=4G",   "TIERMEM_TEST_X=1",
      "TIERMEM_NVMEE=/d", "TIERMEM=1",       "TIERMEM_LOGFILE=x", nullptr};
  const auto sentences = unknown_variables(environment);
  ASSERT_EQ(sentences.size(), 3U);
  EXPECT_EQ(sentences[0],
            "TIERMEM_DARM has no effect: tiermem knows no such variable; did you mean "
            "TIERMEM_DRAM?");
  EXPECT_NE(sentences[1].find("did you mean TIERMEM_NVME?"), std::string::npos);
  EXPECT_NE(sentences[2].find("did you mean TIERMEM_LOG_FILE?"), std::string::npos);
  EXPECT_TRUE(unknown_variables(nullptr).empty());
}

TEST(FaultsFound, L19_an_unknown_name_of_any_bytes_is_one_plain_line) {
  const std::string entry = "TIERMEM_\n\x1b[2J\xff" + std::string(300, 'x') + "=1";
  const char* const environment[] = {entry.c_str(), nullptr};
  const auto sentences = unknown_variables(environment);
  ASSERT_EQ(sentences.size(), 1U);
  EXPECT_EQ(sentences[0].find_first_of("\n\x1b"), std::string::npos) << sentences[0];
  EXPECT_LT(sentences[0].size(), 300U);
}

/// Returns the name at `at` if the text before it reads a variable, in C++, Python or a shell;
/// otherwise an empty string.
std::string name_read_at(std::string_view text, std::size_t at) {
  constexpr std::string_view kReads[] = {"getenv(\"",
                                         "value_of(env, \"",
                                         "read_size(\"",
                                         "variable(\"",
                                         "environ[\"",
                                         "environ.get(\"",
                                         "environment[\"",
                                         "environ.pop(\"",
                                         "${",
                                         "$",
                                         "environ.setdefault(\""};
  const std::string_view before = text.substr(0, at);
  const bool reads = std::any_of(std::begin(kReads), std::end(kReads),
                                 [&](std::string_view read) { return before.ends_with(read); });
  const std::string_view name = text.substr(at);
  const auto end = name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
  return reads ? std::string(name.substr(0, end)) : std::string();
}

TEST(FaultsFound, L19_every_variable_that_is_read_is_known) {
  const std::filesystem::path source = source_folder();
  unsigned found = 0;
  for (const char* folder : {"src", "bindings", "bench", "examples", "scripts", "tests"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(source / folder)) {
      const std::string extension = entry.path().extension();
      if (!entry.is_regular_file() || extension == ".txt" || extension == ".in" ||
          extension == ".cmake") {
        continue;  // Some variables of CMake have such names too.
      }
      const std::string text = text_of(entry.path());
      for (std::size_t at = 0; (at = text.find("TIERMEM_", at)) != std::string::npos; ++at) {
        const std::string name = name_read_at(text, at);
        EXPECT_TRUE(name.empty() || is_known_variable(name))
            << name << " is read in " << entry.path();
        found += name.empty() ? 0 : 1;
      }
    }
  }
  EXPECT_GT(found, 30U) << "the search no longer finds the reads";
  for (const Option& option : option_table()) {
    EXPECT_TRUE(is_known_variable(option.env)) << option.env;
  }
}

TEST(FaultsFound, L19_the_documentation_shows_the_table_of_variables) {
  const std::string text =
      text_of(std::filesystem::path(source_folder()) / "docs/configuration.md");
  EXPECT_NE(text.find("<!-- variables: begin -->\n" + variable_table_markdown() +
                      "<!-- variables: end -->"),
            std::string::npos)
      << "put this into docs/configuration.md between the two marks:\n"
      << variable_table_markdown();
}

TEST(FaultsFound, L19_warnings_of_the_options_stay_beside_unknown_variables) {
  Config config;
  config.warnings = {"of an option"};
  setenv("TIERMEM_DARM", "4G", 1);
  add_unknown_variables(config);
  unsetenv("TIERMEM_DARM");
  ASSERT_EQ(config.warnings.size(), 2U);
  EXPECT_NE(config.warnings[0].find("TIERMEM_DARM"), std::string::npos);
  EXPECT_EQ(config.warnings[1], "of an option");
}

TEST(FaultsFound, L19_a_log_that_is_asked_for_has_the_refusal_of_the_configuration) {
  const test::Directory directory;
  const std::string log = directory.path() + "/log";
  const auto made = Context::create("log=error; log_file=" + log + "; dram=lots");
  log_close();
  EXPECT_EQ(made.code(), Code::invalid_argument);
  EXPECT_NE(text_of(log).find("create: dram: 'lots'"), std::string::npos) << text_of(log);
}

TEST(FaultsFound, L19_a_log_is_found_beside_mistakes_in_every_source) {
  const test::Directory directory;
  std::map<std::string, std::string> variables = {{"TIERMEM_CONFIG", "/nowhere/at/all.toml"},
                                                  {"TIERMEM_TIERS", "dramm=4G"},
                                                  {"TIERMEM_LOG", "debug"},
                                                  {"TIERMEM_LOG_FILE", directory.path() + "/log"}};
  const Environment environment = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  const LogWish wish = log_wish("dram=lots; depth", nullptr, environment);
  EXPECT_EQ(wish.level, LogLevel::debug);
  EXPECT_EQ(wish.file, directory.path() + "/log");
  variables["TIERMEM_LOG"] = "loud";
  EXPECT_EQ(log_wish("", nullptr, environment).level, LogLevel::off);
  EXPECT_EQ(log_wish("log=info", nullptr, environment).level, LogLevel::info);
}

TEST(FaultsFound, L19_a_log_file_that_cannot_be_opened_is_an_error) {
  const auto made = Context::create("dram=16M; nvme=off; log=warn; log_file=/nowhere/at/all");
  EXPECT_EQ(made.code(), Code::io_error);
  EXPECT_NE(std::string(made.message()).find("/nowhere/at/all"), std::string::npos);
}

TEST(FaultsFound, L19_a_sentence_goes_to_the_log_where_one_is_open) {
  const test::Directory directory;
  const std::string path = directory.path() + "/log";
  ASSERT_TRUE(log_open(LogLevel::warn, path).ok());
  const std::string sentences[] = {"first\nof two", "second"};
  tell(LogLevel::warn, sentences);
  log_close();
  const std::string text = text_of(path);
  EXPECT_NE(text.find("warning: first\\nof two\n"), std::string::npos) << text;
  EXPECT_NE(text.find("warning: second\n"), std::string::npos) << text;
}

// The program opened this file in the place of descriptor 2, so it belongs to the program.
TEST(FaultsFound, L19_nothing_is_written_to_a_descriptor_2_that_was_replaced) {
  const test::Directory directory;
  const std::string path = directory.path() + "/data";
  const int saved = dup(STDERR_FILENO);
  ASSERT_GE(saved, 0);
  FILE* const data = fopen(path.c_str(), "w");
  ASSERT_NE(data, nullptr);
  ASSERT_EQ(dup2(fileno(data), STDERR_FILENO), STDERR_FILENO);
  set_tell_limit(8);
  tell(LogLevel::error, "must not be in the data");
  ASSERT_EQ(close(STDERR_FILENO), 0);
  tell(LogLevel::error, "must not fail without a descriptor 2");
  ASSERT_EQ(dup2(saved, STDERR_FILENO), STDERR_FILENO);
  set_tell_limit(1);
  close(saved);
  fclose(data);
  EXPECT_EQ(text_of(path), "");
}

}  // namespace
}  // namespace tiermem
