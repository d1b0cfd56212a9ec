// Ends of threads and processes, and processes short of something, under the preload library. One
// process for each case, because each needs the first thread, or the start of tiering.
//
// usage: preload_ends CASE   (all: each case, for scripts/mutate)
// Exit status: 0 if the case is right; other: it is not, or a signal ended it.
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char* early_memory;
extern size_t early_bytes;
extern long early_sum;

enum { kPage = 4096 };
static const size_t kBytes = (size_t)128 << 20;  // Twice the budget.

static char* memory = NULL;

static void check(int right, const char* what) {
  if (!right) {
    fprintf(stderr, "wrong: %s\n", what);
    _exit(1);
  }
}

static char byte_of(size_t page) {
  return (char)(page * 7 + page / 256);
}

static void fill(void) {
  memory = mmap(NULL, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(memory != MAP_FAILED, "mmap");
  for (size_t page = 0; page < kBytes / kPage; ++page) {
    memory[page * kPage] = byte_of(page);
  }
}

static void check_bytes(void) {
  for (size_t page = 0; page < kBytes / kPage; ++page) {
    check(memory[page * kPage] == byte_of(page), "a byte");
  }
}

static void check_child(pid_t child) {
  int status = -1;
  check(child > 0 && waitpid(child, &status, 0) == child, "fork");
  check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child's end");
}

static void fork_and_check(void) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    check_bytes();
    _exit(0);
  }
  check_child(child);
}

static void* on_small_stack(void* (*body)(void*)) {
  pthread_attr_t attributes;
  pthread_t thread;
  void* result = NULL;
  check(pthread_attr_init(&attributes) == 0 &&
            pthread_attr_setstacksize(&attributes, (size_t)PTHREAD_STACK_MIN) == 0 &&
            pthread_create(&thread, &attributes, body, NULL) == 0 &&
            pthread_join(thread, &result) == 0,
        "a thread");
  return result;
}

// ---- The first thread ends, then others.

static void say_exit(void) {
  puts("exit");
}

static void* last_thread(void* unused) {
  usleep(200000);
  check_bytes();
  puts("last");
  return unused;
}

static void* creates_the_last(void* unused) {
  pthread_t thread;
  usleep(200000);
  check_bytes();
  check(pthread_create(&thread, NULL, last_thread, NULL) == 0, "a thread");
  pthread_detach(thread);
  return unused;
}

static void first_thread_ends(void) {
  pthread_t thread;
  atexit(say_exit);
  fill();
  check(pthread_create(&thread, NULL, creates_the_last, NULL) == 0, "a thread");
  pthread_exit(NULL);
}

// The child's first thread returns from the function that its parent's thread began with.
static void* forks_and_returns(void* unused) {
  const pid_t child = fork();
  if (child != 0) {
    check_child(child);
    return unused;
  }
  alarm(60);
  check_bytes();
  return NULL;
}

static void first_thread_of_a_child_returns(void) {
  pthread_t thread;
  fill();
  check(pthread_create(&thread, NULL, forks_and_returns, NULL) == 0, "a thread");
  pthread_join(thread, NULL);
}

// ---- Short of something.

static void* fills_and_forks(void* unused) {
  fill();
  fork_and_check();
  check_bytes();
  return unused;
}

static void small_stack(void) {
  on_small_stack(fills_and_forks);
}

// The library reads the limits when it is loaded, so another case starts with them.
static void with_descriptors(rlim_t soft, rlim_t hard, const char* name) {
  const struct rlimit limit = {soft, hard};
  check(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
  execl("/proc/self/exe", "preload_ends", name, NULL);
  check(0, "exec");
}

static void take_all_descriptors(void) {
  while (open("/dev/null", O_RDONLY) >= 0) {
  }
}

static void forks_without_descriptors(void) {
  fill();
  take_all_descriptors();
  fork_and_check();
  fork_and_check();
}

static void starts_without_descriptors(void) {
  take_all_descriptors();
  fill();
  fork_and_check();
}

static void few_descriptors_at_forks(void) {
  with_descriptors(700, 700, "forks_without_descriptors");
}

static void few_descriptors_below_the_hard_limit(void) {
  with_descriptors(300, 900, "forks_without_descriptors");
}

static void few_descriptors_at_the_start(void) {
  with_descriptors(700, 700, "starts_without_descriptors");
}

static void limit_of_files_by_number(void) {
  const struct rlimit limit = {1 << 20, 1 << 20};
  fill();
  check(syscall(SYS_setrlimit, RLIMIT_FSIZE, &limit) == 0, "setrlimit");
  check_bytes();
  for (size_t page = 0; page < kBytes / kPage; ++page) {
    memory[page * kPage] = byte_of(page);
  }
  check_bytes();
}

// ---- Together with others.

static void handlers_of_constructors(void) {
  fill();
  early_memory = memory;
  early_bytes = kBytes;
  for (int i = 0; i < 3; ++i) {
    check(madvise(memory, kBytes, MADV_PAGEOUT) == 0, "madvise");
    fork_and_check();
  }
  check(early_sum != 0, "handlers that ran");
}

static int stop = 0;

static void* advises(void* unused) {
  while (__atomic_load_n(&stop, __ATOMIC_RELAXED) == 0) {
    check(madvise(memory, kBytes, MADV_PAGEOUT) == 0, "madvise");
  }
  return unused;
}

static void maps_beside_threads_that_advise(void) {
  enum { kThreads = 4, kMappings = 100 };
  pthread_t threads[kThreads];
  fill();
  for (int i = 0; i < kThreads; ++i) {
    check(pthread_create(&threads[i], NULL, advises, NULL) == 0, "a thread");
  }
  for (int i = 0; i < kMappings; ++i) {
    char* const at =
        mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(at != MAP_FAILED, "mmap");
    at[0] = 1;
    check(munmap(at, 8 << 20) == 0, "munmap");
  }
  __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
  for (int i = 0; i < kThreads; ++i) {
    pthread_join(threads[i], NULL);
  }
  check_bytes();
}

static const struct {
  const char* name;
  void (*run)(void);
} kCases[] = {
    {"first_thread_ends", first_thread_ends},
    {"first_thread_of_a_child_returns", first_thread_of_a_child_returns},
    {"small_stack", small_stack},
    {"few_descriptors_at_forks", few_descriptors_at_forks},
    {"few_descriptors_at_the_start", few_descriptors_at_the_start},
    {"few_descriptors_below_the_hard_limit", few_descriptors_below_the_hard_limit},
    {"forks_without_descriptors", forks_without_descriptors},
    {"starts_without_descriptors", starts_without_descriptors},
    {"limit_of_files_by_number", limit_of_files_by_number},
    {"handlers_of_constructors", handlers_of_constructors},
    {"maps_beside_threads_that_advise", maps_beside_threads_that_advise},
};

static int run_all(void) {
  int failed = 0;
  for (size_t i = 0; i < sizeof kCases / sizeof kCases[0]; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      execl("/proc/self/exe", "preload_ends", kCases[i].name, NULL);
      _exit(2);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) {
      fprintf(stderr, "%s: status %#x\n", kCases[i].name, (unsigned)status);
      failed = 1;
    }
  }
  return failed;
}

int main(int count, char** arguments) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (count == 2 && strcmp(arguments[1], "all") == 0) {
    return run_all();
  }
  alarm(250);
  for (size_t i = 0; count == 2 && i < sizeof kCases / sizeof kCases[0]; ++i) {
    if (strcmp(kCases[i].name, arguments[1]) == 0) {
      kCases[i].run();
      return 0;
    }
  }
  fprintf(stderr, "usage: preload_ends CASE\n");
  return 2;
}
