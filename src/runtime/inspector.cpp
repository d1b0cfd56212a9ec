// Serves one connection at a time, which has one second to ask and one second to read. Answers only
// root and the user of this process.
#include "runtime/inspector.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>

#include "base/error.hpp"
#include "base/kept_descriptors.hpp"
#include "base/own_thread.hpp"
#include "base/results.hpp"

namespace tiermem {
namespace {

constexpr int kPatienceMs = 1000;
constexpr std::size_t kLongestQuestion = 256;
std::atomic<unsigned> begun{0};

bool is_friend(int connection) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return ::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         (peer.uid == ::geteuid() || peer.uid == 0);
}

// {0, 0}: there is no socket with this name.
FileIdentity socket_at(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode)
             ? FileIdentity{status.st_dev, status.st_ino}
             : FileIdentity{};
}

}  // namespace

Status Inspector::start(const std::string& directory, Answer answer, void* of) {
  answer_ = answer;
  of_ = of;
  path_ = fmt::format("{}/tiermem-{}-{}.sock", directory, ::getpid(),
                      begun.fetch_add(1, std::memory_order_relaxed));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof(address.sun_path)) {
    return fail(Code::invalid_argument,
                "inspect: the path {} is longer than the {} bytes that sockets take; name a "
                "shorter directory",
                path_, sizeof(address.sun_path) - 1);
  }
  std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
  // An eventfd instead of a pipe's closed end, because a child cloned without our knowledge has
  // that end, too.
  stop_ = keep_descriptor(::eventfd(0, EFD_CLOEXEC));
  socket_ = keep_descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  bound_ = {};
  remove_socket();  // Removes the socket of a killed process that had our number.
  // bind() creates the name with the mode of the unbound socket, without a second look-up.
  if (stop_ < 0 || socket_ < 0 || ::fchmod(socket_, S_IRUSR | S_IWUSR) != 0 ||
      ::bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(socket_, 8) != 0) {
    const int native = errno;
    Status status =
        fail_native(Code::io_error, native,
                    "inspect: cannot listen at {}: {}; name a directory that exists and "
                    "that this user may write to",
                    path_, std::strerror(native));
    stop();
    return status;
  }
  bound_ = socket_at(path_);
  try {
    thread_ = own_thread<UsesReserve::no>("tiermem-inspect", [this] { serve(); });
  } catch (const std::system_error&) {
    stop();
    return fail(Code::unavailable,
                "inspect: no thread can be created (RLIMIT_NPROC or pids.max); raise the limit");
  }
  return {};
}

void Inspector::stop() {
  if (thread_.joinable()) {
    best_effort(::eventfd_write(stop_, 1), "where it is full it is ready already");
    thread_.join();
  }
  if (socket_ >= 0) {
    remove_socket();
  }
  close_kept(socket_);
  close_kept(stop_);
  socket_ = stop_ = -1;
}

// Removes only sockets, and after bind() only the one that bind() made. A file of that name, or
// another process's socket, stays.
void Inspector::remove_socket() const {
  const FileIdentity found = socket_at(path_);
  if (found != FileIdentity{} && (bound_ == FileIdentity{} || found == bound_)) {
    best_effort(::unlink(path_.c_str()), "a name that stays behind only takes room");
  }
}

void Inspector::forget() {
  new (&thread_) std::thread;
  close_kept(socket_);
  close_kept(stop_);
  socket_ = stop_ = -1;
}

// Returns false on timeout, or when the inspector stops.
bool Inspector::await(int fd, short events) const {
  std::array<pollfd, 2> both = {pollfd{fd, events, 0}, pollfd{stop_, POLLIN, 0}};
  int ready = 0;
  do {
    ready = ::poll(both.data(), both.size(), fd == socket_ ? -1 : kPatienceMs);
  } while (ready < 0 && errno == EINTR);
  return ready > 0 && both[1].revents == 0;
}

void Inspector::serve() {
  while (await(socket_, POLLIN)) {
    const int connection =
        keep_descriptor(::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection < 0) {
      if (errno == EMFILE || errno == ENFILE) {
        best_effort(::poll(nullptr, 0, 10), "a pause: the connection stays in the queue");
      }
      continue;
    }
    try {
      serve_one(connection);
    } catch (const std::bad_alloc&) {
      // The asking process sees an empty answer.
    }
    close_kept(connection);
  }
}

void Inspector::serve_one(int connection) {
  if (!is_friend(connection)) {
    return;
  }
  std::array<char, kLongestQuestion> asked;
  std::size_t length = 0;
  while (length == 0 || asked[length - 1] != '\n') {
    if (length == asked.size() || !await(connection, POLLIN)) {
      return;
    }
    const ssize_t n = ::recv(connection, asked.data() + length, asked.size() - length, 0);
    if (n <= 0) {
      return;
    }
    length += static_cast<std::size_t>(n);
  }
  const std::string said = answer_(of_, std::string_view(asked.data(), length - 1));
  for (std::size_t done = 0; done < said.size();) {
    if (!await(connection, POLLOUT)) {
      return;
    }
    const ssize_t n =
        ::send(connection, said.data() + done, said.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
      return;
    }
    done += n > 0 ? static_cast<std::size_t>(n) : 0;
  }
}

}  // namespace tiermem
