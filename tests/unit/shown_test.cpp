// Text from outside as one line: what is escaped, what is not, and that no message contains raw
// bytes.
#include "base/shown.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "base/error.hpp"
#include "residency/label.hpp"

namespace tiermem {
namespace {

TEST(Shown, control_characters_and_wrong_bytes_become_escapes) {
  EXPECT_EQ(shown("weights/é–✓ 1"), "weights/é–✓ 1");
  EXPECT_EQ(shown("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  EXPECT_EQ(shown("\x1b[2J\x7f"), "\\x1b[2J\\x7f");
  EXPECT_EQ(shown("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(shown("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(shown("\xc0\x80"), "\\xc0\\x80") << "overlong";
  EXPECT_EQ(shown("\xc2\x85"), "\\x85") << "the next line of C1";
  EXPECT_EQ(shown("x\xe2\x80\xa8y\xe2\x80\xaez"), "x\\u{2028}y\\u{202e}z");
  EXPECT_EQ(shown(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(shown(""), "");
}

TEST(Shown, text_that_does_not_fit_ends_between_characters_and_escapes) {
  char room[5];
  EXPECT_EQ(std::string(room, show_into(room, 5, "abc\n\n")), "abc\\n");
  EXPECT_EQ(std::string(room, show_into(room, 4, "abc\n")), "abc");
  EXPECT_EQ(std::string(room, show_into(room, 4, "abcé")), "abc");
  EXPECT_EQ(whole_characters("abc\xc3"), "abc");
  EXPECT_EQ(whole_characters("abc\xe2\x9c"), "abc");
  EXPECT_EQ(whole_characters("abcé"), "abcé");
  EXPECT_EQ(whole_characters("\x80\x80"), "\x80\x80") << "no cut made these";
}

std::string random_bytes(std::mt19937& random) {
  std::string text(random() % 40, '\0');
  for (char& c : text) {
    const unsigned kind = random() % 4;
    c = static_cast<char>(kind == 0   ? 1 + random() % 31
                          : kind == 1 ? 128 + random() % 128
                                      : 32 + random() % 95);
  }
  return text;
}

TEST(Shown, random_bytes_always_become_one_plain_line) {
  std::mt19937 random(7);
  for (int i = 0; i < 5000; ++i) {
    const std::string text = random_bytes(random);
    const std::string once = shown(text);
    EXPECT_TRUE(is_plain(once)) << once;
    EXPECT_EQ(shown(once), once);
    EXPECT_EQ(is_plain(text), once == text);
    EXPECT_LE(once.size(), text.size() * 8);
  }
}

TEST(Shown, errors_are_plain_whatever_is_named_in_them) {
  std::mt19937 random(8);
  for (int i = 0; i < 5000; ++i) {
    const std::string text = random_bytes(random);
    const Status status = fail(Code::busy, "close: buffer '{}' is held", text);
    EXPECT_TRUE(is_plain(status.message())) << status.message();
    EXPECT_TRUE(std::string_view(status.message()).starts_with("close: buffer '"));
  }
  const Status longer = fail(Code::busy, "{}é", std::string(254, 'x'));
  EXPECT_EQ(std::string(longer.message()), std::string(254, 'x')) << "cut between characters";
}

TEST(Shown, a_label_that_is_cut_has_whole_characters) {
  Label label;
  label.set("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxé");
  EXPECT_EQ(label.get().view(), "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
  label.set("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxé");
  EXPECT_EQ(label.get().view(), "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxé");
}

}  // namespace
}  // namespace tiermem
