// Serves faults: mapped windows, read-ahead, and mistakes of the program.
#include "runtime/faults.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "base/last_words.hpp"
#include "base/log.hpp"
#include "mover/prefetch.hpp"
#include "os/host_memory.hpp"

namespace tiermem {

void Faults::run(ForkGate& gate) {
  Fault fault;
  while (space_->next_fault(-1, fault)) {
    const ForkGate::Pass pass(gate);
    answer(fault);
  }
}

void Faults::serve_waiting(unsigned most) {
  std::array<Fault, 16> faults;
  for (unsigned n = faults.size(); most > 0 && n == faults.size(); most -= n) {
    n = static_cast<unsigned>(  // At most `most`.
        space_->take_faults(std::span(faults).first(std::min<std::size_t>(most, faults.size()))));
    for (const Fault& fault : std::span(faults).first(n)) {
      answer(fault);
    }
  }
}

bool Faults::answer_own(const Fault& fault) {
  if (space_->is_poisoned(fault.address)) {
    return false;
  }
  answer(fault);
  return true;
}

void Faults::answer(const Fault& fault) {
  auto* const address = reinterpret_cast<std::byte*>(fault.address);
  if (fault.watched) {
    space_->is_read_only(address) ? refuse_store(fault) : allow_writes(address);
    return;
  }
  if (space_->is_own(fault)) {
    space_->fill_hole(address);
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

// Allows writes to the whole extent: its other pages would leave with this one anyway.
void Faults::allow_writes(std::byte* address) {
  Window window;
  std::byte* begin = nullptr;
  {
    const std::lock_guard lock(mutex_);
    begin = find(address, window);
  }
  const std::uint64_t bytes = begin == nullptr ? kSmallestExtent : std::uint64_t{1} << window.shift;
  const std::uint64_t into = (begin == nullptr ? reinterpret_cast<std::uint64_t>(address)
                                               : static_cast<std::uint64_t>(address - begin)) %
                             bytes;
  space_->allow_writes(address - into, bytes);
}

void Faults::add(Handle buffer, std::byte* window, std::uint32_t extents, std::uint8_t shift) {
  const std::lock_guard lock(mutex_);
  // From an earlier use of the addresses: a touch of freed bytes may be answered after their
  // release.
  space_->clear_poison(window, std::uint64_t{extents} << shift);
  windows_[window] = {buffer, extents, shift};
}

void Faults::remove(std::byte* window) {
  const std::lock_guard lock(mutex_);
  windows_.erase(window);
}

Handle Faults::find_mapped(const std::byte* address, std::byte*& begin) {
  const std::lock_guard lock(mutex_);
  Window window;
  begin = find(const_cast<std::byte*>(address), window);
  return begin != nullptr ? window.buffer : 0;
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
  last_thread_.store(fault.thread, std::memory_order_relaxed);
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
  const Status status =
      residency_.resolve(byte_at(window, index * extent), asked->request.spans[0], "touch");
  if (!status.ok()) {
    ended_.fetch_add(1, std::memory_order_relaxed);
    // The buffer is being freed. The next fault finds no buffer, or a new one.
    space_->wake(address);
    return;
  }
  asked->was_there =
      residency_.extents.word(kHost, asked->request.spans[0].first).load().readable();
  const auto most = static_cast<std::uint32_t>(ahead_bytes_ >> window.shift);
  const bool may_be_parts = extent <= kMostParts * kSmallestExtent;
  const std::uint64_t page = (address - begin) % extent / kSmallestExtent;
  const bool at_its_begin = !may_be_parts || page * 8 * kSmallestExtent < extent;
  const Streams::Ahead ahead =
      streams_.touched({window.buffer, fault.thread, index, window.extents, at_its_begin}, most);
  asked->request.in_parts = !ahead.goes_on && may_be_parts;
  asked->request.changes = fault.write;
  asked->request.page = static_cast<std::uint8_t>(asked->request.in_parts ? page : 0);
  post_(argument_, asked.release()->request);
  if (ahead.count != 0) {
    if (auto request = prefetch_of(residency_, window.buffer, ahead.first, ahead.count)) {
      post_(argument_, *request.release());
    }
  }
  if (!ahead.goes_on) {
    const auto offset = static_cast<std::uint64_t>(address - begin);
    const std::uint32_t steps = may_be_parts ? kMostSteps : std::min(kMostSteps, most);
    read_steps(window, strides_.touched({window.buffer, fault.thread, offset,
                                         std::uint64_t{window.extents} << window.shift},
                                        steps));
  }
}

// Returns a read of the byte at that offset in the window. The bytes before and after those of an
// adopted file belong to its first and last extent.
Access Faults::byte_at(const Window& window, std::uint64_t in_window) const {
  const BufferRecord& record = residency_.buffers.at(Buffers::index_of(window.buffer));
  const std::uint64_t lead = record.lead.load(std::memory_order_relaxed);
  const std::uint64_t last = lead + record.bytes.load(std::memory_order_relaxed) - 1;
  return {window.buffer, std::clamp(in_window, lead, std::max(lead, last)) - lead, 1, kRead, {}, 0};
}

// For each step, reads one page if the extent may be resident in parts, and otherwise the extent.
void Faults::read_steps(const Window& window, const Strides::Ahead& ahead) {
  const std::uint64_t extent = std::uint64_t{1} << window.shift;
  const bool in_parts = extent <= kMostParts * kSmallestExtent;
  std::uint64_t before = ~std::uint64_t{0};
  for (std::uint32_t i = 0; i < ahead.count; ++i) {
    const std::uint64_t offset = ahead.at(i);
    const std::uint64_t page = in_parts ? offset % extent / kSmallestExtent : 0;
    if (const std::uint64_t place = (offset >> window.shift) * kMostParts + page;
        std::exchange(before, place) == place) {
      continue;
    }
    if (auto request = prefetch_of(residency_, byte_at(window, offset))) {
      request->in_parts = in_parts;
      request->page = static_cast<std::uint8_t>(page);
      post_(argument_, *request.release());
    }
  }
}

// Runs on the mover's thread. Only this thread lets extents leave, so a resident extent stays until
// the next step. If the extent was already resident and the page is still missing, the program has
// emptied it (MADV_DONTNEED). It must get zeros, or the toucher would fault for ever.
void Faults::ended(Asked& asked) {
  const std::unique_ptr<Asked> owned(&asked);
  ended_.fetch_add(1, std::memory_order_relaxed);
  const auto waited = static_cast<std::uint64_t>(clock_() - asked.since_ns);
  waited_ns_.fetch_add(waited, std::memory_order_relaxed);
  if (asked.request.short_of_room) {
    waited_for_room_ns_.fetch_add(waited, std::memory_order_relaxed);
  }
  const Span& span = asked.request.spans[0];
  if (span.stale()) {
    // The extent came another way, the toucher continued, and the program freed the buffer. Another
    // buffer may be at its address, and its touches fault again.
    space_->wake(asked.address);
    return;
  }
  if (asked.request.status.ok()) {
    const ExtentRef ref = span.first;
    // Reads the current state: the extent may have begun to leave since the request completed, and
    // a page that a worker has just taken out of the window is not a hole.
    const ExtentBits bits = residency_.extents.word(kHost, ref).load();
    const bool readable = bits.readable();
    const bool part = bits.phase() == Phase::none &&
                      (residency_.extents.at(ref).parts >> asked.request.page & 1) != 0;
    if ((asked.was_there && readable) || (asked.request.was_there && part)) {
      space_->is_read_only(asked.address) ? read_again(asked) : space_->fill_hole(asked.address);
    } else {
      space_->wake(asked.address);
    }
    return;
  }
  touch_failed(asked.address, asked.request.status);
}

// The program has emptied a page of a mapped file, as MADV_DONTNEED does. Its extent leaves, so
// that the repeated touch reads the file again. Zeros would be wrong.
void Faults::read_again(const Asked& asked) {
  std::byte* const page =
      asked.address - reinterpret_cast<std::uintptr_t>(asked.address) % host::kPage;
  if (host::watched_pages(page, 1) != 0) {
    space_->wake(page);  // It has come since the touch.
    return;
  }
  auto again = std::make_unique<Asked>();
  again->faults = this;
  again->address = asked.address;
  again->request.kind = RequestKind::evict;
  again->request.context = again.get();
  again->request.spans.push_back(asked.request.spans[0]);
  again->request.on_done = [](Request& request) {
    const std::unique_ptr<Asked> mine(static_cast<Asked*>(request.context));
    Faults& faults = *mine->faults;
    if (request.status.ok() || mine->request.spans[0].stale()) {
      faults.space_->wake(mine->address);
    } else {
      faults.touch_failed(mine->address, request.status);
    }
  };
  post_(argument_, again.release()->request);
}

// Reports before the signal, because the signal may end the process.
void Faults::touch_failed(std::byte* address, const Status& why) {
  static constexpr char kTouched[] = "a touch of a mapped buffer at {} is SIGBUS: {}";
  void* const at = address;
  if (const Refusal refusal = refusal_.load(std::memory_order_acquire); refusal != nullptr) {
    log_error(kTouched, at, why.message());
    refusal(why.message());  // For the report at the end of the run.
  } else {
    last_words(kTouched, at, why.message());
  }
  refuse(address);
}

void Faults::refuse(std::byte* address) {
  if (space_->poison(address)) {  // If not, a page has come, and the toucher has been woken.
    poisoned_.fetch_add(1, std::memory_order_relaxed);
  }
}

BufferRecord* Faults::buffer_of(std::byte* address, std::uint64_t& in_window) const {
  for (std::uint32_t i = 0; i < residency_.buffers.used(); ++i) {
    BufferRecord& record = residency_.buffers.at(i);
    std::byte* const window = record.windows[kHost].load(std::memory_order_relaxed);
    const std::uint64_t size = std::uint64_t{record.extents.load(std::memory_order_relaxed)}
                               << record.extent_shift.load(std::memory_order_relaxed);
    if (window != nullptr && address >= window && address < window + size) {
      in_window = static_cast<std::uint64_t>(address - window);
      return &record;
    }
  }
  return nullptr;
}

// Reports before the signal, because the signal may end the process.
void Faults::refuse_store(const Fault& fault) {
  std::uint64_t in_window = 0;
  BufferRecord* const record = buffer_of(fault.address, in_window);
  const unsigned shift =
      record != nullptr ? record->extent_shift.load(std::memory_order_relaxed) : 0;
  const ExtentRef ref = record != nullptr ? record->first.load(std::memory_order_relaxed) +
                                                static_cast<ExtentRef>(in_window >> shift)
                                          : 0;
  // A mapped file is closed whatever becomes of the page: the store is refused in any case, and
  // some pages of an extent may be there without the others.
  const bool mapped =
      record != nullptr && (record->flags.load(std::memory_order_relaxed) & kMapped) != 0;
  if (record == nullptr ||
      (!mapped && !residency_.extents.word(kHost, ref).load().view_readable())) {
    space_->wake(fault.address);  // The extent is leaving. The next fault finds it absent.
    return;
  }
  const std::uint64_t bytes = std::uint64_t{1} << shift;
  const std::uint64_t lead = record->lead.load(std::memory_order_relaxed);
  std::byte* const extent = fault.address - in_window % bytes;
  if (!space_->refuses_stores(fault.address)) {
    last_words(
        "store: buffer '{}' at offset {} (address {}) is the adopted file '{:.120}', and {} "
        "read-only: SIGSEGV; adopt it with the flag private, or copy the bytes to a buffer from "
        "alloc",
        record->label.get().view(), in_window - std::min(in_window, lead),
        static_cast<void*>(fault.address),
        files_ != nullptr && record->adopted() ? files_->name(record->first_slot()) : "",
        mapped ? "its pages are" : "its views are");
  }
  space_->refuse_store(fault, extent, bytes);
}

// Handles a touch that has no right answer. Zeros would be wrong, also for a frame's own address,
// which only workers and devices touch: they would be written to a slot with a matching checksum.
void Faults::mistake(std::byte* address) {
  bool told = false;
  std::uint64_t offset = 0;
  if (BufferRecord* const record = buffer_of(address, offset)) {
    const ExtentRef ref =
        record->first.load(std::memory_order_relaxed) +
        static_cast<ExtentRef>(offset >> record->extent_shift.load(std::memory_order_relaxed));
    if (residency_.extents.word(kHost, ref).load().view_readable()) {
      space_->wake(address);
      return;
    }
    last_words(
        "touch of absent bytes without a view: buffer '{}' offset {} (address {}): SIGBUS; acquire "
        "a view first",
        record->label.get().view(), offset, static_cast<void*>(address));
    told = true;
  }
  const std::lock_guard lock(mutex_);
  Window window;
  if (find(address, window) != nullptr) {
    space_->wake(address);  // A mapped buffer has been created here since.
    return;
  }
  if (!told && space_->close_at(address)) {
    log_warn("touch at {}: outside of all buffers: SIGSEGV", static_cast<void*>(address));
    return;
  }
  if (!told) {  // Before the toucher continues, because the process may end.
    last_words(
        "touch at {}: absent bytes outside of all buffers: SIGBUS; keep a buffer until its last "
        "touch",
        static_cast<void*>(address));
  }
  refuse(address);
}

}  // namespace tiermem
