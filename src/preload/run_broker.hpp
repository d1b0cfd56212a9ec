// Passes descriptors from `tiermem run` to the processes under it. They may have fewer rights:
// another user, another root directory, no /proc. A process connects to an abstract socket, which
// needs no path. A secret from its environment proves that it belongs to the run.
//
//   process ── BrokerRequest ──▶ tiermem run
//           ◀── BrokerReply, descriptors ──
//
// The process's side (ask_broker) runs inside an implementation of malloc and allocates nothing. It
// waits for `tiermem run` for at most two seconds.
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
    identity,          ///< No descriptor; only the identity of the process.
    page,              ///< The run's page.
    userfault_device,  ///< /dev/userfaultfd.
    scratch_file,      ///< A file in the directory `path`.
  };
  char secret[32] = {};
  What what = What::identity;
  char path[PATH_MAX] = {};
};

struct BrokerReply {
  /// The process as run::own_identity() names it, according to the /proc of `tiermem run`. 0:
  /// unknown.
  std::uint64_t identity = 0;
  int count = 0;  ///< Number of descriptors. 0: refused.
  int descriptors[kMostHanded] = {-1, -1};
};

/// Asks the broker that `variable` names, the value of TIERMEM_RUN_BROKER. Returns false if there
/// is none or it does not answer. The caller owns the descriptors, which close on exec. May change
/// errno.
bool ask_broker(const char* variable, BrokerRequest::What what, const char* path,
                BrokerReply& reply);

/// The `tiermem run` side.
class RunBroker {
 public:
  /// Opens the object that a process requests. The broker closes the descriptors after sending
  /// them.
  using Open = std::function<void(BrokerRequest::What, const char* path, BrokerReply&)>;

  explicit RunBroker(Open open) : open_(std::move(open)) {}
  ~RunBroker();
  RunBroker(const RunBroker&) = delete;
  RunBroker& operator=(const RunBroker&) = delete;

  /// Returns 0 or errno.
  int listen();
  /// The value of TIERMEM_RUN_BROKER.
  const char* variable() const { return variable_; }
  /// Becomes readable when a process asks.
  int fd() const { return fd_; }
  /// Answers one process. Waits for its request for at most a tenth of a second.
  void serve();

 private:
  Open open_;
  int fd_ = -1;
  char secret_[sizeof(BrokerRequest::secret)] = {};
  char variable_[128] = {};
};

}  // namespace tiermem
