// Adopted files of the simulated machine: ranges that are read and never written, that fail, and
// that another process changes. A change that the file system shows (size, times) must fail every
// later read, as in FileTier. The mover's checksums must find a change that it does not show. One
// thread.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "tests/sim/fake_devices.hpp"

namespace tiermem::sim {

class FakeFiles final : public SlotTier {
 public:
  FakeFiles(World& world, const FaultRates& rates) : world_(world), rates_(rates) {}

  /// Makes a file of `size` random bytes. Returns the slot of its byte `begin`, a multiple of 4096.
  SlotId adopt(std::uint64_t size, std::uint64_t begin) {
    File& file = files_.emplace_back();
    file.bytes.resize(size);
    scribble(file);
    return {(files_.size() - 1) << kNumberShift | begin / kBlock};
  }
  const std::vector<std::byte>& bytes(SlotId slot) const { return file_of(slot).bytes; }
  /// Changes the bytes; `shown`: also the modification time.
  void change(SlotId slot, bool shown) {
    File& file = file_of(slot);
    file.changed = file.changed || shown;
    scribble(file);
  }
  bool closed() const {
    return std::all_of(files_.begin(), files_.end(), [](const File& file) { return !file.open; });
  }
  std::uint64_t events() const { return events_; }
  std::int64_t next_due() const {
    std::int64_t due = INT64_MAX;
    for (const Read& read : pending_) {
      due = std::min(due, read.due);
    }
    return due;
  }

  /// Whether a read to this memory is in progress.
  bool reads_to(const test::PageBytes& memory) const {
    return std::any_of(pending_.begin(), pending_.end(), [&](const Read& read) {
      return read.transfer.data >= memory.data() &&
             read.transfer.data < memory.data() + memory.size();
    });
  }

  Place place() const override { return {Kind::file, 0}; }
  Result<SlotId> allocate(std::uint64_t, std::uint64_t) override { return Code::unsupported; }
  void free(SlotId slot) override {
    File& file = file_of(slot);
    if (!file.open || file.reads != 0) {
      throw std::logic_error("a file was closed twice, or under a read");
    }
    file.open = false;
    world_.crossed("close_file", slot.value);
  }
  SlotUsage usage() const override { return {}; }
  void set_budget(std::uint64_t) override {}
  Status grow(std::uint64_t) override { return Code::unsupported; }
  unsigned depth() const override { return 4; }
  std::uint16_t device_of(SlotId slot) const override {
    return static_cast<std::uint16_t>(slot.value >> kNumberShift);
  }
  const char* device_name(std::uint16_t) const override { return "file"; }
  void degrade(std::uint16_t, const char*) override {}
  void trust_again() override {}
  unsigned degraded() const override { return 0; }

  void submit(const SlotTransfer& transfer) override {
    File& file = file_of(transfer.slot);
    if (transfer.write || !file.open) {
      throw std::logic_error("a write to an adopted file, or a read of a closed one");
    }
    ++file.reads;
    ++events_;
    world_.crossed("read_file", transfer.slot.value, transfer.length);
    const std::int64_t slow = world_.one_in(rates_.slow) ? 50'000'000 : 0;
    pending_.push_back(
        {transfer, world_.now + 10'000 + static_cast<std::int64_t>(world_.below(400'000)) + slow});
  }
  std::size_t reap(std::span<SlotCompletion> out) override {
    std::size_t n = 0;
    while (n < out.size()) {
      const auto first =
          std::min_element(pending_.begin(), pending_.end(),
                           [](const Read& a, const Read& b) { return a.due < b.due; });
      if (first == pending_.end() || first->due > world_.now) {
        break;
      }
      const SlotTransfer transfer = first->transfer;
      pending_.erase(first);
      ++events_;
      out[n++] = run(transfer);
    }
    return n;
  }

 private:
  static constexpr unsigned kNumberShift = 44;
  static constexpr std::uint64_t kBlock = 4096;
  struct File {
    std::vector<std::byte> bytes;
    bool changed = false;
    bool open = true;
    unsigned reads = 0;
  };
  struct Read {
    SlotTransfer transfer;
    std::int64_t due;
  };

  File& file_of(SlotId slot) { return files_[slot.value >> kNumberShift]; }
  const File& file_of(SlotId slot) const { return files_[slot.value >> kNumberShift]; }
  void scribble(File& file) {
    for (std::byte& byte : file.bytes) {
      byte = static_cast<std::byte>(world_.below(256));
    }
  }
  SlotCompletion run(const SlotTransfer& transfer) {
    File& file = file_of(transfer.slot);
    --file.reads;
    SlotCompletion done;
    done.cookie = transfer.cookie;
    done.device = device_of(transfer.slot);
    done.device_offset =
        (transfer.slot.value & ((std::uint64_t{1} << kNumberShift) - 1)) * kBlock + transfer.offset;
    if (file.changed || world_.strikes(rates_.io_error)) {
      done.code = Code::io_error;
      done.native = file.changed ? ESTALE : EIO;
      // Bytes that arrived before the failure are in the frame, and must not become visible.
      std::memset(transfer.data, 0x77, transfer.length);
      return done;
    }
    const std::uint64_t from = std::min<std::uint64_t>(done.device_offset, file.bytes.size());
    const std::uint64_t inside = std::min(transfer.length, file.bytes.size() - from);
    std::memcpy(transfer.data, file.bytes.data() + from, inside);
    std::memset(transfer.data + inside, 0, transfer.length - inside);
    return done;
  }

  World& world_;
  const FaultRates& rates_;
  std::vector<File> files_;
  std::vector<Read> pending_;
  std::uint64_t events_ = 0;
};

}  // namespace tiermem::sim
