// The events of the recency order: which extent enters which list, and what is remembered. Mover's
// thread only.
#include "policy/recency.hpp"

#include <new>
#include <stdexcept>

#include "base/error.hpp"

namespace tiermem {

namespace {

void clear(std::uint8_t& flags, unsigned which) {
  flags &= static_cast<std::uint8_t>(~which);
}

}  // namespace

Status Recency::reserve(std::size_t n) {
  try {
    lists_.reserve(n);
  } catch (const std::exception&) {  // bad_alloc, or length_error for an absurd n.
    return fail(
        Code::no_capacity,
        "recency: allocation of the records of {} extents failed, 16 bytes each; free memory", n);
  }
  return {};
}

std::uint64_t Recency::pool_units() const {
  return small_units() + lists_.units(Order::returning) + lists_.units(Order::main) +
         lists_.units(Order::leaving);
}

void Recency::inserted(ExtentRef ref, std::uint64_t bytes, Hint hint, References references) {
  assert(ref < lists_.size() && bytes <= kLargestBytes);
  if (lists_[ref].order != Order::absent) {
    removed(ref, true);
  }
  ExtentRecord& record = lists_[ref];
  record.units = static_cast<std::uint16_t>((bytes + kUnitBytes - 1) / kUnitBytes);
  clock_ += record.units;
  const bool known = (record.flags & kKnown) != 0;
  const unsigned level =
      references == References::seen
          ? 0
          : levels_.after_return(known ? record.level : 0, known, clock_ - record.next,
                                 record.units, static_cast<double>(pool_units()));
  record.level = level & Levels::kMost;
  const Order usual = place_of_newcomer(ref);
  const bool has_rounds = record.level > 1;
  const Order order = has_rounds ? Order::returning : usual;
  record.rounds = (has_rounds ? (1U << (record.level - 1)) - 1 : 0) & 3U;
  clear(record.flags, kTouched | kKnown | kFromMain | kPassed | kByRecency);
  record.stamp = clock_;
  if ((record.flags & kKeep) != 0) {
    lists_.push_head(Order::kept, ref);
  } else if ((record.flags & kStreamed) != 0) {
    lists_.push_head(Order::streamed, ref);
  } else {
    lists_.push_head(order, ref);
  }
  if (hint.advice != Advice::normal) {
    advised(ref, hint.advice, hint.value);
  }
}

void Recency::grown(ExtentRef ref, std::uint64_t bytes) {
  assert(ref < lists_.size() && bytes <= kLargestBytes);
  if (lists_[ref].order == Order::absent) {
    return;
  }
  const auto units = static_cast<std::uint16_t>((bytes + kUnitBytes - 1) / kUnitBytes);
  clock_ += units - std::min(units, lists_[ref].units);
  lists_.resize(ref, units);
}

Order Recency::place_of_newcomer(ExtentRef ref) {
  ExtentRecord& record = lists_[ref];
  if ((record.flags & kKnown) == 0) {
    clear(record.flags, kFailed);
    return Order::fresh;
  }
  ExtentRef oldest = lists_.tail(Order::main);
  if (oldest == kNoLink) {
    oldest = lists_.tail(Order::returning);
  }
  const std::uint32_t reuse = clock_ - record.stamp;
  const bool displaces =
      oldest == kNoLink || main_is_short() || reuse < clock_ - lists_[oldest].stamp;
  if (reuse > pool_units()) {
    return displaces ? Order::returning : Order::fresh;
  }
  const bool failed = (record.flags & kFailed) != 0;
  const bool from_main = (record.flags & kFromMain) != 0;
  if (from_main || !failed) {  // A failure in main says nothing about the small queue.
    learn(from_main);
  }
  return !failed || displaces ? Order::returning : Order::fresh;
}

/// Moves the share by about this extent's size, and by more if the queue it was lost from loses
/// less than the other. Moves three times as far towards main, because a loop shows main's losses
/// late.
void Recency::learn(bool lost_from_main) {
  const double step = 1.0 / std::max(1.0, static_cast<double>(lists_.count(Order::main)) +
                                              static_cast<double>(lists_.count(Order::probation)) +
                                              static_cast<double>(lists_.count(Order::fresh)) +
                                              static_cast<double>(lists_.count(Order::returning)));
  if (lost_from_main) {
    small_share_ -= 3 * step * std::max(1.0, lost_small_ / lost_main_);
  } else {
    small_share_ += step * std::max(1.0, lost_main_ / lost_small_);
  }
  small_share_ = std::clamp(small_share_, kSmallest, kLargest);
}

void Recency::removed(ExtentRef ref, bool keep_ghost) {
  assert(ref < lists_.size());
  ExtentRecord& record = lists_[ref];
  if (record.order != Order::absent) {
    if (record.order != Order::leaving) {
      note_origin(ref);
    }
    detach(ref);
    if (keep_ghost && (record.flags & kByRecency) != 0) {
      const bool from_main = (record.flags & kFromMain) != 0;
      record.flags |= static_cast<std::uint8_t>(from_main ? kKnown | kFailed : kKnown);
      record.next = clock_;
      (from_main ? lost_main_ : lost_small_) += record.units;
      if (lost_main_ + lost_small_ > static_cast<double>(pool_units())) {
        lost_main_ = std::max(1.0, lost_main_ / 2);
        lost_small_ = std::max(1.0, lost_small_ / 2);
      }
    }
  }
  if (!keep_ghost) {
    record.flags = 0;
    record.units = 0;
  }
}

void Recency::rejected(ExtentRef ref) {
  ExtentRecord& record = lists_[ref];
  if (record.order != Order::leaving) {
    return;
  }
  lists_.unlink(ref);
  if ((record.flags & kKeep) != 0) {
    lists_.push_head(Order::kept, ref);
  } else if ((record.flags & kStreamed) != 0) {
    lists_.push_head(Order::streamed, ref);
  } else {
    const bool first_seen = (record.flags & (kByRecency | kFromMain)) == kByRecency;
    lists_.push_head(first_seen ? Order::probation : Order::main, ref);
  }
  clear(record.flags, kByRecency | kFromMain | kPassed);
}

void Recency::passed(ExtentRef ref, std::uint64_t bytes) {
  rejected(ref);
  grown(ref, bytes);
  if (lists_[ref].order == Order::main || lists_[ref].order == Order::probation) {
    to_main(ref);
  }
}

void Recency::advised(ExtentRef ref, Advice advice, std::uint64_t value) {
  assert(ref < lists_.size());
  ExtentRecord& record = lists_[ref];
  const bool in_order = record.order != Order::absent && record.order != Order::leaving;
  const auto move_to = [&](Order list) {
    if (in_order) {
      detach(ref);
      lists_.push_head(list, ref);
    }
  };
  const bool hinted = record.order == Order::cold || record.order == Order::streamed ||
                      record.order == Order::kept || record.order == Order::planned;
  switch (advice) {
    case Advice::normal:
      clear(record.flags, kKeep | kStreamed);
      if (hinted) {
        to_main(ref);
      }
      break;
    case Advice::will_need:
    case Advice::touched:
      if (record.order == Order::cold) {
        to_main(ref);
      } else if (in_order && (advice == Advice::touched || record.order != Order::streamed)) {
        record.flags |= kTouched;
      }
      break;
    case Advice::cold:
      clear(record.flags, kKeep | kStreamed | kTouched);
      move_to(Order::cold);
      break;
    case Advice::streamed:
      clear(record.flags, kKeep | kTouched);
      record.flags |= kStreamed;
      move_to(Order::streamed);
      break;
    case Advice::keep:
      if (value != 0) {
        clear(record.flags, kStreamed);
        record.flags |= kKeep;
        move_to(Order::kept);
      } else {
        clear(record.flags, kKeep);
        if (record.order == Order::kept) {
          to_main(ref);
        }
      }
      break;
    case Advice::next_use:
      if (in_order && record.order != Order::kept && value >= ordinal_) {
        detach(ref);
        if (!planned_.push(ref, value)) {
          lists_.push_head(Order::main, ref);
        }
      }
      break;
    default:  // For read-ahead, placement and write-behind; no effect on the order.
      break;
  }
}

void Recency::tick(std::uint64_t ordinal) {
  ordinal_ = ordinal;
  expire(256);
}

/// Processes a part of the heap at a time: an extent becomes a normal one when its planned use is
/// over.
void Recency::expire(std::size_t entries) {
  for (std::size_t n = std::min(entries, planned_.size()); n > 0 && !planned_.empty(); --n) {
    if (expiry_cursor_ >= planned_.size()) {
      expiry_cursor_ = 0;
    }
    const NextUseHeap::Entry entry = planned_.at(expiry_cursor_);
    if (entry.ordinal < ordinal_) {
      to_main(entry.ref);
    } else {
      ++expiry_cursor_;
    }
  }
}

void Recency::detach(ExtentRef ref) {
  if (lists_[ref].order == Order::planned) {
    (void)planned_.erase(ref);
  } else {
    lists_.unlink(ref);
  }
}

void Recency::note_origin(ExtentRef ref) {
  ExtentRecord& record = lists_[ref];
  clear(record.flags, kByRecency | kFromMain);
  if (record.order == Order::main || record.order == Order::returning) {
    record.flags |= kByRecency | kFromMain;
  } else if (record.order == Order::probation || record.order == Order::fresh) {
    record.flags |= kByRecency;
  }
}

/// A reference was seen: moves the extent to the head of main, as if it had just been used.
void Recency::to_main(ExtentRef ref) {
  detach(ref);
  ExtentRecord& record = lists_[ref];
  record.stamp = clock_;
  clear(record.flags, kTouched | kFailed | kPassed);
  lists_.push_head(Order::main, ref);
}

/// Returns how many of `limit` victims `out` can take. Memory for them is allocated before anything
/// changes.
unsigned Recency::room_for(Vector<Victim>& out, unsigned limit) const {
  const std::size_t wanted = std::min<std::size_t>({limit, lists_.size(), std::size_t{1} << 20});
  if (out.capacity() - out.size() < wanted) {
    try {
      out.reserve(out.size() + wanted);
    } catch (const std::exception&) {
      return static_cast<unsigned>(out.capacity() - out.size());
    }
  }
  return static_cast<unsigned>(wanted);
}

/// Returns the first ordinal beyond the horizon; the max ordinal is always beyond it.
std::uint64_t Recency::first_far_ordinal() const {
  const std::uint64_t near = ordinal_ + std::min(horizon_, ~ordinal_);
  return near + std::min<std::uint64_t>(1, ~near);
}

void Recency::give(Search& search, ExtentRef ref, bool dirty, std::uint32_t bytes) {
  search.out.push_back({ref, dirty});  // room_for() reserved the memory.
  note_origin(ref);
  detach(ref);
  lists_.push_head(Order::leaving, ref);
  search.bytes += bytes;
  ++search.count;
}

Status Recency::check() const {
  std::array<std::uint64_t, kOrders> units{};
  std::array<std::uint32_t, kOrders> count{};
  for (ExtentRef ref = 0; ref < lists_.size(); ++ref) {
    const auto order = static_cast<std::size_t>(lists_[ref].order);
    if (order >= kOrders) {
      return fail(Code::internal, "recency: extent {} has order {}, of {}", ref, order, kOrders);
    }
    units[order] += lists_[ref].units;
    ++count[order];
  }
  for (std::size_t i = 1; i < kOrders; ++i) {
    const auto list = static_cast<Order>(i);
    if (units[i] != lists_.units(list) || count[i] != lists_.count(list)) {
      return fail(Code::internal,
                  "recency: list {} is booked as {} extents of {} units, its records are {} of {}",
                  i, lists_.count(list), lists_.units(list), count[i], units[i]);
    }
    if (list == Order::planned) {
      continue;
    }
    // As many steps as records: a cycle, or a link into another list, shows within these steps or
    // at the end.
    ExtentRef before = kNoLink, ref = lists_.head(list);
    for (std::uint32_t n = 0; n < count[i]; ++n) {
      if (ref >= lists_.size() || lists_[ref].order != list || lists_[ref].prev != before) {
        return fail(Code::internal, "recency: list {} is broken after {} of {} extents", i, n,
                    count[i]);
      }
      before = ref;
      ref = lists_[ref].next;
    }
    if (ref != kNoLink || lists_.tail(list) != before) {
      return fail(Code::internal, "recency: list {} does not end after its {} extents", i,
                  count[i]);
    }
  }
  if (planned_.size() != count[static_cast<std::size_t>(Order::planned)]) {
    return fail(Code::internal, "recency: {} extents are planned, the heap holds {}",
                count[static_cast<std::size_t>(Order::planned)], planned_.size());
  }
  for (std::size_t i = 0; i < planned_.size(); ++i) {
    const NextUseHeap::Entry& entry = planned_.at(i);
    if (lists_[entry.ref].order != Order::planned || lists_[entry.ref].prev != i ||
        (i > 0 && planned_.at((i - 1) / 2).ordinal < entry.ordinal)) {
      return fail(Code::internal, "recency: entry {} of the heap, extent {}, is out of place", i,
                  entry.ref);
    }
  }
  return {};
}

}  // namespace tiermem
