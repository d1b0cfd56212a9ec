#include "mover/stock.hpp"

#include <algorithm>
#include <bit>

namespace tiermem {

bool Stock::begin_order(std::uint64_t bytes, bool refused) {
  const auto shift = static_cast<std::uint8_t>(std::countr_zero(bytes));
  Order& order = orders_[shift];
  const auto untouched = std::count_if(order.made.begin(), order.made.end(), [&](ExtentRef ref) {
    return directory_.word(kHost, ref).load().phase() == Phase::vacant;
  });
  const auto idle = static_cast<unsigned>(untouched);
  // Allocated and not used: a program that does so needs no frames yet.
  if (refused || idle > residency_.spares.in_stock(shift) + order.made.size() / 4) {
    residency_.spares.end_order(shift, false);
    return false;
  }
  order.made.clear();
  ++order.under_way;  // So that the order does not end before its last one is begun.
  return true;
}

Result<ExtentRef> Stock::create(std::uint64_t bytes) {
  BufferShape shape;
  shape.bytes = bytes;
  shape.extent_shift = static_cast<std::uint8_t>(std::countr_zero(bytes));
  shape.extents = 1;
  Result<Handle> handle = residency_.buffers.create(shape);
  if (!handle.ok()) {
    return std::move(handle).status();
  }
  (void)residency_.buffers.mark_freed(*handle);
  const std::uint32_t index = Buffers::index_of(*handle);
  const ExtentRef ref = residency_.buffers.at(index).first.load(std::memory_order_relaxed);
  directory_.begin(ref, index, false);
  return ref;
}

void Stock::begin(ExtentRef ref) {
  Order& order = orders_[shift_of(ref)];
  ++order.under_way;
  order.made.push_back(ref);
}

bool Stock::end(ExtentRef ref, bool came) {
  const std::uint32_t index = directory_.at(ref).buffer;
  const std::uint8_t shift = shift_of(ref);
  const bool kept = came && residency_.spares.put_made(index, {1, shift, false});
  if (!kept) {
    give_up(index);
  }
  end_one(shift);
  return kept;
}

void Stock::order_begun(std::uint64_t bytes) {
  end_one(static_cast<unsigned>(std::countr_zero(bytes)));
}

std::uint64_t Stock::under_way() const {
  std::uint64_t buffers = given_up_.size();
  for (const Order& order : orders_) {
    buffers += order.under_way;
  }
  return buffers;
}

std::uint8_t Stock::shift_of(ExtentRef ref) const {
  return directory_.record_of(ref).extent_shift.load(std::memory_order_relaxed);
}

void Stock::end_one(unsigned shift) {
  if (--orders_[shift].under_way == 0) {
    residency_.spares.end_order(shift, true);
  }
}

}  // namespace tiermem
