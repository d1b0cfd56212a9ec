// A table on the disk; each of its rows holds unique words.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {

inline constexpr std::uint64_t kRow = 256;

inline std::vector<std::uint64_t> some_rows(std::uint64_t n, std::uint64_t of, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint64_t> rows(n);
  for (std::uint64_t& row : rows) {
    row = random() % of;
  }
  return rows;
}

class TableOnDisk : public ::testing::Test {
 protected:
  std::unique_ptr<Context> make(const std::string& dram, const std::string& more = "") {
    return make_context("dram=" + dram + "; nvme=" + directory_.path() + ":512M" + more);
  }
  /// Creates a buffer that is not in memory.
  Buffer below(Context& context, std::uint64_t bytes, std::uint64_t seed,
               const BufferOptions& options = {}) {
    auto made = context.alloc(bytes, options);
    EXPECT_TRUE(made.ok()) << made.message();
    Buffer buffer = std::move(made).value();
    EXPECT_TRUE(write_pattern(buffer, seed).ok());
    EXPECT_TRUE(buffer.evict().ok());
    return buffer;
  }
  /// Returns the number of words of the rows that differ from those of write_pattern().
  static std::uint64_t wrong_rows(const std::vector<std::byte>& bytes,
                                  const std::vector<std::uint64_t>& rows, std::uint64_t row_bytes,
                                  std::uint64_t seed) {
    std::uint64_t n = 0;
    std::vector<std::uint64_t> words(row_bytes / 8);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::memcpy(words.data(), bytes.data() + i * row_bytes, row_bytes);
      n += wrong(words, seed, rows[i] * (row_bytes / 8));
    }
    return n;
  }
  /// Gathers `n` rows and checks them.
  static void expect_rows(const Buffer& buffer, std::uint64_t row_bytes, std::uint64_t n,
                          std::uint64_t seed, std::uint64_t draw = 1) {
    const auto rows = some_rows(n, buffer.size() / row_bytes, draw);
    std::vector<std::byte> bytes(n * row_bytes);
    const Status status = buffer.gather(row_bytes, rows, bytes.data());
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(wrong_rows(bytes, rows, row_bytes, seed), 0u);
  }
  Directory directory_;
};

}  // namespace tiermem::test
