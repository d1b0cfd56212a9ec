// What a tm_context points to: the C++ context, and what only C programs need beside it.
//
// Threads: any, as Context itself; made and ended by context.cpp.
#pragma once

#include <memory>
#include <utility>

#include "op_table.hpp"
#include "tiermem/context.hpp"
#include "view_scratch.hpp"

struct tm_context {
  explicit tm_context(std::unique_ptr<tiermem::Context> made)
      : context(std::move(made)), ops(*context) {}

  std::unique_ptr<tiermem::Context> context;
  tiermem::c_abi::OpTable ops;
  tiermem::c_abi::ScratchBlock scratch;
};
