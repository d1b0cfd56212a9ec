// A directory for one test, removed with its content. A Directory belongs to one thread.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

namespace tiermem::test {

/// A new directory below $TMPDIR or /var/tmp: on a disk that supports direct I/O.
class Directory {
 public:
  Directory() : Directory(getenv("TMPDIR") != nullptr ? getenv("TMPDIR") : "/var/tmp") {}
  explicit Directory(const std::string& under) : path_(under + "/tiermem-test-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) {
      ADD_FAILURE() << "no directory " << path_ << ": " << std::strerror(errno);
    }
  }
  ~Directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tiermem::test
