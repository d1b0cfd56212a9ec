// C: buffers, their bytes, and where the bytes are.
#include <cstddef>
#include <cstring>

#include "checks.hpp"
#include "tm_context.hpp"

using namespace tiermem;
using namespace tiermem::c_abi;

namespace {

// Translates the options of a buffer, and refuses options that this version does not support. On
// TM_OK `ours` is valid.
tm_status translate(const char* call, const tm_buffer_options* theirs, BufferOptions& ours) {
  tm_buffer_options c{};
  if (tm_status bad = check_options(call, theirs, kBufferOptions1, c)) {
    return bad;
  }
  if ((c.flags & TM_KEEP_ON_FREE) != 0) {
    return refuse(Code::unsupported, "{}: flag TM_KEEP_ON_FREE: this version has no named buffers",
                  call);
  }
  constexpr std::uint32_t kKnown =
      TM_MAPPED | TM_DROPPABLE | TM_NO_CHECKSUM | TM_ISOLATED | TM_PRIVATE | TM_INTERLEAVED;
  if ((c.flags & ~kKnown) != 0) {
    return refuse(Code::invalid_argument,
                  "{}: flags {:#x}; accepted are TM_MAPPED, TM_DROPPABLE, TM_NO_CHECKSUM, "
                  "TM_ISOLATED, TM_PRIVATE and TM_INTERLEAVED",
                  call, c.flags);
  }
  if (c.advice > TM_NEXT_USE) {
    return refuse(Code::invalid_argument, "{}: unknown advice {}; accepted are 0 to {}", call,
                  c.advice, static_cast<unsigned>(TM_NEXT_USE));
  }
  if (tm_status bad = check_place(call, "preferred place", c.preferred)) {
    return bad;
  }
  ours.extent_bytes = c.extent_bytes;
  ours.alignment = c.alignment;
  ours.flags = c.flags;
  ours.advice = static_cast<Advice>(c.advice);
  ours.preferred = place(c.preferred);
  ours.label = c.label;
  return TM_OK;
}

// Passes a new buffer to the C program.
Status give(Result<Buffer> made, tm_buffer* out) {
  if (!made.ok()) {
    return std::move(made).status();
  }
  *out = made->detach();
  return {};
}

}  // namespace

extern "C" tm_status tm_alloc(tm_context* context, uint64_t bytes, const tm_buffer_options* options,
                              tm_buffer* out) {
  if (tm_status bad = check_not_null("alloc", context, "context")) {
    return bad;
  }
  if (tm_status bad = check_not_null("alloc", out, "out")) {
    return bad;
  }
  BufferOptions ours;
  if (tm_status bad = translate("alloc", options, ours)) {
    return bad;
  }
  return guarded([&] { return give(context->context->alloc(bytes, ours), out); });
}

extern "C" tm_status tm_adopt_file(tm_context* context, const char* path, uint64_t offset,
                                   uint64_t length, const tm_buffer_options* options,
                                   tm_buffer* out) {
  if (tm_status bad = check_not_null("adopt_file", context, "context")) {
    return bad;
  }
  if (tm_status bad = check_not_null("adopt_file", path, "path")) {
    return bad;
  }
  if (tm_status bad = check_not_null("adopt_file", out, "out")) {
    return bad;
  }
  BufferOptions ours;
  if (tm_status bad = translate("adopt_file", options, ours)) {
    return bad;
  }
  return guarded(
      [&] { return give(context->context->adopt_file(path, offset, length, ours), out); });
}

extern "C" tm_status tm_adopt_device(tm_context* context, tm_place gpu, const void* memory,
                                     uint64_t bytes, tm_stream after, int64_t timeout_ns,
                                     const tm_buffer_options* options, tm_buffer* out) {
  if (tm_status bad = check_not_null("adopt_device", context, "context")) {
    return bad;
  }
  if (tm_status bad = check_not_null("adopt_device", memory, "memory")) {
    return bad;
  }
  if (tm_status bad = check_not_null("adopt_device", out, "out")) {
    return bad;
  }
  if (tm_status bad = check_stream("adopt_device", after)) {
    return bad;
  }
  BufferOptions ours;
  if (tm_status bad = translate("adopt_device", options, ours)) {
    return bad;
  }
  return guarded([&] {
    return give(
        context->context->adopt_device(place(gpu), memory, bytes, order(after), {timeout_ns}, ours),
        out);
  });
}

extern "C" tm_status tm_free(tm_context* context, tm_buffer buffer) {
  if (tm_status bad = check_not_null("free", context, "context")) {
    return bad;
  }
  return guarded([&] { return context->context->free(buffer); });
}

namespace {

template <typename F>
tm_status give_address(const char* call, tm_context* context, void** out, F&& find) {
  if (tm_status bad = check_not_null(call, context, "context")) {
    return bad;
  }
  if (tm_status bad = check_not_null(call, out, "out")) {
    return bad;
  }
  return guarded([&]() -> Status {
    const Result<std::byte*> address = find(*context->context);
    if (!address.ok()) {
      return address.status().clone();
    }
    *out = *address;
    return {};
  });
}

}  // namespace

extern "C" tm_status tm_address(tm_context* context, tm_buffer buffer, void** out) {
  return give_address("address", context, out, [&](Context& of) { return of.address(buffer); });
}

extern "C" tm_status tm_address_on(tm_context* context, tm_buffer buffer, tm_place where,
                                   void** out) {
  if (tm_status bad = check_place("address_on", "place", where)) {
    return bad;
  }
  return give_address("address_on", context, out,
                      [&](Context& of) { return of.address_on(buffer, place(where)); });
}

extern "C" tm_status tm_buffer_info(tm_context* context, tm_buffer buffer, tm_residency* out) {
  if (tm_status bad = check_not_null("buffer_info", context, "context")) {
    return bad;
  }
  if (tm_status bad = check_info("buffer_info", out, kResidency1)) {
    return bad;
  }
  // A field added to BufferInfo also belongs at the end of tm_residency, and here.
  static_assert(sizeof(BufferInfo) == sizeof(tm_residency) - sizeof(size_t));
  return guarded([&]() -> Status {
    const Result<BufferInfo> info = context->context->info(buffer);
    if (!info.ok()) {
      return info.status().clone();
    }
    tm_residency residency{};
    residency.bytes = info->bytes;
    residency.extent_bytes = info->extent_bytes;
    residency.extents = info->extents;
    residency.resident = info->resident;
    residency.dirty = info->dirty;
    residency.in_slots = info->in_slots;
    residency.zero = info->zero;
    residency.pinned = info->pinned;
    residency.lost = info->lost;
    static_assert(sizeof(residency.label) == sizeof(info->label));
    std::memcpy(residency.label, info->label, sizeof(residency.label));
    fill_info(out, residency);
    return {};
  });
}

extern "C" tm_status tm_read(tm_context* context, tm_buffer buffer, uint64_t offset, void* to,
                             uint64_t length, int64_t timeout_ns) {
  if (tm_status bad = check_not_null("read", context, "context")) {
    return bad;
  }
  if (tm_status bad = check_not_null("read", to, "destination")) {
    return bad;
  }
  return guarded([&] { return context->context->read(buffer, offset, to, length, {timeout_ns}); });
}

extern "C" tm_status tm_write(tm_context* context, tm_buffer buffer, uint64_t offset,
                              const void* from, uint64_t length, int64_t timeout_ns) {
  if (tm_status bad = check_not_null("write", context, "context")) {
    return bad;
  }
  if (tm_status bad = check_not_null("write", from, "source")) {
    return bad;
  }
  return guarded(
      [&] { return context->context->write(buffer, offset, from, length, {timeout_ns}); });
}

// An item is passed on as it is, so that an operation can write its results.
static_assert(sizeof(tm_copy_item) == 40 && sizeof(CopyItem) == sizeof(tm_copy_item));
static_assert(offsetof(tm_copy_item, buffer) == offsetof(CopyItem, buffer));
static_assert(offsetof(tm_copy_item, offset) == offsetof(CopyItem, offset));
static_assert(offsetof(tm_copy_item, memory) == offsetof(CopyItem, memory));
static_assert(offsetof(tm_copy_item, bytes) == offsetof(CopyItem, bytes));
static_assert(offsetof(tm_copy_item, mode) == offsetof(CopyItem, mode));
static_assert(offsetof(tm_copy_item, status) == offsetof(CopyItem, code));
static_assert(TM_COPY_NO_PROMOTE == std::uint32_t{kNoPromote});

extern "C" tm_status tm_copy(tm_context* context, tm_copy_item* list, size_t n, uint32_t flags,
                             int64_t timeout_ns, tm_op* out) {
  if (tm_status bad = check_list("copy", context, list, n)) {
    return bad;
  }
  return operate(out, [&](Op* op) {
    return context->context->copy({reinterpret_cast<CopyItem*>(list), n}, flags, {timeout_ns}, op);
  });
}

extern "C" tm_status tm_migrate(tm_context* context, const tm_access* list, size_t n, tm_place to,
                                int64_t timeout_ns) {
  if (tm_status bad = check_list("migrate", context, list, n)) {
    return bad;
  }
  if (tm_status bad = check_place("migrate", "target", to)) {
    return bad;
  }
  return guarded(
      [&] { return context->context->migrate(accesses(list, n), place(to), {timeout_ns}); });
}

extern "C" tm_status tm_evict(tm_context* context, const tm_access* list, size_t n,
                              int64_t timeout_ns) {
  if (tm_status bad = check_list("evict", context, list, n)) {
    return bad;
  }
  return guarded([&] { return context->context->evict(accesses(list, n), {timeout_ns}); });
}

extern "C" tm_status tm_advise(tm_context* context, const tm_access* list, size_t n,
                               uint32_t advice, uint64_t value) {
  if (tm_status bad = check_list("advise", context, list, n)) {
    return bad;
  }
  if (advice > TM_NEXT_USE) {
    return refuse(Code::invalid_argument, "advise: unknown advice {}; accepted are 0 to {}", advice,
                  static_cast<unsigned>(TM_NEXT_USE));
  }
  return guarded([&] {
    return context->context->advise(accesses(list, n), static_cast<Advice>(advice), value);
  });
}
