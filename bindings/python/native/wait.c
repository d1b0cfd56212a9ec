/*
 * Calls that wait, and that a signal such as that of Ctrl-C ends: see native.h.
 *
 * The first slice is the plain call, because most calls end in it. A longer wait uses an operation
 * if the C interface has one for the call. If not, it repeats the call.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "native.h"

enum { kSlice = 100 * 1000 * 1000 }; /* Nanoseconds: a person does not notice this delay. */

/* For calls that fail only if this code is wrong. */
static void must(int result) {
  if (result != 0) {
    abort();
  }
}

static int64_t now(void) {
  struct timespec at;
  (void)clock_gettime(CLOCK_MONOTONIC, &at);
  return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

/* A limit of time from now on; negative: none. */
typedef struct {
  int64_t limit, end;
} deadline;

static deadline deadline_in(int64_t limit) {
  return (deadline){limit, limit > 0 ? now() + limit : 0};
}

/* Nanoseconds that are left; negative without a limit. A limit that is over is not 0, which would
 * mean a call that never waits. */
static int64_t left_of(const deadline* until) {
  const int64_t left = until->limit > 0 ? until->end - now() : until->limit;
  return until->limit > 0 && left < 1 ? 1 : left;
}

static int64_t slice_of(int64_t left) {
  return left < 0 || left > kSlice ? kSlice : left;
}

/* Kept for each thread, because two system calls would double the time of a short call. A thread
 * that forks is the main thread of the child. */
static _Thread_local enum { kUnknown, kMain, kOther } thread_kind;

static void forget_thread_kind(void) {
  thread_kind = kUnknown;
}

bool wait_init(void) {
  return pthread_atfork(NULL, NULL, forget_thread_kind) == 0;
}

/* Whether the main thread waits here for longer than a slice. */
static bool has_slices(int64_t limit) {
  if (limit >= 0 && limit <= kSlice) {
    return false;
  }
  if (thread_kind == kUnknown) {
    thread_kind = syscall(SYS_gettid) == getpid() ? kMain : kOther;
  }
  return thread_kind == kMain;
}

/* Returns whether the end of the slice may have caused the failure. */
static bool is_late(tm_status status, int64_t begun, int64_t slice) {
  return (status == TM_TIMED_OUT || status == TM_NO_CAPACITY) && now() - begun >= slice;
}

/* Runs handlers of signals, with the GIL. The thread's state is that of PyEval_SaveThread(). */
static bool run_handlers(PyThreadState** thread) {
  PyEval_RestoreThread(*thread);
  const bool fine = PyErr_CheckSignals() == 0;
  if (fine) {
    *thread = PyEval_SaveThread();
  }
  return fine;
}

bool wait_for_call(waiting_call call, void* of, int64_t limit, tm_status* out) {
  PyThreadState* thread = PyEval_SaveThread();
  if (!has_slices(limit)) {
    *out = call(of, limit);
    PyEval_RestoreThread(thread);
    return true;
  }
  const deadline until = deadline_in(limit);
  for (;;) {
    const int64_t begun = now(), left = left_of(&until), slice = slice_of(left);
    *out = call(of, slice);
    if (slice == left || !is_late(*out, begun, slice)) {
      break;
    }
    if (!run_handlers(&thread)) {
      return false;
    }
  }
  PyEval_RestoreThread(thread);
  return true;
}

/* ---- Operations ---- */

/* One slice. Returns whether it was the last one: the operation was consumed, or is gone. */
static bool await_slice(tm_context* context, tm_op op, int64_t slice, tm_event* caught) {
  const tm_status status = tm_op_wait(context, &op, 1, slice);
  catch_error(status, caught); /* tm_op_poll() replaces the error. */
  /* These two are a result of the operation, or say that it goes on. */
  return (status != TM_TIMED_OUT && status != TM_BUSY) ||
         tm_op_poll(context, op) == TM_INVALID_ARGUMENT;
}

bool wait_for_op(tm_context* context, tm_op op, int64_t limit, op_outcome* out) {
  PyThreadState* thread = PyEval_SaveThread();
  const bool sliced = has_slices(limit);
  const deadline until = deadline_in(limit);
  for (;;) {
    const int64_t left = left_of(&until), slice = sliced ? slice_of(left) : left;
    out->consumed = await_slice(context, op, slice, &out->caught);
    if (out->consumed || slice == left || out->caught.status == TM_BUSY) {
      break;
    }
    if (!run_handlers(&thread)) {
      return false;
    }
  }
  PyEval_RestoreThread(thread);
  return true;
}

static tm_status take_lock(void* lock, int64_t timeout_ns) {
  const long long us = timeout_ns < 0 ? -1 : timeout_ns / 1000 + 1;
  return PyThread_acquire_lock_timed(lock, us, 0) == PY_LOCK_ACQUIRED ? TM_OK : TM_TIMED_OUT;
}

bool wait_for_lock(PyThread_type_lock lock, int64_t* limit, bool* taken) {
  *taken = PyThread_acquire_lock(lock, NOWAIT_LOCK) != 0;
  if (*taken || *limit == 0) {
    return true;
  }
  const deadline until = deadline_in(*limit);
  tm_status status;
  if (!wait_for_call(take_lock, lock, *limit, &status)) {
    return false;
  }
  *taken = status == TM_OK;
  *limit = left_of(&until);
  return true;
}

/* Without the GIL. Returns the result. */
static tm_status cancel_op(tm_context* context, tm_op op) {
  (void)tm_op_cancel(context, op);
  return tm_op_wait(context, &op, 1, -1);
}

/* The same with the exception of a handler, and with the GIL. */
static tm_status cancel_interrupted(tm_context* context, tm_op op) {
  tm_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = cancel_op(context, op);
  Py_END_ALLOW_THREADS;
  return status;
}

bool wait_for_end(tm_context* context, tm_op op, tm_status* out) {
  op_outcome outcome;
  if (!wait_for_op(context, op, -1, &outcome)) {
    (void)cancel_interrupted(context, op);
    return false;
  }
  *out = outcome.caught.status;
  return true;
}

/* ---- Views ---- */

typedef struct {
  tm_context* context;
  const tm_access* list;
  size_t n;
  tm_view* views;
} acquire_call;

static tm_status acquire(void* of, int64_t timeout_ns) {
  const acquire_call* call = of;
  return tm_acquire(call->context, call->list, call->n, TM_HOST_ORDER, timeout_ns, call->views);
}

/* By an operation, which keeps its place among those that wait for room. The last slice is
 * tm_acquire() again: its error says what holds the room. */
bool wait_for_views(tm_context* context, const tm_access* list, size_t n, int64_t limit,
                    tm_view* views, tm_status* out) {
  acquire_call call = {context, list, n, views};
  const deadline until = deadline_in(limit);
  const bool sliced = has_slices(limit);
  const int64_t begun = now(), first = sliced ? kSlice : limit;
  tm_op op = 0;
  Py_BEGIN_ALLOW_THREADS;
  *out = acquire(&call, first);
  Py_END_ALLOW_THREADS;
  if (!sliced || !is_late(*out, begun, first)) {
    return true;
  }
  if (PyErr_CheckSignals() != 0) {
    return false;
  }
  const int64_t left = left_of(&until);
  if (left >= 0 && left <= kSlice) {
    return wait_for_call(acquire, &call, left, out);
  }
  if (tm_acquire_async(context, list, n, TM_HOST_ORDER, views, &op) != TM_OK) {
    return wait_for_call(acquire, &call, left, out); /* There are too many operations. */
  }
  op_outcome outcome;
  if (!wait_for_op(context, op, left < 0 ? left : left - kSlice, &outcome)) {
    if (cancel_interrupted(context, op) == TM_OK) {
      (void)tm_release(context, views, n, TM_HOST_ORDER);
    }
    return false;
  }
  *out = outcome.caught.status;
  if (!outcome.consumed) {
    *out = cancel_interrupted(context, op);
    return *out == TM_OK || wait_for_call(acquire, &call, left_of(&until), out);
  }
  return true;
}

/* ---- Bytes ---- */

static tm_status copy_bytes(const buffer_core* core, uint64_t at, void* memory, uint64_t bytes,
                            bool out, int64_t timeout_ns) {
  return out ? tm_read(core->context, core->buffer, at, memory, bytes, timeout_ns)
             : tm_write(core->context, core->buffer, at, memory, bytes, timeout_ns);
}

/* Piece by piece, so that a long copy goes on from where a slice has ended. */
bool wait_for_bytes(buffer_core* core, uint64_t offset, void* memory, uint64_t bytes, bool out,
                    int64_t limit, tm_status* result) {
  /* tm_read() reads ahead by as many extents. A piece that was late is repeated by single extents:
   * each of them is a step forward, however little room there is. */
  enum { kMostExtents = 16 };
  if (bytes <= core->extent_bytes) { /* The usual short copy needs no clock. */
    Py_BEGIN_ALLOW_THREADS;
    *result = copy_bytes(core, offset, memory, bytes, out, 0);
    Py_END_ALLOW_THREADS;
    if (*result != TM_BUSY || limit == 0) {
      return true;
    }
  }
  const bool sliced = has_slices(limit);
  const deadline until = deadline_in(limit);
  uint64_t extents = kMostExtents;
  int64_t checked = now();
  PyThreadState* thread = PyEval_SaveThread();
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t at = offset + done;
    const uint64_t whole = extents * core->extent_bytes;
    uint64_t piece = bytes - done;
    if (sliced && piece > whole - at % core->extent_bytes) {
      piece = whole - at % core->extent_bytes; /* Extents that are written whole are not read. */
    }
    const int64_t begun = now(), left = left_of(&until), slice = sliced ? slice_of(left) : left;
    char* const here = (char*)memory + done;
    *result = copy_bytes(core, at, here, piece, out, slice);
    if (*result == TM_OK) {
      done += piece;
      extents = extents < kMostExtents ? extents * 2 : kMostExtents;
    } else if (slice != left && is_late(*result, begun, slice)) {
      extents = 1;
    } else {
      break;
    }
    if (sliced && now() - checked >= kSlice) {
      if (!run_handlers(&thread)) {
        return false;
      }
      checked = now();
    }
  }
  PyEval_RestoreThread(thread);
  return true;
}

/* ---- Lists of objects ---- */

/* Whether a byte is in a mapped buffer of the context, which operations must not touch. */
static bool is_mapped(tm_context* context, const void* address) {
  tm_buffer buffer = 0;
  void* first = NULL;
  return tm_find(context, address, &buffer, NULL) == TM_OK &&
         tm_address(context, buffer, &first) == TM_OK;
}

static bool list_is_late(list_call* call, tm_status status, int64_t begun) {
  bool late = is_late(status, begun, kSlice);
  for (size_t i = 0; !late && status != TM_OK && i < call->count; ++i) {
    const void* memory;
    uint64_t bytes;
    late = is_late(call->item(call, i, &memory, &bytes), begun, kSlice);
  }
  return late;
}

static bool list_is_mapped(tm_context* context, list_call* call) {
  for (size_t i = 0; i < call->count; ++i) {
    const void* memory = NULL;
    uint64_t bytes = 0;
    (void)call->item(call, i, &memory, &bytes);
    if (bytes != 0 &&
        (is_mapped(context, memory) || is_mapped(context, (const char*)memory + bytes - 1))) {
      return true;
    }
  }
  return false;
}

bool wait_for_list(tm_context* context, list_call* call, int64_t limit, tm_status* out) {
  const deadline until = deadline_in(limit);
  const bool sliced = has_slices(limit);
  const int64_t begun = now();
  tm_op op = 0;
  bool again = false, mapped = false;
  Py_BEGIN_ALLOW_THREADS;
  *out = call->begin(call, sliced ? kSlice : limit, NULL);
  again = sliced && list_is_late(call, *out, begun);
  mapped = again && list_is_mapped(context, call);
  Py_END_ALLOW_THREADS;
  if (!again) {
    return true;
  }
  if (PyErr_CheckSignals() != 0) {
    return false;
  }
  if (mapped) { /* It waits in one piece. */
    Py_BEGIN_ALLOW_THREADS;
    *out = call->begin(call, left_of(&until), NULL);
    Py_END_ALLOW_THREADS;
    return true;
  }
  *out = call->begin(call, left_of(&until), &op);
  return *out != TM_OK || wait_for_end(context, op, out);
}

/* ---- The end of a context ---- */

/*
 * tm_context_destroy() cannot be cut into slices: after its timeout it has given up the transfers
 * that it waited for. So a thread calls it, and this one waits for the thread. Both have a use of
 * the record.
 */
struct ending {
  atomic_uint users;
  tm_context* context;
  uint32_t flags;
  int64_t limit;
  pthread_mutex_t mutex;
  pthread_cond_t ended;
  bool done; /* `mutex` protects it and `caught`. */
  tm_event caught;
};

void ending_release(ending* record) {
  if (atomic_fetch_sub_explicit(&record->users, 1, memory_order_acq_rel) == 1) {
    must(pthread_mutex_destroy(&record->mutex));
    must(pthread_cond_destroy(&record->ended));
    free(record);
  }
}

/* With a second reference: the pointer must stay valid for the tensors that are left. */
static tm_status destroy(tm_context* context, uint32_t flags, int64_t limit) {
  tm_status status = tm_context_retain(context);
  if (status == TM_OK) {
    status = tm_context_destroy(context, flags, limit);
    if (status != TM_OK) {
      (void)tm_context_release(context);
    }
  }
  return status;
}

static void* end_context(void* of) {
  ending* record = of;
  tm_event caught;
  catch_error(destroy(record->context, record->flags, record->limit), &caught);
  must(pthread_mutex_lock(&record->mutex));
  record->caught = caught;
  record->done = true;
  must(pthread_cond_broadcast(&record->ended));
  must(pthread_mutex_unlock(&record->mutex));
  ending_release(record);
  return NULL;
}

/* NULL if there is no memory or no thread. */
static ending* begin_ending(tm_context* context, uint32_t flags, int64_t limit) {
  ending* record = calloc(1, sizeof *record);
  if (record == NULL) {
    return NULL;
  }
  atomic_init(&record->users, 2);
  record->context = context;
  record->flags = flags;
  record->limit = limit;
  pthread_condattr_t attributes;
  must(pthread_condattr_init(&attributes));
  must(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC));
  must(pthread_mutex_init(&record->mutex, NULL));
  must(pthread_cond_init(&record->ended, &attributes));
  must(pthread_condattr_destroy(&attributes));
  sigset_t all, before; /* The program's threads take its signals. */
  must(sigfillset(&all));
  must(pthread_sigmask(SIG_BLOCK, &all, &before));
  pthread_t thread;
  const bool begun = pthread_create(&thread, NULL, end_context, record) == 0;
  must(pthread_sigmask(SIG_SETMASK, &before, NULL));
  if (begun) {
    must(pthread_detach(thread));
    return record;
  }
  ending_release(record);
  ending_release(record);
  return NULL;
}

static bool is_done(ending* record, tm_event* caught) {
  const int64_t until = now() + kSlice;
  const struct timespec at = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
  must(pthread_mutex_lock(&record->mutex));
  int failed = 0;
  while (!record->done && failed == 0) {
    failed = pthread_cond_timedwait(&record->ended, &record->mutex, &at);
  }
  const bool done = record->done;
  *caught = record->caught;
  must(pthread_mutex_unlock(&record->mutex));
  return done;
}

bool wait_for_ending(ContextObject* self, uint32_t flags, int64_t limit, tm_event* caught) {
  if (self->ending == NULL && has_slices(limit)) {
    self->ending = begin_ending(self->context, flags, limit);
  }
  if (self->ending == NULL) {
    Py_BEGIN_ALLOW_THREADS;
    catch_error(destroy(self->context, flags, limit), caught);
    Py_END_ALLOW_THREADS;
    return true;
  }
  ending* const record = self->ending;
  PyThreadState* thread = PyEval_SaveThread();
  while (!is_done(record, caught)) {
    if (!run_handlers(&thread)) {
      return false;
    }
  }
  PyEval_RestoreThread(thread);
  if (self->ending == record) { /* If not, another thread has waited for it, too. */
    self->ending = NULL;
    ending_release(record);
  }
  return true;
}

/* ---- Hints without an object ---- */

/* Consumes the hints that have ended. */
static void forget_ended(ContextObject* self) {
  size_t kept = 0;
  for (size_t i = 0; i < self->detached_count; ++i) {
    const tm_op op = self->detached[i];
    if (tm_op_wait(self->context, &op, 1, 0) == TM_TIMED_OUT) {
      self->detached[kept++] = op;
    }
  }
  self->detached_count = kept;
}

void detach_op(ContextObject* self, tm_op op) {
  enum { kMost = 4096 };
  if (tm_op_wait(self->context, &op, 1, 0) != TM_TIMED_OUT) {
    return; /* It has ended. */
  }
  if (self->detached_count == self->detached_room) {
    forget_ended(self);
  }
  if (self->detached_count == kMost) { /* The context counts its operations: the oldest ends. */
    const tm_op oldest = self->detached[0];
    memmove(self->detached, self->detached + 1, (kMost - 1) * sizeof *self->detached);
    --self->detached_count;
    (void)cancel_interrupted(self->context, oldest);
  }
  if (self->detached_count * 2 >= self->detached_room && self->detached_room < kMost) {
    const size_t room = self->detached_room != 0 ? self->detached_room * 2 : 16;
    tm_op* grown = realloc(self->detached, room * sizeof *grown);
    if (grown != NULL) {
      self->detached = grown;
      self->detached_room = room;
    }
  }
  if (self->detached_count == self->detached_room) { /* No memory. */
    (void)cancel_interrupted(self->context, op);
    return;
  }
  self->detached[self->detached_count++] = op;
}
