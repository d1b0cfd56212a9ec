// The states of the pages of one region: an ordered map of runs of equal pages. A page that the map
// does not contain is in the state of a fresh mapping: tiered, read-write, not locked. A region
// that the program never changes has an empty map.
//
// Pure: makes no system call and knows no region. Threads: the caller's lock guards it. A change
// either happens as a whole, or throws std::bad_alloc and alters nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include "base/arena.hpp"
#include "preload/page_state.hpp"

namespace tiermem::preload {

struct PageStatesValue {
  std::byte* end;
  PageState state;
};

class PageStates {
 public:
  struct Run {
    Part part;
    PageState state;
  };

  /// Every page is in the fresh state.
  bool plain() const { return runs_.empty(); }

  PageState at(std::byte* page) const {
    const auto after = runs_.upper_bound(page);
    if (after == runs_.begin()) {
      return {};
    }
    const auto& [begin, run] = *std::prev(after);
    return page < run.end ? run.state : PageState{};
  }

  /// The longest run of equal pages from the beginning of the part.
  Run first_of(Part part) const {
    const auto after = runs_.upper_bound(part.begin);
    if (after != runs_.begin()) {
      const auto& run = std::prev(after)->second;
      if (part.begin < run.end) {
        return {{part.begin, size(part.begin, std::min(run.end, part.end()))}, run.state};
      }
    }
    std::byte* const end = after == runs_.end() ? part.end() : std::min(after->first, part.end());
    return {{part.begin, size(part.begin, end)}, {}};
  }

  /// Calls `visit(part, state)` for each run within the part, in order, until it returns false.
  /// `visit` must not change the states.
  template <typename Visit>
  bool for_runs(Part part, Visit&& visit) const {
    while (part.length != 0) {
      const Run run = first_of(part);
      if (!visit(run.part, run.state)) {
        return false;
      }
      part = {run.part.end(), part.length - run.part.length};
    }
    return true;
  }

  template <typename Is>
  bool any(Part part, Is&& is) const {
    return !for_runs(part, [&](Part, const PageState& state) { return !is(state); });
  }

  /// A change that needs no further allocation and can be undone.
  class Change {
    friend class PageStates;
    Part span_;
    Map<std::byte*, PageStatesValue> runs_;
  };

  /// Calls `change(state)` with a copy of the state of each run within the part. Nothing changes
  /// before apply().
  template <typename Alter>
  Change prepare(Part part, Alter&& alter) const {
    if (part.length == 0) {
      return {};
    }
    // The runs that the part overlaps or touches are rebuilt, with their pages outside the part.
    Change made;
    auto first = runs_.lower_bound(part.begin);
    if (first != runs_.begin() && std::prev(first)->second.end >= part.begin) {
      --first;
    }
    const auto last = runs_.upper_bound(part.end());
    std::byte* begin = part.begin;
    std::byte* end = part.end();
    if (first != last) {
      begin = std::min(begin, first->first);
      end = std::max(end, std::prev(last)->second.end);
      append(made.runs_, first->first, std::min(first->second.end, part.begin),
             first->second.state);
    }
    for_runs(part, [&](Part run, PageState state) {
      alter(state);
      append(made.runs_, run.begin, run.end(), state);
      return true;
    });
    if (first != last) {
      const auto& run = *std::prev(last);
      append(made.runs_, std::max(run.first, part.end()), run.second.end, run.second.state);
    }
    made.span_ = {begin, size(begin, end)};
    return made;
  }

  /// Applying a change twice undoes it, if nothing else has changed since.
  void apply(Change& change) noexcept {
    Runs before;
    auto run = runs_.lower_bound(change.span_.begin);
    while (run != runs_.end() && run->first < change.span_.end()) {
      before.insert(before.end(), runs_.extract(run++));
    }
    runs_.merge(change.runs_);
    change.runs_ = std::move(before);
  }

  template <typename Alter>
  void change(Part part, Alter&& alter) {
    Change made = prepare(part, alter);
    apply(made);
  }

 private:
  using Value = PageStatesValue;
  // By the first page. Adjacent runs differ, and no run is fresh.
  using Runs = Map<std::byte*, Value>;

  static std::size_t size(const std::byte* begin, const std::byte* end) {
    return static_cast<std::size_t>(end - begin);
  }

  static void append(Runs& runs, std::byte* begin, std::byte* end, const PageState& state) {
    if (begin >= end || state == PageState{}) {
      return;
    }
    if (!runs.empty()) {
      Value& before = std::prev(runs.end())->second;
      if (before.end == begin && before.state == state) {
        before.end = end;
        return;
      }
    }
    runs.emplace_hint(runs.end(), begin, Value{end, state});
  }

  Runs runs_;
};

}  // namespace tiermem::preload
