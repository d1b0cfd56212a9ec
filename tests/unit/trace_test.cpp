// Trace formats: which texts are accepted, and that an error names the line and what was expected
// there.
#include "policy/trace.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <vector>

#include "cli/read_file.hpp"
#include "support/directory.hpp"

namespace tiermem {
namespace {

std::vector<std::uint32_t> blocks_of(const Trace& trace) {
  std::vector<std::uint32_t> blocks;
  for (const Reference& reference : trace.references) {
    blocks.push_back(reference.block);
  }
  return blocks;
}

using Blocks = std::vector<std::uint32_t>;

TEST(Trace, arc_runs_become_references_to_dense_blocks) {
  const auto trace = parse_trace("folder/a.lis.zst", "1000 3 0 0\n1001 1 0 1\r\n\n7 1 0 2");
  ASSERT_TRUE(trace.ok()) << trace.message();
  EXPECT_EQ(trace->name, "a");
  EXPECT_EQ(trace->blocks, 4u);
  EXPECT_EQ(blocks_of(*trace), (Blocks{0, 1, 2, 1, 3}));
}

TEST(Trace, lirs_lines_with_a_star_are_ignored) {
  const auto trace = parse_trace("loop.trace", "5\n*\n* phase two\n9\n5\n");
  ASSERT_TRUE(trace.ok()) << trace.message();
  EXPECT_EQ(trace->name, "loop");
  EXPECT_EQ(blocks_of(*trace), (Blocks{0, 1, 0}));
}

TEST(Trace, mooncake_takes_the_hash_ids_of_each_object) {
  const auto trace = parse_trace("kv.jsonl.gz",
                                 "{\"timestamp\": 0, \"hash_ids\": [4, 2]}\n{\"hash_ids\": []}\n"
                                 "{\"hash_ids\": [4, 8], \"x\": {\"y\": [1]}}\n");
  ASSERT_TRUE(trace.ok()) << trace.message();
  EXPECT_EQ(blocks_of(*trace), (Blocks{0, 1, 0, 2}));
  EXPECT_EQ(trace->request_ends, (std::vector<std::uint64_t>{2, 2, 4}));
}

TEST(Trace, tensors_are_split_into_extents_of_2_MiB) {
  const auto trace = parse_trace("g.ttrace",
                                 "# comment\nT 7 4194305 0\nT 3 1 1\nT 4 0 0\n"
                                 "K 0 100 add r:3 w:7\nK 1 100 mul r:7,3 w:\nK 2 5 none\n");
  ASSERT_TRUE(trace.ok()) << trace.message();
  EXPECT_EQ(trace->block_bytes_hint, 2u << 20);
  EXPECT_EQ(trace->blocks, 4u);
  EXPECT_EQ(blocks_of(*trace), (Blocks{3, 0, 1, 2, 0, 1, 2, 3}));
  EXPECT_FALSE(trace->references[0].write);
  EXPECT_TRUE(trace->references[1].write);
  EXPECT_FALSE(trace->references[4].write);
}

TEST(Trace, errors_name_the_line_and_what_was_expected) {
  struct Case {
    const char *file, *text, *line, *expected;
  };
  const Case cases[] = {
      {"a.lis", "1 1 0 0\n1 x 0 0\n", "line 2", "start count"},
      {"a.lis", "1 1 0\n", "line 1", "start count"},
      {"a.lis", "18446744073709551615 2 0 0\n", "line 1", "2^64"},
      {"a.trace", "1\n2\n-3\n", "line 3", "block number"},
      {"a.trace", "1 2\n", "line 1", "block number"},
      {"a.trace", "99999999999999999999\n", "line 1", "block number"},
      {"a.jsonl", "{\"hash_ids\": [1]}\n{\"hash_ids\": 3}", "line 2", "hash_ids"},
      {"a.jsonl", "{\"hash_ids\": [1.5]}", "line 1", "numbers"},
      {"a.jsonl", "[", "line 1", "JSON"},
      {"a.ttrace", "T 1 5 2\n", "line 1", "persistent"},
      {"a.ttrace", "T 1 5 1\nT 1 5 1\n", "line 2", "not defined before"},
      {"a.ttrace", "T 1 5 1\nK 0 1 n r:1,2\n", "line 2", "defined above"},
      {"a.ttrace", "T 1 5 1\nK 0 1 n q:1\n", "line 2", "'r:' or 'w:'"},
      {"a.ttrace", "\n\nX\n", "line 3", "'K number"},
      {"a.txt", "1\n", "a.txt", ".ttrace"},
      {"a.trace", "*\n", "1 lines", "no reference"},
  };
  for (const Case& c : cases) {
    const auto trace = parse_trace(c.file, c.text);
    ASSERT_FALSE(trace.ok()) << c.text;
    EXPECT_EQ(trace.code(), Code::invalid_argument) << c.text;
    EXPECT_NE(std::string(trace.message()).find(c.line), std::string::npos) << trace.message();
    EXPECT_NE(std::string(trace.message()).find(c.expected), std::string::npos) << trace.message();
  }
}

TEST(Trace, a_short_text_cannot_ask_for_more_than_the_limits) {
  const TraceLimits limits{1000, 500};
  EXPECT_EQ(parse_trace("a.lis", "0 18446744073709551615 0 0", limits).code(), Code::no_capacity);
  EXPECT_EQ(parse_trace("a.ttrace", "T 1 18446744073709551615 0", limits).code(),
            Code::no_capacity);
  const std::string again = "T 1 1000000000 0\nK 0 1 n r:1,1,1\n";
  EXPECT_EQ(parse_trace("a.ttrace", again, limits).code(), Code::no_capacity);
  EXPECT_TRUE(parse_trace("a.ttrace", again, TraceLimits{2000, 500}).ok());
}

class ReadFile : public testing::Test {
 protected:
  std::string write(const char* name, const std::string& bytes) {
    const std::string path = folder_.path() + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  const test::Directory folder_;
};

TEST_F(ReadFile, plain_bytes_come_as_they_are_up_to_the_limit) {
  const std::string path = write("a.lis", std::string("1 2\0 3", 6));
  const auto bytes = cli::read_compressed(path);
  ASSERT_TRUE(bytes.ok()) << bytes.message();
  EXPECT_EQ(*bytes, std::string("1 2\0 3", 6));
  EXPECT_EQ(cli::read_compressed(path, 5).code(), Code::no_capacity);
  EXPECT_EQ(cli::read_compressed(path, 6).value().size(), 6u);
}

TEST_F(ReadFile, a_missing_file_is_an_io_error_with_errno) {
  const auto bytes = cli::read_compressed(folder_.path() + "/none.gz");
#ifdef TIERMEM_HAVE_ZLIB
  ASSERT_EQ(bytes.code(), Code::io_error);
  EXPECT_EQ(bytes.status().info()->native, ENOENT);
#else
  EXPECT_EQ(bytes.code(), Code::unsupported);
#endif
}

#ifdef TIERMEM_HAVE_ZLIB
TEST_F(ReadFile, members_of_a_gzip_file_are_joined_and_damage_is_told) {
  // Two members, "one\n" and "two\n", as gzip -n writes them.
  const unsigned char kOne[] = {0x1f, 0x8b, 8, 0, 0,    0,    0,    0,    0, 3, 0xcb, 0xcf,
                                0x4b, 0xe5, 2, 0, 0x9f, 0xa8, 0x17, 0xf8, 4, 0, 0,    0};
  std::string one(reinterpret_cast<const char*>(kOne), sizeof(kOne));
  const auto bytes = cli::read_compressed(write("a.gz", one + one));
  ASSERT_TRUE(bytes.ok()) << bytes.message();
  EXPECT_EQ(*bytes, "one\none\n");
  EXPECT_EQ(cli::read_compressed(write("b.gz", one.substr(0, 20))).code(), Code::invalid_argument);
  one[12] ^= 1;
  EXPECT_EQ(cli::read_compressed(write("c.gz", one)).code(), Code::invalid_argument);
  EXPECT_EQ(cli::read_compressed(write("d.gz", "")).code(), Code::invalid_argument);
}
#else
TEST_F(ReadFile, gzip_is_unsupported_in_a_build_without_zlib) {
  EXPECT_EQ(cli::read_compressed(write("a.gz", "x")).code(), Code::unsupported);
}
#endif

#ifdef TIERMEM_HAVE_ZSTD
TEST_F(ReadFile, zstd_data_that_are_damaged_or_cut_are_told) {
  EXPECT_EQ(cli::read_compressed(write("a.zst", "not zstd at all")).code(), Code::invalid_argument);
  EXPECT_EQ(cli::read_compressed(write("b.zst", "")).code(), Code::invalid_argument);
  // "one
  // " as one frame without a checksum, then the same frame cut short.
  const unsigned char kOne[] = {0x28, 0xb5, 0x2f, 0xfd, 0x20, 4, 0x21, 0, 0, 'o', 'n', 'e', '\n'};
  const std::string one(reinterpret_cast<const char*>(kOne), sizeof(kOne));
  const auto bytes = cli::read_compressed(write("c.zst", one + one));
  ASSERT_TRUE(bytes.ok()) << bytes.message();
  EXPECT_EQ(*bytes, "one\none\n");
  EXPECT_EQ(cli::read_compressed(write("d.zst", one.substr(0, 11))).code(), Code::invalid_argument);
}
#else
TEST_F(ReadFile, zstd_is_unsupported_in_a_build_without_it) {
  EXPECT_EQ(cli::read_compressed(write("a.zst", "x")).code(), Code::unsupported);
}
#endif

}  // namespace
}  // namespace tiermem
