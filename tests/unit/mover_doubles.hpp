// The mover's dependencies for tests that drive it step by step: workers, a port and dice that wait
// for the test. The test chooses the order and the errors. Single-threaded.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "mover/job.hpp"
#include "os/io_port.hpp"
#include "support/io_bytes.hpp"
#include "tests/sim/fake_memory.hpp"

namespace tiermem {

/// Makes the next `times` calls of a name fail, if FakeMemory asks about that name.
class ScriptedDice final : public sim::FaultDice {
 public:
  void fail(const std::string& what, unsigned times = 1) { left_[what] = times; }
  void heal() { left_.clear(); }
  bool strikes(const char* what) override {
    const auto at = left_.find(what);
    if (at == left_.end() || at->second == 0) {
      return false;
    }
    --at->second;
    return true;
  }

 private:
  std::map<std::string, unsigned> left_;
};

/// Workers that keep each job, and each copy to or from a device, until the test continues it.
class HeldWorkers final : public Workers, public sim::FakeCopies {
 public:
  struct Copy {
    std::function<void()> move;
    Completion* end = nullptr;
    unsigned device = 0;
    bool in = false, fails = false, begun = false;
  };
  std::vector<Job*> jobs;    ///< Submitted and not yet run, oldest first.
  std::vector<Copy> copies;  ///< Started and not yet ended, oldest first.

  void submit(Job* job) override {
    begin_job(*job, this);
    jobs.push_back(job);
  }
  std::size_t reap(std::span<Done> done) override {
    const std::size_t n = std::min(done.size(), news_.size());
    std::copy_n(news_.begin(), n, done.begin());
    news_.erase(news_.begin(), news_.begin() + static_cast<std::ptrdiff_t>(n));
    return n;
  }
  void copied(Job& job) override { go_on(job); }
  void copy_begun(Job& job, std::uint64_t ordinal) override { news_.push_back({&job, ordinal}); }
  void copy(unsigned device, bool in, bool fails, std::function<void()> move,
            Completion& end) override {
    copies.push_back({std::move(move), &end, device, in, fails, false});
  }

  /// Runs the nth job to its end, or to its copy.
  void run(std::size_t n = 0) {
    ASSERT_LT(n, jobs.size()) << "a worker has no such job";
    Job& job = *jobs[n];
    jobs.erase(jobs.begin() + static_cast<std::ptrdiff_t>(n));
    go_on(job);
  }
  /// Runs the oldest job with this step, if any.
  void run_step(JobStep step) {
    const auto job = std::find_if(jobs.begin(), jobs.end(),
                                  [&](const Job* each) { return (each->steps & step) != 0; });
    if (job != jobs.end()) {
      run(static_cast<std::size_t>(job - jobs.begin()));
    }
  }
  /// The nth copy begins: it gets its place in the device's order.
  void begin_copy(std::size_t n = 0) {
    ASSERT_LT(n, copies.size()) << "there is no such copy";
    Copy& copy = copies[n];
    if (copy.in && !std::exchange(copy.begun, true)) {
      ++begun_;
      if (copy.end->begun != nullptr) {
        copy.end->begun(*copy.end, begun_);
      }
    }
  }
  void end_copy(std::size_t n = 0) {
    begin_copy(n);
    ASSERT_LT(n, copies.size());
    const Copy copy = copies[n];
    copies.erase(copies.begin() + static_cast<std::ptrdiff_t>(n));
    if (copy.fails) {
      copy.end->status =
          fail(Code::io_error, "a copy {} the device failed", copy.in ? "to" : "from");
    } else {
      copy.move();
    }
    copy.end->ended(*copy.end);
  }
  bool has_news() const { return !news_.empty(); }
  /// Returns the number of waiting jobs with this step.
  std::size_t waiting(JobStep step) const {
    return static_cast<std::size_t>(std::count_if(
        jobs.begin(), jobs.end(), [&](const Job* job) { return (job->steps & step) != 0; }));
  }

 private:
  void go_on(Job& job) {
    if (run_job(job)) {
      news_.push_back({&job, 0});
    }
  }

  std::vector<Done> news_;
  std::uint64_t begun_ = 0;
};

/// Devices in memory that keep each request until the test ends it.
class HeldPort final : public IoPort {
 public:
  std::vector<IoRequest> requests;      ///< In progress, oldest first.
  std::uint64_t reads = 0, writes = 0;  ///< Ended without an error.
  int refuses_growth = 0;               ///< errno with which files refuse to grow; 0: they grow.
  unsigned growths = 0;                 ///< The number of requested growths.
  unsigned own_reads = 0;               ///< By the threads that want the bytes.
  int refuses_own_reads = 0;            ///< errno of these; 0: they work.
  bool damages_own_reads = false;       ///< One byte differs from the one written.

  HeldPort(unsigned count, std::uint64_t limit) : bytes_(count), limit_(limit) {}

  unsigned devices() const override { return static_cast<unsigned>(bytes_.size()); }
  DeviceFacts facts(std::uint16_t device) const override {
    DeviceFacts facts;
    set_text(facts.name, "disk" + std::to_string(device));
    facts.size = bytes_[device].size();
    facts.limit = limit_;
    return facts;
  }
  bool submit(const IoRequest& request) override {
    requests.push_back(request);
    return true;
  }
  bool reads_here() const override { return true; }
  std::int32_t read_here(const IoRequest& request) override {
    ++own_reads;
    if (refuses_own_reads != 0) {
      return -refuses_own_reads;
    }
    transfer(request);
    *byte_of(request, 0) ^= std::byte{damages_own_reads};
    return static_cast<std::int32_t>(request.length);
  }
  void flush() override {}
  std::size_t reap(std::span<IoCompletion> out) override {
    const std::size_t n = std::min(out.size(), news_.size());
    std::copy_n(news_.begin(), n, out.begin());
    news_.erase(news_.begin(), news_.begin() + static_cast<std::ptrdiff_t>(n));
    return n;
  }
  Status grow(std::uint16_t device, std::uint64_t bytes) override {
    ++growths;
    if (refuses_growth != 0) {
      return fail_native(Code::no_capacity, refuses_growth, "disk{} is full", device);
    }
    bytes_[device].resize(bytes);
    return {};
  }

  /// Ends the nth request. With an errno its bytes stay unchanged.
  void end(std::size_t n = 0, int error = 0) {
    ASSERT_LT(n, requests.size()) << "no such request is under way";
    const IoRequest request = requests[n];
    requests.erase(requests.begin() + static_cast<std::ptrdiff_t>(n));
    if (error == 0) {
      transfer(request);
      ++(request.write ? writes : reads);
    }
    news_.push_back(
        {request.cookie, error != 0 ? -error : static_cast<std::int32_t>(request.length)});
  }
  /// Ends the nth request, a read, with one byte that differs from the one written.
  void end_with_damage(std::size_t n = 0) {
    ASSERT_LT(n, requests.size());
    const IoRequest request = requests[n];
    end(n);
    *byte_of(request, 0) ^= std::byte{1};
  }
  bool has_news() const { return !news_.empty(); }
  // Used by the path that bypasses the host.
  std::vector<std::byte> peek(std::uint16_t device, std::uint64_t offset,
                              std::uint64_t length) const {
    const auto at = bytes_.at(device).begin() + static_cast<std::ptrdiff_t>(offset);
    return {at, at + static_cast<std::ptrdiff_t>(length)};
  }
  void poke(std::uint16_t device, std::uint64_t offset, const std::vector<std::byte>& bytes) {
    std::copy(bytes.begin(), bytes.end(),
              bytes_.at(device).begin() + static_cast<std::ptrdiff_t>(offset));
  }
  bool refuses(std::uint16_t, bool) const { return false; }

 private:
  void transfer(const IoRequest& request) {
    std::byte* const there = bytes_[request.device].data() + request.offset;
    ASSERT_LE(request.offset + request.length, bytes_[request.device].size());
    for (std::uint64_t at = 0; at < request.length; ++at) {
      std::byte& here = *byte_of(request, at);
      (request.write ? there[at] : here) = request.write ? here : there[at];
    }
  }

  std::vector<std::vector<std::byte>> bytes_;
  const std::uint64_t limit_;
  std::vector<IoCompletion> news_;
};

}  // namespace tiermem
