// A child process with a memory limit, page cache included, in a memory cgroup of its own (version
// 1 or 2, depending on which has the memory controller). It keeps its objects between questions,
// and ends with this process at the latest. One thread.
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
  /// Answers a question with a figure; 0 or less means failure.
  using Answer = std::function<double(std::uint32_t question)>;

  /// `begin` runs in the child, creates its objects and returns the answering function, or nothing
  /// on failure. It must not use contexts of this process, because the child has none of their
  /// threads. Errors: unavailable if no cgroup can be created or the child ended; io_error if the
  /// child reported failure.
  static Result<std::unique_ptr<LimitedChild>> start(std::uint64_t bytes,
                                                     const std::function<Answer()>& begin);
  ~LimitedChild();
  LimitedChild(const LimitedChild&) = delete;
  LimitedChild& operator=(const LimitedChild&) = delete;

  /// Errors: unavailable if the child ended; io_error if it reported failure. With a small limit
  /// the kernel may kill the child although there is swap, if all of its pages are being swapped
  /// out.
  Result<double> ask(std::uint32_t question);

 private:
  explicit LimitedChild(std::string group) : group_(std::move(group)) {}
  Result<double> answer();

  const std::string group_;
  pid_t child_ = -1;
  int socket_ = -1;
};

}  // namespace tiermem::bench
