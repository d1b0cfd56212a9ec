// Device memory by pointer, and sets of it that leave the device and return: what a program that
// keeps addresses sees, and what other allocations on the device get.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/gpu_context.hpp"
#include "gpu/work.hpp"
#include "tiermem.h"

namespace tiermem::test {
namespace {

class GpuSets : public GpuContext {
 protected:
  void TearDown() override {
    Context::gpu_tag(nullptr);
    GpuContext::TearDown();
  }
  // 16 MiB of DRAM hold the staging and a little more. 64 MiB hold the device's memory.
  void open_wide(const std::string& gpu = "0:32M") {
    context = make_context("dram=64M; nvme=off; gpu=" + gpu + "; gpu_driver=" + test_driver());
    ASSERT_NE(context, nullptr);
  }
  void* block(std::uint64_t bytes, const char* tag = "") {
    Context::gpu_tag(tag);
    const auto made = context->malloc_at(kGpu, bytes);
    EXPECT_TRUE(made.ok()) << made.message();
    return made.ok() ? *made : nullptr;
  }
  void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }
  bool paused(std::uint64_t bytes) const { return context->stats().gpu_paused == bytes; }
};

TEST_F(GpuSets, a_block_is_device_memory_until_it_is_freed) {
  open_wide();
  const Program program;
  const std::uint64_t before = program.free_bytes();
  void* const at = block(3 * kMiB);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(at) % kChunk, 0u);
  EXPECT_EQ(*context->usable_size(at), 4 * kMiB);
  EXPECT_EQ(context->stats().gpu_placed, 4 * kMiB);
  EXPECT_EQ(before - program.free_bytes(), 4 * kMiB);
  program.put(at, 4 * kMiB, 1);
  EXPECT_TRUE(program.holds(at, 4 * kMiB, 1));
  expect_ok(context->free_ptr(at));
  EXPECT_EQ(context->stats().gpu_placed, 0u);
}

TEST_F(GpuSets, a_pointer_that_is_none_is_named) {
  open_wide();
  char* const at = static_cast<char*>(block(kChunk));
  const std::string inside = fmt::format("{}", static_cast<void*>(at + 512));
  EXPECT_EQ(context->free_ptr(at + 512).code(), Code::invalid_argument);
  EXPECT_NE(std::string(context->free_ptr(at + 512).message()).find(inside), std::string::npos);
  EXPECT_FALSE(context->usable_size(at + 512).ok());
  expect_ok(context->free_ptr(at));
  EXPECT_EQ(context->free_ptr(at).code(), Code::invalid_argument);
  EXPECT_EQ(context->malloc_at({Kind::gpu, 3}, 1).code(), Code::unavailable);
  EXPECT_EQ(context->malloc_at(kGpu, std::uint64_t{1} << 48).code(), Code::invalid_argument);
  EXPECT_EQ(context->malloc_at(kGpu, 1, kChunk * 2).code(), Code::invalid_argument);
  expect_ok(context->free_ptr(block(0)));
}

TEST_F(GpuSets, what_is_held_there_is_not_waited_for) {
  open_wide("0:8M");
  void* const at = block(6 * kMiB);
  const auto more = context->malloc_at(kGpu, 4 * kMiB);
  EXPECT_EQ(more.code(), Code::no_capacity);
  EXPECT_NE(std::string(more.message()).find("gpu"), std::string::npos) << more.message();
  expect_ok(context->free_ptr(at));
  expect_ok(context->free_ptr(block(8 * kMiB)));
}

TEST_F(GpuSets, other_bytes_on_the_device_make_room_for_a_block) {
  open_wide("0:8M");
  const Program program;
  for (std::uint64_t i = 0; i < 4; ++i) {
    program.put(on_gpu(add(kChunk), kDiscard), i);
  }
  void* const at = block(8 * kMiB);
  program.put(at, 8 * kMiB, 9);
  for (std::uint64_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(host_holds(buffers[i], i));
  }
  EXPECT_TRUE(program.holds(at, 8 * kMiB, 9));
}

TEST_F(GpuSets, a_paused_set_gives_the_driver_its_memory_and_comes_back_to_its_addresses) {
  open_wide();
  const Program program;
  const std::uint64_t before = program.free_bytes();
  std::vector<void*> blocks;
  for (std::uint64_t i = 0; i < 3; ++i) {
    blocks.push_back(block((i + 1) * 2 * kMiB, "weights"));
    program.put(blocks[i], (i + 1) * 2 * kMiB, i);
  }
  void* const other = block(4 * kMiB, "kv");
  program.put(other, 4 * kMiB, 7);
  for (int round = 0; round < 3; ++round) {
    expect_ok(context->gpu_pause("weights"));
    EXPECT_TRUE(paused(12 * kMiB));
    EXPECT_EQ(before - program.free_bytes(), 4 * kMiB);
    cuda::DevicePointer base = 0;
    std::size_t bytes = 0;
    for (void* const at : blocks) {
      EXPECT_NE(
          cu().cuMemGetAddressRange_v2(&base, &bytes, reinterpret_cast<cuda::DevicePointer>(at)),
          cuda::kSuccess)
          << "the device can still write what has left";
    }
    EXPECT_TRUE(program.holds(other, 4 * kMiB, 7));
    expect_ok(context->gpu_resume("weights"));
    EXPECT_TRUE(paused(0));
    for (std::uint64_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(program.holds(blocks[i], (i + 1) * 2 * kMiB, i + 10 * round)) << i;
      program.put(blocks[i], (i + 1) * 2 * kMiB, i + 10 * (round + 1));
    }
  }
  if (FakeCuda* const fake = find_fake_cuda(); fake != nullptr) {
    // The program's own copies use its vectors: 12 MiB and 4 MiB once, 28 MiB in each round.
    EXPECT_EQ(fake->pageable_bytes(), (12 + 4 + 3 * (4 + 12 + 12)) * kMiB);
  }
}

TEST_F(GpuSets, what_does_not_fit_into_dram_goes_to_disk) {
  open("0:32M", "gpu_staging=4M");
  const Program program;
  void* const at = block(28 * kMiB, "weights");
  program.put(at, 28 * kMiB, 5);
  expect_ok(context->gpu_pause("weights"));
  EXPECT_GE(context->stats().block_used, 12 * kMiB);
  void* const room = block(32 * kMiB, "other");
  program.put(room, 32 * kMiB, 6);
  EXPECT_EQ(context->gpu_resume("weights").code(), Code::no_capacity);
  EXPECT_TRUE(paused(28 * kMiB));
  EXPECT_TRUE(program.holds(room, 32 * kMiB, 6));
  expect_ok(context->free_ptr(room));
  expect_ok(context->gpu_resume("weights"));
  EXPECT_TRUE(program.holds(at, 28 * kMiB, 5));
}

// Each extent costs driver calls.
TEST_F(GpuSets, large_blocks_have_large_extents_and_pass_through_the_staging) {
  context = make_context("dram=256M; nvme=" + directory.path() +
                         ":512M; gpu=0:256M; gpu_driver=" + test_driver());
  ASSERT_NE(context, nullptr);
  const Program program;
  struct Case {
    std::uint64_t bytes, chunks;
  };
  std::vector<void*> blocks;
  for (const Case& each : {Case{2, 1}, {6, 3}, {20, 5}, {40, 5}, {64, 4}, {91, 6}}) {
    const std::uint64_t before = fake_cuda().calls("cuMemCreate");
    blocks.push_back(block(each.bytes * kMiB));
    EXPECT_EQ(fake_cuda().calls("cuMemCreate") - before, each.chunks) << each.bytes << " MiB";
    program.put(blocks.back(), each.bytes * kMiB, each.bytes);
  }
  EXPECT_EQ(*context->usable_size(blocks[5]), 96 * kMiB);
  add(48 * kMiB);  // DRAM has no room for the whole set.
  host_puts(buffers[0], 1);
  expect_ok(context->gpu_pause(nullptr));
  EXPECT_GE(context->stats().block_used, 16 * kMiB);
  expect_ok(context->gpu_resume(nullptr));
  std::size_t i = 0;
  for (const std::uint64_t mib : {2, 6, 20, 40, 64, 91}) {
    EXPECT_TRUE(program.holds(blocks[i++], mib * kMiB, mib)) << mib;
  }
  EXPECT_TRUE(host_holds(buffers[0], 1));
}

TEST_F(GpuSets, as_much_leaves_as_is_asked_for) {
  open_wide();
  const Program program;
  std::vector<void*> blocks;
  for (std::uint64_t i = 0; i < 5; ++i) {
    blocks.push_back(block(4 * kMiB, "kv"));
    program.put(blocks[i], 4 * kMiB, i);
  }
  const std::uint64_t full = program.free_bytes();
  expect_ok(context->gpu_pause("kv", 5 * kMiB));
  EXPECT_TRUE(paused(8 * kMiB));
  EXPECT_EQ(program.free_bytes() - full, 8 * kMiB);
  EXPECT_TRUE(program.holds(blocks[2], 4 * kMiB, 2));  // The first two blocks have left.
  expect_ok(context->gpu_pause("kv", 4 * kMiB));
  EXPECT_TRUE(paused(12 * kMiB));
  expect_ok(context->gpu_resume("kv", 1));
  EXPECT_TRUE(paused(8 * kMiB));
  EXPECT_TRUE(program.holds(blocks[0], 4 * kMiB, 0));
  expect_ok(context->gpu_resume("kv"));
  for (std::uint64_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(program.holds(blocks[i], 4 * kMiB, i)) << i;
  }
  expect_ok(context->gpu_resume("kv"));  // Already resumed; nothing happens.
}

TEST_F(GpuSets, sets_are_named) {
  open_wide();
  (void)block(kChunk, "weights");
  (void)block(kChunk, "a name of which only thirty-one characters are kept");
  (void)block(kChunk);
  const Status unknown = context->gpu_pause("wieghts");
  EXPECT_EQ(unknown.code(), Code::invalid_argument);
  EXPECT_NE(std::string(unknown.message()).find("'weights'"), std::string::npos)
      << unknown.message();
  expect_ok(context->gpu_pause("a name of which only thirty-one characters are kept"));
  EXPECT_TRUE(paused(kChunk));
  expect_ok(context->gpu_pause(""));  // Blocks without a set.
  EXPECT_TRUE(paused(2 * kChunk));
  expect_ok(context->gpu_pause(nullptr));  // All other blocks.
  EXPECT_TRUE(paused(3 * kChunk));
  expect_ok(context->gpu_resume(nullptr));
  EXPECT_TRUE(paused(0));
}

TEST_F(GpuSets, a_tag_is_of_the_thread_that_names_it) {
  open_wide();
  Context::gpu_tag("mine");
  std::thread([&] { (void)*context->malloc_at(kGpu, kChunk); }).join();
  (void)*context->malloc_at(kGpu, kChunk);
  expect_ok(context->gpu_pause("mine"));
  EXPECT_TRUE(paused(kChunk));
}

TEST_F(GpuSets, nobody_waits_who_takes_an_operation) {
  open_wide();
  const Program program;
  void* const at = block(8 * kMiB, "kv");
  program.put(at, 8 * kMiB, 3);
  fake_cuda().hold_work(true);
  Op leaving;
  expect_ok(context->gpu_pause("kv", 0, &leaving));
  EXPECT_EQ(leaving.poll().code(), Code::busy);
  EXPECT_EQ(context->gpu_resume("kv").code(), Code::busy);
  EXPECT_EQ(context->gpu_pause("kv").code(), Code::busy);
  fake_cuda().hold_work(false);
  expect_ok(leaving.wait(kSoon));
  Op coming;
  expect_ok(context->gpu_resume("kv", 0, &coming));
  expect_ok(coming.wait(kSoon));
  EXPECT_TRUE(program.holds(at, 8 * kMiB, 3));
}

TEST_F(GpuSets, what_is_freed_on_its_way_ends_when_it_has_arrived) {
  open_wide();
  const Program program;
  const std::uint64_t before = program.free_bytes();
  void* const first = block(4 * kMiB, "kv");
  void* const second = block(4 * kMiB, "kv");
  program.put(second, 4 * kMiB, 2);
  for (int round = 0; round < 2; ++round) {
    fake_cuda().hold_work(true);
    Op op;
    expect_ok(round == 0 ? context->gpu_pause("kv", 0, &op) : context->gpu_resume("kv", 0, &op));
    if (round == 0) {
      expect_ok(context->free_ptr(first));
      EXPECT_FALSE(context->free_ptr(first).ok());
    } else {
      expect_ok(context->free_ptr(second));
    }
    fake_cuda().hold_work(false);
    expect_ok(op.wait(kSoon));
    if (round == 0) {
      expect_ok(context->gpu_resume("kv"));
      EXPECT_TRUE(program.holds(second, 4 * kMiB, 2));
      expect_ok(context->gpu_pause("kv"));
    }
  }
  EXPECT_EQ(context->stats().gpu_placed, 0u);
  EXPECT_TRUE(eventually([&] { return context->stats().gpu_pinned == 0; }));
  expect_ok(context->set_budget(kGpu, kChunk));
  EXPECT_LE(before - program.free_bytes(), kChunk);
}

TEST_F(GpuSets, a_set_leaves_after_the_stream_that_uses_it) {
  open_wide();
  const Program program;
  Work work(program, 4 * kMiB);
  void* const at = block(4 * kMiB, "kv");
  work.stop_here();
  work.begin_put(at, 4 * kMiB, 8);
  Op op;
  expect_ok(context->gpu_pause("kv", 0, &op, work.order()));
  EXPECT_EQ(op.wait(Timeout::milliseconds(50)).code(), Code::timed_out);
  work.gate().open();
  expect_ok(op.wait(kSoon));
  expect_ok(context->gpu_resume("kv"));
  EXPECT_TRUE(program.holds(at, 4 * kMiB, 8));
}

TEST_F(GpuSets, a_block_that_is_freed_after_a_stream_is_written_to_the_end) {
  open_wide("0:4M");
  const Program program;
  Work work(program, 4 * kMiB);
  void* const at = block(4 * kMiB);
  work.stop_here();
  work.begin_put(at, 4 * kMiB, 8);
  expect_ok(context->free_ptr(at, work.order()));
  EXPECT_FALSE(context->free_ptr(at).ok());
  EXPECT_FALSE(context->malloc_at(kGpu, 4 * kMiB).ok());  // No room yet.
  work.gate().open();
  work.finish();
  EXPECT_TRUE(eventually([&] { return context->stats().gpu_pinned == 0; }));
  void* const next = block(4 * kMiB);
  program.put(next, 4 * kMiB, 1);
  EXPECT_TRUE(program.holds(next, 4 * kMiB, 1));
}

TEST_F(GpuSets, a_stream_that_cannot_be_followed_leaves_all_as_it_was) {
  open_wide();
  const Program program;
  void* const at = block(4 * kMiB, "kv");
  program.put(at, 4 * kMiB, 3);
  Work work(program);
  ASSERT_EQ(cu().cuStreamBeginCapture_v2(work.stream(), 1), cuda::kSuccess);
  EXPECT_EQ(context->gpu_pause("kv", 0, nullptr, work.order()).code(), Code::unsupported);
  EXPECT_EQ(context->free_ptr(at, work.order()).code(), Code::unsupported);
  Graph graph = nullptr;
  ASSERT_EQ(cu().cuStreamEndCapture(work.stream(), &graph), cuda::kSuccess);
  (void)cu().cuGraphDestroy(graph);
  EXPECT_TRUE(paused(0));
  EXPECT_TRUE(program.holds(at, 4 * kMiB, 3));
  expect_ok(context->gpu_pause("kv"));
  expect_ok(context->free_ptr(at));
}

TEST_F(GpuSets, what_finds_no_room_below_stays_and_is_resumed) {
  context = make_context(std::string("dram=16M; nvme=off; gpu=0:32M; gpu_driver=") + test_driver());
  ASSERT_NE(context, nullptr);
  const Program program;
  void* const at = block(28 * kMiB, "kv");
  program.put(at, 28 * kMiB, 3);
  const Status refused = context->gpu_pause("kv");
  EXPECT_EQ(refused.code(), Code::no_capacity) << refused.message();
  EXPECT_NE(std::string(refused.message()).find("dram"), std::string::npos) << refused.message();
  expect_ok(context->gpu_resume("kv"));
  EXPECT_TRUE(program.holds(at, 28 * kMiB, 3));
}

TEST_F(GpuSets, a_copy_that_fails_loses_nothing) {
  open_wide();
  const Program program;
  void* const at = block(8 * kMiB, "kv");
  program.put(at, 8 * kMiB, 3);
  fake_cuda().fail_nth("cuMemcpyDtoHAsync", 2, cuda::kInvalidValue);
  const Status failed = context->gpu_pause("kv");
  EXPECT_EQ(failed.code(), Code::io_error) << failed.message();
  expect_ok(context->gpu_resume("kv"));
  EXPECT_TRUE(program.holds(at, 8 * kMiB, 3));
  expect_ok(context->gpu_pause("kv"));
  fake_cuda().fail_nth("cuMemcpyHtoDAsync", 2, cuda::kInvalidValue);
  EXPECT_EQ(context->gpu_resume("kv").code(), Code::io_error);
  EXPECT_TRUE(paused(8 * kMiB));
  expect_ok(context->gpu_resume("kv"));
  EXPECT_TRUE(program.holds(at, 8 * kMiB, 3));
}

TEST_F(GpuSets, memory_that_others_took_is_waited_for_by_who_resumes) {
  open_wide("0:8M");
  const Program program;
  void* const at = block(8 * kMiB, "kv");
  program.put(at, 8 * kMiB, 3);
  expect_ok(context->gpu_pause("kv"));
  fake_cuda().fail_nth("cuMemCreate", 1, cuda::kOutOfMemory, 1000000);
  const Status refused = context->gpu_resume("kv");
  EXPECT_EQ(refused.code(), Code::no_capacity) << refused.message();
  fake_cuda().forgive();
  EXPECT_TRUE(eventually([&] { return context->gpu_resume("kv").ok(); }));
  EXPECT_TRUE(program.holds(at, 8 * kMiB, 3));
}

TEST_F(GpuSets, without_a_gpu_there_are_no_sets) {
  context = make_context("dram=16M; nvme=off; gpu=off");
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(context->gpu_pause("kv").code(), Code::unsupported);
  EXPECT_EQ(context->gpu_resume("kv").code(), Code::unsupported);
  EXPECT_EQ(context->malloc_at(kGpu, 1).code(), Code::unavailable);
}

TEST_F(GpuSets, two_devices_in_one_set) {
  fake_cuda().set_devices(2);
  open_wide("0:8M,1:8M");
  constexpr Place kOther{Kind::gpu, 1};
  Context::gpu_tag("kv");
  const Program program;
  void* const here = *context->malloc_at(kGpu, 4 * kMiB);
  void* const there = *context->malloc_at(kOther, 8 * kMiB);
  program.put(here, 4 * kMiB, 1);
  expect_ok(context->gpu_pause("kv"));
  EXPECT_TRUE(paused(12 * kMiB));
  EXPECT_EQ(context->stats().gpu_used, 0u);
  expect_ok(context->gpu_resume("kv"));
  EXPECT_TRUE(program.holds(here, 4 * kMiB, 1));
  expect_ok(context->free_ptr(there));
}

// Threads allocate, free, pause and resume their own sets at the same time.
TEST_F(GpuSets, threads_with_sets_of_their_own) {
  open("0:32M", "gpu_staging=4M");
  constexpr unsigned kThreads = 4;
  const auto work = [&](unsigned me) {
    const Program program;
    const std::string tag = fmt::format("set {}", me);
    Context::gpu_tag(tag.c_str());
    std::vector<std::pair<void*, std::uint64_t>> mine;  // The pointer, and the value of its bytes.
    std::uint64_t next = me * 1000;
    for (int round = 0; round < 12; ++round) {
      while (mine.size() < 3) {
        const auto made = context->malloc_at(kGpu, kChunk);
        ASSERT_TRUE(made.ok()) << made.message();
        program.put(*made, kChunk, ++next);
        mine.emplace_back(*made, next);
      }
      ASSERT_TRUE(context->gpu_pause(tag.c_str(), round % 2 == 0 ? 0 : 3 * kMiB).ok());
      if (round % 3 == 0) {
        ASSERT_TRUE(context->free_ptr(mine.front().first).ok());
        mine.erase(mine.begin());
      }
      const Status back = context->gpu_resume(tag.c_str());
      ASSERT_TRUE(back.ok()) << back.message();
      for (const auto& [at, seed] : mine) {
        ASSERT_TRUE(program.holds(at, kChunk, seed)) << "thread " << me << " round " << round;
      }
      if (round % 2 == 0) {
        ASSERT_TRUE(context->free_ptr(mine.back().first).ok());
        mine.pop_back();
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned me = 0; me < kThreads; ++me) {
    threads.emplace_back(work, me);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST_F(GpuSets, through_the_c_interface) {
  tm_context* c = nullptr;
  const std::string spec = std::string("dram=64M; nvme=off; gpu=0:8M; gpu_driver=") + test_driver();
  ASSERT_EQ(tm_context_create(spec.c_str(), nullptr, &c), TM_OK);
  {
    const Program program;
    void* at = nullptr;
    ASSERT_EQ(tm_gpu_tag("weights"), TM_OK);
    ASSERT_EQ(tm_malloc(c, tm_place{TM_GPU, 0}, 6 * kMiB, &at), TM_OK);
    program.put(at, 6 * kMiB, 4);
    EXPECT_EQ(tm_gpu_pause(c, "none", 0, TM_HOST_ORDER, nullptr), TM_INVALID_ARGUMENT);
    EXPECT_EQ(tm_gpu_pause(nullptr, "weights", 0, TM_HOST_ORDER, nullptr), TM_INVALID_ARGUMENT);
    EXPECT_EQ(tm_gpu_pause(c, "weights", 0, tm_stream{7, 0, nullptr}, nullptr),
              TM_INVALID_ARGUMENT);
    EXPECT_EQ(tm_gpu_resume(nullptr, "weights", 0, nullptr), TM_INVALID_ARGUMENT);
    tm_op op = 0;
    ASSERT_EQ(tm_gpu_pause(c, "weights", 0, TM_HOST_ORDER, &op), TM_OK);
    ASSERT_EQ(tm_op_wait(c, &op, 1, -1), TM_OK);
    tm_counters counters = {};
    counters.size = sizeof(counters);
    ASSERT_EQ(tm_stats(c, &counters), TM_OK);
    EXPECT_EQ(counters.gpu_paused, 6 * kMiB);
    EXPECT_EQ(counters.gpu_placed, 6 * kMiB);
    EXPECT_EQ(counters.gpu_used, 0u);
    ASSERT_EQ(tm_gpu_resume(c, "weights", 0, nullptr), TM_OK);
    EXPECT_TRUE(program.holds(at, 6 * kMiB, 4));
    EXPECT_EQ(tm_free_ptr_after(nullptr, at, TM_HOST_ORDER), TM_INVALID_ARGUMENT);
    EXPECT_EQ(tm_free_ptr_after(c, at, tm_stream{7, 0, nullptr}), TM_INVALID_ARGUMENT);
    EXPECT_EQ(tm_free_ptr_after(c, at, tm_stream{TM_STREAM_CUDA, 0, nullptr}), TM_OK);
    EXPECT_EQ(tm_free_ptr(c, at), TM_INVALID_ARGUMENT);
    ASSERT_EQ(tm_gpu_tag(nullptr), TM_OK);
  }
  ASSERT_EQ(tm_context_destroy(c, 0, -1), TM_OK);
}

}  // namespace
}  // namespace tiermem::test
