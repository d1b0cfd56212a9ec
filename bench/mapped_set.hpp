// A context with one mapped buffer. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tiermem/tiermem.hpp"

namespace tiermem::bench {

struct MappedSet {
  std::unique_ptr<Context> context;
  Buffer buffer;  // Ends before its context.
  std::byte* data = nullptr;

  /// `bytes` of zeros behind `dram`, with room for a second copy below; `extent` 0: chosen. Errors:
  /// those of Context::create and alloc.
  static Result<MappedSet> reserve(const std::string& directory, std::uint64_t dram,
                                   std::uint64_t bytes, std::uint64_t extent = 0);
  /// The same, full of incompressible bytes.
  static Result<MappedSet> create(const std::string& directory, std::uint64_t dram,
                                  std::uint64_t bytes, std::uint64_t extent = 0);
  /// An error if a touch could not be served, or `sum`, of what was read, is 0.
  Status check(std::uint64_t sum) const;
};

}  // namespace tiermem::bench
