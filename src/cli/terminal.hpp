// Output for users besides the results: whether there is a terminal, its width, and a progress bar
// on stderr. Without a terminal the bar prints nothing. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace tiermem::cli {

bool stdout_is_terminal();
bool stderr_is_terminal();
/// Whether text may be bold or coloured: on a terminal, unless NO_COLOR is set and not empty.
bool stdout_has_colours();
bool stderr_has_colours();
/// Whether the environment's locale is UTF-8. Other terminals show ASCII only.
bool is_utf8_locale();
/// Columns of the terminal; 100 if unknown.
unsigned terminal_width();
unsigned stderr_width();

/// Prints text to stderr. Has no effect if that cannot be written: the exit status still tells the
/// end of a command.
void say(std::string_view text) noexcept;

/// "replay  [#####.....]  43 %  12.3 k/s  5 s left", redrawn at most ten times a second and erased
/// at the end, so that only results stay on the screen.
class Progress {
 public:
  /// `unit` follows the rate: "refs"; empty: no rate.
  Progress(std::string label, std::uint64_t total, std::string unit);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Cheap enough for every step of a loop that does some work.
  void at(std::uint64_t done) {
    if (shown_ && (++calls_ & mask_) == 0) {
      draw(done);
    }
  }
  /// Changes the label and draws at once: for steps that take long.
  void step(std::string label, std::uint64_t done);
  void wipe();

 private:
  void draw(std::uint64_t done);

  const bool shown_;
  std::string label_;
  const std::uint64_t total_;
  const std::string unit_;
  const std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point drawn_{};
  std::uint32_t calls_ = 0;
  std::uint32_t mask_ = 0;  ///< Calls between two reads of the clock, minus one.
};

/// "831 ns", "12.3 us", "4.56 ms", "2.1 s": three digits.
std::string human_time(double seconds);
/// "987", "12.3 k", "4.56 M": three digits.
std::string human_count(double count);
/// "3.81 GB/s": decimal units, as in device specifications.
std::string human_rate(double bytes_per_second);

}  // namespace tiermem::cli
