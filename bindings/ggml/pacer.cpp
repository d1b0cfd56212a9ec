// A thread that sees how far a product is.
#include "pacer.hpp"

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

namespace tiermem::ggml {
namespace {

constexpr std::uint32_t kMark = 0x7FC7'1E83;  // A NaN that no computation makes.
constexpr std::chrono::microseconds kInterval{200};

}  // namespace

Pacer::Pacer(std::function<void(std::size_t)> reached)
    : reached_(std::move(reached)), thread_([this] { run(); }) {
  pthread_setname_np(thread_.native_handle(), "tiermem-ggml");
}

Pacer::~Pacer() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    result_ = nullptr;
  }
  changed_.notify_one();
  thread_.join();
}

void Pacer::watch(float* result, std::size_t rows) {
  std::fill_n(result, rows, std::bit_cast<float>(kMark));
  {
    const std::lock_guard lock(mutex_);
    result_ = reinterpret_cast<const std::uint32_t*>(result);
    rows_ = rows;
    done_ = 0;
  }
  changed_.notify_one();
}

void Pacer::stop() {
  const std::lock_guard lock(mutex_);
  result_ = nullptr;
}

void Pacer::run() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    if (result_ == nullptr) {
      changed_.wait(lock);
      continue;
    }
    // Other threads write the rows: each is read once, as a whole.
    const std::size_t before = done_;
    while (done_ < rows_ && __atomic_load_n(result_ + done_, __ATOMIC_RELAXED) != kMark) {
      ++done_;
    }
    if (done_ != before) {
      const std::size_t rows = done_;
      lock.unlock();
      reached_(rows);
      lock.lock();
    }
    changed_.wait_for(lock, kInterval);
  }
}

}  // namespace tiermem::ggml
