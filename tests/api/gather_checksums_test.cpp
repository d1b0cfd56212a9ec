// Checksums of bytes that a gather reads. Goal: each block that contains bytes of a row is compared
// with its checksum, wherever the block is in the row. Method: one word of one block is changed on
// the disk.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "api/table_on_disk.hpp"
#include "support/damage.hpp"
#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

using GatherChecksums = TableOnDisk;

TEST_F(GatherChecksums, one_block_of_a_row_of_several_is_damaged_then_the_row_is_lost) {
  for (const Advice advice : {Advice::random, Advice::normal}) {
    const std::uint64_t block = advice == Advice::random ? 4096 : 64 << 10;
    const std::uint64_t row_bytes = advice == Advice::random ? 4 * block - 512 : block;
    const std::uint64_t begin = block + 256;  // The row begins in the middle of its first block.
    const std::uint64_t last = (begin + row_bytes - 1) / block;
    for (std::uint64_t bad = begin / block; bad <= last; ++bad) {
      auto context = make("16M");
      const Buffer table = below(*context, 1 << 20, 7,
                                 {.extent_bytes = 512 << 10, .advice = advice, .label = "victim"});
      // Chooses a word of the row in that block.
      const std::uint64_t at = std::max(bad * block, begin);
      flip_word_on_disk(directory_.path(), word_at(7, at / 8));
      std::vector<std::uint64_t> words(row_bytes / 8);
      const Status status =
          context->gather({table.handle(), 0, row_bytes, 1, &begin, 1}, words.data());
      EXPECT_EQ(status.code(), Code::lost) << "block " << bad << ": " << status.message();
      EXPECT_SAYS(status, "victim");
      // A row of another extent.
      const std::uint64_t other = 768 << 10;
      words.resize(64);
      const Status good = context->gather({table.handle(), 0, 512, 1, &other, 1}, words.data());
      EXPECT_TRUE(good.ok()) << good.message();
      EXPECT_EQ(wrong(words, 7, other / 8), 0u);
    }
  }
}

}  // namespace
}  // namespace tiermem::test
