// Options with an effect that only a whole context shows: each is set in the spec string.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "support/damage.hpp"
#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

class OptionsTest : public ::testing::Test {
 protected:
  std::unique_ptr<Context> make(const std::string& options) {
    return make_context("nvme=" + directory_.path() + ":512M; " + options);
  }
  Directory directory_;
};

TEST_F(OptionsTest, extent_is_the_size_of_large_buffers_extents) {
  auto context = make("dram=16M; extent=64K");
  auto buffer = context->alloc(kMiB);
  auto info = buffer->info();
  ASSERT_TRUE(info.ok()) << info.message();
  EXPECT_EQ(info->extent_bytes, 65536u);
  EXPECT_EQ(info->extents, 16u);
}

TEST_F(OptionsTest, io_engine_threads_keeps_every_byte) {
  auto context = make("dram=8M; io_engine=threads");
  auto buffer = context->alloc(32 * kMiB);
  ASSERT_TRUE(write_pattern(*buffer, 1).ok());
  EXPECT_EQ(wrong_words(*buffer, 1), 0u);
  EXPECT_GE(context->stats().demoted, 24 * kMiB);
}

TEST_F(OptionsTest, ahead_0_evicts_only_what_is_needed) {
  std::uint64_t resident[2];
  for (const int ahead : {0, 50}) {
    auto context = make("dram=32M; ahead=" + std::to_string(ahead));
    auto buffer = context->alloc(128 * kMiB);
    ASSERT_TRUE(write_pattern(*buffer, 1).ok());
    // Extents that are evicted in advance are written first, so the test waits for them to leave,
    // up to two seconds.
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(ahead == 0 ? 0 : 2);
    do {
      resident[ahead / 50] = buffer->info()->resident;
    } while (resident[ahead / 50] == 32 * kMiB && std::chrono::steady_clock::now() < until);
  }
  EXPECT_GE(resident[0], 30 * kMiB);  // Full, except for the part that the last chunk requested.
  EXPECT_LT(resident[1], resident[0]);
}

TEST_F(OptionsTest, endurance_limits_what_is_written) {
  auto context = make("dram=8M; endurance=16M");
  auto buffer = context->alloc(64 * kMiB);
  std::uint64_t written = 0;
  const Status refusal = write_pattern(*buffer, 1, Timeout::seconds(5), &written);
  EXPECT_EQ(refusal.code(), Code::no_capacity);
  EXPECT_SAYS(refusal, "endurance");
  EXPECT_LE(context->stats().demoted, 16 * kMiB);
  EXPECT_GE(written, 16 * kMiB);
  // All written bytes are intact: with a sufficient budget nothing more must be written.
  ASSERT_TRUE(context->set_budget({Kind::dram, 0}, 64 * kMiB).ok());
  EXPECT_EQ(wrong_words(*buffer, 1, written), 0u);
}

// A write that is refused for lack of a slot reaches no device. Its endurance stays available to
// later writes, to the last byte.
TEST_F(OptionsTest, endurance_is_spent_by_bytes_that_are_written_only) {
  auto context = make("dram=8M; endurance=32M");
  ASSERT_TRUE(context->set_budget({Kind::block, 0}, 16 * kMiB).ok());
  auto buffer = context->alloc(64 * kMiB);
  std::uint64_t written = 0;
  Status refusal = write_pattern(*buffer, 1, Timeout::seconds(5), &written);
  ASSERT_EQ(refusal.code(), Code::no_capacity);
  ASSERT_EQ(context->stats().demoted, 16 * kMiB) << refusal.message();
  for (int i = 0; i < 20; ++i) {
    // Ends the pause after a refusal, so that the next request tries to write again.
    ASSERT_TRUE(context->set_budget({Kind::block, 0}, 16 * kMiB).ok());
    refusal = buffer->acquire(kDiscard, written, kChunk, Timeout::seconds(5)).status();
    ASSERT_EQ(refusal.code(), Code::no_capacity);
    EXPECT_FALSE(says(refusal.message(), "endurance")) << refusal.message();
  }
  EXPECT_SAYS(refusal, "slot") << "this attempt was none";
  ASSERT_TRUE(context->set_budget({Kind::block, 0}, 128 * kMiB).ok());
  refusal = write_pattern(*buffer, 2, Timeout::seconds(5), &written);
  EXPECT_SAYS(refusal, "endurance");
  EXPECT_EQ(context->stats().demoted, 32 * kMiB);
}

TEST_F(OptionsTest, checksum_decides_whether_a_changed_slot_is_noticed) {
  for (const bool on : {true, false}) {
    auto context = make(std::string("dram=16M; checksum=") + (on ? "on" : "off"));
    Buffer buffer = make_buffer(*context, 2 * kMiB, "victim");
    ASSERT_TRUE(write_pattern(buffer, 1).ok());
    ASSERT_TRUE(buffer.evict().ok());
    flip_bits_on_disk(directory_.path());
    auto view = buffer.acquire(kRead);
    if (on) {
      EXPECT_EQ(view.code(), Code::lost);
      EXPECT_SAYS(view, "victim");
      EXPECT_GE(context->stats().checksum_errors, 2u);
      EXPECT_EQ(buffer.acquire(kRead).code(), Code::lost) << "reported to every later reader";
      EXPECT_TRUE(buffer.acquire(kDiscard).ok()) << "writing it anew makes it good again";
    } else {
      ASSERT_TRUE(view.ok()) << view.message();
      EXPECT_EQ(view->as<std::uint64_t>()[1], word_at(1, 1) ^ 0x1010101010101010u);
    }
  }
}

}  // namespace
}  // namespace tiermem::test
