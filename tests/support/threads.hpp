// Information from the kernel about the threads of this process.
#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

namespace tiermem::test {

/// The tid of a thread with that name; 0 if there is none.
inline std::uint32_t thread_named(std::string_view wanted) {
  std::error_code ended;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ended)) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    if (name == wanted) {
      return static_cast<std::uint32_t>(std::stoul(task.path().filename().string()));
    }
  }
  return 0;
}

/// Whether every other thread has a name of its own. A thread of tiermem sets its name in its body,
/// after the sanitizer's own start.
inline bool threads_have_started() {
  std::string own;
  std::ifstream("/proc/thread-self/comm") >> own;
  unsigned with_own = 0;
  std::error_code ended;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ended)) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    with_own += name == own ? 1 : 0;
  }
  return with_own <= 1;
}

/// Processor time of a thread in nanoseconds; -1 if it does not exist.
inline std::int64_t processor_time(std::uint32_t thread) {
  // The clock of another thread's time, as from pthread_getcpuclockid.
  const auto clock = static_cast<clockid_t>((~thread << 3) | 6U);
  timespec used{};
  if (::clock_gettime(clock, &used) != 0) {
    return -1;
  }
  return std::int64_t{used.tv_sec} * 1'000'000'000 + used.tv_nsec;
}

/// Waits up to five seconds.
template <typename Condition>
bool comes_true(Condition condition) {
  for (int i = 0; i < 5'000 && !condition(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return condition();
}

}  // namespace tiermem::test
