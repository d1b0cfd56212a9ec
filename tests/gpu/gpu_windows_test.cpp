// Buffers of several extents in device memory as one contiguous range of addresses: what a
// program's kernels see there through views of any shape, while each extent comes and goes by
// itself.
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gpu/gpu_context.hpp"
#include "gpu/work.hpp"
#include "tiermem.h"

namespace tiermem::test {
namespace {

class GpuWindows : public GpuContext {
 protected:
  static constexpr std::uint64_t kExtents = 6;
  static constexpr std::uint64_t kBytes = kExtents * kChunk;

  static View part(const Buffer& buffer, std::uint32_t mode, std::uint64_t first,
                   std::uint64_t count) {
    auto view = buffer.acquire_on(kGpu, mode, first * kChunk, count * kChunk, kSoon);
    EXPECT_TRUE(view.ok()) << view.message();
    return view.ok() ? std::move(view).value() : View();
  }
  static std::byte* address(const Buffer& buffer) {
    const auto at = buffer.address_on(kGpu);
    EXPECT_TRUE(at.ok()) << at.message();
    return at.ok() ? *at : nullptr;
  }
  std::uint64_t mappings() const { return fake_cuda().live().mappings; }
};

TEST_F(GpuWindows, a_view_of_several_extents_is_one_run_of_bytes) {
  open("0:16M");
  const Program program;
  const Buffer& buffer = add(kBytes - 5 * 4096);
  host_puts(buffer, 1);
  EXPECT_TRUE(program.holds(on_gpu(buffer, kRead), 1));
  program.put(on_gpu(buffer, kWrite), 2);
  EXPECT_TRUE(host_holds(buffer, 2));
  program.put(on_gpu(buffer, kDiscard), 3);
  EXPECT_TRUE(program.holds(on_gpu(buffer, kRead), 3));
  EXPECT_TRUE(host_holds(buffer, 3));
}

TEST_F(GpuWindows, every_view_is_at_the_buffers_address_and_its_offset) {
  open("0:16M");
  const Buffer& buffer = add(kBytes);
  const View early = part(buffer, kRead, 2, 1);  // Before the buffer has a window.
  std::byte* const at = address(buffer);
  EXPECT_EQ(address(buffer), at);
  for (std::uint64_t first = 0; first < kExtents; ++first) {
    for (std::uint64_t count = 1; first + count <= kExtents; ++count) {
      const View view = part(buffer, kRead, first, count);
      EXPECT_EQ(view.data(), at + first * kChunk) << first << " " << count;
    }
  }
  const auto inside = buffer.acquire_on(kGpu, kRead, kChunk - 512, 1024, kSoon);
  ASSERT_TRUE(inside.ok());
  EXPECT_EQ(inside->data(), at + kChunk - 512);
  EXPECT_TRUE(early);
}

// A tensor of one extent. A captured graph contains its address.
TEST_F(GpuWindows, a_buffer_of_one_extent_may_have_an_address_too) {
  open("0:4M");
  const Program program;
  const Buffer& buffer = add(kChunk);
  std::byte* const at = address(buffer);
  program.put(on_gpu(buffer, kDiscard), 7);
  for (std::uint64_t round = 0; round < 3; ++round) {
    program.put(on_gpu(add(kChunk), kDiscard), 20 + round);  // Two of these fill the device.
    program.put(on_gpu(add(kChunk), kDiscard), 30 + round);
    const View again = on_gpu(buffers[0], kRead);
    EXPECT_EQ(again.data(), at);
    EXPECT_TRUE(program.holds(again, 7));
  }
}

TEST_F(GpuWindows, extents_come_and_go_each_by_itself) {
  open("0:16M");
  const Program program;
  add(kBytes);
  add(kChunk);
  std::byte* const at = address(buffers[0]);
  for (std::uint64_t i = 0; i < kExtents; ++i) {
    program.put(part(buffers[0], kDiscard, i, 1), i);
  }
  for (std::uint64_t round = 0; round < 4 * kExtents; ++round) {
    const std::uint64_t leaves = round * 5 % kExtents;
    ASSERT_TRUE(buffers[0].evict(leaves * kChunk, kChunk).ok());
    // May use the memory of the evicted extent.
    program.put(on_gpu(buffers[1], kDiscard), 100 + round);
    const View whole = on_gpu(buffers[0], kRead);
    ASSERT_EQ(whole.data(), at);
    const std::vector<std::uint64_t> words = program.words(whole);
    for (std::uint64_t i = 0; i < kExtents; ++i) {
      EXPECT_EQ(wrong({words.data() + i * kChunk / 8, kChunk / 8}, i), 0u) << round << " " << i;
    }
    EXPECT_TRUE(program.holds(on_gpu(buffers[1], kRead), 100 + round));
  }
}

TEST_F(GpuWindows, more_than_the_device_holds_goes_through_it_in_order) {
  open("0:8M");
  const Program program;
  const Buffer& buffer = add(20 * kChunk);
  for (std::uint64_t i = 0; i < 10; ++i) {
    program.put(part(buffer, kDiscard, 2 * i, 2), i);
    EXPECT_LE(context->stats().gpu_used, 8 * kMiB);
  }
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_TRUE(program.holds(part(buffer, kRead, 2 * i, 2), i)) << i;
  }
  const auto whole = buffer.acquire_on(kGpu, kRead, 0, 0, kSoon);
  EXPECT_EQ(whole.code(), Code::no_capacity);
  EXPECT_NE(std::string(whole.message()).find("gpu"), std::string::npos) << whole.message();
}

// Memory that now belongs to another extent must no longer be visible at its old address.
TEST_F(GpuWindows, what_is_anothers_is_no_longer_in_the_window) {
  open("0:4M");
  const Program program;
  add(2 * kChunk);
  add(2 * kChunk);
  std::byte* const at = address(buffers[0]);
  program.put(on_gpu(buffers[0], kDiscard), 1);
  const std::uint64_t both_shown = mappings();
  program.put(on_gpu(buffers[1], kDiscard), 2);
  EXPECT_EQ(mappings(), both_shown);
  cuda::DevicePointer base = 0;
  std::size_t bytes = 0;
  EXPECT_NE(cu().cuMemGetAddressRange_v2(&base, &bytes, reinterpret_cast<cuda::DevicePointer>(at)),
            cuda::kSuccess);
  EXPECT_TRUE(program.holds(on_gpu(buffers[0], kRead), 1));
  EXPECT_TRUE(program.holds(on_gpu(buffers[1], kRead), 2));
}

// The same if the other extent has no window.
TEST_F(GpuWindows, what_is_anothers_without_a_window_is_no_longer_in_the_window) {
  open("0:4M");
  const Program program;
  add(2 * kChunk);
  program.put(on_gpu(buffers[0], kDiscard), 1);
  ASSERT_EQ(fake_cuda().live().mappings, 4u);
  {
    std::vector<View> held;  // Otherwise the first of them may leave for the second.
    for (std::uint64_t i = 2; i < 4; ++i) {
      held.push_back(on_gpu(add(kChunk), kDiscard));
      program.put(held.back(), i);
    }
    EXPECT_EQ(mappings(), 2u);
  }
  for (std::uint64_t i = 1; i < 3; ++i) {
    EXPECT_TRUE(program.holds(on_gpu(buffers[i], kRead), i + 1));
  }
  EXPECT_TRUE(program.holds(on_gpu(buffers[0], kRead), 1));
}

TEST_F(GpuWindows, what_is_acquired_again_costs_no_call_of_the_driver) {
  fake_cuda().reset();
  open("0:16M");
  const Buffer& buffer = add(kBytes);
  (void)on_gpu(buffer, kRead);
  const auto count = reinterpret_cast<std::uint64_t (*)()>(
      ::dlsym(fake_cuda_library(), "tiermem_fake_cuda_calls"));
  ASSERT_NE(find_fake_cuda(), nullptr);
  const std::uint64_t before = count();
  for (int i = 0; i < 10; ++i) {
    (void)on_gpu(buffer, kWrite);
    (void)part(buffer, kRead, 1, 3);
  }
  EXPECT_EQ(count(), before);
}

TEST_F(GpuWindows, blocks_that_nobody_wants_in_a_row_cost_nothing_more) {
  open("0:16M");
  const Buffer& buffer = add(kBytes);
  for (std::uint64_t i = 0; i < kExtents; ++i) {
    (void)part(buffer, kDiscard, i, 1);
  }
  EXPECT_EQ(fake_cuda().calls("cuMemMap"), kExtents);
  (void)on_gpu(buffer, kRead);
  EXPECT_EQ(fake_cuda().calls("cuMemMap"), 2 * kExtents);
}

TEST_F(GpuWindows, prefetched_extents_are_where_they_are_wanted) {
  open("0:16M");
  const Program program;
  const Buffer& buffer = add(kBytes);
  host_puts(buffer, 4);
  (void)address(buffer);
  const Access all{buffer.handle(), 0, 0, kRead, kGpu, 0};
  Op op;
  ASSERT_TRUE(context->prefetch({&all, 1}, 0, &op).ok());
  ASSERT_TRUE(op.wait(kSoon).ok());
  const auto view = buffer.acquire_on(kGpu, kRead, 0, 0, Timeout::none());
  ASSERT_TRUE(view.ok()) << view.message();  // Everything is already in place.
  EXPECT_TRUE(program.holds(*view, 4));
}

TEST_F(GpuWindows, an_operation_ends_when_all_is_in_the_window) {
  open("0:16M");
  const Program program;
  const Buffer& buffer = add(kBytes);
  host_puts(buffer, 5);
  const Access all{buffer.handle(), 0, 0, kRead, kGpu, 0};
  ViewRecord record;
  auto op = context->acquire_async({&all, 1}, {&record, 1});
  ASSERT_TRUE(op.ok()) << op.message();
  ASSERT_TRUE(op->wait(kSoon).ok());
  const View view(*context, record);
  EXPECT_EQ(view.data(), address(buffer));
  EXPECT_TRUE(program.holds(view, 5));
}

TEST_F(GpuWindows, a_stream_waits_for_all_of_the_copies) {
  open("0:16M");
  const Program program;
  Work work(program, kBytes);
  const Buffer& buffer = add(kBytes);
  host_puts(buffer, 6);
  fake_cuda().slow_copies(0, std::chrono::milliseconds(2));
  {
    auto view = buffer.acquire_on(kGpu, kRead, work.order());
    ASSERT_TRUE(view.ok()) << view.message();
    work.begin_get(*view);
  }
  EXPECT_TRUE(work.got(6));
  {
    auto view = buffer.acquire_on(kGpu, kWrite, work.order());
    ASSERT_TRUE(view.ok()) << view.message();
    work.begin_put(*view, 7);
  }
  EXPECT_TRUE(host_holds(buffer, 7));  // After the stream's work.
  ASSERT_TRUE(buffer.evict(kChunk, 2 * kChunk).ok());
  {
    // Some extents are on the device, and others arrive.
    auto view = buffer.acquire_on(kGpu, kRead, work.order());
    ASSERT_TRUE(view.ok()) << view.message();
    work.begin_get(*view);
  }
  EXPECT_TRUE(work.got(7));
  work.finish();
}

TEST_F(GpuWindows, a_file_is_one_run_there) {
  open("0:16M");
  const Program program;
  const std::string path = directory.path() + "/weights";
  std::vector<std::uint64_t> words(kBytes / 8);
  fill(words, 8);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(words.data()), static_cast<std::streamsize>(kBytes));
  constexpr std::uint64_t kFrom = 512 * 3;
  auto file = context->adopt_file(path.c_str(), kFrom, kBytes - kFrom);
  ASSERT_TRUE(file.ok()) << file.message();
  {
    const View view = on_gpu(*file, kRead);
    ASSERT_EQ(view.size(), kBytes - kFrom);
    EXPECT_EQ(view.data(), address(*file));
    EXPECT_EQ(program.words(view),
              std::vector<std::uint64_t>(words.begin() + kFrom / 8, words.end()));
  }
  EXPECT_EQ(file->acquire_on(kGpu, kWrite, 0, 0, kSoon).code(), Code::invalid_argument);
}

TEST_F(GpuWindows, each_device_has_a_window_of_its_own) {
  fake_cuda().set_devices(2);
  open("0:16M,1:16M");
  const Program first(0);
  const Buffer& buffer = add(kBytes);
  constexpr Place kOther{Kind::gpu, 1};
  first.put(on_gpu(buffer, kDiscard), 9);
  {
    auto view = buffer.acquire_on(kOther, kRead, 0, 0, kSoon);
    ASSERT_TRUE(view.ok()) << view.message();
    EXPECT_EQ(view->data(), *buffer.address_on(kOther));
    EXPECT_NE(view->data(), address(buffer));
    EXPECT_TRUE(Program(1).holds(*view, 9));
  }
  {
    auto view = buffer.acquire_on(kOther, kWrite, kChunk, 2 * kChunk, kSoon);
    ASSERT_TRUE(view.ok()) << view.message();
    Program(1).put(*view, 10);
  }
  const std::vector<std::uint64_t> words = Program(0).words(on_gpu(buffer, kRead));
  EXPECT_EQ(wrong({words.data() + kChunk / 8, 2 * kChunk / 8}, 10), 0u);
}

TEST_F(GpuWindows, many_threads_may_be_the_first_to_want_it) {
  open("0:16M");
  for (int round = 0; round < 20; ++round) {
    add(kBytes);
    std::array<void*, 6> seen{};
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i < seen.size(); ++i) {
      threads.emplace_back([&, i] {
        if (i % 3 == 0) {
          seen[i] = address(buffers[0]);
        } else {
          auto view = buffers[0].acquire_on(kGpu, i % 2 != 0 ? kRead : kWrite, i % 3 * kChunk,
                                            3 * kChunk, kSoon);
          EXPECT_TRUE(view.ok()) << view.message();
          seen[i] = static_cast<std::byte*>(view->data()) - i % 3 * kChunk;
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(std::set<void*>(seen.begin(), seen.end()).size(), 1u);
    buffers.clear();
  }
}

// A handle may be freed while another thread creates the buffer's window. Nothing is left behind.
TEST_F(GpuWindows, a_buffer_may_be_freed_meanwhile) {
  open("0:16M");
  for (int round = 0; round < 50; ++round) {
    Buffer buffer = std::move(add(kBytes));
    buffers.clear();
    const Handle handle = buffer.handle();
    std::thread other([&] {
      const Access all{handle, 0, 0, kRead, kGpu, 0};
      ViewRecord view;
      const Status status = context->acquire({&all, 1}, kSoon, {&view, 1});
      EXPECT_TRUE(status.ok() || status.code() == Code::stale_handle) << status.message();
      if (status.ok()) {
        EXPECT_TRUE(context->release({&view, 1}).ok());
      }
    });
    buffer = {};
    other.join();
  }
}

TEST_F(GpuWindows, each_step_of_showing_may_fail_and_loses_nothing) {
  open("0:16M");
  const Program program;
  const Buffer& buffer = add(kBytes);
  host_puts(buffer, 11);
  const auto refuse = [&](const char* call, const auto& ask) {
    fake_cuda().fail_nth(call, 1, cuda::kOutOfMemory);
    const auto refused = ask();
    EXPECT_EQ(refused.code(), Code::no_capacity) << call << ": " << refused.message();
    EXPECT_NE(std::string(refused.message()).find(call), std::string::npos) << refused.message();
    EXPECT_NE(std::string(refused.message()).find("gpu 0"), std::string::npos);
    fake_cuda().forgive();
  };
  for (std::uint64_t i = 0; i < kExtents; ++i) {
    (void)part(buffer, kRead, i, 1);  // All extents are on the device but in no window.
  }
  refuse("cuMemAddressReserve", [&] { return buffer.acquire_on(kGpu, kRead, 0, 0, kSoon); });
  refuse("cuMemAddressReserve", [&] { return buffer.address_on(kGpu); });
  (void)address(buffer);
  for (const char* call : {"cuMemMap", "cuMemSetAccess"}) {
    refuse(call, [&] { return buffer.acquire_on(kGpu, kRead, 0, kChunk, kSoon); });
  }
  EXPECT_TRUE(program.holds(on_gpu(buffer, kRead), 11));
  // An extent leaves one window, and its memory is shown in another.
  fake_cuda().fail_nth("cuMemUnmap", 1, cuda::kInvalidValue);
  const auto refused = add(kBytes).acquire_on(kGpu, kDiscard, 0, 0, kSoon);
  EXPECT_EQ(refused.code(), Code::io_error) << refused.message();
  fake_cuda().forgive();
  program.put(on_gpu(buffers[1], kDiscard), 12);
  EXPECT_TRUE(program.holds(on_gpu(buffers[0], kRead), 11));
  EXPECT_TRUE(program.holds(on_gpu(buffers[1], kRead), 12));
}

// Extents that wait to appear in the window while a driver call takes long.
class GpuWindowsTogether : public GpuWindows {
 protected:
  void open_with_four_workers() {
    fake_cuda().reset();
    open("0:16M", "workers=4");
    host_puts(add(kBytes), 11);
    for (std::uint64_t i = 0; i < kExtents; ++i) {
      (void)part(buffers[0], kRead, i, 1);  // All extents are on the device but in no window.
    }
    fake_cuda().slow_call("cuMemMap", std::chrono::milliseconds(5));
  }
  void close() {
    buffers.clear();
    context.reset();
  }
};

// The threads decide whether requests wait at the same time, so both tests try several times.
TEST_F(GpuWindowsTogether, adjacent_chunks_get_their_access_with_one_call) {
  bool together = false;
  for (int round = 0; round < 20 && !together; ++round) {
    open_with_four_workers();
    const Program program;
    const std::uint64_t before = fake_cuda().calls("cuMemSetAccess");
    const View whole = on_gpu(buffers[0], kRead);
    together = fake_cuda().calls("cuMemSetAccess") - before < kExtents;
    EXPECT_TRUE(program.holds(whole, 11));
    close();
  }
  EXPECT_TRUE(together);
}

TEST_F(GpuWindowsTogether, a_refused_call_for_several_is_repeated_for_each) {
  bool repeated = false;
  for (int round = 0; round < 20 && !repeated; ++round) {
    open_with_four_workers();
    const Program program;
    fake_cuda().fail_nth("cuMemSetAccess", 2, cuda::kInvalidValue);
    auto view = buffers[0].acquire_on(kGpu, kRead, 0, 0, kSoon);
    repeated = view.ok();  // The second call covered several chunks.
    fake_cuda().forgive();
    EXPECT_TRUE(program.holds(repeated ? std::move(*view) : on_gpu(buffers[0], kRead), 11));
    close();
  }
  EXPECT_TRUE(repeated);
}

TEST_F(GpuWindowsTogether, a_refused_chunk_fails_alone) {
  for (std::uint64_t nth = 1; nth <= kExtents; ++nth) {
    open_with_four_workers();
    const Program program;
    fake_cuda().fail_nth("cuMemMap", nth, cuda::kOutOfMemory);
    const auto refused = buffers[0].acquire_on(kGpu, kRead, 0, 0, kSoon);
    EXPECT_EQ(refused.code(), Code::no_capacity) << refused.message();
    fake_cuda().forgive();
    EXPECT_TRUE(program.holds(on_gpu(buffers[0], kRead), 11));
    close();
  }
}

TEST_F(GpuWindows, addresses_that_nothing_can_have_are_refused) {
  open("0:8M");
  const auto says = [&](const Buffer& buffer, Place where, Code code, const char* what) {
    const auto refused = buffer.address_on(where);
    EXPECT_EQ(refused.code(), code) << refused.message();
    EXPECT_NE(std::string(refused.message()).find(what), std::string::npos) << refused.message();
  };
  says(add(kMiB), kGpu, Code::unsupported, "extent_bytes of 2 MiB");
  says(add(kChunk), {Kind::gpu, 1}, Code::unavailable, "gpu 1");
  says(add(kChunk), {Kind::dram, 0}, Code::unsupported, "call address()");
  if (auto mapped = context->alloc(kChunk, {.flags = kMapped}); mapped.ok()) {
    says(*mapped, kGpu, Code::unsupported, "mapped");
  }
  const Handle handle = add(kChunk).handle();
  buffers.clear();
  EXPECT_EQ(context->address_on(handle, kGpu).code(), Code::stale_handle);
}

TEST(GpuWindowsCApi, an_address_by_the_c_interface) {
  tm_context* const context = make_c_context();
  ASSERT_NE(context, nullptr);
  tm_buffer buffer = 0;
  ASSERT_EQ(tm_alloc(context, 8 << 20, nullptr, &buffer), TM_OK);
  const tm_place gpu = {TM_GPU, 0};
  void* at = nullptr;
  ASSERT_EQ(tm_address_on(context, buffer, gpu, &at), TM_OK);
  tm_access access = {buffer, 2 << 20, 4 << 20, TM_DISCARD, gpu, 0};
  tm_view view;
  ASSERT_EQ(tm_acquire(context, &access, 1, TM_HOST_ORDER, std::int64_t{-1}, &view), TM_OK);
  EXPECT_EQ(view.data, static_cast<std::byte*>(at) + (2 << 20));
  EXPECT_EQ(tm_release(context, &view, 1, TM_HOST_ORDER), TM_OK);
  EXPECT_EQ(tm_address_on(context, buffer, gpu, nullptr), TM_INVALID_ARGUMENT);
  EXPECT_EQ(tm_address_on(context, buffer, tm_place{TM_DRAM, 0}, &at), TM_UNSUPPORTED);
  EXPECT_EQ(tm_context_destroy(context, 0, std::int64_t{-1}), TM_OK);
}

}  // namespace
}  // namespace tiermem::test
