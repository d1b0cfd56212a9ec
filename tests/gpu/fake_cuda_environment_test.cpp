// The fake driver as a whole program sees it: the words of TIERMEM_FAKE_CUDA, and an end of the
// process at any time. Each test runs this program again with the variable set. The second process
// runs one part and ends before main().
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "fake_cuda_client.hpp"

namespace tiermem::test {
namespace {

using cuda::kSuccess;

// Parts, which run in the second process.

int failures = 0;

void expect(bool good, const char* what) {
  if (!good) {
    std::fprintf(stderr, "not so: %s\n", what);
    ++failures;
  }
}
#define EXPECT_SO(condition) expect(condition, #condition)

void sees_what_was_ordered() {
  const client::Table cu;
  int count = 0;
  int value = -1;
  std::size_t total = 0;
  std::size_t free = 0;
  cuda::Context context = nullptr;
  cuda::Stream stream = nullptr;
  void* at = nullptr;
  EXPECT_SO(cu.cuInit(0) == kSuccess);
  EXPECT_SO(cu.cuDeviceGetCount(&count) == kSuccess && count == 2);
  EXPECT_SO(cu.cuDriverGetVersion(&value) == kSuccess && value == 12000);
  EXPECT_SO(cu.cuMemMap == nullptr);
  EXPECT_SO(cu.cuMemcpyBatchAsync == nullptr);
  EXPECT_SO(cu.cuDeviceGetAttribute(&value, cuda::kVirtualMemory, 0) == kSuccess && value == 0);
  EXPECT_SO(cu.cuDevicePrimaryCtxRetain(&context, 1) == kSuccess);
  EXPECT_SO(cu.cuCtxSetCurrent(context) == kSuccess);
  EXPECT_SO(cu.cuMemGetInfo_v2(&free, &total) == kSuccess);
  EXPECT_SO(total == std::size_t{1} << 30);
  EXPECT_SO(free == std::size_t{1} << 29);
  EXPECT_SO(cu.cuMemHostAlloc(&at, 8192, 0) == kSuccess);
  EXPECT_SO(cu.cuMemHostAlloc(&at, 1, 0) == cuda::kOutOfMemory);
  EXPECT_SO(cu.cuStreamCreate(&stream, 0) == cuda::kDeviceUnavailable);
  EXPECT_SO(cu.cuStreamCreate(&stream, 0) == cuda::kDeviceUnavailable);
  const cuda::AllocationProperties properties;
  cuda::MemoryHandle handle = 0;
  EXPECT_SO(cu.cuMemCreate(&handle, std::size_t{4} << 20, &properties, 0) == kSuccess);
  EXPECT_SO(cu.cuMemCreate(&handle, std::size_t{4} << 20, &properties, 0) == cuda::kOutOfMemory);
  EXPECT_SO(cu.cuMemCreate(&handle, std::size_t{2} << 20, &properties, 0) == cuda::kInvalidValue);
}

void finds_no_device() {
  const client::Table cu;
  cuda::Context context = nullptr;
  EXPECT_SO(cu.cuInit(0) == kSuccess);
  EXPECT_SO(cu.cuDevicePrimaryCtxRetain(&context, 0) == cuda::kDeviceUnavailable);
}

void ends_with_work_under_way() {
  const client::Table cu;
  cuda::Context context = nullptr;
  cuda::Stream stream = nullptr;
  cuda::DevicePointer at = 0;
  EXPECT_SO(cu.cuInit(0) == kSuccess);
  EXPECT_SO(cu.cuDevicePrimaryCtxRetain(&context, 0) == kSuccess);
  EXPECT_SO(cu.cuCtxSetCurrent(context) == kSuccess);
  EXPECT_SO(cu.cuStreamCreate(&stream, 0) == kSuccess);
  EXPECT_SO(cu.cuMemAlloc_v2(&at, 4096) == kSuccess);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_SO(cu.cuMemsetD8Async(at, 1, 4096, stream) == kSuccess);
  }
  EXPECT_SO(cu.cuStreamQuery(stream) == cuda::kNotReady);
}

constexpr const char* kPart = "TIERMEM_TEST_PART";

const bool no_part = [] {
  const char* const asked = std::getenv(kPart);
  if (asked == nullptr) {
    return true;
  }
  const std::string part = asked;
  part == "sees_what_was_ordered"      ? sees_what_was_ordered()
  : part == "finds_no_device"          ? finds_no_device()
  : part == "ends_with_work_under_way" ? ends_with_work_under_way()
                                       : expect(false, "such a part");
  std::exit(failures == 0 ? 0 : 1);
}();

// Tests.

struct Ended {
  int status = -1;
  std::string text;
};

Ended run_part(const std::string& part, const std::string& words) {
  char self[4096] = {};
  if (!no_part || ::readlink("/proc/self/exe", self, sizeof(self) - 1) < 0) {
    return {};
  }
  const std::string command = std::string(kPart) + "=" + part + " TIERMEM_FAKE_CUDA='" + words +
                              "' exec '" + self + "' 2>&1";
  Ended ended;
  std::FILE* const output = ::popen(command.c_str(), "r");  // NOLINT(cert-env33-c)
  char line[512];
  while (output != nullptr && std::fgets(line, sizeof(line), output) != nullptr) {
    ended.text += line;
  }
  ended.status = output == nullptr ? -1 : ::pclose(output);
  return ended;
}

TEST(FakeCudaEnvironment, steers_a_program) {
  const Ended ended =
      run_part("sees_what_was_ordered",
               "devices=2;capacity=1G;version=12000;hide=cuMemMap;fail=cuMemCreate:2:2;"
               "taken=1:512M;lockable=8K;attribute=102:0;slow=cuInit:1;copy_us=1;"
               "copy_ns_per_kib=1;granularity=4M;fail=cuStreamCreate:1:46:always");
  EXPECT_EQ(ended.status, 0) << ended.text;
}

TEST(FakeCudaEnvironment, loses_a_device_from_the_start) {
  const Ended ended = run_part("finds_no_device", "lose=0");
  EXPECT_EQ(ended.status, 0) << ended.text;
}

TEST(FakeCudaEnvironment, is_understood_or_the_program_ends) {
  for (const char* const word : {"device=2", "devices", "devices=x", "fail=cuInit", "capacity=1T",
                                 "lose=16", "version=12000:1", "hide="}) {
    const Ended ended = run_part("sees_what_was_ordered", std::string("version=12000;") + word);
    EXPECT_TRUE(WIFSIGNALED(ended.status) && WTERMSIG(ended.status) == SIGABRT) << word;
    EXPECT_NE(ended.text.find("does not understand"), std::string::npos) << ended.text;
    EXPECT_NE(ended.text.find(word), std::string::npos) << ended.text;
  }
}

TEST(FakeCudaEnvironment, a_program_may_end_with_work_under_way) {
  const Ended ended = run_part("ends_with_work_under_way", "copy_us=100000");
  EXPECT_EQ(ended.status, 0) << ended.text;
}

}  // namespace
}  // namespace tiermem::test
