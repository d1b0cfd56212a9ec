// One port for several users. Each lane is an IoPort of its own, with some of the port's devices; a
// tag in the cookie keeps its completions apart. The block tiers and the adopted files thus share
// one ring and one sleep.
//
// Threads: only the port's owner; grow() and read_here() as for the port.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/arena.hpp"
#include "os/io_port.hpp"

namespace tiermem {

class IoLanes {
 public:
  /// The number of block tiers that can share the port.
  static constexpr unsigned kMostTiers = 7;
  explicit IoLanes(IoPort& port) : port_(&port) {
    for (unsigned number = 0; number <= kMostTiers; ++number) {
      lanes_.emplace_back(*this, number);
    }
  }
  IoLanes(const IoLanes&) = delete;
  IoLanes& operator=(const IoLanes&) = delete;
  /// Replaces the port. No request may be in progress on either port.
  void change_port(IoPort& port) { port_ = &port; }
  /// The lane of the block tier with this number.
  IoPort& lane(unsigned number) { return lanes_[number]; }
  /// A lane without devices, for reads and writes of descriptors.
  IoPort& files() { return lanes_[kMostTiers]; }
  /// The lane gets the next `count` devices of the port that no lane has.
  void give_devices(unsigned number, unsigned count) {
    for (; count > 0; --count) {
      lanes_[number].devices_.push_back(given_++);
    }
  }
  /// Returns whether a lane has completions that its user has not reaped: reaping one lane may
  /// bring completions of the other. The owner must not sleep on the port in this state, because
  /// the port does not know them.
  bool pending() const {
    return std::any_of(lanes_.begin(), lanes_.end(),
                       [](const Lane& lane) { return !lane.ready_.empty(); });
  }

 private:
  static constexpr unsigned kTagShift = 61;
  static constexpr std::uint64_t kCookieMask = (std::uint64_t{1} << kTagShift) - 1;

  class Lane final : public IoPort {
   public:
    Lane(IoLanes& lanes, unsigned number) : lanes_(lanes), number_(number) {}
    unsigned devices() const override { return static_cast<unsigned>(devices_.size()); }
    DeviceFacts facts(std::uint16_t device) const override {
      return lanes_.port_->facts(devices_[device]);
    }
    bool submit(const IoRequest& request) override {
      IoRequest tagged = request;
      tagged.device = request.fd < 0 ? devices_[request.device] : request.device;
      tagged.cookie = (request.cookie & kCookieMask) | std::uint64_t{number_} << kTagShift;
      return lanes_.port_->submit(tagged);
    }
    void flush() override { lanes_.port_->flush(); }
    std::size_t reap(std::span<IoCompletion> completions) override {
      lanes_.sort();
      std::size_t n = 0;
      for (; n < completions.size() && !ready_.empty(); ++n) {
        completions[n] = ready_.front();
        ready_.pop_front();
      }
      return n;
    }
    bool reads_here() const override { return lanes_.port_->reads_here(); }
    std::int32_t read_here(const IoRequest& request) override {
      IoRequest on_port = request;
      on_port.device = request.fd < 0 ? devices_[request.device] : request.device;
      return lanes_.port_->read_here(on_port);
    }
    Status grow(std::uint16_t device, std::uint64_t bytes) override {
      return lanes_.port_->grow(devices_[device], bytes);
    }

   private:
    friend class IoLanes;
    IoLanes& lanes_;
    unsigned number_;
    Vector<std::uint16_t> devices_;  // By the lane's numbers: those of the port.
    Deque<IoCompletion> ready_;
  };

  // Reaps the port and gives each completion to its lane.
  void sort() {
    std::array<IoCompletion, 64> batch;
    for (std::size_t n = port_->reap(batch); n > 0; n = port_->reap(batch)) {
      for (std::size_t i = 0; i < n; ++i) {
        Lane& lane = lanes_[batch[i].cookie >> kTagShift];
        lane.ready_.push_back({batch[i].cookie & kCookieMask, batch[i].result});
      }
    }
  }

  IoPort* port_;
  Deque<Lane> lanes_;
  std::uint16_t given_ = 0;  // Devices of the port that lanes have.
};

}  // namespace tiermem
