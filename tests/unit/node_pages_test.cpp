// Pages of a NUMA node: with a kernel that refuses calls or moves only some pages, and on this
// machine. tests/rig runs on a machine with several nodes.
#include "os/node_pages.hpp"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>

#include <map>
#include <set>
#include <vector>

#include "os/host_memory.hpp"
#include "support/machine_tree.hpp"
#include "tier/host_space.hpp"

namespace tiermem {
namespace {

using host::kPage;
using host::NodePages;
using host::NodePreference;
using test::kTreeGiB;
using test::MachineTree;

/// The machine of NodePages::open(), as the kernel of these tests sees it: where pages are, and
/// which calls it refuses.
struct FakeKernel {
  std::map<std::uintptr_t, int> nodes;  // By address; an absent page is not in it.
  int fresh = 1;                        // The node of pages that are not in `nodes`.
  std::set<std::uintptr_t> locked;
  long get = 0, set = 0, query = 0, move = 0;  // Negative errno: the call is refused.
  int page_error = 0;                          // The status of locked pages; 0: only a count.
  bool absent = false;                         // Unknown pages are absent.
  bool zeroed = false;                         // A move frees the pages.
  std::vector<int> modes;                      // The policies that were set, in order.
  std::vector<unsigned long> batches;          // Sizes of the calls that move.
};
FakeKernel* kernel = nullptr;

long fake_move(unsigned long count, void** pages, const int* to, int* status) {
  if (to == nullptr && kernel->query != 0) {
    return kernel->query;
  }
  const auto key = [&](unsigned long i) { return reinterpret_cast<std::uintptr_t>(pages[i]); };
  if (to == nullptr) {
    for (unsigned long i = 0; i < count; ++i) {
      const auto found = kernel->nodes.find(key(i));
      const int unknown = kernel->absent ? -ENOENT : kernel->fresh;
      status[i] = found != kernel->nodes.end() ? found->second : unknown;
    }
    return 0;
  }
  kernel->batches.push_back(count);
  if (kernel->move < 0) {
    return kernel->move;
  }
  long left = 0;
  for (unsigned long i = 0; i < count; ++i) {
    if (kernel->locked.contains(key(i))) {
      ++left;
      if (kernel->page_error != 0) {
        status[i] = -kernel->page_error;
      }
    } else {
      kernel->nodes[key(i)] = kernel->zeroed ? -EFAULT : to[i];
      if (kernel->page_error != 0) {
        status[i] = to[i];
      }
    }
  }
  return kernel->page_error != 0 ? 0 : left;  // A positive count leaves the status as it was.
}

const host::NodeCalls kFake = {
    .get_policy =
        [](int& mode, host::NodeMask&) {
          mode = MPOL_INTERLEAVE;
          return kernel->get;
        },
    .set_policy =
        [](int mode, const host::NodeMask&) {
          kernel->modes.push_back(mode);
          return kernel->set;
        },
    .bind = [](void*, std::uint64_t, int, const host::NodeMask&) { return 0L; },
    .move_pages = fake_move,
};

class NodePagesTest : public testing::Test {
 protected:
  NodePagesTest() {
    kernel = &kernel_;
    tree_.two_sockets();
  }
  ~NodePagesTest() override { kernel = nullptr; }
  Result<NodePages> open(unsigned node, std::uint64_t bytes = 0) {
    return NodePages::open(tree_.read(), node, bytes, kFake);
  }
  NodePages node_1() {
    auto opened = open(1);
    EXPECT_TRUE(opened.ok()) << opened.message();
    kernel_.batches.clear();
    return *opened;
  }
  /// Addresses that only the fake kernel sees.
  std::byte* at(unsigned page) { return reinterpret_cast<std::byte*>((1000 + page) * kPage); }
  void place(unsigned page, int node) {
    kernel_.nodes[reinterpret_cast<std::uintptr_t>(at(page))] = node;
  }
  int node_of(unsigned page) { return kernel_.nodes[reinterpret_cast<std::uintptr_t>(at(page))]; }
  void lock(unsigned page) { kernel_.locked.insert(reinterpret_cast<std::uintptr_t>(at(page))); }

  MachineTree tree_;
  FakeKernel kernel_;
};

TEST_F(NodePagesTest, node_that_cannot_serve_is_refused_with_cause_and_remedy) {
  const auto says = [&](unsigned node, std::uint64_t bytes, const char* words) {
    const auto opened = open(node, bytes);
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.code(), Code::invalid_argument);
    EXPECT_NE(std::string(opened.message()).find(words), std::string::npos) << opened.message();
  };
  says(7, 0, "no node 7; use one of the nodes 0-1");
  says(2000, 0, "up to 1023");
  says(1, 5000 * kTreeGiB, "the budget is 4.88 TiB, but node 1 has only");
  tree_.allowed("0");
  says(1, 0, "allows only the nodes 0; add node 1");
  tree_.allowed("0-1");
  tree_.file("/sys/devices/system/node/online", "0\n");
  says(1, 0, "node 1 is offline");
}

TEST_F(NodePagesTest, node_without_memory_is_refused) {
  tree_.node(4, "63", 0);
  tree_.lists();
  tree_.allowed("0-1,4");
  const auto opened = open(4);
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(std::string(opened.message()).find("has no memory"), std::string::npos)
      << opened.message();
}

TEST_F(NodePagesTest, refused_calls_are_named) {
  const auto says = [&](const char* words) {
    const auto opened = open(1);
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.code(), Code::unsupported);
    EXPECT_NE(std::string(opened.message()).find(words), std::string::npos) << opened.message();
  };
  for (const int error : {EPERM, ENOSYS, EINVAL, ENOMEM}) {
    kernel_.get = -error;
    says("refuses set_mempolicy");
    kernel_.get = 0;
    kernel_.set = -error;
    says("refuses set_mempolicy");
    kernel_.set = 0;
    kernel_.query = -error;
    says("refuses move_pages");
    kernel_.query = 0;
  }
}

TEST_F(NodePagesTest, full_node_is_refused) {
  kernel_.fresh = 0;
  kernel_.move = -ENOMEM;
  const auto opened = open(1);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.code(), Code::no_capacity);
  EXPECT_NE(std::string(opened.message()).find("node 1 is full"), std::string::npos)
      << opened.message();
}

TEST_F(NodePagesTest, page_that_the_kernel_can_move_to_the_node_is_enough) {
  kernel_.fresh = 0;
  EXPECT_TRUE(open(1).ok());
}

TEST_F(NodePagesTest, preference_ends_with_the_policy_of_before) {
  const NodePages pages = node_1();
  kernel_.modes.clear();
  {
    const NodePreference preference(&pages);
    EXPECT_EQ(preference.error(), 0);
    EXPECT_EQ(kernel_.modes, std::vector<int>{MPOL_PREFERRED});
  }
  EXPECT_EQ(kernel_.modes, (std::vector<int>{MPOL_PREFERRED, MPOL_INTERLEAVE}));
  kernel_.set = -EPERM;
  kernel_.modes.clear();
  { EXPECT_EQ(NodePreference(&pages).error(), EPERM); }
  EXPECT_EQ(kernel_.modes.size(), 1U) << "there was nothing to undo";
}

TEST_F(NodePagesTest, sample_has_the_ends_and_ignores_absent_pages) {
  const NodePages pages = node_1();
  kernel_.absent = true;
  EXPECT_EQ(pages.sample(at(0), 64 * kPage), 0U);
  place(0, 0);
  place(63, 0);
  place(31, 1);
  EXPECT_EQ(pages.sample(at(0), 64 * kPage), 2U);
  EXPECT_EQ(pages.sample(at(0), kPage), 1U);
  kernel_.query = -EPERM;
  EXPECT_EQ(pages.sample(at(0), 64 * kPage), 0U);
}

TEST_F(NodePagesTest, pages_are_brought_by_huge_page) {
  const NodePages pages = node_1();
  for (unsigned i = 0; i < 1200; ++i) {
    place(i, i % 3 == 0 ? 1 : 0);
  }
  const NodePages::Brought brought = pages.bring(at(0), 1200 * kPage);
  EXPECT_EQ(brought.moved, 800U);
  EXPECT_EQ(brought.stayed, 0U);
  EXPECT_EQ(brought.error, 0);
  EXPECT_EQ(kernel_.batches.size(), 3U);
  for (unsigned i = 0; i < 1200; ++i) {
    EXPECT_EQ(node_of(i), 1);
  }
}

// move_pages tells that pages were not moved, and not which.
TEST_F(NodePagesTest, pages_that_only_a_count_tells_of_are_found) {
  const NodePages pages = node_1();
  for (unsigned i = 0; i < 40; ++i) {
    place(i, 0);
  }
  lock(3);
  lock(39);
  const NodePages::Brought brought = pages.bring(at(0), 40 * kPage);
  EXPECT_EQ(brought.moved, 38U);
  EXPECT_EQ(brought.stayed, 2U);
  EXPECT_EQ(brought.error, EBUSY);
  EXPECT_EQ(node_of(3), 0);
  EXPECT_EQ(node_of(4), 1);
}

// The kernel splits a huge page that it cannot move, and frees small pages that have only zeros.
TEST_F(NodePagesTest, page_that_the_move_has_freed_did_not_reach_the_node) {
  const NodePages pages = node_1();
  kernel_.zeroed = true;
  for (unsigned i = 0; i < 512; ++i) {
    place(i, 0);
  }
  const NodePages::Brought brought = pages.bring(at(0), 512 * kPage);
  EXPECT_EQ(brought.moved, 0U);
  EXPECT_EQ(brought.stayed, 512U);
}

TEST_F(NodePagesTest, error_of_a_page_is_told) {
  const NodePages pages = node_1();
  for (const int error : {EACCES, EBUSY, EFAULT, EIO, ENOMEM, ENOENT}) {
    kernel_.page_error = error;
    place(0, 0);
    place(1, 0);
    lock(1);
    const NodePages::Brought brought = pages.bring(at(0), 2 * kPage);
    EXPECT_EQ(brought.moved, 1U);
    EXPECT_EQ(brought.stayed, 1U);
    EXPECT_EQ(brought.error, error);
  }
}

TEST_F(NodePagesTest, refused_call_moves_nothing_and_is_told) {
  const NodePages pages = node_1();
  for (const int error : {E2BIG, EINVAL, ENODEV, EPERM, ESRCH, ENOMEM, EFAULT}) {
    kernel_.move = -error;
    place(0, 0);
    const NodePages::Brought brought = pages.bring(at(0), kPage);
    EXPECT_EQ(brought.moved, 0U);
    EXPECT_EQ(brought.stayed, 1U);
    EXPECT_EQ(brought.error, error);
    EXPECT_EQ(node_of(0), 0);
  }
}

TEST_F(NodePagesTest, memory_that_is_movable_only_is_told) {
  EXPECT_FALSE(node_1().movable());
  tree_.lists("1");
  EXPECT_TRUE(node_1().movable());
}

// On this machine.

HostSpaceOptions on_node(std::uint16_t node) {
  return {.memories = {{.budget = 8 << 20, .place = {Kind::numa, node}}},
          .window_reserve_bytes = std::uint64_t{1} << 30};
}

TEST(NodeMemory, frames_of_a_node_are_on_it) {
  const Topology machine = read_topology();
  if (machine.nodes.empty() || !machine.allowed_nodes || machine.allowed_nodes->empty()) {
    GTEST_SKIP() << "the kernel tells no nodes";
  }
  const unsigned node = machine.allowed_nodes->front();
  auto space = HostSpace::create(on_node(static_cast<std::uint16_t>(node)));
  if (!space.ok() && space.code() == Code::unsupported) {
    GTEST_SKIP() << space.message();
  }
  ASSERT_TRUE(space.ok()) << space.message();
  HostMemory& memory = (*space)->memory();
  EXPECT_EQ(memory.place(), (Place{Kind::numa, static_cast<std::uint16_t>(node)}));
  for (const std::uint64_t bytes : {std::uint64_t{4} << 10, std::uint64_t{2} << 20}) {
    const FrameId frame = memory.acquire_frame({Pool::locked, bytes, 0});
    ASSERT_TRUE(frame.valid());
    ASSERT_TRUE(memory.populate(frame, false, nullptr).ok());
    EXPECT_EQ(memory.node()->sample(memory.home(frame), bytes), 0U);
    memory.return_frame(frame);
  }
  EXPECT_EQ((*space)->counters().pages_misplaced, 0U);
}

TEST(NodeMemory, node_that_does_not_exist_is_refused) {
  const auto space = HostSpace::create(on_node(1000));
  ASSERT_FALSE(space.ok());
  EXPECT_EQ(space.code(), Code::invalid_argument);
  EXPECT_NE(std::string(space.message()).find("numa=1000: "), std::string::npos) << space.message();
}

}  // namespace
}  // namespace tiermem
