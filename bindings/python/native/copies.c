/* Copies of lists: Context.copy() and Context.copy_async(). */
#include <stddef.h>
#include <string.h>

#include "native.h"

/* The items of one call, with what they point to kept alive. */
typedef struct {
  op_extra extra;
  list_call call;
  tm_context* context;
  uint32_t flags;
  Py_ssize_t count;
  tm_copy_item* items;
  Py_buffer* memory; /* `held` of them, in the order of the items. */
  Py_ssize_t held;
  PyObject* buffers; /* A list. */
} item_list;

static void items_release(op_extra* extra) {
  item_list* self = (item_list*)extra;
  for (Py_ssize_t i = 0; i < self->held; ++i) {
    PyBuffer_Release(&self->memory[i]);
  }
  Py_XDECREF(self->buffers);
  PyMem_Free(self->memory);
  PyMem_Free(self->items);
  PyMem_Free(self);
}

static int items_traverse(op_extra* extra, visitproc visit, void* arg) {
  item_list* self = (item_list*)extra;
  for (Py_ssize_t i = 0; i < self->held; ++i) {
    Py_VISIT(self->memory[i].obj);
  }
  Py_VISIT(self->buffers);
  return 0;
}

static item_list* items_new(Py_ssize_t count) {
  item_list* self = PyMem_Calloc(1, sizeof *self);
  if (self == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  const size_t n = count != 0 ? (size_t)count : 1;
  self->extra.release = items_release;
  self->extra.traverse = items_traverse;
  self->count = count;
  self->items = PyMem_Calloc(n, sizeof *self->items);
  self->memory = PyMem_Calloc(n, sizeof *self->memory);
  self->buffers = PyList_New(0);
  if (self->items == NULL || self->memory == NULL || self->buffers == NULL) {
    if (!PyErr_Occurred()) {
      PyErr_NoMemory();
    }
    items_release(&self->extra);
    return NULL;
  }
  return self;
}

/* Fills the next item from a tuple (buffer, offset, data[, mode]), except the handle. */
static bool add_item(module_state* state, item_list* self, PyObject* tuple) {
  tm_copy_item* item = &self->items[self->held];
  const Py_ssize_t size = PyTuple_Check(tuple) ? PyTuple_Size(tuple) : 0;
  if (size != 3 && size != 4) {
    PyErr_Format(PyExc_TypeError, "an item is a tuple (buffer, offset, data[, mode]), not %R",
                 tuple);
    return false;
  }
  PyObject* buffer = PyTuple_GetItem(tuple, 0);
  if (!PyObject_TypeCheck(buffer, state->buffer)) {
    PyErr_Format(PyExc_TypeError, "the first of an item is a tiermem.Buffer, not %R", buffer);
    return false;
  }
  item->mode = TM_READ;
  if (size == 4 && !to_mode(PyTuple_GetItem(tuple, 3), &item->mode)) {
    return false;
  }
  if (item->mode != TM_READ) { /* "w" and "rw" are the same here: bytes go into the buffer. */
    item->mode = TM_WRITE;
  }
  Py_buffer* memory = &self->memory[self->held];
  if (!to_bytes_count(PyTuple_GetItem(tuple, 1), "offset", &item->offset) ||
      PyList_Append(self->buffers, buffer) != 0 ||
      PyObject_GetBuffer(PyTuple_GetItem(tuple, 2), memory,
                         item->mode == TM_READ ? PyBUF_CONTIG : PyBUF_CONTIG_RO) != 0) {
    return false;
  }
  ++self->held;
  item->memory = memory->buf;
  item->bytes = (uint64_t)memory->len;
  return true;
}

/* The handles come last: what the items say runs Python code, which may free a buffer. */
static bool add_items(module_state* state, item_list* self, PyObject* list) {
  for (Py_ssize_t i = 0; i < self->count; ++i) {
    if (!add_item(state, self, PyList_GetItem(list, i))) {
      return false;
    }
  }
  for (Py_ssize_t i = 0; i < self->count; ++i) {
    const buffer_core* core = usable_core((BufferObject*)PyList_GetItem(self->buffers, i));
    if (core == NULL) {
      return false;
    }
    self->items[i].buffer = core->buffer;
  }
  return true;
}

static item_list* to_items(module_state* state, PyObject* sequence) {
  PyObject* list = PySequence_List(sequence);
  item_list* made = list != NULL ? items_new(PyList_Size(list)) : NULL;
  if (made != NULL && !add_items(state, made, list)) {
    items_release(&made->extra);
    made = NULL;
  }
  Py_XDECREF(list);
  return made;
}

/* The number of all bytes. */
static PyObject* copied(item_list* self) {
  unsigned long long bytes = 0;
  for (Py_ssize_t i = 0; i < self->count; ++i) {
    bytes += self->items[i].bytes;
  }
  return PyLong_FromUnsignedLongLong(bytes);
}

static PyObject* finish(OpObject* op, const tm_event* event) {
  return event->status == TM_OK ? copied((item_list*)op->extra)
                                : raise_event(state_of((PyObject*)op), event);
}

static item_list* list_of(list_call* call) {
  return (item_list*)((char*)call - offsetof(item_list, call));
}

static tm_status begin(list_call* call, int64_t timeout_ns, tm_op* out) {
  item_list* self = list_of(call);
  return tm_copy(self->context, self->items, (size_t)self->count, self->flags, timeout_ns, out);
}

static tm_status item_of(list_call* call, size_t i, const void** memory, uint64_t* bytes) {
  const tm_copy_item* item = &list_of(call)->items[i];
  *memory = item->memory;
  *bytes = item->bytes;
  return item->status;
}

static PyObject* run(PyObject* object, PyObject* args, PyObject* kwargs, bool later) {
  static char* names[] = {"items", "promote", "timeout", NULL};
  ContextObject* self = (ContextObject*)object;
  module_state* state = state_of(object);
  PyObject *list, *timeout = NULL;
  int promote = 1;
  int64_t limit = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, later ? "O|$pO:copy_async" : "O|$pO:copy", names,
                                   &list, &promote, &timeout) ||
      !to_timeout(timeout, &limit)) {
    return NULL;
  }
  item_list* items = to_items(state, list);
  if (items != NULL && !is_open(self)) {
    items_release(&items->extra);
    items = NULL;
  }
  if (items == NULL) {
    return NULL;
  }
  items->context = self->context;
  items->flags = promote ? 0 : TM_COPY_NO_PROMOTE;
  items->call = (list_call){begin, item_of, (size_t)items->count};
  tm_status status;
  if (!later) {
    PyObject* result = NULL;
    if (wait_for_list(self->context, &items->call, limit, &status)) {
      result = status == TM_OK ? copied(items) : raise_status(state, status, self->context, 0);
    }
    items_release(&items->extra);
    return result;
  }
  OpObject* op = new_op(state, self, 0, NULL);
  if (op == NULL) {
    items_release(&items->extra);
    return NULL;
  }
  items->extra.finish = finish;
  op->extra = &items->extra;
  status = begin(&items->call, limit, &op->op);
  if (status != TM_OK) {
    op->op = 0;
    (void)raise_status(state, status, self->context, 0);
    Py_CLEAR(op);
  }
  return (PyObject*)op;
}

PyObject* context_copy(PyObject* self, PyObject* args, PyObject* kwargs) {
  return run(self, args, kwargs, false);
}
PyObject* context_copy_async(PyObject* self, PyObject* args, PyObject* kwargs) {
  return run(self, args, kwargs, true);
}
