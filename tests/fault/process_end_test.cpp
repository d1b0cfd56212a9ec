// The process forks, is asked to end, or is killed. Goal: every call in a child of fork returns an
// error that says so, and none hangs. The parent is not affected. However the process ends, nothing
// of it stays on the disk.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "fault/child.hpp"
#include "fault/failing_io.hpp"
#include "support/pattern.hpp"

namespace tiermem::test {
namespace {

/// Forks while a context is in use. The child has ten seconds, and returns whether its checks
/// passed.
bool well_in_a_child_of_fork(const std::function<bool()>& part) {
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    const bool well = part();
    fflush(nullptr);
    _exit(well ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_FALSE(WIFSIGNALED(status)) << "the child hung or crashed: " << strsignal(WTERMSIG(status));
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

class Fork : public ::testing::Test {
 protected:
  std::unique_ptr<Context> make(const std::string& more = "") {
    return make_context("dram=8M; nvme=" + directory_.path() + ":128M" + more);
  }
  Directory directory_;
};

TEST_F(Fork, every_call_of_the_child_is_refused_in_words_and_every_destructor_ends) {
  auto context = make();
  auto buffer = context->alloc(24 * kMiB);
  ASSERT_TRUE(buffer.ok());
  ASSERT_TRUE(write_pattern(*buffer, 1).ok());
  const Access range = buffer->range(0, kMiB);
  EXPECT_TRUE(well_in_a_child_of_fork([&] {
    std::array<std::byte, 8> bytes{};
    ViewRecord view;
    const auto told = [](const char* call, const Status& status) {
      const bool well = status.code() == Code::shut_down &&
                        says(status.message(), "parent process") && says(status.message(), "fork");
      if (!well) {
        printf("%s: %s: %s\n", call, code_name(status.code()), status.message());
      }
      return well;
    };
    bool well = told("alloc", context->alloc(1).status());
    well &= told("adopt_file", context->adopt_file("/proc/self/exe").status());
    well &= told("free", context->free(buffer->handle()));
    well &= told("acquire", context->acquire({&range, 1}, Timeout::forever(), {&view, 1}));
    well &= told("acquire_async", context->acquire_async({&range, 1}, {&view, 1}).status());
    well &= told("prefetch", context->prefetch({&range, 1}));
    well &= told("evict", context->evict({&range, 1}));
    well &= told("migrate", context->migrate({&range, 1}, {Kind::dram, 0}));
    well &= told("advise", context->advise({&range, 1}, Advice::dont_need));
    well &= told("read", context->read(buffer->handle(), 0, bytes.data(), bytes.size()));
    well &= told("write", context->write(buffer->handle(), 0, bytes.data(), bytes.size()));
    well &= told("info", context->info(buffer->handle()).status());
    well &= told("set_budget", context->set_budget({Kind::dram, 0}, kMiB));
    well &= context->stats().buffers == 0;
    well &= context->close(true).ok();
    buffer->reset();
    context.reset();
    return well;
  }));
  EXPECT_EQ(wrong_words(*buffer, 1), 0u);
}

TEST_F(Fork, an_operation_of_the_parent_never_ends_in_the_child_and_is_refused_there) {
  auto context = make("; io_engine=threads");
  auto buffer = context->alloc(8 * kMiB);
  ASSERT_TRUE(write_pattern(*buffer, 2).ok());
  ASSERT_TRUE(buffer->evict().ok());
  FailingIo device(directory_.path());
  device.close_gate();
  const Access range = buffer->range();
  ViewRecord view;
  auto op = context->acquire_async({&range, 1}, {&view, 1});
  ASSERT_TRUE(op.ok());
  ASSERT_TRUE(device.wait_for_held(1));
  EXPECT_TRUE(well_in_a_child_of_fork([&] {
    const bool polled = context->op_poll(op->handle()).code() == Code::shut_down &&
                        context->op_cancel(op->handle()).code() == Code::shut_down;
    const Status status = context->op_wait(op->handle(), Timeout::forever());
    const bool waited =
        status.code() == Code::shut_down && says(status.message(), "parent process");
    { const Op dying = std::move(*op); }
    return polled && waited;
  }));
  device.open_gate();
  ASSERT_TRUE(op->wait(Timeout::seconds(10)).ok());
  EXPECT_TRUE(context->release({&view, 1}).ok());
  EXPECT_EQ(wrong_words(*buffer, 2), 0u);
}

TEST_F(Fork, a_child_can_make_a_context_of_its_own_while_the_parent_goes_on) {
  auto context = make();
  auto buffer = context->alloc(24 * kMiB);
  ASSERT_TRUE(write_pattern(*buffer, 3).ok());
  EXPECT_TRUE(well_in_a_child_of_fork([&] {
    auto own = Context::create("dram=8M; nvme=" + directory_.path() + ":64M");
    if (!own.ok()) {
      return false;
    }
    auto data = (*own)->alloc(24 * kMiB);
    return data.ok() && write_pattern(*data, 4).ok() && wrong_words(*data, 4) == 0;
  }));
  EXPECT_EQ(wrong_words(*buffer, 3), 0u);
  ASSERT_TRUE(write_pattern(*buffer, 5).ok());
  EXPECT_EQ(wrong_words(*buffer, 5), 0u);
}

TEST_F(Fork, what_the_parent_wrote_stays_right_while_children_come_and_go) {
  for (const char* mechanism : {"auto", "uffd_move", "copy", "remap", "in_place"}) {
    auto made =
        Context::create("dram=8M; nvme=" + directory_.path() + ":128M; mechanism=" + mechanism);
    if (!made.ok()) {
      EXPECT_EQ(made.code(), Code::unsupported) << made.message();
      continue;
    }
    auto context = std::move(*made);
    auto buffer = context->alloc(24 * kMiB);
    ASSERT_TRUE(buffer.ok());
    for (std::uint64_t round = 0; round < 6; ++round) {
      int ends[2];
      ASSERT_EQ(pipe(ends), 0);
      const pid_t child = fork();
      if (child == 0) {  // Shares all pages until it is told to end.
        close(ends[1]);
        char letter = 0;
        (void)!read(ends[0], &letter, 1);
        _exit(0);
      }
      close(ends[0]);
      const Status written = write_pattern(*buffer, 10 + round);
      EXPECT_TRUE(written.ok()) << mechanism << ": " << written.message();
      EXPECT_EQ(wrong_words(*buffer, 10 + round), 0u) << mechanism;
      close(ends[1]);
      int status = 0;
      EXPECT_EQ(waitpid(child, &status, 0), child);
    }
  }
}

// ---- SIGTERM and SIGKILL ------------------------------------------------------------------------

/// Demotes without end: memory is a fifth of the bytes that are written again and again.
void demote_for_ever(const std::string& spec, const std::function<void()>& ready) {
  auto context = Context::create(spec);
  if (!context.ok()) {
    printf("%s\n", context.message());
    return;
  }
  auto buffer = (*context)->alloc(40 * kMiB);
  for (std::uint64_t round = 0; buffer.ok() && write_pattern(*buffer, round).ok(); ++round) {
    if ((*context)->stats().demoted > 64 * kMiB) {
      ready();
    }
  }
}

struct Ending {
  int signal;
  const char* engine;
  std::string name() const {
    std::string text = signal == SIGTERM ? "sigterm" : "sigkill";
    text += "_with_engine_";
    text += engine;
    return text;
  }
};

void PrintTo(const Ending& ending, std::ostream* out) {
  *out << ending.name();
}

class Killed : public ::testing::TestWithParam<Ending> {};

TEST_P(Killed, nothing_stays_in_the_directory) {
  const int signal = GetParam().signal;
  const std::string engine = GetParam().engine;
  Directory directory;
  struct statvfs before {
  }, after{};
  const std::string spec = "dram=8M; nvme=" + directory.path() + ":128M; io_engine=" + engine;
  ASSERT_TRUE(kill_in_the_middle(
      signal, [&](const std::function<void()>& ready) { demote_for_ever(spec, ready); }));
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  // Its blocks are returned too: on a file system without other users, the free space is the same
  // as before.
  SKIP_IF(in_child([&] {
    if (const std::string why = mount_tmpfs(directory.path(), 256 * kMiB); !why.empty()) {
      return not_here(why + " (the directory was looked at; the room could not be)");
    }
    EXPECT_EQ(statvfs(directory.path().c_str(), &before), 0);
    EXPECT_TRUE(kill_in_the_middle(
        signal, [&](const std::function<void()>& ready) { demote_for_ever(spec, ready); }));
    // The kernel ends a killed process's ring, and therefore the file, slightly later than the
    // process itself.
    EXPECT_TRUE(eventually([&] {
      EXPECT_EQ(statvfs(directory.path().c_str(), &after), 0);
      return after.f_bfree == before.f_bfree && after.f_ffree == before.f_ffree;
    })) << before.f_bfree - after.f_bfree
        << " blocks and " << before.f_ffree - after.f_ffree << " files are left";
    EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
    return ChildEnd();
  }));
}
INSTANTIATE_TEST_SUITE_P(by, Killed,
                         ::testing::Values(Ending{SIGTERM, "auto"}, Ending{SIGTERM, "threads"},
                                           Ending{SIGKILL, "auto"}, Ending{SIGKILL, "threads"}),
                         [](const auto& i) { return i.param.name(); });

// exit() runs destructors of static objects while tiermem's threads work. It must end, and leave
// nothing behind.
TEST(ProcessEnd, exit_with_a_busy_context_that_nobody_ends_leaves_nothing) {
  Directory directory;
  EXPECT_EQ(in_child([&] {
              auto context = Context::create("dram=8M; nvme=" + directory.path() + ":128M");
              EXPECT_TRUE(context.ok()) << context.message();
              auto buffer = (*context)->alloc(40 * kMiB);
              EXPECT_TRUE(write_pattern(*buffer, 1).ok());
              EXPECT_TRUE(buffer->advise(Advice::frozen).ok());
              EXPECT_TRUE(buffer->prefetch().ok());
              buffer->detach();
              (void)context->release();  // Never closed, on purpose.
              fflush(nullptr);
              exit(::testing::Test::HasFailure() ? 1 : 0);
              return ChildEnd();
            }),
            "");
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace tiermem::test
