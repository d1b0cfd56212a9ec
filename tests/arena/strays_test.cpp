// The memory that tiermem uses for itself. A stray is an allocation in a call of tiermem, or on one
// of its threads, without the mark by which an interposed malloc recognises tiermem
// (base/arena.hpp). Under the preload library a stray would make the mover wait for itself.
#include <gtest/gtest.h>
#include <stdio.h>

#include <vector>

#include "arena/own_malloc.hpp"
#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

/// All allocations in `body` count as tiermem's, so the test itself must make none there.
template <typename Body>
auto call(Body&& body) {
  const InCall mark;
  return body();
}

class Strays : public ::testing::Test {
 protected:
  void SetUp() override { begin_counting(); }
  void TearDown() override { EXPECT_EQ(end_counting(), 0u); }
  Directory directory_;
};

TEST_F(Strays, none_in_the_life_of_a_context) {
  const std::string tiers = "dram=16M; nvme=" + directory_.path() + ":128M";
  auto context = call([&] { return Context::create(tiers); });
  ASSERT_TRUE(context.ok()) << context.message();
  Context& c = **context;
  auto big = call([&] { return c.alloc(64 * kMiB, {.label = "big"}); });
  for (std::uint64_t at = 0; at < big->size(); at += 2 * kMiB) {
    auto view = call([&] { return big->acquire(kDiscard, at, 2 * kMiB); });
    ASSERT_TRUE(view.ok()) << view.message();
    fill(view->as<std::uint64_t>(), 1, at / 8);
    call([&] { view->release(); });
  }
  for (std::uint64_t at = 0; at < big->size(); at += 2 * kMiB) {
    auto view = call([&] { return big->acquire(kRead, at, 2 * kMiB); });
    ASSERT_TRUE(view.ok()) << view.message();
    EXPECT_EQ(wrong(view->as<std::uint64_t>(), 1, at / 8), 0u);
    call([&] { view->release(); });
  }
  EXPECT_TRUE(call([&] { return big->prefetch(0, 4 * kMiB); }).ok());
  EXPECT_TRUE(call([&] { return big->advise(Advice::sequential); }).ok());
  EXPECT_TRUE(call([&] { return big->evict(); }).ok());
  EXPECT_TRUE(call([&] { return big->info(); }).ok());
  EXPECT_TRUE(call([&] { return c.set_budget({Kind::dram, 0}, 8 * kMiB); }).ok());
  const Access first = big->range(0, 2 * kMiB);
  ViewRecord record;
  {
    auto op = call([&] { return c.acquire_async({&first, 1}, {&record, 1}); });
    ASSERT_TRUE(op.ok());
    EXPECT_TRUE(call([&] { return op->wait(); }).ok());
  }
  EXPECT_TRUE(call([&] { return c.release({&record, 1}); }).ok());
  EXPECT_EQ(call([&] { return c.release({&record, 1}); }).code(), Code::invalid_argument);
  EXPECT_EQ(call([&] { return c.alloc(0); }).code(), Code::invalid_argument);
  EXPECT_EQ(call([&] { return c.free(12345); }).code(), Code::stale_handle);
  for (int i = 0; i < 100; ++i) {
    auto small = call([&] { return c.alloc(4096 + 100u * static_cast<unsigned>(i)); });
    auto view = call([&] { return small->acquire(kWrite); });
    ASSERT_TRUE(view.ok()) << view.message();
    call([&] { view->release(); });
    call([&] { small->reset(); });
  }
  (void)call([&] { return c.stats(); });
  call([&] { big->reset(); });
  EXPECT_TRUE(call([&] { return c.close(); }).ok());
  call([&] { context->reset(); });
  EXPECT_GT(counted_inside(), 0u) << "the count counts";
}

TEST_F(Strays, none_for_an_adopted_file) {
  const std::string path = directory_.path() + "/file";
  {
    std::vector<std::uint64_t> words(kMiB);
    fill(words, 2);
    FILE* file = fopen(path.c_str(), "wb");
    ASSERT_NE(file, nullptr);
    ASSERT_EQ(fwrite(words.data(), 8, words.size(), file), words.size());
    ASSERT_EQ(fclose(file), 0);
  }
  auto context = call([&] { return Context::create("dram=4M; nvme=off"); });
  ASSERT_TRUE(context.ok()) << context.message();
  {
    auto adopted = call([&] { return (*context)->adopt_file(path.c_str()); });
    ASSERT_TRUE(adopted.ok()) << adopted.message();
    for (std::uint64_t at = 0; at < 8 * kMiB; at += kMiB) {
      auto view = call([&] { return adopted->acquire(kRead, at, kMiB); });
      ASSERT_TRUE(view.ok()) << view.message();
      EXPECT_EQ(wrong(view->as<std::uint64_t>(), 2, at / 8), 0u);
      call([&] { view->release(); });
    }
    call([&] { adopted->reset(); });
  }
  call([&] { context->reset(); });
}

TEST_F(Strays, and_no_allocation_at_all_where_bytes_are_resident) {
  auto context = call([&] { return Context::create("dram=16M; nvme=off"); });
  ASSERT_TRUE(context.ok()) << context.message();
  auto buffer = call([&] { return (*context)->alloc(kMiB); });
  const auto use = [&] {
    auto view = buffer->acquire(kWrite);
    ASSERT_TRUE(view.ok());
    view->release();
    auto other = (*context)->alloc(2 * kMiB);
    auto theirs = other->acquire(kDiscard);
    ASSERT_TRUE(theirs.ok());
  };
  for (int i = 0; i < 3; ++i) {
    call(use);  // Creates slots for views, frames, and a spare buffer.
  }
  (void)call([&] { return (*context)->stats(); });
  const std::uint64_t before = counted_inside();
  for (int i = 0; i < 1000; ++i) {
    call(use);
  }
  EXPECT_EQ(counted_inside(), before);
  call([&] { buffer->reset(); });
  call([&] { context->reset(); });
}

}  // namespace
}  // namespace tiermem::test
