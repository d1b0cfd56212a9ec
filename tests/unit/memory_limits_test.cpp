// Which limit of the process or of the machine explains why the kernel refused memory. A child sets
// the limits.
#include "os/memory_limits.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>

#include "base/error.hpp"
#include "in_child.hpp"
#include "os/host_memory.hpp"
#include "support/sanitizers.hpp"

namespace tiermem::host {
namespace {

#define SKIP_IF_SANITIZED()                                       \
  if (test::kSanitized) {                                         \
    GTEST_SKIP() << "a sanitizer takes memory and address space"; \
  }

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Runs `body` in a child; its failed expectations fail the test.
bool holds_in_child(const std::function<void()>& body) {
  return in_child([&] {
    body();
    return !testing::Test::HasFailure();
  });
}

struct Explained {
  bool found = false;
  std::string text;
  std::string setting;
};

Explained explain(std::uint64_t bytes, Wanted wanted) {
  char text[160];
  char setting[32];
  Explained result;
  result.found = explain_refusal(bytes, wanted, text, sizeof(text), setting, sizeof(setting));
  result.text = text;
  result.setting = setting;
  return result;
}

std::uint64_t kilobytes_of(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) {
      return std::stoull(line.substr(name.size())) * 1024;
    }
  }
  return 0;
}

TEST(MemoryLimits, memory_in_use_is_what_the_kernel_counts) {
  EXPECT_NEAR(static_cast<double>(address_space_in_use()),
              static_cast<double>(kilobytes_of("VmSize:")), 8e6);
  EXPECT_NEAR(static_cast<double>(data_in_use()), static_cast<double>(kilobytes_of("VmData:")),
              8e6);
  std::ifstream file("/proc/sys/vm/overcommit_memory");
  int mode = -1;
  file >> mode;
  EXPECT_EQ(counts_commit(), mode == 2);
  std::ifstream limit("/proc/sys/vm/max_map_count");
  std::uint64_t most = 0;
  limit >> most;
  EXPECT_EQ(map_limit(), most);
}

TEST(MemoryLimits, address_space_is_limited_then_the_limit_is_named) {
  SKIP_IF_SANITIZED();
  EXPECT_TRUE(holds_in_child([] {
    const std::uint64_t most = address_space_in_use() + 256 * kMiB;
    const rlimit limit{most, most};
    ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
    for (const Wanted wanted : {Wanted::addresses, Wanted::memory}) {
      const Explained why = explain(kGiB, wanted);
      EXPECT_TRUE(why.found);
      EXPECT_EQ(why.setting, "ulimit -v");
      EXPECT_TRUE(contains(why.text, "RLIMIT_AS is ")) << why.text;
      EXPECT_TRUE(contains(why.text, "raise `ulimit -v`")) << why.text;
      EXPECT_FALSE(explain(kMiB, Wanted::addresses).found) << "so much is left";
    }
    const Status refusal = refused(ENOMEM, kGiB, Wanted::addresses, "test {}", 1);
    EXPECT_EQ(refusal.code(), Code::no_capacity);
    EXPECT_EQ(refusal.info()->native, ENOMEM);
    EXPECT_EQ(refusal.info()->needed, kGiB);
    EXPECT_STREQ(refusal.info()->setting, "ulimit -v");
    EXPECT_EQ(std::string(refusal.message())
                  .find("test 1: the kernel refused 1.00 GiB of address space: RLIMIT_AS is "),
              0u)
        << refusal.message();
  }));
}

TEST(MemoryLimits, data_is_limited_then_it_explains_a_lack_of_memory_only) {
  SKIP_IF_SANITIZED();
  EXPECT_TRUE(holds_in_child([] {
    const std::uint64_t most = data_in_use() + 256 * kMiB;
    const rlimit limit{most, most};
    ASSERT_EQ(::setrlimit(RLIMIT_DATA, &limit), 0);
    const Explained why = explain(kGiB, Wanted::memory);
    EXPECT_TRUE(why.found);
    EXPECT_EQ(why.setting, "ulimit -d");
    EXPECT_TRUE(contains(why.text, "RLIMIT_DATA is ")) << why.text;
    EXPECT_FALSE(contains(explain(kGiB, Wanted::addresses).text, "RLIMIT_DATA"));
    const Status refusal = refused(ENOMEM, kGiB, Wanted::memory, "test");
    EXPECT_TRUE(contains(refusal.message(), "refused 1.00 GiB of memory: RLIMIT_DATA"))
        << refusal.message();
  }));
}

TEST(MemoryLimits, limit_is_below_what_is_used_then_it_is_named) {
  SKIP_IF_SANITIZED();
  EXPECT_TRUE(holds_in_child([] {
    const rlimit limit{kMiB, RLIM_INFINITY};
    ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
    EXPECT_EQ(explain(4096, Wanted::addresses).setting, "ulimit -v");
  }));
}

TEST(MemoryLimits, mappings_are_used_up_then_their_number_is_named) {
  SKIP_IF_SANITIZED();
  EXPECT_TRUE(holds_in_child([] {
    // Neighbouring pages with different protection are separate mappings.
    const std::uint64_t pages = map_limit();
    void* const at = ::mmap(nullptr, pages * kPage, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(at, MAP_FAILED);
    EXPECT_FALSE(contains(explain(kMiB, Wanted::addresses).text, "max_map_count mappings"));
    for (std::uint64_t i = 0; i < pages; i += 2) {
      if (::mprotect(static_cast<std::byte*>(at) + i * kPage, kPage, PROT_READ) != 0) {
        break;
      }
    }
    const Explained why = explain(kMiB, Wanted::addresses);
    EXPECT_TRUE(why.found);
    EXPECT_EQ(why.setting, "vm.max_map_count");
    EXPECT_TRUE(contains(why.text, std::to_string(pages))) << why.text;
  }));
}

TEST(MemoryLimits, range_is_too_large_for_any_processor_then_no_setting_helps) {
  const Explained why = explain(std::uint64_t{1} << 46, Wanted::addresses);
  EXPECT_TRUE(why.found);
  EXPECT_EQ(why.setting, "");
  EXPECT_TRUE(contains(why.text, "has no such range")) << why.text;
  EXPECT_FALSE(contains(explain((std::uint64_t{1} << 46) - 1, Wanted::addresses).text, "no such"));
}

TEST(MemoryLimits, no_limit_is_reached_then_the_machine_is_blamed) {
  const Explained why = explain(kMiB, Wanted::addresses);
  EXPECT_FALSE(why.found);
  EXPECT_TRUE(contains(why.text, "the machine or its memory cgroup is out of memory")) << why.text;
}

}  // namespace
}  // namespace tiermem::host
