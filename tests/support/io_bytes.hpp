// The position in memory of a request's byte: for test ports, which copy bytes themselves.
#pragma once

#include <cstddef>
#include <cstdint>

#include "os/io_port.hpp"

namespace tiermem {

inline std::byte* byte_of(const IoRequest& request, std::uint64_t at) {
  for (const iovec& part : request.vectors) {
    if (at < part.iov_len) {
      return static_cast<std::byte*>(part.iov_base) + at;
    }
    at -= part.iov_len;
  }
  return request.data + at;
}

}  // namespace tiermem
