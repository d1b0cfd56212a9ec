// Which limit of the process or of the machine made the kernel refuse memory, as a sentence.
//
// Threads: any. Reads procfs with system calls alone, and takes no memory but for the Status.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

#include "tiermem/status.hpp"

namespace tiermem::host {

enum class Wanted : std::uint8_t {
  addresses,  ///< Address space that may not be written: charged to RLIMIT_AS only.
  memory,     ///< Memory that may be written.
};

/// no_capacity with the sentence "WHAT: the kernel refused BYTES of memory: LIMIT; REMEDY", `error`
/// as its native code, and the name of the setting. `error` is the errno of the refused call.
Status refused_memory(int error, std::uint64_t bytes, Wanted wanted, std::string_view what);

/// The same, with `what` formatted.
template <typename... Args>
Status refused(int error, std::uint64_t bytes, Wanted wanted, fmt::format_string<Args...> format,
               Args&&... args) {
  char what[128];
  const auto end = fmt::format_to_n(what, sizeof(what), format, std::forward<Args>(args)...);
  return refused_memory(error, bytes, wanted, {what, static_cast<std::size_t>(end.out - what)});
}

/// Writes LIMIT and REMEDY of the above, "RLIMIT_AS (ulimit -v) is 1 GiB, of which 950 MiB are in
/// use; raise it", and the setting's name, for a sentence of the caller's. False: no limit of the
/// process or of the machine's settings is reached.
bool explain_refusal(std::uint64_t bytes, Wanted wanted, char* text, std::size_t text_room,
                     char* setting, std::size_t setting_room);

/// Bytes of address space in use, and of these in writable private mappings, as RLIMIT_AS and
/// RLIMIT_DATA count them. 0 when unknown.
std::uint64_t address_space_in_use();
std::uint64_t data_in_use();
/// vm.overcommit_memory is 2: the kernel counts each page that may be written.
bool counts_commit();

}  // namespace tiermem::host
