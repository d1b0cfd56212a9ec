// Memories of the simulated machine: frames of plain host memory, or of an opaque device with bytes
// that the host cannot read (the view's pointer is a number, and the bytes are kept scrambled). An
// object is an address space and its first memory. add_memory() gives the space another one, which
// is only a memory: the first object has all windows. Deterministic.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "tests/support/page_bytes.hpp"
#include "tier/address_space.hpp"
#include "tier/memory.hpp"

namespace tiermem::sim {

/// Decides which call fails next; the world sets it from the seed.
struct FaultDice {
  virtual ~FaultDice() = default;
  virtual bool strikes(const char* what) = 0;
  /// A call on a frame crosses the seam; for the digest of a run.
  virtual void crossed(const char* what, std::uint64_t frame) { (void)what, (void)frame; }
};

struct Misuse : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Runs the copies to and from an opaque device.
struct FakeCopies {
  virtual ~FakeCopies() = default;
  /// `move` is called between begin and end, unless the copy fails.
  virtual void copy(unsigned device, bool in, bool fails, std::function<void()> move,
                    Completion& end) = 0;
};

class FakeMemory final : public AddressSpace, public Memory {
 public:
  FakeMemory(std::uint64_t budget, Place place, FaultDice& dice)
      : Memory(static_cast<AddressSpace&>(*this)),
        budget_(budget),
        place_(place),
        opaque_(place.kind == Kind::gpu),
        dice_(dice) {}
  /// Adds a memory to the space, before a mover knows it. The space owns it.
  FakeMemory& add_memory(std::uint64_t budget, Place place) {
    further_.emplace_back(
        new FakeMemory(*this, static_cast<unsigned>(memories_.size()), budget, place, dice_));
    memories_.push_back(further_.back().get());
    return *further_.back();
  }
  /// Small frames of one size share chunks of `bytes`, which are charged whole, as those of
  /// HostMemory. Call it before a mover knows the memory.
  void share_chunks(std::uint64_t bytes) { chunk_bytes_ = bytes; }
  /// Bytes of chunks that no frame has.
  std::uint64_t free_in_chunks() const {
    std::uint64_t bytes = 0;
    for (const auto& [number, chunk] : chunks_) {
      bytes += chunk.free * chunk.frame_bytes;
    }
    return bytes;
  }
  /// Lets this memory have no frame in a window that the program touches without views, or may not
  /// write. Call it before a mover knows the memory.
  void take_plain_only() { plain_only_ = true; }
  /// Returns the memory of this number.
  FakeMemory& memory(unsigned number) { return number == 0 ? *this : *further_[number - 1]; }
  const FakeMemory& memory(unsigned number) const {
    return number == 0 ? *this : *further_[number - 1];
  }
  /// Bytes that were relocated in the space.
  std::uint64_t relocated() const { return relocated_; }

  Place place() const override { return place_; }
  /// Loses the device: no more copies, and its content is inaccessible.
  void lose() { lost_ = true; }
  bool lost() const override { return lost_; }
  Status loss() const override {
    return lost_ ? fail(Code::unavailable, "the device is lost") : Status();
  }
  std::span<Memory* const> memories() const override { return memories_; }
  bool host_addressable() const override { return !opaque_; }

  bool takes(const FrameRequest& request) const override {
    return (request.plain || !plain_only_) && request.may_be_in(number());
  }
  std::uint64_t room_for(const FrameRequest& request) const override {
    return shares_chunk(request) ? chunk_bytes_ : request.bytes;
  }
  FrameId acquire_frame(const FrameRequest& request) override {
    dice_.crossed("acquire", request.bytes);
    if (!takes(request)) {
      return {};
    }
    if (shares_chunk(request)) {
      return acquire_in_chunk(request);
    }
    for (const std::uint64_t id : idle_) {
      Frame& frame = frames_.at(id);
      if (frame.bytes.size() == request.bytes && in_use_ + request.bytes <= budget_) {
        idle_.erase(id);
        cached_ -= request.bytes;
        in_use_ += request.bytes;
        frame.used = true;
        frame.stale = frame.shown != nullptr;
        frame.foreign = frame.domain != request.domain;
        frame.domain = request.domain;
        return FrameId{id};
      }
    }
    if (in_use_ + cached_ + request.bytes > budget_) {
      return {};
    }
    in_use_ += request.bytes;
    Frame& frame = frames_[next_];
    frame.bytes.assign(request.bytes, std::byte{0xEE});  // A fresh frame has no useful bytes.
    frame.used = true;
    frame.domain = request.domain;
    return {next_++};
  }
  void return_frame(FrameId id) override {
    dice_.crossed("return", id.value);
    Frame& frame = frames_.at(id.value);
    if (frame.at != nullptr) {
      throw Misuse("a frame is given back in its window");
    }
    if (frame.chunk != 0) {
      return_to_chunk(frame);
      frames_.erase(id.value);
      return;
    }
    if (frame.in_parts && frame.has != 0) {
      frame.used = false;  // It stays charged until it is trimmed.
      leaving_.push_back(id.value);
      leaving_bytes_ += frame.charged * kSmallestExtent;
      return;
    }
    if (frame.in_parts) {
      in_use_ -= frame.charged * kSmallestExtent;
      frames_.erase(id.value);
      return;
    }
    in_use_ -= frame.bytes.size();
    frame.used = false;
    if (in_use_ + cached_ + frame.bytes.size() > budget_ || !frame.populated) {
      hide(frame);
      frames_.erase(id.value);
    } else {
      cached_ += frame.bytes.size();
      idle_.insert(id.value);
    }
  }
  FrameUsage usage() const override { return {budget_, in_use_, cached_, leaving_bytes_}; }
  void set_budget(std::uint64_t bytes) override { budget_ = bytes; }
  bool needs_populate(FrameId id) const override {
    const Frame& frame = frames_.at(id.value);
    return !frame.populated || frame.foreign || frame.shown != nullptr;
  }
  Status populate(FrameId id, bool clear, std::byte* at) override {
    dice_.crossed("populate", id.value);
    if (lost_) {
      return loss();
    }
    if (dice_.strikes("populate")) {
      return fail(Code::no_capacity, "the kernel has no pages");
    }
    Frame& frame = frames_.at(id.value);
    if (frame.shown != at) {
      hide(frame);
    }
    frame.stale = false;
    if (!frame.populated || frame.foreign || clear) {
      std::fill(frame.bytes.begin(), frame.bytes.end(), scrambled(std::byte{0}));
    }
    frame.populated = true;
    frame.foreign = false;
    return {};
  }
  std::uint64_t begin_trim(std::uint64_t bytes) override {
    dice_.crossed("trim", bytes);
    std::uint64_t taken = std::exchange(leaving_bytes_, 0);
    trimming_.insert(trimming_.end(), leaving_.begin(), leaving_.end());
    leaving_.clear();
    while (!idle_.empty() && taken < bytes) {
      taken += frames_.at(*idle_.begin()).bytes.size();
      trimming_.push_back(*idle_.begin());
      idle_.erase(idle_.begin());
    }
    return taken;
  }
  void run_trim() override {}
  void finish_trim() override {
    for (const std::uint64_t id : trimming_) {
      Frame& frame = frames_.at(id);
      hide(frame);
      (frame.in_parts ? in_use_ : cached_) -=
          frame.in_parts ? frame.charged * kSmallestExtent : frame.bytes.size();
      frames_.erase(id);
    }
    trimming_.clear();
  }

  Result<std::byte*> reserve_window(std::uint64_t bytes, std::uint64_t, bool mapped) override {
    if (opaque_ && mapped) {
      return Code::unsupported;  // A device's touches cannot wait.
    }
    if (opaque_) {
      ++device_windows_;
      next_window_ += std::uint64_t{1} << 40;
      return reinterpret_cast<std::byte*>(next_window_);  // A number, not a host address.
    }
    return windows_.emplace_back(bytes, std::byte{0xDD}).data();
  }
  void release_window(std::byte* window, std::uint64_t bytes) override {
    if (opaque_) {
      --device_windows_;
      while (!shown_.empty() && shown_.lower_bound(window) != shown_.end() &&
             shown_.lower_bound(window)->first < window + bytes) {
        hide(frames_.at(shown_.lower_bound(window)->second));
      }
      return;
    }
    std::erase_if(windows_, [&](const auto& w) { return w.data() == window; });
  }
  Pool window_pool(std::uint64_t extent_bytes) const override {
    return extent_bytes < kDefaultExtent ? Pool::small : Pool::movable;
  }
  std::byte* bytes_at(FrameId id, std::byte*) const override {
    if (opaque_) {
      return reinterpret_cast<std::byte*>(id.value << 32);  // A number, not a host address.
    }
    return const_cast<std::byte*>(frame_of(id).bytes.data());
  }
  Status map(FrameId id, std::byte* at, Mechanism& used) override {
    dice_.crossed("map", id.value);
    if (at == nullptr) {
      return {};
    }
    if (dice_.strikes("map")) {
      return fail(Code::busy, "the frame could not be mapped");
    }
    Frame& frame = frame_of(id);
    if (frame.at != nullptr) {
      throw Misuse("a frame that is in a window is mapped");
    }
    std::memcpy(at, frame.bytes.data(), frame.bytes.size());
    frame.at = at;
    used = Mechanism::copy;
    return {};
  }
  Status unmap(FrameId id, std::byte* at) override {
    dice_.crossed("unmap", id.value);
    if (at == nullptr) {
      return {};
    }
    if (dice_.strikes("unmap")) {
      return fail(Code::no_capacity, "the kernel takes nothing back now");
    }
    take_out(id, at);
    frame_of(id).has = 0;
    return {};
  }
  Status withdraw(FrameId id, std::byte* at) override {
    dice_.crossed("withdraw", id.value);
    if (dice_.strikes("withdraw")) {
      return fail(Code::busy, "page-locked");
    }
    take_out(id, at);
    return {};
  }
  Status take_home(FrameId id, std::byte* at) override {
    dice_.crossed("take_home", id.value);
    Frame& frame = frame_of(id);
    if (opaque_ || frame.in_parts || present(at)) {
      throw Misuse("a frame that is in no plain window is taken home");
    }
    if (dice_.strikes("take_home")) {
      return fail(Code::busy, "page-locked");
    }
    take_out(id, at);
    return {};
  }
  Status relocate(FrameId from, FrameId to, std::byte* at, bool& home) override {
    dice_.crossed("relocate", from.value);
    home = at == nullptr;
    Frame& source = frame_of(from);
    Frame& target = frame_of(to);
    if (opaque_ || from.memory() == to.memory() || source.at != at || source.in_parts ||
        target.at != nullptr || target.in_parts || source.bytes.size() != target.bytes.size()) {
      throw Misuse(fmt::format(
          "frame {:#x} at {} of {} bytes is relocated from {} to {:#x}, of {}{}", from.value,
          static_cast<void*>(source.at), source.bytes.size(), static_cast<void*>(at), to.value,
          target.bytes.size(), source.in_parts || target.in_parts ? ", in parts" : ""));
    }
    if (dice_.strikes("relocate")) {
      return fail(Code::busy, "page-locked");
    }
    if (dice_.strikes("relocate_populate")) {
      return fail(Code::no_capacity, "the kernel has no pages there");
    }
    const std::byte* const bytes = at != nullptr ? at : source.bytes.data();
    std::memcpy(target.bytes.data(), bytes, source.bytes.size());
    target.populated = true;
    target.foreign = false;
    source.at = nullptr;
    source.watched = false;
    relocated_ += source.bytes.size();
    std::fill(source.bytes.begin(), source.bytes.end(), std::byte{0xDD});
    const bool mapped = at != nullptr && present(at);
    if (mapped && memory(to.memory()).plain_only_) {
      throw Misuse("a mapped extent is relocated to a memory for plain windows");
    }
    if (at != nullptr && !mapped && dice_.strikes("relocate_map")) {
      std::memset(at, 0xDD, source.bytes.size());
      home = true;
    } else {
      target.at = at;
    }
    return {};
  }
  bool has_locked_pages(FrameId id) const override { return id.value % 5 == 0; }
  bool restores_at_once(FrameId id, const std::byte*) const override { return id.value % 3 == 0; }
  Status restore(FrameId id, std::byte* at) override {
    dice_.crossed("restore", id.value);
    if (memory(id.memory()).plain_only_) {
      throw Misuse("a frame of a memory for plain windows comes to a mapped one");
    }
    Frame& frame = frame_of(id);
    for_pages(frame, [&](std::uint64_t offset, std::uint64_t n) {
      std::memcpy(at + offset, frame.bytes.data() + offset, n);
      present_.insert(at + offset);
    });
    frame.at = at;
    return {};
  }
  /// Whether the page of a mapped window at `page` is present, so that a touch does not wait.
  bool present(std::byte* page) const { return present_.count(page) != 0; }

  bool takes_parts(std::uint64_t extent_bytes, bool) const override {
    return !opaque_ && extent_bytes > kSmallestExtent &&
           extent_bytes <= kMostParts * kSmallestExtent;
  }
  FrameId acquire_parts(const FrameRequest& request, unsigned pages) override {
    dice_.crossed("acquire_parts", pages);
    if (!takes(request) || !takes_parts(request.bytes, false) ||
        pages * kSmallestExtent > request.bytes ||
        in_use_ + cached_ + pages * kSmallestExtent > budget_) {
      return {};
    }
    in_use_ += pages * kSmallestExtent;
    return add_parts(request.bytes, request.domain, pages);
  }
  bool charge_parts(FrameId id, unsigned pages) override {
    dice_.crossed("charge", id.value);
    Frame& frame = frames_.at(id.value);
    if (!frame.in_parts || (frame.charged + pages) * kSmallestExtent > frame.bytes.size() ||
        in_use_ + cached_ + pages * kSmallestExtent > budget_) {
      return false;
    }
    in_use_ += pages * kSmallestExtent;
    frame.charged += pages;
    return true;
  }
  void discharge_parts(FrameId id, unsigned pages) override {
    dice_.crossed("discharge", id.value);
    in_use_ -= pages * kSmallestExtent;
    frames_.at(id.value).charged -= pages;
  }
  FrameId split_parts(FrameId id, unsigned pages) override {
    dice_.crossed("split", id.value);
    Frame& frame = frames_.at(id.value);
    if (!frame.in_parts || frame.charged <= pages) {
      throw Misuse(fmt::format("{} pages are split off a frame that is charged for {}", pages,
                               frame.charged));
    }
    if (dice_.strikes("split")) {
      return {};
    }
    frame.charged -= pages;
    return add_parts(frame.bytes.size(), frame.domain, pages);
  }
  void join_parts(FrameId split, FrameId id) override {
    dice_.crossed("join", id.value);
    Frame& given = frames_.at(split.value);
    if (given.has != 0) {
      throw Misuse("a frame with pages joins another");
    }
    frames_.at(id.value).charged += std::exchange(given.charged, 0);
    return_frame(split);
  }
  Status withdraw_to(FrameId to, FrameId id, std::byte* at, PageMask pages) override {
    dice_.crossed("withdraw_to", id.value);
    Frame& frame = frame_of(id);
    Frame& split = frame_of(to);
    if (frame.at != at || (frame.has & pages) != pages || frame.has == pages || split.has != 0 ||
        std::popcount(pages) != static_cast<int>(split.charged)) {
      throw Misuse(fmt::format("pages {:#x} of {:#x} leave for a frame of {}", pages, frame.has,
                               split.charged));
    }
    frame.watched = false;
    if (dice_.strikes("withdraw")) {
      return fail(Code::busy, "page-locked");
    }
    split.has = pages;
    for_pages(split, [&](std::uint64_t offset, std::uint64_t n) {
      std::memcpy(split.bytes.data() + offset, at + offset, n);
      take_page(at + offset);
    });
    frame.has &= ~pages;
    return {};
  }
  Status restore_from(FrameId from, FrameId id, std::byte* at) override {
    dice_.crossed("restore_from", id.value);
    Frame& frame = frame_of(id);
    Frame& split = frame_of(from);
    if (frame.at != at || (frame.has & split.has) != 0) {
      throw Misuse(fmt::format("pages {:#x} return to {:#x}", split.has, frame.has));
    }
    for_pages(split, [&](std::uint64_t offset, std::uint64_t n) {
      std::memcpy(at + offset, split.bytes.data() + offset, n);
      present_.insert(at + offset);
    });
    frame.has |= std::exchange(split.has, 0);
    return {};
  }
  Status insert(FrameId id, std::byte* at, const std::byte* data, PageMask pages,
                bool watched) override {
    dice_.crossed("insert", id.value);
    Frame& frame = frame_of(id);
    if (!frame.in_parts || (frame.has & pages) != 0) {
      return fail(Code::internal, "pages came twice");
    }
    for (std::uint64_t offset = 0; offset < frame.bytes.size(); offset += kSmallestExtent) {
      if ((pages >> offset / kSmallestExtent & 1) != 0) {
        std::memcpy(at + offset, data + offset, kSmallestExtent);
        present_.insert(at + offset);
        if (watched) {
          watched_.insert(at + offset);
        }
      }
    }
    frame.watched = watched && (frame.has == 0 || frame.watched);
    frame.at = at;
    frame.has |= pages;
    if (frame.has == (std::uint64_t{1} << frame.bytes.size() / kSmallestExtent) - 1) {
      if (frame.charged * kSmallestExtent != frame.bytes.size()) {
        return fail(Code::internal, "a whole frame is charged for {} pages", frame.charged);
      }
      frame.in_parts = false;
      frame.has = 0;
      frame.populated = true;
    }
    return {};
  }
  Status empty(FrameId id, std::byte* at, PageMask pages) override {
    dice_.crossed("empty", id.value);
    if (dice_.strikes("empty")) {
      return fail(Code::internal, "the kernel refuses");
    }
    Frame& frame = frame_of(id);
    if (!frame.in_parts || (frame.has & pages) != pages) {
      return fail(Code::internal, "pages that are not there are emptied");
    }
    for (std::uint64_t offset = 0; offset < frame.bytes.size(); offset += kSmallestExtent) {
      if ((pages >> offset / kSmallestExtent & 1) != 0) {
        take_page(at + offset);
      }
    }
    frame.has &= ~pages;
    return {};
  }
  bool may_be_unchanged(FrameId id) const override { return frame_of(id).watched; }
  void end_watch(FrameId id) override { frame_of(id).watched = false; }
  void drop_unchanged(std::span<Unchanged> frames) override {
    for (Unchanged& each : frames) {
      Frame& frame = frame_of(each.frame);
      const bool some = frame.in_parts && each.pages != 0 && each.pages != frame.has;
      const auto chosen = [&](std::uint64_t offset) {
        return !some || (each.pages >> offset / kSmallestExtent & 1) != 0;
      };
      if (some && (each.pages & ~frame.has) != 0) {
        throw Misuse("pages that a frame does not have are dropped");
      }
      each.dropped = frame.watched && !dice_.strikes("drop");
      for_pages(frame, [&](std::uint64_t offset, std::uint64_t) {
        each.dropped = each.dropped && (!chosen(offset) || watched_.count(each.at + offset) != 0);
      });
      frame.watched = frame.watched && each.dropped && some;
      if (each.dropped) {
        for_pages(frame, [&](std::uint64_t offset, std::uint64_t) {
          if (chosen(offset)) {
            take_page(each.at + offset);
          }
        });
        ++dropped_;
      }
      if (each.dropped && some) {
        frame.has &= ~each.pages;
      } else if (each.dropped) {
        frame.at = nullptr;
        frame.has = 0;
        frame.populated = false;
      }
    }
  }
  /// The program writes there, maybe in a mapped window.
  void written(const std::byte* address) {
    const auto at = reinterpret_cast<std::uint64_t>(address) / kSmallestExtent * kSmallestExtent;
    watched_.erase(reinterpret_cast<const std::byte*>(at));
  }
  std::uint64_t dropped() const { return dropped_; }
  void copy_by(FakeCopies& copies) { copies_ = &copies; }
  Status show(FrameId id, std::byte* at) override {
    dice_.crossed("show", id.value);
    if (lost_ || dice_.strikes("show")) {
      return fail(Code::unavailable, "the driver refuses");
    }
    if (!opaque_) {
      Mechanism used{};
      return map(id, at, used);
    }
    Frame& frame = frame_of(id);
    if (frame.shown == at) {
      return {};
    }
    hide(frame);
    if (const auto other = shown_.find(at); other != shown_.end()) {
      hide(frames_.at(other->second));
    }
    frame.shown = at;
    shown_[at] = id.value;
    return {};
  }
  bool shows(FrameId id, std::byte* at) const override {
    const auto frame = frames_.find(id.value);
    return frame != frames_.end() && frame->second.shown == at;
  }
  bool copy_in(FrameId to, const std::byte* from, std::uint64_t bytes, Completion& end) override {
    if (!opaque_) {
      return Memory::copy_in(to, from, bytes, end);
    }
    const auto move = [this, to, from, bytes] {
      if (frames_.at(to.value).stale) {
        throw Misuse("a frame is in the window of an extent that it was before");
      }
      scramble(frames_.at(to.value).bytes.part(0, bytes), from, bytes);
    };
    copies_->copy(place_.index, true, lost_ || dice_.strikes("copy_in"), move, end);
    return false;
  }
  bool copy_out(std::byte* to, FrameId from, std::uint64_t bytes, Completion& end) override {
    if (!opaque_) {
      return Memory::copy_out(to, from, bytes, end);
    }
    const auto move = [this, to, from, bytes] {
      scramble(to, frames_.at(from.value).bytes.part(0, bytes), bytes);
    };
    copies_->copy(place_.index, false, lost_ || dice_.strikes("copy_out"), move, end);
    return false;
  }

  /// Lets bytes of `other` come here directly.
  void befriend(const FakeMemory& other) { reached_ = &other; }
  bool reaches(const Memory& other) const override { return &other == reached_; }
  bool copy_from(FrameId to, Memory& other, FrameId from, std::uint64_t bytes,
                 Completion& end) override {
    if (!reaches(other)) {
      return Memory::copy_from(to, other, from, bytes, end);
    }
    if (dice_.strikes("refuse_from")) {
      end.status = fail(Code::io_error, "the devices do not reach each other after all");
      return true;
    }
    auto& source = static_cast<FakeMemory&>(other);
    const auto move = [this, to, &source, from, bytes] {
      if (frames_.at(to.value).stale) {
        throw Misuse("a frame is in the window of an extent that it was before");
      }
      std::memcpy(frames_.at(to.value).bytes.part(0, bytes),
                  source.frames_.at(from.value).bytes.part(0, bytes), bytes);
    };
    copies_->copy(place_.index, true, lost_ || source.lost_ || dice_.strikes("copy_from"), move,
                  end);
    return false;
  }

  /// For bytes that reach or leave a frame in another way than by these copies.
  void put(FrameId to, const std::vector<std::byte>& bytes) {
    Frame& frame = frames_.at(to.value);
    if (frame.stale) {
      throw Misuse("a frame is in the window of an extent that it was before");
    }
    scramble(frame.bytes.part(0, bytes.size()), bytes.data(), bytes.size());
  }
  std::vector<std::byte> get(FrameId from, std::uint64_t length) const {
    std::vector<std::byte> bytes(length);
    scramble(bytes.data(), frames_.at(from.value).bytes.part(0, length), length);
    return bytes;
  }

  /// Reads and writes bytes of one frame like a kernel on the device, through a view's pointer.
  void load(std::byte* to, const std::byte* at, std::uint64_t bytes) const {
    const auto [frame, offset] = locate(at);
    scramble(to, frames_.at(frame).bytes.part(offset, bytes), bytes);
  }
  void store(std::byte* at, const std::byte* from, std::uint64_t bytes) {
    const auto [frame, offset] = locate(at);
    scramble(frames_.at(frame).bytes.part(offset, bytes), from, bytes);
  }
  std::byte load(const std::byte* at) const {
    std::byte value{};
    load(&value, at, 1);
    return value;
  }
  void store(std::byte* at, std::byte value) { store(at, &value, 1); }
  std::size_t windows() const { return windows_.size() + device_windows_; }

 private:
  FakeMemory(AddressSpace& space, unsigned number, std::uint64_t budget, Place place,
             FaultDice& dice)
      : Memory(space, number),
        budget_(budget),
        next_(FrameId::in_memory(number, 1).value),
        place_(place),
        opaque_(false),
        dice_(dice) {}

  struct Frame {
    test::PageBytes bytes;  // The block tier sends aligned memory straight to the device.
    std::uint64_t domain = 0;
    bool used = false, populated = false, foreign = false;
    std::byte* at = nullptr;     // Its position in a window.
    std::byte* shown = nullptr;  // Opaque: its position in a window, beside its own address.
    bool stale = false;          // It was shown for an extent that it no longer belongs to.
    bool in_parts = false;
    unsigned charged = 0;
    bool watched = false;
    PageMask has = 0;
    std::uint64_t chunk = 0;  // The chunk that it shares with others of its size; 0: none.
  };
  struct Chunk {
    std::uint64_t frame_bytes = 0;
    std::uint64_t free = 0;  // Places for frames.
  };
  bool shares_chunk(const FrameRequest& request) const {
    return request.pool == Pool::small && 2 * request.bytes <= chunk_bytes_;
  }
  FrameId acquire_in_chunk(const FrameRequest& request) {
    auto at = std::find_if(chunks_.begin(), chunks_.end(), [&](const auto& chunk) {
      return chunk.second.frame_bytes == request.bytes && chunk.second.free != 0;
    });
    if (at == chunks_.end()) {
      if (in_use_ + cached_ + chunk_bytes_ > budget_) {
        return {};
      }
      in_use_ += chunk_bytes_;
      at = chunks_.emplace(++last_chunk_, Chunk{request.bytes, chunk_bytes_ / request.bytes}).first;
    }
    --at->second.free;
    Frame& frame = frames_[next_];
    frame.bytes.assign(request.bytes, std::byte{0xEE});
    frame.used = true;
    frame.domain = request.domain;
    frame.chunk = at->first;
    return {next_++};
  }
  void return_to_chunk(const Frame& frame) {
    Chunk& chunk = chunks_.at(frame.chunk);
    if (++chunk.free * chunk.frame_bytes == chunk_bytes_) {
      chunks_.erase(frame.chunk);
      in_use_ -= chunk_bytes_;
    }
  }
  FrameId add_parts(std::uint64_t bytes, std::uint64_t domain, unsigned charged) {
    Frame& frame = frames_[next_];
    frame.bytes.assign(bytes, std::byte{0xEE});
    frame.used = true;
    frame.in_parts = true;
    frame.charged = charged;
    frame.domain = domain;
    return {next_++};
  }
  Frame& frame_of(FrameId id) { return memory(id.memory()).frames_.at(id.value); }
  const Frame& frame_of(FrameId id) const { return memory(id.memory()).frames_.at(id.value); }
  void hide(Frame& frame) {
    if (frame.shown != nullptr) {
      shown_.erase(frame.shown);
      frame.shown = nullptr;
      frame.stale = false;
    }
  }
  struct Located {
    std::uint64_t frame, offset;
  };
  // For an opaque address.
  Located locate(const std::byte* at) const {
    const auto address = reinterpret_cast<std::uint64_t>(at);
    if (address < kFirstWindow) {
      return {address >> 32, address & 0xffffffff};
    }
    auto shown = shown_.upper_bound(const_cast<std::byte*>(at));
    if (shown == shown_.begin()) {
      throw Misuse("nothing is there in a device's window");
    }
    --shown;
    return {shown->second, address - reinterpret_cast<std::uint64_t>(shown->first)};
  }
  // The pages of a mapped window; for another window, its extent.
  template <typename F>
  static void for_pages(const Frame& frame, F&& f) {
    for (std::uint64_t offset = 0; offset < frame.bytes.size(); offset += kSmallestExtent) {
      if (!frame.in_parts || (frame.has >> offset / kSmallestExtent & 1) != 0) {
        f(offset, kSmallestExtent);
      }
    }
  }
  void take_out(FrameId id, std::byte* at) {
    Frame& frame = frame_of(id);
    frame.watched = false;
    frame.at = nullptr;
    for_pages(frame, [&](std::uint64_t offset, std::uint64_t n) {
      std::memcpy(frame.bytes.data() + offset, at + offset, n);
      take_page(at + offset);
    });
  }
  void take_page(std::byte* page) {
    present_.erase(page);
    watched_.erase(page);
    // A touch without a view sees this, so the model notices it.
    std::memset(page, 0xDD, kSmallestExtent);
  }
  std::byte scrambled(std::byte b) const { return opaque_ ? b ^ std::byte{0x5A} : b; }
  // Copies bytes between an opaque frame and the host, in words of eight.
  void scramble(std::byte* to, const std::byte* from, std::uint64_t bytes) const {
    const std::uint64_t mask = opaque_ ? 0x5A5A'5A5A'5A5A'5A5A : 0;
    for (std::uint64_t i = 0; i < bytes; i += 8) {
      const std::uint64_t length = bytes - i < 8 ? bytes - i : 8;
      std::uint64_t word = 0;
      std::memcpy(&word, from + i, length);
      word ^= mask;
      std::memcpy(to + i, &word, length);
    }
  }

  std::vector<Memory*> memories_{this};
  std::vector<std::unique_ptr<FakeMemory>> further_;
  std::uint64_t relocated_ = 0;
  std::uint64_t budget_, in_use_ = 0, cached_ = 0, next_ = 1;
  const Place place_;
  const bool opaque_;
  const FakeMemory* reached_ = nullptr;
  bool lost_ = false;
  bool plain_only_ = false;
  std::uint64_t chunk_bytes_ = 0;  // 0: no frames share chunks.
  std::map<std::uint64_t, Chunk> chunks_;
  std::uint64_t last_chunk_ = 0;
  FakeCopies* copies_ = nullptr;
  FaultDice& dice_;
  std::map<std::uint64_t, Frame> frames_;
  std::set<std::uint64_t> idle_;        // The cached ones of these.
  std::vector<std::uint64_t> leaving_;  // Returned parts that still have pages.
  std::uint64_t leaving_bytes_ = 0;
  std::vector<std::uint64_t> trimming_;  // Those that are being released.
  std::set<const std::byte*> present_, watched_;
  std::uint64_t dropped_ = 0;
  std::vector<test::PageBytes> windows_;
  static constexpr std::uint64_t kFirstWindow = std::uint64_t{1} << 60;
  std::uint64_t next_window_ = kFirstWindow;
  std::size_t device_windows_ = 0;
  std::map<std::byte*, std::uint64_t> shown_;  // In device windows: frames by address.
};

}  // namespace tiermem::sim
