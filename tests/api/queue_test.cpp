// Queues of operations over a context: threads that begin, add, cancel and drain, and the ends of
// queue and context in either order.
#include "tiermem/queue.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/made.hpp"
#include "support/pattern.hpp"
#include "support/sanitizers.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

bool is_readable(int fd, int timeout_ms = 0) {
  pollfd waiting{fd, POLLIN, 0};
  return ::poll(&waiting, 1, timeout_ms) == 1;
}

class QueueTest : public ::testing::Test {
 protected:
  std::unique_ptr<Context> open() {
    return make_context("dram=16M; nvme=" + directory_.path() + ":128M");
  }
  static std::unique_ptr<Queue> queue_of(Context& context) {
    auto queue = Queue::create(context);
    EXPECT_TRUE(queue.ok()) << queue.message();
    return queue.ok() ? std::move(*queue) : nullptr;
  }
  Directory directory_;
};

TEST_F(QueueTest, operations_of_all_kinds_come_once_from_many_threads) {
  constexpr int kEach = kSanitized ? 150 : 600;
  constexpr int kMakers = 3;
  auto context = open();
  auto queue = queue_of(*context);
  // Twice the memory, so that prefetches and acquires wait for evictions.
  Buffer buffer = make_buffer(*context, 32 * kMiB, "queue");
  struct User {
    ViewRecord view;
    std::uint64_t index = 0, row = 0;
    bool acquires = false;
    std::atomic<int> seen{0};
  };
  std::vector<User> users(kMakers * kEach);
  std::atomic<int> drained{0};
  std::vector<std::thread> threads;
  for (int maker = 0; maker < kMakers; ++maker) {
    threads.emplace_back([&, maker] {
      for (int i = 0; i < kEach; ++i) {
        User& user = users[static_cast<std::size_t>(maker * kEach + i)];
        const Access range =
            buffer.range(static_cast<std::uint64_t>((maker * 7 + i) % 32) * kMiB, 4096);
        Op op;
        if (i % 3 == 0) {
          user.acquires = true;
          auto begun = context->acquire_async({&range, 1}, {&user.view, 1});
          ASSERT_TRUE(begun.ok()) << begun.message();
          op = std::move(*begun);
        } else if (i % 3 == 1) {
          ASSERT_TRUE(context->prefetch({&range, 1}, 0, &op).ok());
        } else {
          user.index = static_cast<std::uint64_t>(i);
          ASSERT_TRUE(
              context->gather(buffer.rows(8, {&user.index, 1}), &user.row, Timeout::forever(), &op)
                  .ok());
        }
        const OpHandle handle = op.handle();
        const Status added = queue->add(op, &user);
        ASSERT_TRUE(added.ok()) << added.message();
        if (i % 5 == 0) {
          (void)context->op_cancel(handle);  // It may have been drained.
        }
      }
    });
  }
  for (int drainer = 0; drainer < 2; ++drainer) {
    threads.emplace_back([&] {
      std::array<Queue::Event, 5> events;
      while (drained.load() < kMakers * kEach) {
        (void)is_readable(queue->fd(), 10);
        const auto count = queue->drain(events);
        ASSERT_TRUE(count.ok()) << count.message();
        for (std::size_t i = 0; i < *count; ++i) {
          User& user = *static_cast<User*>(events[i].user);
          ++user.seen;
          EXPECT_TRUE(events[i].status.ok() || events[i].status.code() == Code::cancelled)
              << events[i].status.message();
          if (user.acquires && events[i].status.ok()) {
            EXPECT_TRUE(context->release({&user.view, 1}).ok());
          }
        }
        drained += static_cast<int>(*count);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_TRUE(std::all_of(users.begin(), users.end(), [](const User& u) { return u.seen == 1; }));
  EXPECT_FALSE(is_readable(queue->fd()));
  EXPECT_TRUE(queue->close().ok());
  EXPECT_TRUE(queue->close().ok());
  Queue::Event none;
  EXPECT_EQ(queue->drain({&none, 1}).code(), Code::shut_down);
}

TEST_F(QueueTest, queue_is_destroyed_then_it_has_waited_for_its_operations) {
  auto context = open();
  Buffer hog = make_buffer(*context, 12 * kMiB, "hog");
  Buffer other = make_buffer(*context, 12 * kMiB, "other");
  auto held = hog.acquire(kWrite);
  ASSERT_TRUE(held.ok()) << held.message();
  auto queue = queue_of(*context);
  const Access range = other.range();
  ViewRecord view;
  auto op = context->acquire_async({&range, 1}, {&view, 1});
  ASSERT_TRUE(op.ok()) << op.message();
  const OpHandle handle = op->handle();
  ASSERT_TRUE(queue->add(*op).ok());
  EXPECT_EQ(op->handle(), 0u);
  EXPECT_EQ(context->op_wait(handle, Timeout::none()).code(), Code::invalid_argument);
  EXPECT_EQ(queue->close().code(), Code::busy);
  std::atomic<bool> gone{false};
  std::thread destroys([&] {
    queue.reset();
    gone = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(gone.load());
  held->release();
  destroys.join();
  EXPECT_TRUE(context->release({&view, 1}).ok()) << "the acquire has ended well";
}

TEST_F(QueueTest, context_ends_while_threads_add_and_drain_then_each_call_ends_in_words) {
  for (int round = 0; round < (kSanitized ? 4 : 20); ++round) {
    auto context = open();
    auto queue = queue_of(*context);
    Buffer buffer = make_buffer(*context, 1 * kMiB, "queue");
    Context& late = *context;
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        for (;;) {
          Queue::Event event;
          Status status;
          if (i == 0) {
            Op op;
            const Access range = buffer.range(0, 4096);
            status = late.prefetch({&range, 1}, 0, &op);
            if (status.ok()) {
              status = queue->add(op);
            }
          } else {
            (void)is_readable(queue->fd(), 5);
            status = queue->drain({&event, 1}).status().clone();
          }
          if (status.code() == Code::shut_down) {
            return;
          }
          EXPECT_TRUE(status.ok() || status.code() == Code::busy) << status.message();
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    context.reset();
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_TRUE(is_readable(queue->fd()));
    queue.reset();
  }
}

// Both ends at once: neither touches what the other has freed.
TEST_F(QueueTest, queue_and_context_end_at_the_same_time) {
  for (int round = 0; round < (kSanitized ? 5 : 30); ++round) {
    auto context = open();
    auto queue = queue_of(*context);
    Buffer buffer = make_buffer(*context, 1 * kMiB, "queue");
    const Access range = buffer.range(0, 4096);
    Op op;
    ASSERT_TRUE(context->prefetch({&range, 1}, 0, &op).ok());
    ASSERT_TRUE(queue->add(op).ok());
    std::thread ends([&] { context.reset(); });
    queue.reset();
    ends.join();
  }
}

}  // namespace
}  // namespace tiermem::test
