// What a tm_context points to: the C++ context, and what only C programs need beside it. It is
// never freed, nor used for another context: a program that still has the pointer is told that the
// context has ended.
//
// Threads: any, as Context itself; made and ended by context.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/arena.hpp"
#include "last_error.hpp"
#include "op_table.hpp"
#include "tiermem/context.hpp"
#include "view_scratch.hpp"

struct tm_context : tiermem::InArena {
  explicit tm_context(std::unique_ptr<tiermem::Context> made)
      : context(made.release()), ops(*context) {}

  /// Stays readable after its end.
  tiermem::Context* const context;
  tiermem::c_abi::OpTable ops;
  tiermem::c_abi::ScratchBlock scratch;
  std::atomic<std::uint32_t> references{1};
  std::atomic<bool> ended{false};
};

namespace tiermem::c_abi {

/// A call that may begin an operation. `begin(Op*)` begins it; where `out` is null it gets null,
/// and does what the call does without one.
template <typename Begin>
tm_status operate(tm_context& context, tm_op* out, Begin&& begin) {
  return guarded([&]() -> Status {
    if (out == nullptr) {
      return begin(nullptr);
    }
    OpTable::Room room;
    Op op;
    Status status = context.ops.reserve(room);
    if (status.ok()) {
      status = begin(&op);
    }
    if (status.ok()) {
      const tm_op handle = op.detach();
      room.commit(handle);
      *out = handle;
    }
    return status;
  });
}

}  // namespace tiermem::c_abi
