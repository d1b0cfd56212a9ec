// A buffer with less DRAM than its size, in extents of a given size. Each extent begins with its
// number, so that a wrong one is detected. Read and written in the ways that sweeps compare, each
// for some tenths of a second. One thread, except for read_one().
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tiermem/tiermem.hpp"

namespace tiermem::bench {

class ScaledSet {
 public:
  struct Shape {
    std::uint64_t bytes = 0;
    std::uint64_t dram = 0;
    std::uint64_t extent = 0;
    unsigned depth = 0;  ///< Depth of the block tier; 0: as without tuning.
  };

  /// Writes it with incompressible bytes; all of it is on disk. Errors: those of Context::create,
  /// alloc and acquire.
  static Result<std::unique_ptr<ScaledSet>> create(const std::string& directory,
                                                   const Shape& shape);

  Context& context() { return *context_; }
  std::uint64_t extents() const { return shape_.bytes / shape_.extent; }

  /// GB/s that came in while it was read in a loop with prefetches of the next chunks.
  Result<double> read_in_order();
  /// The same with a read of one word in each cache line; GB/s of all bytes, resident or not.
  Result<double> scan();
  /// GB/s that came in for views of one random extent, one after the other.
  Result<double> read_at_random();
  /// GB/s that came in for lists of `count` random extents, one list after the other.
  Result<double> read_lists(std::size_t count);
  /// GB/s that left: extents are overwritten, and the time is measured until they are written to
  /// disk.
  Result<double> write_down();
  /// [any thread] Takes a view of an extent and checks its number.
  Status read_one(std::uint64_t extent);
  /// Sets the DRAM budget from now on.
  Status shrink(std::uint64_t dram);

 private:
  ScaledSet(const Shape& shape, std::unique_ptr<Context> context, Buffer buffer)
      : shape_(shape), context_(std::move(context)), buffer_(std::move(buffer)) {}
  Status overwrite(std::uint64_t first, std::uint64_t count);
  Status check(const std::byte* data, std::uint64_t extent) const;
  /// Streams for a while; returns the bytes of the chunks, and the seconds. `words`: reads the
  /// first word of each cache line.
  Result<std::pair<double, double>> stream(bool words);
  std::uint64_t chunk() const;
  std::uint64_t came_in() const { return context_->stats().host_bytes_in; }

  Shape shape_;
  std::unique_ptr<Context> context_;
  Buffer buffer_;
  std::vector<std::byte> source_;
  std::uint64_t fills_ = 0;
  std::uint64_t cursor_ = 0;  // Position of the stream, in bytes.
  std::uint64_t next_ = 0;    // Next extent to overwrite.
  std::uint64_t sum_ = 0;     // Sum of the words read, so that the reads are not optimised away.
  std::mt19937_64 random_{7};
};

}  // namespace tiermem::bench
