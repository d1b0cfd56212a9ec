// A context is closed by force while threads use it. Property: each call that is in progress, or
// begins, returns, and nothing waits for ever or is used after its end. Method: many short
// contexts, each closed at a random moment. The test counts rounds and not seconds, because the
// races are in the first and last calls.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "support/pattern.hpp"

namespace tiermem::test {
namespace {

/// Makes one call, by number. Returns its code, but ok for errors that another thread's view or
/// close explains.
Code call(Context& context, Buffer& buffer, std::uint64_t i) {
  std::array<std::byte, 4096> bytes{};
  switch (i % 7) {
    case 0:
      return buffer.acquire(kWrite, i % 4 * 4 * kMiB, 4 * kMiB).code();
    case 1:
      return context.read(buffer.handle(), i % 16 * kMiB, bytes.data(), bytes.size()).code();
    case 2:
      return context.info(buffer.handle()).code();
    case 3: {
      const Code code = buffer.evict(i % 8 * 2 * kMiB, 2 * kMiB).code();
      return code == Code::busy ? Code::ok : code;
    }
    case 4: {
      auto small = context.alloc(4096);
      return small.ok() ? small->write(0, bytes.data(), bytes.size()).code() : small.code();
    }
    case 5: {
      const Access range = buffer.range(i % 16 * kMiB, kMiB);
      ViewRecord view;
      auto op = context.acquire_async({&range, 1}, {&view, 1});
      const Code code = op.ok() ? op->wait().code() : op.code();
      if (op.ok() && code == Code::ok) {
        (void)context.release({&view, 1});
      }
      return code;
    }
    default:
      (void)context.stats();
      return buffer.prefetch(i % 16 * kMiB, kMiB).code();
  }
}

TEST(Close, by_force_under_busy_threads_answers_all_of_them) {
  Directory directory;
  for (std::uint64_t round = 0; round < 150; ++round) {
    auto made = Context::create("dram=8M; nvme=" + directory.path() + ":64M");
    ASSERT_TRUE(made.ok()) << made.message();
    auto context = std::move(*made);
    auto buffer = context->alloc(16 * kMiB);
    ASSERT_TRUE(buffer.ok());
    std::atomic<unsigned> under_way{0};
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 6; ++t) {
      threads.emplace_back([&, t] {
        Code code = Code::ok;
        for (std::uint64_t i = t; code == Code::ok; ++i) {
          code = call(*context, *buffer, i);
          under_way += i == t + round % 4 ? 1 : 0;
        }
        under_way += 1000;  // This thread makes no more calls, so the test need not wait for it.
        EXPECT_EQ(code, Code::shut_down) << code_name(code);
      });
    }
    while (under_way.load() < threads.size()) {
      std::this_thread::yield();
    }
    const Status closed = context->close(true, Timeout::seconds(60));
    EXPECT_TRUE(closed.ok()) << closed.message();
    for (std::thread& thread : threads) {
      thread.join();
    }
    buffer->detach();
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

// Buffers and operations that are never freed or released end with the context: a leak checker must
// find nothing afterwards.
TEST(Close, takes_along_what_is_freed_under_views_and_what_waits) {
  Directory directory;
  for (int round = 0; round < 10; ++round) {
    auto made = Context::create("dram=8M; nvme=" + directory.path() + ":64M");
    ASSERT_TRUE(made.ok()) << made.message();
    auto context = std::move(*made);
    auto held = context->alloc(8 * kMiB);
    ASSERT_TRUE(held.ok());
    const Access range = held->range(0, 0, kWrite);
    ViewRecord view, wanted;
    ASSERT_TRUE(context->acquire({&range, 1}, Timeout::forever(), {&view, 1}).ok());
    auto waiting = context->alloc(4 * kMiB);
    const Access other = waiting->range();
    auto op = context->acquire_async({&other, 1}, {&wanted, 1});
    ASSERT_TRUE(op.ok());
    ASSERT_TRUE(context->free(held->detach()).ok());
    (void)waiting->prefetch();
    (void)waiting->detach();
    if (round % 2 == 0) {
      EXPECT_EQ(context->close().code(), Code::busy);
      EXPECT_TRUE(context->close(true).ok());
      EXPECT_EQ(op->wait().code(), Code::shut_down);
    } else {
      op->detach();
    }
  }
}

}  // namespace
}  // namespace tiermem::test
