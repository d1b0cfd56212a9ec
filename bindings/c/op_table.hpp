// The operations that a context started through C and that the program has not waited for, with
// their outcomes. The C++ context forgets an operation when a caller asks about it after its end. A
// C program may poll, ask for the error, and wait for a whole list again after a timeout, so this
// table keeps the outcome.
//
// Threads: any. One mutex guards the table and is never held during a wait. At most one thread
// waits for an operation. The arena provides the memory before an operation begins, so ending one
// never fails.
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
    bool waited_for = false;  // A thread sleeps on it.
    bool ended = false;
    Status outcome;  // Valid once `ended`.
  };
  using Entries = HashMap<OpHandle, Entry>;

 public:
  static constexpr std::size_t kMost = 65536;

  explicit OpTable(Context& context);

  /// Room for one operation, reserved before it begins. The destructor releases the room unless
  /// commit() was called.
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
  /// Reserves room. Returns busy when kMost operations have not been waited for.
  Status reserve(Room& room);

  enum class State { none, under_way, ended };
  struct Outcome {
    State state = State::none;
    /// none: invalid_argument; under_way: busy; ended: the result of the operation.
    Status status;
  };
  Outcome poll(const char* call, OpHandle op);
  /// Waits for all operations, forgets them, and returns the outcome of the first one that failed.
  /// Forgets nothing on timed_out, busy (another thread waits for one) and invalid_argument (not an
  /// operation).
  Status wait(std::span<const OpHandle> ops, Timeout timeout);
  Status cancel(OpHandle op);
  /// Returns a descriptor, which the caller owns; it is readable once the operation has ended.
  Result<int> descriptor(OpHandle op);
  /// Forgets all operations when the context has ended.
  void clear();

 private:
  Status no_operation(const char* call, OpHandle op);
  Status wait_one(OpHandle op, Timeout timeout);
  void look(OpHandle op, Entry& entry, Status status);

  Context& context_;
  const std::uint64_t tag_;  // The tag of the context.
  std::mutex mutex_;
  Entries entries_;           // Guarded by mutex_.
  std::size_t reserved_ = 0;  // Rooms not yet committed. Guarded by mutex_.
};

}  // namespace tiermem::c_abi
