// Fault L10: a store through a read view of an adopted file was visible until the extent was
// evicted, and then the old bytes returned. Such a view is now read-only in the page tables: the
// store raises SIGSEGV, as in memory mapped with PROT_READ.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <setjmp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "support/directory.hpp"
#include "support/forked_child.hpp"
#include "support/made.hpp"
#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

// Set by the handler, in a child of fork with one thread.
volatile sig_atomic_t g_signals = 0;
volatile int g_code = 0;
void* volatile g_address = nullptr;
sigjmp_buf g_after;
int g_returns = 0;  // How often the handler returns without having repaired anything.

void note_signal(int, siginfo_t* info, void*) {
  g_code = info->si_code;
  g_address = info->si_addr;
  g_signals = g_signals + 1;
  if (g_signals > g_returns) {
    siglongjmp(g_after, 1);
  }
}

/// Returns whether the store raised SIGSEGV at its address with SEGV_ACCERR, and nothing else.
bool store_is_refused(char* at, int returns = 0) {
  struct sigaction action {};
  action.sa_sigaction = note_signal;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, nullptr);
  g_signals = 0;
  g_returns = returns;
  if (sigsetjmp(g_after, 1) == 0) {
    *static_cast<volatile char*>(at) = '!';
    return false;
  }
  return g_signals == returns + 1 && g_code == SEGV_ACCERR && g_address == at;
}

/// A file with known bytes, and a child of fork that uses it.
struct StoreTest : ChildWords {
  explicit StoreTest(std::size_t size) : bytes(size) {
    for (std::size_t i = 0; i < size; ++i) {
      bytes[i] = static_cast<char>(i * 13 + i / 4096);
    }
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(size));
  }
  std::string spec(const std::string& more) const {
    return "dram=16M; nvme=" + directory.path() + ":64M" + more;
  }
  bool is_whole(Buffer& buffer, std::size_t offset) const {
    auto view = buffer.acquire(kRead);
    return view.ok() && std::memcmp(view->data(), bytes.data() + offset, view->bytes().size()) == 0;
  }
  Directory directory;
  const std::string path = directory.path() + "/weights";
  std::vector<char> bytes;
};

struct Way {
  const char* name;
  const char* options;
  bool says;  ///< userfaultfd sees the store, so a message comes with the signal.
};
// "copy" and "remap" are the mechanisms of kernels without UFFDIO_MOVE, "off" that of containers.
const Way kWays[] = {{"auto", "", true},
                     {"copy", "; mechanism=copy", true},
                     {"user mode", "; userfault=user_mode", true},
                     {"remap", "; mechanism=remap", false},
                     {"in place", "; mechanism=in_place", false},
                     {"off", "; userfault=off", false}};

bool has_userfaultfd() {
  auto context = Context::create("dram=8M; nvme=off; mechanism=copy");
  return context.ok();
}

TEST(FaultsFound, L10_store_through_a_read_view_is_segv_and_the_bytes_stay_the_files) {
  for (const Way& way : kWays) {
    if (way.says && std::string(way.name) != "auto" && !has_userfaultfd()) {
      continue;
    }
    // Extents of one page, of 16 pages, and of a huge page.
    for (const std::uint64_t extent : {std::uint64_t{4096}, 64 * kMiB / 1024, 2 * kMiB}) {
      StoreTest test(extent == 4096 ? 5 * 4096 + 77 : 3 * 64 * 1024 + 77);
      const std::size_t offset = 24;
      const std::size_t at = test.bytes.size() - 100;
      EXPECT_TRUE(test.in_child([&] {
        auto context = make_context(test.spec(way.options));
        auto buffer = context->adopt_file(test.path.c_str(), offset, 0,
                                          {.extent_bytes = extent, .label = "the weights"});
        if (!buffer.ok()) {
          return false;
        }
        bool good = true;
        for (int round = 0; round < 3; ++round) {
          auto view = buffer->acquire(kRead);
          auto* const data = reinterpret_cast<char*>(view->data());
          good = good && store_is_refused(data + at) && store_is_refused(data + at, 5) &&
                 store_is_refused(data) && test.is_whole(*buffer, offset);
          view->release();
          good = good && buffer->evict().ok() && test.is_whole(*buffer, offset);
        }
        return good;
      })) << way.name
          << ", extents of " << extent << ": " << test.said;
      if (way.says && has_userfaultfd()) {
        const std::string where = "'the weights' at offset " + std::to_string(at);
        EXPECT_NE(test.said.find(where), std::string::npos) << way.name << ": " << test.said;
        EXPECT_NE(test.said.find("read-only"), std::string::npos) << test.said;
        EXPECT_NE(test.said.find("copy the bytes"), std::string::npos) << "the remedy";
      }
    }
  }
}

TEST(FaultsFound, L10_store_without_a_handler_ends_the_process_with_a_sentence) {
  if (!has_userfaultfd()) {
    GTEST_SKIP() << "no userfaultfd here: the signal comes without a sentence";
  }
  StoreTest test(2 * kMiB + 5);
  EXPECT_FALSE(test.in_child([&] {
    ::signal(SIGSEGV, SIG_DFL);
    auto context = make_context(test.spec(""));
    auto buffer = context->adopt_file(test.path.c_str(), 0, 0, {.label = "the weights"});
    auto view = buffer->acquire(kRead);
    auto* const data = reinterpret_cast<char*>(view->data());
    *static_cast<volatile char*>(data + 2 * kMiB + 1) = '!';
    return true;
  }));
  EXPECT_TRUE(WIFSIGNALED(test.status) && WTERMSIG(test.status) == SIGSEGV) << test.status;
  EXPECT_NE(test.said.find("tiermem: store: buffer 'the weights' at offset 2097153"),
            std::string::npos)
      << test.said;
}

TEST(FaultsFound, L10_system_call_stores_to_a_read_view_then_it_fails_with_efault) {
  for (const char* options : {"", "; mechanism=copy", "; userfault=user_mode", "; userfault=off"}) {
    if (!has_userfaultfd() && *options != '\0' && std::string(options) != "; userfault=off") {
      continue;
    }
    StoreTest test(3 * 4096);
    EXPECT_TRUE(test.in_child([&] {
      auto context = make_context(test.spec(options));
      auto buffer = context->adopt_file(test.path.c_str());
      auto view = buffer->acquire(kRead);
      auto* const data = view->data();
      const int zeros = ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
      const bool refused = ::read(zeros, data + 4096, 10) == -1 && errno == EFAULT;
      return refused && test.is_whole(*buffer, 0);
    })) << options
        << ": " << test.said;
  }
}

TEST(FaultsFound, L10_store_to_each_of_many_extents_then_each_is_refused) {
  StoreTest test(64 * 4096);
  EXPECT_TRUE(test.in_child([&] {
    auto context = make_context(test.spec(""));
    auto buffer = context->adopt_file(test.path.c_str(), 0, 0, {.extent_bytes = 4096});
    for (int round = 0; round < 4; ++round) {
      auto view = buffer->acquire(kRead);
      auto* const data = reinterpret_cast<char*>(view->data());
      for (std::size_t at = 0; at < test.bytes.size(); at += 4096) {
        if (!store_is_refused(data + at + 4095)) {
          return false;
        }
      }
      view->release();
      if (!buffer->evict().ok() || !test.is_whole(*buffer, 0)) {
        return false;
      }
    }
    return true;
  })) << test.said;
}

// If the buffer is writable, a view for reading is only a pin and not a protection.
TEST(FaultsFound, L10_read_view_of_a_buffer_from_alloc_stays_writable) {
  const Directory directory;
  auto context = make_context("dram=16M; nvme=" + directory.path() + ":64M");
  auto buffer = context->alloc(4 * kMiB);
  ASSERT_TRUE(buffer.ok());
  {
    auto reading = buffer->acquire(kRead);
    auto writing = buffer->acquire(kWrite, 0, 1);
    ASSERT_TRUE(writing.ok()) << writing.message();
    *reading->data() = std::byte{7};
  }
  ASSERT_TRUE(buffer->evict().ok());
  EXPECT_EQ(*buffer->acquire(kRead)->data(), std::byte{7});
}

}  // namespace
}  // namespace tiermem::test
