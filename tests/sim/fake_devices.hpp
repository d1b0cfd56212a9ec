// Block devices of the simulated machine, and its hands: everything takes a while of virtual time,
// ends in another order than it began, and fails as the dice say. Bytes are kept by 4 KiB block.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "mover/job.hpp"
#include "os/io_port.hpp"
#include "tests/sim/fake_memory.hpp"
#include "tests/support/io_bytes.hpp"

namespace tiermem::sim {

/// Virtual time and its one source of chance.
struct World {
  explicit World(std::uint64_t seed) : random(seed) {}
  std::mt19937_64 random;
  std::int64_t now = 0;
  std::uint64_t below(std::uint64_t n) { return n == 0 ? 0 : random() % n; }
  bool one_in(std::uint64_t n) { return n != 0 && below(n) == 0; }
};

struct FaultRates {  // One in so many; 0: never.
  std::uint64_t io_error = 0, short_io = 0, again = 0, torn = 0, flip = 0, lost_write = 0,
                no_space = 0;
  std::uint64_t memory = 0, slow = 0;
};

class FakePort final : public IoPort {
 public:
  FakePort(World& world, const FaultRates& rates, unsigned devices, std::uint64_t device_bytes)
      : world_(world), rates_(rates), sizes_(devices), limit_(device_bytes) {}

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
    const std::int64_t slow = world_.one_in(rates_.slow) ? 50'000'000 : 0;
    pending_.push_back(
        {request, world_.now + 10'000 + static_cast<std::int64_t>(world_.below(400'000)) + slow});
    return true;
  }
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
    }
    return n;
  }
  Status grow(std::uint16_t device, std::uint64_t bytes) override {
    if (world_.one_in(rates_.no_space) || bytes > limit_) {
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
  /// What is on the device, without any fault.
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
  /// A bit of what was read or written was wrong: `lost` is then a right answer.
  bool corrupted() const { return corrupted_; }

 private:
  struct Pending {
    IoRequest request;
    std::int64_t due;
  };
  using Block = std::array<std::byte, 512>;

  std::int32_t run(const IoRequest& request) {
    if (world_.one_in(rates_.again)) {
      return world_.one_in(2) ? -EAGAIN : -EINTR;
    }
    std::uint32_t length = request.length;
    if (world_.one_in(rates_.short_io) && length > 512) {
      length = static_cast<std::uint32_t>(1 + world_.below(length / 512 - 1)) * 512;
    }
    const bool error = world_.one_in(rates_.io_error);
    if (request.write) {
      const bool torn = error || world_.one_in(rates_.torn);
      const bool lost = world_.one_in(rates_.lost_write);
      corrupted_ = corrupted_ || lost;
      for (std::uint32_t at = 0; at < length && !lost; at += 512) {
        if (torn && world_.one_in(2)) {
          continue;  // Some sectors were written, some were not.
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
        std::memset(byte_of(request, at), 0xCC, 512);  // Never written: nobody may rely on it.
      }
    }
    if (world_.one_in(rates_.flip)) {
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
  bool corrupted_ = false;
};

class FakeHands final : public Hands {
 public:
  FakeHands(World& world, const FaultRates& rates) : world_(world), rates_(rates) {}
  void submit(Job* job) override {
    const std::int64_t slow = world_.one_in(rates_.slow) ? 30'000'000 : 0;
    begin_job(*job, this);
    pending_.push_back({job, world_.now + static_cast<std::int64_t>(world_.below(200'000)) + slow});
  }
  std::size_t reap(std::span<Job*> done) override {
    std::size_t n = 0;
    while (n < done.size()) {
      const auto first =
          std::min_element(pending_.begin(), pending_.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; });
      if (first == pending_.end() || first->second > world_.now) {
        break;
      }
      Job* job = first->first;
      pending_.erase(first);
      (void)run_job(*job);
      done[n++] = job;
    }
    return n;
  }
  void copied(Job&) override {}
  std::int64_t next_due() const {
    std::int64_t due = INT64_MAX;
    for (const auto& p : pending_) {
      due = std::min(due, p.second);
    }
    return due;
  }

 private:
  World& world_;
  const FaultRates& rates_;
  std::vector<std::pair<Job*, std::int64_t>> pending_;
};

}  // namespace tiermem::sim
