// Contexts with compressed memory: mapped buffers beyond DRAM, with bytes that shrink, that do not,
// and both, beside writers and forks.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/pattern.hpp"
#include "support/sanitizers.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

constexpr Place kCompressed{Kind::compressed, 0};
constexpr std::uint64_t kWords = 4096 / 8;

class CompressedMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto tried = Context::create(spec());
    if (tried.code() == Code::unsupported) {
      GTEST_SKIP() << tried.message();
    }
  }
  std::string spec() const {
    return "dram=16M; compressed=8M; nvme=" + directory_.path() + ":256M";
  }
  std::unique_ptr<Context> make(const std::string& more = "") const {
    return make_context(spec() + more);
  }
  static Buffer mapped(Context& context, std::uint64_t bytes) {
    BufferOptions options;
    options.flags = kMapped;
    options.extent_bytes = 64 << 10;
    auto buffer = context.alloc(bytes, options);
    EXPECT_TRUE(buffer.ok()) << buffer.message();
    return buffer.ok() ? std::move(*buffer) : Buffer();
  }
  static std::uint64_t* words_of(const Buffer& buffer) {
    return reinterpret_cast<std::uint64_t*>(*buffer.address());
  }
  // A page with one byte in four at random shrinks to less than a half.
  static std::uint64_t word(std::uint64_t page, std::uint64_t i, std::uint64_t version) {
    return i % 4 == 0 ? word_at(version + 1, page * kWords + i) : 0x2020202020202020;
  }
  static void write_page(std::uint64_t* words, std::uint64_t page, std::uint64_t version) {
    for (std::uint64_t i = 0; i < kWords; ++i) {
      words[page * kWords + i] = word(page, i, version);
    }
  }
  static void write_all(const Buffer& buffer, std::uint64_t version) {
    for (std::uint64_t page = 0; page < buffer.size() / 4096; ++page) {
      write_page(words_of(buffer), page, version);
    }
  }
  static std::uint64_t wrong_in(const std::uint64_t* words, std::uint64_t page,
                                std::uint64_t version) {
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < kWords; ++i) {
      wrong += words[page * kWords + i] != word(page, i, version) ? 1 : 0;
    }
    return wrong;
  }
  /// Reads pages of write_all(buffer, 0) at random. Returns the number of wrong words.
  static std::uint64_t wrong_at_random(const Buffer& buffer, int touches) {
    std::mt19937_64 random(1);
    std::uint64_t wrong = 0;
    for (int touch = 0; touch < touches; ++touch) {
      wrong += wrong_in(words_of(buffer), random() % (buffer.size() / 4096), 0);
    }
    return wrong;
  }
  static TierStats tier(const Context& context, Place place) {
    const Stats stats = context.stats();
    const TierStats* const found = stats.tier(place);
    EXPECT_NE(found, nullptr);
    return found != nullptr ? *found : TierStats{};
  }
  /// Three threads write and read pages that shrink and pages that do not, and check every word.
  static void write_and_read(Context& context);
  Directory directory_;
};

TEST_F(CompressedMemory, pages_that_shrink_come_back_without_reads_of_the_drive) {
  auto context = make();
  ASSERT_NE(context, nullptr);
  const Buffer buffer = mapped(*context, 18 * kMiB);
  write_all(buffer, 0);
  EXPECT_EQ(wrong_at_random(buffer, 20'000), 0u);
  const TierStats compressed = tier(*context, kCompressed);
  const TierStats drive = tier(*context, {Kind::block, 0});
  EXPECT_GT(compressed.bytes_in, 8 * kMiB);
  EXPECT_GT(compressed.bytes_out, 8 * kMiB);
  EXPECT_LT(drive.bytes_out, compressed.bytes_out / 8);
  EXPECT_LE(compressed.used, compressed.budget);
  EXPECT_LE(tier(*context, {Kind::dram, 0}).budget + compressed.budget, 16 * kMiB);
}

// Nothing is read while the buffer is filled, and nothing goes on to the drive.
TEST_F(CompressedMemory, buffer_that_is_filled_before_it_is_read_uses_it) {
  auto context = make_context("dram=64M; compressed=32M; nvme=" + directory_.path() + ":256M");
  ASSERT_NE(context, nullptr);
  const Buffer buffer = mapped(*context, 80 * kMiB);
  write_all(buffer, 0);
  EXPECT_GT(tier(*context, kCompressed).bytes_in, 40 * kMiB);
  EXPECT_EQ(wrong_at_random(buffer, 10'000), 0u);
  EXPECT_LT(tier(*context, {Kind::block, 0}).bytes_out, tier(*context, kCompressed).bytes_out / 8);
}

// Each page has the version of its last write, whatever tier has it.
void CompressedMemory::write_and_read(Context& context) {
  const Buffer buffer = mapped(context, 96 * kMiB);
  std::uint64_t* const words = words_of(buffer);
  const std::uint64_t pages = buffer.size() / 4096;
  std::vector<std::thread> threads;
  std::vector<std::uint64_t> wrong(3, 0);
  for (unsigned t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      std::vector<std::uint64_t> version(pages / 3 + 1, 0);
      for (int round = 0; round < (kThreadSanitizer ? 8'000 : 30'000); ++round) {
        // Half of the touches go to a tenth of the pages.
        const std::uint64_t some = pages / 3;
        const std::uint64_t at = random() % 2 == 0 ? random() % (some / 10) : random() % some;
        const std::uint64_t page = at * 3 + t;
        std::uint64_t& last = version[at];
        if (last != 0) {
          // A version that is a multiple of 8 does not shrink.
          wrong[t] += last % 8 == 0 ? words[page * kWords] != word_at(last, page)
                                    : wrong_in(words, page, last);
        }
        if (last == 0 || random() % 4 == 0) {
          ++last;
          if (last % 8 == 0) {
            for (std::uint64_t i = 0; i < kWords; ++i) {
              words[page * kWords + i] = word_at(last, page + i);
            }
          } else {
            write_page(words, page, last);
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, std::vector<std::uint64_t>(3, 0));
  EXPECT_GT(tier(context, kCompressed).bytes_out, 0u);
  EXPECT_GT(tier(context, {Kind::block, 0}).bytes_in, 0u) << "cold pages went on";
}

TEST_F(CompressedMemory, every_byte_is_as_it_was_written_beyond_all_of_it) {
  auto context = make();
  ASSERT_NE(context, nullptr);
  write_and_read(*context);
}

// While the mover packs other pages.
TEST_F(CompressedMemory, every_byte_is_as_it_was_written_where_the_touching_threads_unpack) {
  auto context = Context::create(spec() + "; userfault=signal");
  if (context.code() == Code::unsupported) {
    GTEST_SKIP() << context.message();
  }
  ASSERT_TRUE(context.ok()) << context.message();
  write_and_read(**context);
}

TEST_F(CompressedMemory, bytes_that_do_not_shrink_are_hardly_offered) {
  auto context = make();
  ASSERT_NE(context, nullptr);
  Buffer buffer = mapped(*context, 64 * kMiB);
  for (std::uint64_t round = 1; round <= 4; ++round) {
    ASSERT_TRUE(write_pattern(buffer, round).ok());
    EXPECT_EQ(wrong_words(buffer, round), 0u);
  }
  EXPECT_LT(tier(*context, kCompressed).bytes_in, 32 * kMiB);
  EXPECT_GT(tier(*context, {Kind::block, 0}).bytes_in, 128 * kMiB);
}

TEST_F(CompressedMemory, buffers_that_are_not_mapped_do_not_use_it) {
  auto context = make();
  ASSERT_NE(context, nullptr);
  Buffer buffer = make_buffer(*context, 48 * kMiB, "views");
  ASSERT_TRUE(write_pattern(buffer, 1).ok());
  EXPECT_EQ(wrong_words(buffer, 1), 0u);
  EXPECT_EQ(tier(*context, kCompressed).bytes_in, 0u);
}

TEST_F(CompressedMemory, freed_buffers_leave_nothing_in_it) {
  auto context = make();
  ASSERT_NE(context, nullptr);
  for (int round = 0; round < 3; ++round) {
    const Buffer buffer = mapped(*context, 32 * kMiB);
    write_all(buffer, 0);
    EXPECT_GT(tier(*context, kCompressed).used, 0u);
  }
  EXPECT_TRUE(eventually([&] { return tier(*context, kCompressed).used == 0; }));
}

TEST_F(CompressedMemory, parent_and_child_go_on_with_their_own_bytes) {
  auto context = make("; fork=follow");
  ASSERT_NE(context, nullptr);
  const Buffer buffer = mapped(*context, 40 * kMiB);
  std::uint64_t* const words = words_of(buffer);
  const std::uint64_t pages = buffer.size() / 4096;
  write_all(buffer, 1);
  const auto check = [&](std::uint64_t version) {
    std::uint64_t wrong = 0;
    for (std::uint64_t page = 0; page < pages; ++page) {
      wrong += wrong_in(words, page, page % 2 == 0 ? version : 1);
    }
    return wrong;
  };
  const pid_t child = fork();
  if (child == 0) {
    for (std::uint64_t page = 0; page < pages; page += 2) {
      write_page(words, page, 3);
    }
    _exit(check(3) == 0 ? 0 : 1);
  }
  for (std::uint64_t page = 0; page < pages; page += 2) {
    write_page(words, page, 2);
  }
  EXPECT_EQ(check(2), 0u);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(check(2), 0u);
}

TEST_F(CompressedMemory, one_thread_at_a_time_divides_the_budget) {
  auto context = make();
  ASSERT_NE(context, nullptr);
  constexpr std::array<std::uint64_t, 2> kBudgets = {16 * kMiB, 64 * kMiB};
  for (int round = 0; round < 300; ++round) {
    std::array<Code, 2> codes{};
    const auto change = [&](std::size_t i) {
      codes[i] = context->set_budget({Kind::dram, 0}, kBudgets[i], Timeout::seconds(10)).code();
    };
    std::thread other([&] { change(1); });
    change(0);
    other.join();
    for (const Code code : codes) {
      EXPECT_TRUE(code == Code::ok || code == Code::busy) << code_name(code);
    }
    const std::uint64_t all =
        tier(*context, {Kind::dram, 0}).budget + tier(*context, kCompressed).budget;
    const bool largest = codes[1] == Code::ok;
    ASSERT_LE(all, kBudgets[largest ? 1 : 0]) << "round " << round;
  }
}

TEST_F(CompressedMemory, dram_budget_is_divided_again) {
  auto context = make();
  ASSERT_NE(context, nullptr);
  ASSERT_TRUE(context->set_budget({Kind::dram, 0}, 8 * kMiB, Timeout::seconds(10)).ok());
  EXPECT_EQ(tier(*context, {Kind::dram, 0}).budget, 4 * kMiB);
  EXPECT_LE(tier(*context, kCompressed).budget, 4 * kMiB);
  ASSERT_TRUE(context->set_budget({Kind::dram, 0}, 32 * kMiB, Timeout::seconds(10)).ok());
  EXPECT_EQ(tier(*context, {Kind::dram, 0}).budget, 24 * kMiB);
  const Buffer buffer = mapped(*context, 64 * kMiB);
  write_all(buffer, 0);
  const Status small = context->set_budget({Kind::dram, 0}, 4096, Timeout::seconds(10));
  EXPECT_EQ(small.code(), Code::no_capacity) << small.message();
  EXPECT_EQ(tier(*context, {Kind::dram, 0}).budget, 24 * kMiB);
}

}  // namespace
}  // namespace tiermem::test
