// Structs that grow. They begin with their size, and caller and library may know different
// versions. These are pure functions over bytes, without state. Any thread may call them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace tiermem::c_abi {

/// An upper bound for every struct of ours. A larger size means that the caller did not initialise
/// it.
inline constexpr std::size_t kLargestRecord = 4096;

enum class RecordFault { none, bad_size, unknown_field };

/// Reads a caller's options into `ours`, which holds the defaults before the call. `smallest` is
/// the size of version 1. An older struct leaves the defaults of its missing fields. A newer struct
/// must be 0 in every byte that this library does not know.
template <typename Options>
RecordFault read_options(const void* theirs, std::size_t smallest, Options& ours) noexcept {
  static_assert(std::is_trivially_copyable_v<Options> && offsetof(Options, size) == 0);
  std::size_t size = 0;
  std::memcpy(&size, theirs, sizeof(size));
  if (size < smallest || size > kLargestRecord) {
    return RecordFault::bad_size;
  }
  const auto* bytes = static_cast<const unsigned char*>(theirs);
  for (std::size_t i = sizeof(Options); i < size; ++i) {
    if (bytes[i] != 0) {
      return RecordFault::unknown_field;
    }
  }
  std::memcpy(&ours, theirs, std::min(size, sizeof(Options)));
  return RecordFault::none;
}

/// Returns whether a caller's information struct can be filled.
inline bool size_fits(const void* theirs, std::size_t smallest) noexcept {
  std::size_t size = 0;
  std::memcpy(&size, theirs, sizeof(size));
  return size >= smallest && size <= kLargestRecord;
}

/// Fills a caller's struct as far as both sides know it, and the rest with 0. The size of the
/// struct was checked before. Leaves its `size` unchanged.
template <typename Info>
void fill_info(void* theirs, const Info& ours) noexcept {
  static_assert(std::is_trivially_copyable_v<Info> && offsetof(Info, size) == 0);
  std::size_t size = 0;
  std::memcpy(&size, theirs, sizeof(size));
  // Another thread of the caller may have changed the size since size_fits().
  size = std::clamp(size, sizeof(size), kLargestRecord);
  const std::size_t known = std::min(size, sizeof(Info));
  auto* bytes = static_cast<unsigned char*>(theirs);
  std::memcpy(bytes + sizeof(size), reinterpret_cast<const unsigned char*>(&ours) + sizeof(size),
              known - sizeof(size));
  std::memset(bytes + known, 0, size - known);
}

}  // namespace tiermem::c_abi
