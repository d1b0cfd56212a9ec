// Whether bytes can go between GPUs and disks past the host: what NVIDIA's cuFile says of this
// machine. Its start was seen to spin for ever where the kernel has no modules, and is other
// people's code with the driver's whole context behind it: so it is asked in a child process, with
// a time limit, and never loaded here.
//
// Threads: any. The child is the program tiermem-cufile-probe, reaped before the call returns; a
// program that waits for any child of its own may see it end.
#pragma once

#include <chrono>
#include <string>

#include "os/cufile_types.hpp"

namespace tiermem {

struct CuFileProbe {
  static constexpr const char* kUsualLibrary = "libcufile.so.0";

  std::string library = kUsualLibrary;
  std::string driver;   ///< The CUDA driver's library, which cuFile shall find.
  std::string program;  ///< The child; empty: the one that belongs to this build or installation.
  std::chrono::milliseconds limit{0};  ///< 0: 5 s, or 1 s where no version comes back.
};

struct CuFileFacts {
  enum class Path : std::uint8_t {
    none,        ///< It cannot be had.
    compatible,  ///< It works and stages through the host itself: no path of its own.
    direct,
  };
  Path path = Path::none;
  std::string detail;  ///< Version and manner, or why there is none.
};

CuFileFacts ask_cufile(const CuFileProbe& probe);

}  // namespace tiermem
