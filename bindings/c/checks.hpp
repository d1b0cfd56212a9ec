// The argument checks that several functions share. Each returns TM_OK; on failure it stores the
// thread's last error and returns its code. They have no other effect. Any thread may call them.
#pragma once

#include <cstddef>
#include <cstring>
#include <iterator>

#include "last_error.hpp"
#include "records.hpp"

namespace tiermem::c_abi {

/// The max length of a list that fits in the address space. A larger length is a negative number
/// that was converted to a size.
inline constexpr std::size_t kLongestList = static_cast<std::size_t>(-1) / 2 / sizeof(tm_access);

inline tm_status check_not_null(const char* call, const void* pointer, const char* what) noexcept {
  return pointer != nullptr ? TM_OK : refuse(Code::invalid_argument, "{}: null {}", call, what);
}

[[gnu::cold, gnu::noinline]] inline tm_status refuse_list(const char* call, const void* context,
                                                          const void* list,
                                                          std::size_t n) noexcept {
  if (context == nullptr) {
    return refuse(Code::invalid_argument, "{}: null context", call);
  }
  return refuse(Code::invalid_argument, "{}: {} with n = {}", call,
                list == nullptr ? "null list" : "a list", n);
}

/// Checks a context and a list of n elements.
inline tm_status check_list(const char* call, const void* context, const void* list,
                            std::size_t n) noexcept {
  if (context == nullptr || (list == nullptr && n != 0) || n > kLongestList) [[unlikely]] {
    return refuse_list(call, context, list, n);
  }
  return TM_OK;
}

[[gnu::cold, gnu::noinline]] inline tm_status refuse_stream(const char* call,
                                                            tm_stream stream) noexcept {
  if (stream.reserved != 0) {
    return refuse(Code::invalid_argument,
                  "{}: the reserved field of the stream is {}; it must be 0", call,
                  stream.reserved);
  }
  if (stream.kind != TM_STREAM_HOST) {
    return refuse(Code::invalid_argument,
                  "{}: stream kind {}; accepted are TM_STREAM_HOST (0) and TM_STREAM_CUDA (1)",
                  call, stream.kind);
  }
  return refuse(Code::invalid_argument,
                "{}: a TM_STREAM_HOST stream has no handle; it must be NULL", call);
}

inline bool is_host_order(tm_stream stream) noexcept {
  return (stream.kind | stream.reserved) == 0 && stream.handle == nullptr;
}

/// Checks the form of a stream. The context checks whether it has a GPU for the stream.
inline tm_status check_stream(const char* call, tm_stream stream) noexcept {
  const bool cuda = stream.kind == TM_STREAM_CUDA && stream.reserved == 0;
  return cuda || is_host_order(stream) ? TM_OK : refuse_stream(call, stream);
}

/// Checks that a place exists in this version. The context checks whether it has the place.
inline tm_status check_place(const char* call, const char* what, tm_place place) noexcept {
  switch (place.kind) {
    case TM_ANY:
    case TM_HOST:
    case TM_DRAM:
      if (place.index == 0) {
        return TM_OK;
      }
      return refuse(Code::unavailable,
                    "{}: {} {} {} does not exist; a context has one such tier, with index 0", call,
                    what, kind_name(static_cast<Kind>(place.kind)), place.index);
    case TM_NUMA:
    case TM_PMEM:
    case TM_GPU:
    case TM_BLOCK:
    case TM_COMPRESSED:
    case TM_FILE:
      return TM_OK;
    case TM_REMOTE:
      return refuse(Code::unavailable, "{}: {} {} {}: this version has no {} tier", call, what,
                    kind_name(static_cast<Kind>(place.kind)), place.index,
                    kind_name(static_cast<Kind>(place.kind)));
    default:
      return refuse(Code::invalid_argument,
                    "{}: {} has kind {}; accepted are TM_ANY (0) to TM_FILE (9)", call, what,
                    place.kind);
  }
}

/// Checks an options struct, which may be NULL. `ours` holds the defaults before the call.
template <typename Options>
tm_status check_options(const char* call, const Options* theirs, std::size_t smallest,
                        Options& ours) noexcept {
  if (theirs == nullptr) {
    return TM_OK;
  }
  switch (read_options(theirs, smallest, ours)) {
    case RecordFault::none:
      return TM_OK;
    case RecordFault::bad_size:
      return refuse(Code::invalid_argument,
                    "{}: the options have size {}; set it to sizeof the struct, {} to {}", call,
                    theirs->size, smallest, kLargestRecord);
    default:
      return refuse(Code::invalid_argument,
                    "{}: the options have {} bytes, of which this version knows {}, and ask for "
                    "something in the others",
                    call, theirs->size, sizeof(Options));
  }
}

/// Checks an information struct before it is filled.
template <typename Info>
tm_status check_info(const char* call, const Info* out, std::size_t smallest) noexcept {
  if (out == nullptr) {
    return refuse(Code::invalid_argument, "{}: null out", call);
  }
  if (!size_fits(out, smallest)) {
    return refuse(Code::invalid_argument,
                  "{}: out has size {}; set it to sizeof the struct, {} to {}", call, out->size,
                  smallest, kLargestRecord);
  }
  return TM_OK;
}

/// Returns element `i` of a caller's array of information structs. All have the size of the first.
template <typename Info>
Info* element(Info* first, std::size_t i, std::size_t size) noexcept {
  return reinterpret_cast<Info*>(reinterpret_cast<unsigned char*>(first) + i * size);
}

/// Fills element `i` of such an array, and sets its size.
template <typename Info>
void fill_element(Info* first, std::size_t i, std::size_t size, const Info& ours) noexcept {
  Info* const at = element(first, i, size);
  std::memcpy(at, &size, sizeof(size));
  fill_info(at, ours);
}

}  // namespace tiermem::c_abi
