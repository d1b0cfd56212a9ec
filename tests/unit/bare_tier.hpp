// A memory that supports only what every memory must, for tests of code that needs any memory.
#pragma once

#include "tier/tier.hpp"

namespace tiermem::test {

/// Supports only what every memory must: one frame.
class BareTier final : public AddressableTier {
 public:
  Place place() const override { return {Kind::dram, 0}; }
  bool host_addressable() const override { return true; }
  FrameId acquire_frame(const FrameRequest&) override { return {0}; }
  void return_frame(FrameId) override {}
  FrameBooks books() const override { return {kDefaultExtent, 0, 0}; }
  void set_budget(std::uint64_t) override {}
  bool needs_populate(FrameId) const override { return false; }
  Status populate(FrameId, bool, std::byte*) override { return {}; }
  std::uint64_t begin_trim(std::uint64_t) override { return 0; }
  void run_trim() override {}
  void finish_trim() override {}
  Result<std::byte*> reserve_window(std::uint64_t, std::uint64_t, bool) override {
    return Code::unsupported;
  }
  void release_window(std::byte*, std::uint64_t) override {}
  Pool window_pool(std::uint64_t) const override { return Pool::small; }
  std::byte* landing(FrameId, std::byte*) const override { return nullptr; }
  Status map(FrameId, std::byte*, Mechanism&) override { return {}; }
  Status unmap(FrameId, std::byte*) override { return {}; }
};

}  // namespace tiermem::test
