// Bytes that move between a device and a disk without passing the host: from a device's memory
// through cuFile to a file of the block tier. The library is tests/support/fake_cufile, or the one
// that TIERMEM_TEST_CUFILE names (tests/clients/run: NVIDIA's own).
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/gpu_context.hpp"
#include "os/block_file.hpp"
#include "os/cuda_lane.hpp"
#include "os/cufile_driver.hpp"
#include "support/pattern.hpp"
#include "support/places.hpp"
#include "tier/gpu.hpp"

namespace tiermem::test {
namespace {

class DirectBytes : public GpuContext {
 protected:
  ~DirectBytes() override { ::unsetenv("TIERMEM_FAKE_CUFILE"); }
  void SetUp() override {
    if (!named()) {
      GpuContext::SetUp();
    }
  }
  void TearDown() override {
    if (!named()) {
      GpuContext::TearDown();
    }
  }

  /// Returns whether a library other than the fake is used. Such a library keeps its driver objects
  /// until the process ends.
  static bool named() { return std::getenv("TIERMEM_TEST_CUFILE") != nullptr; }
  static const char* library_path() {
    return named() ? std::getenv("TIERMEM_TEST_CUFILE") : fake_cufile_path();
  }
  static constexpr std::uint64_t kBytes = 2 << 20;

  void open_direct(const std::string& behaviour, const std::string& more = "checksum=off") {
    ::setenv("TIERMEM_FAKE_CUFILE", (behaviour + ";status=16;nvfs=2.26").c_str(), 1);
    open("0:8M", "gpu_direct=direct; gpu_cufile=" + std::string(library_path()) + "; " + more);
  }
  /// Returns a buffer that is only on the device.
  Buffer& placed(std::uint64_t seed, const BufferOptions& options = {}) {
    Buffer& buffer = add(kBytes, options);
    host_puts(buffer, seed);
    { const View there = on_gpu(buffer, kWrite); }
    return buffer;
  }
  /// Returns the path of the last extent written from the device, from its receipt.
  std::string path_to_disk() {
    const auto json = context->stats_json(4);
    EXPECT_TRUE(json.ok()) << json.message();
    const std::string begin = R"("from":"gpu","to":"block")";
    const std::string path = R"("path":")";
    const std::size_t at = json->find(path, json->rfind(begin));
    if (json->rfind(begin) == std::string::npos || at == std::string::npos) {
      return "no such receipt in " + std::string(*json);
    }
    const std::size_t word = at + path.size();
    return std::string(json->substr(word, json->find('"', word) - word));
  }
  Receipt::Path path_of(const Buffer& buffer) {
    const auto where = context->why(buffer.handle(), 0);
    EXPECT_TRUE(where.ok()) << where.message();
    return where.ok() ? where->last.path : Receipt::Path::none;
  }
};

TEST_F(DirectBytes, go_to_the_disk_and_come_back_and_receipts_say_so) {
  constexpr std::uint64_t kBuffers = 7;  // Nearly twice the device's capacity.
  open_direct("");
  for (std::uint64_t seed = 0; seed < kBuffers; ++seed) {
    placed(seed + 1);
    ASSERT_TRUE(buffers.back().evict().ok());
    EXPECT_EQ(path_to_disk(), "direct");
  }
  for (std::uint64_t i = 0; i < kBuffers; ++i) {
    {
      const View view = on_gpu(buffers[i], kRead);
      EXPECT_EQ(path_of(buffers[i]), Receipt::Path::direct);
    }
    EXPECT_TRUE(host_holds(buffers[i], i + 1)) << i;
  }
  const Stats stats = context->stats();
  EXPECT_EQ(stats.gpu_direct_out, kBuffers * kBytes);
  EXPECT_EQ(stats.gpu_direct_in, kBuffers * kBytes);
  EXPECT_EQ(stats.gpu_direct_errors, 0u);
  EXPECT_GE(stats.gpu_bytes_in, stats.gpu_direct_in);
  EXPECT_GE(stats.gpu_bytes_out, stats.gpu_direct_out);
  EXPECT_EQ(stats.gpu_bytes_staged, 0u);
}

TEST_F(DirectBytes, of_short_calls_go_on_where_these_ended) {
  open_direct("most=81920");
  const Buffer& buffer = placed(3);
  ASSERT_TRUE(buffer.evict().ok());
  { const View view = on_gpu(buffer, kRead); }
  EXPECT_TRUE(host_holds(buffer, 3));
  EXPECT_EQ(context->stats().gpu_direct_in, kBytes);
}

TEST_F(DirectBytes, with_checksums_are_verified_by_the_host) {
  open_direct("", "checksum=on");
  buffers.reserve(2);
  const Buffer& sealed = placed(4);
  const Buffer& bare = placed(5, {.flags = kNoChecksum});
  for (const Buffer* const each : {&sealed, &bare}) {
    ASSERT_TRUE(each->evict().ok());
    EXPECT_EQ(path_to_disk(), each == &bare ? "direct" : "staged");
    const View view = on_gpu(*each, kRead);
    EXPECT_EQ(path_of(*each), each == &bare ? Receipt::Path::direct : Receipt::Path::staged);
  }
  EXPECT_TRUE(host_holds(sealed, 4));
  EXPECT_TRUE(host_holds(bare, 5));
}

TEST_F(DirectBytes, that_the_library_refuses_go_through_the_host) {
  for (const char* const refusal :
       {"read=-1", "read=-5011", "read=0", "write=-1", "write=-5022", "write=0"}) {
    SCOPED_TRACE(refusal);
    open_direct(refusal);
    const Buffer& buffer = placed(6);
    ASSERT_TRUE(buffer.evict().ok());
    { const View view = on_gpu(buffer, kRead); }
    EXPECT_TRUE(host_holds(buffer, 6));
    const Stats stats = context->stats();
    EXPECT_EQ(stats.gpu_direct_errors, 1u);
    EXPECT_EQ(stats.io_errors, 0u);
    EXPECT_GE(stats.gpu_bytes_staged, kBytes);
    buffers.clear();
    context.reset();
  }
}

TEST_F(DirectBytes, are_what_the_disk_has_when_the_device_is_lost) {
  open_direct("");
  const Buffer& buffer = placed(7);
  ASSERT_TRUE(buffer.evict().ok());
  fake_cuda().lose_device(0);
  EXPECT_FALSE(buffer.acquire_on(kGpu, kRead, 0, 0, kSoon).ok());
  EXPECT_TRUE(host_holds(buffer, 7));
}

// Two disks, one of them without O_DIRECT.
TEST_F(DirectBytes, of_a_disk_that_is_not_reached_go_through_the_host) {
  constexpr std::uint64_t kBuffers = 8;
  struct statfs kind {};
  if (::statfs("/dev/shm", &kind) != 0 || kind.f_type != TMPFS_MAGIC ||
      ::access("/dev/shm", W_OK) != 0 || kind.f_bavail * kind.f_bsize < (48u << 20)) {
    GTEST_SKIP() << "/dev/shm is not a tmpfs with enough room";
  }
  const Directory in_memory("/dev/shm");
  ::setenv("TIERMEM_FAKE_CUFILE", "status=16;nvfs=2.26", 1);
  context = make_context("dram=16M; checksum=off; nvme=" + directory.path() + ":32M," +
                         in_memory.path() + ":32M; gpu=0:8M; gpu_driver=" + test_driver() +
                         "; gpu_direct=direct; gpu_cufile=" + library_path());
  ASSERT_NE(context, nullptr);
  for (std::uint64_t i = 0; i < kBuffers; ++i) {
    placed(i + 1);
    ASSERT_TRUE(buffers.back().evict().ok());
  }
  for (std::uint64_t i = 0; i < kBuffers; ++i) {
    { const View view = on_gpu(buffers[i], kRead); }
    EXPECT_TRUE(host_holds(buffers[i], i + 1)) << i;
  }
  const Stats stats = context->stats();
  EXPECT_GE(stats.gpu_direct_in, kBytes);
  EXPECT_LT(stats.gpu_direct_in, kBuffers * kBytes);
  EXPECT_GE(stats.gpu_bytes_staged, 2 * kBytes);
  EXPECT_EQ(stats.gpu_direct_errors, 0u);
}

TEST_F(DirectBytes, of_many_threads_are_their_own) {
  open_direct("");
  std::atomic<unsigned> bad{0};
  const auto work = [&](std::uint64_t thread) {
    std::vector<Buffer> own;
    for (std::uint64_t i = 0; i < 3; ++i) {
      auto made = context->alloc(kBytes);
      bad += made.ok() ? 0 : 1;
      own.push_back(made.ok() ? std::move(made).value() : Buffer());
      host_puts(own.back(), 100 * thread + i);
    }
    for (std::uint64_t round = 0; round < 6; ++round) {
      const Buffer& buffer = own[round % 3];
      { const View view = on_gpu(buffer, kWrite); }
      bad += buffer.evict().ok() ? 0 : 1;
      { const View view = on_gpu(buffer, kRead); }
      bad += host_holds(buffer, 100 * thread + round % 3) ? 0 : 1;
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t thread = 1; thread <= 4; ++thread) {
      threads.emplace_back(work, thread);
    }
  }
  EXPECT_EQ(bad, 0u);
  EXPECT_GT(context->stats().gpu_direct_in, 0u);
}

// The library accepts a file that has no name, and that grows after its registration.
TEST_F(DirectBytes, are_moved_by_the_library_between_a_frame_and_a_file_of_the_block_tier) {
  auto driver = CudaDriver::load(test_driver());
  ASSERT_TRUE(driver.ok()) << driver.message();
  ASSERT_TRUE(driver->start().ok());
  auto lane = CudaLane::open(*driver, 0);
  ASSERT_TRUE(lane.ok()) << lane.message();
  auto gpu = GpuTier::create(std::move(lane).value(), 4 * kBytes);
  ASSERT_TRUE(gpu.ok()) << gpu.message();
  const FrameId frame = (*gpu)->acquire_frame({Pool::locked, kBytes, 0});
  ASSERT_TRUE((*gpu)->populate(frame, false, nullptr).ok());
  const auto at = reinterpret_cast<cuda::DevicePointer>((*gpu)->bytes_at(frame, nullptr));

  auto file = BlockFile::open({.path = directory.path(), .limit = 64 << 20, .nameable = true});
  ASSERT_TRUE(file.ok()) << file.message();
  ASSERT_TRUE((*file)->facts().direct) << (*file)->facts().reason;
  ASSERT_TRUE((*file)->grow(kBytes).ok());
  const int descriptor = (*file)->fd(false);
  const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(4096, kBytes),
                                                           &std::free);
  const std::span<std::uint64_t> words(static_cast<std::uint64_t*>(memory.get()), kBytes / 8);
  fill(words, 8);
  ASSERT_EQ(::pwrite(descriptor, memory.get(), kBytes, 0), static_cast<ssize_t>(kBytes));

  auto library = CuFileDriver::load(library_path());
  ASSERT_TRUE(library.ok()) << library.message();
  int own = -1;
  cufile::Handle added = nullptr;
  const Status adding = (*file)->with_name([&](int named_descriptor) -> Status {
    own = named_descriptor;
    auto handle = library->add(own);
    added = handle.ok() ? *handle : nullptr;
    return std::move(handle).status();
  });
  ASSERT_TRUE(adding.ok()) << adding.message();
  EXPECT_TRUE(std::filesystem::is_empty(directory.path())) << "the name is for a moment";
  ASSERT_TRUE((*file)->grow(4 * kBytes).ok());
  const Status moved = (*gpu)->lane().here([&] {
    Status status = library->read(added, 0, at, kBytes);
    return status.ok() ? library->write(added, 3 * kBytes, at, kBytes) : std::move(status);
  });
  EXPECT_TRUE(moved.ok()) << moved.message();
  fill(words, 9);
  EXPECT_EQ(::pread(descriptor, memory.get(), kBytes, 3 * kBytes), static_cast<ssize_t>(kBytes));
  EXPECT_EQ(wrong(words, 8), 0u);

  const Status beyond =
      (*gpu)->lane().here([&] { return library->read(added, 1 << 30, at, 4096); });
  EXPECT_FALSE(beyond.ok()) << "beyond the end of the file";
  library->remove(added);
  ::close(own);
  (*gpu)->return_frame(frame);
}

TEST_F(DirectBytes, need_a_block_tier) {
  ::setenv("TIERMEM_FAKE_CUFILE", "status=16", 1);
  const auto made =
      Context::create("dram=16M; nvme=off; gpu=0:8M; gpu_driver=" + std::string(test_driver()) +
                      "; gpu_direct=direct");
  EXPECT_EQ(made.code(), Code::invalid_argument);
  EXPECT_NE(std::string(made.message()).find("no block tier"), std::string::npos);
}

}  // namespace
}  // namespace tiermem::test
