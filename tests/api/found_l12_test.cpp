// Fault L12: a call after the end of its context crashed. Here contexts end while buffers, views,
// operations and other threads still refer to them.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "support/pattern.hpp"
#include "tiermem.h"
#include "tiermem/memory_resource.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

constexpr std::uint64_t kBytes = 65536;

TEST(FaultsFound, L12_buffer_view_and_operation_outlive_their_context_without_harm) {
  auto context = make_context("dram=16M; nvme=off");
  ASSERT_NE(context, nullptr);
  Buffer buffer = make_buffer(*context, kBytes, "outlives");
  auto view = buffer.acquire(kWrite);
  ASSERT_TRUE(view.ok());
  Op op, other;
  const Access access = buffer.range();
  ASSERT_TRUE(context->prefetch({&access, 1}, 0, &op).ok());
  ASSERT_TRUE(context->prefetch({&access, 1}, 0, &other).ok());
  Stream stream = buffer.stream(0, kBytes, 4096);
  auto memory = std::make_unique<MemoryResource>(*context);
  void* const block = memory->allocate(4096);
  Context* const stale = context.get();
  context.reset();

  const auto shut_down = [](const char* call, const Status& status) {
    EXPECT_EQ(status.code(), Code::shut_down) << call << ": " << status.message();
  };
  char byte = 0;
  const std::uint64_t row = 0;
  shut_down("read", buffer.read(0, &byte, 1));
  shut_down("write", buffer.write(0, &byte, 1));
  shut_down("acquire", buffer.acquire(kRead).status());
  shut_down("prefetch", buffer.prefetch());
  shut_down("evict", buffer.evict());
  shut_down("advise", buffer.advise(Advice::cold));
  shut_down("gather", buffer.gather(64, {&row, 1}, &byte));
  shut_down("scatter", buffer.scatter(64, {&row, 1}, &byte));
  shut_down("address", buffer.address().status());
  shut_down("address_on", buffer.address_on({Kind::gpu, 0}).status());
  shut_down("info", buffer.info().status());
  shut_down("wait", op.wait());
  shut_down("poll", other.poll());
  shut_down("fd", stale->op_fd(12345).status());
  shut_down("cancel", stale->op_cancel(12345));
  shut_down("alloc", stale->alloc(1).status());
  shut_down("adopt_file", stale->adopt_file("/etc/passwd").status());
  shut_down("adopt_device", stale->adopt_device({Kind::gpu, 0}, &byte, 1).status());
  shut_down("malloc_at", stale->malloc_at({}, 1).status());
  shut_down("free_ptr", stale->free_ptr(&byte));
  shut_down("usable_size", stale->usable_size(&byte).status());
  shut_down("migrate", stale->migrate({&access, 1}, {Kind::dram, 0}));
  shut_down("move_bytes", stale->move_bytes(1, 0, 2, 0, 1));
  shut_down("set_budget", stale->set_budget({Kind::dram, 0}, 1 << 20));
  shut_down("stats_json", stale->stats_json().status());
  shut_down("why", stale->why(buffer.handle(), 0).status());
  shut_down("gpu_pause", stale->gpu_pause(""));
  shut_down("gpu_resume", stale->gpu_resume(""));
  ViewRecord record;
  shut_down("acquire_async", stale->acquire_async({&access, 1}, {&record, 1}).status());
  shut_down("release", stale->release({&record, 1}));
  EXPECT_FALSE(stale->hit(access, record));
  EXPECT_TRUE(stale->close().ok());
  EXPECT_EQ(stale->stats().dram_budget, 0u);
  for (View& chunk : stream) {
    ADD_FAILURE() << "a chunk of " << chunk.size() << " bytes of a context that has ended";
  }
  shut_down("stream", stream.status());
  view->release();
  View moved = std::move(*view);
  memory->deallocate(block, 4096);
  memory.reset();
  Buffer kept = std::move(buffer);
  kept.reset();
}

TEST(FaultsFound, L12_c_calls_after_destroy_answer_shut_down_from_every_thread) {
  tm_context* context = nullptr;
  ASSERT_EQ(tm_context_create("dram=16M; nvme=off", nullptr, &context), TM_OK);
  tm_buffer buffer = 0;
  ASSERT_EQ(tm_alloc(context, kBytes, nullptr, &buffer), TM_OK);
  const tm_access access{buffer, 0, 0, TM_WRITE, {0, 0}, 0};
  tm_view view{};
  ASSERT_EQ(tm_acquire(context, &access, 1, TM_HOST_ORDER, -1, &view), TM_OK);
  tm_op op = 0;
  ASSERT_EQ(tm_prefetch(context, &access, 1, 0, &op), TM_OK);
  ASSERT_EQ(tm_context_destroy(context, TM_DESTROY_FORCE, 10'000'000'000), TM_OK);
  const auto all = [&] {
    tm_access list[40];
    tm_view views[40] = {};
    std::fill(std::begin(list), std::end(list), access);
    char byte = 0;
    const std::uint64_t row = 0;
    const tm_rows rows{buffer, 0, 64, 0, &row, 1};
    tm_buffer other = 0;
    tm_op begun = 0;
    int fd = -1;
    void* pointer = nullptr;
    std::uint64_t number = 0;
    std::size_t length = 0;
    tm_residency residency{};
    residency.size = sizeof residency;
    tm_whereabouts where{};
    where.size = sizeof where;
    tm_counters counters{};
    counters.size = sizeof counters;
    tm_capabilities caps{};
    caps.size = sizeof caps;
    EXPECT_EQ(tm_free(context, buffer), TM_SHUT_DOWN);
    EXPECT_EQ(tm_release(context, &view, 1, TM_HOST_ORDER), TM_SHUT_DOWN);
    EXPECT_EQ(tm_op_wait(context, &op, 1, -1), TM_SHUT_DOWN);
    EXPECT_EQ(tm_op_poll(context, op), TM_SHUT_DOWN);
    EXPECT_EQ(tm_op_fd(context, op, &fd), TM_SHUT_DOWN);
    EXPECT_EQ(tm_op_cancel(context, op), TM_SHUT_DOWN);
    EXPECT_EQ(tm_alloc(context, 1, nullptr, &other), TM_SHUT_DOWN);
    EXPECT_EQ(tm_adopt_file(context, "/etc/passwd", 0, 0, nullptr, &other), TM_SHUT_DOWN);
    EXPECT_EQ(tm_acquire(context, &access, 1, TM_HOST_ORDER, -1, views), TM_SHUT_DOWN);
    EXPECT_EQ(tm_acquire(context, list, 40, TM_HOST_ORDER, -1, views), TM_SHUT_DOWN);
    EXPECT_EQ(tm_acquire_async(context, &access, 1, TM_HOST_ORDER, views, &begun), TM_SHUT_DOWN);
    EXPECT_EQ(tm_prefetch(context, &access, 1, 0, &begun), TM_SHUT_DOWN);
    EXPECT_EQ(tm_prefetch(context, &access, 1, 0, nullptr), TM_SHUT_DOWN);
    EXPECT_EQ(tm_evict(context, &access, 1, -1), TM_SHUT_DOWN);
    EXPECT_EQ(tm_migrate(context, &access, 1, {TM_DRAM, 0}, -1), TM_SHUT_DOWN);
    EXPECT_EQ(tm_advise(context, &access, 1, TM_COLD, 0), TM_SHUT_DOWN);
    EXPECT_EQ(tm_read(context, buffer, 0, &byte, 1, -1), TM_SHUT_DOWN);
    EXPECT_EQ(tm_write(context, buffer, 0, &byte, 1, -1), TM_SHUT_DOWN);
    tm_copy_item item{buffer, 0, &byte, 1, TM_READ, TM_OK};
    EXPECT_EQ(tm_copy(context, &item, 1, 0, -1, nullptr), TM_SHUT_DOWN);
    EXPECT_EQ(tm_copy(context, &item, 1, TM_COPY_NO_PROMOTE, -1, &begun), TM_SHUT_DOWN);
    EXPECT_EQ(tm_gather(context, &rows, &byte, -1, nullptr), TM_SHUT_DOWN);
    EXPECT_EQ(tm_gather_into(context, &rows, buffer, 0, -1, nullptr), TM_SHUT_DOWN);
    EXPECT_EQ(tm_scatter(context, &rows, &byte, -1, &begun), TM_SHUT_DOWN);
    EXPECT_EQ(tm_address(context, buffer, &pointer), TM_SHUT_DOWN);
    EXPECT_EQ(tm_buffer_info(context, buffer, &residency), TM_SHUT_DOWN);
    EXPECT_EQ(tm_why(context, buffer, 0, &where), TM_SHUT_DOWN);
    EXPECT_EQ(tm_malloc(context, {0, 0}, 1, &pointer), TM_SHUT_DOWN);
    EXPECT_EQ(tm_free_ptr(context, &byte), TM_SHUT_DOWN);
    EXPECT_EQ(tm_usable_size(context, &byte, &number), TM_SHUT_DOWN);
    EXPECT_EQ(tm_set_budget(context, {TM_DRAM, 0}, 1 << 20, -1), TM_SHUT_DOWN);
    EXPECT_EQ(tm_tick(context, TM_TICK_OP, &number), TM_SHUT_DOWN);
    EXPECT_EQ(tm_stats(context, &counters), TM_SHUT_DOWN);
    EXPECT_EQ(tm_stats_json(context, 1, nullptr, 0, &length), TM_SHUT_DOWN);
    EXPECT_EQ(tm_caps(context, &caps), TM_SHUT_DOWN);
    EXPECT_EQ(tm_gpu_pause(context, "", 0, TM_HOST_ORDER, nullptr), TM_SHUT_DOWN);
    EXPECT_EQ(tm_gpu_resume(context, "", 0, nullptr), TM_SHUT_DOWN);
    EXPECT_EQ(tm_context_retain(context), TM_SHUT_DOWN);
    EXPECT_EQ(tm_context_release(context), TM_SHUT_DOWN);
    EXPECT_EQ(tm_context_destroy(context, 0, -1), TM_SHUT_DOWN);
  };
  all();
  std::thread(all).join();
  // Another context does not accept it either, even at the address of the previous one.
  tm_context* next = nullptr;
  ASSERT_EQ(tm_context_create("dram=16M; nvme=off", nullptr, &next), TM_OK);
  EXPECT_NE(next, context);
  all();
  EXPECT_EQ(tm_context_destroy(next, 0, -1), TM_OK);
}

TEST(FaultsFound, L12_last_reference_ends_the_context_and_destroy_ends_it_before) {
  tm_context* context = nullptr;
  tm_buffer buffer = 0;
  ASSERT_EQ(tm_context_create("dram=16M; nvme=off", nullptr, &context), TM_OK);
  ASSERT_EQ(tm_context_retain(context), TM_OK);
  ASSERT_EQ(tm_context_release(context), TM_OK);
  EXPECT_EQ(tm_alloc(context, 1, nullptr, &buffer), TM_OK) << "one reference is left";
  ASSERT_EQ(tm_context_release(context), TM_OK);
  EXPECT_EQ(tm_free(context, buffer), TM_SHUT_DOWN);

  ASSERT_EQ(tm_context_create("dram=16M; nvme=off", nullptr, &context), TM_OK);
  ASSERT_EQ(tm_context_retain(context), TM_OK);
  ASSERT_EQ(tm_context_destroy(context, 0, -1), TM_OK);
  EXPECT_EQ(tm_alloc(context, 1, nullptr, &buffer), TM_SHUT_DOWN);
  EXPECT_EQ(tm_context_retain(context), TM_SHUT_DOWN);
  EXPECT_EQ(tm_context_release(context), TM_OK) << "a reference that was left";
  EXPECT_EQ(tm_context_release(context), TM_SHUT_DOWN) << "none is left";
}

// Threads make every kind of call while the context ends. A view may be acquired at the same
// instant, so its pointer is not touched.
TEST(FaultsFound, L12_context_ends_while_threads_call_it_then_each_call_ends_in_words) {
  for (int round = 0; round < 4; ++round) {
    auto context = make_context("dram=16M; nvme=off");
    ASSERT_NE(context, nullptr);
    Context* const stale = context.get();
    Buffer shared = make_buffer(*context, kBytes, "shared");
    const Access access = shared.range();
    std::atomic<unsigned> running{0};
    std::atomic<bool> ended{false};
    std::atomic<unsigned> odd{0};
    const auto note = [&](const Status& status) {
      odd += status.ok() || status.code() == Code::shut_down ||
                     status.code() == Code::stale_handle ||
                     status.code() == Code::invalid_argument || status.code() == Code::busy
                 ? 0
                 : 1;
    };
    const auto work = [&](unsigned seed) {
      std::minstd_rand random(seed);
      ++running;
      for (unsigned after = 0; after < 20; after += ended.load() ? 1 : 0) {
        ViewRecord view;
        switch (random() % 6) {
          case 0:
          case 1:
            if (stale->acquire({&access, 1}, Timeout::forever(), {&view, 1}).ok()) {
              note(stale->release({&view, 1}));
            }
            break;
          case 2: {
            auto buffer = stale->alloc(4096 << random() % 6);
            note(buffer.status());
            break;
          }
          case 3: {
            char byte = 0;
            note(stale->read(access.buffer, 0, &byte, 1));
            break;
          }
          case 4: {
            Op op;
            const Status begun = stale->prefetch({&access, 1}, 0, &op);
            note(begun);
            if (begun.ok()) {
              note(op.wait());
            }
            break;
          }
          default: {
            auto block = stale->malloc_at({Kind::dram, 0}, 64);
            if (block.ok()) {
              note(stale->free_ptr(*block));
            }
          }
        }
      }
    };
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; ++i) {
      threads.emplace_back(work, 100 * round + i);
    }
    while (running.load() < threads.size()) {
      std::this_thread::yield();
    }
    context.reset();
    ended.store(true);
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(odd.load(), 0u);
    shared.reset();
  }
}

// Ended contexts use little memory, even if there are many.
TEST(FaultsFound, L12_many_contexts_end_then_address_space_comes_back) {
  for (int i = 0; i < 60; ++i) {
    auto context = make_context("dram=16M; nvme=off");
    ASSERT_NE(context, nullptr);
    Buffer buffer = make_buffer(*context, 4096, "one of many");
    EXPECT_TRUE(buffer.acquire(kWrite).ok());
  }
}

}  // namespace
}  // namespace tiermem::test
