// The malloc family under the preload library, as a program sees it. The environment sets 64 MiB of
// DRAM, tiering from the first byte, and 4 MiB as the size of large blocks. The program itself
// contains nothing for tiermem.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <memory>
#include <new>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "preload/words.hpp"

namespace tiermem::test {
namespace {

constexpr std::size_t kSizes[] = {
    1, 24, 4096, 65536, 200000, kMiB / 4, kMiB, 3 * kMiB, 4 * kMiB, 5 * kMiB + 12345, 40 * kMiB};

std::uintptr_t number(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p);
}

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_realloc(void* block, size_t bytes);
void* __libc_memalign(size_t align, size_t bytes);
void __libc_free(void* block);
}

// Programs and libraries that know glibc's own names mix them with the others.
TEST(Malloc, names_of_glibc_are_served_by_the_same_heap) {
  for (const std::size_t bytes : kSizes) {
    void* block = __libc_malloc(bytes);
    ASSERT_NE(block, nullptr);
    EXPECT_GE(malloc_usable_size(block), bytes);
    block = realloc(block, bytes + 1);
    ASSERT_NE(block, nullptr);
    block = __libc_realloc(block, 2 * bytes);
    ASSERT_NE(block, nullptr);
    free(block);
    __libc_free(malloc(bytes));
    void* const aligned = __libc_memalign(256, bytes);
    EXPECT_EQ(number(aligned) % 256, 0u);
    free(aligned);
  }
}

TEST(Malloc, is_served_by_the_preload_library) {
  Dl_info info{};
  ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, "malloc"), &info), 0);
  EXPECT_NE(std::string(info.dli_fname).find("libtiermem_preload.so"), std::string::npos)
      << info.dli_fname;
}

TEST(Malloc, of_no_bytes_gives_blocks_of_their_own) {
  void* const a = malloc(0);
  void* const b = malloc(0);
  void* const c = calloc(0, 8);
  EXPECT_TRUE(a != nullptr && b != nullptr && c != nullptr);
  EXPECT_NE(a, b);
  free(a);
  free(b);
  free(c);
  free(nullptr);
}

TEST(Malloc, blocks_of_every_class_are_aligned_usable_and_apart) {
  for (const std::size_t bytes : kSizes) {
    std::vector<void*> blocks;
    for (int i = 0; i < 3; ++i) {
      blocks.push_back(malloc(bytes));
      ASSERT_NE(blocks.back(), nullptr) << bytes;
      EXPECT_EQ(number(blocks.back()) % (bytes >= 16 ? 16 : 8), 0u);
      EXPECT_GE(malloc_usable_size(blocks.back()), bytes);
      memset(blocks.back(), 'a' + i, malloc_usable_size(blocks.back()));
    }
    for (int i = 0; i < 3; ++i) {
      const auto* const text = static_cast<const char*>(blocks[static_cast<std::size_t>(i)]);
      EXPECT_EQ(text[0], 'a' + i);
      EXPECT_EQ(text[bytes - 1], 'a' + i);
      free(blocks[static_cast<std::size_t>(i)]);
    }
  }
  EXPECT_EQ(malloc_usable_size(nullptr), 0u);
}

TEST(Malloc, calloc_gives_zeros_where_others_have_written) {
  for (int round = 0; round < 3; ++round) {
    for (const std::size_t bytes : kSizes) {
      void* const block = calloc(bytes, 1);
      ASSERT_NE(block, nullptr);
      EXPECT_EQ(nonzero_words(block, bytes), 0u) << bytes;
      memset(block, 0xFF, bytes);
      free(block);
    }
  }
}

TEST(Malloc, what_is_too_much_is_refused_with_enomem) {
  volatile std::size_t most = SIZE_MAX;
  errno = 0;
  EXPECT_EQ(malloc(most), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  errno = 0;
  EXPECT_EQ(calloc(most / 2, 3), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  void* const block = malloc(100);
  // Without this the compiler would assume that a refused block is lost.
  void* volatile kept = block;
  strcpy(static_cast<char*>(block), "still here");
  errno = 0;
  EXPECT_EQ(realloc(block, most), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  errno = 0;
  EXPECT_EQ(reallocarray(block, most / 2, 3), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_STREQ(static_cast<char*>(kept), "still here");
  free(kept);
  EXPECT_THROW((void)::operator new(most / 2), std::bad_alloc);
  EXPECT_EQ(::operator new(most / 2, std::nothrow), nullptr);
}

TEST(Malloc, realloc_keeps_the_bytes_from_class_to_class) {
  std::mt19937_64 random(7);
  void* block = nullptr;
  std::size_t bytes = 0;
  for (int i = 0; i < 60; ++i) {
    const std::size_t next = kSizes[random() % std::size(kSizes)] + random() % 64 * 8;
    void* const moved = realloc(block, next);
    ASSERT_NE(moved, nullptr);
    const std::size_t kept = std::min(bytes, next);
    EXPECT_EQ(wrong_words(moved, kept, static_cast<std::uint64_t>(i)), 0u) << bytes << " " << next;
    put_words(moved, next, static_cast<std::uint64_t>(i) + 1);
    block = moved;
    bytes = next;
  }
  EXPECT_EQ(realloc(block, 0), nullptr);
}

TEST(Malloc, a_large_block_grows_in_place_and_reads_zeros_of_nobody) {
  auto* block = static_cast<char*>(malloc(8 * kMiB));
  put_words(block, 8 * kMiB, 3);
  auto* const grown = static_cast<char*>(realloc(block, 11 * kMiB));
  EXPECT_EQ(grown, block);
  EXPECT_EQ(wrong_words(grown, 8 * kMiB, 3), 0u);
  memset(grown, 1, 11 * kMiB);
  block = static_cast<char*>(realloc(grown, 5 * kMiB));
  EXPECT_EQ(block[5 * kMiB - 1], 1);
  free(block);
}

// Twice the budget, in a program that repeatedly doubles its table.
TEST(Malloc, a_block_larger_than_memory_grows_without_a_wrong_byte) {
  std::size_t bytes = 8 * kMiB;
  void* block = malloc(bytes);
  put_words(block, bytes, 5);
  while (bytes < 2 * kBudget) {
    block = realloc(block, 2 * bytes);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(wrong_words(block, bytes, 5), 0u) << bytes;
    EXPECT_EQ(nonzero_words(static_cast<std::byte*>(block) + bytes, bytes), 0u) << bytes;
    bytes *= 2;
    put_words(block, bytes, 5);
  }
  block = realloc(block, bytes / 8);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(wrong_words(block, bytes / 8, 5), 0u);
  free(block);
}

TEST(Malloc, alignments_are_kept_up_to_large_ones) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{5000}, kMiB, 6 * kMiB}) {
    for (std::size_t align = 8; align <= 8 * kMiB; align *= 2) {
      void* block = nullptr;
      ASSERT_EQ(posix_memalign(&block, align, bytes), 0) << align << " " << bytes;
      EXPECT_EQ(number(block) % align, 0u);
      memset(block, 1, bytes);
      free(block);
      block = aligned_alloc(align, bytes);
      ASSERT_NE(block, nullptr);
      EXPECT_EQ(number(block) % align, 0u);
      block = realloc(block, bytes + 100);
      ASSERT_NE(block, nullptr);
      free(block);
    }
  }
  void* block = nullptr;
  EXPECT_EQ(posix_memalign(&block, 3, 8), EINVAL);
  EXPECT_EQ(posix_memalign(&block, 4, 8), EINVAL);
  std::size_t no_power_of_two = 24;  // glibc rounds up.
  block = memalign(no_power_of_two, 10);
  EXPECT_EQ(number(block) % 32, 0u);
  free(block);
  block = valloc(10);
  EXPECT_EQ(number(block) % 4096, 0u);
  free(block);
  block = pvalloc(4097);
  EXPECT_EQ(number(block) % 4096, 0u);
  EXPECT_GE(malloc_usable_size(block), 8192u);
  free(block);
}

TEST(Malloc, every_form_of_new_and_delete_goes_together) {
  struct alignas(128) Wide {
    char bytes[256];
  };
  for (int i = 0; i < 100; ++i) {
    delete new int(1);
    delete[] new int[100];
    delete new Wide;
    delete[] new Wide[3];
    ::operator delete(::operator new(10, std::nothrow), std::nothrow);
    ::operator delete[](::operator new[](10, std::nothrow), std::nothrow);
    ::operator delete (::operator new(10), std::size_t{10});
    ::operator delete[](::operator new[](10), std::size_t{10});
    constexpr std::align_val_t kAlign{64};
    ::operator delete(::operator new(10, kAlign), kAlign);
    ::operator delete[](::operator new[](10, kAlign), kAlign);
    ::operator delete (::operator new(10, kAlign), std::size_t{10}, kAlign);
    ::operator delete[](::operator new[](10, kAlign), std::size_t{10}, kAlign);
    ::operator delete(::operator new(10, kAlign, std::nothrow), kAlign, std::nothrow);
    ::operator delete[](::operator new[](10, kAlign, std::nothrow), kAlign, std::nothrow);
    free(::operator new(12));
  }
}

std::size_t g_handler_calls = 0;

TEST(Malloc, the_handler_of_new_is_asked_before_bad_alloc) {
  g_handler_calls = 0;
  const std::new_handler before = std::set_new_handler([] {
    if (++g_handler_calls == 3) {
      std::set_new_handler(nullptr);
    }
  });
  volatile std::size_t most = SIZE_MAX / 2;
  EXPECT_THROW((void)::operator new(most), std::bad_alloc);
  EXPECT_EQ(g_handler_calls, 3u);
  EXPECT_EQ(std::uncaught_exceptions(), 0) << "another C++ library threw than the program's";
  std::set_new_handler(before);
}

TEST(Malloc, a_new_that_does_not_throw_asks_the_handler_and_takes_its_exception_for_no) {
  const std::new_handler before = std::set_new_handler([] {
    ++g_handler_calls;
    throw std::bad_alloc();
  });
  for (const std::size_t most : {SIZE_MAX / 2, SIZE_MAX}) {
    for (const bool aligned : {false, true}) {
      g_handler_calls = 0;
      EXPECT_EQ(aligned ? ::operator new(most, std::align_val_t(64), std::nothrow)
                        : ::operator new(most, std::nothrow),
                nullptr);
      EXPECT_EQ(g_handler_calls, 1u);
      EXPECT_EQ(std::uncaught_exceptions(), 0);
    }
  }
  std::set_new_handler(before);
}

TEST(Malloc, free_leaves_errno_alone) {
  for (const std::size_t bytes : kSizes) {
    void* const block = malloc(bytes);
    errno = 1234;
    free(block);
    EXPECT_EQ(errno, 1234) << bytes;
  }
}

/// Checks the bytes of blocks of one size, four times the memory in total, and the resident bytes.
void four_times_the_memory(std::size_t bytes) {
  const std::size_t count = 4 * kBudget / bytes;
  std::vector<void*> blocks;
  blocks.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    blocks.push_back(malloc(bytes));
    ASSERT_NE(blocks.back(), nullptr);
    put_words(blocks.back(), bytes, i);
  }
  EXPECT_LE(resident_bytes(), kBudget + kOverhead);
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    wrong += wrong_words(blocks[i], bytes, i);
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_LE(resident_bytes(), kBudget + kOverhead);
  for (void* const block : blocks) {
    free(block);
  }
}

TEST(Malloc, small_blocks_beyond_memory_keep_their_bytes) {
  four_times_the_memory(512);
}
TEST(Malloc, medium_blocks_beyond_memory_keep_their_bytes) {
  four_times_the_memory(kMiB);
}
TEST(Malloc, large_blocks_beyond_memory_keep_their_bytes) {
  four_times_the_memory(16 * kMiB);
}
TEST(Malloc, one_block_beyond_memory_keeps_its_bytes) {
  four_times_the_memory(4 * kBudget);
}

TEST(Malloc, freed_memory_is_used_again) {
  for (int round = 0; round < 20; ++round) {
    void* const block = malloc(kBudget / 2);
    put_words(block, kBudget / 2, static_cast<std::uint64_t>(round));
    EXPECT_EQ(wrong_words(block, kBudget / 2, static_cast<std::uint64_t>(round)), 0u);
    free(block);
  }
  EXPECT_LE(resident_bytes(), kBudget + kOverhead);
}

TEST(Malloc, a_hundred_thousand_large_blocks_are_no_trouble) {
  std::vector<char*> blocks;
  for (std::size_t i = 0; i < 100000; ++i) {
    blocks.push_back(static_cast<char*>(malloc(4 * kMiB)));
    ASSERT_NE(blocks.back(), nullptr) << i;
    if (i % 1000 == 0) {
      put_words(blocks.back(), 4096, i);
    }
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i % 1000 == 0) {
      EXPECT_EQ(wrong_words(blocks[i], 4096, i), 0u);
    }
    free(blocks[i]);
  }
}

TEST(Malloc, threads_that_pass_blocks_around_lose_nothing) {
  constexpr std::size_t kThreads = 4, kBlocks = 300;
  struct Block {
    void* data = nullptr;
    std::size_t bytes = 0;
    std::uint64_t seed = 0;
  };
  std::vector<Block> all(kThreads * kBlocks);
  std::atomic<std::uint64_t> wrong{0};
  for (int round = 0; round < 4; ++round) {
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937_64 random(t + 10 * static_cast<std::uint64_t>(round));
        for (std::size_t i = 0; i < kBlocks; ++i) {
          // Created by another thread in the previous round.
          Block& block = all[(t + static_cast<std::size_t>(round)) % kThreads * kBlocks + i];
          wrong += wrong_words(block.data, block.bytes, block.seed);
          const std::size_t bytes = std::size_t{16}
                                    << (random() % 100 < 95 ? random() % 16 : random() % 19);
          block.data =
              random() % 2 == 0 ? realloc(block.data, bytes) : (free(block.data), malloc(bytes));
          block.bytes = bytes;
          block.seed = random();
          put_words(block.data, bytes, block.seed);
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
  for (Block& block : all) {
    wrong += wrong_words(block.data, block.bytes, block.seed);
    free(block.data);
  }
  EXPECT_EQ(wrong, 0u);
}

std::size_t present_bytes(const std::vector<void*>& blocks, std::size_t bytes) {
  std::size_t present = 0;
  for (void* const block : blocks) {
    const std::size_t head = number(block) % 4096;
    std::vector<unsigned char> pages((head + bytes + 4095) / 4096);
    EXPECT_EQ(mincore(static_cast<char*>(block) - head, head + bytes, pages.data()), 0);
    present += 4096 * static_cast<std::size_t>(std::count_if(
                          pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
  }
  return present;
}

// Blocks may be of a thread that has made none by malloc.
TEST(Malloc, a_thread_that_only_makes_blocks_grow_has_them_tiered) {
  constexpr std::size_t kBytes = 128 << 10;
  std::vector<void*> blocks;
  for (int i = 0; i < 1000; ++i) {
    blocks.push_back(malloc(16));
  }
  std::thread([&] {
    for (void*& block : blocks) {
      block = realloc(block, kBytes);
      put_words(block, kBytes, number(&block));
    }
  }).join();
  EXPECT_LE(present_bytes(blocks, kBytes), 80 * kMiB);  // The blocks have 125 MiB, the budget 64.
  for (void*& block : blocks) {
    EXPECT_EQ(wrong_words(block, kBytes, number(&block)), 0u);
    free(block);
  }
}

TEST(Malloc, a_thread_frees_in_its_last_breath) {
  pthread_key_t key;
  ASSERT_EQ(pthread_key_create(&key,
                               [](void* block) {
                                 free(block);
                                 free(malloc(100));
                                 free(malloc(5 * kMiB));
                               }),
            0);
  for (int i = 0; i < 50; ++i) {
    std::thread([&] {
      thread_local std::unique_ptr<int> last = std::make_unique<int>(1);
      pthread_setspecific(key, malloc(1000));
    }).join();
  }
  pthread_key_delete(key);
}

struct BeforeMain {
  void* small = malloc(100);
  void* large = malloc(6 * kMiB);
  BeforeMain() { put_words(large, 6 * kMiB, 77); }
};
BeforeMain g_before_main;

TEST(Malloc, static_initialisers_have_memory) {
  EXPECT_EQ(wrong_words(g_before_main.large, 6 * kMiB, 77), 0u);
  g_before_main.small = realloc(g_before_main.small, 200);
  EXPECT_NE(g_before_main.small, nullptr);
}

}  // namespace
}  // namespace tiermem::test
