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
  // Offsets in the window. The buffer may begin inside its first extent, and end before the last.
  const std::uint64_t lead = record->lead.load(std::memory_order_relaxed);
  const std::uint64_t last = lead + record->bytes.load(std::memory_order_relaxed);
  const std::uint64_t begin = std::max(std::uint64_t{first} << shift, lead);
  const std::uint64_t end = std::min((std::uint64_t{first} + count) << shift, last);
  if (begin >= end) {
    return nullptr;
  }
  return prefetch_of(residency, {buffer, begin - lead, end - begin, kRead, {}, 0});
}

}  // namespace tiermem
