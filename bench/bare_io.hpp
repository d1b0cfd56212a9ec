// The peer of the block tier: the smallest io_uring loop that keeps a disk busy, on a file like
// tiermem's own (O_TMPFILE, O_DIRECT, preallocated, written once). No checksums, no records. fio
// runs on the same file. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/harness.hpp"
#include "os/block_file.hpp"
#include "os/host_memory.hpp"

namespace tiermem::bench {

enum class Traffic {
  read,
  write,
  mixed,  ///< Equal numbers of bytes written and read; both count.
};

class BareIo {
 public:
  struct Setting {
    bool fixed = false;  ///< Registered file and buffers.
    bool huge = false;   ///< Buffers of huge pages.
    unsigned depth = 16;
    std::string text() const;
  };

  /// Creates a file of `bytes` in `directory`, written with incompressible bytes. Errors: those of
  /// BlockFile; unavailable without io_uring; no_capacity for the buffers.
  static Result<std::unique_ptr<BareIo>> create(const std::string& directory, std::uint64_t bytes);
  /// Moves `bytes` in blocks of 2 MiB, starting in the file where the last run ended. GB/s.
  Result<Sample> run(Traffic traffic, const Setting& setting, std::uint64_t bytes);
  /// Keeps `depth` writes in flight, and makes `reads` reads beside them, one after the other.
  /// `figure` computes the result, in ms, from the seconds of each read. Adds the GB/s written to
  /// `rates`.
  Result<Sample> read_beside_writes(const Setting& setting, unsigned reads,
                                    std::vector<double>& rates,
                                    double (*figure)(std::vector<double> seconds));
  /// The same with fio; unavailable if it is not installed.
  Result<Sample> run_fio(Traffic traffic, unsigned depth, std::uint64_t bytes);
  /// Reads random blocks of 4 KiB for a second with fio: thousands of them per second. `fixed`:
  /// registered file and buffers. `depth` is the total of all `jobs`. Unavailable if fio is not
  /// installed.
  Result<Sample> run_fio_random(unsigned depth, bool fixed, unsigned jobs);
  /// Plain and fixed, with one job and with two.
  std::vector<Peer> random_candidates(unsigned depth);
  /// Plain and fixed, 4 KiB and huge pages, several depths; and fio.
  std::vector<Peer> candidates(Traffic traffic, std::uint64_t bytes);

 private:
  class Ring;
  BareIo() = default;
  std::vector<std::string> fio_command(Traffic traffic, unsigned depth, std::uint64_t bytes) const;
  std::vector<std::string> fio_random_command(unsigned depth, bool fixed, unsigned jobs) const;

  std::unique_ptr<BlockFile> file_;
  std::uint64_t bytes_ = 0;
  std::uint64_t next_block_ = 0;
  host::AddressRange huge_, small_;
};

}  // namespace tiermem::bench
