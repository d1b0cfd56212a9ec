// Domains on devices. Goal: bytes of an isolated buffer that were on a GPU, or passed through the
// staging of one, must not appear in any memory of the host or the device that another buffer can
// obtain. Method: as in tests/api/found_l02_test.cpp, on the fake driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "gpu/gpu_context.hpp"
#include "support/found.hpp"

namespace tiermem::test {
namespace {

constexpr std::uint64_t kSecret = 0x5EC2E7D0A1B2C3D4u;

class DeviceDomains : public GpuContext {
 protected:
  std::uint64_t secrets_in(const View& view, bool on_device) {
    std::vector<std::uint64_t> words(view.size() / 8);
    if (on_device) {
      words = program_->words(view);
    } else {
      std::memcpy(words.data(), view.data(), words.size() * 8);
    }
    return static_cast<std::uint64_t>(std::count(words.begin(), words.end(), kSecret));
  }
  /// Searches the bytes that discarding views of new buffers show.
  void search(const char* when) {
    for (std::uint64_t bytes = 4096; bytes <= 4 * kMiB; bytes *= 2) {
      for (const bool on_device : {true, false}) {
        auto made = context->alloc(bytes, {.extent_bytes = std::min(bytes, 2 * kMiB)});
        ASSERT_TRUE(made.ok()) << made.message();
        auto view = on_device ? made->acquire_on(kGpu, kDiscard, 0, 0, kSoon)
                              : made->acquire(kDiscard, 0, 0, kSoon);
        if (!view.ok()) {
          EXPECT_EQ(view.code(), Code::unsupported) << view.message();
          continue;  // The buffer has several small extents.
        }
        EXPECT_EQ(secrets_in(*view, on_device), 0u)
            << when << ": " << bytes << " bytes on " << (on_device ? "the device" : "the host");
      }
    }
    auto block = context->malloc_at(kGpu, 2 * kMiB);
    ASSERT_TRUE(block.ok()) << block.message();
    const std::vector<std::uint64_t> words = program_->words(*block, 2 * kMiB);
    EXPECT_EQ(std::count(words.begin(), words.end(), kSecret), 0) << when;
    EXPECT_TRUE(context->free_ptr(*block).ok());
  }

  std::optional<Program> program_;
};

FOUND_TEST(DeviceDomains, L02_isolated_bytes_of_a_device_are_in_no_other_buffer) {
  open("0:8M", "row_cache=64K");
  program_.emplace();
  for (const std::uint64_t bytes :
       {std::uint64_t{4096}, std::uint64_t{64} << 10, 2 * kMiB, 6 * kMiB}) {
    auto made = context->alloc(bytes, {.flags = kIsolated});
    ASSERT_TRUE(made.ok());
    {
      auto view = made->acquire(kDiscard, 0, 0, kSoon);
      ASSERT_TRUE(view.ok()) << view.message();
      std::fill_n(view->as<std::uint64_t>().data(), bytes / 8, kSecret);
    }
    if (auto view = made->acquire_on(kGpu, kWrite, 0, 0, kSoon); view.ok()) {
      EXPECT_EQ(secrets_in(*view, true), bytes / 8);
    }
    EXPECT_TRUE(made->evict().ok());  // Through the staging.
    if (auto view = made->acquire_on(kGpu, kRead, 0, 0, kSoon); view.ok()) {
      EXPECT_EQ(secrets_in(*view, true), bytes / 8);
    }
    search("while it lives");
    made->reset();
    search("after it was freed");
  }
  program_.reset();  // Before the fixture checks what is left in the driver.
}

}  // namespace
}  // namespace tiermem::test
