// The variable is "name secret": the name of the abstract socket, and 16 random bytes in
// hexadecimal.
#include "preload/run_broker.hpp"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/results.hpp"
#include "preload/run_owner.hpp"

namespace tiermem {
namespace {

constexpr int kPatienceMs = 100;    // For the broker.
constexpr long kAnswerSeconds = 2;  // For a process.
constexpr std::size_t kNameBytes = 64;
constexpr int kInterrupts = 1000;

socklen_t address_of(const char* name, std::size_t length, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  // The first byte is 0, so the name is abstract and there is no file.
  std::memcpy(address.sun_path + 1, name, length);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

// Space for the descriptors of a message.
union Control {
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int) * kMostHanded)];
};

void close_all(BrokerReply& reply) {
  for (int i = 0; i < reply.count; ++i) {
    best_effort(::close(std::exchange(reply.descriptors[i], -1)),
                "the descriptor is gone in any case");
  }
  reply.count = 0;
}

bool send_reply(int fd, const BrokerReply& reply) {
  std::uint64_t identity = reply.identity;
  iovec part{&identity, sizeof(identity)};
  Control control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (reply.count > 0) {
    const std::size_t bytes = sizeof(int) * static_cast<std::size_t>(reply.count);
    message.msg_control = &control;
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(header), reply.descriptors, bytes);
  }
  return ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(identity);
}

// Repeats a call that a signal of the program interrupts.
template <typename Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  for (int tries = 0; result < 0 && errno == EINTR && tries < kInterrupts; ++tries) {
    result = call();
  }
  return result;
}

bool receive_reply(int fd, BrokerReply& reply) {
  iovec part{&reply.identity, sizeof(reply.identity)};
  Control control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = sizeof(control);
  if (uninterrupted([&] { return ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC); }) !=
      sizeof(reply.identity)) {
    return false;
  }
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    const std::size_t bytes = std::min(header->cmsg_len - CMSG_LEN(0), sizeof(reply.descriptors));
    reply.count = static_cast<int>(bytes / sizeof(int));
    std::memcpy(reply.descriptors, CMSG_DATA(header), bytes);
  }
  return true;
}

bool ask(int fd, const BrokerRequest& request, BrokerReply& reply) {
  const timeval patience{kAnswerSeconds, 0};
  best_effort(::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)),
              "it waits for longer");
  return uninterrupted([&] { return ::send(fd, &request, sizeof(request), MSG_NOSIGNAL); }) ==
             sizeof(request) &&
         receive_reply(fd, reply);
}

// The process at the other end of a socket, according to this process's /proc.
std::uint64_t identity_of_peer(int fd) {
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) {
    return 0;
  }
  return run::identity_of(static_cast<std::uint32_t>(peer.pid));
}

}  // namespace

bool ask_broker(const char* variable, BrokerRequest::What what, const char* path,
                BrokerReply& reply) {
  const char* const blank = variable == nullptr ? nullptr : std::strchr(variable, ' ');
  BrokerRequest request;
  if (blank == nullptr || static_cast<std::size_t>(blank - variable) > kNameBytes ||
      std::strlen(blank + 1) != sizeof(request.secret) ||
      strnlen(path, sizeof(request.path)) == sizeof(request.path)) {
    return false;
  }
  std::memcpy(request.secret, blank + 1, sizeof(request.secret));
  request.what = what;
  std::memcpy(request.path, path, std::strlen(path));
  sockaddr_un address;
  const socklen_t length =
      address_of(variable, static_cast<std::size_t>(blank - variable), address);
  const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return false;
  }
  const auto* const there = reinterpret_cast<const sockaddr*>(&address);
  const bool answered =
      uninterrupted([&] { return ::connect(fd, there, length); }) == 0 && ask(fd, request, reply);
  best_effort(::close(fd), "the descriptor is gone in any case");
  return answered;
}

RunBroker::~RunBroker() {
  if (fd_ >= 0) {
    best_effort(::close(fd_), "the descriptor is gone in any case");
  }
}

int RunBroker::listen() {
  unsigned char random[sizeof(secret_) / 2 + 8];
  if (::getrandom(random, sizeof(random), 0) != static_cast<ssize_t>(sizeof(random))) {
    return errno;
  }
  char digits[2 * sizeof(random) + 1];
  for (std::size_t i = 0; i < sizeof(random); ++i) {
    std::snprintf(digits + 2 * i, 3, "%02x", random[i]);
  }
  std::memcpy(secret_, digits, sizeof(secret_));
  const int name = std::snprintf(variable_, sizeof(variable_), "tiermem-run-%d-%.16s",
                                 static_cast<int>(::getpid()), digits + sizeof(secret_));
  sockaddr_un address;
  const socklen_t length = address_of(variable_, static_cast<std::size_t>(name), address);
  std::snprintf(variable_ + name, sizeof(variable_) - static_cast<std::size_t>(name), " %.*s",
                static_cast<int>(sizeof(secret_)), secret_);
  fd_ = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd_ < 0 || ::bind(fd_, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(fd_, SOMAXCONN) != 0) {
    return errno;
  }
  return 0;
}

void RunBroker::serve() {
  const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    return;
  }
  BrokerRequest request;
  pollfd readable{fd, POLLIN, 0};
  if (::poll(&readable, 1, kPatienceMs) == 1 &&
      ::recv(fd, &request, sizeof(request), 0) == sizeof(request) &&
      std::memcmp(request.secret, secret_, sizeof(secret_)) == 0) {
    BrokerReply reply;
    reply.identity = identity_of_peer(fd);
    request.path[sizeof(request.path) - 1] = '\0';
    if (request.what != BrokerRequest::What::identity) {
      open_(request.what, request.path, reply);
    }
    best_effort(send_reply(fd, reply) ? 0 : -1, "the process has ended");
    close_all(reply);
  }
  best_effort(::close(fd), "the descriptor is gone in any case");
}

}  // namespace tiermem
