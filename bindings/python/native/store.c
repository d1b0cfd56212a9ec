/* tiermem.Store: objects by key. */
#include <stddef.h>
#include <string.h>

#include "native.h"

typedef struct {
  PyObject_HEAD ContextObject* context;
  tm_store* store; /* NULL once it was closed. */
  Py_ssize_t
      calls; /* In progress without the GIL, and operations: close() refuses while there are any. */
} StoreObject;

typedef tm_status (*copy_function)(tm_store*, tm_object*, size_t, int64_t, tm_op*);

/* The objects of one call: what tm_object points to, kept alive. */
typedef struct batch {
  op_extra extra;
  list_call call;
  copy_function copy;
  StoreObject* of; /* Not closed while it has calls. */
  Py_ssize_t count;
  tm_object* objects;
  Py_buffer* memory; /* `held` of them, in the order of the objects. */
  Py_ssize_t held;
  PyObject* keys; /* A list. */
  bool errors_are_misses;
} batch;

static void batch_release(op_extra* extra) {
  batch* self = (batch*)extra;
  for (Py_ssize_t i = 0; i < self->held; ++i) {
    PyBuffer_Release(&self->memory[i]);
  }
  if (self->of != NULL) {
    --self->of->calls;
    Py_DECREF((PyObject*)self->of);
  }
  Py_XDECREF(self->keys);
  PyMem_Free(self->memory);
  PyMem_Free(self->objects);
  PyMem_Free(self);
}

static int batch_traverse(op_extra* extra, visitproc visit, void* arg) {
  batch* self = (batch*)extra;
  for (Py_ssize_t i = 0; i < self->held; ++i) {
    Py_VISIT(self->memory[i].obj);
  }
  Py_VISIT(self->keys);
  return 0;
}

static batch* batch_new(StoreObject* of, PyObject* keys, Py_ssize_t count) {
  batch* self = PyMem_Calloc(1, sizeof *self);
  if (self == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  self->extra.release = batch_release;
  self->extra.traverse = batch_traverse;
  self->of = (StoreObject*)Py_NewRef((PyObject*)of);
  ++of->calls;
  self->keys = Py_NewRef(keys);
  self->count = count;
  self->objects = PyMem_Calloc(count != 0 ? (size_t)count : 1, sizeof *self->objects);
  self->memory = PyMem_Calloc(count != 0 ? (size_t)count : 1, sizeof *self->memory);
  if (self->objects == NULL || self->memory == NULL) {
    PyErr_NoMemory();
    batch_release(&self->extra);
    return NULL;
  }
  return self;
}

/* Sets the key of an object from bytes or text, which `keys` keeps alive. */
static bool set_key(tm_object* object, PyObject* key) {
  if (PyBytes_Check(key)) {
    object->key = PyBytes_AsString(key);
    object->key_bytes = (size_t)PyBytes_Size(key);
    return true;
  }
  Py_ssize_t length = 0;
  object->key = PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, &length) : NULL;
  object->key_bytes = (size_t)length;
  if (object->key == NULL && !PyErr_Occurred()) {
    PyErr_Format(PyExc_TypeError, "a key must be bytes or str, not %R", key);
  }
  return object->key != NULL;
}

/* Comes after all code of Python that makes the arguments: it may close the store. */
static bool is_usable(StoreObject* self) {
  if (self->store == NULL) {
    PyErr_SetString(PyExc_ValueError, "the store is closed; open another one");
    return false;
  }
  return is_open(self->context);
}

/* A batch of keys only. */
static batch* batch_of_keys(StoreObject* self, PyObject* list) {
  PyObject* keys = PySequence_List(list);
  batch* made = keys != NULL && is_usable(self) ? batch_new(self, keys, PyList_Size(keys)) : NULL;
  for (Py_ssize_t i = 0; made != NULL && i < made->count; ++i) {
    if (!set_key(&made->objects[i], PyList_GetItem(keys, i))) {
      batch_release(&made->extra);
      made = NULL;
    }
  }
  Py_XDECREF(keys);
  return made;
}

/* A batch of pairs (key, memory). */
static batch* batch_of_pairs(StoreObject* self, PyObject* list, int flags) {
  PyObject* pairs = PySequence_List(list);
  PyObject* keys = pairs != NULL ? PyList_New(0) : NULL;
  batch* made = keys != NULL && is_usable(self) ? batch_new(self, keys, PyList_Size(pairs)) : NULL;
  for (Py_ssize_t i = 0; made != NULL && i < made->count; ++i) {
    PyObject* pair = PyList_GetItem(pairs, i);
    bool good = false;
    if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
      PyErr_Format(PyExc_TypeError, "an object is a tuple (key, memory), not %R", pair);
    } else if (PyList_Append(keys, PyTuple_GetItem(pair, 0)) == 0 &&
               set_key(&made->objects[i], PyTuple_GetItem(pair, 0)) &&
               PyObject_GetBuffer(PyTuple_GetItem(pair, 1), &made->memory[i], flags) == 0) {
      ++made->held;
      made->objects[i].memory = made->memory[i].buf;
      made->objects[i].bytes = (uint64_t)made->memory[i].len;
      good = true;
    }
    if (!good) {
      batch_release(&made->extra);
      made = NULL;
    }
  }
  Py_XDECREF(keys);
  Py_XDECREF(pairs);
  return made;
}

/* Whether a put or a get with this status has a result. */
static bool has_result(const batch* self, tm_status status) {
  return status == TM_OK || (self->errors_are_misses && status != TM_SHUT_DOWN);
}

/* The result: for each object its bytes in the store, or None. */
static PyObject* stored_of(const batch* self) {
  PyObject* result = PyList_New(self->count);
  for (Py_ssize_t i = 0; result != NULL && i < self->count; ++i) {
    const tm_object* object = &self->objects[i];
    PyObject* each = object->found && object->status == TM_OK
                         ? PyLong_FromUnsignedLongLong(object->stored)
                         : Py_NewRef(Py_None);
    if (each == NULL) {
      Py_CLEAR(result);
    } else {
      (void)PyList_SetItem(result, i, each);
    }
  }
  return result;
}

static PyObject* finish(OpObject* op, const tm_event* event) {
  const batch* self = (const batch*)op->extra;
  return has_result(self, event->status) ? stored_of(self)
                                         : raise_event(state_of((PyObject*)op), event);
}

static batch* batch_of(list_call* call) {
  return (batch*)((char*)call - offsetof(batch, call));
}

static tm_status begin(list_call* call, int64_t timeout_ns, tm_op* out) {
  batch* self = batch_of(call);
  return self->copy(self->of->store, self->objects, (size_t)self->count, timeout_ns, out);
}

static tm_status item_of(list_call* call, size_t i, const void** memory, uint64_t* bytes) {
  const tm_object* object = &batch_of(call)->objects[i];
  *memory = object->memory;
  *bytes = object->bytes;
  return object->status;
}

/* Runs a put or a get, now or as an operation. Takes over the batch. */
static PyObject* run(StoreObject* self, batch* objects, copy_function copy, int64_t limit,
                     bool later) {
  module_state* state = state_of((PyObject*)self);
  objects->copy = copy;
  objects->call = (list_call){begin, item_of, (size_t)objects->count};
  tm_status status;
  if (!later) {
    PyObject* result = NULL;
    if (wait_for_list(self->context->context, &objects->call, limit, &status)) {
      result = has_result(objects, status) ? stored_of(objects)
                                           : raise_status(state, status, self->context->context, 0);
    }
    batch_release(&objects->extra);
    return result;
  }
  OpObject* op = new_op(state, self->context, 0, NULL);
  if (op == NULL) {
    batch_release(&objects->extra);
    return NULL;
  }
  objects->extra.finish = finish;
  op->extra = &objects->extra;
  status = begin(&objects->call, limit, &op->op);
  if (status != TM_OK) {
    op->op = 0;
    (void)raise_status(state, status, self->context->context, 0);
    Py_CLEAR(op);
  }
  return (PyObject*)op;
}

static PyObject* copy_pairs(PyObject* object, PyObject* args, PyObject* kwargs, copy_function copy,
                            int flags, bool later) {
  static char* names[] = {"objects", "timeout", "errors", NULL};
  StoreObject* self = (StoreObject*)object;
  PyObject *list, *timeout = NULL;
  const char* errors = "raise";
  int64_t limit = 0;
  const char* format = copy == tm_store_put ? (later ? "O|$Os:put_async" : "O|$Os:put")
                                            : (later ? "O|$Os:get_into_async" : "O|$Os:get_into");
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, format, names, &list, &timeout, &errors) ||
      !to_timeout(timeout, &limit)) {
    return NULL;
  }
  const bool misses = strcmp(errors, "miss") == 0;
  if (!misses && strcmp(errors, "raise") != 0) {
    PyErr_Format(PyExc_ValueError, "errors is '%s'; accepted are 'raise' and 'miss'", errors);
    return NULL;
  }
  batch* objects = batch_of_pairs(self, list, flags);
  if (objects == NULL) {
    return NULL;
  }
  objects->errors_are_misses = misses;
  return run(self, objects, copy, limit, later);
}

static PyObject* store_put(PyObject* self, PyObject* args, PyObject* kwargs) {
  return copy_pairs(self, args, kwargs, tm_store_put, PyBUF_CONTIG_RO, false);
}
static PyObject* store_put_async(PyObject* self, PyObject* args, PyObject* kwargs) {
  return copy_pairs(self, args, kwargs, tm_store_put, PyBUF_CONTIG_RO, true);
}
static PyObject* store_get_into(PyObject* self, PyObject* args, PyObject* kwargs) {
  return copy_pairs(self, args, kwargs, tm_store_get, PyBUF_CONTIG, false);
}
static PyObject* store_get_into_async(PyObject* self, PyObject* args, PyObject* kwargs) {
  return copy_pairs(self, args, kwargs, tm_store_get, PyBUF_CONTIG, true);
}

/* Waits for one object of a known size. False with an exception. */
static bool wait_for_object(StoreObject* self, PyObject* key, int64_t limit, tm_object* one,
                            tm_status* status) {
  PyObject* keys = Py_BuildValue("[O]", key);
  batch* made = keys != NULL ? batch_new(self, keys, 1) : NULL;
  bool good = made != NULL;
  if (good) {
    made->objects[0] = *one;
    made->copy = tm_store_get;
    made->call = (list_call){begin, item_of, 1};
    good = wait_for_list(self->context->context, &made->call, limit, status);
    *one = made->objects[0];
    batch_release(&made->extra);
  }
  Py_XDECREF(keys);
  return good;
}

/* One object as bytes. Its size is asked first; another thread may replace it in between. */
static PyObject* get(StoreObject* self, PyObject* key, int64_t limit, tm_object* one) {
  PyObject* result = NULL;
  tm_status status = tm_store_exists(self->store, one, 1);
  for (int tries = 0; status == TM_OK && one->found && tries < 8; ++tries) {
    Py_XDECREF(result);
    result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)one->stored);
    if (result == NULL) {
      return NULL;
    }
    one->memory = PyBytes_AsString(result);
    one->bytes = one->stored;
    Py_BEGIN_ALLOW_THREADS;
    status = tm_store_get(self->store, one, 1, 0, NULL); /* The usual object is in memory. */
    Py_END_ALLOW_THREADS;
    if (status == TM_BUSY && limit != 0 && !wait_for_object(self, key, limit, one, &status)) {
      Py_DECREF(result);
      return NULL;
    }
    if (status == TM_OK && one->found && one->stored == one->bytes) {
      return result;
    }
    if (status == TM_INVALID_ARGUMENT && one->stored > one->bytes) {
      status = TM_OK; /* It has grown. */
    }
  }
  Py_XDECREF(result);
  return status == TM_OK
             ? Py_NewRef(Py_None)
             : raise_status(state_of((PyObject*)self), status, self->context->context, 0);
}

static PyObject* store_get(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"key", "timeout", NULL};
  StoreObject* self = (StoreObject*)object;
  PyObject *key, *timeout = NULL;
  int64_t limit = 0;
  tm_object one;
  memset(&one, 0, sizeof one);
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$O:get", names, &key, &timeout) ||
      !to_timeout(timeout, &limit) || !set_key(&one, key) || !is_usable(self)) {
    return NULL;
  }
  ++self->calls;
  PyObject* result = get(self, key, limit, &one);
  --self->calls;
  return result;
}

/* A call on keys, with a list of booleans as its result. */
static PyObject* with_keys(PyObject* object, PyObject* list,
                           tm_status (*call)(tm_store*, tm_object*, size_t)) {
  StoreObject* self = (StoreObject*)object;
  batch* keys = batch_of_keys(self, list);
  if (keys == NULL) {
    return NULL;
  }
  const tm_status status = call(self->store, keys->objects, (size_t)keys->count);
  PyObject* result = status == TM_OK
                         ? PyList_New(keys->count)
                         : raise_status(state_of(object), status, self->context->context, 0);
  for (Py_ssize_t i = 0; result != NULL && i < keys->count; ++i) {
    (void)PyList_SetItem(result, i, PyBool_FromLong(keys->objects[i].found != 0));
  }
  batch_release(&keys->extra);
  return result;
}

static PyObject* store_exists(PyObject* self, PyObject* keys) {
  return with_keys(self, keys, tm_store_exists);
}
static PyObject* store_delete(PyObject* self, PyObject* keys) {
  return with_keys(self, keys, tm_store_delete);
}
static PyObject* store_pin(PyObject* self, PyObject* keys) {
  return with_keys(self, keys, tm_store_pin);
}
static PyObject* store_unpin(PyObject* self, PyObject* keys) {
  return with_keys(self, keys, tm_store_unpin);
}

static PyObject* store_stats(PyObject* object, PyObject* unused) {
  (void)unused;
  StoreObject* self = (StoreObject*)object;
  tm_store_counters stats = {.size = sizeof stats};
  if (!is_usable(self)) {
    return NULL;
  }
  const tm_status status = tm_store_stats(self->store, &stats);
  if (status != TM_OK) {
    return raise_status(state_of(object), status, self->context->context, 0);
  }
  return Py_BuildValue(
      "{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "capacity", (unsigned long long)stats.capacity,
      "used", (unsigned long long)stats.used, "objects", (unsigned long long)stats.objects,
      "pinned", (unsigned long long)stats.pinned, "hits", (unsigned long long)stats.hits, "misses",
      (unsigned long long)stats.misses, "puts", (unsigned long long)stats.puts, "refused",
      (unsigned long long)stats.refused, "evicted", (unsigned long long)stats.evicted, "damaged",
      (unsigned long long)stats.damaged);
}

static PyObject* store_close(PyObject* object, PyObject* unused) {
  (void)unused;
  StoreObject* self = (StoreObject*)object;
  if (self->store == NULL) {
    Py_RETURN_NONE;
  }
  if (self->calls != 0) {
    PyErr_Format(PyExc_BufferError, "the store is in use by %zd calls; wait for them first",
                 self->calls);
    return NULL;
  }
  tm_store* store = self->store;
  self->store = NULL;
  Py_BEGIN_ALLOW_THREADS;
  (void)tm_store_close(store);
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

static PyObject* store_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"context", "capacity", "name", NULL};
  module_state* state = (module_state*)PyType_GetModuleState(type);
  PyObject *context, *capacity;
  tm_store_options options = {.size = sizeof options};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$z:Store", names, &context, &capacity,
                                   &options.name)) {
    return NULL;
  }
  if (Py_TYPE(context) != state->context) {
    PyErr_Format(PyExc_TypeError, "context must be a tiermem.Context, not %R", context);
    return NULL;
  }
  if (!to_bytes_count(capacity, "capacity", &options.capacity_bytes) ||
      !is_open((ContextObject*)context)) {
    return NULL;
  }
  tm_context* of = ((ContextObject*)context)->context;
  tm_store* made = NULL;
  const tm_status status = tm_store_open(of, &options, &made);
  if (status != TM_OK) {
    return raise_status(state, status, of, 0);
  }
  StoreObject* self = PyObject_New(StoreObject, type);
  if (self == NULL) {
    (void)tm_store_close(made);
    return NULL;
  }
  self->context = (ContextObject*)Py_NewRef(context);
  self->store = made;
  self->calls = 0;
  return (PyObject*)self;
}

static void store_dealloc(PyObject* object) {
  StoreObject* self = (StoreObject*)object;
  PyTypeObject* type = Py_TYPE(object);
  if (self->store != NULL) {
    Py_BEGIN_ALLOW_THREADS;
    (void)tm_store_close(self->store);
    Py_END_ALLOW_THREADS;
  }
  Py_DECREF((PyObject*)self->context);
  PyObject_Free(object);
  Py_DECREF(type);
}

static PyObject* store_context(PyObject* object, void* unused) {
  (void)unused;
  return Py_NewRef((PyObject*)((StoreObject*)object)->context);
}

static PyMethodDef store_methods[] = {
    {"put", FUNCTION(store_put), KEYWORDS,
     "put($self, /, objects, *, timeout=None, errors='raise')\n--\n\n"
     "Store objects, a sequence of (key, memory). Return a list with the bytes of each.\n\n"
     "key: 1 to 255 bytes, as bytes or str. memory: any object with the buffer protocol.\n"
     "errors: with 'miss', an object that could not be stored is None in the list."},
    {"put_async", FUNCTION(store_put_async), KEYWORDS,
     "put_async($self, /, objects, *, timeout=None, errors='raise')\n--\n\n"
     "Start put() and return an Op. Memory and keys are kept until it has ended."},
    {"get", FUNCTION(store_get), KEYWORDS,
     "get($self, /, key, *, timeout=None)\n--\n\nReturn an object as bytes, or None."},
    {"get_into", FUNCTION(store_get_into), KEYWORDS,
     "get_into($self, /, objects, *, timeout=None, errors='raise')\n--\n\n"
     "Copy objects, a sequence of (key, writable memory). Return a list with the bytes of each, or "
     "None\n"
     "for an object that the store has not. Objects that are not in memory are read together.\n\n"
     "errors: with 'miss', an object that could not be read is None in the list."},
    {"get_into_async", FUNCTION(store_get_into_async), KEYWORDS,
     "get_into_async($self, /, objects, *, timeout=None, errors='raise')\n--\n\n"
     "Start get_into() and return an Op. Memory and keys are kept until it has ended."},
    {"exists", store_exists, METH_O,
     "exists($self, keys, /)\n--\n\nReturn a list that tells which objects the store has. Never "
     "waits for a "
     "device."},
    {"delete", store_delete, METH_O,
     "delete($self, keys, /)\n--\n\nDrop objects. Return a list that tells which the store had."},
    {"pin", store_pin, METH_O,
     "pin($self, keys, /)\n--\n\nKeep objects from being dropped for room, until as many calls of "
     "unpin()."},
    {"unpin", store_unpin, METH_O, "unpin($self, keys, /)\n--\n\nRemove one pin of each object."},
    {"stats", store_stats, METH_NOARGS,
     "stats($self, /)\n--\n\nReturn a dictionary: capacity, used, objects, pinned, and counters."},
    {"close", store_close, METH_NOARGS,
     "close($self, /)\n--\n\nDrop all objects. Raise BufferError while calls are in progress."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef store_getset[] = {
    {"context", store_context, NULL, "The context of the store.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot store_slots[] = {
    {Py_tp_doc,
     "Store(context, capacity, *, name=None)\n--\n\n"
     "A store of objects by key, bounded by bytes: the cache of an engine, such as KV blocks.\n\n"
     "Objects live in memory or on the drives of the context, and are checked when they come back: "
     "a\n"
     "damaged object is a miss. When the store is full, the objects that its policy expects last "
     "are\n"
     "dropped. Any thread may use a store."},
    {Py_tp_new, store_new},
    {Py_tp_dealloc, store_dealloc},
    {Py_tp_methods, store_methods},
    {Py_tp_getset, store_getset},
    {0, NULL},
};
PyType_Spec store_spec = {"tiermem.Store", sizeof(StoreObject), 0, Py_TPFLAGS_DEFAULT, store_slots};
