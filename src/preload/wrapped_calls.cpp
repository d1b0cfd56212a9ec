// Three kinds of calls: those that move bytes (transfers.cpp), those in the table, and all others.
#include "preload/wrapped_calls.hpp"

#if defined(__x86_64__)

#include <asm/ioctl.h>
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "preload/call_shapes.hpp"
#include "preload/cancellation.hpp"
#include "preload/exec.hpp"
#include "preload/region.hpp"
#include "preload/scratch.hpp"
#include "preload/transfers.hpp"

namespace tiermem::preload {
namespace {

constexpr std::size_t kPage = 4096;
constexpr int kFutexLockPi2 = 13;  // Linux 5.14

template <typename T = std::byte>
T* pointer(std::uint64_t argument) {
  return reinterpret_cast<T*>(argument);  // A register's value.
}

/// Returns how many bytes from the beginning of the range may be absent. 0: the range is not
/// tiered, or it stays, so the kernel may use it directly.
std::size_t absent_bytes(std::uint64_t address, std::size_t length) {
  if (!in_wrapped_range(address)) {
    return 0;
  }
  const Stretch stretch = stretch_at(pointer(address), length);
  // If not, the kernel returns EFAULT.
  const bool readable = (stretch.protection & PROT_READ) != 0;
  return stretch.may_be_absent && readable ? stretch.bytes : 0;
}

void touch(std::uint64_t address, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kPage) {
    (void)*pointer<const volatile std::byte>(address + at);
  }
  if (bytes != 0) {
    (void)*pointer<const volatile std::byte>(address + bytes - 1);
  }
}

// ---- calls in the table ------------------------------------------------------------------------

/// A pointer of a call, and the plain memory in its place.
struct Swapped {
  Way way = Way::none;
  std::uint16_t unit = 0;
  std::uint64_t original = 0;
  std::byte* plain = nullptr;
  std::size_t bytes = 0;
};

std::size_t size_of(const Pointer& what, const SystemCall& call) {
  if (what.way == Way::sized) {
    const auto* const length = pointer<const std::uint32_t>(call.arguments[what.count]);
    return length == nullptr ? 0 : std::min<std::size_t>(*length, what.unit);
  }
  // One more than a piece holds: swap_in() then asks for a piece.
  const std::uint64_t count =
      what.count == kOnce ? 1 : std::min<std::uint64_t>(call.arguments[what.count], kPiece + 1);
  return what.unit * count;
}

// Returns false if there is no room.
bool swap_in(Scratch& scratch, SystemCall& call, Swapped& swapped, const Pointer& what) {
  std::uint64_t& argument = call.arguments[what.argument];
  std::size_t bytes = in_wrapped_range(argument) ? size_of(what, call) : 0;
  if (bytes == 0 ||
      (absent_bytes(argument, 1) == 0 && absent_bytes(argument + bytes - 1, 1) == 0)) {
    return true;
  }
  if (what.way == Way::fills && bytes > kPiece) {
    bytes = kPiece / what.unit * what.unit;
    call.arguments[what.count] = bytes / what.unit;
  }
  // The kernel returns EFAULT for memory that the program may not touch.
  const int access = what.way == Way::fills || what.way == Way::both || what.way == Way::sized
                         ? PROT_WRITE
                         : PROT_READ;
  const std::size_t accessible = accessible_bytes(pointer(argument), bytes, access);
  if (accessible < bytes && (what.way != Way::text || accessible == 0)) {
    return true;
  }
  bytes = accessible;
  std::byte* const plain = scratch.take(bytes);
  if (plain == nullptr) {
    return false;
  }
  if (what.way == Way::text) {
    // Without a terminating zero it is too long.
    (void)memccpy(plain, pointer(argument), '\0', bytes);
  } else if (what.way != Way::fills) {
    memcpy(plain, pointer(argument), bytes);
  }
  swapped = {what.way, what.unit, argument, plain, bytes};
  argument = reinterpret_cast<std::uint64_t>(plain);
  return true;
}

void swap_out(const Swapped& swapped, long result) {
  if (swapped.way == Way::fills) {
    const std::size_t filled = result > 0 ? static_cast<std::size_t>(result) : 0;
    memcpy(pointer(swapped.original), swapped.plain,
           std::min(filled * swapped.unit, swapped.bytes));
  } else if ((swapped.way == Way::both || swapped.way == Way::sized) &&
             (result >= 0 || result == -EINTR)) {  // With EINTR the kernel returns the rest of the
                                                   // time.
    memcpy(pointer(swapped.original), swapped.plain, swapped.bytes);
  }
}

// ---- all others --------------------------------------------------------------------------------

// If a page has left again before the kernel touches it, it is brought in again. A call that fails
// with EFAULT had no effect; calls for which that is not true are in the table.
long made_while_there(const SystemCall& call) {
  constexpr int kTries = 64;
  const unsigned count = addresses_of(call.number);
  // Calls without a line tell their sizes in many ways, and most are short.
  std::size_t most = 16 * kPage;
  if (call.number == SYS_ioctl) {
    most = std::max<std::size_t>(most, _IOC_SIZE(call.arguments[1]));
  }
  for (int tries = 0;; ++tries) {
    bool any = false;
    for (unsigned i = 0; i < count; ++i) {
      const std::size_t bytes = absent_bytes(call.arguments[i], most);
      touch(call.arguments[i], bytes);
      any = any || bytes != 0;
    }
    const long result = pass_and_wait(call);
    // The kernel has taken the message out of the queue.
    if (result != -EFAULT || !any || tries == kTries || call.number == SYS_msgrcv) {
      return result;
    }
    if (tries > 4) {
      sched_yield();
    }
  }
}

long shaped_call(const Shape& shape, SystemCall call) {
  Scratch scratch;
  std::array<Swapped, std::tuple_size_v<decltype(shape.pointers)>> swapped;
  for (std::size_t i = 0; i < swapped.size(); ++i) {
    const Pointer& what = shape.pointers[i];
    if (what.way != Way::none && !swap_in(scratch, call, swapped[i], what)) {
      return -ENOMEM;
    }
  }
  const long result = moves_bytes(call.number) ? transfer(call) : made_while_there(call);
  for (const Swapped& each : swapped) {
    swap_out(each, result);
  }
  return result;
}

// A futex word, or two. The kernel reads the word before it waits, never after. A page that leaves
// during the wait does no harm. A page that left earlier is brought in and read again.
long futex_call(SystemCall call) {
  const auto command = static_cast<int>(call.arguments[1]) & FUTEX_CMD_MASK;
  bool waits = false, has_second = false;
  switch (command) {
    case FUTEX_WAIT_REQUEUE_PI:
      has_second = true;
      [[fallthrough]];
    case FUTEX_WAIT:
    case FUTEX_WAIT_BITSET:
    case FUTEX_LOCK_PI:
    case kFutexLockPi2:
      waits = true;
      break;
    case FUTEX_REQUEUE:
    case FUTEX_CMP_REQUEUE:
    case FUTEX_CMP_REQUEUE_PI:
    case FUTEX_WAKE_OP:
      has_second = true;
      break;
    default:
      break;
  }
  Scratch scratch;
  Swapped timeout;
  if (waits && !swap_in(scratch, call, timeout, {3, Way::in, sizeof(timespec), kOnce})) {
    return -ENOMEM;
  }
  for (;;) {
    const std::size_t first = absent_bytes(call.arguments[0], sizeof(std::uint32_t));
    const std::size_t second =
        has_second ? absent_bytes(call.arguments[4], sizeof(std::uint32_t)) : 0;
    touch(call.arguments[0], first);
    touch(has_second ? call.arguments[4] : 0, second);
    const long result = waits ? pass_and_wait(call) : pass(call);
    if (result != -EFAULT || first + second == 0) {
      return result;
    }
  }
}

// Three sets of bits and a timeout. The data behind pselect6's last pointer is on libc's stack.
Shape shape_of_select(const SystemCall& call) {
  const std::uint64_t words = (std::min<std::uint64_t>(call.arguments[0], 1 << 18) + 63) / 64;
  const auto bytes = static_cast<std::uint16_t>(words * 8);
  const auto both = [](std::uint8_t argument, std::uint16_t size) {
    return Pointer{argument, Way::both, size, kOnce};
  };
  return {{both(1, bytes), both(2, bytes), both(3, bytes), both(4, 16),
           call.number == SYS_pselect6 ? both(5, 16) : Pointer{}}};
}

// The first argument is an address that is only queried and must not be touched.
long ask_residency(const SystemCall& call) {
  const auto [address, length, answers] =
      std::tuple(call.arguments[0], call.arguments[1], call.arguments[2]);
  const std::size_t pages = length / kPage + (length % kPage != 0 ? 1 : 0);
  if (absent_bytes(answers, std::max<std::size_t>(pages, 1)) == 0) {
    return pass(call);
  }
  Scratch scratch;
  std::byte* const plain = scratch.take(kPiece);
  if (plain == nullptr) {
    return -EAGAIN;
  }
  for (std::size_t done = 0; done < pages; done += kPiece) {
    const std::size_t now = std::min(pages - done, kPiece);
    const long result = pass(
        {SYS_mincore,
         {address + done * kPage, now * kPage, reinterpret_cast<std::uint64_t>(plain), 0, 0, 0}});
    if (result < 0) {
      return result;
    }
    memcpy(pointer(answers + done), plain, now);
  }
  return 0;
}

}  // namespace

long wrapped_call(const SystemCall& call) {
  switch (call.number) {
    case SYS_execve:
    case SYS_execveat:
      return wrapped_exec(call);
    case SYS_futex:
      return futex_call(call);
    case SYS_select:
    case SYS_pselect6:
      return shaped_call(shape_of_select(call), call);
    case SYS_mincore:
      return ask_residency(call);
    default:
      break;
  }
  if (has_vectors(call.number) || has_message(call.number)) {
    return wrapped_behind(call);
  }
  static constexpr Shape kNone{};
  const Shape* const shape = shape_of(call.number);
  return shaped_call(shape != nullptr ? *shape : kNone, call);
}

}  // namespace tiermem::preload

#endif
