// The C functions of libggml-tiermem. No exception leaves them.
#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "failure.hpp"
#include "tiermem_ggml.h"
#include "weights.hpp"

using tiermem::ggml::Failure;
using tiermem::ggml::Weights;

struct tm_ggml : Weights {
  using Weights::Weights;
};

namespace {

// The last failure of the thread. A fixed array: a failure for lack of memory has a text, too.
thread_local char last_text[1024] = "no call has failed";

tm_status keep(tm_status status, const char* text) {
  const std::size_t length = std::min(std::strlen(text), sizeof last_text - 1);
  std::memcpy(last_text, text, length);
  last_text[length] = '\0';
  return status;
}

template <class Call>
tm_status guarded(Call&& call) {
  try {
    call();
    return TM_OK;
  } catch (const Failure& failure) {
    return keep(failure.status(), failure.what());
  } catch (const std::bad_alloc&) {
    return keep(TM_NO_CAPACITY, "libggml-tiermem: an allocation failed; free memory");
  } catch (const std::exception& error) {
    return keep(TM_INTERNAL, error.what());
  }
}

// Copies a struct of the caller's size; what the caller does not know is 0.
template <class Struct>
bool take(const Struct* from, Struct& to) {
  if (from->size < sizeof from->size || from->size > 4096) {
    return false;
  }
  std::memcpy(&to, from, std::min(from->size, sizeof to));
  const auto* const bytes = reinterpret_cast<const char*>(from);
  return std::all_of(bytes + std::min(from->size, sizeof to), bytes + from->size,
                     [](char byte) { return byte == 0; });
}

}  // namespace

tm_status tm_ggml_open(tm_context* context, const char* path, const tm_ggml_options* options,
                       tm_ggml** out) {
  return guarded([&] {
    if (context == nullptr || path == nullptr || out == nullptr) {
      throw Failure(TM_INVALID_ARGUMENT,
                    "tm_ggml_open: context, path or result is NULL; pass all three");
    }
    tm_ggml_options taken{};
    constexpr unsigned kFlags = TM_GGML_NO_AHEAD | TM_GGML_READ_ONLY;
    if (options != nullptr && (!take(options, taken) || (taken.flags & ~kFlags) != 0)) {
      throw Failure(TM_INVALID_ARGUMENT,
                    "tm_ggml_open: the options have a wrong size or unknown fields; set `size`, "
                    "and all other bytes to 0");
    }
    *out = new tm_ggml(context, path, taken);
  });
}

ggml_backend_buffer_type* tm_ggml_buffer_type(tm_ggml* weights) {
  return weights->type();
}

tm_status tm_ggml_check(tm_ggml* weights) {
  return guarded([&] { weights->check(); });
}

bool tm_ggml_eval(ggml_tensor* tensor, bool ask, void* user_data) {
  try {
    return static_cast<tm_ggml*>(user_data)->eval(tensor, ask);
  } catch (const std::exception&) {
    return !ask;  // Only hints are lost.
  }
}

tm_buffer tm_ggml_buffer(const tm_ggml* weights, size_t file) {
  return weights->buffer(file);
}

tm_status tm_ggml_stats(tm_ggml* weights, tm_ggml_counters* out) {
  return guarded([&] {
    if (weights == nullptr || out == nullptr || out->size < sizeof out->size) {
      throw Failure(TM_INVALID_ARGUMENT,
                    "tm_ggml_stats: weights or result is NULL, or its `size` is not set");
    }
    tm_ggml_counters counters{};
    weights->count(counters);
    counters.size = out->size;
    const std::size_t known = std::min(out->size, sizeof counters);
    std::memset(static_cast<void*>(out), 0, out->size);
    std::memcpy(out, &counters, known);
  });
}

void tm_ggml_close(tm_ggml* weights) {
  delete weights;
}

const char* tm_ggml_error(void) {
  return last_text;
}
