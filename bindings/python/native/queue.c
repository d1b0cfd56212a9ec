/* tiermem.Queue: one descriptor for the ends of many operations. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>

#include "native.h"

/* An operation in a queue, and what the program wants with its end: the user pointer of the event.
 * In the list of its queue until the event was drained. */
typedef struct entry {
  OpObject* op;
  PyObject* user;
  struct entry *previous, *next;
} entry;

typedef struct {
  PyObject_HEAD ContextObject* context;
  tm_queue* queue; /* NULL once it was closed. */
  entry* first;
  Py_ssize_t count;
} QueueObject;

static PyObject* queue_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"context", NULL};
  module_state* state = (module_state*)PyType_GetModuleState(type);
  PyObject* context = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!:Queue", names, state->context, &context)) {
    return NULL;
  }
  if (!is_open((ContextObject*)context)) {
    return NULL;
  }
  tm_queue* made = NULL;
  const tm_status status = tm_queue_create(((ContextObject*)context)->context, &made);
  if (status != TM_OK) {
    return raise_status(state, status, NULL, 0);
  }
  QueueObject* self = PyObject_GC_New(QueueObject, type);
  if (self == NULL) {
    (void)tm_queue_destroy(made);
    return NULL;
  }
  self->context = (ContextObject*)Py_NewRef(context);
  self->queue = made;
  self->first = NULL;
  self->count = 0;
  PyObject_GC_Track(self);
  return (PyObject*)self;
}

static bool is_usable(QueueObject* self) {
  if (self->queue == NULL) {
    PyErr_SetString(PyExc_ValueError, "the queue is closed; open another one");
    return false;
  }
  return true;
}

static void unlink_entry(QueueObject* self, entry* at) {
  *(at->previous != NULL ? &at->previous->next : &self->first) = at->next;
  if (at->next != NULL) {
    at->next->previous = at->previous;
  }
  --self->count;
}

/* Ends the entry of an event, which is in no list, and returns (op, user). NULL with an exception.
 */
static PyObject* settle(const tm_event* event) {
  entry* at = event->user;
  op_settle(at->op, event);
  PyObject* pair = PyTuple_Pack(2, (PyObject*)at->op, at->user);
  Py_DECREF((PyObject*)at->op);
  Py_DECREF(at->user);
  PyMem_Free(at);
  return pair;
}

static void wait_a_little(int fd) {
  struct pollfd waiting = {.fd = fd, .events = POLLIN};
  while (poll(&waiting, 1, 100) < 0 && errno == EINTR) {
  }
}

/* The operations end first, because they write to memory that this object keeps alive. */
static void queue_end(QueueObject* self) {
  tm_queue* queue = self->queue;
  if (queue == NULL) {
    return;
  }
  self->queue = NULL;
  for (entry* at = self->first; at != NULL; at = at->next) {
    (void)tm_op_cancel(self->context->context, at->op->op);
  }
  int fd = -1;
  (void)tm_queue_fd(queue, &fd);
  while (self->first != NULL) {
    tm_event event = {.size = sizeof event};
    size_t n = 0;
    const tm_status status = tm_queue_drain(queue, &event, 1, &n);
    if (status == TM_OK && n == 0) {
      Py_BEGIN_ALLOW_THREADS;
      wait_a_little(fd);
      Py_END_ALLOW_THREADS;
      continue;
    }
    if (status != TM_OK) { /* The context has ended, or is the parent's: no event comes any more. */
      catch_error(status, &event);
      event.user = self->first;
      (void)snprintf(event.text, sizeof event.text,
                     "wait: the context has ended before the operation, or is the parent's; create "
                     "another context");
    }
    unlink_entry(self, event.user);
    PyObject* pair = settle(&event);
    Py_XDECREF(pair);
    PyErr_Clear();
  }
  (void)tm_queue_destroy(queue);
}

static int queue_traverse(PyObject* object, visitproc visit, void* arg) {
  QueueObject* self = (QueueObject*)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->context);
  for (const entry* at = self->first; at != NULL; at = at->next) {
    Py_VISIT(at->op);
    Py_VISIT(at->user);
  }
  return 0;
}

/* As op_finalize(), and for all operations of the queue. It breaks the cycles of the queue. */
static void queue_finalize(PyObject* object) {
  PyObject *kind, *value, *trace; /* An exception may be under way. */
  PyErr_Fetch(&kind, &value, &trace);
  queue_end((QueueObject*)object);
  PyErr_Restore(kind, value, trace);
}

static void queue_dealloc(PyObject* object) {
  QueueObject* self = (QueueObject*)object;
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  queue_finalize(object);
  Py_DECREF((PyObject*)self->context);
  PyObject_GC_Del(object);
  Py_DECREF(type);
}

static PyObject* queue_add(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"op", "user", NULL};
  QueueObject* self = (QueueObject*)object;
  module_state* state = state_of(object);
  PyObject *op, *user = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|O:add", names, state->op, &op, &user) ||
      !is_usable(self)) {
    return NULL;
  }
  OpObject* added = (OpObject*)op;
  if (added->op == 0 || added->queued || added->waiter != 0) {
    PyErr_SetString(PyExc_ValueError,
                    added->queued    ? "the operation is in a queue; add it once"
                    : added->op == 0 ? "the operation has ended, and was waited for"
                                     : "another thread waits for the operation; add it before");
    return NULL;
  }
  entry* made = PyMem_Malloc(sizeof *made);
  if (made == NULL) {
    return PyErr_NoMemory();
  }
  *made = (entry){(OpObject*)Py_NewRef(op), Py_NewRef(user), NULL, self->first};
  const tm_status status = tm_queue_add(self->queue, added->op, made);
  if (status != TM_OK) {
    Py_DECREF(op);
    Py_DECREF(user);
    PyMem_Free(made);
    return raise_status(state, status, NULL, 0);
  }
  if (self->first != NULL) {
    self->first->previous = made;
  }
  self->first = made;
  ++self->count;
  added->queued = true;
  Py_RETURN_NONE;
}

enum { kAtOnce = 16 };

/* Appends up to `most` pairs to the list. Returns their number, or -1 with an exception. */
static Py_ssize_t drain_some(QueueObject* self, PyObject* list, size_t most) {
  tm_event events[kAtOnce];
  size_t n = 0;
  events[0].size = sizeof events[0];
  const tm_status status = tm_queue_drain(self->queue, events, most, &n);
  if (status != TM_OK) {
    (void)raise_status(state_of((PyObject*)self), status, NULL, 0);
    return -1;
  }
  /* Before any code of Python, which may close the queue: these events are no longer in it. */
  for (size_t i = 0; i < n; ++i) {
    unlink_entry(self, events[i].user);
  }
  bool fine = true;
  for (size_t i = 0; i < n; ++i) { /* All of them, because none comes again. */
    PyObject* pair = settle(&events[i]);
    fine = pair != NULL && PyList_Append(list, pair) == 0 && fine;
    Py_XDECREF(pair);
  }
  if (!fine && !PyErr_Occurred()) {
    PyErr_NoMemory();
  }
  return fine ? (Py_ssize_t)n : -1;
}

static PyObject* queue_drain(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"limit", NULL};
  QueueObject* self = (QueueObject*)object;
  PyObject* limit = NULL;
  uint64_t most = UINT64_MAX;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:drain", names, &limit) ||
      (limit != NULL && !to_uint64(limit, "limit", &most))) {
    return NULL;
  }
  if (most == 0) {
    PyErr_SetString(PyExc_ValueError, "limit is 0; accepted are 1 and more");
    return NULL;
  }
  PyObject* list = PyList_New(0);
  Py_ssize_t n = is_usable(self) && list != NULL ? kAtOnce : -1;
  /* Until it is empty, or another thread has closed it. */
  while (n == kAtOnce && most > 0 && self->queue != NULL) {
    n = drain_some(self, list, most < kAtOnce ? (size_t)most : kAtOnce);
    most -= n > 0 ? (uint64_t)n : 0;
  }
  if (n < 0 && (list == NULL || PyList_Size(list) == 0)) {
    Py_CLEAR(list);
  } else if (n < 0) { /* The next call raises the error: these events do not come again. */
    PyErr_Clear();
  }
  return list;
}

static PyObject* queue_fileno(PyObject* object, PyObject* unused) {
  (void)unused;
  QueueObject* self = (QueueObject*)object;
  int fd = -1;
  if (!is_usable(self)) {
    return NULL;
  }
  const tm_status status = tm_queue_fd(self->queue, &fd);
  return status == TM_OK ? PyLong_FromLong(fd) : raise_status(state_of(object), status, NULL, 0);
}

static PyObject* queue_close(PyObject* object, PyObject* unused) {
  (void)unused;
  queue_end((QueueObject*)object);
  Py_RETURN_NONE;
}

static Py_ssize_t queue_len(PyObject* object) {
  return ((QueueObject*)object)->count;
}

static PyMethodDef queue_methods[] = {
    {"add", FUNCTION(queue_add), KEYWORDS,
     "add($self, /, op, user=None)\n--\n\n"
     "Add an operation, which may have ended already. drain() returns it with user.\n\n"
     "Until then, its wait() raises ValueError."},
    {"drain", FUNCTION(queue_drain), KEYWORDS,
     "drain($self, /, limit=...)\n--\n\n"
     "Return a list of (op, user) for operations that have ended, up to limit. Never waits.\n\n"
     "op.wait() then returns the result, or raises the error, at once."},
    {"fileno", queue_fileno, METH_NOARGS,
     "fileno($self, /)\n--\n\n"
     "Return the descriptor, which is readable while drain() has something to return. The queue "
     "owns it."},
    {"close", queue_close, METH_NOARGS,
     "close($self, /)\n--\n\nCancel the operations, wait until they have ended, and close the "
     "queue."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot queue_slots[] = {
    {Py_tp_doc,
     "Queue(context)\n--\n\n"
     "A queue of operations of a context, with one descriptor for an event loop:\n"
     "loop.add_reader(queue, ...), then queue.drain(). len(queue) operations were not drained."},
    {Py_tp_new, queue_new},
    {Py_tp_dealloc, queue_dealloc},
    {Py_tp_traverse, queue_traverse},
    {Py_tp_finalize, queue_finalize},
    {Py_tp_methods, queue_methods},
    {Py_sq_length, queue_len},
    {0, NULL},
};
PyType_Spec queue_spec = {"tiermem.Queue", sizeof(QueueObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, queue_slots};
