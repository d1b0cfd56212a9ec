// The file of a memory in persistent memory: an unnamed file in a directory, or a DAX device. All
// its blocks exist when it is open, so that no store finds the file system full. The processor
// addresses its bytes by shared mappings. On a file system without DAX it works as well, but the
// bytes pass through the page cache.
//
// Threads: any thread may call map(). Calls block. Nothing here keeps records of mappings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tiermem/status.hpp"

namespace tiermem {

/// The facts of a path. To find out about `dax`, an unnamed file exists there for a moment.
struct DaxPath {
  enum class Kind : std::uint8_t { other, directory, device };
  Kind kind = Kind::other;
  int error = 0;            ///< errno of the look-up, or of access to it.
  std::uint64_t total = 0;  ///< Bytes of the file system or the device; 0: unknown.
  std::uint64_t free = 0;   ///< Bytes that this user can allocate there now.
  std::uint64_t align = 0;  ///< A device: its mappings are multiples of this; 0: unknown.
  /// Mappings reach persistent memory without the page cache: the kernel grants MAP_SYNC for these,
  /// and for nothing else.
  bool dax = false;
};
/// `sys`: where sysfs is; tests have their own.
DaxPath look_at_dax_path(const std::string& path, const std::string& sys = "/sys");

class DaxFile {
 public:
  /// Bytes are mapped in units of this.
  static constexpr std::uint64_t kUnit = std::uint64_t{2} << 20;

  /// `path`: a directory or a DAX device. `bytes`: rounded down to whole units. Creates the file
  /// with all its blocks, or opens the device. Errors: those that refuse_dax_path() names;
  /// no_capacity if the file system has no room.
  static Result<std::unique_ptr<DaxFile>> open(const std::string& path, std::uint64_t bytes);
  ~DaxFile();
  DaxFile(const DaxFile&) = delete;
  DaxFile& operator=(const DaxFile&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t units() const { return bytes_ / kUnit; }
  /// Maps a run of units in place of whatever is mapped at `at`, shared and writable. A child of
  /// fork does not inherit the mapping. Returns 0 or errno.
  [[nodiscard]] int map(std::byte* at, std::uint64_t first_unit, std::uint64_t units) const;

 private:
  DaxFile(std::string path, int fd, std::uint64_t bytes);

  const std::string path_;
  const int fd_;
  const std::uint64_t bytes_;
};

/// Returns why the path cannot be a memory of `bytes`, as an error with a remedy. `bytes` 0: any
/// size.
Status refuse_dax_path(const std::string& path, const DaxPath& facts, std::uint64_t bytes);

}  // namespace tiermem
