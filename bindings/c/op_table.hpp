// The operations that a context gave out in C and that were not waited for yet, with how they
// ended. The C++ context forgets an operation once it is asked about after its end; C programs may
// poll, ask for the error, and wait for a whole list again after a timeout, so the outcome is kept
// here.
//
// Threads: any; one mutex, never held while waiting. At most one thread waits for an operation.
// Memory is from the arena, and taken before an operation begins: ending one never fails.
#pragma once

#include <cstddef>
#include <mutex>
#include <span>

#include "base/arena.hpp"
#include "tiermem/context.hpp"
#include "tiermem/status.hpp"

namespace tiermem::c_abi {

class OpTable {
  struct Entry {
    bool waited_for = false;  // Some thread sleeps on it.
    bool ended = false;
    Status outcome;  // Once ended.
  };
  using Entries = HashMap<OpHandle, Entry>;

 public:
  static constexpr std::size_t kMost = 65536;

  explicit OpTable(Context& context);

  /// Room for one operation, taken before it begins. Gives it back unless commit() was called.
  class Room {
   public:
    Room() = default;
    ~Room();
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;
    void commit(OpHandle op) noexcept;

   private:
    friend class OpTable;
    OpTable* table_ = nullptr;
    Entries::node_type node_;
  };
  /// busy when kMost operations were not waited for.
  Status reserve(Room& room);

  enum class State { none, under_way, ended };
  struct Outcome {
    State state = State::none;
    Status status;  ///< none: invalid_argument; under_way: busy; ended: how.
  };
  Outcome poll(const char* call, OpHandle op);
  /// Waits for all; then forgets them and returns the first failed one's outcome. timed_out,
  /// busy (waited for by another thread) and invalid_argument (no operation) forget nothing.
  Status wait(std::span<const OpHandle> ops, Timeout timeout);
  Status cancel(OpHandle op);
  /// A descriptor of the caller's, readable once the operation has ended.
  Result<int> descriptor(OpHandle op);
  /// The context has ended: forgets all.
  void clear();

 private:
  Status no_operation(const char* call, OpHandle op);
  Status wait_one(OpHandle op, Timeout timeout);
  void look(OpHandle op, Entry& entry, Status status);

  Context& context_;
  const std::uint64_t tag_;  // The tag of the context.
  std::mutex mutex_;
  Entries entries_;           // Guarded by mutex_.
  std::size_t reserved_ = 0;  // Guarded by mutex_: rooms not committed yet.
};

}  // namespace tiermem::c_abi
