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

/* The part of a context that outlives its object. */
typedef struct context_core {
  atomic_uint users;   /* The object of the context, and the cores of its buffers. */
  atomic_uint exports; /* Memoryviews, arrays and tensors over bytes of its buffers. */
  bool ended;          /* Its bytes are unmapped. The GIL protects it. */
} context_core;

/* A buffer with the number of its users. The last user frees it, and releases the context. */
typedef struct buffer_core {
  atomic_uint users;
  context_core* home;
  tm_context* context; /* A reference of the core's own. */
  tm_buffer buffer;
  uint64_t bytes;
  uint64_t extent_bytes;
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

context_core* context_core_new(void); /* NULL without memory. */
context_core* context_core_retain(context_core* core);
void context_core_release(context_core* core);
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
  PyTypeObject *context, *buffer, *view, *op, *store, *queue, *export;
  PyObject* make_error; /* tiermem._errors.make, or NULL until it is imported. */
  PyObject* wait_for;   /* tiermem._ops.wait_for. */
} module_state;

typedef struct {
  PyObject_HEAD tm_context* context;
  context_core* core;
  bool closed;           /* New calls are refused. */
  bool unfinished;       /* The timeout of a close() expired: the next one ends the context. */
  bool shared;           /* The context of tiermem.default(). */
  bool owned;            /* This object has a reference to `context`. */
  struct ending* ending; /* A close() that was interrupted, or NULL. It goes on in a thread. */
  /* Hints that were dropped and go on: see detach_op(). */
  tm_op* detached;
  size_t detached_count, detached_room;
} ContextObject;

typedef struct {
  PyObject_HEAD ContextObject* context;
  buffer_core* core;  /* NULL once it was freed. */
  Py_ssize_t exports; /* Live Py_buffers. */
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
  PyObject* (*finish)(struct OpObject* op, const tm_event* event);
  void (*release)(struct op_extra* extra);
  /* Visits the objects that it keeps, for the garbage collector. */
  int (*traverse)(struct op_extra* extra, visitproc visit, void* arg);
} op_extra;

typedef struct OpObject {
  PyObject_HEAD ContextObject* context;
  tm_op op;          /* 0 once it was waited for. */
  PyObject* result;  /* After the end: what wait() returns. */
  PyObject* kept;    /* The buffers of the ranges, or NULL. */
  tm_access* ranges; /* For an acquire: `count` ranges, and their views. */
  tm_view* views;
  Py_ssize_t count;
  bool single;       /* The result is one view and no list. */
  bool queued;       /* In a Queue, which ends it. */
  bool hint;         /* It writes to no memory of the program: it may go on without this object. */
  tm_event* failure; /* After the end: the error that each wait() raises, or NULL. */
  op_extra* extra;   /* Owned; or NULL. */
  /* Held by the thread that waits for the operation, so that one thread consumes it. */
  PyThread_type_lock lock;
  unsigned long waiter; /* The thread that holds the lock, or 0. The GIL protects it. */
} OpObject;

extern PyType_Spec context_spec, buffer_spec, view_spec, op_spec, store_spec, queue_spec,
    export_spec;

/* The state of the module, from an object of one of its types, none of which can be subclassed. */
static inline module_state* state_of(PyObject* object) {
  return (module_state*)PyType_GetModuleState(Py_TYPE(object));
}

/* ---- Errors and arguments
 * ------------------------------------------------------------------------ */

/* Raises the exception of a failed call. Returns NULL. */
PyObject* raise_status(module_state* state, tm_status status, tm_context* context, tm_op op);
/* Raises the exception of a status with a text of this module. Returns NULL. */
PyObject* raise_text(module_state* state, tm_status status, const char* format, ...);
/* Copies the thread's last error, for raise_event(): a later call would replace it. */
void catch_error(tm_status status, tm_event* out);
/* Raises the exception of an event or of a caught error. Returns NULL. */
PyObject* raise_event(module_state* state, const tm_event* event);
/* A timeout in seconds, or None for no limit, as nanoseconds. Returns false with an exception. */
bool to_timeout(PyObject* seconds, int64_t* out);
/* A count of bytes from a number of Python. Returns false with an exception. `what` names it. */
bool to_bytes_count(PyObject* number, const char* what, uint64_t* out);
/* The same for other whole numbers, in the range of the C type. */
bool to_uint64(PyObject* number, const char* what, uint64_t* out);
bool to_uint32(PyObject* number, const char* what, uint32_t* out);
/* Text of the library, such as a label, as str. Bytes that are not UTF-8, as in labels from paths,
 * become text such as \\xff. NULL becomes None. */
PyObject* c_text(const char* text);
/* Text of Python for C, which ends it with NUL: text with a NUL is refused. NULL with an exception.
 */
const char* to_text(PyObject* text, const char* what);
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
/* The same, and its context is open: for calls that use the bytes. */
buffer_core* usable_core(BufferObject* buffer);
/*
 * A range in two steps. The first one converts numbers of Python, which may run Python code, such
 * as an __index__() that frees the buffer: it comes before live_core(). A missing length is 0. The
 * second one cuts the range to the buffer, and runs no Python code.
 */
bool to_range(PyObject* offset, PyObject* length, tm_access* out);
bool cut_range(const buffer_core* core, tm_access* range);
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

/* ---- Calls that wait: wait.c --------------------------------------------------------------------
 *
 * Only the main thread runs the handlers of signals, such as that of Ctrl-C. In that thread a wait
 * is cut into slices, and the handlers run between them. Every other thread waits in one call. The
 * functions give up the GIL. They return false with an exception if a handler raised it: then the
 * call has ended, and nothing of it goes on.
 */

/* Once for the process. Returns false without memory. */
bool wait_init(void);

/* A call that may be repeated after a timeout: it either succeeds or has changed nothing. */
typedef tm_status (*waiting_call)(void* of, int64_t timeout_ns);
bool wait_for_call(waiting_call call, void* of, int64_t limit, tm_status* out);

/* tm_acquire() of `n` ranges in the order of the host. */
bool wait_for_views(tm_context* context, const tm_access* list, size_t n, int64_t limit,
                    tm_view* views, tm_status* out);

/* tm_read() or tm_write() of [offset, offset + bytes). */
bool wait_for_bytes(buffer_core* core, uint64_t offset, void* memory, uint64_t bytes, bool out,
                    int64_t limit, tm_status* result);

/* A call on a list of objects, which waits without `out` and else begins an operation. */
typedef struct list_call {
  tm_status (*begin)(struct list_call* call, int64_t timeout_ns, tm_op* out);
  /* The status and the memory of an item. */
  tm_status (*item)(struct list_call* call, size_t i, const void** memory, uint64_t* bytes);
  size_t count;
} list_call;
bool wait_for_list(tm_context* context, list_call* call, int64_t limit, tm_status* out);

/* Waits for the end of an operation, and consumes it. An exception cancels it, and it has ended. */
bool wait_for_end(tm_context* context, tm_op op, tm_status* out);

/* Takes a lock within the limit, and reduces the limit by the time for it. */
bool wait_for_lock(PyThread_type_lock lock, int64_t* limit, bool* taken);

/* The end of one wait for an operation. */
typedef struct {
  bool consumed;   /* If not, it goes on, and may be waited for again. */
  tm_event caught; /* The error, and in any case the status. */
} op_outcome;
/* An exception of a handler leaves the operation as it is. */
bool wait_for_op(tm_context* context, tm_op op, int64_t limit, op_outcome* out);

/* A tm_context_destroy() in a thread of its own, which goes on after an exception of a handler. */
typedef struct ending ending;
/* Waits for `self->ending`, which it begins if it is NULL. */
bool wait_for_ending(ContextObject* self, uint32_t flags, int64_t limit, tm_event* caught);
void ending_release(ending* record);

/* Takes over a hint from an object that ends: the hint goes on. */
void detach_op(ContextObject* context, tm_op op);

/* Ends an operation of a queue: wait() has the result from now on. Never fails. */
void op_settle(OpObject* op, const tm_event* event);

/* ---- DLPack
 * --------------------------------------------------------------------------------------- */

/* A description of a tensor over `bytes` bytes at `data`. */
typedef struct tensor_layout {
  void* data;
  uint64_t bytes;
  bool writable;
  context_core* home; /* Counts the export. */
} tensor_layout;

/*
 * Exports by the buffer protocol. Each Py_buffer names an object of its own as its exporter, which
 * has one use of `core`. Some libraries, such as torch.frombuffer(), give the Py_buffer back at
 * once and keep its exporter while they use the address: then this use keeps the bytes in place.
 * The arguments are those of bf_getbuffer; export_buffer() takes over one use of `core`, also when
 * it fails. `exports` counts the Py_buffers.
 */
int export_buffer(module_state* state, PyObject* owner, Py_ssize_t* exports, Py_buffer* out,
                  int flags, const tensor_layout* over, void* core, void (*release)(void*));

/* An Export without a Py_buffer. Takes over one use of `core`, also when it fails. */
PyObject* export_owner(module_state* state, PyObject* owner, Py_ssize_t* exports,
                       context_core* home, void* core, void (*release)(void*));

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
/* The property __array_interface__. It keeps `export`, which it takes over; NULL is an exception.
 */
PyObject* array_interface(PyObject* export, const tensor_layout* over);

/* ---- Tables of methods
 * ---------------------------------------------------------------------------- */

#define KEYWORDS (METH_VARARGS | METH_KEYWORDS)
/* A function with another signature than PyCFunction. Its flags tell the interpreter which. */
#define FUNCTION(f) ((PyCFunction)(void (*)(void))(f))

#endif
