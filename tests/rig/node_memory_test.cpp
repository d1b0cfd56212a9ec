// Memories of nodes on a machine that has several: where the kernel puts each page, by each
// mechanism; a node without room; pages that cannot move; a process that may not use a node.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "os/node_pages.hpp"
#include "rig/rig.hpp"
#include "support/locked_pages.hpp"
#include "tier/host_space.hpp"

namespace tiermem::rig {
namespace {

using host::kPage;
using host::NodePages;

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB;

/// Returns the node of each page, or a negative errno.
std::vector<int> nodes_of(const std::byte* at, std::uint64_t bytes) {
  std::vector<void*> pages(bytes / kPage);
  std::vector<int> nodes(pages.size(), -1);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    pages[i] = const_cast<std::byte*>(at) + i * kPage;
  }
  EXPECT_EQ(host::kNodeCalls.move_pages(pages.size(), pages.data(), nullptr, nodes.data()), 0);
  return nodes;
}

testing::AssertionResult all_on(unsigned node, const std::byte* at, std::uint64_t bytes) {
  const std::vector<int> nodes = nodes_of(at, bytes);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i] != static_cast<int>(node)) {
      return testing::AssertionFailure() << "page " << i << " of " << nodes.size() << " is on "
                                         << nodes[i] << ", not on node " << node;
    }
  }
  return testing::AssertionSuccess();
}

void write(std::byte* at, std::uint64_t bytes, unsigned seed) {
  for (std::uint64_t i = 0; i < bytes; i += 8) {
    const std::uint64_t value = (i + seed) * 0x9E3779B97F4A7C15;
    std::memcpy(at + i, &value, sizeof(value));
  }
}

bool holds(const std::byte* at, std::uint64_t bytes, unsigned seed) {
  for (std::uint64_t i = 0; i < bytes; i += 8) {
    const std::uint64_t value = (i + seed) * 0x9E3779B97F4A7C15;
    if (std::memcmp(at + i, &value, sizeof(value)) != 0) {
      return false;
    }
  }
  return true;
}

Result<NodePages> open_node(unsigned node) {
  return NodePages::open(read_topology(), node, 0);
}

/// Memory with pages of a node; unmapped at the end.
class Pages {
 public:
  Pages(const NodePages& node, std::uint64_t bytes) : bytes_(bytes) {
    void* const got =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(got, MAP_FAILED);
    at_ = static_cast<std::byte*>(got);
    const host::NodePreference preference(&node);
    EXPECT_EQ(host::populate(at_, bytes), 0);
  }
  ~Pages() { munmap(at_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() const { return at_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::byte* at_ = nullptr;
  const std::uint64_t bytes_;
};

struct Case {
  const char* name;
  const char* node;
  std::optional<Mechanism> mechanism;
};
void PrintTo(const Case& which, std::ostream* out) {
  *out << which.name;
}

class NodeMemory : public RigTest, public testing::WithParamInterface<Case> {
 protected:
  void SetUp() override {
    RigTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    const auto node = *GetParam().node == 'R'
                          ? node_of(GetParam().node)
                          : std::optional(static_cast<unsigned>(std::atoi(GetParam().node)));
    if (!node) {
      GTEST_SKIP() << GetParam().node << " is empty";
    }
    node_ = *node;
    HostSpaceOptions options{
        .memories = {{.budget = 64 * kMiB},
                     {.budget = 64 * kMiB,
                      .place = {Kind::numa, static_cast<std::uint16_t>(node_)}}},
        .window_reserve_bytes = std::uint64_t{8} << 30};
    options.mechanism = GetParam().mechanism;
    auto made = HostSpace::create(options);
    if (!made.ok() && made.code() == Code::unsupported && GetParam().mechanism) {
      GTEST_SKIP() << made.message();
    }
    ASSERT_TRUE(made.ok()) << made.message();
    space_ = std::move(*made);
  }
  HostMemory& memory() { return space_->memory(1); }
  FrameId frame(Pool pool, std::uint64_t bytes) {
    const FrameId frame = memory().acquire_frame({pool, bytes, 0});
    EXPECT_TRUE(frame.valid());
    return frame;
  }
  /// Brings a frame through a window and back, and checks where its pages are at each step.
  void through_a_window(std::uint64_t bytes, bool mapped) {
    auto window = space_->reserve_window(bytes, bytes, mapped);
    ASSERT_TRUE(window.ok()) << window.message();
    const FrameId one = frame(space_->window_pool(bytes), bytes);
    ASSERT_TRUE(memory().populate(one, true, *window).ok());
    write(space_->bytes_at(one, *window), bytes, 7);
    Mechanism used{};
    ASSERT_TRUE((mapped ? space_->restore(one, *window) : space_->map(one, *window, used)).ok());
    EXPECT_TRUE(all_on(node_, *window, bytes)) << bytes;
    EXPECT_TRUE(holds(*window, bytes, 7));
    if (mapped) {
      ASSERT_TRUE(space_->withdraw(one, *window).ok());
      EXPECT_TRUE(all_on(node_, memory().home(one), bytes)) << bytes;
      EXPECT_TRUE(holds(memory().home(one), bytes, 7));
    } else {
      ASSERT_TRUE(space_->unmap(one, *window).ok());
    }
    memory().return_frame(one);
    space_->release_window(*window, bytes);
  }

  unsigned node_ = 0;
  std::unique_ptr<HostSpace> space_;
};

TEST_P(NodeMemory, pages_of_all_frames_come_from_the_node) {
  for (const std::uint64_t bytes : {4 * kKiB, 64 * kKiB, 1 * kMiB, 2 * kMiB, 8 * kMiB}) {
    const FrameId locked = frame(Pool::locked, bytes);
    ASSERT_TRUE(memory().populate(locked, false, nullptr).ok());
    EXPECT_TRUE(all_on(node_, memory().home(locked), bytes)) << bytes;
    memory().return_frame(locked);
  }
  EXPECT_EQ(space_->counters().pages_misplaced, 0U);
}

TEST_P(NodeMemory, pages_stay_on_the_node_through_windows) {
  for (const std::uint64_t bytes : {4 * kKiB, 64 * kKiB, 2 * kMiB, 4 * kMiB}) {
    through_a_window(bytes, false);
    if (space_->maps() && (bytes >= 2 * kMiB || space_->maps_well())) {
      through_a_window(bytes, true);
    }
  }
  EXPECT_EQ(space_->counters().pages_misplaced, 0U);
}

TEST_P(NodeMemory, parts_of_an_extent_come_from_the_node) {
  if (!space_->takes_parts(64 * kKiB, false)) {
    GTEST_SKIP() << "no parts with this mechanism";
  }
  auto window = space_->reserve_window(64 * kKiB, 64 * kKiB, true);
  ASSERT_TRUE(window.ok());
  std::vector<std::byte> data(64 * kKiB);
  write(data.data(), data.size(), 3);
  const FrameId parts = memory().acquire_parts({space_->window_pool(64 * kKiB), 64 * kKiB, 0}, 16);
  ASSERT_TRUE(parts.valid());
  ASSERT_TRUE(space_->insert(parts, *window, data.data(), 0x00F1, false).ok());
  ASSERT_TRUE(space_->insert(parts, *window, data.data(), 0xFF0E, false).ok());
  EXPECT_TRUE(all_on(node_, *window, 64 * kKiB));
  EXPECT_TRUE(holds(*window, 64 * kKiB, 3));
  ASSERT_TRUE(space_->unmap(parts, *window).ok());
  memory().return_frame(parts);
  space_->release_window(*window, 64 * kKiB);
}

INSTANTIATE_TEST_SUITE_P(Rig, NodeMemory,
                         testing::Values(Case{"near", "1", {}}, Case{"far", "RIG_FAR_NODE", {}},
                                         Case{"far_copy", "RIG_FAR_NODE", Mechanism::copy},
                                         Case{"far_remap", "RIG_FAR_NODE", Mechanism::remap},
                                         Case{"far_in_place", "RIG_FAR_NODE", Mechanism::in_place},
                                         Case{"pmem", "RIG_DAX_NODE", {}},
                                         Case{"cxl", "RIG_CXL_NODE", {}}),
                         [](const auto& tested) { return std::string(tested.param.name); });

class NodePagesRig : public RigTest {};

TEST_F(NodePagesRig, pages_move_between_nodes_with_their_bytes) {
  std::vector<unsigned> nodes = {0, 1, *node_of("RIG_FAR_NODE")};
  if (const auto dax = node_of("RIG_DAX_NODE")) {
    nodes.push_back(*dax);
  }
  nodes.push_back(0);
  for (const bool huge : {false, true}) {
    const Pages pages(*open_node(0), 16 * kMiB);
    (void)host::advise(pages.data(), pages.bytes(),
                       huge ? host::Advise::huge : host::Advise::no_huge);
    write(pages.data(), pages.bytes(), 5);
    for (const unsigned node : nodes) {
      const NodePages::Brought brought = open_node(node)->bring(pages.data(), pages.bytes());
      EXPECT_EQ(brought.stayed, 0U) << std::strerror(brought.error);
      EXPECT_TRUE(all_on(node, pages.data(), pages.bytes()));
      EXPECT_TRUE(holds(pages.data(), pages.bytes(), 5));
    }
  }
}

TEST_F(NodePagesRig, page_locked_pages_stay_and_are_counted) {
  const Pages pages(*open_node(0), 2 * kMiB);
  write(pages.data(), pages.bytes(), 9);
  test::LockedPages locked(pages.data() + 64 * kPage, 16 * kPage);
  ASSERT_EQ(locked.why_not(), "");
  const auto far = open_node(*node_of("RIG_FAR_NODE"));
  const NodePages::Brought brought = far->bring(pages.data(), pages.bytes());
  EXPECT_GE(brought.stayed, 16U);
  EXPECT_NE(brought.error, 0);
  EXPECT_EQ(brought.moved + brought.stayed, 512U);
  EXPECT_TRUE(holds(pages.data(), pages.bytes(), 9));
  locked.release();
  EXPECT_EQ(far->bring(pages.data(), pages.bytes()).stayed, 0U);
  EXPECT_TRUE(all_on(far->node(), pages.data(), pages.bytes()));
  EXPECT_TRUE(holds(pages.data(), pages.bytes(), 9));
}

// The kernel kills no process, and no bytes are lost.
TEST_F(NodePagesRig, full_node_gives_pages_of_another_and_counts_them) {
  const unsigned far = *node_of("RIG_FAR_NODE");
  const MemoryNode node = *read_topology().node(far);
  HostSpaceOptions options{
      .memories = {{.budget = 128 * kMiB, .place = {Kind::numa, static_cast<std::uint16_t>(far)}}},
      .window_reserve_bytes = std::uint64_t{1} << 30};
  auto space = HostSpace::create(options);
  ASSERT_TRUE(space.ok()) << space.message();
  const Pages hog(*open_node(far), (*node.free_bytes / kMiB - 64) * kMiB);
  HostMemory& memory = (*space)->memory();
  std::vector<FrameId> frames;
  for (int i = 0; i < 48; ++i) {
    const FrameId frame = memory.acquire_frame({Pool::locked, 2 * kMiB, 0});
    ASSERT_TRUE(frame.valid());
    ASSERT_TRUE(memory.populate(frame, false, nullptr).ok());
    write(memory.home(frame), 2 * kMiB, static_cast<unsigned>(i));
    frames.push_back(frame);
  }
  std::uint64_t elsewhere = 0;
  for (const FrameId frame : frames) {
    const std::vector<int> nodes = nodes_of(memory.home(frame), 2 * kMiB);
    elsewhere += static_cast<std::uint64_t>(std::count_if(
        nodes.begin(), nodes.end(), [&](int at) { return at != static_cast<int>(far); }));
  }
  EXPECT_GT(elsewhere, 0U) << "the node was not full";
  EXPECT_GE((*space)->counters().pages_misplaced, elsewhere);
  EXPECT_TRUE(all_on(far, memory.home(frames[0]), 2 * kMiB));
  for (unsigned i = 0; i < frames.size(); ++i) {
    EXPECT_TRUE(holds(memory.home(frames[i]), 2 * kMiB, i));
    memory.return_frame(frames[i]);
  }
}

TEST_F(NodePagesRig, node_outside_the_cpuset_is_refused) {
  const std::string group = "/sys/fs/cgroup/nodes";
  const auto set = [&](const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  };
  set("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset");
  ASSERT_EQ(mkdir(group.c_str(), 0755), 0) << std::strerror(errno);
  set(group + "/cpuset.mems", "0-1");
  const pid_t child = fork();
  if (child == 0) {
    set(group + "/cgroup.procs", "0");
    const auto opened = open_node(*node_of("RIG_FAR_NODE"));
    const bool said =
        !opened.ok() && std::strstr(opened.message(), "allows only the nodes 0-1") != nullptr;
    if (!said) {
      std::fprintf(stderr, "%s\n", opened.ok() ? "it was opened" : opened.message());
    }
    _exit(said ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  rmdir(group.c_str());
}

TEST_F(NodePagesRig, movable_node_locks_no_pages) {
  const auto dax = node_of("RIG_DAX_NODE");
  if (!dax) {
    GTEST_SKIP() << "no node of persistent memory";
  }
  const auto opened = open_node(*dax);
  ASSERT_TRUE(opened.ok()) << opened.message();
  EXPECT_TRUE(opened->movable());
  EXPECT_FALSE(open_node(*node_of("RIG_FAR_NODE"))->movable());
}

}  // namespace
}  // namespace tiermem::rig
