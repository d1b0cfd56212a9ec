// Random calls of the malloc family, each compared with the same call of the C library: sizes that
// change, zeros, alignments, and the bytes that every object keeps.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "support/pattern.hpp"
#include "support/sanitizers.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

struct Pair {
  std::byte* ours = nullptr;
  std::byte* plain = nullptr;
  std::uint64_t bytes = 0;
};

class MallocFamily : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    context_ = make_context("dram=16M; nvme=" + directory_.path() + ":256M");
    ASSERT_NE(context_, nullptr);
  }
  Place place() const { return {GetParam(), 0}; }
  /// Mostly small, sometimes large; 0 is among them.
  std::uint64_t size() {
    const unsigned most = std::array<unsigned, 4>{6, 12, 16, 20}[random_() % 4];
    return random_() % (std::uint64_t{1} << most);
  }
  void write(const Pair& pair) {
    for (std::uint64_t i = 0; i < pair.bytes; ++i) {
      pair.plain[i] = static_cast<std::byte>(random_());
    }
    std::memcpy(pair.ours, pair.plain, pair.bytes);
  }
  void begin(Pair& pair) {
    pair.bytes = size();
    Result<void*> made(nullptr);
    if (random_() % 2 == 0) {
      const std::uint64_t align = std::uint64_t{1} << random_() % 14;
      made = context_->malloc_at(place(), pair.bytes, align);
      ASSERT_TRUE(made.ok()) << made.message();
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(*made) % align, 0U);
      pair.plain = static_cast<std::byte*>(std::malloc(pair.bytes + 1));
    } else {
      made = context_->calloc_at(place(), pair.bytes, 1);
      ASSERT_TRUE(made.ok()) << made.message();
      pair.plain = static_cast<std::byte*>(std::calloc(pair.bytes + 1, 1));
      EXPECT_EQ(std::memcmp(*made, pair.plain, pair.bytes), 0) << "calloc gives zeros";
    }
    pair.ours = static_cast<std::byte*>(*made);
    write(pair);
  }
  void change(Pair& pair) {
    const std::uint64_t bytes = size();
    Result<void*> changed = context_->realloc_at(place(), pair.ours, bytes);
    ASSERT_TRUE(changed.ok()) << changed.message();
    pair.ours = static_cast<std::byte*>(*changed);
    pair.plain = static_cast<std::byte*>(std::realloc(pair.plain, bytes + 1));
    const std::uint64_t kept = std::min(pair.bytes, bytes);
    EXPECT_EQ(std::memcmp(pair.ours, pair.plain, kept), 0) << pair.bytes << " to " << bytes;
    pair.bytes = bytes;
    write(pair);
  }
  void end(Pair& pair) {
    EXPECT_EQ(std::memcmp(pair.ours, pair.plain, pair.bytes), 0);
    EXPECT_TRUE(context_->free_ptr(pair.ours).ok());
    std::free(pair.plain);
    pair = {};
  }

  Directory directory_;
  std::unique_ptr<Context> context_;
  std::mt19937_64 random_{20261126};
};

TEST_P(MallocFamily, random_calls_do_what_those_of_the_c_library_do) {
  std::vector<Pair> pairs(24);
  const int calls = kThreadSanitizer ? 400 : 4000;
  for (int i = 0; i < calls && !HasFailure(); ++i) {
    Pair& pair = pairs[random_() % pairs.size()];
    if (pair.ours == nullptr) {
      begin(pair);
    } else if (random_() % 3 == 0) {
      end(pair);
    } else {
      change(pair);
    }
  }
  for (Pair& pair : pairs) {
    if (pair.ours != nullptr) {
      end(pair);
    }
  }
  EXPECT_EQ(context_->stats().placed_used, 0U);
}

TEST_P(MallocFamily, failed_realloc_leaves_the_object_as_it_was) {
  Result<void*> made = context_->malloc_at(place(), 100);
  ASSERT_TRUE(made.ok());
  std::memset(*made, 9, 100);
  EXPECT_EQ(context_->realloc_at(place(), *made, std::uint64_t{1} << 60).code(),
            Code::invalid_argument);
  EXPECT_EQ(context_->realloc_at(place(), *made, 1000, 24).code(), Code::invalid_argument);
  EXPECT_EQ(context_->realloc_at({Kind::dram, 0}, *made, 64 * kMiB).code(), Code::no_capacity);
  const std::vector<char> nines(100, 9);
  EXPECT_EQ(std::memcmp(*made, nines.data(), 100), 0);
  EXPECT_TRUE(context_->free_ptr(*made).ok());
  EXPECT_EQ(context_->realloc_at(place(), *made, 8).code(), Code::invalid_argument);
}

TEST_P(MallocFamily, product_of_calloc_is_checked) {
  for (const auto& [count, bytes] : {std::pair{~std::uint64_t{0}, std::uint64_t{2}},
                                     std::pair{std::uint64_t{1} << 40, std::uint64_t{1} << 40},
                                     std::pair{std::uint64_t{1} << 24, std::uint64_t{1} << 24}}) {
    EXPECT_EQ(context_->calloc_at(place(), count, bytes).code(), Code::invalid_argument);
  }
}

// Without memory: more zeros than DRAM has.
TEST_P(MallocFamily, large_object_of_zeros_uses_no_memory) {
  if (GetParam() != Kind::any || !context_->alloc(4096, {.flags = kMapped}).ok()) {
    GTEST_SKIP() << "objects stay in DRAM";
  }
  Result<void*> made = context_->calloc_at(place(), 64, kMiB);
  ASSERT_TRUE(made.ok()) << made.message();
  const auto* const bytes = static_cast<const std::byte*>(*made);
  for (std::uint64_t at = 0; at < 64 * kMiB; at += 8 * kMiB + 4096) {
    EXPECT_EQ(bytes[at], std::byte{0});
  }
  EXPECT_EQ(context_->stats().demoted, 0U);
  EXPECT_TRUE(context_->free_ptr(*made).ok());
}

INSTANTIATE_TEST_SUITE_P(Places, MallocFamily, testing::Values(Kind::dram, Kind::host, Kind::any),
                         [](const auto& tested) {
                           return std::string(tested.param == Kind::dram   ? "dram"
                                              : tested.param == Kind::host ? "host"
                                                                           : "any");
                         });

}  // namespace
}  // namespace tiermem::test
