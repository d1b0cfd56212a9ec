// A small program that forks while its heap starts: threads make their first blocks beyond those
// that every process has, and the main thread forks. A handler of its own calls malloc before each
// fork. Exit status: 0 if each child could use its heap, 1 if not.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kThreads = 3, kBlocks = 200, kForks = 8 };

static void* use_heap(void* argument) {
  char* blocks[kBlocks];
  for (int i = 0; i < kBlocks; ++i) {
    blocks[i] = malloc(1000);
    if (blocks[i] == NULL) {
      return argument;
    }
    memset(blocks[i], i, 1000);
  }
  for (int i = 0; i < kBlocks; ++i) {
    if (blocks[i][999] != (char)i) {
      return argument;
    }
    blocks[i] = realloc(blocks[i], 3000);
    if (blocks[i] == NULL || blocks[i][999] != (char)i) {
      return argument;
    }
    free(blocks[i]);
  }
  return NULL;
}

static void before_fork(void) {
  free(malloc(2000));
}

int main(void) {
  int wrong = pthread_atfork(before_fork, before_fork, before_fork) != 0;
  pthread_t threads[kThreads];
  for (int i = 0; i < kThreads; ++i) {
    wrong |= pthread_create(&threads[i], NULL, use_heap, threads) != 0;
  }
  for (int i = 0; i < kForks && wrong == 0; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      _exit(use_heap(threads) != NULL);
    }
    int status = 1;
    wrong |= child < 0 || waitpid(child, &status, 0) != child || status != 0;
  }
  for (int i = 0; i < kThreads; ++i) {
    void* failed = NULL;
    wrong |= pthread_join(threads[i], &failed) != 0 || failed != NULL;
  }
  return wrong;
}
