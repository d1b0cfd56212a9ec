#include "mover/refusals.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.hpp"
#include "base/shown.hpp"

namespace tiermem {

// Returns whether no event can make room: all waiters have looked at the ends of transfers, nothing
// is in progress except transfers that wait for the request itself, no pin can be released, and no
// write will be tried again. Writes are not tried again if there is no slot to write to, or after
// many failures in a row.
bool Refusals::nothing_will_change(const Request& asking) const {
  std::uint64_t under_way = engine_.live();
  for (const Need& need : asking.needs) {
    under_way -= under_way != 0 && engine_.is_parked(asking, need.ref) ? 1 : 0;
  }
  const bool again = std::any_of(memories_.begin(), memories_.end(),
                                 [&](const MemoryLedger& memory) { return tries_again(memory); });
  return under_way == 0 && engine_.ended().empty() && engine_.housekeeping() == 0 &&
         !engine_.retries_stuck(asking) && !again && !any_pin();
}

// Returns whether a copy out of the memory, or a write, will be tried again after its backoff.
bool Refusals::tries_again(const MemoryLedger& memory) const {
  return engine_.slots().tries_again(now_) ||
         (!memory.exit_backoff.over(now_) && !memory.exit_backoff.gave_up()) ||
         (!memory.entry_backoff.over(now_) && !memory.entry_backoff.gave_up());
}

// Looks at the words, not at the list of views: a view is pinned before it is listed. Only asked
// when a request is about to be refused. Objects of heaps keep their memory until the program frees
// them, and no request waits for that.
bool Refusals::any_pin() const {
  for (std::uint32_t index = 0; index < residency_.buffers.used(); ++index) {
    const BufferRecord& record = residency_.buffers.at(index);
    if ((record.flags.load(std::memory_order_relaxed) & kOfHeaps) != 0) {
      continue;
    }
    const ExtentRef first = record.first.load(std::memory_order_relaxed);
    for (ExtentRef ref = first; ref < first + record.extents.load(std::memory_order_relaxed);
         ++ref) {
      for (unsigned space = 0; space < memories_.spaces(); ++space) {
        if (directory_.bits(space, ref).pinned()) {
          return true;
        }
      }
    }
  }
  return false;
}

Status Refusals::no_room(const Request* request, unsigned space, std::uint64_t needed) const {
  // The first of the memories that take all extents which lack room, and the usage of all of them.
  const MemoryLedger* first = nullptr;
  FrameUsage usage;
  for (const MemoryLedger* const each : std::as_const(memories_).in(space)) {
    const auto is_taken = [&](const Need& need) {
      return need.space != space || need.has_room() ||
             each->tier->takes(directory_.frame_request(need.ref, space));
    };
    if (request == nullptr || std::all_of(request->needs.begin(), request->needs.end(), is_taken)) {
      const FrameUsage its = each->tier->usage();
      first = first != nullptr ? first : each;
      usage.budget += its.budget;
      usage.in_use += its.in_use;
    }
  }
  const MemoryLedger& memory = first != nullptr ? *first : memories_.first(space);
  const Place place = memory.tier->place();
  ErrorInfo info;
  info.code = Code::no_capacity;
  info.tier = place;
  info.needed = needed;
  info.budget = usage.budget;
  info.used = usage.in_use;
  info.pinned = pinned_bytes(space);
  if (request != nullptr && !request->spans.empty()) {
    info.buffer = request->spans.front().buffer;
  }
  // The label that holds most.
  std::uint64_t most = 0;
  std::int64_t since = 0;
  residency_.views.walk([&](const LiveViews::Holder& holder) {
    const BufferRecord& record = residency_.buffers.at(Buffers::index_of(holder.buffer));
    const std::uint64_t bytes = std::uint64_t{holder.extents}
                                << record.extent_shift.load(std::memory_order_relaxed);
    if (bytes > most) {
      most = bytes;
      since = holder.since_ns;
      // No memory: it may be what there is no room for.
      const std::size_t length =
          show_into(info.holder, sizeof(info.holder) - 1, record.label.get().or_none());
      info.holder[length] = '\0';
    }
  });
  const bool further = place.kind == Kind::numa || place.kind == Kind::pmem;
  const char* const name = space != kHost ? "gpu" : further ? kind_name(place.kind) : "dram";
  set_text(info.setting, name);
  String said =
      text("no room for {} in {}: budget {}, used {}, pinned {}", human_bytes(needed), name,
           human_bytes(usage.budget), human_bytes(usage.in_use), human_bytes(info.pinned));
  if (most > 0) {
    said += text(", most by '{}' for {:.1f} s", info.holder,
                 static_cast<double>(std::max<std::int64_t>(0, now_ - since)) / 1e9);
  }
  if (memory.short_until != 0) {
    said += text("; {}; release views, or free memory of the device", memory.shortage.text);
    info.native = memory.shortage.native;
    set_text(info.text, said);
    return Status(info);
  }
  if (!engine_.slots().any_writable()) {
    said += "; there is no block tier to write to";
  } else if (const ErrorInfo& error = engine_.slots().last_error(); error.code != Code::ok) {
    said += text("; {}", error.text);
    info.native = error.native;
  }
  const std::uint64_t records = space == kHost ? residency_.extents.metadata_bytes() : 0;
  if (records > usage.budget / 4) {
    said += text("; records of extents that were touched take {} of it", human_bytes(records));
  }
  const std::uint64_t left = usage.budget - std::min(usage.budget, usage.in_use);
  const std::uint64_t frame = request != nullptr ? room_for_frame(*request, memory) : 0;
  if (frame > left && needed <= left) {
    said += text(
        "; small extents share frames of {0}, and one more does not fit; release views or "
        "raise `{1}`",
        human_bytes(frame), name);
  } else if (request != nullptr && request->last_look && needed <= left) {
    said += text("; the budget has room, but the kernel refused memory for a frame: {}",
                 why_no_memory(needed, info.setting).data());
    info.native = ENOMEM;
  } else if (needed <= left) {
    said += "; what leaves for it has not left yet; pass a longer timeout";
  } else {
    said += text("; release views or raise `{}`", name);
  }
  set_text(info.text, said);
  return Status(info);
}

// Returns the bytes that a new frame needs, for the largest extent that lacks room.
std::uint64_t Refusals::room_for_frame(const Request& request, const MemoryLedger& memory) const {
  std::uint64_t most = 0;
  for (const Need& need : request.needs) {
    if (need.space == memory.space && !need.has_room()) {
      const FrameRequest frame = directory_.frame_request(need.ref, need.space);
      most = std::max(most, memory.tier->room_for(frame));
    }
  }
  return most;
}

std::uint64_t Refusals::pinned_bytes(unsigned space) const {
  std::uint64_t pinned = 0;
  // Through the views, not through all extents: there are fewer. A view's edges count as whole
  // extents.
  residency_.views.walk([&](const LiveViews::Holder& holder) {
    const BufferRecord& record = residency_.buffers.at(Buffers::index_of(holder.buffer));
    const std::uint64_t extents = holder.space == space ? holder.extents : 0;
    pinned += extents << record.extent_shift.load(std::memory_order_relaxed);
  });
  return std::min(pinned, memories_.usage(space).in_use);
}

// With several memories in a space, the extents of buffers with views tell.
std::uint64_t Refusals::pinned_bytes(const MemoryLedger& memory) const {
  const unsigned space = memory.space;
  if (memories_.in(space).size() == 1) {
    return pinned_bytes(space);
  }
  Vector<std::uint32_t> buffers;
  residency_.views.walk([&](const LiveViews::Holder& holder) {
    if (holder.space == space) {
      buffers.push_back(Buffers::index_of(holder.buffer));
    }
  });
  std::sort(buffers.begin(), buffers.end());
  buffers.erase(std::unique(buffers.begin(), buffers.end()), buffers.end());
  std::uint64_t pinned = 0;
  for (const std::uint32_t index : buffers) {
    const BufferRecord& record = residency_.buffers.at(index);
    const ExtentRef first = record.first.load(std::memory_order_relaxed);
    const ExtentRef end = first + record.extents.load(std::memory_order_relaxed);
    directory_.each_begun(first, end, [&](ExtentRef ref) {
      const bool here = &memories_.of(space, directory_.frame(space, ref)) == &memory;
      pinned += here && directory_.bits(space, ref).pinned() ? directory_.bytes_of(ref) : 0;
    });
  }
  return pinned;
}

Status Refusals::no_records() const {
  constexpr std::uint64_t kRecords = std::uint64_t{1} << 20;  // The arena's step of growth.
  std::array<char, 64> setting{};
  ErrorInfo info =
      error_info(Code::no_capacity, "records of the request: allocation failed: {}; free memory",
                 why_no_memory(kRecords, setting).data());
  set_text(info.setting, setting.data());
  info.native = ENOMEM;
  return Status(info);
}

std::array<char, 160> Refusals::why_no_memory(std::uint64_t bytes,
                                              std::span<char, 64> setting) const {
  std::array<char, 160> why{};
  if (explain_ != nullptr) {
    explain_(bytes, host::Wanted::memory, why.data(), why.size(), setting.data(), setting.size());
  } else {
    set_text(why.data(), why.size(), "the system gives none");
  }
  return why;
}

Status Refusals::late(const Request& request) const {
  if (request.kind == RequestKind::set_budget) {
    return no_room(&request, room_.budget_memory().space, request.value);
  }
  if (request.short_of_room) {
    std::uint64_t needed = 0;
    unsigned space = kHost;
    for (const Need& need : request.needs) {
      if (!need.has_room() && needs_.lacks_copy(need)) {
        needed += directory_.bytes_of(need.ref);
        space = need.space;
      }
    }
    if (needed != 0) {  // Otherwise it has got the room, and waits for bytes.
      return no_room(&request, space, needed);
    }
  }
  return fail(
      Code::timed_out, "{} of {} extents were not ready in the time given; pass a longer timeout",
      request.pending +
          (request.needs.size() - std::min<std::size_t>(request.armed, request.needs.size())),
      request.needs.size());
}

// Says that the bytes were dropped or lost, and why.
Status Refusals::no_bytes(ExtentRef ref) const {
  const BufferRecord& record = directory_.record_of(ref);
  const ExtentRef number = directory_.number_of(ref);
  const Extent& extent = directory_.at(ref);
  if (directory_.droppable(ref)) {
    return fail(Code::discarded,
                "extent {} of droppable buffer '{}' was dropped to make room; acquire it with mode "
                "discard and write it again",
                number, record.label.get().view());
  }
  if (extent.lost_with == kHost) {
    return fail(Code::lost,
                "extent {} of buffer '{}' is lost: a checksum did not match; acquire it with mode "
                "discard and write it again",
                number, record.label.get().view());
  }
  const Memory& tier = *memories_.at(extent.lost_with).tier;
  return fail(Code::lost,
              "extent {} of buffer '{}' is lost: {} had it{}{:.80}; acquire it with mode discard "
              "and write it again",
              number, record.label.get().view(), place_name(tier.place()), tier.lost() ? "; " : "",
              tier.loss().message());
}

Status Refusals::lost(const MemoryLedger& memory) {
  const Status why = memory.tier->loss();
  return fail_native(Code::unavailable, why.info() != nullptr ? why.info()->native : 0, "{}",
                     why.message());
}

}  // namespace tiermem
