// From an address to the buffer that has it. Mapped buffers are in a sorted table. All others are
// found by a look at each record. Any thread.
#include <algorithm>
#include <cstdint>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "runtime/context_impl.hpp"

namespace tiermem {
namespace {

// The begin of the buffer's first extent on the host; null if it has no address that is valid now.
std::byte* begin_of(Residency& residency, const BufferRecord& record) {
  if (std::byte* const window = record.windows[kHost].load(std::memory_order_relaxed)) {
    return window;
  }
  // A buffer of one extent is at the address of its frame, which is its own while a view pins it.
  const ExtentRef first = record.first.load(std::memory_order_relaxed);
  if (record.extents.load(std::memory_order_relaxed) != 1) {
    return nullptr;
  }
  const ExtentBits bits = residency.extents.word(kHost, first).load();
  return bits.pinned() && bits.readable()
             ? residency.extents.address(first).load(std::memory_order_relaxed)
             : nullptr;
}

// Sets offset and rest if the buffer, which begins at `begin`, has a byte at `address`.
bool is_in(const BufferRecord& record, const std::byte* begin, const std::byte* address,
           std::uint64_t& offset, std::uint64_t& rest) {
  const std::uint64_t lead = record.lead.load(std::memory_order_relaxed);
  const std::uint64_t bytes = record.bytes.load(std::memory_order_relaxed);
  const std::uint64_t at =
      reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(begin);
  if (begin == nullptr || address < begin || at < lead || at - lead >= bytes) {
    return false;
  }
  offset = at - lead;
  rest = bytes - offset;
  return true;
}

}  // namespace

bool Context::Impl::find_address(const std::byte* address, bool mapped, Position& at,
                                 std::uint64_t& bytes) {
  const ForkGate::Pass pass(gate_);
  std::byte* begin = nullptr;
  if (const Handle buffer = faults_.find_mapped(address, begin)) {
    const BufferRecord* const record = residency.buffers.find(buffer);
    at.buffer = buffer;
    return record != nullptr && is_in(*record, begin, address, at.offset, bytes);
  }
  for (std::uint32_t i = 0; !mapped && i < residency.buffers.used(); ++i) {
    const BufferRecord& record = residency.buffers.at(i);
    const Handle buffer = residency.buffers.handle_of(i);
    if (residency.buffers.find(buffer) != nullptr && (Buffers::generation_of(buffer) & 1) != 0 &&
        is_in(record, begin_of(residency, record), address, at.offset, bytes) &&
        residency.buffers.find(buffer) != nullptr) {  // Still in the same life.
      at.buffer = buffer;
      return true;
    }
  }
  return false;
}

Result<Position> Context::Impl::find(const void* address) {
  Position at;
  std::uint64_t bytes = 0;
  if (!find_address(static_cast<const std::byte*>(address), false, at, bytes)) {
    return fail(Code::invalid_argument,
                "find: {} is in no mapped buffer and no view of this context; pass an address from "
                "address() or of a view that is held",
                address);
  }
  const BufferRecord& record = residency.buffers.at(Buffers::index_of(at.buffer));
  if ((record.flags.load(std::memory_order_relaxed) & kOfHeaps) != 0) {
    return fail(Code::invalid_argument,
                "find: {} is memory of malloc, which has no handle; use hints by address", address);
  }
  return at;
}

Status Context::Impl::find_ranges(const char* call, const void* address, std::uint64_t bytes,
                                  Vector<Access>& list) {
  Status status = usable(call);
  if (!status.ok()) {
    return status;
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (!checked_add(std::uint64_t{begin}, bytes)) {
    return fail(Code::invalid_argument,
                "{}: range of {} bytes at {} ends above 2^64; pass the length of the memory", call,
                bytes, address);
  }
  for (std::uint64_t done = 0; done < bytes;) {
    const auto* const next = static_cast<const std::byte*>(address) + done;
    Position at;
    std::uint64_t rest = 0;
    if (!find_address(next, true, at, rest)) {
      return fail(Code::invalid_argument,
                  "{}: {}, {} bytes into the range of {}, is in no mapped buffer and no object of "
                  "malloc at any of this context; pass a range inside them",
                  call, static_cast<const void*>(next), done, bytes);
    }
    rest = std::min(rest, bytes - done);
    list.push_back({at.buffer, at.offset, rest, kRead, {}, 0});
    done += rest;
  }
  return {};
}

}  // namespace tiermem
