// Contexts with a GPU tier, on the fake driver or a real one (program.hpp). Bytes move between
// host, device and disk through the public API, beside a program that works on the device. The
// tests also cover refusals by tiermem and by the driver. Only the program's own copies read and
// write device memory.
#include "gpu/gpu_context.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/sanitizers.hpp"

namespace tiermem::test {
namespace {

TEST_F(GpuContext, a_buffer_larger_than_the_budget_goes_through_the_device) {
  open();
  const Program program;
  for (std::uint64_t i = 0; i < 24; ++i) {  // 48 MiB: more than device and host memory together.
    program.put(on_gpu(add(kChunk), kDiscard), i);
    EXPECT_LE(context->stats().gpu_used, 8 * kMiB);
    EXPECT_LE(context->stats().dram_used, 16 * kMiB);
  }
  const Stats stats = context->stats();
  EXPECT_EQ(stats.gpu_budget, 8 * kMiB);
  EXPECT_EQ(stats.gpu_pinned, 0u);
  EXPECT_GE(stats.gpu_bytes_out, 40 * kMiB);
  EXPECT_GT(stats.block_used, 0u);
  for (std::uint64_t i = 0; i < 24; ++i) {
    EXPECT_TRUE(program.holds(on_gpu(buffers[i], kRead), i)) << i;
  }
  EXPECT_GE(context->stats().gpu_bytes_in, 40 * kMiB);
  for (std::uint64_t i = 0; i < 24; ++i) {
    EXPECT_TRUE(host_holds(buffers[i], i)) << i;
  }
}

TEST_F(GpuContext, what_leaves_the_device_goes_to_dram_first) {
  context = make_context(std::string("dram=64M; nvme=off; gpu=0:4M; gpu_driver=") + test_driver());
  ASSERT_NE(context, nullptr);
  const Program program;
  for (std::uint64_t i = 0; i < 12; ++i) {
    program.put(on_gpu(add(kChunk), kDiscard), i);
  }
  EXPECT_GE(context->stats().gpu_bytes_out, 10 * kChunk);
  for (std::uint64_t i = 0; i < 12; ++i) {
    EXPECT_TRUE(program.holds(on_gpu(buffers[i], kRead), i)) << i;
  }
  ASSERT_TRUE(context->set_budget(kGpu, kChunk).ok());
  EXPECT_LE(context->stats().gpu_used, kChunk);
  for (std::uint64_t i = 0; i < 12; ++i) {
    EXPECT_TRUE(host_holds(buffers[i], i)) << i;
  }
}

// Neither DRAM nor a disk has room. The error names the full tier.
TEST_F(GpuContext, a_budget_that_cannot_be_met_names_its_tier) {
  context = make_context(std::string("dram=16M; nvme=off; gpu=0:8M; gpu_driver=") + test_driver());
  ASSERT_NE(context, nullptr);
  const Program program;
  for (std::uint64_t i = 0; i < 4; ++i) {
    program.put(on_gpu(add(kChunk), kDiscard), i);
  }
  for (std::uint64_t i = 4; i < 10; ++i) {  // The part of DRAM beside the staging.
    host_puts(add(kChunk), i);
  }
  const Status refused = context->set_budget(kGpu, kChunk, Timeout::milliseconds(200));
  EXPECT_EQ(refused.code(), Code::no_capacity);
  EXPECT_NE(std::string(refused.message()).find("in gpu"), std::string::npos) << refused.message();
  for (std::uint64_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(program.holds(on_gpu(buffers[i], kRead), i)) << i;
  }
}

TEST_F(GpuContext, host_and_device_see_what_the_other_wrote_last) {
  open();
  const Program program;
  for (const std::uint64_t bytes : {std::uint64_t{4096}, std::uint64_t{65536}, kMiB, kChunk}) {
    const Buffer& buffer = add(bytes);
    for (std::uint64_t round = 0; round < 3; ++round) {
      host_puts(buffer, 10 * bytes + round);
      EXPECT_TRUE(program.holds(on_gpu(buffer, kRead), 10 * bytes + round));
      program.put(on_gpu(buffer, kWrite), 20 * bytes + round);
      EXPECT_TRUE(host_holds(buffer, 20 * bytes + round)) << bytes;
    }
  }
}

TEST_F(GpuContext, a_buffer_that_nobody_wrote_is_zero_there) {
  open();
  const Program program;
  for (const std::uint64_t bytes : {std::uint64_t{8192}, kChunk}) {
    const Buffer& buffer = add(bytes);
    EXPECT_EQ(program.words(on_gpu(buffer, kRead)), std::vector<std::uint64_t>(bytes / 8, 0));
  }
}

TEST_F(GpuContext, a_domain_never_sees_anothers_bytes) {
  open("0:2M");
  const Program program;
  for (const std::uint64_t bytes : {std::uint64_t{65536}, kChunk}) {
    for (std::uint64_t i = 0; i < 4; ++i) {  // Each buffer gets the frame of the previous one.
      const Buffer& buffer = add(bytes, {.flags = kIsolated});
      const View view = on_gpu(buffer, kDiscard);
      EXPECT_EQ(program.words(view), std::vector<std::uint64_t>(bytes / 8, 0)) << i;
      program.put(view, i);
    }
    buffers.clear();
  }
}

TEST_F(GpuContext, blocks_of_a_larger_buffer_come_each_by_itself) {
  open();
  const Program program;
  const Buffer& buffer = add(16 * kMiB, {.extent_bytes = kMiB});
  for (std::uint64_t i = 0; i < 16; ++i) {
    auto view = buffer.acquire_on(kGpu, kDiscard, i * kMiB, kMiB);
    ASSERT_TRUE(view.ok()) << view.message();
    program.put(*view, i);
  }
  for (std::uint64_t i = 16; i-- > 0;) {
    auto view = buffer.acquire_on(kGpu, kRead, i * kMiB, kMiB);
    ASSERT_TRUE(view.ok()) << view.message();
    EXPECT_TRUE(program.holds(*view, i)) << i;
    EXPECT_EQ(view->size(), kMiB);
  }
  // A range that ends in the middle of an extent.
  auto part = buffer.acquire_on(kGpu, kRead, 3 * kMiB + 4096, 8192);
  ASSERT_TRUE(part.ok()) << part.message();
  const std::vector<std::uint64_t> words = program.words(*part);
  EXPECT_EQ(wrong(words, 3, 4096 / 8), 0u);
}

TEST_F(GpuContext, what_is_acquired_again_costs_no_call_of_the_driver) {
  open();
  const Buffer& buffer = add(kChunk);
  const void* const address = on_gpu(buffer, kDiscard).data();
  FakeCuda& fake = fake_cuda();
  const auto calls = [&] {
    std::uint64_t sum = 0;
    for (const char* name : {"cuMemCreate", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync",
                             "cuEventRecord", "cuEventQuery", "cuMemGetInfo", "cuMemsetD8Async"}) {
      sum += fake.calls(name);
    }
    return sum;
  };
  const std::uint64_t before = calls();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(on_gpu(buffer, i % 2 == 0 ? kRead : kWrite).data(), address);
  }
  EXPECT_EQ(calls(), before);
}

TEST_F(GpuContext, what_is_there_is_read_while_it_is_held) {
  open("0:4M");
  const Program program;
  host_puts(add(kChunk), 1);
  host_puts(add(kChunk), 2);
  host_puts(add(kChunk), 3);
  const View first = on_gpu(buffers[0], kRead);
  const View second = on_gpu(buffers[1], kRead);
  EXPECT_TRUE(host_holds(buffers[0], 1)) << "shared with the host";
  auto third = buffers[2].acquire_on(kGpu, kRead, 0, 0, Timeout::milliseconds(200));
  EXPECT_TRUE(third.code() == Code::timed_out || third.code() == Code::no_capacity)
      << third.message();
  EXPECT_TRUE(program.holds(first, 1) && program.holds(second, 2));
}

TEST_F(GpuContext, prefetch_and_migrate_bring_to_the_device_and_back) {
  open();
  const Program program;
  host_puts(add(kChunk), 1);
  host_puts(add(kChunk), 2);
  Access access = buffers[0].range();
  access.where = kGpu;
  ASSERT_TRUE(context->prefetch({&access, 1}).ok());
  EXPECT_TRUE(eventually([&] { return context->stats().gpu_bytes_in >= kChunk; }));
  const Access second = buffers[1].range();
  const Status moved = context->migrate({&second, 1}, kGpu);
  ASSERT_TRUE(moved.ok()) << moved.message();
  EXPECT_EQ(context->stats().gpu_bytes_in, 2 * kChunk);
  EXPECT_TRUE(program.holds(on_gpu(buffers[0], kRead), 1));
  program.put(on_gpu(buffers[1], kWrite), 3);
  EXPECT_EQ(context->stats().gpu_bytes_in, 2 * kChunk);
  ASSERT_TRUE(context->migrate({&second, 1}, {Kind::dram, 0}).ok());
  EXPECT_TRUE(host_holds(buffers[1], 3));
  EXPECT_EQ(context->migrate({&second, 1}, {Kind::gpu, 1}).code(), Code::unavailable);
}

TEST_F(GpuContext, a_lowered_budget_moves_out_what_is_above_it) {
  open();
  const Program program;
  for (std::uint64_t i = 0; i < 4; ++i) {
    program.put(on_gpu(add(kChunk), kDiscard), i);
  }
  EXPECT_EQ(context->stats().gpu_used, 8 * kMiB);
  const Status lowered = context->set_budget(kGpu, 2 * kMiB, kSoon);
  ASSERT_TRUE(lowered.ok()) << lowered.message();
  EXPECT_LE(context->stats().gpu_used, 2 * kMiB);
  EXPECT_LE(fake_cuda().live().device_bytes, 2 * kMiB) << "the driver has it back";
  for (std::uint64_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(program.holds(on_gpu(buffers[i], kRead), i)) << i;
  }
  ASSERT_TRUE(context->set_budget(kGpu, 16 * kMiB, kSoon).ok());
  EXPECT_EQ(context->stats().gpu_budget, 16 * kMiB);
  EXPECT_EQ(context->set_budget(kGpu, 1024 * kMiB, kSoon).code(), Code::invalid_argument);
  EXPECT_EQ(context->set_budget({Kind::gpu, 1}, kMiB, kSoon).code(), Code::unavailable);
}

TEST_F(GpuContext, staging_is_of_the_dram_budget) {
  open("0:8M", "gpu_staging=4M; checksum=off");
  const Program program;
  const std::uint64_t before = context->stats().dram_used;
  EXPECT_EQ(before, 4 * kMiB);
  for (std::uint64_t i = 0; i < 12; ++i) {
    program.put(on_gpu(add(kChunk), kDiscard), i);
  }
  const FakeCudaLive live = fake_cuda().live();
  EXPECT_GT(live.registrations, 0u);
  EXPECT_LE(live.locked_bytes, 16 * kMiB) << "more than all of DRAM";
  EXPECT_EQ(fake_cuda().pageable_bytes(), 12 * kChunk) << "the program's own copies";
}

// A copy from other host memory blocks the driver's call until it ends, and is slower.
TEST_F(GpuContext, what_goes_to_the_device_is_page_locked_once_until_its_pages_go) {
  open("0:8M", "gpu_staging=2M");
  const Program program;
  host_puts(add(kChunk), 1);
  host_puts(add(65536), 2);  // A frame of a chunk of small frames.
  host_puts(add(65536), 3);
  for (int round = 0; round < 3; ++round) {
    for (const Buffer& buffer : buffers) {
      (void)on_gpu(buffer, kWrite);
      EXPECT_TRUE(buffer.acquire(kWrite, 0, 0, kSoon).ok());
    }
  }
  EXPECT_EQ(fake_cuda().pageable_bytes(), 0u);
  EXPECT_EQ(fake_cuda().live().locked_bytes, 2 * kChunk);
  EXPECT_EQ(fake_cuda().calls("cuMemHostRegister"), 2u);
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(host_holds(buffers[i], i + 1));
  }
  for (const Buffer& buffer : buffers) {
    EXPECT_TRUE(buffer.evict().ok());
  }
  ASSERT_TRUE(context->set_budget({Kind::dram, 0}, kChunk).ok());
  EXPECT_EQ(fake_cuda().live().registrations, 0u);
  ASSERT_TRUE(context->set_budget({Kind::dram, 0}, 16 * kMiB).ok());
  EXPECT_TRUE(program.holds(on_gpu(buffers[0], kRead), 1));
}

TEST_F(GpuContext, page_locking_that_is_refused_is_done_without) {
  fake_cuda().set_lockable(0);
  open();
  const Program program;
  for (std::uint64_t i = 0; i < 12; ++i) {
    program.put(on_gpu(add(kChunk), kDiscard), i);
  }
  for (std::uint64_t i = 0; i < 12; ++i) {
    EXPECT_TRUE(program.holds(on_gpu(buffers[i], kRead), i)) << i;
  }
  EXPECT_EQ(fake_cuda().live().registrations, 0u);
}

TEST_F(GpuContext, the_budget_is_what_is_free_where_none_is_named) {
  fake_cuda().set_taken(0, 100 * kMiB);
  open("0");
  const std::uint64_t budget = context->stats().gpu_budget;
  EXPECT_LE(budget, (256 - 100) * kMiB);
  EXPECT_GE(budget, 64 * kMiB);
  context.reset();
  fake_cuda().set_taken(0, 256 * kMiB);
  const Status full = refusal("0");
  EXPECT_EQ(full.code(), Code::no_capacity);
  EXPECT_NE(std::string(full.message()).find("name a size"), std::string::npos) << full.message();
}

TEST_F(GpuContext, two_devices_are_two_tiers) {
  fake_cuda().set_devices(2);
  open("1:4M,0:8M");
  Program first(0);
  const Buffer& buffer = add(kChunk);
  first.put(on_gpu(buffer, kDiscard), 1);
  {
    auto view = buffer.acquire_on({Kind::gpu, 1}, kRead, 0, 0, kSoon);
    ASSERT_TRUE(view.ok()) << view.message();
    const Program second(1);
    EXPECT_TRUE(second.holds(*view, 1));
  }
  EXPECT_EQ(context->stats().gpu_budget, 12 * kMiB);
  EXPECT_TRUE(host_holds(buffer, 1));
  EXPECT_EQ(buffer.acquire_on({Kind::gpu, 2}, kRead).code(), Code::unavailable);
}

// Refusals, with the reason in the error.

TEST_F(GpuContext, a_driver_that_is_absent_is_told_of) {
  const auto says = [&](const std::string& spec, const std::string& what) {
    const auto made = Context::create("dram=16M; nvme=off; " + spec);
    EXPECT_EQ(made.code(), Code::unavailable) << spec;
    EXPECT_NE(std::string(made.message()).find(what), std::string::npos) << made.message();
  };
  fake_cuda().reset();
  const std::string fake = std::string("gpu=0; gpu_driver=") + fake_cuda_path();
  says("gpu=0; gpu_driver=/no/such/libcuda.so.1", "No such file");
  says(std::string("gpu=1; gpu_driver=") + fake_cuda_path(), "gpu 1");
  fake_cuda().set_driver_version(11040);
  says(fake, "11.4");
  fake_cuda().reset();
  fake_cuda().hide("cuMemMap");
  says(fake, "cuMemMap");
  fake_cuda().reset();
  fake_cuda().set_devices(0);
  says(fake, "100");
  fake_cuda().reset();
  fake_cuda().fail_nth("cuInit", 1, cuda::kSystemDriverMismatch);
  says(fake, "803");
  fake_cuda().reset();
  fake_cuda().set_attribute(cuda::kVirtualMemory, 0);
  says(fake, "virtual memory");
}

TEST_F(GpuContext, whatever_fails_at_the_start_leaves_nothing_behind) {
  for (const char* call : {"cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceTotalMem",
                           "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuMemGetInfo",
                           "cuMemGetAllocationGranularity"}) {
    fake_cuda().reset();
    fake_cuda().fail_nth(call, 1, cuda::kUnknown);
    EXPECT_FALSE(refusal("0:8M").ok()) << call;
    EXPECT_EQ(fake_cuda().live(), FakeCudaLive{}) << call;
  }
  for (std::uint64_t nth : {1u, 2u}) {
    fake_cuda().reset();
    fake_cuda().fail_nth("cuStreamCreate", nth, cuda::kOutOfMemory);
    EXPECT_EQ(refusal("0:8M").code(), Code::no_capacity);
    EXPECT_EQ(fake_cuda().live(), FakeCudaLive{}) << nth;
  }
}

TEST_F(GpuContext, sizes_that_the_device_has_not_are_refused) {
  EXPECT_EQ(refusal("0:1024G").code(), Code::invalid_argument);
  const auto staging =
      Context::create("dram=4M; nvme=off; gpu=0:8M; gpu_driver=" + std::string(test_driver()));
  EXPECT_EQ(staging.code(), Code::no_capacity);
  EXPECT_NE(std::string(staging.message()).find("raise dram"), std::string::npos);
}

TEST_F(GpuContext, what_has_no_address_there_is_refused) {
  open();
  const auto says = [&](const Buffer& buffer, std::uint64_t length, const char* what) {
    const auto view = buffer.acquire_on(kGpu, kRead, 0, length);
    EXPECT_EQ(view.code(), Code::unsupported);
    EXPECT_NE(std::string(view.message()).find(what), std::string::npos) << view.message();
  };
  says(add(4 * kMiB, {.extent_bytes = kMiB}), 0, "extent_bytes of 2 MiB or more");
  says(add(8 * kMiB, {.extent_bytes = 4 * kMiB}), kMiB, "raise the option extent");
  if (auto mapped = context->alloc(kChunk, {.flags = kMapped}); mapped.ok()) {
    says(*mapped, 0, "mapped");
  }
}

// Calls that the driver refuses, and memory that it loses.

TEST_F(GpuContext, where_others_took_the_memory_it_makes_do_with_what_it_has) {
  open("0:64M");
  const Program program;
  fake_cuda().set_taken(0, 252 * kMiB);
  for (std::uint64_t i = 0; i < 6; ++i) {
    program.put(on_gpu(add(kChunk), kDiscard), i);
    EXPECT_LE(fake_cuda().live().device_bytes, 4 * kMiB);
  }
  EXPECT_EQ(context->stats().gpu_budget, 4 * kMiB);
  for (std::uint64_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(program.holds(on_gpu(buffers[i], kRead), i)) << i;
  }
  fake_cuda().set_taken(0, 0);
  ::usleep(1'100'000);
  std::vector<View> held;
  for (std::uint64_t i = 0; i < 6; ++i) {
    held.push_back(on_gpu(buffers[i], kRead));
    EXPECT_TRUE(program.holds(held.back(), i)) << i;
  }
  EXPECT_EQ(context->stats().gpu_budget, 64 * kMiB);
}

TEST_F(GpuContext, memory_that_others_took_while_all_is_held_is_no_capacity) {
  open("0:64M");
  const Program program;
  fake_cuda().set_taken(0, 252 * kMiB);
  host_puts(add(kChunk), 1);
  host_puts(add(kChunk), 2);
  host_puts(add(kChunk), 3);
  {
    const View first = on_gpu(buffers[0], kRead), second = on_gpu(buffers[1], kRead);
    const auto refused = buffers[2].acquire_on(kGpu, kRead, 0, 0, Timeout::milliseconds(500));
    EXPECT_EQ(refused.code(), Code::no_capacity) << refused.message();
    EXPECT_NE(std::string(refused.message()).find("CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos)
        << refused.message();
    EXPECT_TRUE(program.holds(first, 1) && program.holds(second, 2));
  }
  EXPECT_TRUE(host_holds(buffers[2], 3));
  EXPECT_TRUE(program.holds(on_gpu(buffers[2], kRead), 3));
  ASSERT_TRUE(context->set_budget(kGpu, 32 * kMiB, kSoon).ok());
  EXPECT_EQ(context->stats().gpu_budget, 32 * kMiB);
}

TEST_F(GpuContext, each_step_of_making_memory_may_fail_and_leaves_nothing) {
  open();
  const Program program;
  std::uint64_t seed = 0;
  for (const char* call : {"cuEventCreate", "cuMemCreate", "cuMemAddressReserve", "cuMemMap",
                           "cuMemSetAccess", "cuMemsetD8Async", "cuEventRecord"}) {
    SCOPED_TRACE(call);
    const FakeCudaLive before = fake_cuda().live();
    host_puts(add(kChunk), ++seed);
    fake_cuda().fail_nth(call, 1, cuda::kInvalidValue, 1);
    const auto refused = buffers.back().acquire_on(kGpu, kRead, 0, 0, kSoon);
    EXPECT_EQ(refused.code(), Code::io_error) << refused.message();
    fake_cuda().forgive();
    EXPECT_EQ(fake_cuda().live().device_bytes, before.device_bytes);
    EXPECT_EQ(fake_cuda().live().reservations, before.reservations);
    EXPECT_TRUE(program.holds(on_gpu(buffers.back(), kRead), seed));
    buffers.clear();
    EXPECT_TRUE(eventually([&] { return context->stats().buffers == 0; }));
    ASSERT_TRUE(context->set_budget(kGpu, 4096, kSoon).ok());  // All memory is returned.
    ASSERT_TRUE(context->set_budget(kGpu, 8 * kMiB, kSoon).ok());
  }
}

TEST_F(GpuContext, a_copy_that_fails_loses_nothing) {
  open("0:4M");
  const Program program;
  host_puts(add(kChunk), 1);
  fake_cuda().fail_nth("cuMemcpyHtoDAsync", 1, cuda::kInvalidValue);
  auto refused = buffers[0].acquire_on(kGpu, kRead, 0, 0, kSoon);
  EXPECT_EQ(refused.code(), Code::io_error) << refused.message();
  EXPECT_NE(std::string(refused.message()).find("gpu 0"), std::string::npos) << refused.message();
  fake_cuda().forgive();
  EXPECT_TRUE(program.holds(on_gpu(buffers[0], kRead), 1));

  program.put(on_gpu(buffers[0], kWrite), 2);
  fake_cuda().fail_nth("cuMemcpyDtoHAsync", 1, cuda::kInvalidValue);
  auto unread = buffers[0].acquire(kRead, 0, 0, kSoon);
  EXPECT_EQ(unread.code(), Code::io_error) << unread.message();
  fake_cuda().forgive();
  EXPECT_TRUE(host_holds(buffers[0], 2));
}

TEST_F(GpuContext, what_cannot_be_moved_out_stays_where_it_is) {
  open("0:4M");
  const Program program;
  program.put(on_gpu(add(kChunk), kDiscard), 1);
  program.put(on_gpu(add(kChunk), kDiscard), 2);
  fake_cuda().fail_nth("cuMemcpyDtoHAsync", 1, cuda::kUnknown, FakeCuda::kForever);
  fake_cuda().fail_nth("cuMemcpyBatchAsync", 1, cuda::kUnknown, FakeCuda::kForever);
  host_puts(add(kChunk), 3);
  const std::uint64_t before = fake_cuda().calls("cuMemcpyDtoHAsync");
  const auto refused = buffers[2].acquire_on(kGpu, kRead, 0, 0, Timeout::milliseconds(500));
  EXPECT_FALSE(refused.ok());
  EXPECT_LT(fake_cuda().calls("cuMemcpyDtoHAsync") - before,
            100u);  // The pauses between the calls grow.
  fake_cuda().forgive();
  EXPECT_TRUE(program.holds(on_gpu(buffers[0], kRead), 1));
  // After many failures in a row, copies are retried only from time to time.
  EXPECT_TRUE(eventually([&] { return buffers[2].acquire_on(kGpu, kRead, 0, 0, kSoon).ok(); }));
  EXPECT_TRUE(program.holds(on_gpu(buffers[2], kRead), 3));
  EXPECT_TRUE(program.holds(on_gpu(buffers[1], kRead), 2));
}

TEST_F(GpuContext, a_child_of_fork_has_no_gpu_and_its_parent_goes_on) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "the thread sanitizer does not follow a fork with threads";
  }
  open();
  const Program program;
  program.put(on_gpu(add(kChunk), kDiscard), 1);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    const bool shut = buffers[0].acquire_on(kGpu, kRead).code() == Code::shut_down;
    buffers.clear();
    context.reset();
    ::_exit(shut ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(program.holds(on_gpu(buffers[0], kRead), 1));
}

TEST_F(GpuContext, threads_on_host_and_device_lose_no_write) {
  open("0:6M", "workers=3");
  constexpr std::uint64_t kThreads = 4, kBuffers = 12, kRounds = kThreadSanitizer ? 20 : 100;
  for (std::uint64_t i = 0; i < kThreads * kBuffers; ++i) {
    host_puts(add(i % 3 == 0 ? kChunk : i % 3 == 1 ? kMiB : 65536), i * 1000);
  }
  std::atomic<std::uint64_t> bad{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const Program program;
      std::minstd_rand random(static_cast<unsigned>(t + 1));
      std::vector<std::uint64_t> seeds(kBuffers);
      for (std::uint64_t i = 0; i < kBuffers; ++i) {
        seeds[i] = (t * kBuffers + i) * 1000;
      }
      for (std::uint64_t round = 0; round < kRounds; ++round) {
        const std::uint64_t i = random() % kBuffers;
        const Buffer& buffer = buffers[t * kBuffers + i];
        const bool device = random() % 2 == 0, write = random() % 2 == 0;
        if (!write) {
          bad += !(device ? program.holds(on_gpu(buffer, kRead), seeds[i])
                          : host_holds(buffer, seeds[i]));
        } else if (device) {
          program.put(on_gpu(buffer, random() % 2 == 0 ? kWrite : kDiscard), ++seeds[i]);
        } else {
          host_puts(buffer, ++seeds[i]);
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(bad, 0u);
}

}  // namespace
}  // namespace tiermem::test
