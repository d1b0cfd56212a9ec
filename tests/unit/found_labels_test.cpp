// Labels with any bytes, in all places that show a label: errors, their fields, the log, the
// answers of `tiermem why`. Property: each shows plain text on one line, and the label itself stays
// as the program set it.
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>
#include <string>

#include "base/log.hpp"
#include "base/shown.hpp"
#include "residency/label.hpp"
#include "runtime/context_impl.hpp"
#include "support/directory.hpp"
#include "tiermem/context.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

std::string random_label(std::mt19937& random) {
  std::string label(1 + random() % 40, '\0');
  for (char& c : label) {
    const unsigned kind = random() % 3;
    c = static_cast<char>(kind == 0   ? 1 + random() % 31
                          : kind == 1 ? 127 + random() % 129
                                      : 32 + random() % 95);
  }
  return label;
}

void expect_plain(std::string_view text) {
  EXPECT_TRUE(is_plain(text)) << shown(text);
}

TEST(FaultsFound, labels_of_any_bytes_are_plain_text_in_every_message) {
  const test::Directory directory;
  const std::string log = directory.path() + "/log";
  std::mt19937 random(28);
  for (int round = 0; round < 25; ++round) {
    const std::string label = random_label(random);
    auto context =
        Context::create("dram=4M; nvme=off; workers=1; extent=1M; log=debug; log_file=" + log);
    ASSERT_TRUE(context.ok()) << context.message();
    auto buffer = (*context)->alloc(4 * kMiB, {.label = label.c_str()});
    ASSERT_TRUE(buffer.ok()) << buffer.message();
    auto view = buffer->acquire(kWrite);
    ASSERT_TRUE(view.ok()) << view.message();
    Label kept;
    kept.set(label);
    const auto info = buffer->info();
    ASSERT_TRUE(info.ok());
    EXPECT_EQ(std::string(info->label), kept.get().view()) << "the program's own bytes";

    // No room: the error names the buffer that holds it, and so does its field.
    auto other = (*context)->alloc(2 * kMiB, {.label = label.c_str()});
    const auto refused =
        other.ok() ? other->acquire(kWrite, 0, 0, Timeout::milliseconds(1)).status().clone()
                   : other.status().clone();
    EXPECT_FALSE(refused.ok());
    expect_plain(refused.message());
    if (refused.info() != nullptr) {
      expect_plain(refused.info()->holder);
    }
    // Busy: the error lists the views by label.
    const Status busy = (*context)->close();
    EXPECT_EQ(busy.code(), Code::busy);
    expect_plain(busy.message());
    EXPECT_NE(std::string(busy.message()).find("'" + shown(kept.get().view()) + "'"),
              std::string::npos)
        << busy.message();
    // The answer to another process: lines, with words separated by tabs.
    for (const char* question : {"buffers", "why 0x1 0", "no such question\x1b"}) {
      const std::string answer = (*context)->impl().answer(question);
      std::istringstream lines(answer);
      for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        for (std::string word; std::getline(words, word, '\t');) {
          expect_plain(word);
        }
      }
    }
    view->release();
    (void)(*context)->close(true);
  }
  log_error("label '{}'", std::string("a\nb\x1b[2J"));
  log_close();
  std::ifstream file(log);
  unsigned count = 0;
  for (std::string line; std::getline(file, line); ++count) {
    expect_plain(line);
    EXPECT_NE(line.find(" tiermem["), std::string::npos) << "one message is one line: " << line;
  }
  EXPECT_GT(count, 0U);
}

}  // namespace
}  // namespace tiermem
