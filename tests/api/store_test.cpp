// The store of objects by key: beside a map of plain bytes, with several threads, and with bytes
// that are damaged on the disk.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/pattern.hpp"
#include "support/sanitizers.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

class StoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<Context> make(const std::string& more = "") {
    return make_context("dram=16M; nvme=" + directory_.path() + ":512M" + more);
  }
  static std::unique_ptr<Store> open(Context& context, std::uint64_t capacity) {
    auto store = Store::open(context, {.name = "test", .capacity_bytes = capacity});
    EXPECT_TRUE(store.ok()) << store.message();
    return store.ok() ? std::move(*store) : nullptr;
  }
  /// Key and bytes must outlive the object.
  static StoreObject object(const std::string& key, std::string& bytes) {
    return {key.data(), key.size(), bytes.data(), bytes.size()};
  }
  Directory directory_;
};

// Without evictions: the store is larger than all objects, and memory is smaller.
TEST_F(StoreTest, random_calls_beside_a_map) {
  auto context = make();
  auto store = open(*context, 400 * kMiB);
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::map<std::string, std::string> model;
  const int calls = kThreadSanitizer ? 400 : 1500;
  for (int call = 0; call < calls; ++call) {
    std::vector<std::string> keys, bytes;
    std::vector<StoreObject> list;
    const std::size_t n = 1 + random() % 4;
    for (std::size_t i = 0; i < n; ++i) {
      keys.push_back("key " + std::to_string(random() % 60));
      const std::size_t sizes[] = {1, 100, 4096, 70'000, 300'000, 2'500'000};
      bytes.emplace_back(sizes[random() % 6], static_cast<char>(random()));
    }
    const unsigned what = random() % 8;
    const bool puts = what < 3;
    for (std::size_t i = 0; i < n; ++i) {
      if (!puts) {
        bytes[i].assign(2'500'000, '?');
      }
      list.push_back(object(keys[i], bytes[i]));
    }
    if (puts) {
      Op op;
      const Status put = store->put(list, Timeout::forever(), what == 0 ? &op : nullptr);
      ASSERT_TRUE(put.ok()) << put.message();
      if (what == 0) {
        ASSERT_TRUE(op.wait().ok());
      }
      for (std::size_t i = 0; i < n; ++i) {
        model[keys[i]] = bytes[i];
      }
    } else if (what < 7) {
      const Status got = store->get(list);
      ASSERT_TRUE(got.ok()) << got.message();
      for (std::size_t i = 0; i < n; ++i) {
        const auto expected = model.find(keys[i]);
        ASSERT_EQ(list[i].found == 1, expected != model.end());
        if (list[i].found == 1) {
          ASSERT_EQ(list[i].stored, expected->second.size());
          ASSERT_EQ(std::memcmp(bytes[i].data(), expected->second.data(), list[i].stored), 0);
        }
      }
    } else {
      ASSERT_TRUE(store->erase(list).ok());
      for (const std::string& key : keys) {
        model.erase(key);
      }
    }
  }
  EXPECT_EQ(store->stats().objects, model.size());
  EXPECT_GT(context->stats().demoted, 0u);
}

// Wanted once, an object comes past memory; wanted again and again, it stays there.
TEST_F(StoreTest, object_is_promoted_when_it_is_wanted_again_soon) {
  auto context = make();
  auto store = open(*context, 400 * kMiB);
  const auto key = [](int i) { return "key " + std::to_string(i); };
  std::vector<std::string> keys, bytes;
  std::vector<StoreObject> list;
  for (int i = 0; i < 64; ++i) {  // Four times the memory.
    keys.push_back(key(i));
    bytes.emplace_back(kMiB, static_cast<char>('a' + i % 26));
  }
  for (int i = 0; i < 64; ++i) {
    list.push_back(object(keys[i], bytes[i]));
  }
  ASSERT_TRUE(store->put(list).ok());
  // Some are still in memory: the policy keeps what is old beside a scan.
  const Stats before = context->stats();
  std::string room;
  StoreObject one;
  int i = 0;
  for (; i < 64 && context->stats().gather_reads == before.gather_reads; ++i) {
    room.assign(kMiB, '?');
    one = object(keys[i], room);
    ASSERT_TRUE(store->get({&one, 1}).ok());
    EXPECT_EQ(room, bytes[i]);
  }
  ASSERT_LT(i, 64);
  EXPECT_EQ(context->stats().promoted, before.promoted);
  room.assign(kMiB, '?');
  ASSERT_TRUE(store->get({&one, 1}).ok());
  EXPECT_EQ(room, bytes[i - 1]);
  const Stats second = context->stats();
  EXPECT_EQ(second.promoted, before.promoted + kMiB);
  ASSERT_TRUE(store->get({&one, 1}).ok());  // From memory.
  EXPECT_EQ(context->stats().promoted, second.promoted);
  EXPECT_EQ(context->stats().gather_reads, second.gather_reads);
}

// Threads put, get and erase the same few objects in a store that is too small for all. Every
// object that is found has the bytes of one put, as a whole.
TEST_F(StoreTest, threads_see_whole_objects) {
  auto context = make();
  auto store = open(*context, 8 * kMiB);
  std::atomic<int> wrong{0}, found{0};
  const auto work = [&](unsigned number) {
    std::mt19937 random(number);
    for (int turn = 0; turn < (kThreadSanitizer ? 120 : 400); ++turn) {
      const std::string key = "key " + std::to_string(random() % 40);
      std::string bytes(random() % 2 != 0 ? 900'000 : 30'000, static_cast<char>(random() | 1));
      StoreObject each = object(key, bytes);
      if (random() % 3 == 0) {
        if (!store->put({&each, 1}).ok()) {
          ++wrong;
        }
      } else if (random() % 16 == 0) {
        (void)store->erase({&each, 1});
      } else {
        bytes.assign(900'000, '\0');
        each = object(key, bytes);
        if (!store->get({&each, 1}).ok()) {
          ++wrong;
        }
        if (each.found == 1) {
          ++found;
          const std::string_view got(bytes.data(), each.stored);
          if (got.find_first_not_of(got[0]) != std::string_view::npos || got[0] == '\0') {
            ++wrong;
          }
        }
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 6; ++i) {
    threads.emplace_back(work, i);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(found, 0);
  EXPECT_LE(store->stats().used, 8 * kMiB);
  EXPECT_GT(store->stats().evicted, 0u);
  const std::uint64_t objects = store->stats().objects;
  EXPECT_EQ(context->stats().buffers, objects);
  store.reset();
  EXPECT_EQ(context->stats().buffers, 0u);
}

// Objects in use stay, while others pass by that are used once.
TEST_F(StoreTest, a_scan_does_not_drop_what_is_used) {
  auto context = make();
  auto store = open(*context, 100 * 4096);
  std::string bytes(4096, 'x');
  const auto put = [&](const std::string& key) {
    StoreObject each = object(key, bytes);
    ASSERT_TRUE(store->put({&each, 1}).ok());
  };
  const auto has = [&](const std::string& key) {
    StoreObject each = object(key, bytes);
    EXPECT_TRUE(store->get({&each, 1}).ok());
    return each.found == 1;
  };
  for (int i = 0; i < 40; ++i) {
    put("hot " + std::to_string(i));
  }
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 40; ++i) {
      (void)has("hot " + std::to_string(i));
    }
    for (int i = 0; i < 25; ++i) {
      put("scan " + std::to_string(round * 25 + i));
    }
  }
  int kept = 0;
  for (int i = 0; i < 40; ++i) {
    kept += has("hot " + std::to_string(i)) ? 1 : 0;
  }
  EXPECT_GE(kept, 38);
}

/// Overwrites some bytes of each 64 KiB of the context's file on the disk.
void damage_files(const std::string& directory) {
  DIR* const open_files = ::opendir("/proc/self/fd");
  ASSERT_NE(open_files, nullptr);
  int damaged = 0;
  while (const dirent* entry = ::readdir(open_files)) {
    char target[PATH_MAX] = {};
    const std::string path = std::string("/proc/self/fd/") + entry->d_name;
    if (::readlink(path.c_str(), target, sizeof target - 1) <= 0 ||
        std::string_view(target).find(directory) != 0) {
      continue;
    }
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    const off_t size = fd >= 0 ? ::lseek(fd, 0, SEEK_END) : 0;
    for (off_t at = 1000; at < size; at += 65536) {
      ASSERT_EQ(::pwrite(fd, "bad", 3, at), 3);
      ++damaged;
    }
    ::fsync(fd);
    ::close(fd);
  }
  ::closedir(open_files);
  ASSERT_GT(damaged, 0);
}

TEST_F(StoreTest, damaged_objects_are_misses) {
  auto context = make();
  auto store = open(*context, 200 * kMiB);
  std::vector<std::string> keys, bytes;
  std::vector<StoreObject> list;
  for (int i = 0; i < 64; ++i) {
    keys.push_back("key " + std::to_string(i));
    bytes.emplace_back(kMiB, static_cast<char>('a' + i % 26));
  }
  for (int i = 0; i < 64; ++i) {
    list.push_back(object(keys[i], bytes[i]));
  }
  ASSERT_TRUE(store->put(list).ok());
  damage_files(directory_.path());
  for (std::string& each : bytes) {
    each.assign(kMiB, '\0');
  }
  const Status got = store->get(list);
  EXPECT_TRUE(got.ok()) << got.message();
  int missed = 0;
  for (int i = 0; i < 64; ++i) {
    const std::string expected(kMiB, static_cast<char>('a' + i % 26));
    missed += list[i].found == 0 ? 1 : 0;
    EXPECT_TRUE(list[i].found == 0 || bytes[i] == expected) << "wrong bytes in object " << i;
  }
  EXPECT_GT(missed, 40);  // The others were in memory.
  EXPECT_EQ(store->stats().damaged, static_cast<std::uint64_t>(missed));
  EXPECT_EQ(store->stats().objects, 64u - static_cast<unsigned>(missed));
  // They can be stored again.
  for (int i = 0; i < 64; ++i) {
    bytes[i].assign(kMiB, static_cast<char>(i));
  }
  ASSERT_TRUE(store->put(list).ok());
  EXPECT_EQ(store->stats().objects, 64u);
}

// A mistake of the caller. The store keeps its own records right.
TEST_F(StoreTest, objects_that_change_during_a_put_leave_the_records_right) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "the thread sanitizer reports the caller's mistake";
  }
  auto context = make();
  auto store = open(*context, kMiB);
  std::string key = "key 0", bytes(64 << 10, 'x');
  StoreObject changing = object(key, bytes);
  std::atomic<bool> stop{false};
  std::thread other([&] {
    auto* const size = &changing.bytes;
    for (std::uint64_t i = 0; !stop; ++i) {
      __atomic_store_n(size, i % 2 == 0 ? 1 : bytes.size(), __ATOMIC_RELAXED);
      __atomic_store_n(&key[4], static_cast<char>('0' + i % 40), __ATOMIC_RELAXED);
    }
  });
  for (int i = 0; i < 3000; ++i) {
    (void)store->put({&changing, 1});
  }
  stop = true;
  other.join();
  EXPECT_LE(store->stats().used, kMiB);
  std::vector<std::string> keys;
  for (char number = '0'; number < '0' + 40; ++number) {
    keys.push_back(std::string("key ") + number);
  }
  for (const std::string& each : keys) {
    StoreObject gone = object(each, bytes);
    (void)store->erase({&gone, 1});
  }
  EXPECT_EQ(store->stats().objects, 0u);
  EXPECT_EQ(store->stats().used, 0u);
}

TEST_F(StoreTest, a_cancelled_operation_ends) {
  auto context = make();
  auto store = open(*context, 400 * kMiB);
  std::vector<std::string> keys;
  std::string bytes(kMiB, 'x');
  std::vector<StoreObject> list;
  for (int i = 0; i < 200; ++i) {
    keys.push_back("key " + std::to_string(i));
  }
  for (const std::string& key : keys) {
    list.push_back(object(key, bytes));
  }
  Op op;
  ASSERT_TRUE(store->put(list, Timeout::forever(), &op).ok());
  ASSERT_TRUE(op.cancel().ok());
  const Status ended = op.wait();
  EXPECT_TRUE(ended.ok() || ended.code() == Code::cancelled) << ended.message();
  EXPECT_EQ(store->stats().used, store->stats().objects * kMiB);
}

TEST_F(StoreTest, objects_of_a_cancelled_operation_are_no_misses) {
  auto context = make();
  auto store = open(*context, 400 * kMiB);
  const std::string key = "key";
  std::string bytes(kMiB, 'x');
  StoreObject put = object(key, bytes);
  ASSERT_TRUE(store->put({&put, 1}).ok());
  std::vector<StoreObject> list(64, put);
  std::vector<Op> ops(list.size());
  std::vector<std::string> to(list.size(), bytes);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    list[i] = object(key, to[i]);
    ASSERT_TRUE(store->get({&list[i], 1}, Timeout::forever(), &ops[i]).ok());
  }
  for (Op& op : ops) {
    (void)op.cancel();
  }
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Status ended = ops[i].wait();
    EXPECT_EQ(list[i].code, ended.code());
    EXPECT_EQ(list[i].found != 0, ended.ok());
  }
}

// The memory has no room while the view is held.
TEST_F(StoreTest, a_cancelled_operation_does_not_wait_for_room) {
  auto context = make();
  auto store = open(*context, 400 * kMiB);
  const std::string key = "key";
  std::string bytes(kMiB, 'x');
  StoreObject object_of = object(key, bytes);
  ASSERT_TRUE(store->put({&object_of, 1}).ok());
  const std::uint64_t dram = context->stats().dram_budget;
  const Buffer hog = *context->alloc(dram);
  std::vector<View> held;
  for (std::uint64_t at = 0; at < dram; at += kMiB) {
    auto view = hog.acquire(kWrite, at, kMiB, Timeout::milliseconds(100));
    if (!view.ok()) {
      break;
    }
    held.push_back(std::move(*view));
  }
  Op op;
  ASSERT_TRUE(store->put({&object_of, 1}, Timeout::forever(), &op).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // Until it waits for room.
  ASSERT_TRUE(op.cancel().ok());
  EXPECT_EQ(op.wait(Timeout::milliseconds(10'000)).code(), Code::cancelled);
}

TEST_F(StoreTest, a_bad_key_does_not_stop_the_others) {
  auto context = make();
  auto store = open(*context, 10 * kMiB);
  const std::string good = "key", bad(Store::kLongestKey + 1, 'k');
  std::string bytes(1000, 'x');
  std::vector<StoreObject> list = {object(bad, bytes), object(good, bytes)};
  const auto call_on_both = [&](const char* what, Status (Store::*call)(std::span<StoreObject>)) {
    SCOPED_TRACE(what);
    EXPECT_EQ((*store.*call)(list).code(), Code::invalid_argument);
    EXPECT_EQ(list[0].code, Code::invalid_argument);
    EXPECT_EQ(list[0].found, 0u);
    EXPECT_EQ(list[1].code, Code::ok);
    EXPECT_EQ(list[1].found, 1u);
  };
  EXPECT_EQ(store->put(list).code(), Code::invalid_argument);
  EXPECT_EQ(store->exists(list).code(), Code::invalid_argument);
  EXPECT_EQ(list[1].found, 1u);
  EXPECT_EQ(store->get(list).code(), Code::invalid_argument);
  EXPECT_EQ(list[1].found, 1u);
  call_on_both("pin", &Store::pin);
  call_on_both("unpin", &Store::unpin);
  call_on_both("erase", &Store::erase);
  EXPECT_EQ(store->stats().objects, 0u);
}

TEST_F(StoreTest, object_larger_than_memory_is_refused_and_the_others_stay) {
  auto context = make();
  auto store = open(*context, 64 * kMiB);
  std::string bytes(kMiB, 'x'), large(17 * kMiB, 'y');
  for (int i = 0; i < 40; ++i) {
    const std::string key = "key" + std::to_string(i);
    StoreObject small = object(key, bytes);
    ASSERT_TRUE(store->put({&small, 1}).ok());
  }
  const std::string key = "large";
  StoreObject much = object(key, large);
  EXPECT_FALSE(store->put({&much, 1}).ok());
  EXPECT_EQ(much.code, Code::no_capacity);
  const StoreStats stats = store->stats();
  EXPECT_EQ(stats.objects, 40u);
  EXPECT_EQ(stats.evicted, 0u);
  EXPECT_EQ(stats.refused, 1u);
}

TEST_F(StoreTest, a_child_of_fork_is_told_so) {
  auto context = make();
  auto store = open(*context, 10 * kMiB);
  const std::string key = "key";  // The object points to it.
  std::string bytes(1000, 'x');
  StoreObject each = object(key, bytes);
  ASSERT_TRUE(store->put({&each, 1}).ok());
  const pid_t child = ::fork();
  if (child == 0) {
    const bool told = store->get({&each, 1}).code() == Code::shut_down &&
                      store->put({&each, 1}).code() == Code::shut_down;
    ::_exit(told ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(store->get({&each, 1}).ok());
  EXPECT_EQ(each.found, 1u);
}

}  // namespace
}  // namespace tiermem::test
