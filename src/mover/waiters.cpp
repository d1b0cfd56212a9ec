#include "mover/waiters.hpp"

#include <algorithm>
#include <vector>

#include "base/error.hpp"

namespace tiermem {

void Waiters::wait_for_transfer(Request& request, std::uint32_t index) {
  begin(request, index);
  std::uint32_t at = 0;
  if (!free_.empty()) {
    at = free_.back();
    free_.pop_back();
  } else {
    at = static_cast<std::uint32_t>(waiters_.size());
    waiters_.emplace_back();
  }
  Extent& extent = directory_.at(request.needs[index].ref);
  waiters_[at] = {&request, index, extent.waiters, engine_.ended().count()};
  extent.waiters = at + 1;
}

void Waiters::wait_for_pins(Request& request, std::uint32_t index) {
  begin(request, index);
  for_pins_.emplace_back(&request, index);
  engine_.watch(request.needs[index].ref);
}

void Waiters::wait_for_prefetch(Request& request, std::uint32_t index) {
  begin(request, index);
  prefetches_.emplace_back(&request, index);
}

void Waiters::begin(Request& request, std::uint32_t index) {
  ++request.pending;
  request.needs[index].waiting = true;
}

bool Waiters::stop(Request& request, std::uint32_t index) {
  if (request.state == Request::State::done || !request.needs[index].waiting) {
    return false;
  }
  request.needs[index].waiting = false;
  --request.pending;
  return true;
}

Vector<Waiters::Woken> Waiters::take(const Ended& ended) {
  Vector<Woken> woken;
  for (std::uint32_t* link = &directory_.at(ended.ref).waiters; *link != 0;) {
    const std::uint32_t at = *link - 1;
    const Waiter& waiter = waiters_[at];
    if (waiter.since >= ended.number || (ended.begun && !waiter.request->for_stream)) {
      link = &waiters_[at].next;
      continue;
    }
    woken.emplace_back(waiter.request, waiter.need);
    *link = waiter.next;
    free_.push_back(at);
  }
  std::reverse(woken.begin(), woken.end());
  return woken;
}

Vector<Waiters::Woken> Waiters::take_for_pins() {
  if (!for_pins_.empty()) {
    engine_.unwatch_all();
  }
  return std::exchange(for_pins_, {});
}

void Waiters::take_prefetch() {
  const auto [request, index] = prefetches_.front();
  prefetches_.pop_front();
  (void)stop(*request, index);
}

void Waiters::forget(Request& request) {
  bool in_lists = false;
  for (Need& need : request.needs) {
    if (need.waiting) {
      need.waiting = false;
      take_off(need.ref, request);
      in_lists = true;
    }
  }
  if (in_lists) {
    std::erase_if(for_pins_, [&](const Woken& waiter) {
      if (waiter.first == &request) {
        engine_.unwatch(request.needs[waiter.second].ref);
      }
      return waiter.first == &request;
    });
    std::erase_if(prefetches_, [&](const Woken& waiter) { return waiter.first == &request; });
  }
}

// Takes the waiters of the request off the list of the extent.
void Waiters::take_off(ExtentRef ref, const Request& request) {
  std::uint32_t* link = &directory_.at(ref).waiters;
  while (*link != 0) {
    const std::uint32_t at = *link - 1;
    if (waiters_[at].request == &request) {
      *link = waiters_[at].next;
      free_.push_back(at);
    } else {
      link = &waiters_[at].next;
    }
  }
}

std::string Waiters::check(const Vector<Request*>& active) const {
  std::vector<ExtentRef> waited_for;
  std::size_t waiting = 0;
  for (const Request* request : active) {
    std::uint32_t pending = 0;
    for (const Need& need : request->needs) {
      if (need.waiting) {
        ++pending;
        waited_for.push_back(need.ref);
      }
    }
    if (request->kind != RequestKind::drain && pending != request->pending) {
      return fmt::format("a request has {} needs that wait, and counts {}", pending,
                         request->pending);
    }
    waiting += pending;
  }
  std::sort(waited_for.begin(), waited_for.end());
  waited_for.erase(std::unique(waited_for.begin(), waited_for.end()), waited_for.end());
  std::size_t listed = 0;
  for (const ExtentRef ref : waited_for) {
    for (std::uint32_t at = directory_.at(ref).waiters; at != 0; ++listed) {
      const Waiter& waiter = waiters_[at - 1];
      if (listed > waiters_.size() || !waiter.request->needs[waiter.need].waiting ||
          waiter.request->needs[waiter.need].ref != ref) {
        return fmt::format("the list of waiters for extent {} is broken", ref);
      }
      at = waiter.next;
    }
  }
  if (listed + for_pins_.size() + prefetches_.size() != waiting) {
    return fmt::format("{} needs wait: {} for extents, {} for pins, {} to be fetched ahead",
                       waiting, listed, for_pins_.size(), prefetches_.size());
  }
  if (listed + free_.size() != waiters_.size()) {
    return fmt::format("{} records of waiters: {} in lists, {} free", waiters_.size(), listed,
                       free_.size());
  }
  return {};
}

}  // namespace tiermem
