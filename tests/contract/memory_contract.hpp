// The fixtures of the checks that a memory passes in its address space: MemoryContract for every
// memory, HostMemoryContract and OpaqueMemoryContract for one kind. Each test creates the memory
// anew. At the end the test returns every frame that it still holds, and the memory must have no
// byte in use.
//
// Some features depend on the kernel. If a memory does not offer one, its checks make sure that the
// memory refuses it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "contract/memory_subject.hpp"
#include "contract/pattern.hpp"

namespace tiermem::contract {

/// An ending that counts its calls.
class CountedCompletion : public Completion {
 public:
  CountedCompletion() {
    ended = [](Completion& end) {
      auto& self = static_cast<CountedCompletion&>(end);
      const std::lock_guard lock(self.mutex_);
      ++self.calls_;
      self.changed_.notify_all();
    };
  }
  CountedCompletion(const CountedCompletion&) = delete;
  CountedCompletion& operator=(const CountedCompletion&) = delete;
  void wait(MemorySubject& subject) {
    subject.run_copies();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return calls_ != 0; });
  }
  int calls() {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int calls_ = 0;  // Guarded by mutex_.
};

/// Runs the three steps of a trim as far as there are frames to free. Returns the bytes freed.
inline std::uint64_t trim(Memory& memory, std::uint64_t bytes = ~std::uint64_t{0}) {
  std::uint64_t freed = 0;
  while (freed < bytes) {
    const std::uint64_t begun = memory.begin_trim(bytes - freed);
    if (begun == 0) {
      break;
    }
    memory.run_trim();
    memory.finish_trim();
    freed += begun;
  }
  return freed;
}

/// Copies to or from an opaque frame, and waits for the end.
inline Status copy(MemorySubject& subject, bool in, FrameId frame, std::byte* host,
                   std::uint64_t bytes) {
  CountedCompletion end;
  Memory& memory = subject.memory();
  const bool at_once =
      in ? memory.copy_in(frame, host, bytes, end) : memory.copy_out(host, frame, bytes, end);
  if (!at_once) {
    end.wait(subject);
  }
  return std::move(end.status);
}

/// Writes the bytes of a frame that is in no window.
inline Status put(MemorySubject& subject, FrameId frame, const Block& bytes) {
  if (!subject.space().host_addressable()) {
    Block source = bytes;
    return copy(subject, true, frame, source.data(), source.size());
  }
  subject.write(subject.space().bytes_at(frame, nullptr), bytes.data(), bytes.size());
  return {};
}

/// Reads the bytes of a frame that is in no window.
inline Block bytes_of(MemorySubject& subject, FrameId frame, std::uint64_t bytes) {
  Block result(bytes, std::byte{0xA5});
  if (!subject.space().host_addressable()) {
    const Status copied = copy(subject, false, frame, result.data(), bytes);
    EXPECT_TRUE(copied.ok()) << copied.message();
  } else {
    subject.read(result.data(), subject.space().bytes_at(frame, nullptr), bytes);
  }
  return result;
}

class MemoryContract : public ::testing::TestWithParam<MemoryCase> {
 protected:
  struct Held {
    FrameId frame;
    std::byte* at = nullptr;  // Its position in a window, if any.
  };
  /// A class of frames.
  struct Class {
    Pool pool;
    std::uint64_t bytes;
  };

  void SetUp() override { make(); }
  void TearDown() override {
    if (subject_ == nullptr) {
      return;
    }
    subject_->forgive();
    for (const Held& held : held_) {
      if (held.at != nullptr && space().host_addressable()) {
        EXPECT_TRUE(space().unmap(held.frame, held.at).ok());
      }
      memory().return_frame(held.frame);
    }
    (void)trim(memory());
    EXPECT_EQ(memory().usage().in_use, 0U) << "something is charged and not held";
    EXPECT_EQ(memory().usage().used(), 0U);
    EXPECT_TRUE(subject_->consistent());
    for (const auto& [window, bytes] : windows_) {
      space().release_window(window, bytes);
    }
  }
  /// Creates the memory again.
  void make() {
    std::string why_not;
    subject_.reset();
    subject_ = GetParam().make(why_not);
    if (subject_ == nullptr) {
      GTEST_SKIP() << why_not;
    }
  }

  MemorySubject& subject() { return *subject_; }
  Memory& memory() { return subject_->memory(); }
  AddressSpace& space() { return subject_->space(); }
  const MemoryFacts& facts() { return subject_->facts(); }
  bool opaque() { return !space().host_addressable(); }
  FrameUsage usage() { return memory().usage(); }
  std::uint64_t largest() { return facts().extents.back(); }
  /// The charge of a single frame of the class.
  std::uint64_t charge(Class of) {
    return of.pool == Pool::locked ? std::max(of.bytes, facts().chunk_bytes) : of.bytes;
  }
  Class window_class(std::uint64_t bytes) { return {space().window_pool(bytes), bytes}; }
  /// Whether frames of this size have memory outside their windows.
  bool own(std::uint64_t bytes) { return bytes >= facts().own_memory_from; }
  /// All classes of frames that have memory outside a window.
  std::vector<Class> classes() {
    std::vector<Class> all;
    for (const std::uint64_t bytes : facts().extents) {
      all.push_back({Pool::locked, bytes});
      if (window_class(bytes).pool != Pool::locked && own(bytes)) {
        all.push_back(window_class(bytes));
      }
    }
    return all;
  }

  FrameId acquire(Class of, std::uint64_t domain = 0) {
    const FrameId frame = memory().acquire_frame({of.pool, of.bytes, domain});
    if (frame.valid()) {
      held_.push_back({frame});
    }
    return frame;
  }
  /// Acquires a frame that may receive bytes.
  FrameId populated(Class of, std::uint64_t domain = 0) {
    const FrameId frame = acquire(of, domain);
    EXPECT_TRUE(frame.valid()) << of.bytes << " bytes";
    if (frame.valid() && memory().needs_populate(frame)) {
      const Status status = memory().populate(frame, false, nullptr);
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_FALSE(memory().needs_populate(frame)) << of.bytes << " bytes";
    }
    return frame;
  }
  /// Acquires a frame with the bytes of this seed.
  FrameId filled(Class of, std::uint64_t seed, std::uint64_t domain = 0) {
    const FrameId frame = populated(of, domain);
    put(frame, of.bytes, seed);
    return frame;
  }
  void give_back(FrameId frame) {
    std::erase_if(held_, [&](const Held& held) { return held.frame == frame; });
    memory().return_frame(frame);
  }
  void give_back_all() {
    for (; !held_.empty(); held_.pop_back()) {
      memory().return_frame(held_.back().frame);
    }
  }
  void put(FrameId frame, std::uint64_t bytes, std::uint64_t seed) {
    const Status status = contract::put(subject(), frame, pattern(bytes, seed));
    EXPECT_TRUE(status.ok()) << status.message();
  }
  testing::AssertionResult holds(FrameId frame, std::uint64_t bytes, std::uint64_t seed) {
    return same(bytes_of(subject(), frame, bytes), pattern(bytes, seed));
  }
  testing::AssertionResult zeros(FrameId frame, std::uint64_t bytes) {
    return holds(frame, bytes, 0);
  }

  /// The sizes of extents in mapped windows. Checks that every other size is refused.
  const std::vector<std::uint64_t>& mapped_extents() {
    for (const std::uint64_t bytes : missing(facts().mapped_extents)) {
      refuses_windows(bytes, true);
    }
    return facts().mapped_extents;
  }
  /// Checks that the space has no windows for extents of this size, or that they are for frames of
  /// its other memories only.
  void refuses_windows(std::uint64_t bytes, bool mapped) {
    const auto reserved = space().reserve_window(2 * bytes, bytes, mapped);
    if (!reserved.ok()) {
      EXPECT_EQ(reserved.code(), Code::unsupported) << bytes;
      return;
    }
    const FrameRequest request{space().window_pool(bytes), bytes, 0, !mapped};
    EXPECT_FALSE(memory().takes(request)) << bytes;
    EXPECT_FALSE(memory().acquire_frame(request).valid()) << bytes;
    space().release_window(*reserved, 2 * bytes);
  }
  /// The sizes of extents that can be in parts. Checks that every other size is refused.
  const std::vector<std::uint64_t>& part_extents() {
    for (const std::uint64_t bytes : missing(facts().part_extents)) {
      EXPECT_FALSE(space().takes_parts(bytes, false) &&
                   memory().takes({space().window_pool(bytes), bytes, 0, false}))
          << bytes;
      EXPECT_FALSE(memory().acquire_parts({space().window_pool(bytes), bytes, 0}, 1).valid());
    }
    return facts().part_extents;
  }
  /// Returns the sizes of extents that are not among these.
  std::vector<std::uint64_t> missing(const std::vector<std::uint64_t>& offered) {
    std::vector<std::uint64_t> others;
    std::set_difference(facts().extents.begin(), facts().extents.end(), offered.begin(),
                        offered.end(), std::back_inserter(others));
    return others;
  }

  /// Checks that no page is locked, in a memory that takes no page locker.
  void locks_nothing() { EXPECT_FALSE(memory().lock_pages(populated({Pool::locked, largest()}))); }

  /// Reserves a window, which TearDown() releases.
  std::byte* window(std::uint64_t bytes, std::uint64_t extent, bool mapped) {
    auto reserved = space().reserve_window(bytes, extent, mapped);
    EXPECT_TRUE(reserved.ok()) << reserved.message();
    if (!reserved.ok()) {
      return nullptr;
    }
    windows_.push_back({*reserved, bytes});
    return *reserved;
  }
  void release(std::byte* at) {
    const auto found = std::find_if(windows_.begin(), windows_.end(),
                                    [&](const auto& each) { return each.first == at; });
    space().release_window(found->first, found->second);
    windows_.erase(found);
  }
  /// Whether the program sees these bytes at the address.
  testing::AssertionResult sees(std::byte* at, std::uint64_t bytes, std::uint64_t seed) {
    Block seen(bytes);
    subject().read(seen.data(), at, bytes);
    return same(seen, pattern(bytes, seed));
  }
  void store(std::byte* at, std::uint64_t bytes, std::uint64_t seed) {
    const Block data = pattern(bytes, seed);
    subject().write(at, data.data(), bytes);
  }
  /// Records that the frame is in a window, so that TearDown() takes it out; null: it is not.
  void is_at(FrameId frame, std::byte* at) {
    for (Held& held : held_) {
      if (held.frame == frame) {
        held.at = at;
      }
    }
  }
  FrameId window_frame(std::uint64_t bytes, std::uint64_t domain = 0) {
    return acquire(window_class(bytes), domain);
  }
  bool absent(std::byte* at, std::uint64_t bytes) {
    for (std::uint64_t offset = 0; offset < bytes; offset += kSmallestExtent) {
      if (!subject().absent(at + offset)) {
        return false;
      }
    }
    return true;
  }
  bool present(std::byte* at, std::uint64_t bytes) {
    for (std::uint64_t offset = 0; offset < bytes; offset += kSmallestExtent) {
      if (subject().absent(at + offset)) {
        return false;
      }
    }
    return true;
  }

 private:
  std::unique_ptr<MemorySubject> subject_;
  std::vector<Held> held_;
  std::vector<std::pair<std::byte*, std::uint64_t>> windows_;
};

/// The host touches the memory. It is mapped into windows, and refuses copies.
class HostMemoryContract : public MemoryContract {};
/// The host cannot touch the memory: bytes are copied, and windows show it to a device.
class OpaqueMemoryContract : public MemoryContract {};

/// A space with several memories: bytes go from one to another. Other spaces skip these checks.
class RelocateContract : public MemoryContract {
 protected:
  void SetUp() override {
    MemoryContract::SetUp();
    if (!IsSkipped() && subject().sibling() == nullptr) {
      GTEST_SKIP() << "the space has one memory";
    }
  }
  void TearDown() override {
    if (!IsSkipped()) {
      for (const FrameId frame : theirs_) {
        sibling().return_frame(frame);
      }
      (void)trim(sibling());
      EXPECT_EQ(sibling().usage().used(), 0U) << "something is charged and not held";
    }
    MemoryContract::TearDown();
  }
  Memory& sibling() { return *subject().sibling(); }
  /// Acquires a frame of the other memory.
  FrameId acquire_there(Class of) {
    const FrameId frame = sibling().acquire_frame({of.pool, of.bytes, 0});
    EXPECT_TRUE(frame.valid());
    theirs_.push_back(frame);
    return frame;
  }
  void give_back_there(FrameId frame) {
    std::erase(theirs_, frame);
    sibling().return_frame(frame);
  }
  Status relocate(FrameId from, FrameId to, std::byte* at, bool& home) {
    return space().relocate(from, to, at, home);
  }
  /// Takes a frame of the other memory out of its window at the end of a test.
  void unmap(FrameId frame, std::byte* at) { EXPECT_TRUE(space().unmap(frame, at).ok()); }

 private:
  std::vector<FrameId> theirs_;
};

inline std::string memory_name(const ::testing::TestParamInfo<MemoryCase>& info) {
  return info.param.name;
}

}  // namespace tiermem::contract
