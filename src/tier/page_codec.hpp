// The compression of one page, by LZ4. A build without LZ4 has no codec.
//
// Threads: one at a time for each object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tier/frame.hpp"

namespace tiermem {

class PageCodec {
 public:
  /// A page that is not packed to three quarters of its size is kept as it is.
  static constexpr std::size_t kMostPacked = kSmallestExtent / 4 * 3;

  /// Returns whether this build has LZ4. Without it nothing is ever packed.
  static bool available();

  PageCodec();
  ~PageCodec();
  PageCodec(const PageCodec&) = delete;
  PageCodec& operator=(const PageCodec&) = delete;

  /// Packs a page into `packed`, of kMostPacked bytes. Returns the packed size, or 0 if the page
  /// needs more.
  std::size_t pack(const std::byte* page, std::byte* packed);
  /// Returns false if the bytes are not a packed page. `page` is then undefined.
  static bool unpack(const std::byte* packed, std::size_t bytes, std::byte* page);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tiermem
