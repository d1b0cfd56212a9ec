/* tiermem.Context: tiers, and the buffers in them. */
#include <stdlib.h>
#include <string.h>

#include "native.h"

static PyObject* create(PyTypeObject* type, const char* tiers, const char* toml, const char* name,
                        bool shared) {
  module_state* state = (module_state*)PyType_GetModuleState(type);
  tm_context* made = NULL;
  tm_status status;
  const tm_context_options options = {.size = sizeof options, .toml = toml, .name = name};
  context_core* core = context_core_new();
  if (core == NULL) {
    return PyErr_NoMemory();
  }
  Py_BEGIN_ALLOW_THREADS;
  status = shared ? tm_context_default(&made) : tm_context_create(tiers, &options, &made);
  Py_END_ALLOW_THREADS;
  if (status != TM_OK) {
    context_core_release(core);
    return raise_status(state, status, NULL, 0);
  }
  ContextObject* self = PyObject_New(ContextObject, type);
  if (self == NULL) {
    context_core_release(core);
    (void)tm_context_release(made);
    return NULL;
  }
  self->context = made;
  self->core = core;
  self->closed = self->unfinished = false;
  self->shared = shared;
  self->owned = true;
  self->ending = NULL;
  self->detached = NULL;
  self->detached_count = self->detached_room = 0;
  return (PyObject*)self;
}

/* Converters of PyArg_ParseTuple() for options, with paths as os.fsdecode() returns them. `out` is
 * a PyObject**: bytes, or NULL for None. */
static int to_tiers(PyObject* option, void* out) {
  PyObject* bytes = NULL;
  if (PyUnicode_Check(option)) {
    bytes = PyUnicode_EncodeFSDefault(option);
  } else if (option != Py_None) {
    PyErr_Format(PyExc_TypeError, "tiers is %R; it must be a str or None", option);
  }
  char* text;
  if (bytes != NULL && PyBytes_AsStringAndSize(bytes, &text, NULL) != 0) { /* A null character. */
    Py_CLEAR(bytes);
  }
  *(PyObject**)out = bytes;
  return bytes != NULL || option == Py_None;
}

static int to_path(PyObject* option, void* out) {
  *(PyObject**)out = NULL;
  return option == Py_None || PyUnicode_FSConverter(option, out) != 0;
}

static const char* text_of(PyObject* bytes) {
  return bytes != NULL ? PyBytes_AsString(bytes) : NULL;
}

static PyObject* context_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"tiers", "toml", "name", "_shared", NULL};
  PyObject *tiers = NULL, *toml = NULL, *result = NULL;
  const char* name = NULL;
  int shared = 0;
  if (PyArg_ParseTupleAndKeywords(args, kwargs, "|O&$O&zp:Context", names, to_tiers, &tiers,
                                  to_path, &toml, &name, &shared)) {
    result = create(type, text_of(tiers), text_of(toml), name, shared != 0);
  }
  Py_XDECREF(tiers);
  Py_XDECREF(toml);
  return result;
}

/* Ends the context unless tensors still use it: the last of them ends it then. */
static void drop_reference(ContextObject* self) {
  if (self->owned) {
    self->owned = false;
    Py_BEGIN_ALLOW_THREADS;
    (void)tm_context_release(self->context);
    Py_END_ALLOW_THREADS;
  }
}

static void context_dealloc(PyObject* object) {
  ContextObject* self = (ContextObject*)object;
  PyTypeObject* type = Py_TYPE(object);
  if (self->ending != NULL) {
    ending_release(self->ending);
  }
  drop_reference(self);
  free(self->detached);
  context_core_release(self->core);
  PyObject_Free(object);
  Py_DECREF(type);
}

/* Arrays and tensors over mapped buffers, which the library does not know, and those over views. */
static bool has_exports(ContextObject* self) {
  const unsigned live = atomic_load(&self->core->exports);
  if (live != 0) {
    (void)raise_text(state_of((PyObject*)self), TM_BUSY,
                     "close: %u arrays, tensors or memoryviews use bytes of the context's buffers; "
                     "delete them, or make them invalid with close(force=True)",
                     live);
  }
  return live != 0;
}

static PyObject* context_close(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"force", "timeout", NULL};
  ContextObject* self = (ContextObject*)object;
  int force = 0;
  PyObject* timeout = NULL;
  int64_t limit = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|p$O:close", names, &force, &timeout) ||
      !to_timeout(timeout, &limit)) {
    return NULL;
  }
  if (self->shared) {
    PyErr_SetString(
        PyExc_ValueError,
        "the default context is shared by all its users, and ends with the process; create a "
        "Context of your own to close it");
    return NULL;
  }
  /* After an exception in its block it is closed, and its bytes are there: force ends them. */
  if (self->ending == NULL && !self->unfinished &&
      (self->core->ended || (self->closed && !force))) {
    Py_RETURN_NONE;
  }
  if (self->ending == NULL && !force && has_exports(self)) {
    return NULL;
  }
  const bool before = self->closed && self->ending == NULL;
  self->closed = true; /* From here on there are no new exports. */
  tm_event caught;
  if (!wait_for_ending(self, force ? TM_DESTROY_FORCE : 0, limit, &caught)) {
    self->core->ended = force != 0 || self->core->ended;
    return NULL; /* The context ends in the background. */
  }
  /* After its timeout the library takes no calls, and the next close() ends the context. */
  self->unfinished = caught.status == TM_TIMED_OUT;
  const bool done = caught.status == TM_OK || caught.status == TM_SHUT_DOWN;
  self->core->ended = self->core->ended || done || (self->unfinished && force);
  if (!done) {
    self->closed = before || self->unfinished;
    return raise_event(state_of(object), &caught);
  }
  Py_RETURN_NONE;
}

static PyObject* context_enter(PyObject* self, PyObject* unused) {
  (void)unused;
  return is_open((ContextObject*)self) ? Py_NewRef(self) : NULL;
}

/*
 * After an exception the traceback keeps views and arrays, and its handler may touch them: the
 * context ends with the last of them. Nothing here may hide the exception.
 */
static PyObject* context_exit(PyObject* object, PyObject* args) {
  ContextObject* self = (ContextObject*)object;
  PyObject* type = PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : Py_None;
  if (type == Py_None) {
    return PyObject_CallMethod(object, "close", NULL);
  }
  if (!self->shared && !self->closed) {
    self->closed = true;
    drop_reference(self);
  }
  Py_RETURN_NONE;
}

static PyObject* context_alloc(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"nbytes",   "mapped",      "droppable",    "checksum",
                          "isolated", "interleaved", "extent_bytes", "alignment",
                          "advice",   "preferred",   "label",        NULL};
  ContextObject* self = (ContextObject*)object;
  module_state* state = state_of(object);
  PyObject *nbytes, *extent = NULL, *alignment = NULL, *advice = NULL, *preferred = NULL;
  int mapped = 0, droppable = 0, checksum = 1, isolated = 0, interleaved = 0;
  uint64_t bytes = 0;
  tm_buffer_options options = {.size = sizeof options};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$pppppOOOOz:alloc", names, &nbytes, &mapped,
                                   &droppable, &checksum, &isolated, &interleaved, &extent,
                                   &alignment, &advice, &preferred, &options.label) ||
      !to_bytes_count(nbytes, "nbytes", &bytes) ||
      (extent != NULL && !to_bytes_count(extent, "extent_bytes", &options.extent_bytes)) ||
      (alignment != NULL && !to_bytes_count(alignment, "alignment", &options.alignment)) ||
      (advice != NULL && !to_advice(advice, &options.advice)) ||
      !to_preferred(preferred, &options.preferred) || !is_open(self)) {
    return NULL;
  }
  options.flags = (mapped ? TM_MAPPED : 0u) | (droppable ? TM_DROPPABLE : 0u) |
                  (checksum ? 0u : TM_NO_CHECKSUM) | (isolated ? TM_ISOLATED : 0u) |
                  (interleaved ? TM_INTERLEAVED : 0u);
  tm_buffer made = 0;
  tm_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = tm_alloc(self->context, bytes, &options, &made);
  Py_END_ALLOW_THREADS;
  return status == TM_OK ? new_buffer(state, self, made, true)
                         : raise_status(state, status, self->context, 0);
}

static PyObject* context_adopt_file(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"path",         "offset", "length",    "private", "mapped", "interleaved",
                          "extent_bytes", "advice", "preferred", "label",   NULL};
  ContextObject* self = (ContextObject*)object;
  module_state* state = state_of(object);
  PyObject *path = NULL, *offset = NULL, *length = NULL, *extent = NULL, *advice = NULL,
           *preferred = NULL, *result = NULL;
  int is_private = 0, mapped = 0, interleaved = 0;
  uint64_t from = 0, bytes = 0;
  tm_buffer_options options = {.size = sizeof options};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&|OO$pppOOOz:adopt_file", names,
                                   PyUnicode_FSConverter, &path, &offset, &length, &is_private,
                                   &mapped, &interleaved, &extent, &advice, &preferred,
                                   &options.label)) {
    return NULL;
  }
  const char* name = NULL;
  if ((offset == NULL || to_bytes_count(offset, "offset", &from)) &&
      (length == NULL || length == Py_None || to_bytes_count(length, "length", &bytes)) &&
      (extent == NULL || to_bytes_count(extent, "extent_bytes", &options.extent_bytes)) &&
      (advice == NULL || to_advice(advice, &options.advice)) &&
      to_preferred(preferred, &options.preferred) && is_open(self) &&
      (name = PyBytes_AsString(path)) != NULL) {
    options.flags = (is_private ? TM_PRIVATE : 0u) | (mapped ? TM_MAPPED : 0u) |
                    (interleaved ? TM_INTERLEAVED : 0u);
    tm_buffer made = 0;
    tm_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = tm_adopt_file(self->context, name, from, bytes, &options, &made);
    Py_END_ALLOW_THREADS;
    result = status == TM_OK ? new_buffer(state, self, made, is_private != 0)
                             : raise_status(state, status, self->context, 0);
  }
  Py_DECREF(path);
  return result;
}

static PyObject* context_acquire(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"ranges", "mode", "timeout", NULL};
  ContextObject* self = (ContextObject*)object;
  module_state* state = state_of(object);
  PyObject *list, *mode = NULL, *timeout = NULL, *kept = NULL, *result = NULL;
  uint32_t how = TM_READ;
  int64_t limit = 0;
  Py_ssize_t n = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O$O:acquire", names, &list, &mode, &timeout) ||
      !to_timeout(timeout, &limit) || (mode != NULL && !to_mode(mode, &how)) || !is_open(self)) {
    return NULL;
  }
  tm_access* ranges = to_ranges(state, list, how, &n, &kept);
  tm_view* views = ranges != NULL ? PyMem_Calloc((size_t)n, sizeof *views) : NULL;
  if (views != NULL) {
    tm_status status;
    if (wait_for_views(self->context, ranges, (size_t)n, limit, views, &status)) {
      result = status == TM_OK ? new_views(state, kept, ranges, views, n)
                               : raise_status(state, status, self->context, 0);
    }
  } else if (ranges != NULL) {
    PyErr_NoMemory();
  }
  PyMem_Free(views);
  PyMem_Free(ranges);
  Py_XDECREF(kept);
  return result;
}

static PyObject* context_acquire_async(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"ranges", "mode", "_single", NULL};
  ContextObject* self = (ContextObject*)object;
  module_state* state = state_of(object);
  PyObject *list, *mode = NULL, *kept = NULL;
  uint32_t how = TM_READ;
  int single = 0;
  Py_ssize_t n = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O$p:acquire_async", names, &list, &mode,
                                   &single) ||
      !is_open(self) || (mode != NULL && !to_mode(mode, &how))) {
    return NULL;
  }
  tm_access* ranges = to_ranges(state, list, how, &n, &kept);
  if (ranges == NULL) {
    return NULL;
  }
  OpObject* op = new_op(state, self, 0, kept);
  if (op != NULL) {
    op->ranges = ranges;
    op->views = PyMem_Calloc((size_t)n, sizeof *op->views);
    op->single = single != 0;
    tm_status status = TM_OK;
    if (op->views == NULL) {
      PyErr_NoMemory();
      Py_CLEAR(op);
    } else {
      op->count = n;
      status =
          tm_acquire_async(self->context, ranges, (size_t)n, TM_HOST_ORDER, op->views, &op->op);
    }
    if (op != NULL && status != TM_OK) {
      op->op = 0;
      (void)raise_status(state, status, self->context, 0);
      Py_CLEAR(op);
    }
  } else {
    PyMem_Free(ranges);
  }
  Py_XDECREF(kept);
  return (PyObject*)op;
}

/* A hint goes on if the object is dropped, as in C without an operation. */
static PyObject* new_hint(module_state* state, ContextObject* self, tm_op op, PyObject* kept) {
  OpObject* made = new_op(state, self, op, kept);
  if (made != NULL) {
    made->hint = true;
  }
  return (PyObject*)made;
}

static PyObject* context_prefetch(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"ranges", "next_use", NULL};
  ContextObject* self = (ContextObject*)object;
  module_state* state = state_of(object);
  PyObject *list, *use = NULL, *kept = NULL;
  uint64_t next_use = TM_SOON;
  Py_ssize_t n = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$O:prefetch", names, &list, &use) ||
      (use != NULL && !to_uint64(use, "next_use", &next_use)) || !is_open(self)) {
    return NULL;
  }
  tm_access* ranges = to_ranges(state, list, TM_READ, &n, &kept);
  if (ranges == NULL) {
    return NULL;
  }
  tm_op op = 0;
  const tm_status status = tm_prefetch(self->context, ranges, (size_t)n, next_use, &op);
  PyObject* result = status == TM_OK ? new_hint(state, self, op, kept)
                                     : raise_status(state, status, self->context, 0);
  PyMem_Free(ranges);
  Py_DECREF(kept);
  return result;
}

typedef struct {
  tm_context* context;
  const tm_access* ranges;
  size_t n;
} evict_call;

static tm_status evict(void* of, int64_t timeout_ns) {
  const evict_call* call = of;
  return tm_evict(call->context, call->ranges, call->n, timeout_ns);
}

static PyObject* context_evict(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"ranges", "timeout", NULL};
  ContextObject* self = (ContextObject*)object;
  module_state* state = state_of(object);
  PyObject *list, *timeout = NULL, *kept = NULL;
  int64_t limit = 0;
  Py_ssize_t n = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$O:evict", names, &list, &timeout) ||
      !to_timeout(timeout, &limit) || !is_open(self)) {
    return NULL;
  }
  tm_access* ranges = to_ranges(state, list, TM_READ, &n, &kept);
  if (ranges == NULL) {
    return NULL;
  }
  tm_status status;
  evict_call call = {self->context, ranges, (size_t)n};
  const bool waited = wait_for_call(evict, &call, limit, &status);
  PyMem_Free(ranges);
  Py_DECREF(kept);
  if (!waited) {
    return NULL;
  }
  if (status != TM_OK) {
    return raise_status(state, status, self->context, 0);
  }
  Py_RETURN_NONE;
}

static PyObject* context_advise(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"ranges", "advice", "value", "tier", NULL};
  ContextObject* self = (ContextObject*)object;
  module_state* state = state_of(object);
  PyObject *list, *advice, *number = NULL, *tier = NULL, *kept = NULL;
  uint64_t value = 0;
  uint32_t hint = 0;
  tm_place place = {TM_ANY, 0};
  Py_ssize_t n = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|O$O:advise", names, &list, &advice, &number,
                                   &tier) ||
      !to_advice(advice, &hint) || !to_preferred(tier, &place) ||
      (number != NULL && !to_uint64(number, "value", &value)) || !is_open(self)) {
    return NULL;
  }
  if (place.kind != TM_ANY && hint != TM_PREFERRED) {
    PyErr_Format(PyExc_ValueError, "tier is %R with the advice %R; only 'preferred' takes a tier",
                 tier, advice);
    return NULL;
  }
  tm_access* ranges = to_ranges(state, list, TM_READ, &n, &kept);
  if (ranges == NULL) {
    return NULL;
  }
  for (Py_ssize_t i = 0; i < n; ++i) {
    ranges[i].where = place;
  }
  tm_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = tm_advise(self->context, ranges, (size_t)n, hint, value);
  Py_END_ALLOW_THREADS;
  PyMem_Free(ranges);
  Py_DECREF(kept);
  if (status != TM_OK) {
    return raise_status(state, status, self->context, 0);
  }
  Py_RETURN_NONE;
}

/* An address from a number, such as that of data_ptr(). Returns false with an exception. */
static bool to_address(PyObject* number, const void** out) {
  uint64_t address = 0;
  const bool good = to_uint64(number, "address", &address);
  *out = (const void*)(uintptr_t)address;
  return good;
}

static PyObject* context_prefetch_at(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"address", "nbytes", "next_use", NULL};
  ContextObject* self = (ContextObject*)object;
  module_state* state = state_of(object);
  PyObject *address, *count, *use = NULL;
  uint64_t next_use = TM_SOON;
  const void* at = NULL;
  uint64_t bytes = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$O:prefetch_at", names, &address, &count,
                                   &use) ||
      !to_address(address, &at) || !to_bytes_count(count, "nbytes", &bytes) ||
      (use != NULL && !to_uint64(use, "next_use", &next_use)) || !is_open(self)) {
    return NULL;
  }
  tm_op op = 0;
  const tm_status status = tm_prefetch_at(self->context, at, bytes, next_use, &op);
  return status == TM_OK ? new_hint(state, self, op, NULL)
                         : raise_status(state, status, self->context, 0);
}

typedef struct {
  tm_context* context;
  const void* address;
  uint64_t bytes;
} evict_at_call;

static tm_status evict_at(void* of, int64_t timeout_ns) {
  const evict_at_call* call = of;
  return tm_evict_at(call->context, call->address, call->bytes, timeout_ns);
}

static PyObject* context_evict_at(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"address", "nbytes", "timeout", NULL};
  ContextObject* self = (ContextObject*)object;
  PyObject *address, *count, *timeout = NULL;
  const void* at = NULL;
  uint64_t bytes = 0;
  int64_t limit = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$O:evict_at", names, &address, &count,
                                   &timeout) ||
      !to_address(address, &at) || !to_bytes_count(count, "nbytes", &bytes) ||
      !to_timeout(timeout, &limit) || !is_open(self)) {
    return NULL;
  }
  tm_status status;
  evict_at_call call = {self->context, at, bytes};
  if (!wait_for_call(evict_at, &call, limit, &status)) {
    return NULL;
  }
  if (status != TM_OK) {
    return raise_status(state_of(object), status, self->context, 0);
  }
  Py_RETURN_NONE;
}

static PyObject* context_advise_at(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"address", "nbytes", "advice", "value", NULL};
  ContextObject* self = (ContextObject*)object;
  PyObject *address, *count, *advice, *number = NULL;
  uint64_t value = 0;
  const void* at = NULL;
  uint64_t bytes = 0;
  uint32_t hint = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|O:advise_at", names, &address, &count,
                                   &advice, &number) ||
      (number != NULL && !to_uint64(number, "value", &value)) || !to_address(address, &at) ||
      !to_bytes_count(count, "nbytes", &bytes) || !to_advice(advice, &hint) || !is_open(self)) {
    return NULL;
  }
  tm_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = tm_advise_at(self->context, at, bytes, hint, value);
  Py_END_ALLOW_THREADS;
  if (status != TM_OK) {
    return raise_status(state_of(object), status, self->context, 0);
  }
  Py_RETURN_NONE;
}

static PyObject* label_dictionary(const tm_label_counters* of, uint32_t tiers) {
  PyObject* in_tiers = PyList_New(0);
  for (uint32_t i = 0; in_tiers != NULL && i < tiers; ++i) {
    PyObject* bytes = PyLong_FromUnsignedLongLong(of->tiers[i]);
    if (bytes == NULL || PyList_Append(in_tiers, bytes) != 0) {
      Py_CLEAR(in_tiers);
    }
    Py_XDECREF(bytes);
  }
  return in_tiers == NULL
             ? NULL
             : Py_BuildValue(
                   "{sNsKsKsKsKsKsKsKsKsN}", "label", c_text(of->label), "buffers",
                   (unsigned long long)of->buffers, "bytes", (unsigned long long)of->bytes,
                   "resident", (unsigned long long)of->resident, "dirty",
                   (unsigned long long)of->dirty, "in_slots", (unsigned long long)of->in_slots,
                   "zero", (unsigned long long)of->zero, "pinned", (unsigned long long)of->pinned,
                   "lost", (unsigned long long)of->lost, "tiers", in_tiers);
}

static PyObject* context_stats_by_label(PyObject* object, PyObject* unused) {
  (void)unused;
  ContextObject* self = (ContextObject*)object;
  tm_capabilities caps = {.size = sizeof caps};
  tm_label_counters* list = NULL;
  size_t room = 0, count = 16;
  tm_status status = is_open(self) ? tm_caps(self->context, &caps) : TM_INTERNAL;
  if (PyErr_Occurred()) {
    return NULL;
  }
  while (status == TM_OK && count > room) { /* There may be more labels than in the last call. */
    room = count;
    PyMem_Free(list);
    list = PyMem_Malloc(room * sizeof *list);
    if (list == NULL) {
      return PyErr_NoMemory();
    }
    list[0].size = sizeof list[0];
    Py_BEGIN_ALLOW_THREADS;
    status = tm_stats_by_label(self->context, list, room, &count);
    Py_END_ALLOW_THREADS;
  }
  PyObject* result =
      status == TM_OK ? PyList_New(0) : raise_status(state_of(object), status, self->context, 0);
  for (size_t i = 0; result != NULL && i < count; ++i) {
    PyObject* row = label_dictionary(&list[i], caps.tiers);
    if (row == NULL || PyList_Append(result, row) != 0) {
      Py_CLEAR(result);
    }
    Py_XDECREF(row);
  }
  PyMem_Free(list);
  return result;
}

typedef struct {
  tm_context* context;
  tm_place tier;
  uint64_t bytes;
} budget_call;

static tm_status set_budget(void* of, int64_t timeout_ns) {
  const budget_call* call = of;
  return tm_set_budget(call->context, call->tier, call->bytes, timeout_ns);
}

static PyObject* context_set_budget(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"tier", "nbytes", "timeout", NULL};
  ContextObject* self = (ContextObject*)object;
  PyObject *tier, *nbytes, *timeout = NULL;
  tm_place place;
  uint64_t bytes = 0;
  int64_t limit = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|O:set_budget", names, &tier, &nbytes,
                                   &timeout) ||
      !to_place(tier, &place) || !to_bytes_count(nbytes, "nbytes", &bytes) ||
      !to_timeout(timeout, &limit) || !is_open(self)) {
    return NULL;
  }
  tm_status status;
  budget_call call = {self->context, place, bytes};
  if (!wait_for_call(set_budget, &call, limit, &status)) {
    return NULL;
  }
  if (status != TM_OK) {
    return raise_status(state_of(object), status, self->context, 0);
  }
  Py_RETURN_NONE;
}

static PyObject* context_tick(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"step", NULL};
  ContextObject* self = (ContextObject*)object;
  int step = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$p:tick", names, &step) || !is_open(self)) {
    return NULL;
  }
  uint64_t ordinal = 0;
  const tm_status status = tm_tick(self->context, step ? TM_TICK_STEP : TM_TICK_OP, &ordinal);
  return status == TM_OK ? PyLong_FromUnsignedLongLong(ordinal)
                         : raise_status(state_of(object), status, self->context, 0);
}

/* The JSON text of tm_stats_json(). It may grow between the two calls. */
static PyObject* context_stats_json(PyObject* object, PyObject* last) {
  ContextObject* self = (ContextObject*)object;
  uint32_t most = 0;
  if (!to_uint32(last, "last", &most) || !is_open(self)) {
    return NULL;
  }
  size_t room = 0;
  char* text = NULL;
  tm_status status;
  do {
    size_t length = 0;
    Py_BEGIN_ALLOW_THREADS;
    status = tm_stats_json(self->context, most, text, room, &length);
    Py_END_ALLOW_THREADS;
    if (status == TM_OK && text != NULL) {
      break;
    }
    if (status != TM_OK && (status != TM_NO_CAPACITY || text == NULL)) {
      break;
    }
    if (status == TM_OK) {
      room = length + 4096;
    } else {
      room *= 2;
    }
    PyMem_Free(text);
    text = PyMem_Malloc(room);
    if (text == NULL) {
      return PyErr_NoMemory();
    }
  } while (true);
  PyObject* result = status == TM_OK
                         ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace")
                         : raise_status(state_of(object), status, self->context, 0);
  PyMem_Free(text);
  return result;
}

static PyObject* context_tiers(PyObject* object, void* unused) {
  (void)unused;
  ContextObject* self = (ContextObject*)object;
  module_state* state = state_of(object);
  tm_capabilities caps = {.size = sizeof caps};
  if (!is_open(self)) {
    return NULL;
  }
  tm_status status = tm_caps(self->context, &caps);
  if (status != TM_OK) {
    return raise_status(state, status, self->context, 0);
  }
  PyObject* all = PyList_New(0);
  for (uint32_t i = 0; all != NULL && i < caps.tiers; ++i) {
    tm_tier_counters tier = {.size = sizeof tier};
    status = tm_stats_tier(self->context, i, &tier);
    PyObject* one =
        status != TM_OK
            ? raise_status(state, status, self->context, 0)
            : Py_BuildValue("{s:N,s:K,s:K,s:K,s:K,s:K}", "tier", place_text(tier.tier), "budget",
                            (unsigned long long)tier.budget, "used", (unsigned long long)tier.used,
                            "pinned", (unsigned long long)tier.pinned, "bytes_in",
                            (unsigned long long)tier.bytes_in, "bytes_out",
                            (unsigned long long)tier.bytes_out);
    if (one == NULL || PyList_Append(all, one) != 0) {
      Py_CLEAR(all);
    }
    Py_XDECREF(one);
  }
  return all;
}

static PyObject* context_closed(PyObject* object, void* unused) {
  (void)unused;
  return PyBool_FromLong(((ContextObject*)object)->closed);
}

static PyObject* context_can_map(PyObject* object, void* unused) {
  (void)unused;
  ContextObject* self = (ContextObject*)object;
  tm_capabilities caps = {.size = sizeof caps};
  const tm_status status = is_open(self) ? tm_caps(self->context, &caps) : TM_OK;
  if (PyErr_Occurred()) {
    return NULL;
  }
  return status == TM_OK ? PyBool_FromLong((caps.flags & TM_CAN_MAP) != 0)
                         : raise_status(state_of(object), status, self->context, 0);
}

static PyMethodDef context_methods[] = {
    {"close", FUNCTION(context_close), KEYWORDS,
     "close($self, /, force=False, *, timeout=None)\n--\n\n"
     "End the context and all its buffers.\n\n"
     "Raise Busy while arrays, tensors or memoryviews use its bytes, or views are held.\n"
     "force: end it nevertheless. All of these are invalid then, and a touch of their bytes is\n"
     "SIGSEGV. timeout: the longest wait in seconds for transfers in progress. After TimedOut the\n"
     "context refuses new calls, and the next close() ends it.\n"
     "A closed context may be closed again.\n\n"
     "The end of a with block is close(). After an exception in the block the context refuses\n"
     "new calls, and ends when its last array, tensor, view and buffer is gone."},
    {"__enter__", context_enter, METH_NOARGS, NULL},
    {"__exit__", context_exit, METH_VARARGS, NULL},
    {"alloc", FUNCTION(context_alloc), KEYWORDS,
     "alloc($self, /, nbytes, *, mapped=False, droppable=False, checksum=True, isolated=False,\n"
     "      interleaved=False, extent_bytes=0, alignment=0, advice='normal', preferred=None,\n"
     "      label=None)\n--\n\n"
     "Allocate a Buffer, which reads as zeros and uses no memory until it is touched.\n\n"
     "mapped: the buffer has a fixed address, and is used without views.\n"
     "droppable: if no drive takes its bytes when they must leave memory, they are dropped.\n"
     "checksum: check bytes that come back from a drive.\n"
     "isolated: clear its memory before another buffer uses it.\n"
     "interleaved: spread it over DRAM and the memories of numa, by their bandwidths.\n"
     "extent_bytes: unit of movement, a power of two from 4096 to 2**26; 0: tiermem chooses.\n"
     "advice: a hint for the whole buffer; see Buffer.advise().\n"
     "preferred: the host memory where the bytes live: 'dram', 'numa:1' of the option numa, or\n"
     "    'pmem:0' of the option pmem.\n"
     "label: its name in messages; 31 bytes of its UTF-8 text are kept.\n\n"
     "Raise NoCapacity without address space, InvalidArgument or Unsupported for bad options."},
    {"adopt_file", FUNCTION(context_adopt_file), KEYWORDS,
     "adopt_file($self, /, path, offset=0, length=None, *, private=False, mapped=False, "
     "interleaved=False, "
     "extent_bytes=0, advice='normal', preferred=None, label=None)\n--\n\n"
     "Create a read-only Buffer over a file. The file is the cold copy: evicting writes "
     "nothing.\n\n"
     "The file must not change while the buffer exists; a change is an OSError at the next read.\n"
     "private: views may write. Written bytes belong to the buffer; the file is never written.\n"
     "mapped: the buffer is memory at a fixed address and is used without views, as by\n"
     "numpy.frombuffer(buffer). Address and offset have the same remainder modulo 4096.\n"
     "interleaved, extent_bytes, preferred: as for alloc()."},
    {"acquire", FUNCTION(context_acquire), KEYWORDS,
     "acquire($self, /, ranges, mode='r', *, timeout=None)\n--\n\n"
     "Pin all ranges or none, and return a list of View.\n\n"
     "ranges: a sequence of buffers or of (buffer, offset, length, mode); later parts may be "
     "missing.\n"
     "mode: 'r', 'rw', or 'w' for a caller that overwrites every byte, so that nothing is read.\n"
     "timeout: the longest wait in seconds; 0 never waits, None has no limit.\n\n"
     "Raise NoCapacity, Busy (timeout 0), TimedOut, Lost, or DeviceError."},
    {"acquire_async", FUNCTION(context_acquire_async), KEYWORDS,
     "acquire_async($self, /, ranges, mode='r')\n--\n\n"
     "Start acquire() and return an Op. Its result is the list of views."},
    {"prefetch", FUNCTION(context_prefetch), KEYWORDS,
     "prefetch($self, /, ranges, *, next_use=0)\n--\n\n"
     "Promote ranges before they are used, and return an Op. Does nothing if there is no room.\n\n"
     "The Op need not be kept: the hint goes on without it.\n"
     "next_use: the tick() ordinal of the next use; 0: soon."},
    {"copy", FUNCTION(context_copy), KEYWORDS,
     "copy($self, /, items, *, promote=True, timeout=None)\n--\n\n"
     "Copy bytes out of buffers and into them. Return the number of bytes.\n\n"
     "items: a sequence of (buffer, offset, data, mode). With mode 'r', the default, data is "
     "writable and receives its length in bytes; with 'w' its bytes go into the buffer.\n"
     "promote: False reads bytes that are not in memory without bringing them there. The device "
     "then writes directly to data that is aligned to 4096 bytes.\n\n"
     "Raise the error of the first item that failed; the others are copied."},
    {"copy_async", FUNCTION(context_copy_async), KEYWORDS,
     "copy_async($self, /, items, *, promote=True, timeout=None)\n--\n\n"
     "Start copy() and return an Op. Its result is the number of bytes. Several may be under way."},
    {"evict", FUNCTION(context_evict), KEYWORDS,
     "evict($self, /, ranges, *, timeout=None)\n--\n\n"
     "Write changed bytes of ranges to a lower tier, free their memory, and wait for that."},
    {"advise", FUNCTION(context_advise), KEYWORDS,
     "advise($self, /, ranges, advice, value=0, *, tier=None)\n--\n\n"
     "Give a hint for ranges; see Buffer.advise()."},
    {"prefetch_at", FUNCTION(context_prefetch_at), KEYWORDS,
     "prefetch_at($self, /, address, nbytes, *, next_use=0)\n--\n\n"
     "Do prefetch() for a range of addresses, such as tensor.data_ptr() and tensor.nbytes.\n\n"
     "The range must be in mapped buffers; it may cross from one to the next."},
    {"evict_at", FUNCTION(context_evict_at), KEYWORDS,
     "evict_at($self, /, address, nbytes, *, timeout=None)\n--\n\n"
     "Do evict() for a range of addresses; see prefetch_at()."},
    {"advise_at", FUNCTION(context_advise_at), KEYWORDS,
     "advise_at($self, /, address, nbytes, advice, value=0)\n--\n\n"
     "Give a hint for a range of addresses; see prefetch_at()."},
    {"stats_by_label", context_stats_by_label, METH_NOARGS,
     "stats_by_label($self, /)\n--\n\n"
     "Return where the bytes of all buffers are, a dictionary for each label, the largest "
     "first.\n\n"
     "Its item tiers has the bytes in each tier, in the order of Context.tiers."},
    {"gpu_pause", FUNCTION(context_gpu_pause), KEYWORDS,
     "gpu_pause($self, /, tag=None, nbytes=0)\n--\n\n"
     "Move a set of device memory off its GPUs, and give the memory back to the driver. Nothing "
     "may "
     "use its addresses until gpu_resume().\n\n"
     "tag: the set, as named by gpu_tag(); None: all sets. nbytes: 0, or how much of it.\n"
     "The GPUs must have finished with the memory: call torch.cuda.synchronize() before."},
    {"gpu_resume", FUNCTION(context_gpu_resume), KEYWORDS,
     "gpu_resume($self, /, tag=None, nbytes=0)\n--\n\n"
     "Move a paused set back to its addresses, all of it or nothing."},
    {"set_budget", FUNCTION(context_set_budget), KEYWORDS,
     "set_budget($self, /, tier, nbytes, timeout=None)\n--\n\n"
     "Change the budget of a tier: 'dram', 'block' or 'gpu:0'.\n\n"
     "A smaller budget evicts bytes, and the call waits. On failure the old budget stays."},
    {"tick", FUNCTION(context_tick), KEYWORDS,
     "tick($self, /, *, step=False)\n--\n\n"
     "Mark an operation or, with step, a step of the program. Return its ordinal, from 1."},
    {"_stats_json", context_stats_json, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

/* For C code in the same process, such as libggml-tiermem. */
static PyObject* context_pointer(PyObject* object, void* unused) {
  (void)unused;
  return PyLong_FromVoidPtr(((ContextObject*)object)->context);
}

static PyGetSetDef context_getset[] = {
    {"_pointer", context_pointer, NULL, "Address of the tm_context, valid while this object lives.",
     NULL},
    {"closed", context_closed, NULL, "Whether the context refuses new calls.", NULL},
    {"tiers", context_tiers, NULL,
     "A list with a dictionary for each tier: tier, budget, used, pinned, bytes_in, bytes_out.",
     NULL},
    {"can_map", context_can_map, NULL, "Whether this machine supports mapped buffers.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot context_slots[] = {
    {Py_tp_doc,
     "Context(tiers=None, *, toml=None, name=None)\n--\n\n"
     "A set of tiers, and the thread that moves bytes between them.\n\n"
     "tiers: a text such as 'dram=4G; nvme=/data:100G'. None: the environment variable\n"
     "TIERMEM_TIERS, else what the machine offers. toml: path of a file of options. Paths may\n"
     "be those of os.fsdecode().\n"
     "name: its name in messages.\n\n"
     "Any thread may use a context. Its buffers and views keep it alive. tiermem.default() is one\n"
     "context that all users in a process share."},
    {Py_tp_new, context_new},
    {Py_tp_dealloc, context_dealloc},
    {Py_tp_methods, context_methods},
    {Py_tp_getset, context_getset},
    {0, NULL},
};
PyType_Spec context_spec = {"tiermem.Context", sizeof(ContextObject), 0, Py_TPFLAGS_DEFAULT,
                            context_slots};
