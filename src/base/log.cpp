// spdlog behind log.hpp. The sink is ours: one descriptor that is closed on exec, and one write(2)
// for each message. Several processes can share a file, an exec'd program inherits nothing, and a
// fork copies no half-filled buffer.
#include "base/log.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/arena.hpp"
#include "base/error.hpp"
#include "base/kept_descriptors.hpp"
#include "base/no_cancel.hpp"
#include "base/results.hpp"
#include "base/shown.hpp"

namespace tiermem {

namespace detail {
constinit std::atomic<LogLevel> log_level{LogLevel::off};
}  // namespace detail

namespace {

constinit std::atomic<std::uint64_t> g_dropped{0};  // Relaxed: a count that orders nothing.

class DescriptorSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  DescriptorSink(int descriptor, bool owned) : descriptor_(descriptor), owned_(owned) {}
  ~DescriptorSink() override {
    if (owned_) {
      close_kept(descriptor_);
    }
  }
  DescriptorSink(const DescriptorSink&) = delete;
  DescriptorSink& operator=(const DescriptorSink&) = delete;

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    const char* from = line.data();
    std::size_t left = line.size();
    while (left > 0) {
      const ssize_t n = write(descriptor_, from, left);
      if (n < 0 && errno == EINTR) {
        continue;
      }
      if (n <= 0) {
        g_dropped.fetch_add(1, std::memory_order_relaxed);
        return;
      }
      from += n;
      left -= static_cast<std::size_t>(n);
    }
  }
  void flush_() override {}

 private:
  const int descriptor_;
  const bool owned_;
};

/// The open log. The mutex guards the pointer only. A thread with a reference writes under the
/// sink's own mutex, so a replacement of the log never waits for a disk.
struct Log {
  std::mutex mutex;
  std::shared_ptr<spdlog::logger> logger;  // Shared: a message in progress keeps its sink open.
};

/// Never destroyed: threads may log while the process exits.
Log& the_log() {
  static Log& log = []() -> Log& {
    const ArenaScope scope;
    return *new Log();
  }();
  return log;
}

// The arena, and an interposed malloc, may hold their locks around these handlers: they allocate
// nothing.
void before_fork() {
  the_log().mutex.lock();
}
void after_fork_in_parent() {
  the_log().mutex.unlock();
}
void after_fork_in_child() {
  detail::log_level.store(LogLevel::off, std::memory_order_relaxed);
  // Another thread may have held the sink's mutex, and no thread of the child will release it. The
  // child abandons the logger: it neither uses nor destroys it.
  using Logger = std::shared_ptr<spdlog::logger>;
  alignas(Logger) static std::byte left[sizeof(Logger)];
  new (left) Logger(std::move(the_log().logger));
  the_log().mutex.unlock();
}

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::error:
      return spdlog::level::err;
    case LogLevel::warn:
      return spdlog::level::warn;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::off:
      break;
  }
  return spdlog::level::off;
}

void replace_logger(std::shared_ptr<spdlog::logger> logger) {
  const std::lock_guard lock(the_log().mutex);
  // The old logger is destroyed with the argument, after the lock is released.
  the_log().logger.swap(logger);
}

// The file behind descriptor 2 when this library was loaded. A program may close it and open its
// own file with the same number: a message would damage that file.
struct Identity {
  dev_t device = 0;
  ino_t inode = 0;
  bool known = false;
  friend bool operator==(const Identity&, const Identity&) = default;
};
constinit Identity g_stderr{};
constinit std::atomic<bool> g_stderr_noted{false};  // Relaxed: set while there is only one thread.

Identity identity_of_stderr() noexcept {
  struct stat status {};
  return fstat(STDERR_FILENO, &status) == 0 ? Identity{status.st_dev, status.st_ino, true}
                                            : Identity{};
}

/// Called by the constructor or by the first message, because an interposed malloc is called before
/// constructors.
[[gnu::constructor]] void note_stderr() noexcept {
  if (!g_stderr_noted.exchange(true, std::memory_order_relaxed)) {
    const int saved_errno = errno;
    g_stderr = identity_of_stderr();
    errno = saved_errno;
  }
}

/// Returns whether a write to descriptor 2 would neither block nor raise SIGPIPE, and whether it
/// goes to the file that the process started with.
bool stderr_takes_a_line() noexcept {
  note_stderr();
  pollfd descriptor{STDERR_FILENO, POLLOUT, 0};
  return g_stderr.known && identity_of_stderr() == g_stderr && poll(&descriptor, 1, 0) == 1 &&
         descriptor.revents == POLLOUT;
}

// Hashes of the sentences that tell() has written; 0 is a free entry. There is no mutex, because a
// child of fork() must not find it locked. Relaxed: each entry is valid on its own.
constexpr std::size_t kRemembered = 64;
constinit std::array<std::atomic<std::size_t>, kRemembered> g_told{};
constinit std::atomic<unsigned> g_tell_limit{1};  // Set before there are threads.

/// Writes one line, cut to the length that a pipe takes as a whole.
void write_line(std::string_view sentence, std::size_t others) {
  std::array<char, 1024> line;
  constexpr std::string_view kStart = "tiermem: ";
  const std::string end =
      others == 0 ? "\n" : fmt::format(" ({} more: TIERMEM_LOG=warn shows all)\n", others);
  std::size_t used = kStart.copy(line.data(), kStart.size());
  used += show_into(line.data() + used, line.size() - used - end.size(), sentence);
  used += end.copy(line.data() + used, end.size());
  if (stderr_takes_a_line() && write(STDERR_FILENO, line.data(), used) < 0) {
    g_dropped.fetch_add(1, std::memory_order_relaxed);
  }
}

/// Returns false if the sentence was written before, or if the limit is reached.
bool may_tell(std::string_view sentence) {
  const std::size_t hash = std::hash<std::string_view>{}(sentence) | 1;
  const std::size_t limit =
      std::min<std::size_t>(g_tell_limit.load(std::memory_order_relaxed), kRemembered);
  for (std::size_t i = 0; i < limit; ++i) {
    std::size_t other = 0;
    if (g_told[i].compare_exchange_strong(other, hash, std::memory_order_relaxed)) {
      return true;
    }
    if (other == hash) {
      return false;
    }
  }
  return false;
}

}  // namespace

void tell(LogLevel level, std::span<const std::string> sentences) noexcept {
  const ArenaScope scope;
  const int saved_errno = errno;
  try {
    const bool together = g_tell_limit.load(std::memory_order_relaxed) == 1;
    for (const std::string& sentence : sentences) {
      if (log_enabled(level)) {
        detail::log_write(level, "{}", fmt::make_format_args(sentence));
      } else if ((!together || &sentence == sentences.data()) && may_tell(sentence)) {
        write_line(sentence, together ? sentences.size() - 1 : 0);
      }
    }
  } catch (...) {
    g_dropped.fetch_add(1, std::memory_order_relaxed);
  }
  errno = saved_errno;
}

void tell(LogLevel level, const std::string& sentence) noexcept {
  tell(level, {&sentence, 1});
}

void set_tell_limit(unsigned lines) noexcept {
  g_tell_limit.store(lines, std::memory_order_relaxed);
}

namespace detail {

void log_write(LogLevel level, fmt::string_view format, fmt::format_args args) noexcept {
  const ArenaScope scope;
  const NoCancel until_written;
  const int saved_errno = errno;  // Callers log between a failed call and their use of errno.
  try {
    std::shared_ptr<spdlog::logger> logger;
    {
      const std::lock_guard lock(the_log().mutex);
      logger = the_log().logger;
    }
    if (logger != nullptr) {
      fmt::memory_buffer text;
      fmt::vformat_to(std::back_inserter(text), format, args);
      if (!is_plain({text.data(), text.size()})) {
        fmt::memory_buffer plain;
        plain.resize(text.size() * 8);  // Max length of an escape.
        plain.resize(show_into(plain.data(), plain.size(), {text.data(), text.size()}));
        text = std::move(plain);
      }
      logger->log(level_of(level), spdlog::string_view_t(text.data(), text.size()));
    }
  } catch (...) {
    g_dropped.fetch_add(1, std::memory_order_relaxed);
  }
  errno = saved_errno;
}

}  // namespace detail

Status log_open(LogLevel level, std::string_view target) {
  const ArenaScope scope;
  if (level == LogLevel::off) {
    log_close();
    return {};
  }
  int descriptor = STDERR_FILENO;
  const bool owned = target != "stderr";
  if (owned) {
    const std::string path(target);
    descriptor = keep_descriptor(
        open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600));
    if (descriptor < 0) {
      const int error = errno;
      return fail_native(Code::io_error, error, "log_file: cannot open {}: {}", path,
                         std::strerror(error));
    }
  }
  try {
    log_follow_forks();
    auto sink = std::make_shared<DescriptorSink>(descriptor, owned);
    auto logger = std::make_shared<spdlog::logger>("tiermem", std::move(sink));
    logger->set_level(spdlog::level::trace);  // log_level selects the messages.
    // Seconds since 1970. A calendar date would take glibc's time zone lock. Another thread may
    // hold that lock when the process forks; the child would then wait for it forever.
    logger->set_pattern("%E.%e tiermem[%P] %l: %v");
    logger->set_error_handler(
        [](const std::string&) { g_dropped.fetch_add(1, std::memory_order_relaxed); });
    replace_logger(std::move(logger));
  } catch (const std::exception& error) {
    return fail(Code::internal, "log_file: {}", error.what());
  }
  detail::log_level.store(level, std::memory_order_relaxed);
  return {};
}

void log_follow_forks() noexcept {
  (void)the_log();  // Construct it now, because the handlers cannot allocate.
  static const int failed = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  best_effort(failed, "a child of fork may then find the log locked");
}

void log_close() noexcept {
  const ArenaScope scope;
  detail::log_level.store(LogLevel::off, std::memory_order_relaxed);
  replace_logger(nullptr);
}

std::uint64_t log_dropped() noexcept {
  return g_dropped.load(std::memory_order_relaxed);
}

}  // namespace tiermem
