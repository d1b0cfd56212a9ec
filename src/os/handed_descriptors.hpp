// Descriptors that another process with more rights opens for this one: `tiermem run` for a program
// that has changed its user or its root directory. Without a source nothing is handed over.
//
// Threads: any, once the source is set.
#pragma once

#include <cstdint>

namespace tiermem {

enum class Handed : std::uint8_t {
  userfault_device,  ///< /dev/userfaultfd, open.
  scratch_file,  ///< A file without a name in directory `path`; the second one, if there is one,
                 ///< is the same file for direct I/O.
};

inline constexpr int kMostHanded = 2;

/// Fills `descriptors` and returns their number, 0 when nothing is handed over. The caller owns
/// them; they are closed on exec. May change errno.
using DescriptorSource = int (*)(Handed what, const char* path, int (&descriptors)[kMostHanded]);

/// Sets the source of this process. Called once, before there is a context.
void set_descriptor_source(DescriptorSource source);
bool has_descriptor_source();

/// Asks the source. Returns 0 without one.
int handed_descriptors(Handed what, const char* path, int (&descriptors)[kMostHanded]);

}  // namespace tiermem
