// Sizes, offsets, counts and alignments that no memory has. Each call must refuse them with the
// right code, or do exactly what the number says. A model in 128-bit arithmetic decides which.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "support/pattern.hpp"
#include "tiermem.h"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

using Wide = unsigned __int128;

constexpr std::uint64_t kMax = ~std::uint64_t{0};
constexpr std::uint64_t kTop = std::uint64_t{1} << 63;
constexpr std::uint64_t kLargest = std::uint64_t{1} << 47;
constexpr std::uint64_t kSmallExtent = 4096;
constexpr std::uint64_t kLargeExtent = 64 * kMiB;
// A larger number of extents takes memory for its records.
constexpr std::uint64_t kFewExtents = 1 << 16;

/// Returns the numbers next to each power of two up to 2^64.
std::vector<std::uint64_t> edges() {
  std::vector<std::uint64_t> all = {0, kMax};
  for (unsigned bit = 0; bit < 64; ++bit) {
    const std::uint64_t power = std::uint64_t{1} << bit;
    all.insert(all.end(), {power - 1, power, power + 1, power + 4096, 0 - power});
  }
  return all;
}

bool is_power(std::uint64_t n) {
  return std::has_single_bit(n);
}

/// A separate context for each test.
struct Opened {
  Opened() {
    context = make_context("dram=16M; nvme=" + directory.path() + ":64M");
    EXPECT_NE(context, nullptr);
    tm_capabilities caps{};
    caps.size = sizeof(caps);
    EXPECT_EQ(tm_caps(nullptr, &caps), TM_OK);
    most = caps.extents_per_buffer;
  }
  /// Creates an empty file of this size. Returns an empty path if the file system refuses it.
  std::string sparse_file(std::uint64_t bytes) {
    const std::string path = directory.path() + "/sparse";
    const int fd = ::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    const bool made = fd >= 0 && ::ftruncate(fd, static_cast<off_t>(bytes)) == 0;
    ::close(fd);
    return made ? path : std::string();
  }
  Buffer buffer(std::uint64_t bytes, const BufferOptions& options = {}) {
    auto made = context->alloc(bytes, options);
    EXPECT_TRUE(made.ok()) << made.message();
    return made.ok() ? std::move(made).value() : Buffer();
  }

  Directory directory;
  std::unique_ptr<Context> context;
  std::uint64_t most = 0;
};

TEST(FaultsFound, L01_alloc_of_2_to_the_44_in_extents_of_4_kib_is_refused) {
  Opened o;
  const Buffer neighbour = o.buffer(4096, {.extent_bytes = 4096});
  for (const std::uint32_t flags : {0u, std::uint32_t{kMapped}, std::uint32_t{kIsolated}}) {
    const auto made =
        o.context->alloc((std::uint64_t{1} << 44) + 4096, {.extent_bytes = 4096, .flags = flags});
    ASSERT_EQ(made.code(), Code::invalid_argument) << flags;
    const std::string text = made.message();
    EXPECT_NE(text.find("alloc"), std::string::npos) << text;
    EXPECT_NE(text.find("17592186048512 bytes"), std::string::npos) << text;
    EXPECT_NE(text.find("larger extent size"), std::string::npos) << text;
  }
}

TEST(FaultsFound, L01_alloc_one_byte_above_the_limit_of_each_extent_size_is_refused) {
  Opened o;
  for (std::uint64_t extent = kSmallExtent; extent <= kLargeExtent; extent *= 2) {
    const auto limit = static_cast<std::uint64_t>(std::min<Wide>(kLargest, Wide{o.most} * extent));
    for (const std::uint32_t flags : {0u, std::uint32_t{kMapped}}) {
      // Each of these had 0, 1 or 2 extents when the count was cut to 32 bits.
      const Wide wrapped[] = {Wide{limit} + 1, (Wide{1} << 32) * extent,
                              ((Wide{1} << 32) + 1) * extent, ((Wide{1} << 33) + 2) * extent};
      for (const Wide bytes : wrapped) {
        if (bytes > kMax) {
          continue;
        }
        const auto made = o.context->alloc(static_cast<std::uint64_t>(bytes),
                                           {.extent_bytes = extent, .flags = flags});
        EXPECT_EQ(made.code(), Code::invalid_argument) << extent << " " << std::uint64_t(bytes);
      }
    }
  }
}

TEST(FaultsFound, L01_alloc_takes_and_refuses_what_the_model_does) {
  Opened o;
  std::mt19937_64 random(1);
  const std::vector<std::uint64_t> numbers = edges();
  const auto draw = [&] { return numbers[random() % numbers.size()]; };
  unsigned taken = 0;
  for (unsigned n = 0; n < 8000; ++n) {
    const std::uint64_t bytes = draw();
    const std::uint64_t asked = random() % 4 == 0   ? draw()
                                : random() % 4 == 0 ? 0
                                                    : kSmallExtent << random() % 15;
    const std::uint64_t alignment = random() % 2 == 0 ? 0 : draw();
    const bool named =
        asked == 0 || (is_power(asked) && asked >= kSmallExtent && asked <= kLargeExtent);
    const bool sized = bytes != 0 && bytes <= kLargest;
    const std::uint64_t extent =
        asked != 0 || !sized ? asked : std::clamp(std::bit_ceil(bytes), kSmallExtent, 2 * kMiB);
    const bool aligned = alignment == 0 || (is_power(alignment) && alignment <= extent);
    const Wide extents = named && sized ? (Wide{bytes} + extent - 1) / extent : 0;
    const bool valid = named && sized && aligned && extents <= o.most;
    if (valid && extents > kFewExtents) {
      continue;
    }
    const auto made = o.context->alloc(bytes, {.extent_bytes = asked, .alignment = alignment});
    // The process may run out of address space if it has a limit.
    ASSERT_TRUE(valid ? made.ok() || made.code() == Code::no_capacity
                      : made.code() == Code::invalid_argument)
        << bytes << " " << asked << " " << alignment << ": " << made.message();
    if (made.ok()) {
      ++taken;
      const auto info = made->info();
      ASSERT_TRUE(info.ok());
      ASSERT_EQ(info->bytes, bytes);
      ASSERT_EQ(info->extent_bytes, extent);
      ASSERT_EQ(Wide{info->extents}, extents);
    }
  }
  EXPECT_GT(taken, 100u);
}

TEST(FaultsFound, L01_views_take_and_refuse_what_the_model_does) {
  Opened o;
  const std::uint64_t bytes = 3 * kMiB + 100;
  Buffer table = o.buffer(bytes, {.extent_bytes = 65536});
  const std::vector<std::uint64_t> numbers = edges();
  std::mt19937_64 random(8);
  for (unsigned n = 0; n < 8000; ++n) {
    const std::uint64_t offset = numbers[random() % numbers.size()];
    const std::uint64_t length = numbers[random() % numbers.size()];
    const Wide end = Wide{offset} + (length != 0 ? length : bytes - std::min(offset, bytes));
    const bool valid = end <= bytes && end > offset;
    {
      const auto view = table.acquire(kRead, offset, length);
      ASSERT_EQ(view.code(), valid ? Code::ok : Code::invalid_argument)
          << offset << " " << length << ": " << view.message();
      if (valid) {
        ASSERT_EQ(Wide{view->size()}, end - offset);
      }
    }
    const Access range{table.handle(), offset, length, kRead, {}, 0};
    ASSERT_EQ(o.context->evict({&range, 1}).code(), valid ? Code::ok : Code::invalid_argument);
  }
}

TEST(FaultsFound, L01_copies_take_and_refuse_what_the_model_does) {
  Opened o;
  const std::uint64_t bytes = 100'000;
  Buffer table = o.buffer(bytes);
  std::vector<std::byte> memory(bytes);
  for (const std::uint64_t offset : edges()) {
    for (const std::uint64_t length : edges()) {
      const bool valid = length == 0 || Wide{offset} + length <= bytes;
      const Code code = valid ? Code::ok : Code::invalid_argument;
      ASSERT_EQ(o.context->read(table.handle(), offset, memory.data(), length).code(), code);
      ASSERT_EQ(o.context->write(table.handle(), offset, memory.data(), length).code(), code);
    }
  }
}

TEST(FaultsFound, L01_move_bytes_takes_and_refuses_what_the_model_does) {
  Opened o;
  const std::uint64_t bytes = 256 << 10;
  auto to = o.context->alloc(bytes, {.extent_bytes = 65536, .flags = kMapped});
  if (to.code() == Code::unsupported) {
    GTEST_SKIP() << to.message();
  }
  Buffer from = o.buffer(bytes, {.extent_bytes = 65536, .flags = kMapped});
  std::mt19937_64 random(2);
  const std::vector<std::uint64_t> numbers = edges();
  for (unsigned n = 0; n < 4000; ++n) {
    const std::uint64_t at = numbers[random() % numbers.size()];
    const std::uint64_t there = numbers[random() % numbers.size()];
    const std::uint64_t length = numbers[random() % numbers.size()];
    const bool valid = length == 0 || (Wide{at} + length <= bytes && Wide{there} + length <= bytes);
    ASSERT_EQ(o.context->move_bytes(to->handle(), at, from.handle(), there, length).code(),
              valid ? Code::ok : Code::invalid_argument)
        << at << " " << there << " " << length;
  }
}

TEST(FaultsFound, L01_rows_take_and_refuse_what_the_model_does) {
  Opened o;
  const std::uint64_t bytes = 200'000;
  Buffer table = o.buffer(bytes);
  Buffer target = o.buffer(bytes);
  std::vector<std::byte> memory(std::size_t{64} << 10);
  std::mt19937_64 random(3);
  const std::vector<std::uint64_t> numbers = edges();
  const auto draw = [&] {
    return random() % 2 == 0 ? numbers[random() % numbers.size()] : random() % (bytes / 16);
  };
  unsigned taken = 0;
  for (unsigned n = 0; n < 20'000; ++n) {
    const std::uint64_t index = draw();
    Rows rows{table.handle(), draw(), draw(), draw(), &index, 1};
    const std::uint64_t stride = rows.stride != 0 ? rows.stride : rows.row_bytes;
    const bool valid = rows.row_bytes >= 1 && rows.row_bytes <= 65536 &&
                       Wide{rows.offset} + Wide{index} * stride + rows.row_bytes <= bytes;
    const Code code = valid ? Code::ok : Code::invalid_argument;
    taken += valid ? 1 : 0;
    ASSERT_EQ(o.context->gather(rows, memory.data()).code(), code)
        << rows.offset << " " << rows.row_bytes << " " << rows.stride << " " << index;
    ASSERT_EQ(o.context->scatter(rows, memory.data()).code(), code);
    const std::uint64_t offset = draw();
    const bool fits = Wide{offset} + rows.row_bytes <= bytes;
    ASSERT_EQ(o.context->gather_into(rows, target.handle(), offset).code(),
              valid && fits ? Code::ok : Code::invalid_argument)
        << offset << " " << rows.row_bytes;
  }
  EXPECT_GT(taken, 100u);
}

TEST(FaultsFound, L01_rows_more_than_memory_holds_are_refused_before_the_list_is_read) {
  Opened o;
  Buffer table = o.buffer(1 * kMiB);
  Buffer target = o.buffer(1 * kMiB);
  std::byte memory[64];
  const std::uint64_t index = 0;
  const std::uint64_t counts[] = {
      kMax, kTop, kTop / 8, kTop + 1, (kMax / 65536) + 1, kMax / 64 + 1, kLargest * 1024};
  for (const std::uint64_t count : counts) {
    for (const std::uint64_t row_bytes : {1u, 16u, 64u, 65536u}) {
      const Rows rows{table.handle(), 0, row_bytes, 0, &index, count};
      EXPECT_EQ(o.context->gather(rows, memory).code(), Code::invalid_argument) << count;
      EXPECT_EQ(o.context->scatter(rows, memory).code(), Code::invalid_argument) << count;
      EXPECT_EQ(o.context->gather_into(rows, target.handle(), 0).code(), Code::invalid_argument)
          << count;
    }
  }
}

TEST(FaultsFound, L01_adopt_file_takes_and_refuses_what_the_model_does) {
  Opened o;
  const std::uint64_t file_bytes = std::uint64_t{1} << 43;  // ext4 has files of up to 2^44 bytes.
  const std::string path = o.sparse_file(file_bytes);
  if (path.empty()) {
    GTEST_SKIP() << "no file of 2^43 bytes in " << o.directory.path();
  }
  const std::vector<std::uint64_t> numbers = edges();
  std::mt19937_64 random(4);
  for (unsigned n = 0; n < 2500; ++n) {
    const std::uint64_t offset = numbers[random() % numbers.size()];
    const std::uint64_t length = numbers[random() % numbers.size()];
    const std::uint64_t extent = kSmallExtent << random() % 15;
    const bool inside = offset < file_bytes && Wide{offset} + length <= file_bytes;
    const std::uint64_t bytes = length != 0 ? length : file_bytes - std::min(offset, file_bytes);
    const Wide extents = (Wide{offset % 4096} + bytes + extent - 1) / extent;
    const bool valid = inside && extents <= o.most && Wide{bytes} + offset % 4096 <= kLargest;
    if (valid && extents > kFewExtents) {
      continue;
    }
    const auto made = o.context->adopt_file(path.c_str(), offset, length, {.extent_bytes = extent});
    ASSERT_TRUE(valid ? made.ok() || made.code() == Code::no_capacity
                      : made.code() == Code::invalid_argument)
        << offset << " " << length << " " << extent << ": " << made.message();
    if (made.ok()) {
      ASSERT_EQ(made->size(), bytes);
    }
  }
}

// With the fault, the bits of an offset of 2^56 or more changed the number of the file.
TEST(FaultsFound, L01_adopt_file_at_the_end_of_8_eib_is_refused_and_below_2_to_the_56_reads) {
  Opened o;
  const Directory in_memory("/dev/shm");  // tmpfs has files of up to 2^63 - 1 bytes.
  const std::string path = in_memory.path() + "/huge";
  const int fd = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  const std::uint64_t last = (std::uint64_t{1} << 56) - 4096;
  const std::uint64_t word = 0x0123456789abcdef;
  const bool made = fd >= 0 && ::ftruncate(fd, INT64_MAX) == 0 &&
                    ::pwrite(fd, &word, 8, static_cast<off_t>(last)) == 8;
  ::close(fd);
  if (!made) {
    GTEST_SKIP() << "no file of 2^63 - 1 bytes in /dev/shm";
  }
  EXPECT_EQ(o.context->adopt_file(path.c_str()).code(), Code::invalid_argument);
  EXPECT_EQ(o.context->adopt_file(path.c_str(), 4096).code(), Code::invalid_argument);
  for (const std::uint64_t offset :
       {last + 1, last + 4096, std::uint64_t{1} << 60, std::uint64_t{INT64_MAX} - 4096}) {
    const auto refused = o.context->adopt_file(path.c_str(), offset, 4096);
    EXPECT_EQ(refused.code(), Code::invalid_argument) << offset;
  }
  auto buffer = o.context->adopt_file(path.c_str(), last, 4096);
  ASSERT_TRUE(buffer.ok()) << buffer.message();
  const auto view = buffer->acquire(kRead);
  ASSERT_TRUE(view.ok()) << view.message();
  EXPECT_EQ(view->as<std::uint64_t>()[0], word);
}

TEST(FaultsFound, L01_malloc_takes_and_refuses_what_the_model_does) {
  Opened o;
  std::mt19937_64 random(5);
  const std::vector<std::uint64_t> numbers = edges();
  for (const Kind kind : {Kind::any, Kind::dram}) {
    for (unsigned n = 0; n < 3000; ++n) {
      const std::uint64_t bytes = numbers[random() % numbers.size()];
      const std::uint64_t alignment = random() % 2 == 0 ? std::uint64_t{16} << random() % 60
                                                        : numbers[random() % numbers.size()];
      const bool valid = bytes <= kLargest && is_power(alignment) && alignment <= kLargeExtent;
      // Larger blocks are refused for lack of memory, or wait for it.
      if (valid && std::max(bytes, alignment) > kMiB) {
        continue;
      }
      const auto block = o.context->malloc_at({kind, 0}, bytes, alignment);
      ASSERT_EQ(block.code(), valid ? Code::ok : Code::invalid_argument)
          << bytes << " " << alignment << ": " << block.message();
      if (block.ok()) {
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(*block) % alignment, 0u);
        ASSERT_GE(o.context->usable_size(*block).value(), bytes);
        ASSERT_TRUE(o.context->free_ptr(*block).ok());
      }
    }
  }
}

TEST(FaultsFound, L01_budgets_up_to_the_largest_number_keep_the_bytes) {
  Opened o;
  Buffer table = o.buffer(8 * kMiB);
  ASSERT_TRUE(write_pattern(table, 6).ok());
  for (const std::uint64_t bytes : edges()) {
    if (bytes >= 4096 && bytes < 4 * kMiB) {
      continue;  // At least one extent must fit; the smallest budgets have their own tests.
    }
    for (const Kind kind : {Kind::dram, Kind::block}) {
      const Status status = o.context->set_budget({kind, 0}, bytes, Timeout::seconds(20));
      ASSERT_EQ(status.code(), bytes < 4096 ? Code::invalid_argument : Code::ok)
          << bytes << ": " << status.message();
    }
  }
  EXPECT_EQ(wrong_words(table, 6), 0u);
  ASSERT_TRUE(o.context->set_budget({Kind::dram, 0}, 4 * kMiB).ok());
  EXPECT_EQ(wrong_words(table, 6), 0u);
}

TEST(FaultsFound, L01_timeouts_of_the_smallest_and_largest_numbers_mean_for_ever) {
  Opened o;
  constexpr std::int64_t kLongest = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();
  static_assert(Timeout::seconds(kLongest).ns == kLongest);
  static_assert(Timeout::milliseconds(kLongest).ns == kLongest);
  static_assert(Timeout::seconds(kNever).ns == kNever);
  static_assert(Timeout::milliseconds(-1).ns < 0 && Timeout::seconds(1).ns == 1'000'000'000);
  Buffer table = o.buffer(4 * kMiB);
  std::vector<std::byte> memory(4 * kMiB);
  for (const std::int64_t ns : {kLongest, kLongest - 1, kNever, kNever + 1, std::int64_t{-1}}) {
    const Timeout timeout{ns};
    ASSERT_TRUE(table.evict().ok());
    EXPECT_TRUE(o.context->read(table.handle(), 0, memory.data(), memory.size(), timeout).ok())
        << ns;
    EXPECT_TRUE(o.context->write(table.handle(), 0, memory.data(), memory.size(), timeout).ok());
    const Access all = table.range();
    EXPECT_TRUE(o.context->evict({&all, 1}, timeout).ok()) << ns;
    EXPECT_TRUE(table.acquire(kRead, 0, 0, timeout).ok()) << ns;
    EXPECT_TRUE(o.context->set_budget({Kind::dram, 0}, 8 * kMiB, timeout).ok()) << ns;
    const std::uint64_t index = 0;
    const Rows rows{table.handle(), 0, 64, 0, &index, 1};
    EXPECT_TRUE(o.context->gather(rows, memory.data(), timeout).ok()) << ns;
    EXPECT_TRUE(o.context->scatter(rows, memory.data(), timeout).ok()) << ns;
  }
}

TEST(FaultsFound, L01_advice_of_any_value_and_prefetch_of_any_next_use_keep_the_bytes) {
  Opened o;
  Buffer table = o.buffer(24 * kMiB);
  ASSERT_TRUE(write_pattern(table, 7).ok());
  for (const std::uint64_t value : edges()) {
    const Access all = table.range();
    ASSERT_TRUE(o.context->advise({&all, 1}, Advice::next_use, value).ok());
    ASSERT_TRUE(o.context->advise({&all, 1}, Advice::keep, value).ok());
    ASSERT_TRUE(o.context->advise({&all, 1}, Advice::keep, 0).ok());
    ASSERT_TRUE(o.context->prefetch({&all, 1}, value).ok());
  }
  EXPECT_EQ(wrong_words(table, 7), 0u);
}

TEST(FaultsFound, L01_views_of_the_whole_largest_buffer_are_refused_for_want_of_memory) {
  Opened o;
  auto huge = o.context->alloc(std::uint64_t{1} << 41, {.extent_bytes = 2 * kMiB});
  if (huge.code() == Code::no_capacity) {
    GTEST_SKIP() << huge.message();
  }
  ASSERT_TRUE(huge.ok()) << huge.message();
  for (const std::uint32_t mode : {std::uint32_t{kRead}, std::uint32_t{kWrite}}) {
    const auto view = huge->acquire(mode, 0, 0, Timeout::seconds(5));
    EXPECT_EQ(view.code(), Code::no_capacity) << view.message();
  }
  std::uint64_t word = 8;
  ASSERT_TRUE(o.context->write(huge->handle(), huge->size() - 8, &word, 8).ok());
  word = 0;
  ASSERT_TRUE(o.context->read(huge->handle(), huge->size() - 8, &word, 8).ok());
  EXPECT_EQ(word, 8u);
}

TEST(FaultsFound, L01_stream_over_a_range_that_wraps_ends_with_an_error) {
  Opened o;
  Buffer table = o.buffer(4 * kMiB);
  const Access wraps{table.handle(), 8, kMax - 4, kRead, {}, 0};
  Stream stream(*o.context, wraps, kMiB, 2);
  for (const View& view : stream) {
    ADD_FAILURE() << view.size();
  }
  EXPECT_EQ(stream.status().code(), Code::invalid_argument);
  std::uint64_t bytes = 0;
  Stream whole(*o.context, table.range(), kMax, 1000);
  for (const View& view : whole) {
    bytes += view.size();
  }
  EXPECT_EQ(bytes, table.size());
  EXPECT_TRUE(whole.status().ok()) << whole.status().message();
}

TEST(FaultsFound, L01_caps_name_the_largest_buffer_of_each_extent_size) {
  Opened o;
  tm_context* c = nullptr;
  const std::string tiers = "dram=16M; nvme=" + o.directory.path() + ":64M";
  ASSERT_EQ(tm_context_create(tiers.c_str(), nullptr, &c), TM_OK);
  tm_capabilities caps{};
  caps.size = sizeof(caps);
  ASSERT_EQ(tm_caps(c, &caps), TM_OK);
  EXPECT_EQ(Wide{caps.buffer_largest},
            std::min<Wide>(kLargest, Wide{caps.extents_per_buffer} * caps.extent_largest));
  for (std::uint64_t extent = caps.extent_smallest; extent <= caps.extent_largest; extent *= 2) {
    tm_buffer_options options{};
    options.size = sizeof(options);
    options.extent_bytes = extent;
    tm_buffer out = 77;
    const auto limit = static_cast<std::uint64_t>(
        std::min<Wide>(kLargest, Wide{caps.extents_per_buffer} * extent));
    EXPECT_EQ(tm_alloc(c, limit + 1, &options, &out), TM_INVALID_ARGUMENT);
    EXPECT_EQ(out, 77u);
  }
  ASSERT_EQ(tm_context_destroy(c, 0, -1), TM_OK);
}

}  // namespace
}  // namespace tiermem::test
