// A query of NVIDIA's cuFile: whether this machine can move bytes between GPUs and disks without a
// copy in host memory. On a kernel without modules its initialisation was seen to loop forever. It
// is also third-party code that brings the whole driver context along. The query therefore runs in
// a child process with a time limit, and this process never loads the library here.
//
// Threads: any. The child is the program tiermem-cufile-probe, which is reaped before the call
// returns. A program that waits for any child may see it end.
#pragma once

#include <chrono>
#include <string>

#include "os/cufile_types.hpp"

namespace tiermem {

struct CuFileProbe {
  static constexpr const char* kUsualLibrary = "libcufile.so.0";

  std::string library = kUsualLibrary;
  std::string driver;   ///< The CUDA driver library that cuFile must find.
  std::string program;  ///< The child program; empty: that of this build or installation.
  std::chrono::milliseconds limit{0};  ///< 0: 5 s, or 1 s if no version is reported.
};

struct CuFileFacts {
  enum class Path : std::uint8_t {
    none,        ///< cuFile is not available.
    compatible,  ///< It works, but stages through the host itself: it has no direct path.
    direct,
  };
  Path path = Path::none;
  std::string detail;  ///< Version and mode, or why cuFile is not available.
};

CuFileFacts ask_cufile(const CuFileProbe& probe);

}  // namespace tiermem
