// Requests that read ahead: which bytes they name, for extents by number. The buffer may begin
// inside its first extent, as an adopted file does.
#include "mover/prefetch.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tiermem {
namespace {

constexpr std::uint64_t kExtent = 65536;

struct Prefetches : ::testing::Test {
  /// Makes a buffer of four extents, which has `bytes` bytes and begins after the first `lead`.
  Handle make(std::uint64_t lead, std::uint64_t bytes) {
    BufferShape shape;
    shape.bytes = bytes;
    shape.lead = lead;
    shape.extent_shift = 16;
    shape.extents = 4;
    shape.window = memory.data();
    return *residency.buffers.create(shape);
  }
  /// Expects that a prefetch of these extents names exactly those of them that have bytes.
  void expect(Handle handle, std::uint64_t lead, std::uint64_t bytes, std::uint32_t first,
              std::uint32_t count) {
    // A model that looks at each page of the window.
    std::uint64_t begin = ~std::uint64_t{0}, end = 0;
    for (std::uint64_t page = 0; page < 4 * kExtent; page += kSmallestExtent) {
      const std::uint64_t extent = page / kExtent;
      const bool asked = extent >= first && extent - first < count;
      if (asked && page >= lead && page < lead + bytes) {
        begin = std::min(begin, page);
        end = page + kSmallestExtent;
      }
    }
    const auto request = prefetch_of(residency, handle, first, count);
    ASSERT_EQ(request != nullptr, begin < end)
        << lead << " " << bytes << " " << first << " " << count;
    if (request == nullptr) {
      return;
    }
    const Span& span = request->spans[0];
    EXPECT_EQ(span.offset, begin) << lead << " " << bytes << " " << first << " " << count;
    EXPECT_EQ(span.length, end - begin);
    EXPECT_EQ(span.first, residency.buffers.at(Buffers::index_of(handle)).first.load() + first);
    EXPECT_EQ(span.count, (end - 1) / kExtent + 1 - first);
  }
  std::vector<std::byte> memory{4 * kExtent};
  Residency residency{8, 64, 1};
};

TEST_F(Prefetches, extents_by_number_then_the_request_names_their_bytes_only) {
  for (const std::uint64_t lead : {std::uint64_t{0}, std::uint64_t{4096}, kExtent - 4096}) {
    for (const std::uint64_t bytes : {4 * kExtent - lead, 3 * kExtent + 4096 - lead}) {
      const Handle handle = make(lead, bytes);
      for (std::uint32_t first = 0; first <= 4; ++first) {
        for (std::uint32_t count = 0; count <= 5; ++count) {
          expect(handle, lead, bytes, first, count);
        }
      }
      expect(handle, lead, bytes, 1, ~std::uint32_t{0});
    }
  }
}

TEST_F(Prefetches, the_buffer_was_freed_then_there_is_no_request) {
  const Handle handle = make(0, kExtent);
  EXPECT_NE(prefetch_of(residency, handle, 0, 1), nullptr);
  ASSERT_TRUE(residency.buffers.mark_freed(handle));
  EXPECT_EQ(prefetch_of(residency, handle, 0, 1), nullptr);
}

}  // namespace
}  // namespace tiermem
