// Splits a transfer into pieces: the bytes of one system call, and whether another follows.
#include "preload/transfers.hpp"

#include "base/checked.hpp"

#if defined(__x86_64__)

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/checked.hpp"
#include "preload/cancellation.hpp"
#include "preload/region.hpp"
#include "preload/scratch.hpp"

namespace tiermem::preload {
namespace {

// Messages are smaller, and a pipe never returns more at once.
constexpr std::size_t kMostAtOnce = std::size_t{3} << 20;
constexpr std::uint8_t kNoOffset = 0xFF;

/// The positions of a call's buffer, length and offset.
struct Layout {
  bool reads = false;  ///< Writes to the program's memory.
  std::uint8_t buffer = 0;
  std::uint8_t length = 0;
  std::uint8_t offset = kNoOffset;
};

bool layout_of(long number, Layout& layout) {
  switch (number) {
    case SYS_read:
    case SYS_recvfrom:
      layout = {true, 1, 2};
      return true;
    case SYS_write:
    case SYS_sendto:
      layout = {false, 1, 2};
      return true;
    case SYS_pread64:
      layout = {true, 1, 2, 3};
      return true;
    case SYS_pwrite64:
      layout = {false, 1, 2, 3};
      return true;
    case SYS_getrandom:
      layout = {true, 0, 1};
      return true;
    default:
      return false;
  }
}

enum class Kind : std::uint8_t { file, stream, message };

Kind kind_of(const SystemCall& call) {
  if (call.number == SYS_getrandom) {
    return Kind::file;
  }
  struct stat facts {};
  SystemCall ask{SYS_fstat, {call.arguments[0], reinterpret_cast<std::uint64_t>(&facts)}};
  if (pass(ask) != 0 || S_ISFIFO(facts.st_mode)) {
    return Kind::stream;
  }
  if (!S_ISSOCK(facts.st_mode)) {
    return Kind::file;
  }
  int type = 0;
  socklen_t bytes = sizeof(type);
  ask = {SYS_getsockopt,
         {call.arguments[0], SOL_SOCKET, SO_TYPE, reinterpret_cast<std::uint64_t>(&type),
          reinterpret_cast<std::uint64_t>(&bytes)}};
  return pass(ask) == 0 && type == SOCK_STREAM ? Kind::stream : Kind::message;
}

/// A list of buffers, read or written from beginning to end.
class Parts {
 public:
  Parts(const iovec* parts, std::size_t count) : parts_(parts), count_(count) {}

  const void* address() const { return static_cast<std::byte*>(parts_->iov_base) + inside_; }
  /// Copies the next bytes to plain memory.
  void to(std::byte* plain, std::size_t bytes) const {
    Parts rest = *this;
    rest.step(bytes, [&](const std::byte* at, std::size_t n) {
      memcpy(plain, at, n);
      plain += n;
    });
  }
  /// Copies to the next bytes and advances behind them.
  void from(const std::byte* plain, std::size_t bytes) {
    step(bytes, [&](std::byte* at, std::size_t n) {
      memcpy(at, plain, n);
      plain += n;
    });
  }
  void skip(std::size_t bytes) {
    step(bytes, [](std::byte*, std::size_t) {});
  }

 private:
  template <typename Copy>
  void step(std::size_t bytes, Copy&& copy) {
    while (bytes > 0 && count_ > 0) {
      const std::size_t n = std::min(bytes, parts_->iov_len - inside_);
      copy(static_cast<std::byte*>(parts_->iov_base) + inside_, n);
      bytes -= n;
      inside_ += n;
      skip_done();
    }
    skip_done();
  }
  void skip_done() {
    while (count_ > 0 && inside_ == parts_->iov_len) {
      ++parts_;
      --count_;
      inside_ = 0;
    }
  }

  const iovec* parts_;
  std::size_t count_;
  std::size_t inside_ = 0;  // Bytes of the first part that are done.
};

/// Moves `total` bytes by calls of `once(plain, bytes, done)`.
template <typename Once>
long move(Parts parts, std::size_t total, bool reads, Kind kind, Once&& once) {
  Scratch scratch;
  const bool in_pieces = kind == Kind::file || (kind == Kind::stream && !reads);
  const std::size_t most = in_pieces ? kPiece : kMostAtOnce;
  std::size_t done = 0;
  for (;;) {
    const std::size_t before = scratch.mark();
    const std::size_t piece = std::min(total - done, most);
    std::byte* const plain = scratch.take(std::max<std::size_t>(piece, 1), parts.address());
    if (plain == nullptr) {
      return done != 0 ? static_cast<long>(done) : -ENOMEM;
    }
    if (!reads) {
      parts.to(plain, piece);
    }
    const long result = once(plain, piece, done);
    if (result <= 0) {
      return done != 0 ? static_cast<long>(done) : result;
    }
    const std::size_t moved = std::min(static_cast<std::size_t>(result), piece);
    if (reads) {
      parts.from(plain, moved);
    } else {
      parts.skip(moved);
    }
    scratch.back_to(before);
    done += moved;
    if (!in_pieces) {
      return result;  // A message was cut (MSG_TRUNC): the result exceeds the room.
    }
    if (moved < piece || done == total) {
      return static_cast<long>(done);
    }
  }
}

// `total` is the bytes of the parts in front of the first page that may not be touched. Returns
// false if a part is longer than any memory, which the kernel refuses with EINVAL.
bool total_of(const iovec* parts, std::size_t count, int access, std::size_t& total) {
  total = 0;
  bool all = true;
  for (std::size_t i = 0; i < count; ++i) {
    if (parts[i].iov_len > SSIZE_MAX) {
      return false;
    }
    const std::size_t accessible =
        all && parts[i].iov_len != 0 ? accessible_bytes(parts[i].iov_base, parts[i].iov_len, access)
                                     : 0;
    total = saturating_add(total, accessible);
    all = all && accessible == parts[i].iov_len;
  }
  total = std::min<std::size_t>(total, INT_MAX & ~4095);  // The kernel's own limit.
  return true;
}

bool any_bytes(const iovec* parts, std::size_t count) {
  return std::any_of(parts, parts + count, [](const iovec& part) { return part.iov_len != 0; });
}

Kind kind_for(const SystemCall& call, std::size_t total) {
  return total <= kPiece ? Kind::message : kind_of(call);  // One piece in any case.
}

std::uint64_t number(const void* address) {
  return reinterpret_cast<std::uint64_t>(address);
}

template <typename T>
T* pointer(std::uint64_t argument) {
  return reinterpret_cast<T*>(argument);  // A register's value.
}

/// readv and its relatives, as calls with one part each.
long transfer_parts(SystemCall call) {
  const auto* const parts = pointer<const iovec>(call.arguments[1]);
  const std::size_t count = call.arguments[2];
  if (count > IOV_MAX) {
    return -EINVAL;
  }
  const bool reads =
      call.number == SYS_readv || call.number == SYS_preadv || call.number == SYS_preadv2;
  const bool at_offset = call.number != SYS_readv && call.number != SYS_writev &&
                         call.arguments[3] != ~std::uint64_t{0};  // preadv2 with the file's own
                                                                  // offset.
  const std::uint64_t offset = call.arguments[3];
  std::size_t total = 0;
  if (!total_of(parts, count, reads ? PROT_WRITE : PROT_READ, total)) {
    return -EINVAL;
  }
  if (total == 0 && any_bytes(parts, count)) {
    return -EFAULT;
  }
  iovec one{};
  call.arguments[1] = number(&one);
  call.arguments[2] = 1;
  return move({parts, count}, total, reads, kind_for(call, total),
              [&](std::byte* plain, std::size_t bytes, std::size_t done) {
                one = {plain, bytes};
                call.arguments[3] = at_offset ? offset + done : offset;
                return pass_and_wait(call);
              });
}

// A plain copy of the memory that a message refers to besides its bytes. Null if there is no room.
void* double_of(Scratch& scratch, const void* original, std::size_t bytes, bool copies) {
  constexpr std::size_t kMost = std::size_t{128} << 10;
  if (original == nullptr || bytes == 0) {
    return nullptr;
  }
  std::byte* const plain = bytes > kMost ? nullptr : scratch.take(bytes);
  if (plain != nullptr && copies) {
    memcpy(plain, original, bytes);
  }
  return plain;
}

long send_message(const SystemCall& call) {
  const msghdr& message = *pointer<const msghdr>(call.arguments[1]);
  if (message.msg_iovlen > IOV_MAX) {
    return -EMSGSIZE;
  }
  Scratch scratch;
  msghdr plain = message;
  plain.msg_name = double_of(scratch, message.msg_name, message.msg_namelen, true);
  plain.msg_control = double_of(scratch, message.msg_control, message.msg_controllen, true);
  if ((plain.msg_name == nullptr && message.msg_namelen != 0 && message.msg_name != nullptr) ||
      (plain.msg_control == nullptr && message.msg_controllen != 0)) {
    return -ENOBUFS;
  }
  std::size_t total = 0;
  if (!total_of(message.msg_iov, message.msg_iovlen, PROT_READ, total)) {
    return -EINVAL;
  }
  if (total == 0 && any_bytes(message.msg_iov, message.msg_iovlen)) {
    return -EFAULT;
  }
  iovec one{};
  plain.msg_iov = &one;
  plain.msg_iovlen = 1;
  SystemCall made = call;
  made.arguments[1] = number(&plain);
  return move({message.msg_iov, message.msg_iovlen}, total, false, kind_for(call, total),
              [&](std::byte* bytes, std::size_t count, std::size_t done) {
                one = {bytes, count};
                if (done != 0) {  // Data that came with the message came with its first piece.
                  plain.msg_control = nullptr;
                  plain.msg_controllen = 0;
                }
                return pass_and_wait(made);
              });
}

long receive_message(const SystemCall& call) {
  msghdr& message = *pointer<msghdr>(call.arguments[1]);
  if (message.msg_iovlen > IOV_MAX) {
    return -EMSGSIZE;
  }
  Scratch scratch;
  msghdr plain = message;
  plain.msg_name = double_of(scratch, message.msg_name, message.msg_namelen, false);
  plain.msg_control = double_of(scratch, message.msg_control, message.msg_controllen, false);
  if ((plain.msg_name == nullptr && message.msg_namelen != 0 && message.msg_name != nullptr) ||
      (plain.msg_control == nullptr && message.msg_controllen != 0)) {
    return -ENOBUFS;
  }
  iovec one{};
  plain.msg_iov = &one;
  plain.msg_iovlen = 1;
  SystemCall made = call;
  made.arguments[1] = number(&plain);
  std::size_t total = 0;
  if (!total_of(message.msg_iov, message.msg_iovlen, PROT_WRITE, total)) {
    return -EINVAL;
  }
  if (total == 0 && any_bytes(message.msg_iov, message.msg_iovlen)) {
    return -EFAULT;
  }
  const long result = move({message.msg_iov, message.msg_iovlen}, total, true, Kind::message,
                           [&](std::byte* bytes, std::size_t count, std::size_t) {
                             one = {bytes, count};
                             return pass_and_wait(made);
                           });
  if (result >= 0) {
    if (plain.msg_name != nullptr) {
      memcpy(message.msg_name, plain.msg_name, std::min(message.msg_namelen, plain.msg_namelen));
    }
    if (plain.msg_control != nullptr) {
      memcpy(message.msg_control, plain.msg_control, plain.msg_controllen);
    }
    message.msg_namelen = plain.msg_namelen;
    message.msg_controllen = plain.msg_controllen;
    message.msg_flags = plain.msg_flags;
  }
  return result;
}

}  // namespace

bool moves_bytes(long number) {
  Layout layout;
  return layout_of(number, layout);
}

long transfer(const SystemCall& call) {
  Layout layout;
  (void)layout_of(call.number, layout);
  const std::uint64_t buffer = call.arguments[layout.buffer];
  const std::size_t total = std::min<std::size_t>(call.arguments[layout.length], INT_MAX & ~4095);
  if (!in_wrapped_range(buffer) || total == 0) {
    return pass(call);
  }
  const Stretch stretch = stretch_at(pointer<void>(buffer), total);
  if (!stretch.may_be_absent && stretch.bytes == total) {
    return pass(call);
  }
  // The kernel moves the bytes in front of the first page that it may not touch, or returns EFAULT.
  const std::size_t accessible =
      accessible_bytes(pointer<void>(buffer), total, layout.reads ? PROT_WRITE : PROT_READ);
  SystemCall made = call;
  if (accessible == 0) {
    made.arguments[layout.length] = std::min(total, stretch.bytes);
    return pass(made);
  }
  const iovec part{pointer<void>(buffer), total};
  return move({&part, 1}, accessible, layout.reads, kind_for(call, total),
              [&](std::byte* plain, std::size_t bytes, std::size_t done) {
                made.arguments[layout.buffer] = number(plain);
                made.arguments[layout.length] = bytes;
                if (layout.offset != kNoOffset) {
                  made.arguments[layout.offset] = call.arguments[layout.offset] + done;
                }
                return pass_and_wait(made);
              });
}

long wrapped_behind(const SystemCall& call) {
  switch (call.number) {
    case SYS_sendmsg:
      return send_message(call);
    case SYS_recvmsg:
      return receive_message(call);
    default:
      return transfer_parts(call);
  }
}

bool any_wrapped(const iovec* parts, std::size_t count) {
  if (parts == nullptr || count > IOV_MAX) {
    return false;  // The kernel refuses the call.
  }
  return std::any_of(parts, parts + count,
                     [](const iovec& part) { return in_wrapped_range(part.iov_base); });
}

bool any_wrapped(const msghdr* message) {
  return message != nullptr &&
         (in_wrapped_range(message) || in_wrapped_range(message->msg_iov) ||
          in_wrapped_range(message->msg_name) || in_wrapped_range(message->msg_control) ||
          any_wrapped(message->msg_iov, message->msg_iovlen));
}

}  // namespace tiermem::preload

#endif
