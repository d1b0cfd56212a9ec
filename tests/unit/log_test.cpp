// The log writes the requested messages to the requested target, and costs nothing while it is off.
#include "base/log.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/directory.hpp"
#include "support/sanitizers.hpp"

namespace tiermem {
namespace {

/// Counts how often it is formatted. An argument of a disabled message must not be formatted.
struct Counted {
  int* formatted;
};

}  // namespace
}  // namespace tiermem

template <>
struct fmt::formatter<tiermem::Counted> {
  constexpr auto parse(format_parse_context& context) { return context.begin(); }
  auto format(const tiermem::Counted& value, format_context& context) const {
    ++*value.formatted;
    return fmt::format_to(context.out(), "counted");
  }
};

namespace tiermem {
namespace {

class Log : public testing::Test {
 protected:
  void TearDown() override { log_close(); }
  std::string text(const std::string& path) const {
    std::ifstream file(path);
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
  }
  std::string text() const { return text(path_); }

  const test::Directory own_;
  const std::string& directory_ = own_.path();
  const std::string path_ = directory_ + "/log";
};

TEST_F(Log, is_off_at_first_and_formats_nothing) {
  int formatted = 0;
  log_error("{}", Counted{&formatted});
  log_debug("{}", Counted{&formatted});
  EXPECT_EQ(formatted, 0);
  EXPECT_FALSE(log_enabled(LogLevel::error));
  ASSERT_TRUE(log_open(LogLevel::error, path_));
  log_warn("{}", Counted{&formatted});
  EXPECT_EQ(formatted, 0);
  log_error("{}", Counted{&formatted});
  EXPECT_EQ(formatted, 1);
}

TEST_F(Log, only_messages_at_or_above_the_level_are_written) {
  const LogLevel levels[] = {LogLevel::error, LogLevel::warn, LogLevel::info, LogLevel::debug};
  for (const LogLevel level : levels) {
    std::filesystem::remove(path_);
    ASSERT_TRUE(log_open(level, path_));
    log_error("message {}", 1);
    log_warn("message {}", 2);
    log_info("message {}", 3);
    log_debug("message {}", 4);
    const std::string written = text();
    for (int i = 1; i <= 4; ++i) {
      EXPECT_EQ(written.find(fmt::format("message {}", i)) != std::string::npos,
                i <= static_cast<int>(level))
          << written;
    }
  }
  EXPECT_NE(text().find("error: message 1"), std::string::npos) << text();
}

TEST_F(Log, off_closes_the_log_and_touches_no_file) {
  ASSERT_TRUE(log_open(LogLevel::off, path_));
  log_error("this goes nowhere");
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(Log, the_file_is_private_and_appended_to) {
  ASSERT_TRUE(log_open(LogLevel::info, path_));
  log_info("first");
  ASSERT_TRUE(log_open(LogLevel::info, path_));
  log_info("second");
  EXPECT_NE(text().find("first"), std::string::npos);
  EXPECT_NE(text().find("second"), std::string::npos);
  struct stat status {};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0077, 0U);
}

TEST_F(Log, a_file_that_cannot_be_opened_is_an_error_with_errno) {
  const Status status = log_open(LogLevel::info, directory_ + "/missing/log");
  EXPECT_EQ(status.code(), Code::io_error);
  ASSERT_NE(status.info(), nullptr);
  EXPECT_EQ(status.info()->native, ENOENT);
  EXPECT_NE(std::string(status.message()).find("/missing/log"), std::string::npos);
  EXPECT_FALSE(log_enabled(LogLevel::error));
}

TEST_F(Log, descriptors_1_and_2_stay_silent_unless_asked) {
  // Points both streams at a file for a moment. The log writes to its own file first, then to
  // stderr.
  const std::string streams = directory_ + "/streams";
  const int file = open(streams.c_str(), O_RDWR | O_CREAT | O_APPEND, 0600);
  ASSERT_GE(file, 0);
  const int saved_out = dup(1);
  const int saved_err = dup(2);
  dup2(file, 1);
  dup2(file, 2);
  const Status opened = log_open(LogLevel::debug, path_);
  log_error("to the file");
  const std::string silent = text(streams);
  const Status reopened = log_open(LogLevel::debug, "stderr");
  log_error("to the descriptor");
  const std::string spoken = text(streams);
  dup2(saved_out, 1);
  dup2(saved_err, 2);
  for (const int descriptor : {file, saved_out, saved_err}) {
    close(descriptor);
  }
  EXPECT_TRUE(opened.ok() && reopened.ok());
  EXPECT_EQ(silent, "");
  EXPECT_NE(spoken.find("to the descriptor"), std::string::npos);
  EXPECT_EQ(text().find("to the descriptor"), std::string::npos);
}

TEST_F(Log, a_full_device_is_counted_and_not_reported_on_the_streams) {
  if (access("/dev/full", W_OK) != 0) {
    GTEST_SKIP() << "no /dev/full on this machine";
  }
  const std::uint64_t before = log_dropped();
  ASSERT_TRUE(log_open(LogLevel::info, "/dev/full"));
  testing::internal::CaptureStderr();
  log_info("no room for this");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(log_dropped(), before + 1);
}

TEST_F(Log, errno_survives_a_message) {
  ASSERT_TRUE(log_open(LogLevel::info, "/dev/null"));
  errno = EXDEV;
  log_info("{}", std::string(5000, 'x'));
  EXPECT_EQ(errno, EXDEV);
}

TEST_F(Log, lines_of_many_threads_stay_whole_while_the_log_is_replaced) {
  constexpr int kThreads = 4;
  constexpr int kLines = 500;
  ASSERT_TRUE(log_open(LogLevel::info, path_));
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([thread] {
      for (int line = 0; line < kLines; ++line) {
        log_info("thread {} line {} {} end", thread, line, std::string(100, 'x'));
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(log_open(LogLevel::info, path_));
  }
  for (auto& thread : threads) {
    thread.join();
  }
  std::istringstream lines(text());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_EQ(line.substr(line.size() - 4), " end") << line;
    EXPECT_NE(line.find("tiermem["), std::string::npos) << line;
  }
  EXPECT_EQ(count, kThreads * kLines);
}

TEST_F(Log, a_child_of_fork_is_silent_until_it_opens_its_own) {
  if (test::kAddressSanitizer || test::kThreadSanitizer) {
    GTEST_SKIP() << "a child may find the sanitizer's allocator locked by the thread that logs";
  }
  ASSERT_TRUE(log_open(LogLevel::info, path_));
  std::atomic<bool> stop{false};
  std::thread chatter([&] {
    while (!stop.load()) {
      log_info("parent");
    }
  });
  const std::string own = directory_ + "/child";
  int failed = 0;
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);  // A mutex left locked by the other thread would hang here.
      log_info("child to the parent's log");
      const bool opened = log_open(LogLevel::info, own).ok();
      log_info("child to its own log");
      _exit(opened ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    failed += WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
  }
  stop = true;
  chatter.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(text().find("child"), std::string::npos);
  EXPECT_NE(text(own).find("child to its own log"), std::string::npos);
}

// ---- Sentences that are told without a log ------------------------------------------------------

// In a process of its own, which begins with another descriptor 2.
TEST(TellInner, DISABLED_tells) {
  set_tell_limit(static_cast<unsigned>(std::atoi(std::getenv("TIERMEM_TEST_TELL_LIMIT"))));
  if (std::getenv("TIERMEM_TEST_TELL_LIST") != nullptr) {
    const std::vector<std::string> list = {"one", "two", "three"};
    tell(LogLevel::warn, list);
  }
  for (const char* const sentence : {"first", "first", "second", "third", "first", "fourth"}) {
    tell(LogLevel::warn, sentence);
  }
}

std::string told(const char* limit, bool list = false) {
  const test::Directory directory;
  const std::string path = directory.path() + "/stderr";
  const pid_t child = ::fork();
  if (child == 0) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ::dup2(file, STDERR_FILENO);
    ::setenv("TIERMEM_TEST_TELL_LIMIT", limit, 1);
    if (list) {
      ::setenv("TIERMEM_TEST_TELL_LIST", "1", 1);
    }
    ::unsetenv("GTEST_FILTER");
    ::execl("/proc/self/exe", "unit_tests", "--gtest_filter=TellInner.DISABLED_tells",
            "--gtest_also_run_disabled_tests", "--gtest_brief=1", nullptr);
    ::_exit(1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Tell, each_sentence_is_written_once_up_to_the_limit) {
  EXPECT_EQ(told("1"), "tiermem: first\n");
  EXPECT_EQ(told("3"), "tiermem: first\ntiermem: second\ntiermem: third\n");
  EXPECT_EQ(told("100"), "tiermem: first\ntiermem: second\ntiermem: third\ntiermem: fourth\n");
  EXPECT_EQ(told("0"), "");
}

TEST(Tell, list_of_sentences_is_one_line_where_one_may_be_written) {
  EXPECT_EQ(told("1", true), "tiermem: one (2 more: TIERMEM_LOG=warn shows all)\n");
  EXPECT_EQ(told("4", true), "tiermem: one\ntiermem: two\ntiermem: three\ntiermem: first\n");
}

}  // namespace
}  // namespace tiermem
