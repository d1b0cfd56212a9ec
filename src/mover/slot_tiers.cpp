#include "mover/slot_tiers.hpp"

#include <algorithm>
#include <cassert>

namespace tiermem {

SlotTiers::SlotTiers(std::size_t extents, std::span<SlotTier* const> by_rank, SlotTier* files,
                     Workers& workers, const SlotLedger::Options& options) {
  assert(by_rank.size() <= kMostWritableTiers);
  const SlotLedger::Options unworn{.degraded_ns = options.degraded_ns};
  for (SlotTier* const tier : by_rank) {
    const auto number = static_cast<std::uint8_t>(writable_);
    assert(!tier->compresses() || compressing_ == number);
    compressing_ += tier->compresses() ? 1 : 0;
    const bool first = !tier->compresses() && number == compressing_;
    by_rank_[writable_++] = &entries_.emplace_back(tier, number, workers, first ? options : unworn);
  }
  assert(writable_ == 0 || any_writable());
  asked_last_ = static_cast<std::uint8_t>(compressing_);
  if (files != nullptr) {
    entries_.emplace_back(files, kFileTier, workers, unworn);
  }
  for (Entry& entry : entries_) {
    entry.below_memory.set_most(extents);
    entry.replicated.set_most(extents);
  }
}

SlotTiers::Entry* SlotTiers::find(Place place) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.tier->place() == place; });
  return found == entries_.end() ? nullptr : &*found;
}

const ErrorInfo& SlotTiers::last_error() const {
  for (const Entry* const entry : lasting()) {
    if (entry->ledger.last_error().code == Code::ok) {
      return entry->ledger.last_error();
    }
  }
  return writable_ != 0 ? by_rank_[asked_last_]->ledger.last_error() : error_;
}

void SlotTiers::note_error(const ErrorInfo& error) {
  writable_ != 0 ? by_rank_[asked_last_]->ledger.note_error(error) : void(error_ = error);
}

bool SlotTiers::full() const {
  const auto all = lasting();
  return last_error().code != Code::ok &&
         std::any_of(all.begin(), all.end(), [](const Entry* entry) {
           return entry->ledger.last_error().code == Code::no_capacity;
         });
}

bool SlotTiers::paused(std::int64_t now) const {
  const auto all = lasting();
  return !all.empty() && std::all_of(all.begin(), all.end(),
                                     [&](const Entry* entry) { return entry->ledger.paused(now); });
}

std::int64_t SlotTiers::paused_until() const {
  std::int64_t until = writable_ != 0 ? kNever : 0;
  for (const Entry* const entry : lasting()) {
    until = std::min(until, entry->ledger.paused_until());
  }
  return until;
}

bool SlotTiers::tries_again(std::int64_t now) const {
  const auto all = writable();
  return std::any_of(all.begin(), all.end(),
                     [&](const Entry* entry) { return entry->ledger.tries_again(now); });
}

unsigned SlotTiers::jobs() const {
  unsigned jobs = 0;
  for (const Entry& entry : entries_) {
    jobs += entry.ledger.jobs();
  }
  return jobs;
}

std::int64_t SlotTiers::next(std::int64_t now) const {
  std::int64_t next = kNever;
  for (const Entry* const entry : writable()) {
    next = std::min(next, entry->ledger.next(now));
  }
  return next;
}

bool SlotTiers::can_follow_fork() const {
  const auto all = lasting();
  return std::none_of(all.begin(), all.end(),
                      [](const Entry* entry) { return entry->ledger.shared().is_full(); });
}

std::uint32_t SlotTiers::parent_of_child() {
  std::uint32_t child = 0;
  for (Entry* const entry : lasting()) {
    child = entry->ledger.parent_of_child();
  }
  return child;
}

void SlotTiers::child_of_parent() {
  for (Entry* const entry : lasting()) {
    entry->ledger.child_of_parent();
  }
}

void SlotTiers::child_ended(std::uint32_t child) {
  for (Entry* const entry : lasting()) {
    entry->ledger.child_ended(child);
  }
}

bool SlotTiers::waits_for_child() const {
  const auto all = lasting();
  return std::any_of(all.begin(), all.end(),
                     [](const Entry* entry) { return !entry->ledger.shared().kept().empty(); });
}

void SlotTiers::test_begin_near_wrap(std::uint32_t left) {
  for (Entry* const entry : lasting()) {
    entry->ledger.test_begin_near_wrap(left);
  }
}

std::string SlotTiers::check() const {
  for (const Entry& entry : entries_) {
    if (std::string wrong = entry.ledger.check(); !wrong.empty()) {
      return wrong;
    }
  }
  return {};
}

}  // namespace tiermem
