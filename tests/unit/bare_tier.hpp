// A memory and its space that support only what every one must, for tests of code that needs any.
#pragma once

#include <array>

#include "tier/address_space.hpp"
#include "tier/memory.hpp"

namespace tiermem::test {

/// Supports only what every memory must: one frame.
class BareTier final : public AddressSpace, public Memory {
 public:
  BareTier() : Memory(static_cast<AddressSpace&>(*this)) {}
  Place place() const override { return {Kind::dram, 0}; }
  bool host_addressable() const override { return true; }
  std::span<Memory* const> memories() const override { return memories_; }
  FrameId acquire_frame(const FrameRequest&) override { return {0}; }
  void return_frame(FrameId) override {}
  FrameUsage usage() const override { return {kDefaultExtent, 0, 0}; }
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
  std::byte* bytes_at(FrameId, std::byte*) const override { return nullptr; }
  Status map(FrameId, std::byte*, Mechanism&) override { return {}; }
  Status unmap(FrameId, std::byte*) override { return {}; }

 private:
  const std::array<Memory*, 1> memories_{this};
};

}  // namespace tiermem::test
