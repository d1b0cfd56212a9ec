/* The module tiermem._native. */
#include "native.h"

/* The Python half of the package: how exceptions are made, and how an Op is awaited. */
static PyObject* module_connect(PyObject* module, PyObject* args) {
  module_state* state = (module_state*)PyModule_GetState(module);
  PyObject *make_error, *wait_for;
  if (!PyArg_ParseTuple(args, "OO:_connect", &make_error, &wait_for)) {
    return NULL;
  }
  Py_XDECREF(state->make_error);
  Py_XDECREF(state->wait_for);
  state->make_error = Py_NewRef(make_error);
  state->wait_for = Py_NewRef(wait_for);
  Py_RETURN_NONE;
}

static PyObject* module_version(PyObject* self, PyObject* unused) {
  (void)self;
  (void)unused;
  const uint32_t version = tm_version();
  return PyUnicode_FromFormat("%u.%u.%u", (unsigned)(version >> 16), (unsigned)(version >> 8 & 255),
                              (unsigned)(version & 255));
}

static PyMethodDef module_methods[] = {
    {"_connect", module_connect, METH_VARARGS, NULL},
    {"library_version", module_version, METH_NOARGS,
     "library_version($module, /)\n--\n\nReturn the version of the library, such as '0.2.0'."},
    {"_cuda_functions", module_cuda_functions, METH_O, NULL},
    {"gpu_tag", module_gpu_tag, METH_VARARGS,
     "gpu_tag($module, tag=None, /)\n--\n\n"
     "Set the set of device memory that this thread allocates from now on; None: no set."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject* add_type(PyObject* module, PyType_Spec* spec, const char* name) {
  PyObject* type = PyType_FromModuleAndSpec(module, spec, NULL);
  if (type != NULL && PyModule_AddObjectRef(module, name, type) != 0) {
    Py_CLEAR(type);
  }
  return (PyTypeObject*)type;
}

static int module_exec(PyObject* module) {
  module_state* state = (module_state*)PyModule_GetState(module);
  state->context = add_type(module, &context_spec, "Context");
  state->buffer = add_type(module, &buffer_spec, "Buffer");
  state->view = add_type(module, &view_spec, "View");
  state->op = add_type(module, &op_spec, "Op");
  state->store = add_type(module, &store_spec, "Store");
  state->queue = add_type(module, &queue_spec, "Queue");
  state->export = add_type(module, &export_spec, "_Export");
  return state->context != NULL && state->buffer != NULL && state->view != NULL &&
                 state->op != NULL && state->store != NULL && state->queue != NULL &&
                 state->export != NULL
             ? 0
             : -1;
}

static int module_traverse(PyObject* module, visitproc visit, void* arg) {
  module_state* state = (module_state*)PyModule_GetState(module);
  Py_VISIT(state->context);
  Py_VISIT(state->buffer);
  Py_VISIT(state->view);
  Py_VISIT(state->op);
  Py_VISIT(state->store);
  Py_VISIT(state->queue);
  Py_VISIT(state->export);
  Py_VISIT(state->make_error);
  Py_VISIT(state->wait_for);
  return 0;
}

static int module_clear(PyObject* module) {
  module_state* state = (module_state*)PyModule_GetState(module);
  Py_CLEAR(state->context);
  Py_CLEAR(state->buffer);
  Py_CLEAR(state->view);
  Py_CLEAR(state->op);
  Py_CLEAR(state->store);
  Py_CLEAR(state->queue);
  Py_CLEAR(state->export);
  Py_CLEAR(state->make_error);
  Py_CLEAR(state->wait_for);
  return 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};

static PyModuleDef module_def = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "tiermem._native",
    .m_doc = "The objects of tiermem, over its C library. Import tiermem instead.",
    .m_size = sizeof(module_state),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC PyInit__native(void) {
  static bool begun = false; /* The GIL protects it. */
  if (!begun && !wait_init()) {
    return PyErr_NoMemory();
  }
  begun = true;
  return PyModuleDef_Init(&module_def);
}
