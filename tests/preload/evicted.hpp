// A program's own memory that tests can evict. One thread.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "preload/words.hpp"

namespace tiermem::test {

class Evicted {
 public:
  explicit Evicted(std::size_t bytes) : bytes_(std::max((bytes + 4095) / 4096 * 4096, kMiB)) {
    void* const at =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(at, MAP_FAILED);
    at_ = static_cast<std::byte*>(at);
  }
  ~Evicted() { munmap(at_, bytes_); }
  Evicted(const Evicted&) = delete;
  Evicted& operator=(const Evicted&) = delete;

  std::byte* at() const { return at_; }
  std::size_t bytes() const { return bytes_; }

  /// Evicts all of the memory. Repeats this while read-ahead pages still arrive. It ends when no
  /// page is present at one check, although more may arrive later.
  void evict() const {
    std::size_t left = 1;
    for (int tries = 0; tries < 1000 && left > 0; ++tries) {
      usleep(tries < 10 ? 0 : 1000);
      EXPECT_EQ(madvise(at_, bytes_, MADV_PAGEOUT), 0);
      left = present();
    }
    EXPECT_EQ(left, 0u);
  }

 private:
  std::size_t present() const {
    std::vector<unsigned char> pages(bytes_ / 4096);
    EXPECT_EQ(mincore(at_, bytes_, pages.data()), 0);
    return static_cast<std::size_t>(
        std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
  }

  std::byte* at_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace tiermem::test
