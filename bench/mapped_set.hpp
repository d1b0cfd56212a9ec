// A context with one mapped buffer. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tiermem/tiermem.hpp"

namespace tiermem::bench {

struct MappedSet {
  std::unique_ptr<Context> context;
  Buffer buffer;  // It ends before its context.
  std::byte* data = nullptr;

  /// `bytes` of zeros with a DRAM budget of `dram`, and room for a second copy in the block tier;
  /// `extent` 0: chosen; `compressed`: the part of the budget for compressed pages. Errors: those
  /// of Context::create and alloc.
  static Result<MappedSet> reserve(const std::string& directory, std::uint64_t dram,
                                   std::uint64_t bytes, std::uint64_t extent = 0,
                                   std::uint64_t compressed = 0, const std::string& options = {});
  /// The same, filled with incompressible bytes.
  static Result<MappedSet> create(const std::string& directory, std::uint64_t dram,
                                  std::uint64_t bytes, std::uint64_t extent = 0);
  /// The read-only file behind `path`, mapped with a DRAM budget of `dram`. Errors: those of
  /// Context::create and adopt_file.
  static Result<MappedSet> adopt(const std::string& path, std::uint64_t dram, std::uint64_t extent);
  /// Returns an error if a touch could not be served, or if `sum`, of the bytes read, is 0.
  Status check(std::uint64_t sum) const;
};

}  // namespace tiermem::bench
