#include "tier/page_codec.hpp"

#include "base/arena.hpp"

#ifdef TIERMEM_HAVE_LZ4
#include <lz4.h>

namespace tiermem {

struct PageCodec::State : InArena {
  LZ4_stream_t stream;
};

bool PageCodec::available() {
  return true;
}

std::size_t PageCodec::pack(const std::byte* page, std::byte* packed) {
  const int bytes = LZ4_compress_fast_extState(
      &state_->stream, reinterpret_cast<const char*>(page), reinterpret_cast<char*>(packed),
      static_cast<int>(kSmallestExtent), static_cast<int>(kMostPacked), 1);
  return static_cast<std::size_t>(bytes);
}

bool PageCodec::unpack(const std::byte* packed, std::size_t bytes, std::byte* page) {
  return LZ4_decompress_safe(reinterpret_cast<const char*>(packed), reinterpret_cast<char*>(page),
                             static_cast<int>(bytes), static_cast<int>(kSmallestExtent)) ==
         static_cast<int>(kSmallestExtent);
}

#else

namespace tiermem {

struct PageCodec::State : InArena {};

bool PageCodec::available() {
  return false;
}

std::size_t PageCodec::pack(const std::byte*, std::byte*) {
  return 0;
}

bool PageCodec::unpack(const std::byte*, std::size_t, std::byte*) {
  return false;
}

#endif

PageCodec::PageCodec() : state_(new State) {}
PageCodec::~PageCodec() = default;

}  // namespace tiermem
