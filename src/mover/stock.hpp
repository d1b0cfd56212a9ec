// The stock: small buffers made before they are asked for, and kept among the spare ones, so that a
// program that allocates many visits the mover once for dozens. Also the spare buffers that were
// given up, which the next step frees. The stepping thread only; never waits.
//
//   order.under_way == the number of transfers that make buffers of the order, plus one while the
//                      order begins
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "base/arena.hpp"
#include "residency/directory.hpp"
#include "residency/residency.hpp"

namespace tiermem {

class Stock {
 public:
  explicit Stock(Residency& residency) : residency_(residency), directory_(residency) {}

  /// Begins an order of buffers of one extent of `bytes`. Returns false if the program has not used
  /// those of the last order: then the order has ended.
  bool begin_order(std::uint64_t bytes, bool refused);
  /// Creates a spare buffer and returns its extent, which has no frame. An error ends the order.
  Result<ExtentRef> create(std::uint64_t bytes);
  /// A transfer brings the frame of the extent.
  void begin(ExtentRef ref);
  /// The transfer has ended. Returns whether the buffer is a spare now. Otherwise it is given up,
  /// and the caller takes its frame.
  bool end(ExtentRef ref, bool came);
  /// All transfers of the order have begun.
  void order_begun(std::uint64_t bytes);

  /// Gives the buffer up. The next step frees it: this is the middle of a request or a transfer.
  void give_up(std::uint32_t index) { given_up_.push_back(index); }
  /// Returns the buffers that were given up since the last call.
  Vector<std::uint32_t> take_given_up() { return std::exchange(given_up_, {}); }
  bool any_given_up() const { return !given_up_.empty(); }
  /// The buffers that are being made, and those that were given up.
  std::uint64_t under_way() const;

 private:
  struct Order {
    unsigned under_way = 0;  // Spare buffers of the order that are being made.
    Vector<ExtentRef> made;  // By the last order.
  };

  std::uint8_t shift_of(ExtentRef ref) const;
  void end_one(unsigned shift);

  Residency& residency_;
  const Directory directory_;
  std::array<Order, 27> orders_;  // By the logarithm of the extent's size.
  Vector<std::uint32_t> given_up_;
};

}  // namespace tiermem
