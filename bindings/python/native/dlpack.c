/*
 * Tensors of other libraries over buffers and views, by the DLPack protocol, version 1. The end of
 * a tensor is native code, because libraries call it from any thread, without the GIL, and after
 * the interpreter has ended. Layouts: the DLPack specification (dlpack.h of dmlc/dlpack).
 */
#include <stdlib.h>
#include <string.h>

#include "native.h"

typedef struct {
  int32_t type, id;
} dl_device;
typedef struct {
  uint8_t code, bits;
  uint16_t lanes;
} dl_dtype;
typedef struct {
  void* data;
  dl_device device;
  int32_t ndim;
  dl_dtype dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} dl_tensor;
typedef struct dl_managed {
  dl_tensor tensor;
  void* manager;
  void (*deleter)(struct dl_managed*);
} dl_managed;
typedef struct dl_versioned {
  uint32_t major, minor;
  void* manager;
  void (*deleter)(struct dl_versioned*);
  uint64_t flags;
  dl_tensor tensor;
} dl_versioned;

enum { kHostMemory = 1, kReadOnly = 1, kMostDimensions = 32 };

/* The record behind a capsule. */
typedef struct {
  union {
    dl_managed plain;
    dl_versioned versioned;
  } tensor;
  void* owner;
  void (*release)(void*);
  context_core* home;
  int64_t extents[2 * kMostDimensions]; /* Shape, and strides in elements. */
} export_record;

static void end_export(export_record* record) {
  atomic_fetch_sub(&record->home->exports, 1);
  context_core_release(record->home);
  record->release(record->owner);
  free(record);
}
static void end_plain(dl_managed* tensor) {
  end_export(tensor->manager);
}
static void end_versioned(dl_versioned* tensor) {
  end_export(tensor->manager);
}

/* The destructor of capsules. A consumer has renamed its capsule. */
static void end_capsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor")) {
    dl_managed* tensor = PyCapsule_GetPointer(capsule, "dltensor");
    tensor->deleter(tensor);
  } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    dl_versioned* tensor = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    tensor->deleter(tensor);
  }
}

/* Reads the shape, and computes the strides of row-major order. Returns the number of elements, or
 * -1 with an exception. */
static int64_t read_shape(PyObject* shape, export_record* record, int32_t* ndim) {
  const Py_ssize_t n = PyTuple_Check(shape) ? PyTuple_Size(shape) : -1;
  if (n < 0 || n > kMostDimensions) {
    PyErr_Format(PyExc_ValueError, "shape is %R; it must be a tuple of at most %d numbers", shape,
                 (int)kMostDimensions);
    return -1;
  }
  int64_t* const sizes = record->extents;
  int64_t* const strides = record->extents + kMostDimensions;
  int64_t elements = 1;
  for (Py_ssize_t i = n - 1; i >= 0; --i) {
    sizes[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i)); /* -1 if it is beyond 2**63 - 1. */
    if (PyErr_Occurred()) {
      if (!PyErr_ExceptionMatches(PyExc_OverflowError)) {
        return -1;
      }
      PyErr_Clear();
    }
    strides[i] = elements;
    if (sizes[i] < 0 || __builtin_mul_overflow(elements, sizes[i], &elements)) {
      PyErr_Format(PyExc_ValueError,
                   "shape is %R; its numbers must be 0 or more, and their product "
                   "below 2**63",
                   shape);
      return -1;
    }
  }
  *ndim = (int32_t)n;
  return elements;
}

PyObject* export_dlpack(PyObject* const* args, Py_ssize_t nargs, const tensor_layout* over,
                        void* owner, void (*release)(void*)) {
  if (nargs != 5) {
    PyErr_Format(PyExc_TypeError, "_dlpack takes 5 arguments (%zd given)", nargs);
    return NULL;
  }
  const long code = PyLong_AsLong(args[0]);
  const long bits = PyErr_Occurred() ? -1 : PyLong_AsLong(args[1]);
  uint64_t offset = 0;
  const int versioned = PyErr_Occurred() ? -1 : PyObject_IsTrue(args[4]);
  if (versioned < 0 || PyErr_Occurred() || !to_bytes_count(args[3], "offset", &offset)) {
    return NULL;
  }
  if (code < 0 || code > 255 || bits <= 0 || bits > 255 || bits % 8 != 0) {
    PyErr_Format(PyExc_ValueError,
                 "a type with code %ld and %ld bits; bits must be a multiple of 8", code, bits);
    return NULL;
  }
  if (!versioned && !over->writable) {
    PyErr_SetString(
        PyExc_BufferError,
        "the bytes are read-only, which DLPack before version 1 cannot say; use a library "
        "that asks with max_version, or a writable view");
    return NULL;
  }
  export_record* record = calloc(1, sizeof *record);
  if (record == NULL) {
    return PyErr_NoMemory();
  }
  dl_tensor tensor = {.device = {kHostMemory, 0},
                      .dtype = {(uint8_t)code, (uint8_t)bits, 1},
                      .shape = record->extents,
                      .strides = record->extents + kMostDimensions};
  const int64_t elements = read_shape(args[2], record, &tensor.ndim);
  uint64_t bytes = 0;
  if (elements >= 0 && (__builtin_mul_overflow((uint64_t)elements, (uint64_t)bits / 8, &bytes) ||
                        offset > over->bytes || bytes > over->bytes - offset)) {
    PyErr_Format(PyExc_ValueError,
                 "a tensor of %lld elements of %ld bits at offset %llu; there are %llu "
                 "bytes",
                 (long long)elements, bits, (unsigned long long)offset,
                 (unsigned long long)over->bytes);
  }
  if (PyErr_Occurred()) {
    free(record);
    return NULL;
  }
  tensor.data = (char*)over->data + offset;
  record->owner = owner;
  record->release = release;
  PyObject* capsule;
  if (versioned) {
    record->tensor.versioned = (dl_versioned){.major = 1,
                                              .minor = 0,
                                              .manager = record,
                                              .deleter = end_versioned,
                                              .flags = over->writable ? 0 : kReadOnly,
                                              .tensor = tensor};
    capsule = PyCapsule_New(&record->tensor.versioned, "dltensor_versioned", end_capsule);
  } else {
    record->tensor.plain = (dl_managed){tensor, record, end_plain};
    capsule = PyCapsule_New(&record->tensor.plain, "dltensor", end_capsule);
  }
  if (capsule == NULL) {
    free(record);
    return NULL;
  }
  record->home = context_core_retain(over->home);
  atomic_fetch_add(&over->home->exports, 1);
  return capsule;
}

PyObject* dlpack_device(void) {
  return Py_BuildValue("(ii)", (int)kHostMemory, 0);
}

/* The protocol does not define the key "owner". The export lives as long as the dictionary. */
PyObject* array_interface(PyObject* export, const tensor_layout* over) {
  return export == NULL
             ? NULL
             : Py_BuildValue("{s:(K),s:s,s:(NO),s:i,s:N}", "shape", (unsigned long long)over->bytes,
                             "typestr", "|u1", "data", PyLong_FromVoidPtr(over->data),
                             over->writable ? Py_False : Py_True, "version", 3, "owner", export);
}
