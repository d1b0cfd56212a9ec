// What is measured, on bytes that somebody else provides: so tiermem, swap, a file under mmap and
// plain memory run the same code, and each finds out by itself whether its bytes are right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace tiermem::bench {

/// One side's own: what it knows of its bytes is never another side's. One thread calls it.
class Workload {
 public:
  virtual ~Workload() = default;
  virtual std::uint64_t bytes() const = 0;
  /// Writes all of it, with bytes that nothing compresses unless the workload is about that.
  virtual void fill(std::byte* data) = 0;
  /// One measured run, in the row's unit; 0 when it met a wrong byte.
  virtual double run(std::byte* data) = 0;
  /// All bytes are those of fill() and of the runs since.
  virtual bool whole(const std::byte* data) = 0;
};

using MakeWorkload = std::function<std::unique_ptr<Workload>()>;

}  // namespace tiermem::bench
