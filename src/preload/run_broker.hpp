// Hands descriptors from `tiermem run` to the processes under it, which may have fewer rights than
// it: another user, another root directory, no /proc. A process connects to an abstract socket,
// which needs no path, and proves by a secret from its environment that it belongs to the run.
//
//   process ── BrokerRequest ──▶ tiermem run
//           ◀── BrokerReply, descriptors ──
//
// The side of the processes (ask_broker) runs inside an implementation of malloc: it allocates
// nothing. It waits for `tiermem run` at most two seconds.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "os/handed_descriptors.hpp"

namespace tiermem {

struct BrokerRequest {
  enum class What : std::uint32_t {
    identity,          ///< No descriptor: only who the process is.
    page,              ///< The page of the run.
    userfault_device,  ///< /dev/userfaultfd.
    scratch_file,      ///< A file in the directory `path`.
  };
  char secret[32] = {};
  What what = What::identity;
  char path[PATH_MAX] = {};
};

struct BrokerReply {
  /// The process as run::own_identity() names it, by the /proc of `tiermem run`. 0: unknown.
  std::uint64_t identity = 0;
  int count = 0;  ///< How many descriptors there are. 0: refused.
  int descriptors[kMostHanded] = {-1, -1};
};

/// Asks the broker that `variable` names, the value of TIERMEM_RUN_BROKER. False: there is none, or
/// it does not answer. The caller owns the descriptors, which are closed on exec. May change errno.
bool ask_broker(const char* variable, BrokerRequest::What what, const char* path,
                BrokerReply& reply);

/// The side of `tiermem run`.
class RunBroker {
 public:
  /// Opens what a process asks for. The descriptors are closed when they are sent.
  using Open = std::function<void(BrokerRequest::What, const char* path, BrokerReply&)>;

  explicit RunBroker(Open open) : open_(std::move(open)) {}
  ~RunBroker();
  RunBroker(const RunBroker&) = delete;
  RunBroker& operator=(const RunBroker&) = delete;

  /// 0 or errno.
  int listen();
  /// For TIERMEM_RUN_BROKER.
  const char* variable() const { return variable_; }
  /// Readable when a process asks.
  int fd() const { return fd_; }
  /// Answers one process. Waits for its request at most a tenth of a second.
  void serve();

 private:
  Open open_;
  int fd_ = -1;
  char secret_[sizeof(BrokerRequest::secret)] = {};
  char variable_[128] = {};
};

}  // namespace tiermem
