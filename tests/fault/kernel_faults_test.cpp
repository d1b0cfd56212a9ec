// Errors that come through the kernel, also with io_uring: a FUSE file system that refuses, hangs
// or vanishes; a cgroup that is nearly full; a mover's thread that does not run. Goal: as in
// device_faults_test.cpp, where the errors arise above the kernel. Method: failing_files.hpp; a
// cgroup of the test's own, if root may create one; ptrace, which stops one thread of many.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "fault/child.hpp"
#include "fault/failing_files.hpp"
#include "support/pattern.hpp"

namespace tiermem::test {
namespace {

/// Returns the end of a path, because messages shorten long paths at their beginning.
std::string tail(const std::string& path) {
  return path.substr(path.size() - std::min<std::size_t>(path.size(), 20));
}

/// Runs the test in a child, on a file system that fails on command. Returns why this is not
/// possible here, or "".
std::string with_failing_files(void (*test)(FailingFiles& files, const std::string& path)) {
  const Directory directory;
  return in_child([&] {
    FailingFiles files(directory.path());
    if (!files.why_not().empty()) {
      return not_here(files.why_not());
    }
    test(files, directory.path());
    return ChildEnd();
  });
}

TEST(KernelFaults, an_error_of_the_file_system_is_named_and_costs_no_byte) {
  SKIP_IF(with_failing_files([](FailingFiles& files, const std::string& path) {
    auto context = make_context("dram=8M; nvme=" + path + ":128M");
    Buffer data = make_buffer(*context, 24 * kMiB, "beyond memory");
    EXPECT_TRUE(write_pattern(data, 1).ok());
    EXPECT_TRUE(data.evict().ok());
    for (const int error : {EIO, ENODATA, ENXIO, ETIMEDOUT}) {
      files.fail_reads(error);
      auto view = data.acquire(kRead, 0, 2 * kMiB, Timeout::seconds(20));
      EXPECT_EQ(view.code(), Code::io_error) << view.message();
      EXPECT_EQ(view.status().info()->native, error);
      EXPECT_SAYS(view, "beyond memory");
      EXPECT_SAYS(view, tail(path));
      files.fail_reads(0);
      EXPECT_EQ(wrong_words(data, 1), 0u) << "after errno " << error;
      EXPECT_TRUE(data.evict().ok());
    }
    Buffer more = make_buffer(*context, 4 * kMiB, "refused");
    EXPECT_TRUE(write_pattern(more, 2).ok());
    files.fail_writes(ENOSPC);
    const Status full = more.evict();
    EXPECT_FALSE(full.ok());
    EXPECT_SAYS(full, "No space left on device");
    EXPECT_EQ(wrong_words(more, 2), 0u) << "it stays in memory";
    files.fail_writes(EIO);
    EXPECT_FALSE(more.evict().ok());
    files.fail_writes(0);
    EXPECT_EQ(wrong_words(more, 2) + wrong_words(data, 1), 0u);
    EXPECT_GT(files.calls(FailingFiles::reads), 0u);
  }));
}

TEST(KernelFaults, a_read_that_hangs_costs_its_reader_the_timeout_and_ends_right) {
  SKIP_IF(with_failing_files([](FailingFiles& files, const std::string& path) {
    auto context = make_context("dram=8M; nvme=" + path + ":128M");
    Buffer data = make_buffer(*context, 4 * kMiB, "hanging");
    Buffer other = make_buffer(*context, 2 * kMiB, "other");
    EXPECT_TRUE(write_pattern(data, 3).ok());
    EXPECT_TRUE(data.evict().ok());
    EXPECT_TRUE(write_pattern(other, 4).ok());
    files.hold(FailingFiles::reads);
    auto view = data.acquire(kRead, 0, 0, Timeout::milliseconds(50));
    EXPECT_EQ(view.code(), Code::timed_out) << view.message();
    EXPECT_EQ(wrong_words(other, 4), 0u) << "a buffer in memory does not wait for the device";
    EXPECT_TRUE(files.wait_for_held(1));
    files.hold(0);
    EXPECT_EQ(wrong_words(data, 3), 0u);
  }));
}

// The worker that grows the file is in a call that does not return.
TEST(KernelFaults, a_hand_that_never_returns_holds_up_only_who_needs_what_it_does) {
  SKIP_IF(with_failing_files([](FailingFiles& files, const std::string& path) {
    auto context = make_context("workers=2; dram=8M; nvme=" + path + ":128M");
    Buffer data = make_buffer(*context, 6 * kMiB, "dirty");
    EXPECT_TRUE(write_pattern(data, 5).ok());
    files.hold(FailingFiles::growth);
    std::thread evicting([&] { EXPECT_TRUE(data.evict().ok()); });
    EXPECT_TRUE(files.wait_for_held(1));
    EXPECT_EQ(wrong_words(data, 5), 0u) << "what is in memory can be read";
    Buffer more = make_buffer(*context, 2 * kMiB, "more");
    EXPECT_TRUE(write_pattern(more, 6).ok()) << "and there is room for it";
    Buffer too_much = make_buffer(*context, 8 * kMiB, "too much");
    auto view = too_much.acquire(kWrite, 0, 0, Timeout::milliseconds(100));
    EXPECT_TRUE(view.code() == Code::timed_out || view.code() == Code::no_capacity)
        << view.message();
    files.hold(0);
    evicting.join();
    EXPECT_EQ(wrong_words(data, 5) + wrong_words(more, 6), 0u);
    EXPECT_TRUE(too_much.acquire(kWrite, 0, 0, Timeout::seconds(20)).ok());
  }));
}

TEST(KernelFaults, a_device_that_vanishes_takes_only_what_was_there_alone) {
  const Directory directory, roomy;
  SKIP_IF(in_child([&] {
    FailingFiles files(directory.path());
    if (!files.why_not().empty()) {
      return not_here(files.why_not());
    }
    auto context = make_context("dram=8M; nvme=" + directory.path() + ":64M");
    Buffer there = make_buffer(*context, 4 * kMiB, "only there");
    Buffer here = make_buffer(*context, 4 * kMiB, "in memory");
    EXPECT_TRUE(write_pattern(there, 7).ok());
    EXPECT_TRUE(there.evict().ok());
    EXPECT_TRUE(write_pattern(here, 8).ok());
    files.vanish();
    auto view = there.acquire(kRead, 0, 0, Timeout::seconds(20));
    EXPECT_EQ(view.code(), Code::io_error) << view.message();
    EXPECT_SAYS(view, "only there");
    EXPECT_SAYS(view, tail(directory.path()));
    EXPECT_FALSE(here.evict().ok());
    EXPECT_EQ(wrong_words(here, 8), 0u);
    const auto again = there.acquire(kDiscard, 0, 0, Timeout::seconds(20));
    EXPECT_TRUE(again.ok()) << "made again: " << again.message();
    const Status closed = context->close(true, Timeout::seconds(20));
    EXPECT_TRUE(closed.ok()) << closed.message();
    return ChildEnd();
  }));
}

/// A memory cgroup of either version for a child of the test. The parent creates it, and removes it
/// after the child has ended.
class Cgroup {
 public:
  explicit Cgroup(std::uint64_t bytes) {
    for (const bool second : {true, false}) {
      group_ = std::string("/sys/fs/cgroup/") + (second ? "" : "memory/") + "tiermem-test-" +
               std::to_string(getpid());
      if (!std::filesystem::exists(second ? "/sys/fs/cgroup/cgroup.controllers"
                                          : "/sys/fs/cgroup/memory/memory.limit_in_bytes") ||
          ::mkdir(group_.c_str(), 0755) != 0) {
        continue;
      }
      if (put(second ? "/memory.max" : "/memory.limit_in_bytes", bytes)) {
        return;
      }
      ::rmdir(group_.c_str());
    }
    group_.clear();
  }
  ~Cgroup() {
    if (!group_.empty()) {
      ::rmdir(group_.c_str());
    }
  }
  Cgroup(const Cgroup&) = delete;
  Cgroup& operator=(const Cgroup&) = delete;
  /// [child] Returns false if there is no cgroup.
  bool enter() const {
    return !group_.empty() && put("/cgroup.procs", static_cast<std::uint64_t>(getpid()));
  }

 private:
  bool put(const char* file, std::uint64_t number) const {
    std::ofstream out(group_ + file);
    out << number << std::flush;
    return out.good();
  }
  std::string group_;
};

// The page cache of the scratch file, the program's own memory and the frames share the limit.
TEST(KernelFaults, in_a_cgroup_near_its_limit_nothing_is_killed_and_every_byte_is_right) {
  const Directory directory;
  const Cgroup group(64 * kMiB);
  SKIP_IF(in_child([&] {
    if (!group.enter()) {
      return not_here("no memory cgroup can be made");
    }
    for (const char* dram : {"", "dram=40M; "}) {
      auto context = Context::create(std::string(dram) + "nvme=" + directory.path() + ":512M");
      EXPECT_TRUE(context.ok()) << context.message();
      if (!context.ok()) {
        return ChildEnd();
      }
      EXPECT_LE((*context)->stats().dram_budget, 64 * kMiB);
      Buffer data = make_buffer(**context, 160 * kMiB, "more than the cgroup");
      const Status written = write_pattern(data, 9);
      EXPECT_TRUE(written.ok()) << written.message();
      EXPECT_EQ(wrong_words(data, 9), 0u);
    }
    return ChildEnd();
  }));
}

/// Returns the kernel's id of the thread with this name, or 0.
pid_t thread_named(const std::string& part) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(entry.path() / "comm"), name);
    if (name.find(part) != std::string::npos) {
      return static_cast<pid_t>(std::stol(entry.path().filename()));
    }
  }
  return 0;
}

/// Another process, which stops and continues one thread of this process.
class Stopper {
 public:
  Stopper() {
    (void)!pipe(to_);
    (void)!pipe(from_);
    const pid_t process = fork();
    if (process == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(to_[1]);
      close(from_[0]);
      // A request is the id of a thread to stop, or 0 to let it continue.
      pid_t stopped = 0;
      for (pid_t thread = 0; read(to_[0], &thread, sizeof(thread)) == sizeof(thread);) {
        bool done = false;
        if (thread != 0) {
          done = ptrace(PTRACE_SEIZE, thread, 0, 0) == 0 &&
                 ptrace(PTRACE_INTERRUPT, thread, 0, 0) == 0 &&
                 waitpid(thread, nullptr, __WALL) == thread;
          stopped = thread;
        } else {
          done = ptrace(PTRACE_DETACH, stopped, 0, 0) == 0;
        }
        (void)!write(from_[1], &done, sizeof(done));
      }
      _exit(0);
    }
    close(to_[0]);
    close(from_[1]);
    process_ = process;
  }
  ~Stopper() {
    close(to_[1]);
    (void)waitpid(process_, nullptr, 0);
    close(from_[0]);
  }
  bool tell(pid_t thread) {
    bool done = false;
    return write(to_[1], &thread, sizeof(thread)) == sizeof(thread) &&
           read(from_[0], &done, sizeof(done)) == sizeof(done) && done;
  }

 private:
  int to_[2], from_[2];
  pid_t process_ = 0;
};

TEST(KernelFaults, a_mover_that_does_not_run_holds_up_misses_and_loses_nothing) {
  const Directory directory;
  SKIP_IF(in_child([&] {
    Stopper stopper;
    auto context = make_context("dram=8M; nvme=" + directory.path() + ":128M");
    Buffer data = make_buffer(*context, 24 * kMiB, "beyond memory");
    Buffer here = make_buffer(*context, 2 * kMiB, "here");
    EXPECT_TRUE(write_pattern(data, 10).ok());
    EXPECT_TRUE(write_pattern(here, 11).ok());
    auto pinned = here.acquire(kRead);
    EXPECT_TRUE(pinned.ok());
    const pid_t mover = thread_named("mover");
    EXPECT_NE(mover, 0);
    for (int round = 0; round < 5; ++round) {
      if (!stopper.tell(mover)) {
        return not_here("no ptrace");
      }
      EXPECT_EQ(wrong_words(here, 11), 0u) << "what is there needs no mover";
      const Access range = data.range(0, 2 * kMiB, kRead);
      ViewRecord record;
      auto op = context->acquire_async({&range, 1}, {&record, 1});
      EXPECT_TRUE(op.ok()) << op.message();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_TRUE(stopper.tell(0));
      const Status late = op->wait(Timeout::seconds(20));
      EXPECT_TRUE(late.ok()) << late.message();
      EXPECT_TRUE(context->release({&record, 1}).ok());
      EXPECT_EQ(wrong_words(data, 10) + wrong_words(here, 11), 0u);
    }
    return ChildEnd();
  }));
}

// Like job control from a terminal: all threads stop at any instant, also the mover's in the middle
// of a step.
TEST(KernelFaults, a_process_that_is_stopped_and_continued_loses_no_byte) {
  const Directory directory;
  SKIP_IF(in_child([&] {
    const pid_t all = getpid();
    const pid_t stopper = fork();
    if (stopper == 0) {
      for (int i = 0; i < 40; ++i) {
        kill(all, SIGSTOP);
        usleep(5'000);
        kill(all, SIGCONT);
        usleep(5'000);
      }
      _exit(0);
    }
    auto context = make_context("dram=8M; nvme=" + directory.path() + ":128M");
    Buffer data = make_buffer(*context, 24 * kMiB, "stopped");
    int status = 0;
    for (std::uint64_t seed = 12; waitpid(stopper, &status, WNOHANG) == 0; ++seed) {
      const Status written = write_pattern(data, seed);
      EXPECT_TRUE(written.ok()) << written.message();
      EXPECT_EQ(wrong_words(data, seed), 0u);
    }
    return ChildEnd();
  }));
}

}  // namespace
}  // namespace tiermem::test
