// Passes a descriptor from one process to another over a socket pair. Any thread.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstring>
#include <string>

namespace tiermem::test {

/// Returns whether the descriptor was sent.
inline bool send_descriptor(int socket, int fd) {
  char byte = 'd';
  iovec part{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room.data();
  message.msg_controllen = room.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  return ::sendmsg(socket, &message, 0) == 1;
}

/// Receives the other process's descriptor. -1: it sent `text` instead, or nothing.
inline int receive_descriptor(int socket, std::string& text) {
  char bytes[256];
  iovec part{bytes, sizeof(bytes)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room.data();
  message.msg_controllen = room.size();
  const ssize_t n = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* const header = n > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  int fd = -1;
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
  } else if (n > 0) {
    text.assign(bytes, static_cast<std::size_t>(n));
  }
  return fd;
}

}  // namespace tiermem::test
