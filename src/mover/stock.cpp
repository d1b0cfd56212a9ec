// Stock: small buffers made before they are asked for, and kept among the spare ones, so that a
// program that allocates many visits the mover once for dozens. The stepping thread only.
#include <algorithm>
#include <bit>

#include "mover/mover.hpp"

namespace tiermem {

// Makes buffers that a program will ask for if it allocates many of this size. They get only frames
// that are free or about to be, because no request waits for them.
void Mover::make_stock(Request& request) {
  const auto shift = static_cast<std::uint8_t>(std::countr_zero(request.value));
  Stock& stock = stock_[shift];
  const auto untouched = std::count_if(stock.made.begin(), stock.made.end(), [&](ExtentRef ref) {
    return directory_.word(kHost, ref).load().phase() == Phase::vacant;
  });
  const auto idle = static_cast<unsigned>(untouched);
  // Allocated and not used: a program that does so needs no frames yet.
  if (refuses_ || idle > residency_.spares.in_stock(shift) + stock.made.size() / 4) {
    residency_.spares.end_order(shift, false);
    return;
  }
  stock.made.clear();
  BufferShape shape;
  shape.bytes = request.value;
  shape.extent_shift = shift;
  shape.extents = 1;
  ++stock.under_way;  // So that the order does not end before its last one is begun.
  for (std::uint32_t i = 0; i < request.index && room_queue_.empty(); ++i) {
    Result<Handle> handle = residency_.buffers.create(shape);
    if (!handle.ok()) {
      break;
    }
    (void)residency_.buffers.mark_freed(*handle);
    const std::uint32_t index = Buffers::index_of(*handle);
    const ExtentRef ref = residency_.buffers.at(index).first.load(std::memory_order_relaxed);
    directory_.begin(ref, index, false);
    const FrameId frame = find_record(kHost, ref) ? take_frame(ref, kHost) : FrameId{};
    if (!frame.valid()) {
      reclaimed_.push_back(index);
      const std::uint64_t rest = (request.index - i) * request.value;
      note_shortage(kHost, rest);
      trim(memories_[kHost], rest);
      make_room(kHost, rest, Priority::background);
      break;
    }
    ++stock.under_way;
    stock.made.push_back(ref);
    start_promote(ref, kHost, frame, Priority::background, nullptr);
  }
  end_of_stock(shift);
}

// One of them is there, or could not be had.
void Mover::stocked(ExtentRef ref, bool made) {
  const std::uint32_t index = directory_.at(ref).buffer;
  const std::uint8_t shift =
      residency_.buffers.at(index).extent_shift.load(std::memory_order_relaxed);
  if (!made || !residency_.spares.put_made(index, {1, shift, false})) {
    (void)leave(ref, kHost, true);
    reclaimed_.push_back(index);
  }
  end_of_stock(shift);
}

void Mover::end_of_stock(unsigned shift) {
  if (--stock_[shift].under_way == 0) {
    residency_.spares.end_order(shift, true);
  }
}

}  // namespace tiermem
