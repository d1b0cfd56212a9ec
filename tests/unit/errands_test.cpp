// Calls that run as operations in threads of the library. Goal: an operation that waits for a
// thread ends at its deadline and when it is cancelled, and its items say so; the order of the
// others stays.
#include "runtime/errands.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <utility>

#include "base/clock.hpp"

namespace tiermem {
namespace {

struct Facts {
  std::atomic<int> ran{0};
  std::atomic<Code> refused{Code::ok};
};

/// Waits for `go`, if there is one.
class TestErrand final : public Errand {
 public:
  explicit TestErrand(Facts& facts, std::latch* go = nullptr,
                      std::int64_t deadline = Request::kForever)
      : facts_(facts), go_(go), deadline_(deadline) {}
  Status run() override {
    if (go_ != nullptr) {
      go_->wait();
    }
    ++facts_.ran;
    return {};
  }
  void refuse(Code why) noexcept override { facts_.refused = why; }
  std::int64_t deadline() const noexcept override { return deadline_; }

 private:
  Facts& facts_;
  std::latch* const go_;
  const std::int64_t deadline_;
};

class ErrandsTest : public testing::Test {
 protected:
  ~ErrandsTest() override { let_go(); }
  void let_go() {
    if (!gone_) {
      gone_ = true;
      go_.count_down();
    }
  }
  OpHandle send(Facts& facts, std::latch* go = nullptr, std::int64_t deadline = Request::kForever) {
    Result<OpHandle> op = errands_.send(ops_, std::make_unique<Request>(),
                                        std::make_unique<TestErrand>(facts, go, deadline));
    EXPECT_TRUE(op.ok()) << op.message();
    return op.ok() ? *op : 0;
  }
  bool is_under_way(OpHandle op) { return ops_.look("test", op).state == Ops::State::under_way; }

  ContextTag tag_;
  Ops ops_{tag_.value()};
  std::latch go_{1};
  bool gone_ = false;
  Errands errands_;  // One thread.
};

TEST_F(ErrandsTest, those_that_wait_for_a_thread_end_at_their_deadline) {
  Facts first, second, third;
  const OpHandle busy = send(first, &go_);
  const OpHandle late = send(second, nullptr, 1000);
  const OpHandle later = send(third, nullptr, 2000);
  EXPECT_EQ(errands_.end_late(999), 1000);
  EXPECT_TRUE(is_under_way(late));
  EXPECT_EQ(errands_.end_late(1000), 2000);
  const Status ended = ops_.wait(late, 0);
  EXPECT_EQ(ended.code(), Code::timed_out);
  EXPECT_EQ(second.refused, Code::timed_out);
  EXPECT_TRUE(is_under_way(later));
  let_go();
  EXPECT_TRUE(ops_.wait(busy, Request::kForever).ok());
  EXPECT_TRUE(ops_.wait(later, Request::kForever).ok());
  EXPECT_EQ(second.ran + third.ran, 1);
  EXPECT_EQ(errands_.end_late(now_ns()), Request::kForever);
}

TEST_F(ErrandsTest, cancelled_ones_do_not_wait_for_a_thread) {
  Facts first, second, third;
  const OpHandle busy = send(first, &go_);
  const OpHandle cancelled = send(second);
  const OpHandle other = send(third);
  ASSERT_TRUE(ops_.cancel(cancelled));
  errands_.end_cancelled();
  EXPECT_EQ(ops_.wait(cancelled, 0).code(), Code::cancelled);
  EXPECT_EQ(second.refused, Code::cancelled);
  EXPECT_TRUE(is_under_way(other));
  let_go();
  EXPECT_TRUE(ops_.wait(busy, Request::kForever).ok());
  EXPECT_TRUE(ops_.wait(other, Request::kForever).ok());
  EXPECT_EQ(second.ran, 0);
}

}  // namespace
}  // namespace tiermem
