// One mapping for each thread. Its pages appear as they are used.
#include "preload/scratch.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "base/results.hpp"
#include "preload/kernel.hpp"

namespace tiermem::preload {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kRoom = Scratch::kMost + 64 * kPage;
constexpr std::size_t kKept = std::size_t{1} << 20;  // Bytes that keep their pages between calls.
// Frames of one stack are at most this far apart, because stacks are no deeper.
constexpr std::uintptr_t kDeep = std::uintptr_t{8} << 20;

/// The calls under way, outermost first: calls[i].top is where the memory of call i begins.
struct Stack {
  struct Call {
    const Scratch* frame;
    std::size_t top;
  };
  std::byte* base;
  std::size_t top;
  std::size_t peak;  // Maximum of top since pages were last given back.
  std::size_t depth;
  std::array<Call, 16> calls;
};
// Written by its thread, and by signal handlers that interrupt it, which restore it.
thread_local constinit Stack t_stack{};

constinit pthread_key_t g_key = 0;
constinit bool g_have_key = false;  // Written once, before other threads exist.

bool is_abandoned(const Scratch* before, const Scratch* now) {
  const auto distance = reinterpret_cast<std::uintptr_t>(now) -
                        reinterpret_cast<std::uintptr_t>(before);  // Stacks grow down.
  return distance < kDeep;
}

void give_back(void* base) {
  t_stack = {};
  best_effort(tiermem_plain_munmap(base, kRoom), "what is not unmapped stays reserved");
}

bool map_stack() {
  void* const base = tiermem_plain_mmap(nullptr, kRoom, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return false;
  }
  // The bytes are copies, so core dumps need not contain them.
  best_effort(tiermem_plain_madvise(base, kRoom, MADV_DONTDUMP), "core dumps then are larger");
  t_stack.base = static_cast<std::byte*>(base);
  if (g_have_key) {
    best_effort(::pthread_setspecific(g_key, base), "the mapping then outlives the thread");
  }
  return true;
}

}  // namespace

void prepare_scratch() {
  if (!g_have_key && ::pthread_key_create(&g_key, give_back) == 0) {
    g_have_key = true;
  }
}

Scratch::Scratch() {
  Stack& stack = t_stack;
  while (stack.depth > 0 && is_abandoned(stack.calls[stack.depth - 1].frame, this)) {
    stack.top = stack.calls[stack.depth - 1].top;
    --stack.depth;
  }
  if (stack.depth == stack.calls.size()) {
    return;  // take() finds that this call is not in the stack.
  }
  // A handler that interrupts this uses the same entry, until the depth has grown.
  const Stack::Call mine{this, stack.top};
  const std::size_t at = stack.depth;
  stack.calls[at] = mine;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  stack.depth = at + 1;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  stack.calls[at] = mine;
}

Scratch::~Scratch() {
  Stack& stack = t_stack;
  if (stack.depth == 0 || stack.calls[stack.depth - 1].frame != this) {
    return;
  }
  stack.top = stack.calls[stack.depth - 1].top;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  --stack.depth;
  if (stack.depth == 0 && stack.peak > kKept) {
    best_effort(tiermem_plain_madvise(stack.base + kKept, kRoom - kKept, MADV_DONTNEED),
                "the memory is given back later");
    stack.peak = 0;
  }
}

std::byte* Scratch::take(std::size_t bytes, const void* like) {
  Stack& stack = t_stack;
  if (stack.depth == 0 || stack.calls[stack.depth - 1].frame != this || bytes > kMost ||
      (stack.base == nullptr && !map_stack())) {
    return nullptr;
  }
  const std::size_t wish = reinterpret_cast<std::uintptr_t>(like) % kPage;
  std::size_t begin = (stack.top + 15) & ~std::size_t{15};
  begin += (wish + kPage - begin % kPage) % kPage % (like != nullptr ? kPage : 1);
  if (begin + bytes > kRoom) {
    return nullptr;
  }
  stack.top = begin + bytes;
  stack.peak = std::max(stack.peak, stack.top);
  return stack.base + begin;
}

std::size_t Scratch::mark() const {
  return t_stack.top;
}

void Scratch::back_to(std::size_t mark) {
  t_stack.top = mark;
}

}  // namespace tiermem::preload
