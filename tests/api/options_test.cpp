// Options whose effect only a whole context shows: each given through the spec string.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tiermem/tiermem.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class OptionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* base = getenv("TMPDIR");
    std::string name = std::string(base != nullptr ? base : "/var/tmp") + "/tiermem-options-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::unique_ptr<Context> make(const std::string& options) {
    auto context = Context::create("nvme=" + directory_ + ":512M; " + options);
    EXPECT_TRUE(context.ok()) << context.message();
    return context.ok() ? std::move(context).value() : nullptr;
  }
  std::string directory_;
};

// Writes i / 8 into every word, chunk by chunk.
void fill(Buffer& buffer) {
  for (std::uint64_t at = 0; at < buffer.size(); at += kMiB) {
    auto view = buffer.acquire(kDiscard, at, kMiB);
    ASSERT_TRUE(view.ok()) << view.message();
    for (std::uint64_t i = 0; i < kMiB / 8; ++i) {
      view->as<std::uint64_t>()[i] = at / 8 + i;
    }
  }
}
std::uint64_t wrong(Buffer& buffer) {
  std::uint64_t n = 0;
  for (std::uint64_t at = 0; at < buffer.size(); at += kMiB) {
    auto view = buffer.acquire(kRead, at, kMiB);
    for (std::uint64_t i = 0; view.ok() && i < kMiB / 8; ++i) {
      n += view->as<std::uint64_t>()[i] != at / 8 + i ? 1 : 0;
    }
    n += view.ok() ? 0 : 1;
  }
  return n;
}

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
  fill(*buffer);
  EXPECT_EQ(wrong(*buffer), 0u);
  EXPECT_GE(context->stats().demoted, 24 * kMiB);
}

TEST_F(OptionsTest, ahead_0_evicts_only_what_is_needed) {
  std::uint64_t resident[2];
  for (const int ahead : {0, 50}) {
    auto context = make("dram=32M; ahead=" + std::to_string(ahead));
    auto buffer = context->alloc(128 * kMiB);
    fill(*buffer);
    // What is evicted ahead is written first: looked at until it has gone, for two seconds at most.
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(ahead == 0 ? 0 : 2);
    do {
      resident[ahead / 50] = buffer->info()->resident;
    } while (resident[ahead / 50] == 32 * kMiB && std::chrono::steady_clock::now() < until);
  }
  EXPECT_GE(resident[0], 30 * kMiB);  // Full, but for what the last chunk asked for.
  EXPECT_LT(resident[1], resident[0]);
}

TEST_F(OptionsTest, endurance_limits_what_is_written) {
  auto context = make("dram=8M; endurance=16M");
  auto buffer = context->alloc(64 * kMiB);
  std::uint64_t written = 0;
  Status refusal;
  for (; written < buffer->size() && refusal.ok(); written += kMiB) {
    auto view = buffer->acquire(kDiscard, written, kMiB, Timeout::seconds(5));
    if (!view.ok()) {
      refusal = std::move(view).status();
      break;
    }
    for (std::uint64_t i = 0; i < kMiB / 8; ++i) {
      view->as<std::uint64_t>()[i] = written / 8 + i;
    }
  }
  EXPECT_EQ(refusal.code(), Code::no_capacity) << refusal.message();
  EXPECT_NE(std::string(refusal.message()).find("endurance"), std::string::npos)
      << refusal.message();
  EXPECT_LE(context->stats().demoted, 17 * kMiB);
  EXPECT_GE(written, 16 * kMiB);
  // What was written is all there: with room enough nothing more need be.
  ASSERT_TRUE(context->set_budget({Kind::dram, 0}, 64 * kMiB).ok());
  std::uint64_t bad = 0;
  for (std::uint64_t at = 0; at < written; at += kMiB) {
    auto view = buffer->acquire(kRead, at, kMiB, Timeout::seconds(5));
    ASSERT_TRUE(view.ok()) << view.message();
    for (std::uint64_t i = 0; i < kMiB / 8; ++i) {
      bad += view->as<std::uint64_t>()[i] != at / 8 + i ? 1 : 0;
    }
  }
  EXPECT_EQ(bad, 0u);
}

// The unnamed file of the block tier, found among our own descriptors, as a disk error would change
// it.
void flip_bits_on_disk(const std::string& directory) {
  DIR* fds = opendir("/proc/self/fd");
  ASSERT_NE(fds, nullptr);
  bool found = false;
  for (dirent* entry = readdir(fds); entry != nullptr && !found; entry = readdir(fds)) {
    const std::string link = std::string("/proc/self/fd/") + entry->d_name;
    char target[512] = {};
    if (readlink(link.c_str(), target, sizeof(target) - 1) > 0 &&
        std::strncmp(target, directory.c_str(), directory.size()) == 0) {
      const int fd = open(link.c_str(), O_RDWR);
      ASSERT_GE(fd, 0);
      std::vector<unsigned char> bytes(4 * kMiB);
      ASSERT_EQ(pread(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
      for (unsigned char& byte : bytes) {
        byte ^= 0x10;
      }
      ASSERT_EQ(pwrite(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
      fsync(fd);
      close(fd);
      found = true;
    }
  }
  closedir(fds);
  ASSERT_TRUE(found);
}

TEST_F(OptionsTest, checksum_decides_whether_a_changed_slot_is_noticed) {
  for (const bool on : {true, false}) {
    auto context = make(std::string("dram=16M; checksum=") + (on ? "on" : "off"));
    BufferOptions options;
    options.label = "victim";
    auto buffer = context->alloc(2 * kMiB, options);
    fill(*buffer);
    ASSERT_TRUE(buffer->evict().ok());
    flip_bits_on_disk(directory_);
    auto view = buffer->acquire(kRead);
    if (on) {
      EXPECT_EQ(view.code(), Code::lost);
      EXPECT_NE(std::string(view.message()).find("victim"), std::string::npos) << view.message();
      EXPECT_GE(context->stats().checksum_errors, 2u);
      EXPECT_EQ(buffer->acquire(kRead).code(), Code::lost) << "reported to every later reader";
      EXPECT_TRUE(buffer->acquire(kDiscard).ok()) << "writing it anew makes it good again";
    } else {
      ASSERT_TRUE(view.ok()) << view.message();
      EXPECT_EQ(view->as<std::uint64_t>()[1], 1u ^ 0x1010101010101010u);
    }
  }
}

}  // namespace
}  // namespace tiermem
