/* tiermem.Op: an operation in progress. */
#include <string.h>
#include <unistd.h>

#include "native.h"

OpObject* new_op(module_state* state, ContextObject* context, tm_op op, PyObject* kept) {
  const PyThread_type_lock lock = PyThread_allocate_lock();
  OpObject* self = lock != NULL ? PyObject_GC_New(OpObject, state->op) : NULL;
  if (self == NULL) {
    if (lock != NULL) {
      PyThread_free_lock(lock);
    } else {
      PyErr_NoMemory();
    }
    if (op != 0) {
      (void)tm_op_wait(context->context, &op, 1, -1);
    }
    return NULL;
  }
  self->context = (ContextObject*)Py_NewRef((PyObject*)context);
  self->op = op;
  self->result = NULL;
  self->kept = Py_XNewRef(kept);
  self->ranges = NULL;
  self->views = NULL;
  self->count = 0;
  self->single = false;
  self->queued = false;
  self->hint = false;
  self->failure = NULL;
  self->extra = NULL;
  self->lock = lock;
  self->waiter = 0;
  PyObject_GC_Track(self);
  return self;
}

/* An operation that was not waited for ends first, because it writes to `views`. A hint goes on. */
static void end_op(OpObject* self) {
  const tm_op op = self->op;
  self->op = 0;
  if (op != 0 && self->hint) {
    detach_op(self->context, op);
  } else if (op != 0) {
    tm_context* context = self->context->context;
    tm_status status;
    (void)tm_op_cancel(context, op);
    Py_BEGIN_ALLOW_THREADS;
    status = tm_op_wait(context, &op, 1, -1);
    Py_END_ALLOW_THREADS;
    if (status == TM_OK && self->count != 0) {
      (void)tm_release(context, self->views, (size_t)self->count, TM_HOST_ORDER);
    }
  }
  op_extra* const extra = self->extra;
  self->extra = NULL;
  if (extra != NULL) {
    extra->release(extra);
  }
}

static int op_traverse(PyObject* object, visitproc visit, void* arg) {
  OpObject* self = (OpObject*)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->context);
  Py_VISIT(self->result);
  Py_VISIT(self->kept);
  return self->extra != NULL && self->extra->traverse != NULL
             ? self->extra->traverse(self->extra, visit, arg)
             : 0;
}

/*
 * The collector calls it for all objects of its cycles before it clears any of them: the operation
 * ends while the memory that it uses is there. A queue that has the operation ends it, and is in
 * the same cycle.
 */
static void op_finalize(PyObject* object) {
  OpObject* self = (OpObject*)object;
  if (!self->queued) {
    end_op(self);
  }
}

static int op_clear(PyObject* object) {
  OpObject* self = (OpObject*)object;
  if (self->op == 0) { /* If not, op_finalize() has not run, and the operation uses its memory. */
    Py_CLEAR(self->result);
    Py_CLEAR(self->kept);
  }
  return 0;
}

static void op_dealloc(PyObject* object) {
  OpObject* self = (OpObject*)object;
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  end_op(self);
  PyMem_Free(self->ranges);
  PyMem_Free(self->views);
  Py_XDECREF(self->result);
  Py_XDECREF(self->kept);
  PyMem_Free(self->failure);
  PyThread_free_lock(self->lock);
  Py_DECREF((PyObject*)self->context);
  PyObject_GC_Del(object);
  Py_DECREF(type);
}

/* The result of an operation that has ended well: its views, or None. */
static PyObject* make_result(OpObject* self) {
  if (self->count == 0) {
    return Py_NewRef(Py_None);
  }
  PyObject* list =
      new_views(state_of((PyObject*)self), self->kept, self->ranges, self->views, self->count);
  if (list == NULL || !self->single) {
    return list;
  }
  PyObject* view = Py_NewRef(PyList_GetItem(list, 0));
  Py_DECREF(list);
  return view;
}

/* The result of an operation that has been consumed. NULL with an exception. */
static PyObject* make_end(OpObject* self, const tm_event* event) {
  if (self->extra != NULL) {
    return self->extra->finish(self, event);
  }
  return event->status == TM_OK ? make_result(self) : raise_event(state_of((PyObject*)self), event);
}

/* Ends an operation that has been consumed, with its event. Returns the result, or NULL with an
 * exception. */
static PyObject* finish(OpObject* self, const tm_event* event) {
  self->op = 0;
  self->result = make_end(self, event);
  if (self->result == NULL && event->status != TM_OK &&
      (self->failure = PyMem_Malloc(sizeof *event)) != NULL) {
    *self->failure = *event;
  }
  op_extra* const extra = self->extra;
  self->extra = NULL;
  if (extra != NULL) {
    extra->release(extra);
  }
  Py_CLEAR(self->kept);
  return Py_XNewRef(self->result);
}

/* The result of an operation that has ended, and was waited for. */
static PyObject* known_result(OpObject* self) {
  if (self->failure != NULL) {
    return raise_event(state_of((PyObject*)self), self->failure);
  }
  if (self->result == NULL) {
    PyErr_SetString(PyExc_ValueError,
                    "the operation has no result: an earlier exception or the collector ended it");
  }
  return Py_XNewRef(self->result);
}

void op_settle(OpObject* self, const tm_event* event) {
  PyObject* result = finish(self, event);
  if (result == NULL) {
    PyErr_Clear();
  }
  Py_XDECREF(result);
  self->queued = false; /* Last: finish() runs Python code, and so other threads. */
}

/* By the thread that holds the lock. */
static PyObject* wait_alone(OpObject* self, int64_t limit) {
  if (self->queued) {
    PyErr_SetString(PyExc_ValueError, "the operation is in a queue; call drain() of the queue");
    return NULL;
  }
  if (self->op == 0) {
    return known_result(self);
  }
  op_outcome outcome;
  if (!wait_for_op(self->context->context, self->op, limit, &outcome)) {
    return NULL;
  }
  if (self->op == 0) { /* The handler of a signal has waited for it, too. */
    return known_result(self);
  }
  return outcome.consumed ? finish(self, &outcome.caught)
                          : raise_event(state_of((PyObject*)self), &outcome.caught);
}

static PyObject* op_wait(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"timeout", NULL};
  OpObject* self = (OpObject*)object;
  PyObject* timeout = NULL;
  int64_t limit = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:wait", names, &timeout) ||
      !to_timeout(timeout, &limit)) {
    return NULL;
  }
  const unsigned long me = PyThread_get_thread_ident();
  /* In the handler of a signal during a wait of this thread, or in a child of fork, which has not
   * the thread that waits. */
  if (self->waiter != 0 &&
      (self->waiter == me || tm_op_poll(self->context->context, self->op) == TM_SHUT_DOWN)) {
    return wait_alone(self, limit);
  }
  bool taken = false;
  if (!wait_for_lock(self->lock, &limit, &taken)) {
    return NULL;
  }
  if (!taken) {
    return raise_text(state_of(object), TM_TIMED_OUT,
                      "wait: the operation, for which another thread waits, is still under way; "
                      "wait again with a longer timeout");
  }
  self->waiter = me;
  PyObject* result = wait_alone(self, limit);
  self->waiter = 0;
  PyThread_release_lock(self->lock);
  return result;
}

static PyObject* op_done(PyObject* object, PyObject* unused) {
  (void)unused;
  OpObject* self = (OpObject*)object;
  return PyBool_FromLong(self->op == 0 || tm_op_poll(self->context->context, self->op) != TM_BUSY);
}

static PyObject* op_cancel(PyObject* object, PyObject* unused) {
  (void)unused;
  OpObject* self = (OpObject*)object;
  if (self->op != 0) {
    (void)tm_op_cancel(self->context->context, self->op);
  }
  Py_RETURN_NONE;
}

static PyObject* op_open_fd(PyObject* object, PyObject* unused) {
  (void)unused;
  OpObject* self = (OpObject*)object;
  if (self->op == 0) {
    PyErr_SetString(PyExc_ValueError, "the operation has ended, and was waited for");
    return NULL;
  }
  int fd = -1;
  const tm_status status = tm_op_fd(self->context->context, self->op, &fd);
  return status == TM_OK ? PyLong_FromLong(fd)
                         : raise_status(state_of(object), status, self->context->context, 0);
}

static PyObject* op_await(PyObject* object) {
  module_state* state = state_of(object);
  PyObject* waiter = PyObject_CallFunctionObjArgs(state->wait_for, object, NULL);
  PyObject* iterator = NULL;
  if (waiter != NULL) {
    iterator = PyObject_CallMethod(waiter, "__await__", NULL);
    Py_DECREF(waiter);
  }
  return iterator;
}

static PyMethodDef op_methods[] = {
    {"wait", FUNCTION(op_wait), KEYWORDS,
     "wait($self, /, timeout=None)\n--\n\n"
     "Wait for the end, and return the result: views for an acquire, else None.\n\n"
     "Raise the error of the operation, or TimedOut: then the operation goes on, and may be waited "
     "for\n"
     "again. timeout is in seconds. Several threads may wait, and get the same result."},
    {"done", op_done, METH_NOARGS,
     "done($self, /)\n--\n\nReturn whether the operation has ended. Never waits."},
    {"cancel", op_cancel, METH_NOARGS,
     "cancel($self, /)\n--\n\nAsk the operation to end early. wait() then raises Cancelled, unless "
     "it "
     "ended first."},
    {"open_fd", op_open_fd, METH_NOARGS,
     "open_fd($self, /)\n--\n\n"
     "Return a new file descriptor, which is readable once the operation has ended. The caller "
     "closes it."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot op_slots[] = {
    {Py_tp_doc,
     "An operation in progress: await it, or call wait().\n\n"
     "An operation that is dropped without either is cancelled, and waited for. The hint of a "
     "prefetch\n"
     "goes on nevertheless."},
    {Py_tp_dealloc, op_dealloc},
    {Py_tp_traverse, op_traverse},
    {Py_tp_clear, op_clear},
    {Py_tp_finalize, op_finalize},
    {Py_tp_methods, op_methods},
    {Py_am_await, op_await},
    {0, NULL},
};
PyType_Spec op_spec = {"tiermem.Op", sizeof(OpObject), 0,
                       Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC,
                       op_slots};
