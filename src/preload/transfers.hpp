// Calls that move bytes between the program's buffers and a file, a socket or a pipe, by way of
// plain memory. A large one is made in pieces where the kernel's own answer may be had that way: of
// files, and when writing to a stream. A message is never cut.
//
// Any thread, also in handlers of signals. All return the result, or minus the error.
#pragma once

#if defined(__x86_64__)

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>

#include "preload/system_call.hpp"

namespace tiermem::preload {

inline constexpr std::size_t kPiece = std::size_t{256} << 10;

/// Does the call move bytes of one buffer?
bool moves_bytes(long number);
long transfer(const SystemCall& call);

/// Calls with pointers behind pointers: readv and its relatives, sendmsg and recvmsg. Their own
/// structures are the program's, and touched as such.
long wrapped_behind(const SystemCall& call);

/// Is anything that the call refers to in the regions' range?
bool any_wrapped(const iovec* parts, std::size_t count);
bool any_wrapped(const msghdr* message);

}  // namespace tiermem::preload

#endif
