// NVIDIA's cuFile in this process: transfers between files and GPU memory without a copy in host
// memory. Only for machines where ask_cufile() has found that cuFile returns and is direct.
//
// The library is never unloaded or closed, because other code in the process may use it.
//
// Threads: any. The current context is that of the memory. Calls wait for the device and the disk.
#pragma once

#include <cstdint>
#include <string>

#include "os/cuda_types.hpp"
#include "os/cufile_types.hpp"
#include "tiermem/status.hpp"

namespace tiermem {

class CuFileDriver {
 public:
  /// Errors: unavailable: the library cannot be loaded or opened.
  static Result<CuFileDriver> load(const std::string& library);

  /// Registers a file that is open for O_DIRECT and stays open until remove().
  Result<cufile::Handle> add(int descriptor) const;
  void remove(cufile::Handle file) const;

  // Transfers all bytes or returns io_error, with errno if it is known.
  Status read(cufile::Handle file, std::uint64_t offset, cuda::DevicePointer to,
              std::uint64_t bytes) const;
  Status write(cufile::Handle file, std::uint64_t offset, cuda::DevicePointer from,
               std::uint64_t bytes) const;

 private:
  template <typename Once>
  Status all(const char* doing, std::uint64_t offset, std::uint64_t bytes, const Once& once) const;

#define TIERMEM_CUFILE_MEMBER(result, name, parameters) result(*name) parameters = nullptr;
  TIERMEM_CUFILE_FILE_CALLS(TIERMEM_CUFILE_MEMBER)
#undef TIERMEM_CUFILE_MEMBER
};

}  // namespace tiermem
