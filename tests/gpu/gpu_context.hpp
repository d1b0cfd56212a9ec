// A context with a GPU tier, on the fake driver or a real one (program.hpp), and buffers that are
// released before it. A test fails if it leaves a stream, an event, a registration or memory of the
// driver behind.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "gpu/program.hpp"
#include "tiermem.h"

namespace tiermem::test {

inline constexpr Place kGpu{Kind::gpu, 0};

class GpuContext : public ::testing::Test {
 protected:
  void SetUp() override {
    if (FakeCuda* const fake = find_fake_cuda(); fake != nullptr) {
      fake->reset();
    }
  }
  void TearDown() override {
    buffers.clear();
    context.reset();
    if (FakeCuda* const fake = find_fake_cuda(); fake != nullptr) {
      EXPECT_EQ(fake->live(), FakeCudaLive{}) << "of the driver's something is left";
    }
  }
  std::string spec(const std::string& gpu, const std::string& more) const {
    const bool has_dram = more.find("dram=") != std::string::npos;
    return (has_dram ? "nvme=" : "dram=16M; nvme=") + directory.path() + ":512M; gpu=" + gpu +
           "; gpu_driver=" + test_driver() + "; " + more;
  }
  void open(const std::string& gpu = "0:8M", const std::string& more = "") {
    context = make_context(spec(gpu, more));
    ASSERT_NE(context, nullptr);
  }
  Status refusal(const std::string& gpu, const std::string& more = "") const {
    return Context::create(spec(gpu, more)).status().clone();
  }
  Buffer& add(std::uint64_t bytes, const BufferOptions& options = {}) {
    auto made = context->alloc(bytes, options);
    EXPECT_TRUE(made.ok()) << made.message();
    return buffers.emplace_back(made.ok() ? std::move(made).value() : Buffer());
  }
  static View on_gpu(const Buffer& buffer, std::uint32_t mode, Timeout timeout = kSoon) {
    auto view = buffer.acquire_on(kGpu, mode, 0, 0, timeout);
    EXPECT_TRUE(view.ok()) << view.message();
    return view.ok() ? std::move(view).value() : View();
  }
  static bool host_holds(const Buffer& buffer, std::uint64_t seed) {
    auto view = buffer.acquire(kRead, 0, 0, kSoon);
    EXPECT_TRUE(view.ok()) << view.message();
    return view.ok() && wrong(view->as<std::uint64_t>(), seed) == 0;
  }
  static void host_puts(const Buffer& buffer, std::uint64_t seed) {
    auto view = buffer.acquire(kDiscard, 0, 0, kSoon);
    ASSERT_TRUE(view.ok()) << view.message();
    fill(view->as<std::uint64_t>(), seed);
  }

  static constexpr Timeout kSoon = Timeout::seconds(60);
  Directory directory;
  std::unique_ptr<Context> context;
  std::vector<Buffer> buffers;
};

/// Creates a context of the C interface with one device of 16 MiB, on a reset driver. Returns null
/// if this fails.
inline tm_context* make_c_context() {
  if (FakeCuda* const fake = find_fake_cuda(); fake != nullptr) {
    fake->reset();
  }
  tm_context* context = nullptr;
  const std::string tiers =
      std::string("dram=32M; nvme=off; gpu=0:16M; gpu_driver=") + test_driver();
  EXPECT_EQ(tm_context_create(tiers.c_str(), nullptr, &context), TM_OK);
  return context;
}

}  // namespace tiermem::test
