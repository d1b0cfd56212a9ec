// Calls that move bytes between the program's buffers and a file, a socket or a pipe, through plain
// memory. A large transfer is split into pieces if the result is the same as the kernel's: for
// files, and for writes to a stream. A message is never split.
// Any thread, also in handlers of signals. All return the result, or minus the error.
#pragma once

#if defined(__x86_64__)

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>

#include "preload/system_call.hpp"

namespace tiermem::preload {

inline constexpr std::size_t kPiece = std::size_t{256} << 10;

/// Whether the call moves the bytes of one buffer.
bool moves_bytes(long number);
long transfer(const SystemCall& call);

/// Calls with pointers behind pointers: readv and its relatives, sendmsg and recvmsg. Their
/// structures are the program's memory, and are touched as such.
long wrapped_behind(const SystemCall& call);

/// Whether anything that the call refers to is in the regions' range.
bool any_wrapped(const iovec* parts, std::size_t count);
bool any_wrapped(const msghdr* message);

}  // namespace tiermem::preload

#endif
