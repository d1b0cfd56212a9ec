// The system calls on the nodes of pages. glibc has no functions for them.
#include "os/node_pages.hpp"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "base/error.hpp"
#include "base/results.hpp"
#include "os/host_memory.hpp"

namespace tiermem::host {
namespace {

constexpr unsigned kBatch = 512;  // Pages of one call: a huge page.
constexpr unsigned kSample = 8;
constexpr int kUnknown = std::numeric_limits<int>::max();
// The kernel ignores the last bit of a set.
constexpr unsigned long kMaskBits = kMostNodes + 1;

long result_of(long result) {
  return result < 0 ? -errno : result;
}

/// Reads the nodes of pages. Those that the kernel does not tell stay unknown.
void query(const NodeCalls& calls, unsigned count, void** pages, int* nodes) {
  std::fill_n(nodes, count, kUnknown);
  if (calls.move_pages(count, pages, nullptr, nodes) < 0) {
    std::fill_n(nodes, count, kUnknown);
  }
}

bool is_elsewhere(int found, unsigned node) {
  return found >= 0 && found != kUnknown && static_cast<unsigned>(found) != node;
}

}  // namespace

const NodeCalls kNodeCalls = {
    .get_policy =
        [](int& mode, NodeMask& nodes) {
          return result_of(::syscall(SYS_get_mempolicy, &mode, nodes.data(), kMaskBits, 0UL, 0UL));
        },
    .set_policy =
        [](int mode, const NodeMask& nodes) {
          const bool none =
              std::ranges::all_of(nodes, [](unsigned long bits) { return bits == 0; });
          return result_of(::syscall(SYS_set_mempolicy, mode, none ? nullptr : nodes.data(),
                                     none ? 0UL : kMaskBits));
        },
    .bind =
        [](void* address, std::uint64_t bytes, int mode, const NodeMask& nodes) {
          return result_of(::syscall(SYS_mbind, address, bytes, mode, nodes.data(), kMaskBits, 0U));
        },
    .move_pages =
        [](unsigned long count, void** pages, const int* nodes, int* status) {
          return result_of(::syscall(SYS_move_pages, 0, count, pages, nodes, status, MPOL_MF_MOVE));
        },
};

std::string node_refusal(const Topology& topology, unsigned node, std::uint64_t bytes) {
  const MemoryNode* const found = topology.node(node);
  if (found == nullptr) {
    IdList ids;
    for (const MemoryNode& each : topology.nodes) {
      ids.push_back(each.id);
    }
    return fmt::format("the machine has no node {}; use one of the nodes {}", node,
                       id_list_text(ids));
  }
  if (found->online == false) {
    return fmt::format(
        "node {} is offline; add its memory by making it online, or use another node", node);
  }
  if (found->allowed == false) {
    return fmt::format(
        "the cpuset of this process allows only the nodes {}; add node {} to its cpuset.mems, or "
        "use another node",
        topology.allowed_nodes ? id_list_text(*topology.allowed_nodes) : "of its list", node);
  }
  if (found->kind == MemoryKind::none || found->bytes == 0) {
    return fmt::format("node {} has no memory; use another node", node);
  }
  if (found->bytes && bytes > *found->bytes) {
    return fmt::format("the budget is {}, but node {} has only {}; lower the budget",
                       human_bytes(bytes), node, human_bytes(*found->bytes));
  }
  return {};
}

NodePages::NodePages(unsigned node, bool movable, const NodeCalls& calls)
    : calls_(&calls), node_(node), movable_(movable) {
  constexpr unsigned kBits = 8 * sizeof(unsigned long);
  mask_[node / kBits] = 1UL << node % kBits;
}

Result<NodePages> NodePages::open(const Topology& topology, unsigned node, std::uint64_t bytes,
                                  const NodeCalls& calls) {
  if (node >= kMostNodes) {
    return fail(Code::invalid_argument,
                "numa={}: the kernel numbers nodes up to {}; use a lower number", node,
                kMostNodes - 1);
  }
  if (const std::string why = node_refusal(topology, node, bytes); !why.empty()) {
    return fail(Code::invalid_argument, "numa={}: {}", node, why);
  }
  const MemoryNode* const found = topology.node(node);
  const NodePages pages(node, found->movable_only == true, calls);
  if (Status tried = pages.try_page(); !tried.ok()) {
    return tried;
  }
  return pages;
}

Status NodePages::try_page() const {
  auto scratch = reserve({.bytes = kPage, .alignment = kPage, .dumped = false});
  if (!scratch.ok()) {
    return std::move(scratch).status();
  }
  const auto refused = [&](const char* call, int error) {
    return fail_native(Code::unsupported, error,
                       "numa={}: the kernel refuses {}: {}; allow set_mempolicy, get_mempolicy and "
                       "move_pages (in a container: CAP_SYS_NICE or its seccomp profile)",
                       node_, call, std::strerror(error));
  };
  {
    const NodePreference preference(this);
    if (preference.error() != 0) {
      return refused("set_mempolicy", preference.error());
    }
    if (const int error = populate(scratch->data(), kPage); error != 0) {
      return fail_native(Code::no_capacity, error, "numa={}: no page for a trial: {}; free memory",
                         node_, std::strerror(error));
    }
  }
  void* page = scratch->data();
  int at = kUnknown;
  if (const long result = calls_->move_pages(1, &page, nullptr, &at); result < 0) {
    return refused("move_pages", static_cast<int>(-result));
  }
  if (is_elsewhere(at, node_) && bring(scratch->data(), kPage).stayed != 0) {
    return fail(
        Code::no_capacity,
        "numa={}: node {} is full, because a new page came from node {}; free memory there, "
        "or use another node",
        node_, node_, at);
  }
  return {};
}

int NodePages::prefer_for(std::byte* address, std::uint64_t bytes) const {
  return static_cast<int>(-calls_->bind(address, bytes, MPOL_PREFERRED, mask_));
}

unsigned NodePages::sample(const std::byte* address, std::uint64_t bytes) const {
  const std::uint64_t pages = bytes / kPage;
  const auto count = static_cast<unsigned>(std::min<std::uint64_t>(pages, kSample));
  std::array<void*, kSample> at{};
  std::array<int, kSample> found{};
  for (unsigned i = 0; i < count; ++i) {
    const std::uint64_t page = count == 1 ? 0 : i * (pages - 1) / (count - 1);
    at[i] = const_cast<std::byte*>(address) + page * kPage;
  }
  query(*calls_, count, at.data(), found.data());
  return static_cast<unsigned>(std::count_if(found.begin(), found.begin() + count,
                                             [&](int node) { return is_elsewhere(node, node_); }));
}

NodePages::Brought NodePages::bring(std::byte* address, std::uint64_t bytes) const {
  Brought brought;
  for (std::uint64_t done = 0; done < bytes; done += kBatch * kPage) {
    const std::uint64_t pages = std::min<std::uint64_t>(kBatch, (bytes - done) / kPage);
    bring_batch(address + done, static_cast<unsigned>(pages), brought);
  }
  return brought;
}

// Neither the result nor the status of a move tells for certain where a page is: after a positive
// result the status is unchanged. So the nodes are queried again. EFAULT is the page of zeros: if
// the kernel (6.12) has to split a huge page, it frees small pages of it that have only zeros.
void NodePages::bring_batch(std::byte* address, unsigned pages, Brought& brought) const {
  std::array<void*, kBatch> at{};
  std::array<int, kBatch> found{};
  for (unsigned i = 0; i < pages; ++i) {
    at[i] = address + i * kPage;
  }
  query(*calls_, pages, at.data(), found.data());
  unsigned count = 0;
  for (unsigned i = 0; i < pages; ++i) {
    if (is_elsewhere(found[i], node_)) {
      at[count++] = at[i];
    }
  }
  if (count == 0) {
    return;
  }
  std::array<int, kBatch> to{};
  std::fill_n(to.begin(), count, static_cast<int>(node_));
  std::fill_n(found.begin(), count, kUnknown);
  const long result = calls_->move_pages(count, at.data(), to.data(), found.data());
  for (unsigned i = 0; i < count && brought.error == 0; ++i) {
    brought.error = found[i] < 0 ? -found[i] : 0;
  }
  if (result < 0 && brought.error == 0) {
    brought.error = static_cast<int>(-result);
  }
  query(*calls_, count, at.data(), found.data());
  const auto stayed =
      static_cast<std::uint64_t>(std::count_if(found.begin(), found.begin() + count, [&](int node) {
        return node != -ENOENT && node != static_cast<int>(node_);
      }));
  brought.stayed += stayed;
  brought.moved += count - stayed;
  if (stayed != 0 && brought.error == 0) {
    brought.error = EBUSY;  // The kernel tells only their number: page-locked.
  }
}

NodePreference::NodePreference(const NodePages* pages) : pages_(nullptr) {
  if (pages == nullptr) {
    return;
  }
  long result = pages->calls_->get_policy(mode_, nodes_);
  if (result >= 0) {
    result = pages->calls_->set_policy(MPOL_PREFERRED, pages->mask_);
  }
  if (result < 0) {
    error_ = static_cast<int>(-result);
    return;
  }
  pages_ = pages;
}

NodePreference::~NodePreference() {
  if (pages_ != nullptr) {
    best_effort(pages_->calls_->set_policy(mode_, nodes_),
                "it was the policy before, unless the cpuset has changed");
  }
}

}  // namespace tiermem::host
