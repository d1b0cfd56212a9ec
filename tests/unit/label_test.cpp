// The label of a buffer, set and read by any thread.
#include "residency/label.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

namespace tiermem {
namespace {

TEST(Label, is_what_was_set_and_cut_where_it_is_too_long) {
  Label label;
  EXPECT_EQ(label.get().view(), "");
  EXPECT_EQ(label.get().or_none(), "(no label)");
  label.set("weights");
  EXPECT_EQ(label.get().view(), "weights");
  EXPECT_EQ(label.get().or_none(), "weights");
  label.set(std::string(100, 'x'));
  EXPECT_EQ(label.get().view(), std::string(Label::kBytes - 1, 'x'));
  label.set("");
  EXPECT_EQ(label.get().view(), "") << "nothing of the name before is left";
}

TEST(Label, one_that_changes_under_a_reader_always_ends) {
  Label label;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (unsigned length = 0; !stop.load(std::memory_order_relaxed); length = (length + 7) % 40) {
      label.set(std::string(length, 'y'));
    }
  });
  for (int i = 0; i < 20000; ++i) {
    const Label::Text text = label.get();
    EXPECT_LT(text.view().size(), Label::kBytes);
    EXPECT_EQ(text.view().find_first_not_of('y'), std::string_view::npos);
  }
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace tiermem
