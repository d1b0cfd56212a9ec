// A disk that changes bytes. The calling thread only.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace tiermem::test {

// Changes the block tier's unnamed file, found among this process's descriptors, like a disk error.
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

/// As flip_bits_on_disk(), but only the word `word`, among the first 64 MiB.
inline void flip_word_on_disk(const std::string& directory, std::uint64_t word) {
  DIR* fds = opendir("/proc/self/fd");
  ASSERT_NE(fds, nullptr);
  unsigned found = 0;
  for (dirent* entry = readdir(fds); entry != nullptr; entry = readdir(fds)) {
    const std::string link = std::string("/proc/self/fd/") + entry->d_name;
    char target[512] = {};
    if (readlink(link.c_str(), target, sizeof(target) - 1) <= 0 ||
        std::strncmp(target, directory.c_str(), directory.size()) != 0) {
      continue;
    }
    const int fd = open(link.c_str(), O_RDWR);
    ASSERT_GE(fd, 0);
    std::vector<std::uint64_t> words((64 << 20) / 8);
    const ssize_t n = pread(fd, words.data(), words.size() * 8, 0);
    for (ssize_t i = 0; i < n / 8; ++i) {
      if (words[static_cast<std::size_t>(i)] == word) {
        const std::uint64_t other = ~word;
        ASSERT_EQ(pwrite(fd, &other, 8, i * 8), 8);
        ++found;
      }
    }
    fsync(fd);
    close(fd);
    break;
  }
  closedir(fds);
  ASSERT_EQ(found, 1u);
}

}  // namespace tiermem::test
