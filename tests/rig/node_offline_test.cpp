// The memory of a node is taken away while a context uses it, as when an administrator removes a
// CXL expander. The kernel moves the pages elsewhere first. These tests are the last in the guest:
// other tests need the node.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "rig/rig.hpp"
#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::rig {
namespace {

using test::kMiB;

/// The blocks of memory of a node, which the kernel takes offline one by one. Online again at the
/// end.
class Blocks {
 public:
  explicit Blocks(unsigned node) {
    const std::string folder = "/sys/devices/system/node/node" + std::to_string(node);
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("memory") && name.find_first_of("0123456789") == 6) {
        states_.push_back("/sys/devices/system/memory/" + name + "/state");
      }
    }
  }
  ~Blocks() { (void)set("online_movable"); }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  bool empty() const { return states_.empty(); }
  /// Returns whether all blocks have the state then. A block with pages in transfer is tried again.
  bool set(const std::string& state) {
    return std::all_of(states_.begin(), states_.end(), [&](const std::string& path) {
      for (int tries = 0; tries < 50; ++tries) {
        std::ofstream(path) << state << std::flush;
        std::string now;
        std::ifstream(path) >> now;
        if (!now.empty() && state.starts_with(now)) {  // "online" after "online_movable".
          return true;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
      return false;
    });
  }

 private:
  std::vector<std::string> states_;
};

class NodeOffline : public RigTest {
 protected:
  void SetUp() override {
    RigTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    const auto node = node_of("RIG_DAX_NODE");
    if (!node) {
      GTEST_SKIP() << "no node of persistent memory";
    }
    node_ = *node;
  }
  std::string spec() const {
    return "dram=8M; numa=" + std::to_string(node_) + ":16M; nvme=/var/tmp:64M";
  }
  unsigned node_ = 0;
};

/// A thread that writes and reads a buffer, extent after extent, and counts wrong words.
class Load {
 public:
  explicit Load(Buffer& buffer)
      : buffer_(buffer), seeds_(buffer.size() / test::kChunk, 1), thread_([this] { run(); }) {}
  /// Stops, and returns the wrong words that it and a last look at all of the buffer have found.
  std::uint64_t stop() {
    stop_ = true;
    thread_.join();
    for (std::size_t i = 0; i < seeds_.size(); ++i) {
      look(i);
    }
    return wrong_;
  }
  std::uint64_t rounds() const { return rounds_; }
  const std::string& refusal() const { return refusal_; }

 private:
  void run() {
    for (std::size_t i = 0; !stop_; i = (i + 1) % seeds_.size()) {
      look(i);
      write(i, seeds_[i] + 1);
      ++rounds_;
    }
  }
  void look(std::size_t i) {
    auto view = buffer_.acquire(kRead, i * test::kChunk, test::kChunk, Timeout::seconds(60));
    if (!view.ok()) {
      refusal_ = view.message();
      return;
    }
    wrong_ += test::wrong(view->as<const std::uint64_t>(), seeds_[i], i * test::kChunk / 8);
  }
  void write(std::size_t i, std::uint64_t seed) {
    auto view = buffer_.acquire(kWrite, i * test::kChunk, test::kChunk, Timeout::seconds(60));
    if (!view.ok()) {
      refusal_ = view.message();
      return;
    }
    test::fill(view->as<std::uint64_t>(), seed, i * test::kChunk / 8);
    seeds_[i] = seed;
  }

  Buffer& buffer_;
  std::vector<std::uint64_t> seeds_;
  std::uint64_t wrong_ = 0;
  std::string refusal_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> rounds_{0};
  std::thread thread_;
};

TEST_F(NodeOffline, under_a_context_then_no_byte_is_lost_and_the_node_may_come_back) {
  Blocks blocks(node_);
  ASSERT_FALSE(blocks.empty());
  auto context = Context::create(spec());
  ASSERT_TRUE(context.ok()) << context.message();
  for (const std::uint32_t flags : {std::uint32_t{0}, std::uint32_t{kMapped}}) {
    SCOPED_TRACE(flags);
    auto buffer = (*context)->alloc(32 * kMiB, {.flags = flags, .label = "on the node"});
    ASSERT_TRUE(buffer.ok()) << buffer.message();
    ASSERT_TRUE(test::write_pattern(*buffer, 1).ok());
    const Stats stats = (*context)->stats();
    const TierStats* const node = stats.tier({Kind::numa, static_cast<std::uint16_t>(node_)});
    ASSERT_NE(node, nullptr);
    EXPECT_GE(node->used, 8 * kMiB);
    Load load(*buffer);
    const auto goes_on = [&] {
      const std::uint64_t before = load.rounds();
      return test::eventually([&] { return load.rounds() > before + 16; });
    };
    EXPECT_TRUE(goes_on());
    EXPECT_TRUE(blocks.set("offline")) << "the kernel could move the pages elsewhere";
    EXPECT_TRUE(goes_on()) << "requests go on without the node";
    const auto refused = Context::create(spec());
    EXPECT_EQ(refused.code(), Code::invalid_argument) << "the node has no memory now";
    EXPECT_NE(std::string(refused.message()).find("numa"), std::string::npos) << refused.message();
    EXPECT_TRUE(blocks.set("online_movable"));
    EXPECT_TRUE(goes_on());
    EXPECT_EQ(load.stop(), 0u);
    EXPECT_EQ(load.refusal(), "");
    buffer->reset();
  }
}

}  // namespace
}  // namespace tiermem::rig
