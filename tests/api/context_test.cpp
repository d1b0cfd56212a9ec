// The C++ interface as a program uses it: real memory and a real temporary directory; the tests
// check the bytes.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

class ContextTest : public ::testing::Test {
 protected:
  std::unique_ptr<Context> make(const std::string& dram, const std::string& more = "") {
    return make_context("dram=" + dram + "; nvme=" + directory_.path() + ":512M" + more);
  }
  Directory directory_;
};

TEST_F(ContextTest, a_new_buffer_reads_as_zeros) {
  auto context = make("16M");
  auto buffer = context->alloc(8 * kMiB);
  ASSERT_TRUE(buffer.ok()) << buffer.message();
  auto view = buffer->acquire(kRead);
  ASSERT_TRUE(view.ok()) << view.message();
  EXPECT_TRUE(std::all_of(view->bytes().begin(), view->bytes().end(),
                          [](std::byte b) { return b == std::byte{0}; }));
}

class Mechanisms : public ContextTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(Mechanisms, a_buffer_four_times_the_budget_keeps_every_byte) {
  auto context = make("32M", std::string("; mechanism=") + GetParam());
  ASSERT_NE(context, nullptr);
  auto buffer = context->alloc(128 * kMiB);
  ASSERT_TRUE(buffer.ok()) << buffer.message();
  for (int pass = 0; pass < 2; ++pass) {
    for (std::uint64_t at = 0; at < buffer->size(); at += 4 * kMiB) {
      auto view = buffer->acquire(pass == 0 ? kDiscard : kRead, at, 4 * kMiB);
      ASSERT_TRUE(view.ok()) << view.message();
      if (pass == 0) {
        fill(view->as<std::uint64_t>(), 1, at / 8);
      } else {
        ASSERT_EQ(wrong(view->as<std::uint64_t>(), 1, at / 8), 0u) << "at " << at;
      }
    }
  }
  const Stats stats = context->stats();
  EXPECT_LE(stats.dram_used, 32 * kMiB);
  EXPECT_GE(stats.demoted, 96 * kMiB);
}
INSTANTIATE_TEST_SUITE_P(All, Mechanisms,
                         ::testing::Values("auto", "uffd_move", "copy", "remap", "in_place"));

TEST_F(ContextTest, small_buffers_beyond_the_budget_keep_every_byte) {
  auto context = make("16M");
  std::vector<Buffer> buffers;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    auto buffer = context->alloc(64 << 10);
    ASSERT_TRUE(buffer.ok()) << buffer.message();
    auto view = buffer->acquire(kDiscard);
    ASSERT_TRUE(view.ok()) << i << ": " << view.message();
    fill(view->as<std::uint64_t>(), i);
    buffers.push_back(std::move(buffer).value());
  }
  for (std::uint64_t i = 0; i < buffers.size(); ++i) {
    auto view = buffers[i].acquire(kRead);
    ASSERT_TRUE(view.ok()) << view.message();
    ASSERT_EQ(wrong(view->as<std::uint64_t>(), i), 0u) << "buffer " << i;
  }
}

TEST_F(ContextTest, many_threads_with_buffers_of_many_sizes_lose_nothing) {
  auto context = make("32M");
  std::atomic<std::uint64_t> bad{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      std::vector<std::pair<Buffer, std::uint64_t>> mine;
      for (int i = 0; i < 400; ++i) {
        if (mine.size() < 12) {
          const std::uint64_t bytes = 8 * (512 + random() % (512 << 10));
          auto buffer = context->alloc(bytes);
          if (!buffer.ok()) {
            ++bad;
            return;
          }
          const std::uint64_t seed = random();
          auto view = buffer->acquire(kDiscard);
          if (!view.ok()) {
            ADD_FAILURE() << view.message();
            ++bad;
            return;
          }
          fill(view->as<std::uint64_t>(), seed);
          mine.emplace_back(std::move(buffer).value(), seed);
        }
        auto& [buffer, seed] = mine[random() % mine.size()];
        auto view = buffer.acquire(kRead);
        if (!view.ok()) {
          ADD_FAILURE() << view.message();
          ++bad;
          return;
        }
        bad += wrong(view->as<std::uint64_t>(), seed);
        view->release();
        if (random() % 8 == 0) {
          mine.erase(mine.begin() + static_cast<std::ptrdiff_t>(random() % mine.size()));
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(bad.load(), 0u);
}

TEST_F(ContextTest, an_adopted_file_is_read_at_any_offset_and_never_written) {
  const std::string path = directory_.path() + "/data";
  std::vector<std::uint64_t> words(5 * kMiB / 8 + 3);
  fill(words, 7);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(words.data()),
             static_cast<std::streamsize>(words.size() * 8));
  auto context = make("8M");
  auto buffer = context->adopt_file(path.c_str(), 24);
  ASSERT_TRUE(buffer.ok()) << buffer.message();
  EXPECT_EQ(buffer->size(), words.size() * 8 - 24);
  for (int pass = 0; pass < 2; ++pass) {
    auto view = buffer->acquire(kRead);
    ASSERT_TRUE(view.ok()) << view.message();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view->data()) % 4096, 24u);
    EXPECT_EQ(std::memcmp(view->data(), words.data() + 3, buffer->size()), 0);
    view->release();
    ASSERT_TRUE(buffer->evict().ok());
  }
  EXPECT_EQ(buffer->acquire(kWrite).code(), Code::invalid_argument);
  EXPECT_EQ(context->stats().demoted, 0u);
}

TEST_F(ContextTest, an_adopted_file_takes_alignment_and_advice) {
  const std::string path = directory_.path() + "/data";
  std::ofstream(path, std::ios::binary) << std::string(3 * kMiB, 'a');
  auto context = make("8M");
  for (const std::uint64_t bad : {std::uint64_t{3}, 64 * kMiB, ~std::uint64_t{0}}) {
    EXPECT_EQ(context->adopt_file(path.c_str(), 0, 0, {.alignment = bad}).code(),
              Code::invalid_argument);
  }
  auto wanted =
      context->adopt_file(path.c_str(), 0, 0, {.alignment = 65536, .advice = Advice::will_need});
  ASSERT_TRUE(wanted.ok()) << wanted.message();
  for (int i = 0; i < 1000 && wanted->info()->resident == 0;
       ++i) {  // The hint has no end to await.
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_GT(wanted->info()->resident, 0u);
}

TEST_F(ContextTest, a_file_that_changes_underneath_is_an_error) {
  const std::string path = directory_.path() + "/data";
  std::ofstream(path, std::ios::binary) << std::string(3 * kMiB, 'a');
  auto context = make("8M");
  auto buffer = context->adopt_file(path.c_str());
  ASSERT_TRUE(buffer.ok()) << buffer.message();
  ASSERT_TRUE(buffer->acquire(kRead).ok());
  ASSERT_TRUE(buffer->evict().ok());
  std::ofstream(path, std::ios::binary | std::ios::app) << "more";
  auto view = buffer->acquire(kRead);
  EXPECT_EQ(view.code(), Code::io_error);
  EXPECT_SAYS(view, "data");
}

TEST_F(ContextTest, a_request_larger_than_the_budget_names_tier_budget_and_setting) {
  auto context = make("8M");
  auto buffer = context->alloc(16 * kMiB);
  ASSERT_TRUE(buffer.ok());
  auto view = buffer->acquire(kRead);
  ASSERT_EQ(view.code(), Code::no_capacity);
  ASSERT_NE(view.status().info(), nullptr);
  EXPECT_EQ(view.status().info()->budget, 8 * kMiB);
  EXPECT_STREQ(view.status().info()->setting, "dram");
  EXPECT_SAYS(view, "8.00 MiB");
}

TEST_F(ContextTest, when_everything_is_pinned_the_error_names_the_holder) {
  auto context = make("8M");
  BufferOptions options;
  options.label = "the holder";
  auto buffer = context->alloc(8 * kMiB, options);
  ASSERT_TRUE(buffer.ok());
  auto held = buffer->acquire(kWrite);
  ASSERT_TRUE(held.ok()) << held.message();
  auto other = context->alloc(2 * kMiB);
  auto view = other->acquire(kWrite, 0, 0, Timeout::milliseconds(50));
  ASSERT_EQ(view.code(), Code::no_capacity);
  EXPECT_STREQ(view.status().info()->holder, "the holder");
  EXPECT_EQ(view.status().info()->pinned, 8 * kMiB);
  held->release();
  EXPECT_TRUE(other->acquire(kWrite).ok());
}

// Bytes that are not text are escaped and take several characters each.
TEST_F(ContextTest, a_holder_with_a_long_label_is_named_as_far_as_there_is_room) {
  auto context = make("8M");
  BufferOptions options;
  const std::string label(31, '\x01');
  options.label = label.c_str();
  auto buffer = context->alloc(8 * kMiB, options);
  ASSERT_TRUE(buffer.ok()) << buffer.message();
  auto held = buffer->acquire(kWrite);
  ASSERT_TRUE(held.ok()) << held.message();
  auto other = context->alloc(2 * kMiB);
  auto view = other->acquire(kWrite, 0, 0, Timeout::milliseconds(50));
  ASSERT_EQ(view.code(), Code::no_capacity);
  const ErrorInfo& info = *view.status().info();
  const std::size_t length = strnlen(info.holder, sizeof(info.holder));
  ASSERT_LT(length, sizeof(info.holder));
  EXPECT_GT(length, sizeof(info.holder) / 2);
}

TEST_F(ContextTest, two_callers_that_each_want_more_than_half_both_get_it) {
  auto context = make("16M");
  auto a = context->alloc(12 * kMiB);
  auto b = context->alloc(12 * kMiB);
  std::atomic<int> done{0};
  const auto work = [&](Buffer& buffer) {
    for (int i = 0; i < 20; ++i) {
      auto view = buffer.acquire(kWrite);
      ASSERT_TRUE(view.ok()) << view.message();
      view->as<std::uint64_t>()[0] += 1;
    }
    ++done;
  };
  std::thread one([&] { work(*a); }), two([&] { work(*b); });
  one.join();
  two.join();
  EXPECT_EQ(done.load(), 2);
  EXPECT_EQ(a->acquire(kRead)->as<std::uint64_t>()[0], 20u);
}

TEST_F(ContextTest, a_copy_to_or_from_null_is_refused_by_the_name_of_its_call) {
  auto context = make("16M");
  auto buffer = context->alloc(kMiB);
  ASSERT_TRUE(buffer.ok()) << buffer.message();
  const Status read = buffer->read(0, nullptr, 1);
  EXPECT_EQ(read.code(), Code::invalid_argument);
  EXPECT_SAYS(read, "read: the memory to copy is null");
  const Status write = buffer->write(0, nullptr, 1);
  EXPECT_EQ(write.code(), Code::invalid_argument);
  EXPECT_SAYS(write, "write: the memory to copy is null");
  EXPECT_TRUE(buffer->read(0, nullptr, 0).ok());
  EXPECT_TRUE(buffer->write(0, nullptr, 0).ok());
}

TEST_F(ContextTest, stale_handles_and_double_releases_are_errors) {
  auto context = make("16M");
  auto buffer = context->alloc(kMiB);
  const Access access = buffer->range();
  ViewRecord view;
  ASSERT_TRUE(context->acquire({&access, 1}, Timeout::forever(), {&view, 1}).ok());
  EXPECT_TRUE(context->release({&view, 1}).ok());
  EXPECT_EQ(context->release({&view, 1}).code(), Code::invalid_argument);
  ViewRecord forged;
  forged.token[0] = 12345;
  forged.token[1] = 77;
  EXPECT_EQ(context->release({&forged, 1}).code(), Code::invalid_argument);
  const Handle handle = buffer->handle();
  buffer->reset();
  EXPECT_EQ(context->free(handle).code(), Code::stale_handle);
  EXPECT_EQ(context->acquire({&access, 1}, Timeout::forever(), {&view, 1}).code(),
            Code::stale_handle);
  EXPECT_EQ(context->free(0xdeadbeef).code(), Code::stale_handle);
}

TEST_F(ContextTest, bytes_of_a_freed_buffer_live_until_its_last_view) {
  auto context = make("16M");
  auto buffer = context->alloc(4 * kMiB);
  auto view = buffer->acquire(kDiscard);
  fill(view->as<std::uint64_t>(), 3);
  buffer->reset();
  for (int i = 0; i < 8; ++i) {  // Memory pressure, so that its frames would be evicted.
    auto other = context->alloc(8 * kMiB);
    auto v = other->acquire(kDiscard);
    ASSERT_TRUE(v.ok()) << v.message();
    std::memset(v->data(), 0xFF, v->size());
  }
  EXPECT_EQ(wrong(view->as<std::uint64_t>(), 3), 0u);
}

TEST_F(ContextTest, closing_with_live_views_names_them_and_force_ends_them) {
  auto context = make("16M");
  BufferOptions options;
  options.label = "still here";
  auto buffer = context->alloc(kMiB, options);
  auto view = buffer->acquire(kRead);
  const Status refused = context->close();
  EXPECT_EQ(refused.code(), Code::busy);
  EXPECT_SAYS(refused, "still here");
  EXPECT_TRUE(context->close(true).ok());
  EXPECT_EQ(context->alloc(1).code(), Code::shut_down);
  EXPECT_EQ(buffer->acquire(kRead).code(), Code::shut_down);
  view->release();
}

TEST_F(ContextTest, closing_with_many_views_names_four_and_counts_the_others) {
  auto context = make("16M");
  std::vector<Buffer> buffers;
  std::vector<View> views;
  for (int i = 0; i < 6; ++i) {
    BufferOptions options;
    options.label = "label";
    auto buffer = context->alloc(64 << 10, options);
    ASSERT_TRUE(buffer.ok()) << buffer.message();
    buffers.push_back(std::move(*buffer));
    auto view = buffers.back().acquire(kRead);
    ASSERT_TRUE(view.ok()) << view.message();
    views.push_back(std::move(*view));
    const std::string said = context->close().message();
    const auto count = [&](const std::string& part) {
      int found = 0;
      for (auto at = said.find(part); at != std::string::npos; at = said.find(part, at + 1)) {
        ++found;
      }
      return found;
    };
    EXPECT_NE(said.find("close: views are still held of 'label' by thread "), std::string::npos)
        << said;
    EXPECT_EQ(count("'label' by thread"), std::min(i + 1, 4)) << said;
    EXPECT_EQ(count(" s, 'label'"), std::min(i, 3)) << said;
    EXPECT_EQ(count(" and " + std::to_string(i - 3) + " more;"), i >= 4 ? 1 : 0) << said;
    EXPECT_EQ(count(" more"), i >= 4 ? 1 : 0) << said;
  }
}

TEST_F(ContextTest, a_fork_leaves_the_parent_whole_and_tells_the_child) {
  auto context = make("16M");
  auto buffer = context->alloc(8 * kMiB);
  {
    auto view = buffer->acquire(kDiscard);
    fill(view->as<std::uint64_t>(), 5);
  }
  auto held = buffer->acquire(kRead, 0, 4 * kMiB);
  const pid_t child = fork();
  if (child == 0) {
    const bool told = context->alloc(1).code() == Code::shut_down;
    const bool readable = wrong(held->as<std::uint64_t>(), 5) == 0;
    _exit(told && readable ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  held->release();
  ASSERT_TRUE(buffer->evict().ok());
  auto view = buffer->acquire(kRead);
  ASSERT_TRUE(view.ok()) << view.message();
  EXPECT_EQ(wrong(view->as<std::uint64_t>(), 5), 0u);
}

TEST_F(ContextTest, advice_dont_need_makes_the_range_read_as_zeros) {
  auto context = make("16M");
  auto buffer = context->alloc(8 * kMiB);
  {
    auto view = buffer->acquire(kDiscard);
    std::memset(view->data(), 0x55, view->size());
  }
  const Access range = buffer->range(kMiB, 5 * kMiB);
  ASSERT_TRUE(context->advise({&range, 1}, Advice::dont_need).ok());
  auto view = buffer->acquire(kRead);
  for (std::uint64_t i = 0; i < view->size(); ++i) {
    const bool inside = i >= kMiB && i < 6 * kMiB;
    ASSERT_EQ(view->bytes()[i], inside ? std::byte{0} : std::byte{0x55}) << i;
  }
}

TEST_F(ContextTest, a_cancelled_operation_completes_as_cancelled) {
  auto context = make("8M");
  auto buffer = context->alloc(8 * kMiB);
  auto held = buffer->acquire(kWrite);
  auto other = context->alloc(2 * kMiB);
  const Access access = other->range();
  ViewRecord record;
  auto op = context->acquire_async({&access, 1}, {&record, 1});
  ASSERT_TRUE(op.ok()) << op.message();
  EXPECT_EQ(op->poll().code(), Code::busy);
  ASSERT_TRUE(op->cancel().ok());
  EXPECT_EQ(op->wait().code(), Code::cancelled);
}

TEST_F(ContextTest, a_smaller_budget_is_met_or_refused) {
  auto context = make("32M");
  auto buffer = context->alloc(24 * kMiB);
  {
    auto view = buffer->acquire(kDiscard);
    fill(view->as<std::uint64_t>(), 9);
  }
  ASSERT_TRUE(context->set_budget({Kind::dram, 0}, 8 * kMiB).ok());
  EXPECT_LE(context->stats().dram_used, 8 * kMiB);
  auto held = buffer->acquire(kRead, 0, 8 * kMiB);
  ASSERT_TRUE(held.ok()) << held.message();
  EXPECT_EQ(context->set_budget({Kind::dram, 0}, 4 * kMiB, Timeout::milliseconds(50)).code(),
            Code::no_capacity);
  held->release();
  for (std::uint64_t at = 0; at < buffer->size(); at += 4 * kMiB) {
    auto view = buffer->acquire(kRead, at, 4 * kMiB);
    ASSERT_EQ(wrong(view->as<std::uint64_t>(), 9, at / 8), 0u);
  }
}

TEST_F(ContextTest, a_stream_visits_every_chunk_in_order) {
  auto context = make("16M");
  auto buffer = context->alloc(40 * kMiB);
  auto writing = buffer->stream(0, 0, 3 * kMiB, kDiscard);
  for (View& view : writing) {
    fill(view.as<std::uint64_t>(), 4, writing.offset() / 8);
  }
  ASSERT_TRUE(writing.status().ok()) << writing.status().message();
  std::uint64_t seen = 0;
  auto reading = buffer->stream(0, 0, 5 * kMiB);
  for (View& view : reading) {
    ASSERT_EQ(reading.offset(), seen);
    ASSERT_EQ(wrong(view.as<std::uint64_t>(), 4, seen / 8), 0u);
    seen += view.size();
  }
  EXPECT_EQ(seen, buffer->size());
}

// Objects in DRAM leave 1 MiB, in which no frame of 2 MiB fits.
TEST_F(ContextTest, small_extents_without_room_for_the_frame_that_they_share_say_so) {
  auto context = make("7M");
  std::vector<void*> objects;
  for (int i = 0; i < 6; ++i) {
    auto object = context->malloc_at({Kind::dram, 0}, kMiB);
    ASSERT_TRUE(object.ok()) << object.message();
    objects.push_back(*object);
  }
  const auto small = context->alloc(64 << 10, {.extent_bytes = 64 << 10});
  ASSERT_TRUE(small.ok()) << small.message();
  const auto view = small->acquire(kWrite, 0, 0, Timeout::seconds(10));
  EXPECT_EQ(view.code(), Code::no_capacity);
  EXPECT_SAYS(view, "share frames of 2.00 MiB");
  for (void* const object : objects) {
    EXPECT_TRUE(context->free_ptr(object).ok());
  }
}

// One page in 3 MiB: its records cost more than the page.
TEST_F(ContextTest, records_of_extents_that_fill_the_budget_are_named) {
  auto context = make("8M");
  auto buffer = context->alloc(std::uint64_t{16} << 30, {.extent_bytes = 4096});
  ASSERT_TRUE(buffer.ok()) << buffer.message();
  for (std::uint64_t at = 0; at < buffer->size(); at += 3 * kMiB) {
    ASSERT_TRUE(buffer->acquire(kWrite, at, 8, Timeout::seconds(10)).ok()) << at;
  }
  const auto refused = buffer->acquire(kRead, 0, 4 * kMiB, Timeout::seconds(10));
  EXPECT_EQ(refused.code(), Code::no_capacity);
  EXPECT_SAYS(refused, "records of extents that were touched take");
}

// Small extents of one size share frames of 2 MiB. One that leaves gives room to its own size only,
// until the frame is empty.
TEST_F(ContextTest, buffers_of_many_sizes_in_four_frames_then_no_call_is_refused) {
  auto context = make("8M");
  const bool mapped = context->alloc(1, {.flags = kMapped}).ok();
  std::mt19937_64 dice(1);
  const std::vector<std::byte> bytes(300'000, std::byte{7});
  std::map<std::uint64_t, Buffer> buffers;
  for (int i = 0; i < 3000; ++i) {
    const std::size_t length = 1 + (dice() % 4 == 0 ? dice() % bytes.size() : dice() % 9000);
    const bool touched = mapped && dice() % 2 == 0;
    auto buffer = context->alloc(length, {.flags = touched ? kMapped : 0u});
    ASSERT_TRUE(buffer.ok()) << buffer.message();
    if (touched) {  // A refusal ends the process.
      std::memcpy(*buffer->address(), bytes.data(), length);
    } else {
      const Status written =
          context->write(buffer->handle(), 0, bytes.data(), length, Timeout::seconds(30));
      ASSERT_TRUE(written.ok()) << i << ": " << written.message();
    }
    buffers.insert_or_assign(dice() % 600, std::move(*buffer));
    std::byte first{};
    const Status read =
        context->read(buffers.begin()->second.handle(), 0, &first, 1, Timeout::seconds(30));
    ASSERT_TRUE(read.ok()) << i << ": " << read.message();
    EXPECT_EQ(first, std::byte{7});
  }
}

TEST_F(ContextTest, sparse_extent_is_prefetched_in_vain_then_only_what_was_read_counts) {
  auto context = make("16M");
  auto buffer = context->alloc(2 * kMiB, {.extent_bytes = 2 * kMiB});
  ASSERT_TRUE(buffer.ok()) << buffer.message();
  const std::uint64_t word = 7;
  ASSERT_TRUE(context->write(buffer->handle(), 4096, &word, sizeof word).ok());
  ASSERT_TRUE(buffer->evict().ok());
  Op read;
  const Access range = buffer->range();
  ASSERT_TRUE(context->prefetch({&range, 1}, 0, &read).ok());
  ASSERT_TRUE(read.wait().ok());
  ASSERT_TRUE(buffer->evict().ok());
  const Stats stats = context->stats();
  EXPECT_EQ(stats.prefetched, 4096u);
  EXPECT_LE(stats.prefetched_unused, stats.prefetched);
}

TEST_F(ContextTest, block_tier_is_full_then_no_device_has_refused) {
  auto context = make_context("dram=16M; nvme=" + directory_.path() + ":20M");
  auto buffer = context->alloc(64 * kMiB);
  ASSERT_TRUE(buffer.ok()) << buffer.message();
  std::mt19937_64 dice(1);
  std::vector<std::uint64_t> words(kMiB / 8);
  Status status;
  for (std::uint64_t at = 0; at < buffer->size() && status.ok(); at += kMiB) {
    std::generate(words.begin(), words.end(), dice);
    status = context->write(buffer->handle(), at, words.data(), kMiB, Timeout::seconds(10));
  }
  EXPECT_EQ(status.code(), Code::no_capacity);
  EXPECT_EQ(context->stats().io_errors, 0u);
}

TEST_F(ContextTest, budget_that_fits_already_is_set_without_a_wait) {
  auto context = make("16M");
  EXPECT_TRUE(context->set_budget({Kind::dram, 0}, 32 * kMiB, Timeout::none()).ok());
  EXPECT_EQ(context->stats().dram_budget, 32 * kMiB);
}

TEST_F(ContextTest, bytes_do_not_migrate_to_a_tier_that_does_not_exist) {
  auto context = make("16M");
  auto buffer = context->alloc(kMiB);
  ASSERT_TRUE(write_pattern(*buffer, 1).ok());
  const Access all = buffer->range();
  EXPECT_TRUE(context->migrate({&all, 1}, {Kind::block, 0}).ok());
  EXPECT_EQ(context->migrate({&all, 1}, {Kind::block, 1}).code(), Code::unavailable);
}

TEST_F(ContextTest, a_stream_from_beyond_the_end_says_so) {
  auto context = make("16M");
  auto buffer = context->alloc(4 * kMiB);
  auto at_the_end = buffer->stream(4 * kMiB, 0, kMiB);
  EXPECT_EQ(at_the_end.begin() != at_the_end.end(), false);
  EXPECT_TRUE(at_the_end.status().ok());
  auto beyond = buffer->stream(4 * kMiB + 1, 0, kMiB);
  EXPECT_EQ(beyond.begin() != beyond.end(), false);
  EXPECT_EQ(beyond.status().code(), Code::invalid_argument);
}

TEST_F(ContextTest, the_time_of_steps_is_counted) {
  auto context = make("16M");
  auto buffer = context->alloc(64 * kMiB);
  for (std::uint64_t at = 0; at < buffer->size(); at += 2 * kMiB) {
    ASSERT_TRUE(buffer->acquire(kDiscard, at, 2 * kMiB).ok());
  }
  const Stats stats = context->stats();
  EXPECT_GT(stats.steps, 10u);
  EXPECT_GT(stats.step_ns_p99, 100u);
  EXPECT_LT(stats.step_ns_p99, 10'000'000'000u);
}

TEST_F(ContextTest, writing_down_again_writes_what_has_changed) {
  auto context = make("16M");
  auto buffer = context->alloc(2 * kMiB);
  {
    auto view = buffer->acquire(kDiscard);
    ASSERT_TRUE(view.ok());
    fill(view->as<std::uint64_t>(), 7);
  }
  ASSERT_TRUE(buffer->evict().ok());
  EXPECT_EQ(context->stats().demoted, 2 * kMiB);
  // The same bytes again, so nothing is written.
  {
    auto view = buffer->acquire(kWrite);
    ASSERT_TRUE(view.ok());
    fill(view->as<std::uint64_t>(), 7);
  }
  ASSERT_TRUE(buffer->evict().ok());
  EXPECT_EQ(context->stats().demoted, 2 * kMiB);
  // Writes one word in each of two neighbouring blocks of 64 KiB.
  const std::uint64_t changed = 42;
  ASSERT_TRUE(buffer->write(5 * 65536 + 65528, &changed, 8).ok());
  ASSERT_TRUE(buffer->write(6 * 65536, &changed, 8).ok());
  ASSERT_TRUE(buffer->evict().ok());
  EXPECT_EQ(context->stats().demoted, 2 * kMiB + 2 * 65536);
  auto view = buffer->acquire(kRead);
  ASSERT_TRUE(view.ok()) << view.message();
  auto words = view->as<std::uint64_t>();
  EXPECT_EQ(words[6 * 8192 - 1], changed);
  EXPECT_EQ(words[6 * 8192], changed);
  EXPECT_EQ(wrong(words, 7), 2u);
}

}  // namespace
}  // namespace tiermem::test
