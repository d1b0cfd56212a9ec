// The port for kernels that refuse io_uring: a few threads with pread and pwrite. It has the same
// contract and uses more CPU. Threads: see waitable_io_port.hpp; the workers access only the queues
// and the memory of the requests.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/arena.hpp"
#include "os/waitable_io_port.hpp"

namespace tiermem {

class ThreadPort final : public WaitableIoPort {
 public:
  ThreadPort(std::vector<std::unique_ptr<BlockFile>> devices, const PortOptions& options,
             std::string reason);
  /// Waits for requests that a thread has begun, and drops the others.
  ~ThreadPort() override;

  /// Returns false if no thread could be created.
  bool works() const { return !threads_.empty(); }

  unsigned devices() const override { return static_cast<unsigned>(files_.size()); }
  DeviceFacts facts(std::uint16_t device) const override { return files_.at(device)->facts(); }
  Status grow(std::uint16_t device, std::uint64_t bytes) override {
    return files_.at(device)->grow(bytes);
  }
  bool reads_here() const override { return true; }
  std::int32_t read_here(const IoRequest& request) override { return read_file(files_, request); }
  bool submit(const IoRequest& request) override;
  void flush() override;
  std::size_t reap(std::span<IoCompletion> completions) override;
  void wait(std::int64_t deadline_ns) override;
  void wake() override;
  bool watch(int) override { return false; }
  std::vector<std::unique_ptr<BlockFile>> leave() override;
  const char* engine() const override { return "threads"; }
  const char* reason() const override { return reason_.c_str(); }

 private:
  void work();
  std::int32_t transfer(const IoRequest& request) const;

  // Constant after construction.
  std::vector<std::unique_ptr<BlockFile>> files_;
  std::string reason_;
  unsigned capacity_ = 0;

  // Used by the owner only.
  Vector<IoRequest> staged_;  ///< Submitted and not yet flushed.
  unsigned in_flight_ = 0;    ///< Submitted and not yet reaped; up to capacity_.

  // Guarded by mutex_.
  std::mutex mutex_;
  std::condition_variable work_;  ///< Signals a change of queue_ or stop_.
  std::condition_variable done_;  ///< Signals a change of completed_ or woken_.
  Deque<IoRequest> queue_;
  Vector<IoCompletion> completed_;
  bool stop_ = false;

  std::atomic<bool> woken_{false};  ///< Set by any thread, cleared by the owner.

  std::vector<std::thread> threads_;  ///< Declared last, because the threads use all members above.
};

}  // namespace tiermem
