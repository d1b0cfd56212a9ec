// The measured work, on bytes from another component: tiermem, swap, a file under mmap and plain
// memory run the same code, and each checks its own bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace tiermem::bench {

/// Belongs to one side: it shares no knowledge of its bytes with other sides. One thread calls it.
class Workload {
 public:
  virtual ~Workload() = default;
  virtual std::uint64_t bytes() const = 0;
  /// Writes all bytes; they are incompressible unless the workload is about compression.
  virtual void fill(std::byte* data) = 0;
  /// One measured run, in the row's unit; 0 if it read a wrong byte.
  virtual double run(std::byte* data) = 0;
  /// Whether all bytes are those of fill() and of the runs since.
  virtual bool whole(const std::byte* data) = 0;
};

using MakeWorkload = std::function<std::unique_ptr<Workload>()>;

}  // namespace tiermem::bench
