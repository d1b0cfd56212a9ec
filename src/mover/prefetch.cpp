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
  const std::uint64_t lead = record->lead.load(std::memory_order_relaxed);
  const std::uint64_t end = lead + record->bytes.load(std::memory_order_relaxed);
  const std::uint64_t from = std::max(std::uint64_t{first} << shift, lead);
  const std::uint64_t to = std::min((std::uint64_t{first} + count) << shift, end);
  return from < to ? prefetch_of(residency, {buffer, from - lead, to - from, kRead, {}, 0})
                   : nullptr;
}

}  // namespace tiermem
