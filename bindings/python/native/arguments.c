/* Errors as exceptions, and arguments of Python as those of the C interface. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "native.h"

PyObject* c_text(const char* text) {
  return text == NULL ? Py_NewRef(Py_None)
                      : PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
}

/* Raises the exception of an error record. */
static PyObject* raise_info(module_state* state, const tm_error_info* info) {
  if (state->make_error == NULL) {
    PyErr_Format(PyExc_RuntimeError, "%s: %s", tm_status_name(info->status), info->text);
    return NULL;
  }
  PyObject* tier = place_text(info->tier);
  if (tier == NULL) {
    return NULL;
  }
  PyObject* error = PyObject_CallFunction(
      state->make_error, "sNiNKKKKKNNi", tm_status_name(info->status), c_text(info->text),
      (int)info->native, tier, (unsigned long long)info->offset, (unsigned long long)info->needed,
      (unsigned long long)info->budget, (unsigned long long)info->used,
      (unsigned long long)info->pinned, c_text(info->holder), c_text(info->setting),
      (int)info->device);
  if (error != NULL) {
    PyErr_SetObject((PyObject*)Py_TYPE(error), error);
    Py_DECREF(error);
  }
  return NULL;
}

/* The thread's last error if it is one of this status, else the status alone. */
static void last_error(tm_status status, tm_context* context, tm_op op, tm_error_info* out) {
  *out = (tm_error_info){.size = sizeof *out};
  /* With an operation, the call itself returns the operation's result. */
  const tm_status known = tm_error(context, op, out);
  if (op == 0 && (known != TM_OK || out->status != status)) {
    *out = (tm_error_info){.size = sizeof *out, .status = status, .device = -1};
  }
}

PyObject* raise_status(module_state* state, tm_status status, tm_context* context, tm_op op) {
  tm_error_info info;
  last_error(status, context, op, &info);
  return raise_info(state, &info);
}

PyObject* raise_text(module_state* state, tm_status status, const char* format, ...) {
  va_list values;
  va_start(values, format);
  PyObject* text = PyUnicode_FromFormatV(format, values);
  va_end(values);
  const char* bytes = text != NULL ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
  if (bytes != NULL) {
    tm_error_info info = {.size = sizeof info, .status = status, .device = -1};
    (void)snprintf(info.text, sizeof info.text, "%s", bytes);
    (void)raise_info(state, &info);
  }
  Py_XDECREF(text);
  return NULL;
}

void catch_error(tm_status status, tm_event* out) {
  *out = (tm_event){.size = sizeof *out, .status = status, .device = -1};
  if (status == TM_OK) {
    return;
  }
  tm_error_info info;
  last_error(status, NULL, 0, &info);
  out->native = info.native;
  out->tier = info.tier;
  out->device = info.device;
  out->buffer = info.buffer;
  out->offset = info.offset;
  out->needed = info.needed;
  out->budget = info.budget;
  out->used = info.used;
  out->pinned = info.pinned;
  (void)snprintf(out->holder, sizeof out->holder, "%s", info.holder != NULL ? info.holder : "");
  (void)snprintf(out->setting, sizeof out->setting, "%s", info.setting != NULL ? info.setting : "");
  memcpy(out->text, info.text, sizeof out->text);
}

PyObject* raise_event(module_state* state, const tm_event* event) {
  tm_error_info info = {.size = sizeof info,
                        .status = event->status,
                        .native = event->native,
                        .tier = event->tier,
                        .buffer = event->buffer,
                        .offset = event->offset,
                        .needed = event->needed,
                        .budget = event->budget,
                        .used = event->used,
                        .pinned = event->pinned,
                        .holder = event->holder,
                        .setting = event->setting,
                        .device = event->device};
  memcpy(info.text, event->text, sizeof info.text);
  return raise_info(state, &info);
}

bool to_timeout(PyObject* seconds, int64_t* out) {
  if (seconds == NULL || seconds == Py_None) {
    *out = -1;
    return true;
  }
  const double value = PyFloat_AsDouble(seconds);
  if (value == -1.0 && PyErr_Occurred()) {
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
      PyErr_Clear();
      PyErr_Format(PyExc_TypeError,
                   "timeout is %R; it must be a number of seconds, or None for no limit", seconds);
    } else if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
      PyErr_Clear();
      PyErr_SetString(PyExc_ValueError,
                      "timeout is beyond the range of a float; it must be 0 or more seconds, or "
                      "None for no limit");
    }
    return false;
  }
  if (isnan(value) || value < 0) {
    PyErr_Format(PyExc_ValueError,
                 "timeout is %R; it must be 0 or more seconds, or None for no limit", seconds);
    return false;
  }
  *out = value >= 9e9 ? -1 : (int64_t)(value * 1e9);
  return true;
}

/* A whole number from 0 to `most`. `unit` says what it is. */
static bool to_whole(PyObject* number, const char* what, const char* unit, const char* most_text,
                     uint64_t most, uint64_t* out) {
  PyObject* index = PyNumber_Index(number);
  if (index == NULL) {
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
      PyErr_Clear();
      PyErr_Format(PyExc_TypeError, "%s is %R; it must be %s", what, number, unit);
    }
    return false;
  }
  const unsigned long long value = PyLong_AsUnsignedLongLong(index);
  Py_DECREF(index);
  const bool failed = value == (unsigned long long)-1 && PyErr_Occurred();
  if (failed && !PyErr_ExceptionMatches(PyExc_OverflowError)) {
    return false;
  }
  if (failed || value > most) {
    PyErr_Clear();
    PyErr_Format(PyExc_ValueError, "%s is %R; it must be %s from 0 to %s", what, number, unit,
                 most_text);
    return false;
  }
  *out = value;
  return true;
}

bool to_bytes_count(PyObject* number, const char* what, uint64_t* out) {
  return to_whole(number, what, "a number of bytes", "2**64 - 1", UINT64_MAX, out);
}

bool to_uint64(PyObject* number, const char* what, uint64_t* out) {
  return to_whole(number, what, "a whole number", "2**64 - 1", UINT64_MAX, out);
}

bool to_uint32(PyObject* number, const char* what, uint32_t* out) {
  uint64_t value = 0;
  if (!to_whole(number, what, "a whole number", "2**32 - 1", UINT32_MAX, &value)) {
    return false;
  }
  *out = (uint32_t)value;
  return true;
}

const char* to_text(PyObject* text, const char* what) {
  if (!PyUnicode_Check(text)) {
    PyErr_Format(PyExc_TypeError, "%s is %R; it must be a str", what, text);
    return NULL;
  }
  Py_ssize_t length = 0;
  const char* bytes = PyUnicode_AsUTF8AndSize(text, &length);
  if (bytes != NULL && strlen(bytes) != (size_t)length) {
    PyErr_Format(PyExc_ValueError, "%s is %R; it must have no null character", what, text);
    return NULL;
  }
  return bytes;
}

bool to_mode(PyObject* mode, uint32_t* out) {
  static const struct {
    const char* name;
    uint32_t mode;
  } kModes[] = {{"r", TM_READ}, {"rw", TM_READ | TM_WRITE}, {"w", TM_DISCARD}};
  if (PyUnicode_Check(mode)) {
    for (size_t i = 0; i < sizeof kModes / sizeof *kModes; ++i) {
      if (PyUnicode_CompareWithASCIIString(mode, kModes[i].name) == 0) {
        *out = kModes[i].mode;
        return true;
      }
    }
  }
  PyErr_Format(
      PyExc_ValueError,
      "mode is %R; accepted are 'r' (read), 'rw' (read and write) and 'w' (overwrite every byte)",
      mode);
  return false;
}

/* In the order of the enumeration in tiermem.h. */
static const char* const kAdvice[] = {
    "normal",   "read_mostly", "will_need", "dont_need", "cold", "sequential", "random",
    "streamed", "touched",     "frozen",    "preferred", "keep", "next_use"};

bool to_advice(PyObject* advice, uint32_t* out) {
  if (PyUnicode_Check(advice)) {
    for (uint32_t i = 0; i < sizeof kAdvice / sizeof *kAdvice; ++i) {
      if (PyUnicode_CompareWithASCIIString(advice, kAdvice[i]) == 0) {
        *out = i;
        return true;
      }
    }
  }
  PyErr_Format(
      PyExc_ValueError,
      "advice is %R; accepted are 'normal', 'read_mostly', 'will_need', 'dont_need', 'cold', "
      "'sequential', 'random', 'streamed', 'touched', 'frozen', 'preferred', 'keep' and "
      "'next_use'",
      advice);
  return false;
}

/* In the order of the enumeration in tiermem.h. */
static const char* const kKinds[] = {"any", "host",  "dram",   "numa",       "pmem",
                                     "gpu", "block", "remote", "compressed", "file"};

bool to_place(PyObject* name, tm_place* out) {
  const char* text = PyUnicode_Check(name) ? to_text(name, "tier") : NULL;
  if (text != NULL) {
    const char* colon = strchr(text, ':');
    const size_t kind_length = colon != NULL ? (size_t)(colon - text) : strlen(text);
    unsigned index = 0;
    bool good = true;
    for (const char* at = colon != NULL ? colon + 1 : NULL; at != NULL && *at != '\0'; ++at) {
      good = good && *at >= '0' && *at <= '9' && index < 6553;
      index = good ? index * 10 + (unsigned)(*at - '0') : 0;
    }
    good = good && (colon == NULL || colon[1] != '\0');
    for (uint16_t kind = 0; good && kind < sizeof kKinds / sizeof *kKinds; ++kind) {
      if (strlen(kKinds[kind]) == kind_length && strncmp(kKinds[kind], text, kind_length) == 0) {
        *out = (tm_place){kind, (uint16_t)index};
        return true;
      }
    }
  }
  if (!PyErr_Occurred()) {
    PyErr_Format(PyExc_ValueError,
                 "tier is %R; accepted are 'dram', 'block', 'gpu' and, with a number, "
                 "'gpu:1', 'numa:1' and 'pmem:0'",
                 name);
  }
  return false;
}

bool to_preferred(PyObject* name, tm_place* out) {
  *out = (tm_place){TM_ANY, 0};
  return name == NULL || name == Py_None || to_place(name, out);
}

PyObject* place_text(tm_place place) {
  const char* kind = place.kind < sizeof kKinds / sizeof *kKinds ? kKinds[place.kind] : "unknown";
  return place.kind == TM_ANY ? PyUnicode_FromString("")
                              : PyUnicode_FromFormat("%s:%u", kind, (unsigned)place.index);
}

bool is_open(ContextObject* context) {
  if (!context->closed) { /* Read once: to raise runs Python code, and so other threads. */
    return true;
  }
  (void)raise_text(state_of((PyObject*)context), TM_SHUT_DOWN,
                   "the context is closed; create another one");
  return false;
}

buffer_core* live_core(BufferObject* buffer) {
  buffer_core* core = buffer->core;
  if (core == NULL) {
    (void)raise_text(state_of((PyObject*)buffer), TM_STALE_HANDLE,
                     "the buffer was freed; allocate another one");
  }
  return core;
}

buffer_core* usable_core(BufferObject* buffer) {
  buffer_core* core = live_core(buffer);
  return core != NULL && is_open(buffer->context) ? core : NULL;
}

bool to_range(PyObject* offset, PyObject* length, tm_access* out) {
  out->offset = 0;
  out->length = 0;
  if ((offset != NULL && offset != Py_None && !to_bytes_count(offset, "offset", &out->offset)) ||
      (length != NULL && length != Py_None && !to_bytes_count(length, "length", &out->length))) {
    return false;
  }
  if (length != NULL && length != Py_None && out->length == 0) {
    PyErr_Format(PyExc_ValueError, "a range of 0 bytes at offset %llu; a range has at least 1 byte",
                 (unsigned long long)out->offset);
    return false;
  }
  return true;
}

bool cut_range(const buffer_core* core, tm_access* range) {
  const uint64_t from = range->offset;
  if (from > core->bytes) {
    PyErr_Format(PyExc_ValueError, "offset is %llu; the buffer has %llu bytes",
                 (unsigned long long)from, (unsigned long long)core->bytes);
    return false;
  }
  const uint64_t bytes = range->length != 0 ? range->length : core->bytes - from;
  if (bytes > core->bytes - from) {
    PyErr_Format(PyExc_ValueError, "%llu bytes from offset %llu on; the buffer has %llu bytes",
                 (unsigned long long)bytes, (unsigned long long)from,
                 (unsigned long long)core->bytes);
    return false;
  }
  if (bytes == 0) { /* The C interface reads a length of 0 as "up to the end". */
    PyErr_Format(PyExc_ValueError, "a range of 0 bytes at offset %llu; a range has at least 1 byte",
                 (unsigned long long)from);
    return false;
  }
  range->buffer = core->buffer;
  range->length = bytes;
  return true;
}

/* The numbers of one element of the list of to_ranges(). */
static bool to_range_of(module_state* state, PyObject* item, uint32_t mode, tm_access* out,
                        PyObject* kept) {
  PyObject *buffer = item, *offset = NULL, *length = NULL, *how = NULL;
  if (PyTuple_Check(item)) {
    const Py_ssize_t n = PyTuple_Size(item);
    if (n < 1 || n > 4) {
      PyErr_Format(PyExc_TypeError,
                   "a range is (buffer, offset, length, mode), and %zd values were given", n);
      return false;
    }
    buffer = PyTuple_GetItem(item, 0);
    offset = n > 1 ? PyTuple_GetItem(item, 1) : NULL;
    length = n > 2 ? PyTuple_GetItem(item, 2) : NULL;
    how = n > 3 ? PyTuple_GetItem(item, 3) : NULL;
  }
  if (Py_TYPE(buffer) != state->buffer) {
    PyErr_Format(PyExc_TypeError, "a range begins with a tiermem.Buffer, not %R", buffer);
    return false;
  }
  memset(out, 0, sizeof *out);
  out->mode = mode;
  return (how == NULL || to_mode(how, &out->mode)) && to_range(offset, length, out) &&
         PyList_Append(kept, buffer) == 0;
}

/* In two passes: numbers of Python run Python code, which may free a buffer of an earlier range. */
static bool fill_ranges(module_state* state, PyObject* items, uint32_t mode, Py_ssize_t n,
                        tm_access* ranges, PyObject* kept) {
  for (Py_ssize_t i = 0; i < n; ++i) {
    if (!to_range_of(state, PyList_GetItem(items, i), mode, &ranges[i], kept)) {
      return false;
    }
  }
  for (Py_ssize_t i = 0; i < n; ++i) {
    const buffer_core* core = usable_core((BufferObject*)PyList_GetItem(kept, i));
    if (core == NULL || !cut_range(core, &ranges[i])) {
      return false;
    }
  }
  return true;
}

tm_access* to_ranges(module_state* state, PyObject* list, uint32_t mode, Py_ssize_t* count,
                     PyObject** kept) {
  PyObject* items = PySequence_List(list);
  if (items == NULL) {
    return NULL;
  }
  const Py_ssize_t n = PyList_Size(items);
  tm_access* ranges = NULL;
  *kept = PyList_New(0);
  if (n == 0) {
    PyErr_SetString(PyExc_ValueError, "the list has no range; it must have at least one");
  } else if (*kept != NULL) {
    ranges = PyMem_Malloc((size_t)n * sizeof *ranges);
    if (ranges == NULL) {
      PyErr_NoMemory();
    }
  }
  if (ranges != NULL && !fill_ranges(state, items, mode, n, ranges, *kept)) {
    PyMem_Free(ranges);
    ranges = NULL;
  }
  Py_DECREF(items);
  if (ranges == NULL) {
    Py_CLEAR(*kept);
  }
  *count = n;
  return ranges;
}
