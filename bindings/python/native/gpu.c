/* Sets of device memory, and what frameworks need to allocate it by name. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "native.h"

static PyObject* to_tag(PyObject* tag, const char** out) {
  *out = NULL;
  if (tag == NULL || tag == Py_None) {
    return Py_NewRef(Py_None);
  }
  *out = to_text(tag, "tag");
  return *out != NULL ? Py_NewRef(tag) : NULL;
}

static PyObject* move(PyObject* object, PyObject* args, PyObject* kwargs, bool pause) {
  static char* names[] = {"tag", "nbytes", NULL};
  ContextObject* self = (ContextObject*)object;
  PyObject *tag = NULL, *count = NULL;
  uint64_t bytes = 0;
  const char* name = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, pause ? "|OO:gpu_pause" : "|OO:gpu_resume", names,
                                   &tag, &count) ||
      (count != NULL && !to_bytes_count(count, "nbytes", &bytes))) {
    return NULL;
  }
  PyObject* kept = to_tag(tag, &name);
  if (kept == NULL || !is_open(self)) {
    Py_XDECREF(kept);
    return NULL;
  }
  tm_op op = 0;
  tm_status status = pause ? tm_gpu_pause(self->context, name, bytes, TM_HOST_ORDER, &op)
                           : tm_gpu_resume(self->context, name, bytes, &op);
  Py_DECREF(kept);
  if (status == TM_OK && !wait_for_end(self->context, op, &status)) {
    return NULL;
  }
  return status == TM_OK ? Py_NewRef(Py_None)
                         : raise_status(state_of(object), status, self->context, 0);
}

PyObject* context_gpu_pause(PyObject* self, PyObject* args, PyObject* kwargs) {
  return move(self, args, kwargs, true);
}

PyObject* context_gpu_resume(PyObject* self, PyObject* args, PyObject* kwargs) {
  return move(self, args, kwargs, false);
}

PyObject* module_gpu_tag(PyObject* self, PyObject* args) {
  (void)self;
  PyObject* tag = NULL;
  const char* name = NULL;
  PyObject* kept = PyArg_ParseTuple(args, "|O:gpu_tag", &tag) ? to_tag(tag, &name) : NULL;
  if (kept == NULL) {
    return NULL;
  }
  (void)tm_gpu_tag(name);
  Py_DECREF(kept);
  Py_RETURN_NONE;
}

/* Sets the context of tm_cuda_malloc(). Returns the library's path and the names of its functions.
 */
PyObject* module_cuda_functions(PyObject* module, PyObject* context) {
  module_state* state = (module_state*)PyModule_GetState(module);
  tm_context* chosen = NULL;
  if (context != Py_None) {
    if (!PyObject_TypeCheck(context, state->context)) {
      PyErr_Format(PyExc_TypeError, "a tiermem.Context or None is expected, not %R", context);
      return NULL;
    }
    if (!is_open((ContextObject*)context)) {
      return NULL;
    }
    chosen = ((ContextObject*)context)->context;
  }
  const tm_status status = tm_cuda_context(chosen);
  if (status != TM_OK) {
    return raise_status(state, status, NULL, 0);
  }
  Dl_info here;
  if (dladdr((void*)(uintptr_t)&tm_cuda_malloc, &here) == 0) {
    PyErr_SetString(PyExc_RuntimeError, "the file of tiermem's library cannot be found");
    return NULL;
  }
  return Py_BuildValue("(Nss)", PyUnicode_DecodeFSDefault(here.dli_fname), "tm_cuda_malloc",
                       "tm_cuda_free");
}
