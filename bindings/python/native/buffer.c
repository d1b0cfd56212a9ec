/* tiermem.Buffer: bytes that may exceed any one memory. */
#include <stdlib.h>
#include <string.h>

#include "native.h"

PyObject* new_buffer(module_state* state, ContextObject* context, tm_buffer buffer, bool writable) {
  tm_residency info = {.size = sizeof info};
  tm_status status = tm_buffer_info(context->context, buffer, &info);
  buffer_core* core = NULL;
  if (status == TM_OK && (core = malloc(sizeof *core)) == NULL) {
    PyErr_NoMemory();
  }
  void* address = NULL;
  if (core != NULL) {
    if (tm_address(context->context, buffer, &address) != TM_OK) {
      address = NULL; /* It is not mapped. */
    }
    status = tm_context_retain(context->context);
  }
  BufferObject* self = NULL;
  if (core != NULL && status == TM_OK) {
    atomic_init(&core->users, 1);
    core->home = context_core_retain(context->core);
    core->context = context->context;
    core->buffer = buffer;
    core->bytes = info.bytes;
    core->extent_bytes = info.extent_bytes != 0 ? info.extent_bytes : info.bytes;
    core->address = address;
    core->writable = writable;
    self = PyObject_New(BufferObject, state->buffer);
    if (self != NULL) {
      self->context = (ContextObject*)Py_NewRef((PyObject*)context);
      self->core = core;
      self->exports = 0;
      return (PyObject*)self;
    }
    buffer_core_release(core);
    return NULL;
  }
  free(core);
  if (status != TM_OK) {
    (void)raise_status(state, status, context->context, 0);
  }
  (void)tm_free(context->context, buffer);
  return NULL;
}

static void buffer_dealloc(PyObject* object) {
  BufferObject* self = (BufferObject*)object;
  PyTypeObject* type = Py_TYPE(object);
  if (self->core != NULL) {
    buffer_core_release(self->core);
  }
  Py_DECREF((PyObject*)self->context);
  PyObject_Free(object);
  Py_DECREF(type);
}

static PyObject* buffer_free(PyObject* object, PyObject* unused) {
  (void)unused;
  BufferObject* self = (BufferObject*)object;
  if (self->core == NULL) {
    Py_RETURN_NONE;
  }
  /* Each memoryview is one of the users. */
  const Py_ssize_t others = (Py_ssize_t)atomic_load(&self->core->users) - 1 - self->exports;
  if (self->exports != 0 || others != 0) {
    PyErr_Format(
        PyExc_BufferError,
        "the buffer is in use by %zd memoryviews and %zd views and tensors; release them first",
        self->exports, others);
    return NULL;
  }
  buffer_core_release(self->core);
  self->core = NULL;
  Py_RETURN_NONE;
}

/* The usual view: resident bytes are pinned at once, without giving up the GIL. */
static PyObject* acquire_one(BufferObject* self, PyObject* offset, PyObject* length, uint32_t mode,
                             PyObject* timeout) {
  tm_access range = {.mode = mode};
  int64_t limit = 0;
  tm_view view;
  if (!to_range(offset, length, &range) || !to_timeout(timeout, &limit)) {
    return NULL;
  }
  buffer_core* core = usable_core(self);
  if (core == NULL || !cut_range(core, &range)) {
    return NULL;
  }
  tm_status status = tm_acquire(core->context, &range, 1, TM_HOST_ORDER, 0, &view);
  if (status == TM_BUSY && limit != 0) {
    buffer_core_retain(core);
    const bool waited = wait_for_views(core->context, &range, 1, limit, &view, &status);
    buffer_core_release(core);
    if (!waited) {
      return NULL;
    }
  }
  module_state* state = state_of((PyObject*)self);
  if (status != TM_OK) {
    return raise_status(state, status, self->context->context, 0);
  }
  return new_view(state, self, &view, mode);
}

/* The keyword arguments offset, length, mode and timeout, without the cost of a parsed tuple. */
static bool view_arguments(PyObject* const* args, Py_ssize_t nargs, PyObject* names,
                           PyObject** values) {
  static const char* const kNames[] = {"offset", "length", "mode", "timeout"};
  enum { kCount = 4 };
  if (nargs > kCount) {
    PyErr_Format(PyExc_TypeError, "view() takes at most 4 arguments (%zd given)", nargs);
    return false;
  }
  for (Py_ssize_t i = 0; i < nargs; ++i) {
    values[i] = args[i];
  }
  const Py_ssize_t named = names != NULL ? PyTuple_Size(names) : 0;
  for (Py_ssize_t i = 0; i < named; ++i) {
    PyObject* name = PyTuple_GetItem(names, i);
    int at = 0;
    while (at < kCount && PyUnicode_CompareWithASCIIString(name, kNames[at]) != 0) {
      ++at;
    }
    if (at == kCount || values[at] != NULL) {
      PyErr_Format(PyExc_TypeError, "view() got %s argument %R",
                   at == kCount ? "an unexpected" : "several values for", name);
      return false;
    }
    values[at] = args[nargs + i];
  }
  return true;
}

static PyObject* buffer_view(PyObject* object, PyObject* const* args, Py_ssize_t nargs,
                             PyObject* names) {
  PyObject* values[4] = {NULL, NULL, NULL, NULL};
  uint32_t mode = TM_READ;
  if (!view_arguments(args, nargs, names, values) ||
      (values[2] != NULL && !to_mode(values[2], &mode))) {
    return NULL;
  }
  return acquire_one((BufferObject*)object, values[0], values[1], mode, values[3]);
}

/* Calls a method of the context with one range of this buffer. */
static PyObject* ask_context(BufferObject* self, const char* method, PyObject* offset,
                             PyObject* length, PyObject* more, PyObject* kwargs) {
  PyObject* function = PyObject_GetAttrString((PyObject*)self->context, method);
  PyObject* list = Py_BuildValue("([(OOO)])", (PyObject*)self, offset != NULL ? offset : Py_None,
                                 length != NULL ? length : Py_None);
  PyObject* args = list;
  if (list != NULL && more != NULL) {
    args = PySequence_Concat(list, more);
    Py_DECREF(list);
  }
  PyObject* result =
      function != NULL && args != NULL ? PyObject_Call(function, args, kwargs) : NULL;
  Py_XDECREF(function);
  Py_XDECREF(args);
  return result;
}

static PyObject* buffer_prefetch(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"offset", "length", "next_use", NULL};
  PyObject *offset = NULL, *length = NULL, *next_use = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO$O:prefetch", names, &offset, &length,
                                   &next_use)) {
    return NULL;
  }
  PyObject* named = next_use != NULL ? Py_BuildValue("{s:O}", "next_use", next_use) : PyDict_New();
  PyObject* op = named != NULL
                     ? ask_context((BufferObject*)object, "prefetch", offset, length, NULL, named)
                     : NULL;
  Py_XDECREF(named);
  return op;
}

static PyObject* buffer_view_async(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"offset", "length", "mode", NULL};
  PyObject *offset = NULL, *length = NULL, *mode = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOO:view_async", names, &offset, &length,
                                   &mode)) {
    return NULL;
  }
  PyObject* named = mode != NULL ? Py_BuildValue("{s:O,s:O}", "mode", mode, "_single", Py_True)
                                 : Py_BuildValue("{s:O}", "_single", Py_True);
  PyObject* op = named != NULL ? ask_context((BufferObject*)object, "acquire_async", offset, length,
                                             NULL, named)
                               : NULL;
  Py_XDECREF(named);
  return op;
}

static PyObject* buffer_evict(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"offset", "length", "timeout", NULL};
  PyObject *offset = NULL, *length = NULL, *timeout = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO$O:evict", names, &offset, &length,
                                   &timeout)) {
    return NULL;
  }
  PyObject* named = Py_BuildValue("{s:O}", "timeout", timeout);
  PyObject* done = named != NULL
                       ? ask_context((BufferObject*)object, "evict", offset, length, NULL, named)
                       : NULL;
  Py_XDECREF(named);
  return done;
}

static PyObject* buffer_advise(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"advice", "offset", "length", "value", "tier", NULL};
  PyObject *advice, *offset = NULL, *length = NULL, *value = NULL, *tier = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO$OO:advise", names, &advice, &offset, &length,
                                   &value, &tier)) {
    return NULL;
  }
  PyObject* more =
      value != NULL ? Py_BuildValue("(OO)", advice, value) : Py_BuildValue("(O)", advice);
  PyObject* named = Py_BuildValue("{s:O}", "tier", tier);
  PyObject* done = more != NULL && named != NULL
                       ? ask_context((BufferObject*)object, "advise", offset, length, more, named)
                       : NULL;
  Py_XDECREF(more);
  Py_XDECREF(named);
  return done;
}

/* Copies between the buffer and `bytes` bytes at `memory`. */
static bool copy(BufferObject* self, uint64_t offset, void* memory, uint64_t bytes, bool out,
                 int64_t limit) {
  buffer_core* core = usable_core(self);
  if (core == NULL) {
    return false;
  }
  if (offset > core->bytes || bytes > core->bytes - offset) {
    PyErr_Format(PyExc_ValueError, "%llu bytes from offset %llu on; the buffer has %llu bytes",
                 (unsigned long long)bytes, (unsigned long long)offset,
                 (unsigned long long)core->bytes);
    return false;
  }
  if (bytes == 0) {
    return true;
  }
  tm_status status;
  buffer_core_retain(core);
  const bool waited = wait_for_bytes(core, offset, memory, bytes, out, limit, &status);
  buffer_core_release(core);
  if (!waited) {
    return false;
  }
  if (status != TM_OK) {
    (void)raise_status(state_of((PyObject*)self), status, self->context->context, 0);
  }
  return status == TM_OK;
}

static PyObject* buffer_read(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"offset", "length", "timeout", NULL};
  BufferObject* self = (BufferObject*)object;
  PyObject *offset = NULL, *length = NULL, *timeout = NULL;
  int64_t limit = 0;
  uint64_t from = 0, bytes = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO$O:read", names, &offset, &length, &timeout)) {
    return NULL;
  }
  const bool has_length = length != NULL && length != Py_None;
  if ((offset != NULL && !to_bytes_count(offset, "offset", &from)) ||
      (has_length && !to_bytes_count(length, "length", &bytes)) || !to_timeout(timeout, &limit)) {
    return NULL;
  }
  const buffer_core* core = usable_core(self);
  if (core == NULL) {
    return NULL;
  }
  if (!has_length) {
    bytes = core->bytes - (from < core->bytes ? from : core->bytes);
  }
  if (bytes > core->bytes) { /* Before memory for it is allocated. */
    PyErr_Format(PyExc_ValueError, "%llu bytes; the buffer has %llu bytes",
                 (unsigned long long)bytes, (unsigned long long)core->bytes);
    return NULL;
  }
  PyObject* result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
  if (result != NULL && !copy(self, from, PyBytes_AsString(result), bytes, true, limit)) {
    Py_CLEAR(result);
  }
  return result;
}

/* readinto() and write() differ in the direction only. */
static PyObject* copy_with(PyObject* object, PyObject* args, PyObject* kwargs, bool out) {
  static char* names[] = {"data", "offset", "timeout", NULL};
  PyObject *data, *offset = NULL, *timeout = NULL;
  int64_t limit = 0;
  uint64_t from = 0;
  Py_buffer memory;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, out ? "O|O$O:readinto" : "O|O$O:write", names,
                                   &data, &offset, &timeout) ||
      (offset != NULL && !to_bytes_count(offset, "offset", &from)) ||
      !to_timeout(timeout, &limit) ||
      PyObject_GetBuffer(data, &memory, out ? PyBUF_CONTIG : PyBUF_CONTIG_RO) != 0) {
    return NULL;
  }
  const Py_ssize_t bytes = memory.len;
  const bool done = copy((BufferObject*)object, from, memory.buf, (uint64_t)bytes, out, limit);
  PyBuffer_Release(&memory);
  return done ? PyLong_FromSsize_t(bytes) : NULL;
}

static PyObject* buffer_readinto(PyObject* self, PyObject* args, PyObject* kwargs) {
  return copy_with(self, args, kwargs, true);
}

static PyObject* buffer_write(PyObject* self, PyObject* args, PyObject* kwargs) {
  return copy_with(self, args, kwargs, false);
}

static PyObject* buffer_why(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"offset", NULL};
  BufferObject* self = (BufferObject*)object;
  PyObject* number = NULL;
  uint64_t offset = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:why", names, &number) ||
      (number != NULL && !to_bytes_count(number, "offset", &offset)) || usable_core(self) == NULL) {
    return NULL;
  }
  tm_whereabouts where = {.size = sizeof where};
  const tm_status status = tm_why(self->core->context, self->core->buffer, offset, &where);
  return status == TM_OK ? c_text(where.text)
                         : raise_status(state_of(object), status, self->context->context, 0);
}

static PyObject* buffer_info(PyObject* object, PyObject* unused) {
  (void)unused;
  BufferObject* self = (BufferObject*)object;
  if (usable_core(self) == NULL) {
    return NULL;
  }
  tm_residency info = {.size = sizeof info};
  const tm_status status = tm_buffer_info(self->core->context, self->core->buffer, &info);
  if (status != TM_OK) {
    return raise_status(state_of(object), status, self->context->context, 0);
  }
  return Py_BuildValue(
      "{s:N,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "label", c_text(info.label), "nbytes",
      (unsigned long long)info.bytes, "extent_bytes", (unsigned long long)info.extent_bytes,
      "extents", (unsigned long long)info.extents, "resident", (unsigned long long)info.resident,
      "dirty", (unsigned long long)info.dirty, "in_slots", (unsigned long long)info.in_slots,
      "zero", (unsigned long long)info.zero, "pinned", (unsigned long long)info.pinned, "lost",
      (unsigned long long)info.lost);
}

/* ---- Its bytes, if it is mapped ---- */

static bool mapped_layout(BufferObject* self, tensor_layout* out) {
  const buffer_core* core = usable_core(self);
  if (core == NULL) {
    return false;
  }
  if (core->address == NULL) {
    PyErr_SetString(
        PyExc_BufferError,
        "the buffer is not mapped, so it has no fixed address; use a view of it, or allocate "
        "it with mapped=True");
    return false;
  }
  *out = (tensor_layout){core->address, core->bytes, core->writable, core->home};
  return true;
}

static void release_core(void* core) {
  buffer_core_release(core);
}

static int buffer_getbuffer(PyObject* object, Py_buffer* out, int flags) {
  BufferObject* self = (BufferObject*)object;
  tensor_layout layout;
  out->obj = NULL;
  return mapped_layout(self, &layout)
             ? export_buffer(state_of(object), object, &self->exports, out, flags, &layout,
                             buffer_core_retain(self->core), release_core)
             : -1;
}

/* Never called, because Exports name themselves in Py_buffers. numpy.frombuffer() looks for it: it
 * then keeps a memoryview, and without it only this object. */
static void buffer_releasebuffer(PyObject* object, Py_buffer* unused) {
  (void)object;
  (void)unused;
}

static PyObject* buffer_to_dlpack(PyObject* object, PyObject* const* args, Py_ssize_t nargs) {
  BufferObject* self = (BufferObject*)object;
  tensor_layout layout;
  if (!mapped_layout(self, &layout)) {
    return NULL;
  }
  buffer_core* core = buffer_core_retain(self->core);
  PyObject* capsule = export_dlpack(args, nargs, &layout, core, release_core);
  if (capsule == NULL) {
    buffer_core_release(core);
  }
  return capsule;
}

static PyObject* buffer_dlpack_device(PyObject* self, PyObject* unused) {
  (void)self;
  (void)unused;
  return dlpack_device();
}

static PyObject* buffer_array_interface(PyObject* object, void* unused) {
  (void)unused;
  BufferObject* self = (BufferObject*)object;
  tensor_layout layout;
  if (!mapped_layout(self, &layout)) {
    if (PyErr_ExceptionMatches(PyExc_BufferError)) {
      PyErr_Clear(); /* Without the attribute, callers ask for the buffer protocol. */
      PyErr_SetString(PyExc_AttributeError, "__array_interface__");
    }
    return NULL;
  }
  return array_interface(export_owner(state_of(object), object, &self->exports, layout.home,
                                      buffer_core_retain(self->core), release_core),
                         &layout);
}

static Py_ssize_t buffer_length(PyObject* object) {
  const buffer_core* core = live_core((BufferObject*)object);
  return core != NULL ? (Py_ssize_t)core->bytes : -1;
}

static PyObject* buffer_nbytes(PyObject* object, void* unused) {
  (void)unused;
  const buffer_core* core = live_core((BufferObject*)object);
  return core != NULL ? PyLong_FromUnsignedLongLong(core->bytes) : NULL;
}

static PyObject* buffer_address(PyObject* object, void* unused) {
  (void)unused;
  const buffer_core* core = usable_core((BufferObject*)object);
  if (core == NULL) {
    return NULL;
  }
  return core->address != NULL ? PyLong_FromVoidPtr(core->address) : Py_NewRef(Py_None);
}

static PyObject* buffer_mapped(PyObject* object, void* unused) {
  (void)unused;
  const buffer_core* core = live_core((BufferObject*)object);
  return core != NULL ? PyBool_FromLong(core->address != NULL) : NULL;
}

static PyObject* buffer_context(PyObject* object, void* unused) {
  (void)unused;
  return Py_NewRef((PyObject*)((BufferObject*)object)->context);
}

static PyObject* buffer_freed(PyObject* object, void* unused) {
  (void)unused;
  return PyBool_FromLong(((BufferObject*)object)->core == NULL);
}

static PyMethodDef buffer_methods[] = {
    {"view", FUNCTION(buffer_view), METH_FASTCALL | METH_KEYWORDS,
     "view($self, /, offset=0, length=None, mode='r', timeout=None)\n--\n\n"
     "Pin a range and return a View. Its bytes do not move until it is released.\n\n"
     "length: None reaches the end of the buffer.\n"
     "mode: 'r', 'rw', or 'w' for a caller that overwrites every byte, so that nothing is read.\n"
     "timeout: the longest wait in seconds; 0 never waits, None has no limit.\n\n"
     "Raise NoCapacity, Busy (timeout 0), TimedOut, Lost, or DeviceError."},
    {"view_async", FUNCTION(buffer_view_async), KEYWORDS,
     "view_async($self, /, offset=0, length=None, mode='r')\n--\n\n"
     "Start view() and return an Op. Its result is the View: await it, or call wait()."},
    {"read", FUNCTION(buffer_read), KEYWORDS,
     "read($self, /, offset=0, length=None, *, timeout=None)\n--\n\nReturn bytes of the buffer as "
     "a copy."},
    {"readinto", FUNCTION(buffer_readinto), KEYWORDS,
     "readinto($self, /, data, offset=0, *, timeout=None)\n--\n\n"
     "Copy bytes from offset on into data, a writable object such as a bytearray. Return their "
     "number."},
    {"write", FUNCTION(buffer_write), KEYWORDS,
     "write($self, /, data, offset=0, *, timeout=None)\n--\n\n"
     "Copy data into the buffer, from offset on. Return the number of bytes."},
    {"prefetch", FUNCTION(buffer_prefetch), KEYWORDS,
     "prefetch($self, /, offset=0, length=None, *, next_use=0)\n--\n\n"
     "Promote a range before it is used, and return an Op. Does nothing if there is no room.\n\n"
     "The Op need not be kept: the hint goes on without it. next_use: the tick() ordinal of the\n"
     "next use; 0: soon."},
    {"advise", FUNCTION(buffer_advise), KEYWORDS,
     "advise($self, /, advice, offset=0, length=None, *, value=0, tier=None)\n--\n\n"
     "Give a hint for a range: 'normal', 'read_mostly', 'will_need', 'dont_need' (the bytes are "
     "given\n"
     "up and read as zeros), 'cold', 'sequential', 'random', 'streamed', 'touched', 'frozen',\n"
     "'preferred' (tier: the host memory where the bytes live, as for alloc()), 'keep' (value 1 or "
     "0),\n"
     "'next_use' (value: the ordinal of a tick)."},
    {"evict", FUNCTION(buffer_evict), KEYWORDS,
     "evict($self, /, offset=0, length=None, *, timeout=None)\n--\n\n"
     "Write changed bytes of a range to a lower tier, free their memory, and wait for that."},
    {"why", FUNCTION(buffer_why), KEYWORDS,
     "why($self, /, offset=0)\n--\n\nReturn a sentence: where the byte is, since when, and what "
     "moved it "
     "there."},
    {"info", buffer_info, METH_NOARGS,
     "info($self, /)\n--\n\nReturn a dictionary with the state of the buffer: bytes by where they "
     "are."},
    {"free", buffer_free, METH_NOARGS,
     "free($self, /)\n--\n\n"
     "Free the buffer now. Raise BufferError while views, tensors or memoryviews use it.\n\n"
     "Without this call the buffer is freed when its last user is gone."},
    {"_dlpack", (PyCFunction)(void (*)(void))buffer_to_dlpack, METH_FASTCALL, NULL},
    {"__dlpack_device__", buffer_dlpack_device, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef buffer_getset[] = {
    {"nbytes", buffer_nbytes, NULL, "Length in bytes.", NULL},
    {"address", buffer_address, NULL, "Address of byte 0 if the buffer is mapped, else None.",
     NULL},
    {"mapped", buffer_mapped, NULL, "Whether the buffer has a fixed address.", NULL},
    {"freed", buffer_freed, NULL, "Whether free() has freed the buffer.", NULL},
    {"context", buffer_context, NULL, "The context of the buffer.", NULL},
    {"__array_interface__", buffer_array_interface, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot buffer_slots[] = {
    {Py_tp_doc,
     "Bytes that may exceed any one memory. Context.alloc() and Context.adopt_file() create it.\n\n"
     "A mapped buffer is memory: memoryview(buffer), numpy and torch use it directly. Any other "
     "buffer\n"
     "is used through views. Any thread may use a buffer."},
    {Py_tp_dealloc, buffer_dealloc},
    {Py_tp_methods, buffer_methods},
    {Py_tp_getset, buffer_getset},
    {Py_sq_length, buffer_length},
    {Py_bf_getbuffer, buffer_getbuffer},
    {Py_bf_releasebuffer, buffer_releasebuffer},
    {0, NULL},
};
PyType_Spec buffer_spec = {"tiermem.Buffer", sizeof(BufferObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, buffer_slots};
