// Fault L8: adopt_file looked the path up twice, once for buffered and once for direct I/O, and a
// rename in between mixed two files. A file is now opened once, and then identified by its
// descriptor.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "support/directory.hpp"
#include "support/made.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

// Whole blocks are read by direct I/O, the tail through the page cache.
constexpr std::size_t kBytes = 2 * 4096 + 100;

TEST(FaultsFound, L08_path_renamed_while_it_is_adopted_then_each_buffer_is_one_file) {
  const Directory directory;
  const std::string current = directory.path() + "/current";
  for (const char letter : {'a', 'b'}) {
    std::ofstream(directory.path() + "/" + letter, std::ios::binary) << std::string(kBytes, letter);
  }
  ASSERT_EQ(::symlink("a", current.c_str()), 0);
  auto context = make_context("dram=16M; nvme=" + directory.path() + ":64M");
  ASSERT_NE(context, nullptr);

  // The files do not change. The path leads sometimes to one and sometimes to the other.
  std::atomic<int> renames{0};
  std::jthread renaming([&](const std::stop_token& stop) {
    const std::string next = directory.path() + "/next";
    for (int i = 1; !stop.stop_requested(); ++i) {
      EXPECT_EQ(::symlink(i % 2 == 0 ? "a" : "b", next.c_str()), 0);
      EXPECT_EQ(std::rename(next.c_str(), current.c_str()), 0);
      renames.fetch_add(1);
    }
  });
  for (int round = 0; round < 1500; ++round) {
    auto buffer = context->adopt_file(current.c_str(), 0, 0, {.extent_bytes = 16384});
    ASSERT_TRUE(buffer.ok()) << buffer.message();
    auto view = buffer->acquire(kRead);
    ASSERT_TRUE(view.ok()) << view.message();
    const auto bytes = view->bytes();
    ASSERT_EQ(bytes.size(), kBytes);
    ASSERT_EQ(std::count(bytes.begin(), bytes.end(), bytes.front()),
              static_cast<std::ptrdiff_t>(kBytes))
        << "two files in one buffer in round " << round;
  }
  renaming.request_stop();
  renaming.join();
  EXPECT_GT(renames.load(), 0);
}

}  // namespace
}  // namespace tiermem::test
