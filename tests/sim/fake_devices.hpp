// Block devices and workers of the simulated machine. Every operation takes virtual time, may end
// out of order, and fails at random. Bytes are kept by 4 KiB block.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include "mover/job.hpp"
#include "os/io_port.hpp"
#include "tests/sim/digest.hpp"
#include "tests/sim/fake_memory.hpp"
#include "tests/support/io_bytes.hpp"

namespace tiermem::sim {

/// Virtual time, and the only source of randomness.
struct World {
  explicit World(std::uint64_t seed) : random(seed) {}
  std::mt19937_64 random;
  std::int64_t now = 0;
  std::uint64_t below(std::uint64_t n) { return n == 0 ? 0 : random() % n; }
  bool one_in(std::uint64_t n) { return n != 0 && below(n) == 0; }
  /// As one_in, for a fault: counts it if it strikes.
  bool strikes(std::uint64_t n) {
    const bool struck = one_in(n);
    faults += struck ? 1 : 0;
    return struck;
  }
  std::uint64_t faults = 0;
  std::uint64_t calls = 0;  ///< Calls of the interface, as a program would make them.
  Digest digest;
  /// Adds a call to the digest, with the virtual time.
  template <typename... Values>
  void crossed(std::string_view name, Values... values) {
    digest.add(name, now, values...);
  }
};

struct FaultRates {  // One in this many; 0: never.
  std::uint64_t io_error = 0, short_io = 0, again = 0, torn = 0, flip = 0, lost_write = 0,
                no_space = 0;
  std::uint64_t memory = 0, slow = 0;
};

/// A temporary trouble of a device.
enum class Trouble : std::uint8_t {
  hangs,  ///< No transfer ends before the trouble does.
  gone,   ///< Every transfer is refused.
  full    ///< Every write and every growth is refused.
};

class FakePort final : public IoPort {
 public:
  FakePort(World& world, const FaultRates& rates, unsigned devices, std::uint64_t device_bytes)
      : world_(world), rates_(rates), sizes_(devices), limit_(device_bytes), troubles_(devices) {}

  unsigned devices() const override { return static_cast<unsigned>(sizes_.size()); }
  DeviceFacts facts(std::uint16_t device) const override {
    DeviceFacts facts;
    set_text(facts.name, fmt::format("disk{}", device));
    facts.size = sizes_[device];
    facts.limit = limit_;
    facts.block_bytes = 512;
    return facts;
  }
  bool submit(const IoRequest& request) override {
    if (!pending_.empty() && world_.strikes(rates_.again)) {
      return false;  // The device's queue is full.
    }
    world_.crossed(request.write ? "write" : "read", request.device, request.offset,
                   request.length);
    const std::int64_t slow = world_.one_in(rates_.slow) ? 50'000'000 : 0;
    const std::int64_t begins = std::max(world_.now, until(request.device, Trouble::hangs));
    pending_.push_back(
        {request, begins + 10'000 + static_cast<std::int64_t>(world_.below(400'000)) + slow});
    ++events_;
    return true;
  }
  bool reads_here() const override { return true; }
  std::int32_t read_here(const IoRequest& request) override { return run(request); }
  /// A transfer that begins now ends no earlier.
  std::int64_t hangs_until(std::uint16_t device) const { return until(device, Trouble::hangs); }
  void flush() override {}
  std::size_t reap(std::span<IoCompletion> out) override {
    std::size_t n = 0;
    while (n < out.size()) {
      const auto first =
          std::min_element(pending_.begin(), pending_.end(),
                           [](const Pending& a, const Pending& b) { return a.due < b.due; });
      if (first == pending_.end() || first->due > world_.now) {
        break;
      }
      const IoRequest request = first->request;
      pending_.erase(first);
      out[n++] = {request.cookie, run(request)};
      ++events_;
    }
    return n;
  }
  Status grow(std::uint16_t device, std::uint64_t bytes) override {
    world_.crossed("grow", device, bytes);
    if (has(device, Trouble::gone)) {
      return fail_native(Code::io_error, ENODEV, "disk{} is gone", device);
    }
    if (world_.strikes(rates_.no_space) || has(device, Trouble::full) || bytes > limit_) {
      return fail_native(Code::no_capacity, ENOSPC, "disk{} is full", device);
    }
    sizes_[device] = bytes;
    return {};
  }
  std::int64_t next_due() const {
    std::int64_t due = INT64_MAX;
    for (const Pending& p : pending_) {
      due = std::min(due, p.due);
    }
    return due;
  }
  /// Reads the device's content, without faults.
  std::vector<std::byte> peek(std::uint16_t device, std::uint64_t offset,
                              std::uint64_t length) const {
    std::vector<std::byte> bytes(length);
    for (std::uint64_t at = 0; at < length; at += 512) {
      const auto block = blocks_.find({device, (offset + at) / 512});
      if (block != blocks_.end()) {
        std::memcpy(bytes.data() + at, block->second.data(), 512);
      }
    }
    return bytes;
  }
  /// For the direct path.
  void poke(std::uint16_t device, std::uint64_t offset, const std::vector<std::byte>& bytes) {
    for (std::uint64_t at = 0; at < bytes.size(); at += 512) {
      std::memcpy(blocks_[{device, (offset + at) / 512}].data(), bytes.data() + at, 512);
    }
  }
  bool refuses(std::uint16_t device, bool write) const {
    return has(device, Trouble::gone) || (write && has(device, Trouble::full));
  }
  /// Whether the device contains `bytes`, in whole blocks.
  bool holds(std::uint16_t device, std::uint64_t offset,
             const std::vector<std::byte>& bytes) const {
    static constexpr std::array<std::byte, 512> kZeros{};
    auto block = blocks_.lower_bound({device, offset / 512});
    for (std::uint64_t at = 0; at < bytes.size(); at += 512) {
      const std::pair key(device, (offset + at) / 512);
      const bool there = block != blocks_.end() && block->first == key;
      if (std::memcmp(bytes.data() + at, there ? block->second.data() : kZeros.data(), 512) != 0) {
        return false;
      }
      block = there ? std::next(block) : block;
    }
    return true;
  }
  /// Whether a read to this memory is in progress.
  bool reads_to(const test::PageBytes& memory) const {
    return std::any_of(pending_.begin(), pending_.end(), [&](const Pending& p) {
      return !p.request.write && p.request.data >= memory.data() &&
             p.request.data < memory.data() + memory.size();
    });
  }
  /// Whether a read or written bit was wrong; `lost` is then a correct answer.
  bool corrupted() const { return corrupted_; }

  void befall(std::uint16_t device, Trouble what, std::int64_t until) {
    ++world_.faults;
    troubled_ = true;
    std::int64_t& end = troubles_[device][static_cast<std::size_t>(what)];
    end = std::max(end, until);
    for (Pending& p : pending_) {
      if (what == Trouble::hangs && p.request.device == device) {
        p.due = std::max(p.due, until + static_cast<std::int64_t>(world_.below(400'000)));
      }
    }
  }
  /// Ends all troubles, except for devices that are gone permanently.
  void heal() {
    for (auto& device : troubles_) {
      for (std::int64_t& end : device) {
        end = end == kForGood ? end : std::min(end, world_.now);
      }
    }
    for (Pending& p : pending_) {
      p.due = std::min(p.due, world_.now + 400'000);
    }
  }
  static constexpr std::int64_t kForGood = INT64_MAX;
  bool troubled() const { return troubled_; }
  bool any_gone() const {
    return std::any_of(troubles_.begin(), troubles_.end(), [&](const auto& device) {
      return device[static_cast<std::size_t>(Trouble::gone)] > world_.now;
    });
  }
  /// Number of begun and ended transfers.
  std::uint64_t events() const { return events_; }

 private:
  struct Pending {
    IoRequest request;
    std::int64_t due;
  };
  using Block = std::array<std::byte, 512>;

  std::int64_t until(std::uint16_t device, Trouble what) const {
    return troubles_[device][static_cast<std::size_t>(what)];
  }
  bool has(std::uint16_t device, Trouble what) const { return until(device, what) > world_.now; }

  std::int32_t run(const IoRequest& request) {
    if (world_.strikes(rates_.again)) {
      return world_.one_in(2) ? -EAGAIN : -EINTR;
    }
    if (has(request.device, Trouble::gone)) {
      ++world_.faults;
      return world_.one_in(2) ? -ENODEV : -ENXIO;
    }
    if (request.write && has(request.device, Trouble::full)) {
      ++world_.faults;
      return -ENOSPC;
    }
    std::uint32_t length = request.length;
    if (world_.strikes(rates_.short_io) && length > 512) {
      length = static_cast<std::uint32_t>(1 + world_.below(length / 512 - 1)) * 512;
    }
    const bool error = world_.strikes(rates_.io_error);
    if (request.write) {
      const bool torn = error || world_.strikes(rates_.torn);
      const bool lost = world_.strikes(rates_.lost_write);
      corrupted_ = corrupted_ || lost;
      for (std::uint32_t at = 0; at < length && !lost; at += 512) {
        if (torn && world_.one_in(2)) {
          continue;  // Some sectors were written, and some were not.
        }
        std::memcpy(blocks_[{request.device, (request.offset + at) / 512}].data(),
                    byte_of(request, at), 512);
      }
      return torn ? -EIO : static_cast<std::int32_t>(length);
    }
    if (error) {
      constexpr std::array kErrors = {EIO, ENODATA, ETIMEDOUT};
      return -kErrors[world_.below(kErrors.size())];
    }
    for (std::uint32_t at = 0; at < length; at += 512) {
      const auto block = blocks_.find({request.device, (request.offset + at) / 512});
      if (block != blocks_.end()) {
        std::memcpy(byte_of(request, at), block->second.data(), 512);
      } else {
        std::memset(byte_of(request, at), 0xCC, 512);  // Never written: no caller may rely on it.
      }
    }
    if (world_.strikes(rates_.flip)) {
      *byte_of(request, world_.below(length)) ^=
          std::byte{static_cast<unsigned char>(1u << world_.below(8))};
      corrupted_ = true;
    }
    return static_cast<std::int32_t>(length);
  }

  World& world_;
  const FaultRates& rates_;
  std::vector<std::uint64_t> sizes_;
  const std::uint64_t limit_;
  std::vector<Pending> pending_;
  std::map<std::pair<std::uint16_t, std::uint64_t>, Block> blocks_;
  std::vector<std::array<std::int64_t, 3>> troubles_;  // By kind: the end time.
  bool corrupted_ = false, troubled_ = false;
  std::uint64_t events_ = 0;
};

/// Also runs the devices' copies. They begin and end in submission order, separately for each
/// direction.
class FakeWorkers final : public Workers, public FakeCopies {
 public:
  FakeWorkers(World& world, const FaultRates& rates) : world_(world), rates_(rates) {}
  void submit(Job* job) override {
    world_.crossed("job", job->steps, job->bytes);
    const std::int64_t slow = world_.one_in(rates_.slow) ? 30'000'000 : 0;
    begin_job(*job, this);
    ++events_;
    pending_.push_back({job, world_.now + static_cast<std::int64_t>(world_.below(200'000)) + slow});
  }
  std::size_t reap(std::span<Done> done) override {
    while (run_one()) {
    }
    const std::size_t n = std::min(done.size(), done_.size());
    events_ += n;
    std::copy_n(done_.begin(), n, done.begin());
    done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(n));
    return n;
  }
  void copied(Job& job) override { go_on(job); }
  void copy_begun(Job& job, std::uint64_t ordinal) override { done_.push_back({&job, ordinal}); }

  void copy(unsigned device, bool in, bool fails, std::function<void()> move,
            Completion& end) override {
    world_.crossed(in ? "copy_in" : "copy_out", device, fails);
    Lane& lane = lanes_[2 * device + (in ? 1 : 0)];
    const auto some = [&] { return static_cast<std::int64_t>(world_.below(200'000)); };
    const std::int64_t begins = std::max(world_.now, lane.last_begins) + some();
    const std::int64_t ends = std::max(begins, lane.last_ends) + some();
    lane.copies.push_back({std::move(move), &end, begins, ends, in, fails, world_.one_in(2)});
    lane.last_begins = begins;
    lane.last_ends = ends;
  }
  /// Number of copies to the device that have ended.
  std::uint64_t ended(unsigned device) const { return lanes_[2 * device + 1].ended; }
  bool failed(unsigned device, std::uint64_t after, std::uint64_t to) const {
    const std::vector<std::uint64_t>& all = lanes_[2 * device + 1].failed;
    return std::any_of(all.begin(), all.end(),
                       [&](std::uint64_t each) { return each > after && each <= to; });
  }
  /// Delays one of the workers until `until`.
  void stall(std::int64_t until) {
    if (!pending_.empty()) {
      ++world_.faults;
      std::int64_t& due = pending_[world_.below(pending_.size())].second;
      due = std::max(due, until);
    }
  }
  void heal() {
    for (auto& p : pending_) {
      p.second = std::min(p.second, world_.now + 200'000);
    }
  }
  /// Number of begun and ended jobs and copies.
  std::uint64_t events() const { return events_; }
  bool any_failed() const { return !lanes_[1].failed.empty() || !lanes_[3].failed.empty(); }

  std::int64_t next_due() const {
    std::int64_t due = done_.empty() ? INT64_MAX : world_.now;
    for (const auto& p : pending_) {
      due = std::min(due, p.second);
    }
    for (const Lane& lane : lanes_) {
      due = std::min(due, lane.due());
    }
    return due;
  }

 private:
  struct Copy {
    std::function<void()> move;
    Completion* end;
    std::int64_t begins, ends;
    bool in, fails, moves_late;
  };
  struct Lane {
    std::deque<Copy> copies;
    std::size_t under_way = 0;  // The first ones have begun.
    std::uint64_t ended = 0;
    std::int64_t last_begins = 0, last_ends = 0;
    std::vector<std::uint64_t> failed;
    std::int64_t due() const {
      const std::int64_t ends = under_way != 0 ? copies.front().ends : INT64_MAX;
      const std::int64_t begins = under_way < copies.size() ? copies[under_way].begins : INT64_MAX;
      return std::min(begins, ends);
    }
  };

  // Runs the next thing that is due, if any.
  bool run_one() {
    const auto job = std::min_element(pending_.begin(), pending_.end(),
                                      [](auto& a, auto& b) { return a.second < b.second; });
    Lane& lane = *std::min_element(lanes_.begin(), lanes_.end(),
                                   [](const Lane& a, const Lane& b) { return a.due() < b.due(); });
    const std::int64_t job_due = job == pending_.end() ? INT64_MAX : job->second;
    if (std::min(job_due, lane.due()) > world_.now) {
      return false;
    }
    if (lane.due() <= job_due) {
      advance(lane);
      return true;
    }
    Job& due = *job->first;
    pending_.erase(job);
    go_on(due);
    return true;
  }
  void go_on(Job& job) {
    if (run_job(job)) {
      done_.push_back({&job, 0});
    }
  }
  void advance(Lane& lane) {
    const bool ends =
        lane.under_way != 0 && (lane.under_way == lane.copies.size() ||
                                lane.copies.front().ends <= lane.copies[lane.under_way].begins);
    if (!ends) {
      Copy& begins = lane.copies[lane.under_way++];
      if (!begins.moves_late && !begins.fails) {
        begins.move();
      }
      if (begins.in && begins.end->begun != nullptr) {
        begins.end->begun(*begins.end, lane.ended + lane.under_way);
      }
      return;
    }
    const Copy copy = std::move(lane.copies.front());
    lane.copies.pop_front();
    --lane.under_way;
    ++lane.ended;
    if (copy.fails) {
      lane.failed.push_back(lane.ended);
      copy.end->status =
          fail(Code::io_error, "a copy {} the device failed", copy.in ? "to" : "from");
    } else if (copy.moves_late) {
      copy.move();
    }
    copy.end->ended(*copy.end);
  }

  World& world_;
  const FaultRates& rates_;
  std::vector<std::pair<Job*, std::int64_t>> pending_;
  std::vector<Done> done_;
  std::array<Lane, 8> lanes_;  // For each device, out and in; and the direct path.
  std::uint64_t events_ = 0;
};

}  // namespace tiermem::sim
