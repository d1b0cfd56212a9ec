/* tiermem.View: a pinned range of a buffer. */
#include "native.h"

PyObject* new_view(module_state* state, BufferObject* buffer, const tm_view* view, uint32_t mode) {
  const bool writable = (mode & (TM_WRITE | TM_DISCARD)) != 0;
  buffer_core* of = live_core(buffer);
  view_core* core = of != NULL ? view_core_new(of, view, writable) : NULL;
  if (core == NULL) {
    (void)tm_release(buffer->context->context, view, 1, TM_HOST_ORDER);
    return of != NULL ? PyErr_NoMemory() : NULL;
  }
  ViewObject* self = PyObject_New(ViewObject, state->view);
  if (self == NULL) {
    view_core_release(core);
    return NULL;
  }
  self->buffer = (BufferObject*)Py_NewRef((PyObject*)buffer);
  self->core = core;
  self->exports = 0;
  return (PyObject*)self;
}

PyObject* new_views(module_state* state, PyObject* kept, const tm_access* ranges,
                    const tm_view* views, Py_ssize_t n) {
  PyObject* list = PyList_New(n);
  for (Py_ssize_t i = 0; i < n; ++i) {
    BufferObject* buffer = (BufferObject*)PyList_GetItem(kept, i);
    PyObject* view = list != NULL ? new_view(state, buffer, &views[i], ranges[i].mode) : NULL;
    if (view == NULL) {
      if (list == NULL) {
        (void)tm_release(buffer->context->context, &views[i], 1, TM_HOST_ORDER);
      }
      Py_CLEAR(list);
    } else {
      (void)PyList_SetItem(list, i, view);
    }
  }
  return list;
}

static void view_dealloc(PyObject* object) {
  ViewObject* self = (ViewObject*)object;
  PyTypeObject* type = Py_TYPE(object);
  if (self->core != NULL) {
    view_core_release(self->core);
  }
  Py_DECREF((PyObject*)self->buffer);
  PyObject_Free(object);
  Py_DECREF(type);
}

static view_core* live_view(ViewObject* self) {
  view_core* core = self->core;
  if (core == NULL) {
    PyErr_SetString(PyExc_ValueError, "the view was released; acquire another one");
  }
  return core;
}

/* Ends this object's use. A tensor over the view keeps the bytes pinned until it is gone. */
static bool end_view(ViewObject* self) {
  if (self->core == NULL) {
    return true;
  }
  if (self->exports != 0) {
    PyErr_Format(PyExc_BufferError, "the view is in use by %zd memoryviews; release them first",
                 self->exports);
    return false;
  }
  view_core_release(self->core);
  self->core = NULL;
  return true;
}

static PyObject* view_release(PyObject* self, PyObject* unused) {
  (void)unused;
  if (!end_view((ViewObject*)self)) {
    return NULL;
  }
  Py_RETURN_NONE;
}

static PyObject* view_enter(PyObject* self, PyObject* unused) {
  (void)unused;
  return live_view((ViewObject*)self) != NULL ? Py_NewRef(self) : NULL;
}

/* The arguments are not read, and an exception goes on. */
static PyObject* view_exit(PyObject* object, PyObject* const* args, Py_ssize_t nargs) {
  ViewObject* self = (ViewObject*)object;
  if (self->exports != 0 && nargs > 0 && args[0] != Py_None) {
    Py_RETURN_FALSE; /* The traceback keeps the memoryview. The view ends with the last of both. */
  }
  if (!end_view(self)) {
    return NULL;
  }
  Py_RETURN_FALSE;
}

/* After the end of the context the bytes are gone. A context that only refuses new calls, after an
 * exception in its block, has them still. */
static bool view_layout(ViewObject* self, tensor_layout* out) {
  const view_core* core = live_view(self);
  if (core != NULL && core->of->home->ended) {
    (void)raise_text(state_of((PyObject*)self), TM_SHUT_DOWN,
                     "the context of the view has ended, and its bytes with it; create another "
                     "context, and acquire a view there");
    return false;
  }
  if (core != NULL) {
    *out = (tensor_layout){core->view.data, core->view.length, core->writable, core->of->home};
  }
  return core != NULL;
}

static void release_core(void* core) {
  view_core_release(core);
}

static int view_getbuffer(PyObject* object, Py_buffer* out, int flags) {
  ViewObject* self = (ViewObject*)object;
  tensor_layout layout;
  out->obj = NULL;
  return view_layout(self, &layout)
             ? export_buffer(state_of(object), object, &self->exports, out, flags, &layout,
                             view_core_retain(self->core), release_core)
             : -1;
}

/* Never called; for numpy.frombuffer(), as in buffer.c. */
static void view_releasebuffer(PyObject* object, Py_buffer* unused) {
  (void)object;
  (void)unused;
}

static PyObject* view_to_dlpack(PyObject* object, PyObject* const* args, Py_ssize_t nargs) {
  ViewObject* self = (ViewObject*)object;
  tensor_layout layout;
  if (!view_layout(self, &layout)) {
    return NULL;
  }
  view_core* core = view_core_retain(self->core);
  PyObject* capsule = export_dlpack(args, nargs, &layout, core, release_core);
  if (capsule == NULL) {
    view_core_release(core);
  }
  return capsule;
}

static PyObject* view_dlpack_device(PyObject* self, PyObject* unused) {
  (void)self;
  (void)unused;
  return dlpack_device();
}

/* Bytes by index and slice, as of a memoryview. */
static PyObject* view_subscript(PyObject* self, PyObject* key) {
  PyObject* memory = PyMemoryView_FromObject(self);
  PyObject* item = memory != NULL ? PyObject_GetItem(memory, key) : NULL;
  Py_XDECREF(memory);
  return item;
}

static int view_ass_subscript(PyObject* self, PyObject* key, PyObject* value) {
  if (value == NULL) {
    PyErr_SetString(PyExc_TypeError, "bytes of a view cannot be deleted");
    return -1;
  }
  PyObject* memory = PyMemoryView_FromObject(self);
  const int done = memory != NULL ? PyObject_SetItem(memory, key, value) : -1;
  Py_XDECREF(memory);
  return done;
}

static Py_ssize_t view_length(PyObject* object) {
  const view_core* core = live_view((ViewObject*)object);
  return core != NULL ? (Py_ssize_t)core->view.length : -1;
}

static PyObject* view_nbytes(PyObject* object, void* unused) {
  (void)unused;
  const view_core* core = live_view((ViewObject*)object);
  return core != NULL ? PyLong_FromUnsignedLongLong(core->view.length) : NULL;
}

static PyObject* view_address(PyObject* object, void* unused) {
  (void)unused;
  tensor_layout layout;
  return view_layout((ViewObject*)object, &layout) ? PyLong_FromVoidPtr(layout.data) : NULL;
}

static PyObject* view_readonly(PyObject* object, void* unused) {
  (void)unused;
  const view_core* core = live_view((ViewObject*)object);
  return core != NULL ? PyBool_FromLong(!core->writable) : NULL;
}

static PyObject* view_released(PyObject* object, void* unused) {
  (void)unused;
  return PyBool_FromLong(((ViewObject*)object)->core == NULL);
}

static PyObject* view_buffer(PyObject* object, void* unused) {
  (void)unused;
  return Py_NewRef((PyObject*)((ViewObject*)object)->buffer);
}

static PyObject* view_array_interface(PyObject* object, void* unused) {
  (void)unused;
  ViewObject* self = (ViewObject*)object;
  tensor_layout layout;
  return view_layout(self, &layout)
             ? array_interface(export_owner(state_of(object), object, &self->exports, layout.home,
                                            view_core_retain(self->core), release_core),
                               &layout)
             : NULL;
}

static PyMethodDef view_methods[] = {
    {"release", view_release, METH_NOARGS,
     "release($self, /)\n--\n\n"
     "Unpin the range. Raise BufferError while memoryviews use it; tensors keep it pinned until "
     "they\n"
     "are gone. A second call does nothing."},
    {"__enter__", view_enter, METH_NOARGS, NULL},
    {"__exit__", FUNCTION(view_exit), METH_FASTCALL, NULL},
    {"_dlpack", FUNCTION(view_to_dlpack), METH_FASTCALL, NULL},
    {"__dlpack_device__", view_dlpack_device, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef view_getset[] = {
    {"nbytes", view_nbytes, NULL, "Length in bytes.", NULL},
    {"address", view_address, NULL, "Address of the first byte.", NULL},
    {"readonly", view_readonly, NULL, "Whether the mode is 'r'.", NULL},
    {"released", view_released, NULL, "Whether the view was released.", NULL},
    {"buffer", view_buffer, NULL, "The buffer of the view.", NULL},
    {"__array_interface__", view_array_interface, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot view_slots[] = {
    {Py_tp_doc,
     "A pinned range of a buffer: its bytes do not move until the view is released.\n\n"
     "A view is a context manager, and memory: view[...], memoryview(view), numpy and torch use "
     "it\n"
     "directly. Views are pins and not locks: several threads may pin the same bytes."},
    {Py_tp_dealloc, view_dealloc},
    {Py_tp_methods, view_methods},
    {Py_tp_getset, view_getset},
    {Py_mp_length, view_length},
    {Py_mp_subscript, view_subscript},
    {Py_mp_ass_subscript, view_ass_subscript},
    {Py_bf_getbuffer, view_getbuffer},
    {Py_bf_releasebuffer, view_releasebuffer},
    {0, NULL},
};
PyType_Spec view_spec = {"tiermem.View", sizeof(ViewObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, view_slots};
