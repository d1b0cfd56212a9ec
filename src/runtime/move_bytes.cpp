// Moves bytes from one mapped buffer to another. Any thread.
#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "runtime/context_impl.hpp"

namespace tiermem {
namespace {

/// Extents per request: this many occupy the mover's thread for less than a millisecond.
constexpr std::uint32_t kAtOnce = 4096;
/// Bytes that are copied before the source's frames are released.
constexpr std::uint64_t kCopied = std::uint64_t{4} << 20;

bool alike(const Span& one, const Span& other) {
  const auto flags = [](const Span& span) {
    return span.record->flags.load(std::memory_order_relaxed) &
           (kDroppable | kNoChecksum | kInPieces);
  };
  return one.shift == other.shift && flags(one) == flags(other) && one.record->domain == 0 &&
         other.record->domain == 0;
}

}  // namespace

Status Context::Impl::move_bytes(Context& context, const Access& to, const Access& from) {
  if (to.buffer == from.buffer) {
    return fail(Code::invalid_argument,
                "move_bytes: both ranges are of buffer {:#x}; name two buffers", to.buffer);
  }
  Span into, out;
  Status status = residency.resolve(to, into, "move_bytes");
  if (status.ok()) {
    status = residency.resolve(from, out, "move_bytes");
  }
  const Result<std::byte*> into_address = context.address(to.buffer);
  const Result<std::byte*> out_address = context.address(from.buffer);
  if (status.ok() && !into_address.ok()) {
    status = into_address.status().clone();
  }
  if (status.ok() && !out_address.ok()) {
    status = out_address.status().clone();
  }
  if (!status.ok()) {
    return status;
  }
  for (const Span* const span : {&into, &out}) {
    if (span->record->adopted()) {
      return fail(
          Code::unsupported,
          "move_bytes: buffer '{}' is an adopted file, and its bytes cannot move; copy them",
          span->record->label.get().view());
    }
  }
  std::byte* const into_begin = *into_address + to.offset;
  std::byte* const out_begin = *out_address + from.offset;
  const auto copy = [&](std::uint64_t begin, std::uint64_t end) {
    while (begin < end) {
      const std::uint64_t n = std::min(end - begin, kCopied);
      std::memcpy(into_begin + begin, out_begin + begin, n);
      const Access gone{from.buffer, from.offset + begin, n, kRead, {}, 0};
      if (!context.advise({&gone, 1}, Advice::dont_need).ok()) {
        std::memset(out_begin + begin, 0, n);  // If, for example, allocation of a request failed.
      }
      begin += n;
    }
  };
  const std::uint64_t extent = std::uint64_t{1} << out.shift;
  const std::uint64_t head = (extent - from.offset % extent) % extent;
  const bool together = alike(into, out) && to.offset % extent == from.offset % extent;
  if (!together || from.length < head + extent) {
    copy(0, from.length);
    return {};
  }
  const std::uint64_t whole = (from.length - head) / extent;
  // All steps that can fail come before the first byte moves.
  Vector<std::uint8_t> handed(std::min<std::uint64_t>(whole, kAtOnce));
  Vector<Span> spans(2);
  copy(0, head);
  for (std::uint64_t done = 0; done < whole;) {
    const std::uint64_t count = std::min<std::uint64_t>(whole - done, kAtOnce);
    const std::uint64_t begin = head + done * extent;
    const std::uint64_t length = count * extent;
    const Access ranges[] = {{from.buffer, from.offset + begin, length, kRead, {}, 0},
                             {to.buffer, to.offset + begin, length, kRead, {}, 0}};
    Request request;
    request.kind = RequestKind::move_slots;
    request.moved = handed.data();
    request.spans.swap(spans);
    std::fill(handed.begin(), handed.end(), std::uint8_t{0});
    if (resolve_all(ranges, request, "move_bytes").ok()) {
      (void)ask(request);  // Extents that the mover did not hand over are copied.
    }
    request.spans.swap(spans);
    for (std::uint64_t i = 0; i < count;) {
      std::uint64_t end = i + 1;
      while (end < count && handed[end] == handed[i]) {
        ++end;
      }
      if (handed[i] == 0) {
        copy(begin + i * extent, begin + end * extent);
      }
      i = end;
    }
    done += count;
  }
  copy(head + whole * extent, from.length);
  return {};
}

}  // namespace tiermem
