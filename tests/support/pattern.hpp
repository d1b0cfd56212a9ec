// Bytes that a test can check: a different 64-bit word for every buffer and position. Any thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <thread>

#include "support/directory.hpp"
#include "support/made.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {

inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// The word at position `i` (counted in words) of the bytes that belong to `seed`.
inline std::uint64_t word_at(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t x = seed * 0x9E3779B97F4A7C15u + i * 0xBF58476D1CE4E5B9u;
  x ^= x >> 29;
  return x * 0x94D049BB133111EBu;
}

inline void fill(std::span<std::uint64_t> words, std::uint64_t seed, std::uint64_t first = 0) {
  std::uint64_t* const at = words.data();  // Fast without optimisation as well.
  for (std::uint64_t i = 0, end = words.size(); i < end; ++i) {
    at[i] = word_at(seed, first + i);
  }
}

/// Number of words that differ from those of `seed`.
inline std::uint64_t wrong(std::span<const std::uint64_t> words, std::uint64_t seed,
                           std::uint64_t first = 0) {
  const std::uint64_t* const at = words.data();  // Fast without optimisation as well.
  std::uint64_t n = 0;
  for (std::uint64_t i = 0, end = words.size(); i < end; ++i) {
    n += at[i] != word_at(seed, first + i) ? 1 : 0;
  }
  return n;
}

inline constexpr std::uint64_t kChunk = 2 * kMiB;

/// Writes the pattern in chunks, so that a budget of a few extents suffices. The first refusal ends
/// it; `written`: the bytes before it.
inline Status write_pattern(Buffer& buffer, std::uint64_t seed,
                            Timeout timeout = Timeout::seconds(30),
                            std::uint64_t* written = nullptr) {
  Status status;
  std::uint64_t at = 0;
  while (at < buffer.size() && status.ok()) {
    const std::uint64_t bytes = std::min(kChunk, buffer.size() - at);
    auto view = buffer.acquire(kDiscard, at, bytes, timeout);
    if (view.ok()) {
      fill(view->as<std::uint64_t>(), seed, at / 8);
      at += bytes;
    } else {
      status = std::move(view).status();
    }
  }
  if (written != nullptr) {
    *written = at;
  }
  return status;
}

/// Number of words before `end` that differ from those of write_pattern(). A chunk that cannot be
/// read fails the test.
inline std::uint64_t wrong_words(Buffer& buffer, std::uint64_t seed,
                                 std::uint64_t end = ~std::uint64_t{0}) {
  end = std::min(end, buffer.size());
  std::uint64_t n = 0;
  for (std::uint64_t at = 0; at < end; at += kChunk) {
    auto view = buffer.acquire(kRead, at, std::min(kChunk, end - at), Timeout::seconds(30));
    if (!view.ok()) {
      ADD_FAILURE() << "at " << at << ": " << code_name(view.code()) << ": " << view.message();
      return n + 1;
    }
    n += wrong(view->as<std::uint64_t>(), seed, at / 8);
  }
  return n;
}

/// Repeats the check until it succeeds; false after twenty seconds. For work that other threads
/// finish by themselves.
template <typename Condition>
bool eventually(Condition&& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) {
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}

inline bool says(const char* text, const std::string& word) {
  return std::string(text).find(word) != std::string::npos;
}

}  // namespace tiermem::test

/// Checks that the message of a Status or Result contains `word`.
#define EXPECT_SAYS(outcome, word)                              \
  EXPECT_TRUE(::tiermem::test::says((outcome).message(), word)) \
      << "'" << (outcome).message() << "' names no " << (word)
