// Fault L6: when all keys of the process were in use, tiermem used key 0 and overwrote the
// program's value.
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "support/forked_child.hpp"
#include "support/made.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

unsigned g_foreign = 0;  // Values that a destructor of the program saw but did not set.
constexpr std::uintptr_t kMark = 0x5a5a0000;

void check_own(void* value) {
  const auto mark = reinterpret_cast<std::uintptr_t>(value);
  g_foreign += mark > kMark && mark <= kMark + 4096 ? 0 : 1;
}

bool use(Context& context, const Access& access, std::uint64_t& highest) {
  ViewRecord view;
  if (!context.acquire({&access, 1}, Timeout::forever(), {&view, 1}).ok()) {
    return false;
  }
  highest = std::max(highest, view.token[0] & ((std::uint64_t{1} << 22) - 1));
  return context.release({&view, 1}).ok();
}

bool with_all_keys_in_use() {
  std::vector<pthread_key_t> keys;
  for (pthread_key_t key{}; ::pthread_key_create(&key, check_own) == 0;) {
    keys.push_back(key);
  }
  if (keys.size() < 512) {
    std::fprintf(stderr, "only %zu keys\n", keys.size());
    return false;
  }
  auto context = make_context("dram=16M; nvme=off");
  Buffer buffer = make_buffer(*context, 65536, "b");
  std::uint64_t highest = 0;
  bool kept = true;
  for (int i = 0; i < 300; ++i) {
    std::thread([&] {
      for (std::size_t k = 0; k < keys.size(); ++k) {
        kept = kept && ::pthread_setspecific(keys[k], reinterpret_cast<void*>(kMark + k + 1)) == 0;
      }
      kept = kept && use(*context, buffer.range(), highest);
      for (std::size_t k = 0; k < keys.size(); ++k) {
        kept = kept && ::pthread_getspecific(keys[k]) == reinterpret_cast<void*>(kMark + k + 1);
      }
    }).join();
  }
  std::fprintf(stderr, "kept %d, foreign %u, highest slot %llu\n", kept, g_foreign,
               static_cast<unsigned long long>(highest));
  // The slots of threads that ended without a destructor are found and reused: 300 threads do not
  // need 300 chunks.
  return kept && g_foreign == 0 && highest < 64u * 64 && context->close().ok();
}

TEST(FaultsFound, L06_all_pthread_keys_in_use_then_no_value_of_the_program_changes) {
  EXPECT_TRUE(ended_well(child_that(with_all_keys_in_use)));
}

}  // namespace
}  // namespace tiermem::test
