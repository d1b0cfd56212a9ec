// Contexts and buffers that a test requires: if one cannot be created, the test fails.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "tiermem/tiermem.hpp"

namespace tiermem::test {

/// Null if it cannot be created.
inline std::unique_ptr<Context> make_context(const std::string& spec) {
  auto context = Context::create(spec);
  EXPECT_TRUE(context.ok()) << spec << ": " << context.message();
  return context.ok() ? std::move(context).value() : nullptr;
}

inline Buffer make_buffer(Context& context, std::uint64_t bytes, const char* label) {
  auto buffer = context.alloc(bytes, {.label = label});
  EXPECT_TRUE(buffer.ok()) << label << ": " << buffer.message();
  return buffer.ok() ? std::move(buffer).value() : Buffer();
}

}  // namespace tiermem::test
