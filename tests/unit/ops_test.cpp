// The table of operations, without a mover: the test completes the requests. Goal: each handle is
// answered once, and descriptors report the completion.
#include "runtime/ops.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "in_child.hpp"
#include "support/closed_stdin.hpp"

namespace tiermem {
namespace {

constexpr std::int64_t kForever = INT64_MAX;

bool is_readable(int fd) {
  pollfd waiting{fd, POLLIN, 0};
  return ::poll(&waiting, 1, 0) == 1;
}

int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 256; ++fd) {
    count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  }
  return count;
}

class OpsTest : public testing::Test {
 protected:
  OpHandle begin() { return ops_->add(std::make_unique<Request>()); }
  /// Completes the request in the mover's place.
  void complete(OpHandle op, Status status = {}) {
    Request* const request = ops_->request_of(op);
    ASSERT_NE(request, nullptr);
    request->status = std::move(status);
    request->on_done(*request);
  }

  std::shared_ptr<OpQueue> enter() {
    auto queue = OpQueue::create();
    EXPECT_TRUE(queue.ok()) << queue.message();
    ops_->enter(*queue);
    return *queue;
  }

  ContextTag tag_;
  std::unique_ptr<Ops> ops_ = std::make_unique<Ops>(tag_.value());
};

TEST_F(OpsTest, operation_is_answered_once_with_its_status) {
  const OpHandle op = begin();
  const OpHandle other = begin();
  EXPECT_NE(op, other);
  EXPECT_EQ(ops_->live(), 2u);
  EXPECT_EQ(ops_->wait(op, 0).code(), Code::busy);
  EXPECT_EQ(ops_->wait(op, now_ns() + 1'000'000).code(), Code::busy);
  complete(op, fail(Code::io_error, "as the test says"));
  const Status answer = ops_->wait(op, kForever);
  EXPECT_EQ(answer.code(), Code::io_error);
  EXPECT_STREQ(answer.message(), "as the test says");
  EXPECT_EQ(ops_->live(), 1u);
  EXPECT_EQ(ops_->wait(op, 0).code(), Code::invalid_argument);
  EXPECT_FALSE(ops_->cancel(op));
  EXPECT_EQ(ops_->request_of(op), nullptr);
  const OpHandle again = begin();  // Uses the same entry.
  EXPECT_NE(again, op);
  EXPECT_EQ(ops_->wait(op, 0).code(), Code::invalid_argument);
  EXPECT_EQ(ops_->wait(again, 0).code(), Code::busy);
}

// `busy` means that an operation goes on, to every function that asks.
TEST_F(OpsTest, result_of_an_operation_is_never_busy) {
  const auto ended = [&](Status status) {
    const OpHandle op = begin();
    complete(op, std::move(status));
    return op;
  };
  const auto not_resident = [] { return fail(Code::busy, "test: it is not resident"); };
  const Status waited = ops_->wait(ended(not_resident()), 0);
  EXPECT_EQ(waited.code(), Code::timed_out);
  EXPECT_STREQ(waited.message(), "test: it is not resident");
  EXPECT_EQ(ops_->wait(ended(Code::busy), 0).code(), Code::timed_out);
  const OpHandle op = ended(not_resident());
  EXPECT_EQ(ops_->look("test", op).status.code(), Code::timed_out);
  EXPECT_EQ(ops_->consume(op)->code(), Code::timed_out);
  const std::shared_ptr<OpQueue> queue = enter();
  ASSERT_TRUE(ops_->add_to(*queue, ended(not_resident()), nullptr).ok());
  Ops::Ended event;
  ASSERT_TRUE(ops_->take_ended(*queue, event));
  EXPECT_EQ(event.status.code(), Code::timed_out);
  // The call that began it returns it as it is.
  EXPECT_EQ(ops_->wait_in_call(ended(not_resident())).code(), Code::busy);
  EXPECT_EQ(ops_->wait_in_call(0).code(), Code::invalid_argument);
}

TEST_F(OpsTest, before_done_is_called_before_the_answer_is_seen) {
  auto request = std::make_unique<Request>();
  struct Seen {
    Ops* ops;
    OpHandle op;
    Code code;
  } seen{ops_.get(), 0, Code::ok};
  request->before_context = &seen;
  request->before_done = [](Request& done) {
    auto& mine = *static_cast<Seen*>(done.before_context);
    mine.code = mine.ops->wait(mine.op, 0).code();
  };
  seen.op = ops_->add(std::move(request));
  complete(seen.op);
  EXPECT_EQ(seen.code, Code::busy);
  EXPECT_TRUE(ops_->wait(seen.op, 0).ok());
}

TEST_F(OpsTest, waiting_thread_is_woken_and_a_second_one_is_refused) {
  const OpHandle op = begin();
  std::thread waiting([&] { EXPECT_TRUE(ops_->wait(op, kForever).ok()); });
  Status second = ops_->wait(op, 0);
  while (std::string(second.message()).find("another thread waits") == std::string::npos) {
    ASSERT_EQ(second.code(), Code::busy);
    std::this_thread::yield();
    second = ops_->wait(op, 0);
  }
  complete(op);
  waiting.join();
  EXPECT_EQ(ops_->live(), 0u);
}

TEST_F(OpsTest, wait_reaches_its_deadline_then_the_operation_can_be_waited_for_again) {
  const OpHandle op = begin();
  const Status late = ops_->wait(op, now_ns() - 1);
  EXPECT_EQ(late.code(), Code::busy);
  EXPECT_STREQ(ops_->wait(op, 0).message(), late.message()) << "no thread waits for it";
  complete(op);
  EXPECT_TRUE(ops_->wait(op, 0).ok());
}

TEST_F(OpsTest, cancelled_request_carries_the_mark) {
  const OpHandle op = begin();
  EXPECT_FALSE(ops_->request_of(op)->cancel.load());
  EXPECT_TRUE(ops_->cancel(op));
  EXPECT_TRUE(ops_->request_of(op)->cancel.load());
  EXPECT_FALSE(ops_->cancel(op + 1)) << "no such entry";
  complete(op);
}

TEST_F(OpsTest, descriptors_become_readable_with_the_answer_and_are_closed_after_it) {
  const test::ClosedStdin closed;  // The table's own descriptor gets the number 0.
  const int before = open_descriptors();
  const OpHandle op = begin();
  const auto early = ops_->descriptor(op);
  ASSERT_TRUE(early.ok()) << early.message();
  const auto second = ops_->descriptor(op);
  ASSERT_TRUE(second.ok()) << second.message();
  EXPECT_EQ(open_descriptors(), before + 3) << "one of the table, and two of the caller";
  EXPECT_FALSE(is_readable(*early) || is_readable(*second));
  complete(op);
  EXPECT_TRUE(is_readable(*early) && is_readable(*second));
  EXPECT_TRUE(ops_->wait(op, 0).ok());
  EXPECT_TRUE(is_readable(*early)) << "it is the caller's";
  EXPECT_EQ(ops_->descriptor(op).code(), Code::invalid_argument);
  ::close(*early);
  ::close(*second);
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(OpsTest, descriptor_of_a_completed_operation_is_readable_at_once) {
  const OpHandle op = begin();
  complete(op);
  const auto late = ops_->descriptor(op);
  ASSERT_TRUE(late.ok()) << late.message();
  EXPECT_TRUE(is_readable(*late));
  ::close(*late);
}

TEST_F(OpsTest, table_is_destroyed_then_its_descriptors_are_closed) {
  const test::ClosedStdin closed;
  const int before = open_descriptors();
  const auto theirs = ops_->descriptor(begin());
  ASSERT_TRUE(theirs.ok()) << theirs.message();
  ops_.reset();
  EXPECT_EQ(open_descriptors(), before + 1);
  ::close(*theirs);
}

TEST_F(OpsTest, operation_is_looked_at_and_awaited_then_it_stays_until_it_is_consumed) {
  const OpHandle op = begin();
  EXPECT_EQ(ops_->look("test", op).state, Ops::State::under_way);
  EXPECT_EQ(ops_->look("test", op).status.code(), Code::busy);
  EXPECT_EQ(ops_->await(op, 0).code(), Code::busy);
  EXPECT_FALSE(ops_->consume(op));
  complete(op, fail(Code::io_error, "as the test says"));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ops_->look("test", op).state, Ops::State::done);
    EXPECT_STREQ(ops_->look("test", op).status.message(), "as the test says");
    EXPECT_TRUE(ops_->await(op, kForever).ok());
  }
  const auto status = ops_->consume(op);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->code(), Code::io_error);
  EXPECT_FALSE(ops_->consume(op));
  EXPECT_EQ(ops_->look("test", op).state, Ops::State::none);
  EXPECT_EQ(ops_->look("test", op).status.code(), Code::invalid_argument);
  EXPECT_EQ(ops_->live(), 0u);
}

TEST_F(OpsTest, queue_is_readable_while_it_has_ended_operations) {
  const auto queue = enter();
  std::vector<OpHandle> ops = {begin(), begin(), begin()};
  int users[3];
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(ops_->add_to(*queue, ops[static_cast<std::size_t>(i)], &users[i]).ok());
  }
  Ops::Ended ended;
  EXPECT_FALSE(ops_->take_ended(*queue, ended));
  EXPECT_FALSE(is_readable(queue->fd()));
  complete(ops[2], fail(Code::io_error, "as the test says"));
  complete(ops[0]);
  EXPECT_TRUE(is_readable(queue->fd()));
  ASSERT_TRUE(ops_->take_ended(*queue, ended));
  EXPECT_EQ(ended.op, ops[2]);
  EXPECT_EQ(ended.user, &users[2]);
  EXPECT_STREQ(ended.status.message(), "as the test says");
  EXPECT_TRUE(is_readable(queue->fd())) << "one more";
  ASSERT_TRUE(ops_->take_ended(*queue, ended));
  EXPECT_EQ(ended.op, ops[0]);
  EXPECT_FALSE(is_readable(queue->fd()));
  EXPECT_EQ(ops_->leave(*queue), 1u) << "one is under way";
  complete(ops[1]);
  EXPECT_EQ(ops_->leave(*queue), 1u) << "its end was not taken";
  ASSERT_TRUE(ops_->take_ended(*queue, ended));
  EXPECT_EQ(ops_->leave(*queue), 0u);
  EXPECT_EQ(ops_->live(), 0u);
}

TEST_F(OpsTest, operation_in_a_queue_is_consumed_by_it_alone) {
  const auto queue = enter();
  const OpHandle op = begin();
  complete(op);
  EXPECT_TRUE(ops_->add_to(*queue, op, nullptr).ok()) << "it has ended before";
  EXPECT_TRUE(is_readable(queue->fd()));
  EXPECT_EQ(ops_->add_to(*queue, op, nullptr).code(), Code::invalid_argument);
  EXPECT_EQ(ops_->wait(op, 0).code(), Code::invalid_argument);
  EXPECT_EQ(ops_->await(op, kForever).code(), Code::invalid_argument);
  EXPECT_FALSE(ops_->consume(op));
  EXPECT_TRUE(ops_->cancel(op));
  EXPECT_EQ(ops_->look("test", op).state, Ops::State::done);
  Ops::Ended ended;
  EXPECT_TRUE(ops_->take_ended(*queue, ended));
  EXPECT_EQ(ops_->add_to(*queue, op, nullptr).code(), Code::invalid_argument);
  const OpHandle again = begin();  // The same entry, in no queue.
  complete(again);
  EXPECT_FALSE(ops_->take_ended(*queue, ended));
  EXPECT_TRUE(ops_->wait(again, 0).ok());
}

TEST_F(OpsTest, context_ends_then_the_descriptor_of_a_queue_stays_readable) {
  const auto queue = enter();
  const OpHandle op = begin();
  EXPECT_TRUE(ops_->add_to(*queue, op, nullptr).ok());
  EXPECT_EQ(queue.use_count(), 2);
  ops_->end_queues();
  EXPECT_EQ(queue.use_count(), 1);
  EXPECT_TRUE(is_readable(queue->fd()));
  complete(op);
  Ops::Ended ended;
  EXPECT_TRUE(ops_->take_ended(*queue, ended));
  EXPECT_TRUE(is_readable(queue->fd()));
}

// The parent's descriptor and the child's have one number.
TEST_F(OpsTest, child_of_fork_gets_descriptors_of_its_own) {
  const auto queue = enter();
  const OpHandle op = begin();
  const OpHandle other = begin();
  const OpHandle left = begin();
  EXPECT_TRUE(ops_->add_to(*queue, op, nullptr).ok());
  EXPECT_TRUE(ops_->add_to(*queue, left, nullptr).ok());
  const auto single = ops_->descriptor(other);
  ASSERT_TRUE(single.ok());
  const int fd = queue->fd();
  EXPECT_TRUE(in_child([&] {
    ops_->follow_fork();
    complete(op);
    complete(other);
    Ops::Ended ended;
    const bool own =
        queue->fd() == fd && is_readable(fd) && ops_->take_ended(*queue, ended) && !is_readable(fd);
    complete(left);
    return own && is_readable(fd);
  }));
  EXPECT_FALSE(is_readable(fd)) << "the child wrote to it";
  EXPECT_FALSE(is_readable(*single)) << "the child wrote to it";
  ::close(*single);
  EXPECT_TRUE(in_child([&] {
    const rlimit none{3, 3};
    ::setrlimit(RLIMIT_NOFILE, &none);
    ops_->follow_fork();
    complete(op);
    Ops::Ended ended;
    return queue->fd() == -1 && ops_->take_ended(*queue, ended) && ended.op == op;
  }));
  EXPECT_FALSE(is_readable(fd));
}

TEST_F(OpsTest, threads_end_add_and_take_operations_then_each_comes_once) {
  constexpr int kEach = 2000;
  constexpr int kMakers = 3;
  const auto queue = enter();
  std::vector<std::atomic<int>> seen(kMakers * kEach);
  std::atomic<int> taken{0};
  std::vector<std::thread> threads;
  for (int maker = 0; maker < kMakers; ++maker) {
    threads.emplace_back([&, maker] {
      for (int i = 0; i < kEach; ++i) {
        const OpHandle op = begin();
        Request& request = *ops_->request_of(op);
        std::atomic<int>& user = seen[static_cast<std::size_t>(maker * kEach + i)];
        if (i % 2 == 0) {
          request.on_done(request);
        }
        EXPECT_TRUE(ops_->add_to(*queue, op, &user).ok());
        if (i % 2 != 0) {
          request.on_done(request);
        }
      }
    });
  }
  for (int taker = 0; taker < 2; ++taker) {
    threads.emplace_back([&] {
      Ops::Ended ended;
      while (taken.load() < kMakers * kEach) {
        pollfd waiting{queue->fd(), POLLIN, 0};
        (void)::poll(&waiting, 1, 10);
        while (ops_->take_ended(*queue, ended)) {
          ++*static_cast<std::atomic<int>*>(ended.user);
          ++taken;
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](const auto& n) { return n.load() == 1; }));
  EXPECT_FALSE(is_readable(queue->fd()));
  EXPECT_EQ(ops_->live(), 0u);
}

TEST_F(OpsTest, process_has_no_descriptor_left_then_the_call_is_refused_with_errno) {
  EXPECT_TRUE(in_child([this] {
    const OpHandle op = begin();
    const rlimit none{3, 3};
    ::setrlimit(RLIMIT_NOFILE, &none);
    const auto refused = ops_->descriptor(op);
    const auto queue = OpQueue::create();
    return refused.code() == Code::no_capacity && refused.status().info()->native == EMFILE &&
           queue.code() == Code::no_capacity && queue.status().info()->native == EMFILE;
  }));
}

TEST_F(OpsTest, table_is_full_then_no_handle_is_given_until_one_is_answered) {
  OpHandle last = 0;
  for (std::size_t i = 0; i < Ops::kMost; ++i) {
    last = begin();
    ASSERT_NE(last, 0u) << i;
  }
  EXPECT_EQ(begin(), 0u);
  EXPECT_EQ(ops_->live(), Ops::kMost);
  complete(last);
  EXPECT_TRUE(ops_->wait(last, 0).ok());
  EXPECT_NE(begin(), 0u);
  EXPECT_EQ(begin(), 0u);
}

TEST_F(OpsTest, entry_has_no_lives_left_then_it_is_not_used_again) {
  ops_->test_leave_lives(1);
  std::vector<OpHandle> seen;
  for (int i = 0; i < 3; ++i) {
    const OpHandle op = begin();
    EXPECT_EQ(std::count(seen.begin(), seen.end(), op), 0) << i;
    seen.push_back(op);
    EXPECT_EQ(ops_->live(), 1u);
    complete(op);
    EXPECT_TRUE(ops_->wait(op, 0).ok());
    EXPECT_EQ(ops_->live(), 0u);
  }
  for (const OpHandle op : seen) {
    EXPECT_EQ(ops_->wait(op, 0).code(), Code::invalid_argument);
  }
}

}  // namespace
}  // namespace tiermem
