// How often, and with which pauses, a call that the kernel refuses is repeated.
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <initializer_list>

#include "tier/refused_calls.hpp"

namespace tiermem {
namespace {

class RefusedCallTest : public ::testing::Test {
 protected:
  void pauses(std::chrono::microseconds pause) { RefusedCall::pause_between = pause; }
  void TearDown() override { RefusedCall::pause_between = before_; }
  /// Returns how often the call may be repeated.
  static unsigned repeats(RefusedCall& call, int error) {
    unsigned n = 0;
    while (call.again(error)) {
      ++n;
    }
    return n;
  }

 private:
  const std::chrono::microseconds before_ = RefusedCall::pause_between;
};

// The test does not end if one of the calls pauses.
TEST_F(RefusedCallTest, error_that_passes_quickly_is_first_repeated_without_a_pause) {
  pauses(std::chrono::hours(24));
  for (const int error : {EAGAIN, EINTR, EBUSY, EEXIST, ENOENT}) {
    RefusedCall call;
    for (int times = 0; times < 64; ++times) {
      ASSERT_TRUE(call.again(error)) << times;
    }
    call.succeeded();
    EXPECT_TRUE(call.again(error)) << "counted anew";
  }
}

TEST_F(RefusedCallTest, every_error_is_given_up_after_its_number_of_repeats) {
  pauses({});
  struct Case {
    int error;
    unsigned repeats;
  };
  for (const Case& each : {Case{EAGAIN, 2'000}, Case{EBUSY, 2'000}, Case{ENOMEM, 60'000},
                           Case{EINVAL, 50}, Case{EPERM, 50}, Case{EFAULT, 50}}) {
    RefusedCall call;
    EXPECT_EQ(repeats(call, each.error), each.repeats) << each.error;
    EXPECT_FALSE(call.again(each.error)) << "a second page is given up at once";
    call.succeeded();
    EXPECT_EQ(repeats(call, each.error), each.repeats) << each.error;
  }
}

}  // namespace
}  // namespace tiermem
