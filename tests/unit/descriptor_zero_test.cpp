// Descriptor 0 is valid: if the process started without it, a file or a socket of tiermem gets this
// number. Each must work with it and close it again.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/kept_descriptors.hpp"
#include "base/log.hpp"
#include "block_fixture.hpp"
#include "os/block_file.hpp"
#include "os/device_id.hpp"
#include "os/file_identity.hpp"
#include "os/host_facts.hpp"
#include "os/host_memory.hpp"
#include "os/memory_limits.hpp"
#include "os/proc_stat.hpp"
#include "os/runnable.hpp"
#include "os/userfault.hpp"
#include "os/waitable_io_port.hpp"
#include "preload/run_broker.hpp"
#include "preload/run_owner.hpp"
#include "preload/run_page.hpp"
#include "runtime/inspector.hpp"
#include "runtime/settings.hpp"
#include "runtime/tuning.hpp"
#include "support/closed_stdin.hpp"
#include "support/directory.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class DescriptorZero : public testing::Test {
 protected:
  ~DescriptorZero() override { EXPECT_FALSE(test::ClosedStdin::is_taken()) << "it stayed open"; }

  std::string path(const std::string& name) const { return directory_.path() + "/" + name; }
  std::string text_of(const std::string& name) const {
    std::ifstream file(path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const test::ClosedStdin closed_;
  const test::Directory directory_;
};

TEST_F(DescriptorZero, small_files_are_read) {
  EXPECT_TRUE(ProcStat("/proc/self/stat").found());
  EXPECT_GT(runnable_now().processors, 0u);
  EXPECT_NE(run::own_identity(), 0u);
  EXPECT_TRUE(probe_host_facts().kernel.available);
  EXPECT_TRUE(identify_device(directory_.path()).ok());
  EXPECT_FALSE(test::ClosedStdin::is_taken());
  std::filesystem::create_directories(path("sys/dev/block/8:0/device"));
  std::ofstream(path("sys/dev/block/8:0/device/model")) << "Some Disk\n";
  EXPECT_EQ(identify_block_device(makedev(8, 0), directory_.path()).model, "Some Disk");
  std::ofstream(path("settings.toml")) << "[options]\n";
  const auto settings = settings_from_file(path("settings.toml"));
  EXPECT_TRUE(settings.code() != Code::io_error) << settings.message();
}

TEST_F(DescriptorZero, small_files_are_written) {
  EXPECT_EQ(replace_file(path("whole"), "text", 0600), 0);
  EXPECT_EQ(text_of("whole"), "text");
  std::string name;
  const int created = create_random(AT_FDCWD, path("random-"), 0600, name);
  EXPECT_EQ(created, 0);
  EXPECT_TRUE(std::filesystem::exists(name));
  ::close(created);
  const Tuning tuning{"wwid eui.1", "6.8.0", 1'800'000'000, 32, kMiB, 1, 2, 3};
  EXPECT_TRUE(keep_tuning(path("cache"), tuning).ok());
  const FoundTuning found = find_tuning(path("cache"), {"wwid eui.1", ""}, "6.8.0", tuning.when);
  EXPECT_TRUE(found.tuning.has_value()) << found.reason;
}

TEST_F(DescriptorZero, the_log_is_written) {
  ASSERT_TRUE(log_open(LogLevel::info, path("log")).ok());
  EXPECT_TRUE(test::ClosedStdin::is_taken());
  log_info("a message");
  log_close();
  EXPECT_NE(text_of("log").find("a message"), std::string::npos);
}

TEST_F(DescriptorZero, pages_of_memory_are_counted) {
  auto range = host::reserve({.bytes = 4 * host::kPage, .alignment = host::kPage});
  ASSERT_TRUE(range.ok());
  std::memset(range->data(), 1, 2 * host::kPage);
  EXPECT_EQ(host::leading_bytes(range->data(), 4 * host::kPage, true), 2 * host::kPage);
  EXPECT_FALSE(test::ClosedStdin::is_taken());
  EXPECT_EQ(host::map_no_bytes(range->data(), host::kPage), 0);
}

TEST_F(DescriptorZero, a_descriptor_that_moves_leaves_it) {
  const int zero = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(zero, 0);
  keep_descriptors_above(10);
  const int moved = keep_descriptor(zero);
  keep_descriptors_above(0);
  EXPECT_GE(moved, 10);
  EXPECT_FALSE(test::ClosedStdin::is_taken());
  close_kept(moved);
  const int kept = keep_descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(kept, 0);
  EXPECT_TRUE(is_kept(kept));
  close_kept(kept);
  EXPECT_FALSE(is_kept(kept));
}

TEST_F(DescriptorZero, a_file_of_the_block_tier_holds_bytes) {
  for (const bool nameable : {false, true}) {
    for (const bool has_tmpfile : {true, false}) {
      BlockFileOptions options;
      options.path = directory_.path();
      options.limit = 8 * kMiB;
      options.reserve_free_bytes = 0;
      options.nameable = nameable;
      options.test_without_tmpfile = !has_tmpfile;
      const auto file = BlockFile::open(options);
      ASSERT_TRUE(file.ok()) << file.message();
      EXPECT_TRUE((*file)->grow(kMiB).ok());
      EXPECT_EQ(::pwrite((*file)->fd(true), "text", 4, 0), 4);
      if (nameable && has_tmpfile) {
        const Status named = (*file)->with_name([](int descriptor) -> Status {
          ::close(descriptor);
          return {};
        });
        EXPECT_TRUE(named.ok()) << named.message();
      }
    }
    EXPECT_FALSE(test::ClosedStdin::is_taken());
    EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
  }
}

class DescriptorZeroPort : public testing::TestWithParam<Engine> {
 protected:
  std::unique_ptr<WaitableIoPort> make(std::vector<std::unique_ptr<BlockFile>> files) {
    PortOptions options;
    options.engine = GetParam();
    options.require = GetParam() == Engine::io_uring;
    options.depth = 4;
    return make_io_port(std::move(files), options, reason_);
  }
  std::string reason_;
};

INSTANTIATE_TEST_SUITE_P(engines, DescriptorZeroPort,
                         testing::Values(Engine::io_uring, Engine::threads), [](const auto& i) {
                           return i.param == Engine::threads ? "threads" : "io_uring";
                         });

TEST_P(DescriptorZeroPort, is_woken) {
  const test::ClosedStdin closed;
  {
    const auto port = make({});
    if (port == nullptr) {
      GTEST_SKIP() << reason_;
    }
    port->wake();
    port->wait(-1);
  }
  EXPECT_FALSE(test::ClosedStdin::is_taken()) << "it stayed open";
}

TEST_P(DescriptorZeroPort, reads_a_file_of_that_number) {
  const test::Directory directory;
  std::ofstream(directory.path() + "/file") << std::string(4096, 'x');
  const auto port = make({});
  if (port == nullptr) {
    GTEST_SKIP() << reason_;
  }
  const test::ClosedStdin closed;
  ASSERT_EQ(::open((directory.path() + "/file").c_str(), O_RDONLY | O_CLOEXEC), 0);
  const Bytes bytes = pattern(4096, 0);
  IoRequest request;
  request.buffered = true;
  request.data = bytes.get();
  request.length = 4096;
  request.fd = 0;
  ASSERT_TRUE(port->submit(request));
  IoCompletion completion;
  while (port->reap({&completion, 1}) == 0) {
    port->wait(-1);
  }
  EXPECT_EQ(completion.result, 4096);
  EXPECT_EQ(bytes[0], std::byte{'x'});
}

TEST_P(DescriptorZeroPort, watches_a_descriptor_of_that_number) {
  const auto port = make({});
  if (port == nullptr) {
    GTEST_SKIP() << reason_;
  }
  const test::ClosedStdin closed;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(ends[0], 0);
  if (port->watch(ends[0])) {
    EXPECT_EQ(::write(ends[1], "w", 1), 1);
    port->wait(-1);  // Hangs if the port does not look at the pipe.
  }
  ::close(ends[1]);
}

TEST_F(DescriptorZero, a_userfaultfd_is_usable) {
  Userfault userfault = Userfault::open();
  if (!userfault.ok()) {
    GTEST_SKIP() << userfault.facts().reason;
  }
  EXPECT_EQ(userfault.fd(), 0);
  auto range = host::reserve({.bytes = host::kPage, .alignment = host::kPage});
  ASSERT_TRUE(range.ok());
  EXPECT_EQ(userfault.register_missing(range->data(), range->bytes(), false), 0);
}

TEST_F(DescriptorZero, a_run_has_its_page_and_its_broker) {
  {
    RunHost host;
    ASSERT_EQ(host.open(64 * kMiB, 0), 0);
    EXPECT_EQ(host.fd(), 0);
    EXPECT_TRUE(RunSeat::take(host.path()).ok());
  }
  {
    RunHost host;
    {
      const int other = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      ASSERT_EQ(host.open(64 * kMiB, 0), 0);
      ::close(other);
    }
    EXPECT_TRUE(RunSeat::take(host.path()).ok()) << "the page is opened as descriptor 0";
    EXPECT_FALSE(test::ClosedStdin::is_taken());
  }
  RunBroker broker([](BrokerRequest::What, const char*, BrokerReply&) {});
  ASSERT_EQ(broker.listen(), 0);
  EXPECT_EQ(broker.fd(), 0);
}

TEST_F(DescriptorZero, a_context_is_asked_by_its_socket) {
  Inspector inspector;
  const auto answer = [](void*, std::string_view) { return std::string("answer"); };
  ASSERT_TRUE(inspector.start(directory_.path(), answer, nullptr).ok());
  EXPECT_TRUE(test::ClosedStdin::is_taken());
  EXPECT_FALSE(std::filesystem::is_empty(directory_.path()));
  inspector.stop();
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

}  // namespace
}  // namespace tiermem
