// Domains. Goal: bytes of an isolated buffer never appear in memory that another buffer can obtain,
// whichever calls carried them there. Method: isolated buffers are filled with one word, and every
// call is used on them. Afterwards buffers of every shape are allocated and searched for that word:
// through discarding views, which show whatever the memory holds, through windows, and as blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "support/found.hpp"
#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

constexpr std::uint64_t kSecret = 0x5EC2E7D0A1B2C3D4u;
constexpr std::uint64_t kDram = 16 * kMiB;
constexpr std::uint64_t kRowBytes = 256;

std::uint64_t secrets_in(std::span<const std::uint64_t> words) {
  return static_cast<std::uint64_t>(std::count(words.begin(), words.end(), kSecret));
}

/// Writes the word to all of a buffer, through views.
void fill_with_secret(const Buffer& buffer) {
  constexpr std::uint64_t kAtOnce = kMiB;
  for (std::uint64_t at = 0; at < buffer.size(); at += kAtOnce) {
    auto view = buffer.acquire(kDiscard, at, std::min(kAtOnce, buffer.size() - at));
    ASSERT_TRUE(view.ok()) << view.message();
    std::fill_n(view->as<std::uint64_t>().data(), view->size() / 8, kSecret);
  }
}

/// One set of isolated buffers in a context, and all operations on them.
class Secrets {
 public:
  explicit Secrets(Context& context) : context_(context) {
    // For each extent size: a slab's, a small window's, one of large frames. The last extents are
    // partial.
    for (const std::uint64_t extent : {std::uint64_t{4096}, std::uint64_t{64} << 10, 2 * kMiB}) {
      add(extent, 5 * extent / 2 + 24, kIsolated, Advice::random);
      add(extent, extent, kIsolated | kNoChecksum, Advice::normal);
      // Small extents can be resident in parts.
      add(extent, std::max(4 * extent, kMiB), kIsolated | kMapped, Advice::normal);
      add(extent, std::max(4 * extent, kMiB), kIsolated | kMapped, Advice::normal);
    }
  }
  /// The last operation leaves its bytes in memory: the reads of a gather or, with `budget_last`,
  /// the frames that a smaller budget releases.
  void use(bool budget_last) {
    for (std::size_t i = 0; i + 1 < mapped_.size(); i += 2) {
      touch(buffers_[mapped_[i]], buffers_[mapped_[i + 1]]);
    }
    for (std::size_t i = 0; i < buffers_.size() && !::testing::Test::HasFailure(); ++i) {
      use(buffers_[i]);
      rows(buffers_[i], buffers_[(i + 1) % buffers_.size()]);
    }
    EXPECT_TRUE(context_.stats_json().ok());
    for (const Buffer& buffer : buffers_) {
      EXPECT_TRUE(buffer.evict().ok());
    }
    // There is room for the gathered bytes, so their memory is not reused at once.
    for (const std::uint64_t n : {2u, 16u, 100u}) {
      std::vector<std::uint64_t> words(n * kRowBytes / 8);
      std::vector<std::uint64_t> index(n);
      for (std::uint64_t i = 0; i < n; ++i) {
        index[i] = i * 150;
      }
      EXPECT_TRUE(buffers_[8].gather(kRowBytes, index, words.data()).ok());
    }
    if (budget_last) {
      // Slightly less than the used memory: a part returns to the kernel, and the rest can be
      // reused.
      const std::uint64_t used = context_.stats().dram_used;
      EXPECT_TRUE(context_.set_budget({Kind::dram, 0}, used - 4096).ok());
      EXPECT_TRUE(context_.set_budget({Kind::dram, 0}, kDram).ok());
    }
  }
  void free_all() { buffers_.clear(); }

 private:
  void add(std::uint64_t extent, std::uint64_t bytes, std::uint32_t flags, Advice advice) {
    auto made = context_.alloc(bytes, {.extent_bytes = extent, .flags = flags, .advice = advice});
    if ((flags & kMapped) != 0 && made.code() == Code::unsupported) {
      return;
    }
    ASSERT_TRUE(made.ok()) << made.message();
    if ((flags & kMapped) != 0) {
      mapped_.push_back(buffers_.size());
    }
    buffers_.push_back(std::move(*made));
    fill_with_secret(buffers_.back());
  }
  void use(const Buffer& buffer) {
    std::vector<std::uint64_t> words(buffer.size() / 8);
    EXPECT_TRUE(buffer.evict().ok());
    EXPECT_TRUE(buffer.read(0, words.data(), words.size() * 8).ok());
    EXPECT_EQ(secrets_in(words), words.size());
    EXPECT_TRUE(buffer.write(8, words.data(), words.size() * 8 - 8).ok());
    EXPECT_TRUE(buffer.evict().ok());
    EXPECT_TRUE(buffer.prefetch().ok());
    const Access all = buffer.range();
    EXPECT_TRUE(context_.migrate({&all, 1}, {Kind::block, 0}).ok());
    EXPECT_TRUE(context_.migrate({&all, 1}, {Kind::dram, 0}).ok());
    EXPECT_TRUE(buffer.advise(Advice::frozen).ok());
    EXPECT_TRUE(buffer.advise(Advice::cold).ok());
    ViewRecord view;
    auto op = context_.acquire_async({&all, 1}, {&view, 1});
    ASSERT_TRUE(op.ok());
    EXPECT_TRUE(op->wait().ok());
    EXPECT_TRUE(context_.release({&view, 1}).ok());
    EXPECT_TRUE(context_.why(buffer.handle(), 0).ok());
    EXPECT_TRUE(buffer.info().ok());
  }
  void rows(const Buffer& buffer, const Buffer& other) {
    if (buffer.size() < 4 * kRowBytes) {
      return;
    }
    std::vector<std::uint64_t> index;
    for (std::uint64_t row = 0; row < buffer.size() / kRowBytes; row += 2) {
      index.push_back(row);
    }
    std::vector<std::uint64_t> words(index.size() * kRowBytes / 8);
    for (int again = 0; again < 3; ++again) {  // In the later rounds the row cache has them.
      EXPECT_TRUE(buffer.evict().ok());
      EXPECT_TRUE(buffer.gather(kRowBytes, index, words.data()).ok());
      EXPECT_EQ(secrets_in(words), words.size());
    }
    index.resize(std::min<std::size_t>(index.size(), other.size() / kRowBytes));
    EXPECT_TRUE(buffer.evict().ok());
    EXPECT_TRUE(context_.gather_into(buffer.rows(kRowBytes, index), other.handle()).ok());
    EXPECT_TRUE(buffer.evict().ok());
    EXPECT_TRUE(buffer.scatter(kRowBytes, index, words.data()).ok());
  }
  void touch(const Buffer& one, const Buffer& other) {
    for (const Buffer* buffer : {&one, &other}) {
      EXPECT_TRUE(buffer->evict().ok());
      const auto* const words = reinterpret_cast<const std::uint64_t*>(*buffer->address());
      // One page at a time, in no order, so that extents become resident in parts.
      const std::uint64_t pages = buffer->size() / 4096;
      for (std::uint64_t page = 0; page < pages; ++page) {
        EXPECT_EQ(words[(page * page * 7 + page * 13) % pages * 512], kSecret);
      }
    }
    EXPECT_TRUE(one.evict().ok());
    EXPECT_TRUE(other.advise(Advice::dont_need).ok());
    EXPECT_TRUE(context_.move_bytes(other.handle(), 0, one.handle(), 0, one.size() / 2).ok());
    EXPECT_TRUE(other.evict().ok());
    fill_with_secret(one);
    fill_with_secret(other);
  }

  Context& context_;
  std::vector<Buffer> buffers_;
  std::vector<std::size_t> mapped_;
};

/// Returns the number of secret words that a discarding view of a new buffer shows. The view is
/// kept in `views`.
std::uint64_t secrets_in_new(Context& context, std::uint64_t bytes, const BufferOptions& options,
                             std::vector<Buffer>& held, std::vector<View>& views, bool& full) {
  auto made = context.alloc(bytes, options);
  if (!made.ok()) {
    full = true;
    return 0;
  }
  auto view = made->acquire(kDiscard, 0, 0, Timeout::milliseconds(100));
  std::uint64_t found = 0;
  if (view.ok()) {
    found = secrets_in(view->as<std::uint64_t>());
    views.push_back(std::move(*view));
  } else {
    full = true;
  }
  held.push_back(std::move(*made));
  return found;
}

struct Shape {
  std::uint64_t extent;
  std::uint64_t extents;
  std::uint32_t flags;
};

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (std::uint64_t extent = 4096; extent <= 2 * kMiB; extent *= 2) {
    for (const std::uint64_t extents : {1u, 4u}) {
      for (const std::uint32_t flags : {0u, kIsolated + 0u}) {
        all.push_back({extent, extents, flags});
      }
    }
  }
  // Last, because for these the mover reuses the memory that it has released.
  for (std::uint64_t extent = 4096; extent <= 2 * kMiB; extent *= 2) {
    all.push_back({extent, 2, kMapped});
  }
  return all;
}

/// Allocates a few buffers of every shape, the large ones or the small ones first. Then allocates
/// as many buffers of one shape as the memory holds.
void search(Context& context, const Shape& all_of, bool large_first) {
  std::vector<Shape> all = shapes();
  if (large_first) {
    // Except for the mapped ones, which stay last.
    std::reverse(all.begin(), std::find_if(all.begin(), all.end(), [](const Shape& shape) {
                   return shape.flags == kMapped;
                 }));
  }
  for (const Shape& shape : all) {
    std::vector<Buffer> held;
    std::vector<View> views;
    bool full = false;
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(
          secrets_in_new(context, shape.extent * shape.extents,
                         {.extent_bytes = shape.extent, .flags = shape.flags}, held, views, full),
          0u)
          << "extents " << shape.extent << " x " << shape.extents << " flags " << shape.flags;
    }
  }
  std::vector<Buffer> held;
  std::vector<View> views;
  bool full = false;
  for (std::uint64_t bytes = 0; !full && bytes < 2 * kDram;
       bytes += all_of.extent * all_of.extents) {
    ASSERT_EQ(
        secrets_in_new(context, all_of.extent * all_of.extents,
                       {.extent_bytes = all_of.extent, .flags = all_of.flags}, held, views, full),
        0u)
        << "extents " << all_of.extent << " x " << all_of.extents << " flags " << all_of.flags;
  }
}

/// Searches blocks by pointer, with the bytes that they have when allocated.
void search_blocks(Context& context) {
  for (const Place place : {Place{Kind::dram, 0}, Place{Kind::any, 0}}) {
    std::vector<void*> blocks;
    for (const std::uint64_t bytes : {64u, 4096u, 20'000u, 300'000u, 1u << 20}) {
      for (int i = 0; i < 4; ++i) {
        auto block = context.malloc_at(place, bytes);
        ASSERT_TRUE(block.ok()) << block.message();
        EXPECT_EQ(secrets_in({static_cast<const std::uint64_t*>(*block), bytes / 8}), 0u) << bytes;
        blocks.push_back(*block);
      }
    }
    for (void* const block : blocks) {
      EXPECT_TRUE(context.free_ptr(block).ok());
    }
  }
}

class Domains : public ::testing::Test {
 protected:
  std::unique_ptr<Context> make(const std::string& more = "") {
    return make_context("dram=16M; row_cache=64K; nvme=" + directory_.path() + ":256M" + more);
  }
  Directory directory_;
};

// The original fault: the memory that a gather reads into became a spare buffer.
FOUND_TEST(Domains, L02_rows_gathered_from_an_isolated_buffer_are_in_no_other_buffer) {
  auto context = make_context("dram=128M; nvme=" + directory_.path() + ":256M");
  auto table = context->alloc(8 * kMiB, {.flags = kIsolated});
  ASSERT_TRUE(table.ok());
  fill_with_secret(*table);
  ASSERT_TRUE(table->evict().ok());
  std::vector<std::uint64_t> index;
  for (std::uint64_t row = 0; row < 8 * kMiB / kRowBytes; row += 16) {
    index.push_back(row);
  }
  std::vector<std::uint64_t> words(index.size() * kRowBytes / 8);
  ASSERT_TRUE(table->gather(kRowBytes, index, words.data()).ok());
  ASSERT_EQ(secrets_in(words), words.size());
  for (std::uint64_t bytes = 8 * kMiB; bytes >= 4096; bytes /= 2) {
    std::vector<Buffer> held;
    std::vector<View> views;
    bool full = false;
    EXPECT_EQ(secrets_in_new(*context, bytes, {.extent_bytes = bytes}, held, views, full), 0u)
        << bytes;
  }
}

FOUND_TEST(Domains, L02_every_call_was_used_then_no_other_buffer_has_the_bytes) {
  // A new context for each order, because the first allocations take the memory from all others.
  for (const bool large_first : {true, false}) {
    auto context = make();
    Secrets secrets(*context);
    secrets.use(!large_first);
    search(*context, {large_first ? 64u << 10 : 4096u, 1, 0}, large_first);
    secrets.free_all();
    search(*context, {2 * kMiB, 2, kIsolated}, large_first);
    search_blocks(*context);
  }
}

FOUND_TEST(Domains, L02_every_call_was_used_in_mapped_buffers_by_copying_then_none_has_the_bytes) {
  auto context = make("; mechanism=copy");
  Secrets secrets(*context);
  secrets.use(false);
  search(*context, {64 << 10, 1, 0}, true);
  secrets.free_all();
  search_blocks(*context);
}

}  // namespace
}  // namespace tiermem::test
