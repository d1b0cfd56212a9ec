// The limit of the process or of the machine that made the kernel refuse memory, as a message.
//
// Threads: any. Reads procfs with system calls only, and allocates nothing except the Status.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

#include "tiermem/status.hpp"

namespace tiermem::host {

enum class Wanted : std::uint8_t {
  addresses,  ///< Address space that is not writable: charged to RLIMIT_AS only.
  memory,     ///< Writable memory.
};

/// Returns no_capacity with the message "WHAT: the kernel refused BYTES of memory: LIMIT; REMEDY",
/// the native code `error` and the name of the setting. `error` is the errno of the refused call.
Status refused_memory(int error, std::uint64_t bytes, Wanted wanted, std::string_view what);

/// The same, with `what` formatted.
template <typename... Args>
Status refused(int error, std::uint64_t bytes, Wanted wanted, fmt::format_string<Args...> format,
               Args&&... args) {
  char what[128];
  const auto end = fmt::format_to_n(what, sizeof(what), format, std::forward<Args>(args)...);
  return refused_memory(error, bytes, wanted, {what, static_cast<std::size_t>(end.out - what)});
}

/// Writes LIMIT and REMEDY of the message above, and the name of the setting, for a message of the
/// caller: "RLIMIT_AS (ulimit -v) is 1 GiB, of which 950 MiB are in use; raise it". Returns false
/// if no limit of the process or setting of the machine is reached.
bool explain_refusal(std::uint64_t bytes, Wanted wanted, char* text, std::size_t text_room,
                     char* setting, std::size_t setting_room);

/// Returns the bytes of address space in use, and the part in writable private mappings, as
/// RLIMIT_AS and RLIMIT_DATA count them. 0: unknown.
std::uint64_t address_space_in_use();
std::uint64_t data_in_use();
/// Returns whether vm.overcommit_memory is 2: the kernel counts every writable page.
bool counts_commit();

}  // namespace tiermem::host
