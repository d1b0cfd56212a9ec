// The program's name for a buffer, for messages. Any thread. A message about one life of a record
// may be formatted while the next life sets its name. The message then contains words of both, but
// is always terminated.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/shown.hpp"

namespace tiermem {

class Label {
 public:
  static constexpr std::size_t kBytes = 32;  ///< Including the terminating zero.

  /// A copy as it was read; views refer to it.
  struct Text {
    std::array<char, kBytes> chars{};
    std::string_view view() const { return chars.data(); }
    std::string_view or_none() const { return chars[0] != '\0' ? view() : "(no label)"; }
  };

  /// Longer names are cut between two characters.
  void set(std::string_view name) noexcept {
    Text text;
    if (name.size() > kBytes - 1) {
      name = whole_characters(name.substr(0, kBytes - 1));
    }
    name.copy(text.chars.data(), kBytes - 1);
    std::array<std::uint64_t, kWords> words;
    std::memcpy(words.data(), text.chars.data(), kBytes);
    for (std::size_t i = 0; i < kWords; ++i) {
      words_[i].store(words[i], std::memory_order_relaxed);
    }
  }
  Text get() const noexcept {
    std::array<std::uint64_t, kWords> words;
    for (std::size_t i = 0; i < kWords; ++i) {
      words[i] = words_[i].load(std::memory_order_relaxed);
    }
    Text text;
    std::memcpy(text.chars.data(), words.data(), kBytes - 1);
    return text;
  }

 private:
  static constexpr std::size_t kWords = kBytes / sizeof(std::uint64_t);
  std::array<std::atomic<std::uint64_t>, kWords> words_{};
};

}  // namespace tiermem
