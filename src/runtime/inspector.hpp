// Answers questions of other processes of the same user about a context, over a Unix socket with a
// thread of its own. A question is a line. The answer comes from Context::Impl::answer() and ends
// with the connection. `tiermem why` is the client.
//
// A child of fork does not inherit its parent's (forget()), and may start its own.
#pragma once

#include <string>
#include <string_view>
#include <thread>

#include "os/file_identity.hpp"
#include "tiermem/status.hpp"

namespace tiermem {

class Inspector {
 public:
  /// Called on the inspector's thread, one question at a time. May throw bad_alloc; the client then
  /// gets no answer.
  using Answer = std::string (*)(void* of, std::string_view question);

  Inspector() = default;
  Inspector(const Inspector&) = delete;
  Inspector& operator=(const Inspector&) = delete;
  ~Inspector() { stop(); }

  /// Listens at `directory`/tiermem-PID-N.sock, where N counts this process's earlier ones. Errors:
  /// invalid_argument if the path is longer than sockets allow; io_error that names it and errno;
  /// unavailable without a thread.
  Status start(const std::string& directory, Answer answer, void* of);
  /// Ends the thread and removes the socket. Waits for the question being answered.
  void stop();
  /// Call it in a child of fork, which has neither thread nor socket.
  void forget();

 private:
  void serve();
  void serve_one(int connection);
  bool await(int fd, short events) const;
  void remove_socket() const;

  Answer answer_ = nullptr;
  void* of_ = nullptr;
  std::string path_;
  FileIdentity bound_;  // The socket that bind() made at path_.
  int socket_ = -1;
  int stop_ = -1;  // An eventfd that becomes readable when the thread must stop.
  std::thread thread_;
};

}  // namespace tiermem
