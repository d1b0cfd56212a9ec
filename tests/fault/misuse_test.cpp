// Invalid uses: stale and forged handles, views that are released twice, contexts that are closed
// while in use. Goal: an error that says what was wrong with the call, never a crash, and no
// damage. Method: every call with every bad handle, and then races between threads with the same
// misuses.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/pattern.hpp"
#include "tiermem.h"

namespace tiermem::test {
namespace {

class Misuse : public ::testing::Test {
 protected:
  std::unique_ptr<Context> make(const std::string& dram) {
    return make_context("dram=" + dram + "; nvme=" + directory_.path() + ":256M");
  }
  Directory directory_;
};

/// Returns handles that are not buffers of `context`, in every shape that a mistake or an attack
/// can have.
std::vector<Handle> bad_handles(Context& context) {
  auto freed = context.alloc(kMiB);
  EXPECT_TRUE(freed.ok());
  const Handle stale = freed->handle();
  freed->reset();
  auto reborn = context.alloc(kMiB);  // Probably uses the same record.
  EXPECT_TRUE(reborn.ok());
  const Handle live = reborn->handle();
  reborn->detach();
  return {0,
          1,
          stale,
          live + (Handle{1} << 32),
          live ^ (Handle{1} << 63),
          live + 12345,
          ~Handle{0},
          Handle{0xdeadbeef},
          Handle{1} << 32};
}

TEST_F(Misuse, every_call_refuses_every_bad_handle) {
  auto context = make("16M");
  ASSERT_NE(context, nullptr);
  auto good = context->alloc(2 * kMiB);
  ASSERT_TRUE(good.ok());
  ASSERT_TRUE(write_pattern(*good, 1).ok());
  std::array<std::byte, 64> bytes{};
  using Call = std::function<Status(Handle)>;
  const auto list = [](Handle handle) { return Access{handle, 0, 0, kRead, {}, 0}; };
  const std::map<std::string, Call> calls{
      {"free", [&](Handle h) { return context->free(h); }},
      {"info", [&](Handle h) { return context->info(h).status().clone(); }},
      {"read", [&](Handle h) { return context->read(h, 0, bytes.data(), bytes.size()); }},
      {"write", [&](Handle h) { return context->write(h, 0, bytes.data(), bytes.size()); }},
      {"evict", [&](Handle h) { return context->evict(std::array{list(h)}); }},
      {"migrate",
       [&](Handle h) {
         return context->migrate(std::array{list(h)}, {Kind::dram, 0});
       }},
      {"prefetch", [&](Handle h) { return context->prefetch(std::array{list(h)}); }},
      {"advise", [&](Handle h) { return context->advise(std::array{list(h)}, Advice::cold); }},
      {"dont_need",
       [&](Handle h) { return context->advise(std::array{list(h)}, Advice::dont_need); }},
      {"will_need",
       [&](Handle h) { return context->advise(std::array{list(h)}, Advice::will_need); }},
      {"acquire",
       [&](Handle h) {
         // The valid one is first; it must not stay pinned.
         std::array<ViewRecord, 2> views{};
         return context->acquire(std::array{good->range(), list(h)}, Timeout::seconds(5), views);
       }},
      {"acquire_async",
       [&](Handle h) {
         std::array<ViewRecord, 2> views{};
         auto op = context->acquire_async(std::array{good->range(), list(h)}, views);
         return op.ok() ? op->wait() : std::move(op).status();
       }},
  };
  for (const Handle handle : bad_handles(*context)) {
    for (const auto& [name, call] : calls) {
      const Status status = call(handle);
      EXPECT_EQ(status.code(), Code::stale_handle)
          << name << " of " << handle << ": " << status.message();
      EXPECT_SAYS(status, "not a live buffer");
      char number[32];
      std::snprintf(number, sizeof(number), "%#llx", static_cast<unsigned long long>(handle));
      EXPECT_SAYS(status, handle != 0 ? number : "0x0");
    }
  }
  EXPECT_EQ(context->stats().dram_pinned, 0u);
  EXPECT_EQ(wrong_words(*good, 1), 0u);
}

TEST_F(Misuse, forged_and_repeated_views_are_refused_and_release_nobody_elses) {
  auto context = make("16M");
  auto other = make("16M");
  auto buffer = context->alloc(2 * kMiB);
  const Access range = buffer->range(0, 0, kWrite);
  ViewRecord mine, held, foreign;
  ASSERT_TRUE(context->acquire({&range, 1}, Timeout::forever(), {&mine, 1}).ok());
  ASSERT_TRUE(context->acquire({&range, 1}, Timeout::forever(), {&held, 1}).ok());
  auto elsewhere = other->alloc(2 * kMiB);
  const Access foreign_range = elsewhere->range();
  ASSERT_TRUE(other->acquire({&foreign_range, 1}, Timeout::forever(), {&foreign, 1}).ok());
  ASSERT_TRUE(context->release({&mine, 1}).ok());

  std::vector<ViewRecord> forged(6, held);
  forged[0].token[1] += 2;
  forged[1].token[0] += 1;
  forged[2].token[0] = ~std::uint64_t{0};
  forged[3].token[0] = forged[3].token[1] = 0;
  forged[4] = mine;
  forged[5].token[1] += 1;
  for (const ViewRecord& view : forged) {
    const Status status = context->release({&view, 1});
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_SAYS(status, "not held");
  }
  // A list with one bad view: the other views in it are still released.
  EXPECT_EQ(context->release(std::array{mine, held}).code(), Code::invalid_argument);
  EXPECT_EQ(context->stats().dram_pinned, 0u);
  EXPECT_EQ(other->stats().dram_pinned, 2 * kMiB);
  EXPECT_TRUE(other->release({&foreign, 1}).ok());
}

TEST_F(Misuse, forged_and_consumed_operations_are_refused) {
  auto context = make("16M");
  auto buffer = context->alloc(2 * kMiB);
  const Access range = buffer->range();
  Op op;
  ASSERT_TRUE(context->prefetch({&range, 1}, 0, &op).ok());
  const OpHandle handle = op.detach();
  EXPECT_TRUE(context->op_wait(handle, Timeout::seconds(10)).ok());
  for (const OpHandle bad :
       {handle, OpHandle{0}, OpHandle{1}, ~OpHandle{0}, handle + (OpHandle{5} << 32), handle + 7}) {
    for (const Status& status : {context->op_wait(bad, Timeout::seconds(5)), context->op_poll(bad),
                                 context->op_cancel(bad)}) {
      EXPECT_EQ(status.code(), Code::invalid_argument) << bad;
      EXPECT_SAYS(status, "not under way");
    }
  }
  EXPECT_EQ(op.wait().code(), Code::invalid_argument);
}

TEST_F(Misuse,
       of_many_frees_of_one_buffer_exactly_one_succeeds_also_beside_the_release_of_its_view) {
  auto context = make("16M");
  for (std::uint64_t round = 0; round < 200; ++round) {
    auto buffer = context->alloc(64 << 10);
    ASSERT_TRUE(buffer.ok());
    ASSERT_TRUE(write_pattern(*buffer, round).ok());
    const Access range = buffer->range();
    ViewRecord view;
    ASSERT_TRUE(context->acquire({&range, 1}, Timeout::forever(), {&view, 1}).ok());
    const Handle handle = buffer->detach();
    std::atomic<int> frees{0}, odd{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        const Code freed = context->free(handle).code();
        frees += freed == Code::ok ? 1 : 0;
        odd += freed != Code::ok && freed != Code::stale_handle ? 1 : 0;
        if (t == 0) {
          odd += context->release({&view, 1}).ok() ? 0 : 1;
          odd += context->release({&view, 1}).code() == Code::invalid_argument ? 0 : 1;
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    ASSERT_EQ(frees.load(), 1);
    ASSERT_EQ(odd.load(), 0);
  }
  EXPECT_TRUE(eventually([&] { return context->stats().buffers == 0; }));
  EXPECT_EQ(context->stats().dram_pinned, 0u);
}

TEST_F(Misuse, a_view_outlives_its_buffer_and_its_context_names_it_until_the_release) {
  auto context = make("8M");
  BufferOptions options;
  options.label = "freed under its view";
  auto buffer = context->alloc(4 * kMiB, options);
  auto view = buffer->acquire(kDiscard);
  ASSERT_TRUE(view.ok());
  fill(view->as<std::uint64_t>(), 2);
  ASSERT_TRUE(context->free(buffer->detach()).ok());
  auto more = context->alloc(16 * kMiB);
  EXPECT_TRUE(write_pattern(*more, 3).ok()) << "with the rest of the memory";
  EXPECT_EQ(wrong(view->as<std::uint64_t>(), 2), 0u);
  const Status closed = context->close();
  EXPECT_EQ(closed.code(), Code::busy);
  EXPECT_SAYS(closed, "freed under its view");
  EXPECT_SAYS(closed, "thread");
  EXPECT_SAYS(closed, " s");
  view->release();
  EXPECT_TRUE(eventually([&] { return context->stats().buffers == 1; }))
      << "its bytes are gone with its last view";
  more->detach();
  EXPECT_TRUE(context->close().ok());
}

TEST_F(Misuse, a_context_that_ends_takes_its_buffers_views_and_operations_along) {
  for (int round = 0; round < 4; ++round) {
    auto context = make("8M");
    ASSERT_NE(context, nullptr);
    std::vector<Buffer> buffers;
    for (std::uint64_t i = 0; i < 8; ++i) {
      auto buffer = context->alloc(2 * kMiB);
      ASSERT_TRUE(buffer.ok());
      ASSERT_TRUE(write_pattern(*buffer, i).ok());
      buffers.push_back(std::move(*buffer));
    }
    ViewRecord held;
    const Access first = buffers[0].range();
    ASSERT_TRUE(context->acquire({&first, 1}, Timeout::seconds(10), {&held, 1}).ok());
    std::vector<Access> all;
    for (const Buffer& buffer : buffers) {
      all.push_back(buffer.range());
    }
    std::vector<ViewRecord> views(all.size());
    auto op = context->acquire_async(std::span(all).first(4), views);
    ASSERT_TRUE(op.ok());
    if (round % 2 == 0) {
      // Closing makes the owners' objects harmless: each call returns, and each destructor ends.
      EXPECT_TRUE(context->close(true).ok());
      const Code ended = op->wait(Timeout::seconds(10)).code();
      EXPECT_TRUE(ended == Code::shut_down || ended == Code::ok) << code_name(ended);
      EXPECT_EQ(buffers[1].acquire(kRead).code(), Code::shut_down);
      EXPECT_EQ(context->free(buffers[1].handle()).code(), Code::shut_down);
      EXPECT_EQ(buffers[1].evict().code(), Code::shut_down);
      EXPECT_EQ(buffers[1].info().code(), Code::shut_down);
      EXPECT_EQ(buffers[1].advise(Advice::cold).code(), Code::shut_down);
      EXPECT_EQ(buffers[1].prefetch().code(), Code::shut_down);
      EXPECT_EQ(context->set_budget({Kind::dram, 0}, kMiB).code(), Code::shut_down);
      EXPECT_SAYS(context->alloc(1), "closed");
      EXPECT_TRUE(context->close().ok()) << "closing twice is not an error";
      buffers.clear();
    } else {
      op->detach();
      for (Buffer& buffer : buffers) {
        buffer.detach();
      }
    }
    context.reset();
  }
}

}  // namespace
}  // namespace tiermem::test
