// The paths that cuFile reports for this machine, queried in a child process, and what a context
// does with the answer. The library answers, fails, spins and crashes on request
// (tests/support/fake_cufile).
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gpu/gpu_context.hpp"
#include "os/cufile.hpp"
#include "support/closed_stdin.hpp"
#include "support/places.hpp"
#include "support/sanitizers.hpp"

namespace tiermem::test {
namespace {

using Path = CuFileFacts::Path;
using namespace std::chrono_literals;

class DirectPath : public GpuContext {
 protected:
  ~DirectPath() override { ::unsetenv("TIERMEM_FAKE_CUFILE"); }

  static CuFileFacts ask(const char* behaviour, std::chrono::milliseconds limit = 30s,
                         const char* library = fake_cufile_path()) {
    ::setenv("TIERMEM_FAKE_CUFILE", behaviour, 1);
    CuFileProbe probe;
    probe.library = library;
    probe.driver = fake_cuda_path();
    probe.limit = limit;
    return ask_cufile(probe);
  }
  static void says(const CuFileFacts& facts, Path path, const char* what) {
    EXPECT_EQ(facts.path, path) << facts.detail;
    EXPECT_NE(facts.detail.find(what), std::string::npos) << facts.detail;
  }
};

TEST_F(DirectPath, is_there_where_the_driver_serves_disks) {
  says(ask("status=16;nvfs=2.26"), Path::direct, "1.20, direct for NVMe by nvidia-fs 2.26");
  says(ask("status=16"), Path::direct, "direct for NVMe by PCI P2PDMA");
  says(ask("status=64;nvfs=2.26;version=1140"), Path::direct, "1.14, direct for disks by");
}

TEST_F(DirectPath, is_not_there_in_compatibility_mode) {
  says(ask(""), Path::compatible, "in compatibility mode");
  // The status of a network and not of a disk.
  says(ask("status=4"), Path::compatible, "in compatibility mode");
}

TEST_F(DirectPath, an_error_of_the_library_is_told) {
  says(ask("open=5033;driver=34"), Path::none, "cuFileDriverOpen gave 5033, the driver 34");
  says(ask("properties=5001"), Path::none, "cuFileDriverGetProperties gave 5001");
  says(ask("", 30s, "/no/such/libcufile.so"), Path::none, "/no/such/libcufile.so: cannot open");
  says(ask("", 30s, "libm.so.6"), Path::none, "libm.so.6 has no cuFileDriverOpen");
}

TEST_F(DirectPath, one_that_spins_is_ended_when_its_time_is_up) {
  const auto begin = std::chrono::steady_clock::now();
  says(ask("spin", 200ms), Path::none, "did not come back within 200 ms");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
  EXPECT_EQ(errno, ECHILD);
}

// `tiermem topo` waits at most this long. No known version of cuFile returns without kernel
// modules.
TEST_F(DirectPath, who_names_no_time_waits_a_second_where_no_version_comes_back) {
  const bool has_modules = ::access("/proc/modules", R_OK) == 0;
  const auto begin = std::chrono::steady_clock::now();
  says(ask("spin", 0ms), Path::none,
       has_modules ? "did not come back within 5000 ms"
                   : "did not come back within 1000 ms, and was ended (without /proc/modules");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
}

TEST_F(DirectPath, one_that_crashes_takes_its_child_with_it_and_nothing_else) {
  says(ask("abort"), Path::none, "ended its process by signal 6");
  says(ask("exit"), Path::none, "ended its process");
  const CuFileFacts crashed = ask("crash");  // A sanitizer turns the crash into an exit.
  says(crashed, Path::none, "ended its process");
}

TEST_F(DirectPath, what_the_library_prints_is_not_taken_for_the_answer) {
  says(ask("chatty;status=16;nvfs=2.1"), Path::direct, "nvidia-fs 2.1");
}

TEST_F(DirectPath, a_program_that_ignores_its_children_is_answered_too) {
  struct sigaction ignore = {};
  struct sigaction before = {};
  ignore.sa_handler = SIG_IGN;
  ASSERT_EQ(::sigaction(SIGCHLD, &ignore, &before), 0);
  says(ask("status=16"), Path::direct, "direct for NVMe");
  says(ask("exit"), Path::none, "ended its process");
  ASSERT_EQ(::sigaction(SIGCHLD, &before, nullptr), 0);
}

TEST_F(DirectPath, a_program_without_stdin_is_answered_and_no_descriptor_stays_open) {
  const ClosedStdin closed;  // The pipe gets the number 0.
  says(ask("status=16"), Path::direct, "direct for NVMe");
  EXPECT_FALSE(ClosedStdin::is_taken());
  says(ask("exit"), Path::none, "ended its process");
  EXPECT_FALSE(ClosedStdin::is_taken());
}

TEST_F(DirectPath, several_threads_may_ask_at_once) {
  ::setenv("TIERMEM_FAKE_CUFILE", "status=16", 1);
  std::atomic<int> direct{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        CuFileProbe probe;
        probe.library = fake_cufile_path();
        direct += ask_cufile(probe).path == Path::direct ? 1 : 0;
      });
    }
  }
  EXPECT_EQ(direct, 4);
}

TEST_F(DirectPath, the_child_has_the_environment_less_our_own_preload_library) {
  if (kAddressSanitizer) {
    GTEST_SKIP() << "the sanitizer's runtime of the child wants to be the first library";
  }
  ::setenv("LD_PRELOAD", "/no/libtiermem_preload.so:libm.so.6 /no/libtiermem_preload.so.0", 1);
  const CuFileFacts facts = ask("preloaded=libm.so.6:");
  ::unsetenv("LD_PRELOAD");
  says(facts, Path::direct, "direct for NVMe");
}

TEST_F(DirectPath, a_missing_program_is_told_of) {
  CuFileProbe probe;
  probe.program = "/no/such/program";
  says(ask_cufile(probe), Path::none, "not asked: /no/such/program: No such file");
}

TEST_F(DirectPath, is_refused_where_it_is_demanded_with_the_reason) {
  const auto refused = [&](const char* behaviour, Code code, const char* what) {
    ::setenv("TIERMEM_FAKE_CUFILE", behaviour, 1);
    const Status status =
        refusal("0:8M", std::string("gpu_direct=direct; gpu_cufile=") + fake_cufile_path());
    EXPECT_EQ(status.code(), code);
    EXPECT_NE(std::string(status.message()).find(what), std::string::npos) << status.message();
    EXPECT_NE(std::string(status.message()).find("accepted: auto, staged"), std::string::npos)
        << status.message();
  };
  refused("", Code::unavailable, "compatibility mode");
  refused("crash", Code::unavailable, "ended its process");
  refused("status=16;nvfs=2.26;register=5027", Code::unavailable, "cuFileHandleRegister gave 5027");
  const Status absent = refusal("0:8M", "gpu_direct=direct; gpu_cufile=/no/such/lib.so");
  EXPECT_EQ(absent.code(), Code::unavailable);
  EXPECT_NE(std::string(absent.message()).find("/no/such/lib.so"), std::string::npos);
}

TEST_F(DirectPath, is_not_looked_for_where_it_is_not_demanded) {
  ::setenv("TIERMEM_FAKE_CUFILE", "spin", 1);  // A query would spin noticeably.
  for (const char* how : {"auto", "staged"}) {
    open("0:8M", std::string("gpu_direct=") + how + "; gpu_cufile=" + fake_cufile_path());
    Buffer& buffer = add(1 << 20);
    host_puts(buffer, 3);
    { const View there = on_gpu(buffer, kRead); }
    ASSERT_TRUE(buffer.evict().ok());
    EXPECT_TRUE(host_holds(buffer, 3));
    buffers.clear();
    context.reset();
  }
}

}  // namespace
}  // namespace tiermem::test
