// Copies past the caches, beside a copy byte by byte.
#include "os/large_copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

namespace tiermem::host {
namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(std::size_t n) {
  std::mt19937_64 dice(n);
  Bytes bytes(n);
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(dice()); });
  return bytes;
}

// Sizes around the limit, aligned and not, with bytes around the target that must stay.
TEST(LargeCopy, every_byte_arrives_and_none_beside_it_changes) {
  constexpr std::size_t kRoom = 256;
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{kLeastPastCaches - 128},
        std::size_t{kLeastPastCaches - 1}, std::size_t{kLeastPastCaches},
        std::size_t{kLeastPastCaches + 1}, std::size_t{kLeastPastCaches + 64},
        std::size_t{kLeastPastCaches + 128}, std::size_t{2} << 20}) {
    const Bytes source = random_bytes(bytes + kRoom);
    for (const std::size_t to : {0u, 1u, 32u, 64u, 128u}) {
      for (const std::size_t from : {0u, 1u, 16u, 64u}) {
        Bytes target(bytes + 2 * kRoom, std::byte{0x5A});
        void* begin = target.data() + 1;
        std::size_t space = target.size() - 1;
        auto* const at =
            static_cast<std::byte*>(std::align(128, bytes + 128, begin, space)) + to % 128;
        ASSERT_NE(at, nullptr);
        copy_large(at, source.data() + from, bytes);
        ASSERT_TRUE(std::equal(at, at + bytes, source.data() + from)) << bytes << ' ' << to;
        const auto untouched = [](std::byte each) { return each == std::byte{0x5A}; };
        ASSERT_TRUE(std::all_of(target.data(), at, untouched)) << bytes << ' ' << to;
        ASSERT_TRUE(std::all_of(at + bytes, target.data() + target.size(), untouched))
            << bytes << ' ' << to;
      }
    }
  }
}

}  // namespace
}  // namespace tiermem::host
