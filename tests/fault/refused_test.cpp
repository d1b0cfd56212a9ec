// A kernel, a container or an administrator refuses something that tiermem would use. Goal: with
// `auto` everything works without it, byte for byte. A setting that names the missing thing is an
// error that says what was refused. Method: a child of the test gives up the right with seccomp,
// prctl, rlimit or its user, and then runs a whole context.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "fault/child.hpp"
#include "support/pattern.hpp"
#include "tiermem.h"

namespace tiermem::test {
namespace {

constexpr long kNewUserfault = 0xAA00;  // USERFAULTFD_IOC_NEW on /dev/userfaultfd.

std::vector<Refusal> no_userfault(int error) {
  return {{SYS_userfaultfd, error}, {SYS_ioctl, error, kNewUserfault}};
}

/// Returns the capabilities of a context of `spec`, or 0 if it cannot be created.
std::uint64_t capabilities(const std::string& spec) {
  tm_context* context = nullptr;
  tm_capabilities caps{};
  caps.size = sizeof(caps);
  if (tm_context_create(spec.c_str(), nullptr, &context) != TM_OK) {
    return 0;
  }
  EXPECT_EQ(tm_caps(context, &caps), TM_OK);
  EXPECT_EQ(tm_context_destroy(context, 0, 1'000'000'000), TM_OK);
  return caps.flags;
}

class Refused : public ::testing::Test {
 protected:
  std::string spec(const std::string& more = "") const {
    return "dram=12M; nvme=" + directory_.path() + ":256M" + more;
  }

  /// Uses everything that a refusal affects: four times more data than memory, small and large
  /// buffers, and an adopted file.
  void everything_works(const std::string& more = "") const {
    auto context = Context::create(spec(more));
    ASSERT_TRUE(context.ok()) << context.message();
    auto large = (*context)->alloc(40 * kMiB);
    ASSERT_TRUE(large.ok()) << large.message();
    const Status written = write_pattern(*large, 1);
    ASSERT_TRUE(written.ok()) << written.message();
    std::vector<Buffer> small;
    for (std::uint64_t i = 0; i < 200; ++i) {
      auto one = (*context)->alloc(64 << 10);
      ASSERT_TRUE(one.ok()) << one.message();
      const Status filled = write_pattern(*one, 100 + i);
      ASSERT_TRUE(filled.ok()) << filled.message();
      small.push_back(std::move(*one));
    }
    const std::string path = directory_.path() + "/file-" + std::to_string(getpid());
    std::vector<std::uint64_t> words(3 * kMiB / 8 + 5);
    fill(words, 2);
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(words.data()),
               static_cast<std::streamsize>(words.size() * 8));
    auto file = (*context)->adopt_file(path.c_str());
    ASSERT_TRUE(file.ok()) << file.message();
    EXPECT_EQ(wrong_words(*file, 2), 0u);
    EXPECT_EQ(wrong_words(*large, 1), 0u);
    for (std::uint64_t i = 0; i < small.size(); ++i) {
      EXPECT_EQ(wrong_words(small[i], 100 + i), 0u) << i;
    }
    EXPECT_LE((*context)->stats().dram_used, 12 * kMiB);
  }

  Directory directory_;
};

TEST_F(Refused, without_io_uring_threads_do_its_work) {
  if (const auto as_built = Context::create(spec("; io_engine=io_uring")); !as_built.ok()) {
    // In a build without liburing there is no io_uring to refuse.
    GTEST_SKIP() << as_built.message();
  }
  for (const int error : {EPERM, ENOSYS, ENOMEM}) {
    SKIP_IF(in_child([&] {
      if (!refuse({{SYS_io_uring_setup, error}})) {
        return not_here(std::string("no seccomp: ") + std::strerror(errno));
      }
      everything_works();
      EXPECT_EQ(capabilities(spec()) & TM_CAN_IO_URING, 0u);
      auto asked = Context::create(spec("; io_engine=io_uring"));
      EXPECT_EQ(asked.code(), Code::unavailable);
      EXPECT_SAYS(asked, "io_uring");
      EXPECT_SAYS(asked, std::strerror(error));
      EXPECT_SAYS(asked, "io_engine");
      EXPECT_SAYS(asked, "threads");
      return ChildEnd();
    }));
  }
}

TEST_F(Refused, without_userfaultfd_extents_get_into_windows_otherwise) {
  for (const int error : {EPERM, ENOSYS}) {
    SKIP_IF(in_child([&] {
      if (!refuse(no_userfault(error))) {
        return not_here(std::string("no seccomp: ") + std::strerror(errno));
      }
      everything_works();
      EXPECT_EQ(capabilities(spec()) & TM_CAN_SEE_TOUCHES, 0u);
      auto asked = Context::create(spec("; mechanism=uffd_move"));
      EXPECT_EQ(asked.code(), Code::unsupported);
      EXPECT_SAYS(asked, "uffd_move");
      EXPECT_SAYS(asked, "userfaultfd");
      EXPECT_SAYS(asked, std::strerror(error));
      return ChildEnd();
    }));
  }
}

TEST_F(Refused, with_everything_refused_at_once_no_byte_is_lost) {
  SKIP_IF(in_child([&] {
    std::vector<Refusal> all = no_userfault(EPERM);
    all.push_back({SYS_io_uring_setup, EPERM});
    all.push_back({SYS_mlock, EPERM});
    all.push_back({SYS_perf_event_open, EPERM});
    const rlimit none{0, 0};
    if (setrlimit(RLIMIT_MEMLOCK, &none) != 0 || prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0 ||
        !refuse(all)) {
      return not_here(std::strerror(errno));
    }
    everything_works();
    everything_works("; mechanism=in_place; checksum=off");
    return ChildEnd();
  }));
}

TEST_F(Refused, memory_that_may_not_be_locked_is_not_needed) {
  ASSERT_EQ(chmod(directory_.path().c_str(), 0777), 0);
  SKIP_IF(in_child([&] {
    const rlimit none{0, 0};
    EXPECT_EQ(setrlimit(RLIMIT_MEMLOCK, &none), 0);
    if (const std::string why = become_nobody(); !why.empty()) {
      return not_here(why);
    }
    everything_works();
    return ChildEnd();
  }));
}

TEST_F(Refused, an_ordinary_user_needs_no_privilege) {
  ASSERT_EQ(chmod(directory_.path().c_str(), 0777), 0);
  SKIP_IF(in_child([&] {
    if (const std::string why = become_nobody(); !why.empty()) {
      return not_here(why);
    }
    everything_works();
    return ChildEnd();
  }));
}

TEST_F(Refused, huge_pages_that_are_off_cost_speed_only) {
  everything_works("; huge_pages=off");
  SKIP_IF(in_child([&] {
    if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0) {
      return not_here(std::strerror(errno));
    }
    everything_works();
    EXPECT_EQ(capabilities(spec()) & TM_CAN_HUGE_PAGES, 0u);
    auto asked = Context::create(spec("; huge_pages=require"));
    EXPECT_EQ(asked.code(), Code::unsupported);
    EXPECT_SAYS(asked, "huge_pages");
    return ChildEnd();
  }));
}

TEST_F(Refused, a_file_system_without_direct_io_is_used_through_the_page_cache_unless_required) {
  SKIP_IF(in_child([&] {
    if (const std::string why = mount_tmpfs(directory_.path(), 256 * kMiB); !why.empty()) {
      return not_here(why);
    }
    everything_works();
    auto asked = Context::create(spec("; direct=require"));
    EXPECT_EQ(asked.code(), Code::unsupported);
    EXPECT_SAYS(asked, directory_.path());
    EXPECT_SAYS(asked, "direct");
    return ChildEnd();
  }));
}

TEST_F(Refused, without_descriptors_left_a_context_is_refused_whole_and_made_later) {
  SKIP_IF(in_child([&] {
    rlimit before{};
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    unsigned refused = 0;
    for (rlim_t most = 4; most < 40; ++most) {
      const rlimit few{most, before.rlim_max};
      EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
      auto context = Context::create(spec());
      if (!context.ok()) {
        ++refused;
        EXPECT_TRUE(says(context.message(), std::strerror(EMFILE)) ||
                    says(context.message(), "memory"))
            << most << ": " << code_name(context.code()) << ": " << context.message();
      }
    }
    EXPECT_GT(refused, 0u);
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    everything_works();
    return ChildEnd();
  }));
}

// If threads cannot start, creating a context is refused; std::terminate is not called.
TEST_F(Refused, without_threads_a_context_is_refused_whole_and_made_later) {
  ASSERT_EQ(chmod(directory_.path().c_str(), 0777), 0);
  SKIP_IF(in_child([&] {
    if (const std::string why = become_nobody(); !why.empty()) {
      return not_here(why);
    }
    rlimit before{};
    EXPECT_EQ(getrlimit(RLIMIT_NPROC, &before), 0);
    unsigned refused = 0;
    for (rlim_t most = 1; most < 12; ++most) {
      const rlimit few{most, before.rlim_max};
      EXPECT_EQ(setrlimit(RLIMIT_NPROC, &few), 0);
      auto context = Context::create(spec("; workers=2"));
      if (!context.ok()) {
        ++refused;
        EXPECT_EQ(context.code(), Code::unavailable) << context.message();
        EXPECT_SAYS(context, "thread");
      }
    }
    EXPECT_GT(refused, 0u);
    EXPECT_EQ(setrlimit(RLIMIT_NPROC, &before), 0);
    everything_works();
    return ChildEnd();
  }));
}

TEST_F(Refused, little_address_space_is_a_refusal_or_a_smaller_context_never_a_crash) {
  SKIP_IF(in_child([&] {
    unsigned made = 0;
    unsigned refused = 0;
    unsigned whole = 0;
    for (const rlim_t gib : {rlim_t{1}, rlim_t{2}, rlim_t{4}, rlim_t{16}, rlim_t{64}}) {
      const rlimit limit{gib << 30, RLIM_INFINITY};
      EXPECT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
      auto context = Context::create(spec());
      if (context.ok()) {
        ++made;
        auto data = (*context)->alloc(32 * kMiB);
        if (data.ok()) {
          const Status written = write_pattern(*data, gib);
          EXPECT_TRUE(written.ok() || written.code() == Code::no_capacity) << written.message();
          whole += written.ok() && wrong_words(*data, gib) == 0 ? 1 : 0;
        } else {
          EXPECT_EQ(data.code(), Code::no_capacity) << data.message();
        }
        // Far above the limit, so the allocation itself is refused.
        auto huge = (*context)->alloc(std::uint64_t{1} << 40);
        EXPECT_EQ(huge.code(), Code::no_capacity) << huge.message();
        EXPECT_SAYS(huge, "ulimit -v");
      } else {
        ++refused;
        EXPECT_EQ(context.code(), Code::no_capacity) << context.message();
      }
    }
    EXPECT_GT(made, 0u) << refused << " were refused";
    EXPECT_GT(whole, 0u);
    return ChildEnd();
  }));
}

}  // namespace
}  // namespace tiermem::test
