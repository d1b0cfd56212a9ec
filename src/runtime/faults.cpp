// Serving faults: mapped windows, read-ahead, and mistakes.
#include "runtime/faults.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/log.hpp"

namespace tiermem {

// A stream is sequential from its second touch on. What is asked for ahead doubles while it goes
// on: a scan meets extents that are still on their way, and each of those touches tells how far it
// has come.
Streams::Ahead Streams::touched(Handle buffer, std::uint32_t thread, std::uint32_t index,
                                std::uint32_t extents, std::uint32_t most) {
  ++clock_;
  Stream* oldest = &streams_[0];
  for (Stream& stream : streams_) {
    if (stream.used < oldest->used) {
      oldest = &stream;
    }
    const bool same = stream.used != 0 && stream.buffer == buffer && stream.thread == thread;
    const std::uint32_t reach = std::max(stream.until, stream.last + 1);
    if (!same || index < stream.last || index > reach) {
      continue;
    }
    stream.used = clock_;
    if (index == stream.last) {
      return {};
    }
    stream.last = index;
    if (stream.until > index + 1 + stream.window / 2) {
      return {};  // Half of it is still ahead.
    }
    stream.window = std::clamp<std::uint32_t>(stream.window * 2, 2, std::max(most, 2u));
    const std::uint32_t first = std::max(stream.until, index + 1);
    stream.until = std::min({index + 1 + std::min(stream.window, most), extents, first + most});
    return stream.until > first ? Ahead{first, stream.until - first} : Ahead{};
  }
  *oldest = {.buffer = buffer, .thread = thread, .last = index, .until = index + 1, .used = clock_};
  return {};
}

void Faults::run(ForkGate& gate) {
  Fault fault;
  while (dram_->next_fault(-1, fault)) {
    const ForkGate::Pass pass(gate);
    answer(fault);
  }
}

void Faults::serve_waiting(unsigned most) {
  Fault fault;
  for (unsigned i = 0; i < most && dram_->take_fault(fault); ++i) {
    answer(fault);
  }
}

void Faults::answer(const Fault& fault) {
  auto* const address = reinterpret_cast<std::byte*>(fault.address);
  if (dram_->is_own(fault)) {
    dram_->fill_hole(address);
    return;
  }
  Window window;
  std::byte* begin = nullptr;
  {
    const std::lock_guard lock(mutex_);
    begin = find(address, window);
  }
  if (begin != nullptr) {
    serve(fault, window, begin);
  } else {
    mistake(address);
  }
}

void Faults::add(Handle buffer, std::byte* window, std::uint32_t extents, std::uint8_t shift) {
  const std::lock_guard lock(mutex_);
  // Of the addresses' last life: a touch of freed bytes was answered after they had been released.
  dram_->clear_poison(window, std::uint64_t{extents} << shift);
  windows_[window] = {buffer, extents, shift};
}

void Faults::remove(std::byte* window) {
  const std::lock_guard lock(mutex_);
  windows_.erase(window);
}

std::byte* Faults::find(std::byte* address, Window& window) const {
  auto at = windows_.upper_bound(address);
  if (at == windows_.begin()) {
    return nullptr;
  }
  --at;
  window = at->second;
  const std::uint64_t bytes = std::uint64_t{window.extents} << window.shift;
  return address < at->first + bytes ? at->first : nullptr;
}

void Faults::serve(const Fault& fault, const Window& window, std::byte* begin) {
  auto* const address = reinterpret_cast<std::byte*>(fault.address);
  served_.fetch_add(1, std::memory_order_relaxed);
  const auto index = static_cast<std::uint32_t>((address - begin) >> window.shift);
  const std::uint64_t extent = std::uint64_t{1} << window.shift;

  auto asked = std::make_unique<Asked>();
  asked->faults = this;
  asked->address = address;
  asked->since_ns = clock_();
  asked->request.thread = static_cast<std::int32_t>(fault.thread);
  asked->request.context = asked.get();
  asked->request.on_done = [](Request& request) {
    auto* const mine = static_cast<Asked*>(request.context);
    mine->faults->ended(*mine);
  };
  asked->request.spans.resize(1);
  const Access access{window.buffer, index * extent, 1, kRead, {}, 0};
  const Status status = residency_.resolve(access, asked->request.spans[0], "touch");
  if (!status.ok()) {
    dram_->wake(address);  // It is being freed: the next fault finds it gone, or another there.
    return;
  }
  asked->was_there =
      residency_.extents.word(kHost, asked->request.spans[0].first).load().readable();
  post_(argument_, asked.release()->request);
  const auto most = static_cast<std::uint32_t>(ahead_bytes_ >> window.shift);
  const Streams::Ahead ahead =
      streams_.touched(window.buffer, fault.thread, index, window.extents, most);
  if (ahead.count != 0) {
    read_ahead(window.buffer, ahead, window.shift);
  }
}

void Faults::read_ahead(Handle buffer, Streams::Ahead ahead, std::uint8_t shift) {
  BufferRecord* const record = residency_.buffers.find(buffer);
  if (record == nullptr) {
    return;
  }
  const std::uint64_t bytes = record->bytes.load(std::memory_order_relaxed);
  const std::uint64_t offset = std::uint64_t{ahead.first} << shift;
  const std::uint64_t length =
      std::min(std::uint64_t{ahead.count} << shift, bytes - std::min(offset, bytes));
  const Access access{buffer, offset, length, kRead, {}, 0};
  auto request = std::make_unique<Request>();
  request->want = Want::prefetch;
  request->spans.resize(1);
  if (length == 0 || !residency_.resolve(access, request->spans[0], "read-ahead").ok()) {
    return;
  }
  request->on_done = [](Request& done) { delete &done; };
  post_(argument_, *request.release());
}

// The mover's thread, which alone lets extents leave: what is there now stays until the next step.
// If it was there already and the page is still missing, the program has emptied it
// (MADV_DONTNEED): zeros, or its toucher would come back for ever.
void Faults::ended(Asked& asked) {
  const std::unique_ptr<Asked> owned(&asked);
  waited_ns_.fetch_add(static_cast<std::uint64_t>(clock_() - asked.since_ns),
                       std::memory_order_relaxed);
  const Span& span = asked.request.spans[0];
  if (span.record->generation.load(std::memory_order_seq_cst) !=
      Buffers::generation_of(span.buffer)) {
    // The toucher went on long ago (the extent came by another way), and freed the buffer. Another
    // may be at its address: that one's touches are asked for anew.
    dram_->wake(asked.address);
    return;
  }
  if (asked.request.status.ok()) {
    const ExtentRef ref = span.first;
    if (asked.was_there && residency_.extents.word(kHost, ref).load().readable()) {
      dram_->fill_hole(asked.address);
    } else {
      dram_->wake(asked.address);
    }
    return;
  }
  log_error("touch of a mapped buffer at {}: {}: SIGBUS", static_cast<void*>(asked.address),
            asked.request.status.message());
  if (const Refusal refusal = refusal_.load(std::memory_order_acquire); refusal != nullptr) {
    refusal(asked.request.status.message());
  }
  refuse(asked.address);
}

void Faults::refuse(std::byte* address) {
  if (dram_->poison(address)) {
    poisoned_.fetch_add(1, std::memory_order_relaxed);
  } else {
    dram_->wake(address);
  }
}

void Faults::mistake(std::byte* address) {
  for (std::uint32_t i = 0; i < residency_.buffers.used(); ++i) {
    BufferRecord& record = residency_.buffers.at(i);
    std::byte* const window = record.window.load(std::memory_order_relaxed);
    const unsigned shift = record.extent_shift.load(std::memory_order_relaxed);
    const std::uint64_t size = std::uint64_t{record.extents.load(std::memory_order_relaxed)}
                               << shift;
    if (window == nullptr || address < window || address >= window + size) {
      continue;
    }
    const auto offset = static_cast<std::uint64_t>(address - window);
    const ExtentRef ref =
        record.first.load(std::memory_order_relaxed) + static_cast<ExtentRef>(offset >> shift);
    if (residency_.extents.word(kHost, ref).load().readable()) {
      dram_->wake(address);
      return;
    }
    log_error("touch of absent bytes without a view: buffer '{}' offset {} (address {}): SIGBUS",
              record.label, offset, static_cast<void*>(address));
    break;
  }
  const std::lock_guard lock(mutex_);
  Window window;
  if (find(address, window) != nullptr) {
    dram_->wake(address);  // A mapped buffer has begun here meanwhile.
    return;
  }
  refuse(address);
}

}  // namespace tiermem
