// Threads that sleep on a futex between matrices. Each thread takes its next piece itself, so on a
// busy machine a slower thread takes fewer.
#include "team.hpp"

#include <algorithm>

namespace llm {

Team::Team(unsigned threads) {
  for (unsigned i = 1; i < threads; ++i) {
    members_.emplace_back([this] { member(); });
  }
}

Team::~Team() {
  stopping_.store(true);
  round_.fetch_add(1);
  round_.notify_all();
}

void Team::run(std::size_t items, const Work& work) {
  work_ = &work;
  items_ = items;
  piece_ = std::max<std::size_t>(1, items / (8 * (members_.size() + 1)));
  cursor_.store(0);
  active_.store(static_cast<std::uint32_t>(members_.size()));
  round_.fetch_add(1);
  round_.notify_all();
  take_pieces();
  for (std::uint32_t left = active_.load(); left != 0; left = active_.load()) {
    active_.wait(left);
  }
}

void Team::member() {
  for (std::uint32_t seen = 0;;) {
    round_.wait(seen);
    seen = round_.load();
    if (stopping_.load()) {
      return;
    }
    take_pieces();
    if (active_.fetch_sub(1) == 1) {
      active_.notify_one();
    }
  }
}

void Team::take_pieces() {
  for (;;) {
    const std::size_t begin = cursor_.fetch_add(piece_);
    if (begin >= items_) {
      return;
    }
    (*work_)(begin, std::min(begin + piece_, items_));
  }
}

}  // namespace llm
