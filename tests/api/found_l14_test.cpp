// Fault L14: with vm.overcommit_memory=2 an allocation of 96 MiB was refused, because address space
// was made writable in steps of 1 GiB. RLIMIT_DATA counts the same memory for one process, so it
// replaces this setting of the machine.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <utility>

#include "support/found.hpp"
#include "support/mappings.hpp"
#include "support/pattern.hpp"
#include "support/sanitizers.hpp"

namespace tiermem::test {
namespace {

// Runs `body` in a child with limits of its own. Its failures are printed as this test's.
template <typename Body>
void in_limited_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    body();
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

void limit(decltype(RLIMIT_AS) resource, std::uint64_t bytes) {
  const rlimit all{bytes, bytes};
  ASSERT_EQ(::setrlimit(resource, &all), 0);
}

struct CommitTest : ::testing::Test {
  void SetUp() override {
    if (kSanitized) {
      GTEST_SKIP() << "a sanitizer needs more memory than these limits";
    }
  }
  Directory directory;
};

FOUND_TEST(CommitTest, L14_memory_that_may_be_written_grows_with_what_is_used) {
  in_limited_child([&] {
    const std::uint64_t before = mappings().writable;
    auto context = make_context("dram=64M; workers=1; nvme=" + directory.path() + ":256M");
    ASSERT_NE(context, nullptr);
    auto buffer = context->alloc(96 * kMiB);
    ASSERT_TRUE(buffer.ok()) << buffer.message();
    ASSERT_TRUE(write_pattern(*buffer, 1).ok());
    // The window, the frames, the same amount again ahead of use, and the threads' stacks and
    // malloc arenas.
    EXPECT_LE(mappings().writable - before, (96 + 64 + 64 + 256) * kMiB);
  });
}

FOUND_TEST(CommitTest, L14_a_buffer_fits_where_the_commit_that_is_left_holds_it) {
  in_limited_child([&] {
    limit(RLIMIT_DATA, status_bytes("VmData:") + 480 * kMiB);
    auto made = Context::create("dram=64M; workers=1; nvme=" + directory.path() + ":256M");
    ASSERT_TRUE(made.ok()) << made.message();
    for (const std::uint32_t flags : {0u, std::uint32_t{kMapped}}) {
      auto buffer = (*made)->alloc(96 * kMiB, {.flags = flags});
      if (buffer.code() == Code::unsupported) {
        continue;
      }
      ASSERT_TRUE(buffer.ok()) << buffer.message();
      ASSERT_TRUE(write_pattern(*buffer, 1).ok());
      auto view = buffer->acquire(kRead, 0, 2 * kMiB);
      ASSERT_TRUE(view.ok()) << view.message();
      EXPECT_EQ(wrong(view->as<std::uint64_t>(), 1), 0u);
    }
  });
}

FOUND_TEST(CommitTest, L14_a_refusal_names_the_limit_of_writable_memory) {
  in_limited_child([&] {
    auto made = Context::create("dram=64M; workers=1; nvme=" + directory.path() + ":256M");
    ASSERT_TRUE(made.ok()) << made.message();
    limit(RLIMIT_DATA, status_bytes("VmData:") + 64 * kMiB);
    auto buffer = (*made)->alloc(1024 * kMiB);
    ASSERT_EQ(buffer.code(), Code::no_capacity);
    EXPECT_NE(std::strstr(buffer.message(), "ulimit -d"), nullptr) << buffer.message();
    ASSERT_NE(buffer.status().info(), nullptr);
    EXPECT_STREQ(buffer.status().info()->setting, "ulimit -d");
    // A smaller buffer that fits is still allocated.
    auto smaller = (*made)->alloc(16 * kMiB);
    EXPECT_TRUE(smaller.ok()) << smaller.message();
  });
}

FOUND_TEST(CommitTest, L14_a_small_address_space_has_a_context_or_a_sentence) {
  if (kSanitized) {
    GTEST_SKIP() << "a sanitizer takes the address space";
  }
  // Earlier reservations count towards the limit: only the rest can be taken.
  struct Case {
    std::uint64_t reserved;  // GiB
    std::uint64_t room;      // MiB
  };
  for (const Case& each :
       {Case{0, 64}, Case{0, 128}, Case{0, 256}, Case{0, 512}, Case{0, 1024}, Case{0, 2048},
        Case{0, 4096}, Case{64, 1024}, Case{64, 4096}, Case{1024, 4096}}) {
    const std::uint64_t reserved = each.reserved, room = each.room;
    SCOPED_TRACE(testing::Message() << reserved << " GiB reserved, " << room << " MiB left");
    in_limited_child([&] {
      ASSERT_TRUE(reserved == 0 ||
                  ::mmap(nullptr, reserved << 30, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED);
      limit(RLIMIT_AS, status_bytes("VmSize:") + room * kMiB);
      auto made = Context::create("dram=16M; workers=1; nvme=" + directory.path() + ":64M");
      if (!made.ok()) {
        EXPECT_NE(std::strstr(made.message(), "ulimit -v"), nullptr) << made.message();
        EXPECT_LT(room, 512u) << made.message();
        return;
      }
      auto buffer = (*made)->alloc(24 * kMiB);
      if (!buffer.ok()) {
        EXPECT_NE(std::strstr(buffer.message(), "ulimit -v"), nullptr) << buffer.message();
        EXPECT_LT(room, 1024u) << buffer.message();
        return;
      }
      const Status written = write_pattern(*buffer, 1);
      EXPECT_TRUE(written.ok() || std::strstr(written.message(), "ulimit -v") != nullptr)
          << written.message();
      EXPECT_TRUE(written.ok() || room < 1024) << written.message();
      auto huge = (*made)->alloc(std::uint64_t{1} << 40);
      ASSERT_FALSE(huge.ok());
      EXPECT_NE(std::strstr(huge.message(), "ulimit -v"), nullptr) << huge.message();
    });
  }
}

}  // namespace
}  // namespace tiermem::test
