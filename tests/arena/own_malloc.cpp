// The program's own malloc, over glibc's.
#include "arena/own_malloc.hpp"

#include <execinfo.h>
#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>

#include "base/arena.hpp"

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t n, size_t bytes);
void* __libc_realloc(void* block, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* block);
}

namespace tiermem::test {
namespace {

std::atomic<bool> g_counting{false};
std::atomic<std::uint64_t> g_inside{0}, g_strays{0}, g_granted{~0ull}, g_refused{0};
std::array<std::array<void*, 24>, 8> g_stacks;  // The stacks of the first strays.
std::array<int, 8> g_depths;
// All other threads are tiermem's, because the test creates none.
__thread bool t_test_thread = false;
__thread bool t_in_call = false;
__thread bool t_looking = false;

void count() {
  if (!g_counting.load(std::memory_order_relaxed) || (t_test_thread && !t_in_call) || t_looking) {
    return;
  }
  if (inside_tiermem()) {
    g_inside.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const std::uint64_t n = g_strays.fetch_add(1, std::memory_order_relaxed);
  if (n < g_stacks.size()) {
    t_looking = true;
    g_depths[n] = backtrace(g_stacks[n].data(), static_cast<int>(g_stacks[n].size()));
    t_looking = false;
  }
}

/// Returns whether this allocation may be made.
bool granted() {
  count();
  if (t_test_thread || g_granted.load(std::memory_order_relaxed) == ~0ull) {
    return true;
  }
  std::uint64_t left = g_granted.load(std::memory_order_relaxed);
  while (left != 0 && !g_granted.compare_exchange_weak(left, left - 1)) {
  }
  g_refused.fetch_add(left == 0 ? 1 : 0, std::memory_order_relaxed);
  return left != 0;
}

}  // namespace

void begin_counting() {
  t_test_thread = true;
  void* first[2];
  (void)backtrace(first, 2);  // The first call loads the libraries that backtrace() needs.
  g_inside = g_strays = 0;
  g_counting = true;
}

std::uint64_t end_counting() {
  g_counting = false;
  const std::uint64_t strays = g_strays;
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(strays, g_stacks.size()); ++i) {
    fprintf(stderr, "stray %d:\n", static_cast<int>(i));
    backtrace_symbols_fd(g_stacks[i].data(), g_depths[i], STDERR_FILENO);
  }
  return strays;
}

std::uint64_t counted_inside() {
  return g_inside;
}

InCall::InCall() {
  t_in_call = true;
}

InCall::~InCall() {
  t_in_call = false;
}

void grant_to_other_threads(std::uint64_t n) {
  t_test_thread = true;
  g_refused = 0;
  g_granted = n;
}

std::uint64_t refused_to_other_threads() {
  return g_refused;
}

}  // namespace tiermem::test

using tiermem::test::granted;

extern "C" {
void* malloc(size_t bytes) {
  return granted() ? __libc_malloc(bytes) : nullptr;
}
void* calloc(size_t n, size_t bytes) {
  return granted() ? __libc_calloc(n, bytes) : nullptr;
}
void* realloc(void* block, size_t bytes) {
  return granted() ? __libc_realloc(block, bytes) : nullptr;
}
void* memalign(size_t alignment, size_t bytes) {
  return granted() ? __libc_memalign(alignment, bytes) : nullptr;
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  return granted() ? __libc_memalign(alignment, bytes) : nullptr;
}
int posix_memalign(void** block, size_t alignment, size_t bytes) {
  *block = granted() ? __libc_memalign(alignment, bytes) : nullptr;
  return *block == nullptr ? ENOMEM : 0;
}
void free(void* block) {
  __libc_free(block);
}
}
