/* Shared by the C tests: CHECK, which prints and counts failures, and a context with a directory of
 * its own. One thread, unless a test says otherwise. End main with `return finish();`. */
#ifndef TIERMEM_TESTS_CAPI_CHECK_H
#define TIERMEM_TESTS_CAPI_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tiermem.h"

/* POSIX, which -std=c11 hides. */
extern char* mkdtemp(char*);
extern int rmdir(const char*);

static int g_failures, g_checks;

#define CHECK(condition)                                                      \
  do {                                                                        \
    ++g_checks;                                                               \
    if (!(condition)) {                                                       \
      ++g_failures;                                                           \
      fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                         \
  } while (0)

/* Returns the message of this thread's last error. */
static inline const char* last_text(void) {
  static tm_error_info info;
  info.size = sizeof info;
  return tm_error(NULL, 0, &info) == TM_OK ? info.text : "tm_error failed";
}

static inline void check_status(tm_status got, tm_status want, const char* call, const char* file,
                                int line) {
  ++g_checks;
  if (got != want) {
    ++g_failures;
    fprintf(stderr, "%s:%d: %s is %s, not %s%s%s\n", file, line, call, tm_status_name(got),
            tm_status_name(want), got != TM_OK ? ": " : "", got != TM_OK ? last_text() : "");
  }
}
#define IS(want, call) check_status((call), (want), #call, __FILE__, __LINE__)
#define OK(call) IS(TM_OK, call)

/* Expects that the call fails with `want`, and that its message contains `word`. */
#define SAYS(want, word, call)                                                                   \
  do {                                                                                           \
    IS(want, call);                                                                              \
    ++g_checks;                                                                                  \
    if (strstr(last_text(), word) == NULL) {                                                     \
      ++g_failures;                                                                              \
      fprintf(stderr, "%s:%d: '%s' does not say '%s'\n", __FILE__, __LINE__, last_text(), word); \
    }                                                                                            \
  } while (0)

/* Creates a folder of its own on a disk, which finish() removes. */
static char g_folder[512];
static inline const char* folder(void) {
  if (g_folder[0] == '\0') {
    const char* base = getenv("TMPDIR");
    snprintf(g_folder, sizeof g_folder, "%s/tiermem-capi-XXXXXX",
             base != NULL && base[0] != '\0' && strlen(base) < 400 ? base : "/var/tmp");
    if (mkdtemp(g_folder) == NULL) {
      perror(g_folder);
      exit(1);
    }
  }
  return g_folder;
}

/* Opens a context: 16 MiB of DRAM, 256 MiB of block tier. `more`: options, each after "; ". */
static inline tm_context* open_context(const char* more) {
  char spec[1024];
  tm_context* context = NULL;
  snprintf(spec, sizeof spec, "dram=16M; nvme=%s:256M; reserve_free=0%s", folder(), more);
  if (tm_context_create(spec, NULL, &context) != TM_OK) {
    fprintf(stderr, "no context: %s\n", last_text());
    rmdir(folder());
    exit(1);
  }
  return context;
}

static inline void close_context(tm_context* context) {
  OK(tm_context_destroy(context, 0, 10000000000));
}

static inline int finish(void) {
  if (g_folder[0] != '\0') {
    CHECK(rmdir(g_folder) == 0); /* The folder must be empty. */
  }
  printf("%d checks, %d failed\n", g_checks, g_failures);
  return g_failures == 0 ? 0 : 1;
}

#endif
