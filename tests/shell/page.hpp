// A page that the supervisor and the process under test share: whether calls may fail, and the last
// calls of each worker. It survives a crash of the child, so the parent can print what ran.
#pragma once

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>

namespace tiermem::shell {

inline constexpr unsigned kMostWorkers = 4;
inline constexpr unsigned kCallsKept = 16;

struct Page {
  std::atomic<bool> refuse{false};  ///< The supervisor refuses calls while this is set.
  std::atomic<std::uint64_t> refused{0};
  struct Log {
    std::atomic<std::uint32_t> next{0};
    std::array<std::array<char, 120>, kCallsKept> lines{};
  };
  std::array<Log, kMostWorkers> logs;

  /// Returns null if allocation fails.
  static Page* make() {
    void* const memory = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? nullptr : new (memory) Page;
  }

  /// Called by the worker's own thread only.
  [[gnu::format(printf, 3, 4)]] void note(unsigned worker, const char* format, ...) {
    Log& log = logs[worker];
    auto& line = log.lines[log.next.load(std::memory_order_relaxed) % kCallsKept];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line.data(), line.size(), format, arguments);
    va_end(arguments);
    log.next.fetch_add(1, std::memory_order_release);
  }

  /// For the parent, after the child has ended.
  void print() const {
    for (unsigned worker = 0; worker < kMostWorkers; ++worker) {
      const std::uint32_t end = logs[worker].next.load();
      const std::uint32_t begin = end < kCallsKept ? 0 : end - kCallsKept;
      for (std::uint32_t i = begin; i < end; ++i) {
        std::printf("  worker %u, call %u: %s\n", worker, i,
                    logs[worker].lines[i % kCallsKept].data());
      }
    }
  }
};

}  // namespace tiermem::shell
