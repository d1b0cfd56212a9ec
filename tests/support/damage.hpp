// A disk that changes bytes by itself. The calling thread only.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

namespace tiermem::test {

// The unnamed file of the block tier, found among our own descriptors, as a disk error would change
// it.
inline void flip_bits_on_disk(const std::string& directory) {
  DIR* fds = opendir("/proc/self/fd");
  ASSERT_NE(fds, nullptr);
  bool found = false;
  for (dirent* entry = readdir(fds); entry != nullptr && !found; entry = readdir(fds)) {
    const std::string link = std::string("/proc/self/fd/") + entry->d_name;
    char target[512] = {};
    if (readlink(link.c_str(), target, sizeof(target) - 1) > 0 &&
        std::strncmp(target, directory.c_str(), directory.size()) == 0) {
      const int fd = open(link.c_str(), O_RDWR);
      ASSERT_GE(fd, 0);
      std::vector<unsigned char> bytes(4 << 20);
      ASSERT_EQ(pread(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
      for (unsigned char& byte : bytes) {
        byte ^= 0x10;
      }
      ASSERT_EQ(pwrite(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
      fsync(fd);
      close(fd);
      found = true;
    }
  }
  closedir(fds);
  ASSERT_TRUE(found);
}

}  // namespace tiermem::test
