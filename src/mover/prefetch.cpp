#include "mover/prefetch.hpp"

#include <algorithm>
#include <new>

namespace tiermem {

std::unique_ptr<Request> prefetch_of(Residency& residency, const Access& access) try {
  auto request = std::make_unique<Request>();
  request->kind = RequestKind::prefetch;
  request->spans.resize(1);
  if (!residency.resolve(access, request->spans[0], "read-ahead").ok()) {
    return nullptr;
  }
  request->on_done = [](Request& done) { delete &done; };
  return request;
} catch (const std::bad_alloc&) {
  return nullptr;  // Where memory is short, nothing is read ahead.
}

std::unique_ptr<Request> prefetch_of(Residency& residency, Handle buffer, std::uint32_t first,
                                     std::uint32_t count) {
  const BufferRecord* const record = residency.buffers.find(buffer);
  if (record == nullptr) {
    return nullptr;
  }
  const unsigned shift = record->extent_shift.load(std::memory_order_relaxed);
  const std::uint64_t bytes = record->bytes.load(std::memory_order_relaxed);
  const std::uint64_t offset = std::uint64_t{first} << shift;
  const std::uint64_t length =
      std::min(std::uint64_t{count} << shift, bytes - std::min(offset, bytes));
  return length != 0 ? prefetch_of(residency, {buffer, offset, length, kRead, {}, 0}) : nullptr;
}

}  // namespace tiermem
