// Descriptors that a process with more rights opens for this one: `tiermem run` does so for a
// program that has changed its user or its root directory. Without a source there are none.
//
// Threads: any, once the source is set.
#pragma once

#include <cstdint>

namespace tiermem {

enum class Handed : std::uint8_t {
  userfault_device,  ///< /dev/userfaultfd, open.
  /// A file without a name in directory `path`. The second descriptor, if there is one, is the same
  /// file for direct I/O.
  scratch_file,
};

inline constexpr int kMostHanded = 2;

/// Fills `descriptors` and returns their number, or 0 if the source provides none. The caller owns
/// them; they are closed on exec. May change errno.
using DescriptorSource = int (*)(Handed what, const char* path, int (&descriptors)[kMostHanded]);

/// Sets the source of this process. Call once, before a context exists.
void set_descriptor_source(DescriptorSource source);
bool has_descriptor_source();

/// Asks the source. Returns 0 without a source.
int handed_descriptors(Handed what, const char* path, int (&descriptors)[kMostHanded]);

}  // namespace tiermem
