// Faults P11 to P13: modules that use RTLD_DEEPBIND, descriptors that a program chooses by number,
// and memory that the kernel writes when a thread ends.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>

#include "preload/evicted.hpp"
#include "preload/words.hpp"

namespace tiermem::test {
namespace {

TEST(FaultsFound, P11_module_that_binds_deeply_frees_then_it_is_the_same_malloc) {
  void* const module = dlopen(TIERMEM_TEST_DEEP_MODULE, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  ASSERT_NE(module, nullptr) << dlerror();
  auto* const release = reinterpret_cast<void (*)(void*)>(dlsym(module, "module_release"));
  auto* const make = reinterpret_cast<void* (*)(size_t)>(dlsym(module, "module_make"));
  ASSERT_NE(release, nullptr);
  ASSERT_NE(make, nullptr);
  for (const std::size_t bytes : {std::size_t{100}, std::size_t{1} << 20, std::size_t{8} << 20}) {
    release(malloc(bytes));
    free(make(bytes));
  }
  EXPECT_EQ(dlclose(module), 0);
}

TEST(FaultsFound, P12_program_duplicates_onto_every_number_then_no_memory_is_lost) {
  Evicted memory(4 * kMiB);
  put_words(memory.at(), memory.bytes(), 5);
  memory.evict();
  const int null = open("/dev/null", O_RDWR);
  ASSERT_GE(null, 0);
  const int limit = static_cast<int>(sysconf(_SC_OPEN_MAX));
  for (int fd = 10; fd < std::min(limit, 20'000) + 300; ++fd) {
    if (fd == null || fcntl(fd, F_GETFD) >= 0) {
      // The number is in use. A descriptor of the program is replaced, and one of tiermem is
      // refused.
      EXPECT_TRUE(dup2(null, fd) == fd || errno == EBADF) << fd;
      continue;
    }
    if (dup2(null, fd) == fd) {
      close(fd);
    }
  }
  close(null);
  EXPECT_EQ(wrong_words(memory.at(), memory.bytes(), 5), 0u);
  memory.evict();
  EXPECT_EQ(wrong_words(memory.at(), memory.bytes(), 5), 0u);
}

void* lock_and_end(void* mutex) {
  pthread_mutex_lock(static_cast<pthread_mutex_t*>(mutex));
  return nullptr;
}

TEST(FaultsFound, P13_owner_of_a_robust_mutex_ends_then_the_next_one_is_told) {
  const Evicted memory(kMiB);
  auto* const mutex = reinterpret_cast<pthread_mutex_t*>(memory.at() + 64);
  pthread_mutexattr_t robust;
  ASSERT_EQ(pthread_mutexattr_init(&robust), 0);
  ASSERT_EQ(pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST), 0);
  ASSERT_EQ(pthread_mutex_init(mutex, &robust), 0);
  for (int i = 0; i < 20; ++i) {
    (void)madvise(memory.at(), memory.bytes(), MADV_PAGEOUT);
    usleep(1000);
  }
  pthread_t owner;
  ASSERT_EQ(pthread_create(&owner, nullptr, lock_and_end, mutex), 0);
  ASSERT_EQ(pthread_join(owner, nullptr), 0);
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 10;
  EXPECT_EQ(pthread_mutex_timedlock(mutex, &until), EOWNERDEAD);
  EXPECT_EQ(pthread_mutex_consistent(mutex), 0);
  EXPECT_EQ(pthread_mutex_unlock(mutex), 0);
  EXPECT_EQ(pthread_mutex_destroy(mutex), 0);
}

struct Stack {
  std::byte* at;
  std::size_t bytes;
};

// The upper end of the thread's own stack may leave while it sleeps.
void* sleep_on_it(void* argument) {
  const Stack& stack = *static_cast<Stack*>(argument);
  for (int i = 0; i < 20; ++i) {
    (void)madvise(stack.at, stack.bytes, MADV_PAGEOUT);
    usleep(1000);
  }
  return argument;
}

TEST(FaultsFound, P13_thread_on_a_stack_of_tiered_memory_ends_then_it_can_be_joined) {
  const Evicted memory(2 * kMiB);
  Stack stack{memory.at(), memory.bytes()};
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstack(&attributes, stack.at, stack.bytes), 0);
  for (int i = 0; i < 10; ++i) {
    pthread_t thread;
    void* result = nullptr;
    ASSERT_EQ(pthread_create(&thread, &attributes, sleep_on_it, &stack), 0);
    timespec until{};
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    ASSERT_EQ(pthread_timedjoin_np(thread, &result, &until), 0) << "round " << i;
    EXPECT_EQ(result, &stack);
  }
}

}  // namespace
}  // namespace tiermem::test
