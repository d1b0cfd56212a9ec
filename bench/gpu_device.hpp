// The device of the gpu suite, as a program without tiermem uses it: the driver's table, the
// primary context current in the calling thread, a stream for each direction. Also the link's peer:
// one large copy of page-locked memory. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "bench/harness.hpp"
#include "os/cuda_driver.hpp"
#include "os/host_memory.hpp"

namespace tiermem::bench {

/// "NVIDIA H200, 139.8 GiB, compute capability 9.0, driver for CUDA 13.0". For the tests' driver it
/// says that the figures mean nothing. Errors: unavailable, with the driver's reason, if there is
/// no device.
Result<std::string> describe_gpu();

class GpuDevice {
 public:
  /// Opens the first device of the driver that contexts would use (option `gpu_driver`). Errors:
  /// those of describe_gpu().
  static Result<std::unique_ptr<GpuDevice>> open();
  ~GpuDevice();
  GpuDevice(const GpuDevice&) = delete;
  GpuDevice& operator=(const GpuDevice&) = delete;

  const CudaDriver& driver() const { return driver_; }
  const CudaDeviceFacts& facts() const { return facts_; }
  const std::string& library() const { return library_; }
  cuda::Stream in() const { return in_; }
  cuda::Stream out() const { return out_; }
  Status check(cuda::Result result, const char* doing) const;
  Status wait(cuda::Stream stream) const;

  Result<std::uint64_t> free_bytes() const;
  /// All calls of the driver so far, from any code; only the tests' driver counts them.
  std::optional<std::uint64_t> calls() const;
  struct Share {
    std::uint64_t of_device = 4, of_host = 8;  ///< Divisors of the free memory.
    std::uint64_t most = std::uint64_t{1} << 30;
  };
  /// The bytes to move at once: the session's value, or otherwise the smallest that `share` allows.
  /// A multiple of 4 MiB.
  Result<std::uint64_t> choose_bytes(const Session& session, const Share& share) const;

 private:
  GpuDevice(const CudaDriver& driver, std::string library, CudaDeviceFacts facts)
      : driver_(driver), library_(std::move(library)), facts_(std::move(facts)) {}
  Status begin();

  const CudaDriver driver_;
  const std::string library_;
  const CudaDeviceFacts facts_;
  bool retained_ = false;
  cuda::Stream in_ = nullptr, out_ = nullptr;
};

/// One copy of `bytes` in page-locked huge pages, to or from the device: the limit of the link.
class LinkPeer {
 public:
  /// Also checks that bytes return unchanged. `gpu` must outlive it. Errors: no_capacity; those of
  /// the driver.
  static Result<std::unique_ptr<LinkPeer>> create(GpuDevice& gpu, std::uint64_t bytes);
  ~LinkPeer();
  LinkPeer(const LinkPeer&) = delete;
  LinkPeer& operator=(const LinkPeer&) = delete;

  std::uint64_t bytes() const { return bytes_; }
  /// GB/s for each.
  Result<Sample> in() { return run(true, false); }
  Result<Sample> out() { return run(false, true); }
  /// Half of the bytes go in while the other half goes out; both count.
  Result<Sample> both() { return run(true, true); }
  /// All bytes out, and then in.
  Result<Sample> out_and_in();
  /// Seconds for `in` bytes in and `out` bytes out at once, in copies of half of bytes() each.
  Result<double> seconds(std::uint64_t in, std::uint64_t out);

  Peer in_peer();
  Peer out_peer();
  Peer both_peer();

 private:
  LinkPeer(GpuDevice& gpu, std::uint64_t bytes) : gpu_(gpu), bytes_(bytes) {}
  Status begin();
  Status copies_bytes_right();
  Result<Sample> run(bool in, bool out);

  GpuDevice& gpu_;
  const std::uint64_t bytes_;
  host::AddressRange host_;
  bool locked_ = false, mapped_ = false;
  cuda::MemoryHandle memory_ = 0;
  cuda::DevicePointer device_ = 0;
};

/// Runs `body`, which moves `bytes`, and returns its rate. GB/s.
template <typename Body>
Result<Sample> timed(std::uint64_t bytes, Body&& body) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  const double cpu = cpu_seconds();
  const double start = now_seconds();
  Status done = body();
  const double took = now_seconds() - start;
  if (!done.ok()) {
    return done;
  }
  const auto moved = static_cast<double>(bytes);
  return Sample{moved / took / 1e9, (cpu_seconds() - cpu) / (moved / kGiB)};
}

}  // namespace tiermem::bench
