/*
 * The C module tiermem._native: the objects of the Python package, over the C interface of tiermem.
 * It uses the Limited API of Python 3.11, so that one build serves every later version.
 *
 *   Context --- Buffer --- View        Python objects
 *      |          |          |
 *   tm_context  buffer_core  view_core   counted in C: a tensor over a buffer keeps these alive,
 * and releases them without the interpreter
 *
 * Threads: the interpreter's rules for the objects. Any thread may release a core, also without the
 * GIL, after the interpreter has ended, after the context was closed, and in a child of fork.
 */
#ifndef TIERMEM_NATIVE_H
#define TIERMEM_NATIVE_H

#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tiermem.h"

/* ---- What is shared with tensors ----------------------------------------------------------------
 */

/* A buffer with the number of its users. The last user frees it, and releases the context. */
typedef struct buffer_core {
  atomic_uint users;
  tm_context* context; /* A reference of the core's own. */
  tm_buffer buffer;
  uint64_t bytes;
  void* address; /* NULL unless the buffer is mapped. */
  bool writable;
} buffer_core;

/* A view with the number of its users. The last user releases it. */
typedef struct view_core {
  atomic_uint users;
  buffer_core* of;
  tm_view view;
  bool writable;
} view_core;

buffer_core* buffer_core_retain(buffer_core* core);
void buffer_core_release(buffer_core* core);
/* Takes over the view, and retains its buffer. NULL without memory: the view is still the caller's.
 */
view_core* view_core_new(buffer_core* of, const tm_view* view, bool writable);
view_core* view_core_retain(view_core* core);
void view_core_release(view_core* core);

/* ---- Python objects -----------------------------------------------------------------------------
 */

typedef struct {
  PyTypeObject *context, *buffer, *view, *op, *store, *queue;
  PyObject* make_error; /* tiermem._errors.make, or NULL until it is imported. */
  PyObject* wait_for;   /* tiermem._ops.wait_for. */
  const tm_event* told; /* While an operation is settled: its event, for raise_status(). */
} module_state;

typedef struct {
  PyObject_HEAD tm_context* context;
  bool closed;
  bool shared; /* The context of tiermem.default(). */
} ContextObject;

typedef struct {
  PyObject_HEAD ContextObject* context;
  buffer_core* core;  /* NULL once it was freed. */
  Py_ssize_t exports; /* Live exports by the buffer protocol. */
} BufferObject;

typedef struct {
  PyObject_HEAD BufferObject* buffer;
  view_core* core; /* NULL once it was released. */
  Py_ssize_t exports;
} ViewObject;

struct OpObject;

/* Memory that an operation uses until its end, besides buffers and views. */
typedef struct op_extra {
  /* Returns the result, or NULL with an exception. */
  PyObject* (*finish)(struct OpObject* op, tm_status status);
  void (*release)(struct op_extra* extra);
} op_extra;

typedef struct OpObject {
  PyObject_HEAD ContextObject* context;
  tm_op op;          /* 0 once it was waited for. */
  PyObject* result;  /* After the end: what wait() returns. */
  PyObject* kept;    /* The buffers of the ranges, or NULL. */
  tm_access* ranges; /* For an acquire: `count` ranges, and their views. */
  tm_view* views;
  Py_ssize_t count;
  bool single;     /* The result is one view and no list. */
  bool queued;     /* In a Queue, which ends it. */
  PyObject* error; /* After the end in a queue: what wait() raises, or NULL. */
  op_extra* extra; /* Owned; or NULL. */
} OpObject;

extern PyType_Spec context_spec, buffer_spec, view_spec, op_spec, store_spec, queue_spec;

/* The state of the module, from an object of one of its types, none of which can be subclassed. */
static inline module_state* state_of(PyObject* object) {
  return (module_state*)PyType_GetModuleState(Py_TYPE(object));
}

/* ---- Errors and arguments
 * ------------------------------------------------------------------------ */

/* Raises the exception of a failed call. Returns NULL. */
PyObject* raise_status(module_state* state, tm_status status, tm_context* context, tm_op op);
/* A timeout in seconds, or None for no limit, as nanoseconds. Returns false with an exception. */
bool to_timeout(PyObject* seconds, int64_t* out);
/* A count of bytes from a number of Python. Returns false with an exception. `what` names it. */
bool to_bytes_count(PyObject* number, const char* what, uint64_t* out);
/* "r", "rw" or "w" as a mode of an access. Returns false with an exception. */
bool to_mode(PyObject* mode, uint32_t* out);
/* The name of a hint as its number. Returns false with an exception. */
bool to_advice(PyObject* advice, uint32_t* out);
/* "dram", "gpu:1" as a place. Returns false with an exception. */
bool to_place(PyObject* name, tm_place* out);
/* A missing name, or None, is any place. */
bool to_preferred(PyObject* name, tm_place* out);
/* The place as text, a new reference. */
PyObject* place_text(tm_place place);
/* Checks that the context is open. Returns false with an exception. */
bool is_open(ContextObject* context);
/* The core of a buffer that was not freed. NULL with an exception. */
buffer_core* live_core(BufferObject* buffer);
/* Cuts [offset, offset + length) to the buffer; a missing length reaches its end. */
bool to_range(const buffer_core* core, PyObject* offset, PyObject* length, tm_access* out);
/*
 * The ranges of a sequence of buffers or of tuples (buffer[, offset[, length[, mode]]]), in memory
 * of PyMem_Malloc. `kept` receives a list of the buffers. NULL with an exception.
 */
tm_access* to_ranges(module_state* state, PyObject* list, uint32_t mode, Py_ssize_t* count,
                     PyObject** kept);

/* ---- Objects from what the library returned
 * ------------------------------------------------------ */

PyObject* new_buffer(module_state* state, ContextObject* context, tm_buffer buffer, bool writable);
/* Takes over the view, also when it fails. */
PyObject* new_view(module_state* state, BufferObject* buffer, const tm_view* view, uint32_t mode);
/* A list of views of the buffers in the list `kept`. Takes over all `n` views, also when it fails.
 */
PyObject* new_views(module_state* state, PyObject* kept, const tm_access* ranges,
                    const tm_view* views, Py_ssize_t n);
/* Takes over the operation; `kept` may be NULL. */
OpObject* new_op(module_state* state, ContextObject* context, tm_op op, PyObject* kept);

/* Context.copy() and Context.copy_async(): copies.c. */
PyObject* context_copy(PyObject* self, PyObject* args, PyObject* kwargs);
PyObject* context_copy_async(PyObject* self, PyObject* args, PyObject* kwargs);

/* gpu.c */
PyObject* context_gpu_pause(PyObject* self, PyObject* args, PyObject* kwargs);
PyObject* context_gpu_resume(PyObject* self, PyObject* args, PyObject* kwargs);
PyObject* module_gpu_tag(PyObject* self, PyObject* args);
PyObject* module_cuda_functions(PyObject* module, PyObject* context);

/* Ends an operation of a queue: wait() has the result from now on. Never fails. */
void op_settle(OpObject* op, const tm_event* event);

/* ---- DLPack
 * --------------------------------------------------------------------------------------- */

/* A description of a tensor over `bytes` bytes at `data`. */
typedef struct tensor_layout {
  void* data;
  uint64_t bytes;
  bool writable;
} tensor_layout;

/*
 * A capsule for the DLPack protocol. The arguments are those of the method _dlpack(code, bits,
 * shape, offset, versioned). `release(owner)` is called when the tensor ends: by any thread,
 * without the GIL. The caller has given it one use of `owner`, and takes it back when NULL is
 * returned.
 */
PyObject* export_dlpack(PyObject* const* args, Py_ssize_t nargs, const tensor_layout* over,
                        void* owner, void (*release)(void*));
/* (1, 0): the host's memory. */
PyObject* dlpack_device(void);
/* The property __array_interface__ of bytes. */
PyObject* array_interface(const tensor_layout* over);

/* ---- Tables of methods
 * ---------------------------------------------------------------------------- */

#define KEYWORDS (METH_VARARGS | METH_KEYWORDS)
/* A function with another signature than PyCFunction. Its flags tell the interpreter which. */
#define FUNCTION(f) ((PyCFunction)(void (*)(void))(f))

#endif
