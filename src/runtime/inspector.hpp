// Answers what other processes of the same user ask about a context: a Unix socket with a thread of
// its own. A question is a line; what comes back is what Context::Impl::answer() has to say, and
// then the end of the connection. Who asks is `tiermem why`.
//
// A child of fork has none of its parent's (forget()), and may start its own.
#pragma once

#include <string>
#include <string_view>
#include <thread>

#include "os/file_identity.hpp"
#include "tiermem/status.hpp"

namespace tiermem {

class Inspector {
 public:
  /// Called by the inspector's thread, one question at a time. May throw bad_alloc: then there is
  /// no answer.
  using Answer = std::string (*)(void* of, std::string_view question);

  Inspector() = default;
  Inspector(const Inspector&) = delete;
  Inspector& operator=(const Inspector&) = delete;
  ~Inspector() { stop(); }

  /// Listens at `directory`/tiermem-PID-N.sock, where N is how many this process has begun before.
  /// Errors: invalid_argument where the path is longer than sockets take; io_error that names it
  /// and errno; unavailable without a thread.
  Status start(const std::string& directory, Answer answer, void* of);
  /// The thread has ended, and the socket is gone. Waits for the question being answered.
  void stop();
  /// In a child of fork, which has neither thread nor socket.
  void forget();

 private:
  void serve();
  void serve_one(int connection);
  bool await(int fd, short events) const;
  void remove_socket() const;

  Answer answer_ = nullptr;
  void* of_ = nullptr;
  std::string path_;
  FileIdentity bound_;  // What bind() made at path_.
  int socket_ = -1;
  int stop_ = -1;  // An eventfd, ready once there is nothing to do.
  std::thread thread_;
};

}  // namespace tiermem
