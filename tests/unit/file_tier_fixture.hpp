// Shared by the tests of adopted files: real files, read through a scripted port.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>

#include "block_fixture.hpp"
#include "scripted_io_port.hpp"
#include "support/directory.hpp"
#include "tier/file.hpp"

namespace tiermem {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kBlock = 4 * kKiB;

inline bool says(const char* text, const std::string& part) {
  return std::string(text).find(part) != std::string::npos;
}

class FileTierTest : public ::testing::Test {
 protected:
  /// Creates a file with the pattern of seed 1. Its times differ from those of a later change.
  std::string file(const std::string& name, std::uint64_t bytes) {
    const std::string path = directory_.path() + "/" + name;
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(pattern(bytes, 1).get()),
               static_cast<std::streamsize>(bytes));
    let_time_pass(path);
    return path;
  }
  /// Waits until a change gets another time: the clock of file systems may stand still for some
  /// milliseconds.
  static void let_time_pass(const std::string& path) {
    struct stat st {};
    ASSERT_EQ(::stat(path.c_str(), &st), 0);
    timespec now{};
    do {
      ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
    } while (now.tv_sec == st.st_ctim.tv_sec && now.tv_nsec <= st.st_ctim.tv_nsec);
  }
  FileTier::Adopted adopt(const std::string& path, std::uint64_t offset = 0,
                          std::uint64_t length = 0) {
    const auto adopted = tier_.adopt(path.c_str(), offset, length);
    EXPECT_TRUE(adopted.ok()) << adopted.message();
    return adopted.ok() ? *adopted : FileTier::Adopted{};
  }
  static SlotId slot_at(SlotId base, std::uint64_t bytes) { return {base.value + bytes / kBlock}; }

  SlotCompletion read(SlotId slot, std::byte* to, std::uint64_t length) {
    tier_.submit({.cookie = 77, .slot = slot, .data = to, .length = length});
    const SlotCompletion completion = reap_one(tier_);
    EXPECT_EQ(completion.cookie, 77U);
    EXPECT_EQ(port_.in_flight, 0U) << "reported with a piece under way";
    SlotCompletion more;
    EXPECT_EQ(tier_.reap({&more, 1}), 0U) << "reported twice";
    return completion;
  }
  /// Returns whether `length` bytes read at `at` from a file of `size` bytes equal the file's
  /// bytes, with zeros past its end.
  bool right(const std::byte* bytes, std::uint64_t at, std::uint64_t length, std::uint64_t size) {
    if (made_ < size) {
      all_ = pattern(size, 1);
      made_ = size;
    }
    const std::uint64_t inside = std::min(length, size - at);
    return std::memcmp(bytes, all_.get() + at, inside) == 0 &&
           std::all_of(bytes + inside, bytes + length,
                       [](std::byte b) { return b == std::byte{}; });
  }
  /// Checks all bytes from `adopted.begin` to the end, one extent at a time.
  void expect_whole(const FileTier::Adopted& adopted, std::uint64_t size, std::uint64_t extent) {
    for (std::uint64_t at = adopted.begin; at < size; at += extent) {
      const Bytes bytes = pattern(extent, 99);
      const SlotCompletion completion =
          read(slot_at(adopted.base, at - adopted.begin), bytes.get(), extent);
      ASSERT_EQ(completion.code, Code::ok) << size << " bytes, at " << at;
      EXPECT_EQ(completion.device_offset, at);
      ASSERT_TRUE(right(bytes.get(), at, extent, size)) << size << " bytes, at " << at;
    }
  }

  const test::Directory directory_;
  ScriptedIoPort port_{0, 0};
  FileTier tier_{port_, 8};

 private:
  Bytes all_;  // The pattern, as long as was needed so far.
  std::uint64_t made_ = 0;
};

}  // namespace tiermem
