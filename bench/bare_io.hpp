// The peer of the block tier: the smallest io_uring loop that keeps a disk busy, on a file like
// tiermem's own (O_TMPFILE, O_DIRECT, preallocated, written once). No checksums, no books. fio runs
// on the same file. One thread.
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
  mixed,  ///< As many bytes written as read; both are counted.
};

class BareIo {
 public:
  struct Setting {
    bool fixed = false;  ///< Registered file and buffers.
    bool huge = false;   ///< Buffers of huge pages.
    unsigned depth = 16;
    std::string text() const;
  };

  /// A file of `bytes` in `directory`, written with incompressible bytes. Errors: those of
  /// BlockFile; unavailable without io_uring; no_capacity for the buffers.
  static Result<std::unique_ptr<BareIo>> create(const std::string& directory, std::uint64_t bytes);
  /// Moves `bytes` in blocks of 2 MiB, going on in the file where the last run ended. GB/s.
  Result<Sample> run(Traffic traffic, const Setting& setting, std::uint64_t bytes);
  /// `depth` writes under way all the time and beside them one read after the other, `reads` of
  /// them; `figure` of the seconds that each took, in ms. Adds the GB/s written to `rates`.
  Result<Sample> read_beside_writes(const Setting& setting, unsigned reads,
                                    std::vector<double>& rates,
                                    double (*figure)(std::vector<double> seconds));
  /// The same by fio, or unavailable when it is not installed.
  Result<Sample> run_fio(Traffic traffic, unsigned depth, std::uint64_t bytes);
  /// Reads blocks of 4 KiB at random for a second, by fio: thousands of them a second. `fixed`:
  /// registered file and buffers. `depth` is of all `jobs` together. Unavailable when fio is not
  /// installed.
  Result<Sample> run_fio_random(unsigned depth, bool fixed, unsigned jobs);
  /// Plain and fixed, one job and two.
  std::vector<Peer> random_candidates(unsigned depth);
  /// Plain and fixed, 4 KiB and huge pages, a range of depths; and fio.
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
