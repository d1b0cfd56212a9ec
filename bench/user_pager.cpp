// Threads that wait for faults.
#include "bench/user_pager.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "os/host_memory.hpp"

namespace tiermem::bench {

std::byte* UserPager::start(const Options& options) {
  auto* const pager = new UserPager(options);  // Its threads use it until the process ends.
  if (!pager->open()) {
    return nullptr;
  }
  for (unsigned i = 0; i < options.handlers; ++i) {
    std::thread([pager] { pager->handle(); }).detach();
  }
  return pager->data_;
}

bool UserPager::open() {
  (void)::posix_fadvise(options_.file, 0, 0, POSIX_FADV_DONTNEED);
  direct_ = ::open(fmt::format("/proc/self/fd/{}", options_.file).c_str(),
                   O_RDONLY | O_DIRECT | O_CLOEXEC);
  userfault_ = Userfault::open();
  void* const area = ::mmap(nullptr, options_.bytes + options_.block, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (direct_ < 0 || !userfault_.ok() || area == MAP_FAILED) {
    return false;
  }
  const auto at = reinterpret_cast<std::uintptr_t>(area);
  data_ = reinterpret_cast<std::byte*>((at + options_.block - 1) / options_.block * options_.block);
  states_.resize(options_.bytes / options_.block, State::absent);
  (void)::madvise(data_, options_.bytes, MADV_NOHUGEPAGE);
  return userfault_.register_missing(data_, options_.bytes) == 0;
}

void UserPager::handle() {
  auto* const room = static_cast<std::byte*>(std::aligned_alloc(host::kPage, options_.block));
  pollfd waiting{userfault_.fd(), POLLIN, 0};
  while (true) {
    (void)::poll(&waiting, 1, -1);
    UserfaultEvent event;
    {
      const std::lock_guard lock(reading_);
      if (userfault_.read_event(event) != 0) {
        continue;  // Another handler has taken it.
      }
    }
    const auto offset = static_cast<std::uint64_t>(event.address - data_);
    const std::uint64_t block = offset / options_.block;
    if (!claim(block)) {
      continue;
    }
    const std::uint64_t from = block * options_.block;
    if (::pread(direct_, room, options_.block, static_cast<off_t>(from)) !=
            static_cast<ssize_t>(options_.block) ||
        userfault_.copy(data_ + from, room, options_.block).error != 0) {
      ::_exit(1);
    }
    publish(block);
  }
}

/// Returns true if the caller must read the block: it is absent, and room is reserved.
bool UserPager::claim(std::uint64_t block) {
  const std::lock_guard lock(mutex_);
  if (states_[block] == State::present) {
    // It arrived while this event waited to be read.
    (void)userfault_.wake(data_ + block * options_.block, options_.block);
  }
  if (states_[block] != State::absent) {
    return false;
  }
  while ((order_.size() + 1) * options_.block > options_.budget) {
    const std::uint64_t oldest = order_.front();
    order_.pop_front();
    if (states_[oldest] == State::reading) {
      order_.push_back(oldest);
      continue;
    }
    (void)::madvise(data_ + oldest * options_.block, options_.block, MADV_DONTNEED);
    states_[oldest] = State::absent;
  }
  order_.push_back(block);
  states_[block] = State::reading;
  return true;
}

void UserPager::publish(std::uint64_t block) {
  const std::lock_guard lock(mutex_);
  states_[block] = State::present;
}

}  // namespace tiermem::bench
