// The struct behind a tm_context pointer: the C++ context, and the state that only C programs need.
// The struct is never freed and never reused for another context, so a program that still has the
// pointer learns that the context has ended.
//
// Threads: any, as for Context. context.cpp creates and ends it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "allocator_states.hpp"
#include "base/arena.hpp"
#include "last_error.hpp"
#include "tiermem/context.hpp"
#include "view_scratch.hpp"

struct tm_context : tiermem::InArena {
  explicit tm_context(std::unique_ptr<tiermem::Context> made) : context(made.release()) {}

  /// Remains readable after the end of the context.
  tiermem::Context* const context;
  tiermem::c_abi::ScratchBlock scratch;
  tiermem::c_abi::AllocatorStates allocators;
  std::atomic<std::uint32_t> references{1};
  std::atomic<bool> ended{false};
};

namespace tiermem::c_abi {

/// Runs a call that may begin an operation. `begin(Op*)` begins it. If `out` is null, `begin` gets
/// null and does the work of the call without an operation.
template <typename Begin>
tm_status operate(tm_op* out, Begin&& begin) {
  return guarded([&]() -> Status {
    if (out == nullptr) {
      return begin(nullptr);
    }
    Op op;
    Status status = begin(&op);
    if (status.ok()) {
      *out = op.detach();
    }
    return status;
  });
}

}  // namespace tiermem::c_abi
