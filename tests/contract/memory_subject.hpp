// A memory under the contract suite: the memory in its address space, the facts that decide which
// checks apply, and the outside world that the checks need. A new memory is tested by one subclass
// of MemorySubject, and by INSTANTIATE_TEST_SUITE_P of MemoryContract and of HostMemoryContract or
// OpaqueMemoryContract, with a function that creates it.
//
// Threads: the test's thread makes all calls of a subject, except stop_touches().
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "tier/address_space.hpp"
#include "tier/memory.hpp"
#include "tier/page_locker.hpp"

namespace tiermem::contract {

/// The properties of a memory that the contracts leave open.
struct MemoryFacts {
  std::uint64_t budget = 0;  ///< Initial budget: at least eight frames of the largest extent.
  /// Sizes of extents, ascending. The checks acquire frames of each.
  std::vector<std::uint64_t> extents;
  /// Sizes of extents that can be in a plain window, and in a mapped one. Empty: not offered.
  std::vector<std::uint64_t> window_extents, mapped_extents;
  /// Sizes of extents that can be in parts. Empty: not offered.
  std::vector<std::uint64_t> part_extents;
  /// Frames of the locked pool that are smaller than this share a piece of memory of this size,
  /// which is charged whole. 0: each frame is charged for its own bytes.
  std::uint64_t chunk_bytes = 0;
  /// Frames of window_pool() of at least this size have memory outside a window.
  std::uint64_t own_memory_from = 0;
  bool takes_home = false;       ///< Such frames leave plain windows by take_home().
  bool charges_records = false;  ///< charge_records() counts.
  bool watches = false;          ///< insert() can watch pages.
  bool touches_wait = false;     ///< A test's thread can touch absent pages of a mapped window.
};

class MemorySubject {
 public:
  explicit MemorySubject(MemoryFacts facts) : facts_(std::move(facts)) {}
  virtual ~MemorySubject() = default;
  const MemoryFacts& facts() const { return facts_; }
  virtual Memory& memory() = 0;
  AddressSpace& space() { return memory().space(); }
  /// Derives the accounting again from the records of the memory, if it can.
  virtual bool consistent() { return true; }

  // Accesses of a program through an address that the space returned.
  virtual void write(std::byte* at, const std::byte* from, std::uint64_t bytes) {
    std::memcpy(at, from, bytes);
  }
  virtual void read(std::byte* to, const std::byte* at, std::uint64_t bytes) {
    std::memcpy(to, at, bytes);
  }
  /// Returns whether a touch of this page of a mapped window would wait.
  virtual bool absent(std::byte* /*page*/) { return false; }
  /// Waits until a thread touches an absent page. Returns false after stop_touches().
  virtual bool wait_for_touch() { return false; }
  virtual void stop_touches() {}
  /// Lets the thread of the latest touch repeat it.
  virtual void wake() {}

  /// Makes the next call with this name fail, for the frame that is at `at`. Returns false if this
  /// is not possible.
  virtual bool refuse(const char* /*call*/, std::byte* /*at*/) { return false; }
  virtual void forgive() {}
  /// Loses the memory for good. Returns false if this is not possible.
  virtual bool lose() { return false; }
  /// Offers a page locker to the memory, before its first use. Returns false if it takes none.
  virtual bool lock_pages_with(PageLocker&) { return false; }

  /// Another memory of the same space; null if there is none.
  virtual Memory* sibling() { return nullptr; }
  /// The call for refuse() by which a frame in a mapped window cannot be relocated.
  virtual const char* relocate_call() const { return "withdraw"; }

  /// Opaque memory: runs requested copies that need the test's thread.
  virtual void run_copies() {}
  /// Another memory, from which bytes come here directly; null if there is none.
  virtual Memory* neighbour() { return nullptr; }

 private:
  const MemoryFacts facts_;
};

/// A subject by name. `make` returns null, with the reason, if this machine lacks something.
struct MemoryCase {
  const char* name;
  std::function<std::unique_ptr<MemorySubject>(std::string& why_not)> make;
};
inline void PrintTo(const MemoryCase& subject, std::ostream* out) {
  *out << subject.name;
}

}  // namespace tiermem::contract
