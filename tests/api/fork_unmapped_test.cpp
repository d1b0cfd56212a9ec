// fork=follow and buffers that are not mapped: the parent has them as without a fork. In the child
// their handles are stale, a touch of an inherited view raises SIGSEGV, and their memory is free.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "support/forked_child.hpp"
#include "support/interruptions.hpp"
#include "support/pattern.hpp"
#include "support/sanitizers.hpp"
#include "support/threads.hpp"
#include "tiermem/store.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

constexpr std::uint64_t kMemory = 16 * kMiB;
constexpr std::uint64_t kLarge = (kSanitized ? 24 : 40) * kMiB;
constexpr Place kDram{Kind::dram, 0};
// A fork while another thread allocates, or starts, leaves the sanitizer's allocator locked in the
// child (gcc 12).
constexpr const char* kAllocatorIsLocked =
    "the address sanitizer's allocator does not survive such forks";

/// The parameter is an option that changes how frames appear in windows.
struct ForkUnmapped : ::testing::TestWithParam<const char*> {
  void SetUp() override {
    if (kThreadSanitizer) {
      GTEST_SKIP() << "the thread sanitizer does not follow a fork with threads";
    }
    auto made =
        Context::create("dram=16M; nvme=" + directory.path() + ":512M; fork=follow; " + GetParam());
    if (made.code() == Code::unavailable || made.code() == Code::unsupported) {
      GTEST_SKIP() << made.message();
    }
    ASSERT_TRUE(made.ok()) << made.message();
    context = std::move(made).value();
    if (kAddressSanitizer) {
      EXPECT_TRUE(comes_true(threads_have_started)) << kAllocatorIsLocked;
    }
    auto made_mapped = context->alloc(4 * kMiB, {.flags = kMapped, .label = "mapped"});
    has_mapped = made_mapped.ok();
    if (has_mapped) {
      mapped = std::move(*made_mapped);
      words = {reinterpret_cast<std::uint64_t*>(*mapped.address()), mapped.size() / 8};
      fill(words, 1);
    }
  }
  Buffer plain(std::uint64_t bytes, std::uint64_t seed, std::uint64_t extent = 0) {
    auto made = context->alloc(bytes, {.extent_bytes = extent, .label = "plain"});
    EXPECT_TRUE(made.ok()) << made.message();
    if (!made.ok()) {
      return {};
    }
    const Status written = write_pattern(*made, seed);
    EXPECT_TRUE(written.ok()) << written.message();
    return std::move(*made);
  }
  /// Returns whether the mapped buffer has the bytes of SetUp().
  bool mapped_is_right() const { return !has_mapped || wrong(words, 1) == 0; }
  /// [child of fork] Whether a read of the byte raises SIGSEGV.
  static bool is_closed(const void* address) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::signal(SIGSEGV, [](int) { ::_exit(0); });
      const volatile char byte = *static_cast<const volatile char*>(address);
      ::_exit(byte == 0 ? 2 : 3);
    }
    return ended_well(child);
  }
  /// [child of fork] Whether the context serves all that a new context does.
  bool works() {
    Buffer large = plain(kLarge, 90);
    Buffer small = plain(100 << 10, 91);
    const bool good = wrong_words(large, 90) == 0 && wrong_words(small, 91) == 0;
    return good && mapped_is_right() && context->stats().dram_used <= kMemory;
  }
  std::string file_of(std::uint64_t bytes, std::uint64_t seed) const {
    std::vector<std::uint64_t> content(bytes / 8);
    fill(content, seed);
    std::string path = directory.path() + "/file";
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(content.data()), static_cast<std::streamsize>(bytes));
    return path;
  }

  Directory directory;
  std::unique_ptr<Context> context;
  Buffer mapped;
  bool has_mapped = false;
  std::span<std::uint64_t> words;
};

INSTANTIATE_TEST_SUITE_P(Mechanisms, ForkUnmapped,
                         ::testing::Values("mechanism=auto", "mechanism=remap", "mechanism=copy",
                                           "userfault=off"),
                         [](const auto& spec) {
                           std::string name(spec.param);
                           std::replace(name.begin(), name.end(), '=', '_');
                           return name;
                         });

TEST_P(ForkUnmapped, parent_forks_then_its_buffers_are_as_before) {
  Buffer large = plain(kLarge, 2);
  Buffer pages = plain(2 * kMiB, 3, 4096);
  Buffer small = plain(100 << 10, 4);
  auto view = small.acquire(kRead, 0, 4096);
  ASSERT_TRUE(view.ok()) << view.message();
  for (int i = 0; i < 3; ++i) {
    const pid_t child = child_that([&] { return works(); });
    EXPECT_EQ(wrong_words(large, 2), 0u);
    EXPECT_TRUE(ended_well(child));
    EXPECT_EQ(wrong_words(pages, 3), 0u);
    EXPECT_EQ(wrong_words(small, 4), 0u);
    EXPECT_EQ(wrong(view->as<std::uint64_t>(), 4), 0u);
  }
  EXPECT_TRUE(large.evict().ok());
  EXPECT_EQ(wrong_words(large, 2), 0u);
  EXPECT_TRUE(mapped_is_right());
}

TEST_P(ForkUnmapped, child_names_a_buffer_then_the_handle_is_stale_and_the_message_names_the_fork) {
  Buffer large = plain(kLarge, 5);
  Buffer small = plain(100 << 10, 6);
  EXPECT_TRUE(ended_well(child_that([&] {
    bool good = true;
    const auto is_stale = [&](const auto& result) {
      good = good && result.code() == Code::stale_handle &&
             std::string(result.message()).find("fork") != std::string::npos;
    };
    for (Buffer* const buffer : {&large, &small}) {
      const Access range = buffer->range();
      std::uint64_t word = 0;
      ViewRecord view;
      is_stale(context->acquire({&range, 1}, Timeout::seconds(5), {&view, 1}));
      is_stale(context->read(buffer->handle(), 0, &word, 8));
      is_stale(context->write(buffer->handle(), 0, &word, 8));
      is_stale(context->evict({&range, 1}));
      is_stale(context->prefetch({&range, 1}));
      is_stale(context->advise({&range, 1}, Advice::cold));
      is_stale(context->info(buffer->handle()));
      good = good && context->free(buffer->handle()).ok();
      good = good && context->free(buffer->handle()).ok();
    }
    // Slots are given up by the mover's thread.
    return good && eventually([&] { return context->stats().buffers == (has_mapped ? 1u : 0u); }) &&
           works();
  })));
}

TEST_P(ForkUnmapped, child_inherits_views_then_they_end_and_their_addresses_are_closed) {
  Buffer large = plain(8 * kMiB, 7, 2 * kMiB);
  Buffer pages = plain(64 << 10, 8, 4096);
  Buffer small = plain(16 << 10, 9);
  Buffer medium = plain(2 * kMiB, 10);
  std::vector<ViewRecord> views;
  for (Buffer* const buffer : {&large, &pages, &small, &medium}) {
    const Access range{buffer->handle(), 0, 16 << 10, kRead, {}, 0};
    const Status held =
        context->acquire({&range, 1}, Timeout::forever(), {&views.emplace_back(), 1});
    ASSERT_TRUE(held.ok()) << held.message();
  }
  EXPECT_TRUE(ended_well(child_that([&] {
    bool good = context->stats().dram_pinned == 0;
    for (int rounds = 0; rounds < 2; ++rounds) {
      for (const ViewRecord& view : views) {
        good = good && is_closed(view.data);
      }
      good = good && works();
    }
    for (const ViewRecord& view : views) {
      good = good && context->release({&view, 1}).ok();
      good = good && context->release({&view, 1}).code() == Code::invalid_argument;
    }
    return good && works() && context->close().ok();
  })));
  for (std::size_t i = 0; i < views.size(); ++i) {
    EXPECT_EQ(*static_cast<const std::uint64_t*>(views[i].data), word_at(7 + i, 0));
    EXPECT_TRUE(context->release({&views[i], 1}).ok());
  }
}

// Both are changed during a fork.
TEST_P(ForkUnmapped, blocked_signals_and_cancellation_are_those_of_before) {
  const MayInterrupt before = MayInterrupt::now();
  EXPECT_TRUE(ended_well(child_that([&] { return MayInterrupt::now() == before; })));
  EXPECT_TRUE(MayInterrupt::now() == before);
}

TEST_P(ForkUnmapped, other_threads_hold_views_then_the_child_has_their_memory) {
  Buffer held = plain(12 * kMiB, 11);
  std::latch taken(1), over(1);
  std::thread holder([&] {
    auto view = held.acquire(kWrite, 0, held.size());
    EXPECT_TRUE(view.ok()) << view.message();
    taken.count_down();
    over.wait();
  });
  taken.wait();
  EXPECT_TRUE(ended_well(child_that([&] {
    Buffer own = plain(12 * kMiB, 12);
    auto view = own.acquire(kRead, 0, own.size(), Timeout::seconds(20));
    return view.ok() && wrong(view->as<std::uint64_t>(), 12) == 0;
  })));
  over.count_down();
  holder.join();
  EXPECT_EQ(wrong_words(held, 11), 0u);
}

TEST_P(ForkUnmapped, a_free_waits_for_a_view_at_the_fork_then_the_child_ends_it) {
  Buffer freed = plain(8 * kMiB, 13);
  auto view = freed.acquire(kRead, 0, freed.size());
  ASSERT_TRUE(view.ok()) << view.message();
  freed.reset();
  EXPECT_TRUE(ended_well(child_that([&] {
    return eventually([&] { return context->stats().buffers == (has_mapped ? 1u : 0u); }) &&
           is_closed(view->data()) && context->stats().dram_pinned == 0 && works();
  })));
  EXPECT_EQ(wrong(view->as<std::uint64_t>(), 13), 0u);
}

TEST_P(ForkUnmapped, children_fork_again_with_buffers_of_their_own) {
  Buffer first = plain(kLarge, 14);
  EXPECT_TRUE(ended_well(child_that([&] {
    Buffer second = plain(kLarge, 15);
    bool good = ended_well(child_that([&] {
      std::uint64_t word = 0;
      const bool stale = context->read(first.handle(), 0, &word, 8).code() == Code::stale_handle &&
                         context->read(second.handle(), 0, &word, 8).code() == Code::stale_handle;
      return stale && works() && ended_well(child_that([&] { return works(); }));
    }));
    good = good && wrong_words(second, 15) == 0 && works();
    second.reset();
    return good && context->close().ok();
  })));
  EXPECT_EQ(wrong_words(first, 14), 0u);
}

// Spare buffers, and buffers that tiermem makes ahead, are memory that no program has.
TEST_P(ForkUnmapped, parent_has_spare_buffers_then_those_of_the_child_are_zero) {
  std::vector<Buffer> many;
  for (int i = 0; i < 200; ++i) {
    many.push_back(plain(4096, 16));
  }
  many.resize(100);
  Buffer wide = plain(64 << 10, 17, 4096);
  wide.reset();
  EXPECT_TRUE(ended_well(child_that([&] {
    for (int i = 0; i < 300; ++i) {
      auto own = context->alloc(4096);
      auto view = own.ok() ? own->acquire(kRead, 0, 4096) : Result<View>(Code::internal);
      if (!view.ok() || view->as<std::uint64_t>()[17] != 0) {
        return false;
      }
    }
    return works();
  })));
  for (Buffer& each : many) {
    EXPECT_EQ(wrong_words(each, 16), 0u);
  }
}

TEST_P(ForkUnmapped, an_adopted_file_stays_with_the_parent) {
  const std::string path = file_of(6 * kMiB, 18);
  for (const std::uint32_t flags : {0u, kPrivate | 0u}) {
    auto adopted = context->adopt_file(path.c_str(), 0, 0, {.flags = flags});
    ASSERT_TRUE(adopted.ok()) << adopted.message();
    EXPECT_EQ(wrong_words(*adopted, 18), 0u);
    auto view = adopted->acquire(kRead, 0, 4096);
    ASSERT_TRUE(view.ok()) << view.message();
    EXPECT_TRUE(ended_well(child_that([&] {
      std::uint64_t word = 0;
      bool good = context->read(adopted->handle(), 0, &word, 8).code() == Code::stale_handle &&
                  is_closed(view->data());
      auto own = context->adopt_file(path.c_str(), 0, 0, {.flags = flags});
      good = good && own.ok() && wrong_words(*own, 18) == 0;
      return good && works();
    })));
    EXPECT_EQ(wrong_words(*adopted, 18), 0u);
  }
}

TEST_P(ForkUnmapped, an_object_in_dram_stays_with_the_parent) {
  std::vector<void*> objects;
  for (const std::uint64_t bytes : {100u, 5000u, 3u << 20}) {
    auto made = context->malloc_at(kDram, bytes);
    ASSERT_TRUE(made.ok()) << made.message();
    std::memset(*made, 7, bytes);
    objects.push_back(*made);
  }
  EXPECT_TRUE(ended_well(child_that([&] {
    bool good = context->stats().placed_used == 0;
    for (void* const object : objects) {
      const auto size = context->usable_size(object);
      good = good && size.code() == Code::stale_handle &&
             std::string(size.message()).find("fork") != std::string::npos;
      good = good && context->realloc_at(kDram, object, 10'000).code() == Code::stale_handle;
      good = good && is_closed(object) && context->free_ptr(object).ok();
      good = good && context->free_ptr(object).code() == Code::invalid_argument;
    }
    for (const std::uint64_t bytes : {100u, 5000u, 3u << 20}) {
      auto own = context->calloc_at(kDram, 1, bytes);
      good = good && own.ok() && static_cast<char*>(*own)[bytes - 1] == 0;
      good = good && std::find(objects.begin(), objects.end(), *own) == objects.end();
      good = good && ended_well(child_that([&] {
               return context->usable_size(*own).code() == Code::stale_handle && works();
             }));
      good = good && context->free_ptr(*own).ok();
    }
    return good && works();
  })));
  for (void* const object : objects) {
    EXPECT_EQ(static_cast<char*>(object)[99], 7);
    EXPECT_TRUE(context->free_ptr(object).ok());
  }
}

StoreObject object(const std::string& key, std::string& bytes) {
  return {key.data(), key.size(), bytes.data(), bytes.size()};
}

TEST_P(ForkUnmapped, a_store_is_empty_in_the_child) {
  auto opened = Store::open(*context, {"store", 32 * kMiB});
  ASSERT_TRUE(opened.ok()) << opened.message();
  std::unique_ptr<Store> store = std::move(*opened);
  std::vector<std::string> keys, bytes;
  for (int i = 0; i < 24; ++i) {
    keys.push_back("key " + std::to_string(i));
    bytes.emplace_back(kMiB, static_cast<char>('a' + i));
  }
  const auto has_all = [&] {
    bool good = true;
    for (int i = 0; i < 24; ++i) {
      std::string read(kMiB, '?');
      StoreObject each = object(keys[i], read);
      good = good && store->get({&each, 1}).ok() && each.found == 1 && read == bytes[i];
    }
    return good;
  };
  const auto put_all = [&] {
    bool good = true;
    for (int i = 0; i < 24; ++i) {
      StoreObject each = object(keys[i], bytes[i]);
      good = good && store->put({&each, 1}).ok();
    }
    return good;
  };
  ASSERT_TRUE(put_all());
  EXPECT_TRUE(ended_well(child_that([&] {
    StoreObject each = object(keys[0], bytes[0]);
    bool good = store->get({&each, 1}).ok() && each.found == 0 && store->stats().objects == 0;
    good = good && put_all() && has_all();
    good = good && ended_well(child_that([&] {
             return store->exists({&each, 1}).ok() && each.found == 0 && put_all() && has_all();
           }));
    good = good && has_all();
    store.reset();
    return good && works();
  })));
  EXPECT_TRUE(has_all());
}

TEST_P(ForkUnmapped, operations_of_the_parent_end_in_the_child) {
  if (kAddressSanitizer) {
    GTEST_SKIP() << kAllocatorIsLocked;  // The operations start threads.
  }
  auto opened = Store::open(*context, {"store", 64 * kMiB});
  ASSERT_TRUE(opened.ok()) << opened.message();
  std::unique_ptr<Store> store = std::move(*opened);
  Buffer from = plain(kLarge, 19);
  // More calls than threads: some have begun and some wait.
  constexpr int kCalls = 12;
  std::vector<std::string> keys, bytes;
  std::vector<StoreObject> objects;
  for (int i = 0; i < kCalls; ++i) {
    keys.push_back("key " + std::to_string(i));
    bytes.emplace_back(2 * kMiB, static_cast<char>('a' + i));
  }
  for (int i = 0; i < kCalls; ++i) {
    objects.push_back(object(keys[i], bytes[i]));
  }
  std::vector<std::vector<std::uint64_t>> copies(kCalls,
                                                 std::vector<std::uint64_t>(kLarge / kCalls / 8));
  std::vector<CopyItem> items(kCalls);
  std::vector<Op> ops(2 * kCalls);
  for (int i = 0; i < kCalls; ++i) {
    const std::uint64_t length = copies[i].size() * 8;
    items[i] = {
        .buffer = from.handle(), .offset = i * length, .memory = copies[i].data(), .bytes = length};
    ASSERT_TRUE(store->put({&objects[i], 1}, Timeout::forever(), &ops[2 * i]).ok());
    ASSERT_TRUE(context->copy({&items[i], 1}, 0, Timeout::forever(), &ops[2 * i + 1]).ok());
  }
  const pid_t child = child_that([&] {
    bool good = true;
    for (Op& op : ops) {
      const Status status = op.wait(Timeout::seconds(20));
      good = good && (status.ok() || status.code() == Code::shut_down);
    }
    std::string own(1000, 'x'), key = "own";
    StoreObject each = object(key, own);
    Op op;
    good = good && store->put({&each, 1}, Timeout::forever(), &op).ok() && op.wait().ok();
    store.reset();
    return good && works() && context->close().ok();
  });
  for (Op& op : ops) {
    EXPECT_TRUE(op.wait().ok());
  }
  EXPECT_TRUE(ended_well(child));
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_EQ(wrong(copies[i], 19, i * copies[i].size()), 0u);
    std::string read(2 * kMiB, '?');
    StoreObject each = object(keys[i], read);
    EXPECT_TRUE(store->get({&each, 1}).ok());
    EXPECT_EQ(read, bytes[i]);
  }
}

// Threads are in the middle of every kind of call at the forks.
TEST_P(ForkUnmapped, other_threads_call_during_forks_then_nothing_is_lost) {
  if (kAddressSanitizer) {
    GTEST_SKIP() << kAllocatorIsLocked;
  }
  auto opened = Store::open(*context, {"store", 16 * kMiB});
  ASSERT_TRUE(opened.ok()) << opened.message();
  std::unique_ptr<Store> store = std::move(*opened);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const std::string key = "key " + std::to_string(t);
      std::string bytes(100'000, static_cast<char>('a' + t));
      for (std::uint64_t i = 0; !stop; ++i) {
        const std::uint64_t sizes[] = {4096, 64 << 10, 2 * kMiB, 5 * kMiB};
        Buffer some = plain(sizes[i % 4], t * 1000 + i);
        EXPECT_EQ(wrong_words(some, t * 1000 + i), 0u);
        auto fixed = context->malloc_at(kDram, 1 + i * 997 % 300'000);
        EXPECT_TRUE(fixed.ok()) << fixed.message();
        StoreObject each = object(key, bytes);
        EXPECT_TRUE(store->put({&each, 1}).ok());
        EXPECT_TRUE(store->get({&each, 1}).ok());
        EXPECT_TRUE(!fixed.ok() || context->free_ptr(*fixed).ok());
      }
    });
  }
  for (int i = 0; i < 12; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const pid_t child = child_that([&] {
      return works() &&
             eventually([&] { return context->stats().buffers == (has_mapped ? 1u : 0u); });
    });
    EXPECT_TRUE(ended_well(child)) << i;
  }
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_TRUE(mapped_is_right());
}

}  // namespace
}  // namespace tiermem::test
