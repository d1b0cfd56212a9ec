/* Exports by the buffer protocol: see export_buffer() in native.h. */
#include "native.h"

typedef struct {
  PyObject_HEAD PyObject* owner; /* The Buffer or the View. */
  void* core;                    /* One use of it. */
  void (*release)(void*);
  context_core* home;
  Py_ssize_t* exports; /* The counter of the owner. */
  bool held;           /* Its Py_buffer was not released. */
} ExportObject;

/* An Export that no Py_buffer names yet. Takes over one use of `core`, also when it fails. */
static ExportObject* new_export(module_state* state, PyObject* owner, Py_ssize_t* exports,
                                context_core* home, void* core, void (*release)(void*)) {
  ExportObject* self = PyObject_New(ExportObject, state->export);
  if (self == NULL) {
    release(core);
    return NULL;
  }
  self->owner = Py_NewRef(owner);
  self->core = core;
  self->release = release;
  self->home = context_core_retain(home);
  self->exports = exports;
  self->held = false;
  atomic_fetch_add(&home->exports, 1);
  return self;
}

int export_buffer(module_state* state, PyObject* owner, Py_ssize_t* exports, Py_buffer* out,
                  int flags, const tensor_layout* over, void* core, void (*release)(void*)) {
  ExportObject* self = new_export(state, owner, exports, over->home, core, release);
  if (self == NULL) {
    return -1;
  }
  const int filled = PyBuffer_FillInfo(out, (PyObject*)self, over->data, (Py_ssize_t)over->bytes,
                                       !over->writable, flags);
  if (filled == 0) {
    self->held = true;
    ++*exports;
  }
  Py_DECREF((PyObject*)self); /* The Py_buffer has it now. */
  return filled;
}

PyObject* export_owner(module_state* state, PyObject* owner, Py_ssize_t* exports,
                       context_core* home, void* core, void (*release)(void*)) {
  return (PyObject*)new_export(state, owner, exports, home, core, release);
}

static void export_releasebuffer(PyObject* object, Py_buffer* unused) {
  (void)unused;
  ExportObject* self = (ExportObject*)object;
  if (self->held) {
    self->held = false;
    --*self->exports;
  }
}

static void export_dealloc(PyObject* object) {
  ExportObject* self = (ExportObject*)object;
  PyTypeObject* type = Py_TYPE(object);
  atomic_fetch_sub(&self->home->exports, 1);
  context_core_release(self->home);
  self->release(self->core);
  Py_DECREF(self->owner);
  PyObject_Free(object);
  Py_DECREF(type);
}

/* For memoryview(memory.obj). */
static int export_getbuffer(PyObject* object, Py_buffer* out, int flags) {
  return PyObject_GetBuffer(((ExportObject*)object)->owner, out, flags);
}

static PyObject* export_get_owner(PyObject* object, void* unused) {
  (void)unused;
  return Py_NewRef(((ExportObject*)object)->owner);
}

static PyGetSetDef export_getset[] = {
    {"owner", export_get_owner, NULL, "The Buffer or the View.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot export_slots[] = {
    {Py_tp_doc, "The exporter of a memoryview or an array. It keeps the bytes in place."},
    {Py_tp_dealloc, export_dealloc},
    {Py_tp_getset, export_getset},
    {Py_bf_getbuffer, export_getbuffer},
    {Py_bf_releasebuffer, export_releasebuffer},
    {0, NULL},
};
PyType_Spec export_spec = {"tiermem._native.Export", sizeof(ExportObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, export_slots};
