// A child process whose memory, page cache included, is limited by a memory cgroup of its own
// (version 1 or 2, whichever has the memory controller). It keeps what it has made from one
// question to the next, and ends with this process at the latest. One thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tiermem/status.hpp"

namespace tiermem::bench {

class LimitedChild {
 public:
  /// Answers a question with a figure; not above 0: something went wrong.
  using Answer = std::function<double(std::uint32_t question)>;

  /// `begin` runs in the child, makes what it needs and returns who answers, or nothing when it
  /// cannot. It must not use contexts of this process: the child has none of their threads. Errors:
  /// unavailable where no cgroup can be made, or when the child ended; io_error when it said no.
  static Result<std::unique_ptr<LimitedChild>> start(std::uint64_t bytes,
                                                     const std::function<Answer()>& begin);
  ~LimitedChild();
  LimitedChild(const LimitedChild&) = delete;
  LimitedChild& operator=(const LimitedChild&) = delete;

  /// Errors: unavailable when the child ended: with a small limit the kernel may kill it though
  /// there is swap, when all of its pages are on their way there; io_error when it answered that
  /// something went wrong.
  Result<double> ask(std::uint32_t question);

 private:
  explicit LimitedChild(std::string group) : group_(std::move(group)) {}
  Result<double> answer();

  const std::string group_;
  pid_t child_ = -1;
  int socket_ = -1;
};

}  // namespace tiermem::bench
