// Terminals and the progress bar.
#include "cli/terminal.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/results.hpp"
#include "base/shown.hpp"

namespace tiermem::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

unsigned width_of(int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20) {
    return size.ws_col;
  }
  return 100;
}

/// Three significant digits.
std::string three_digits(double value) {
  return fmt::format("{:.{}f}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
}

bool is_terminal(int fd) {
  const char* kind = std::getenv("TERM");
  return isatty(fd) == 1 && kind != nullptr && std::string_view(kind) != "dumb";
}

/// https://no-color.org
bool colours_are_welcome() {
  const char* const refused = std::getenv("NO_COLOR");
  return refused == nullptr || *refused == '\0';
}

}  // namespace

void say(std::string_view text) noexcept {
  best_effort(std::fwrite(text.data(), 1, text.size(), stderr), "there is no other place for it");
  best_effort(std::fflush(stderr), "as above");
}

bool stdout_is_terminal() {
  return is_terminal(STDOUT_FILENO);
}
bool stderr_is_terminal() {
  return is_terminal(STDERR_FILENO);
}

bool stdout_has_colours() {
  return stdout_is_terminal() && colours_are_welcome();
}
bool stderr_has_colours() {
  return stderr_is_terminal() && colours_are_welcome();
}

bool is_utf8_locale() {
  for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"}) {  // The first that is set decides.
    const char* const value = std::getenv(name);
    if (value != nullptr && *value != '\0') {
      std::string locale = value;
      std::erase(locale, '-');
      return locale.find("UTF8") != std::string::npos || locale.find("utf8") != std::string::npos;
    }
  }
  return false;
}

unsigned terminal_width() {
  return width_of(STDOUT_FILENO);
}
unsigned stderr_width() {
  return width_of(STDERR_FILENO);
}

std::string human_time(double seconds) {
  static constexpr std::array kUnits = {std::pair{1e-9, "ns"}, std::pair{1e-6, "us"},
                                        std::pair{1e-3, "ms"}, std::pair{1.0, "s"}};
  std::size_t unit = 0;
  while (unit + 1 < kUnits.size() && seconds >= 999.5 * kUnits[unit].first) {
    ++unit;
  }
  return fmt::format("{} {}", three_digits(seconds / kUnits[unit].first), kUnits[unit].second);
}

std::string human_count(double count) {
  static constexpr std::array kUnits = {"", " k", " M", " G"};
  std::size_t unit = 0;
  while (unit + 1 < kUnits.size() && count >= 999.5) {
    count /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f}", count) : three_digits(count) + kUnits[unit];
}

std::string human_rate(double bytes_per_second) {
  const bool giga = bytes_per_second >= 1e9;
  return fmt::format("{} {}B/s", three_digits(bytes_per_second / (giga ? 1e9 : 1e6)),
                     giga ? 'G' : 'M');
}

Progress::Progress(std::string label, std::uint64_t total, std::string unit)
    : shown_(stderr_is_terminal()),
      label_(shown(label)),
      total_(std::max<std::uint64_t>(total, 1)),
      unit_(std::move(unit)),
      start_(Clock::now()) {
  if (shown_) {
    draw(0);
  }
}

Progress::~Progress() {
  wipe();
}

void Progress::wipe() {
  if (shown_) {
    say("\r\033[K");
  }
}

void Progress::step(std::string label, std::uint64_t done) {
  label_ = shown(label);
  if (shown_) {
    drawn_ = {};
    draw(done);
  }
}

void Progress::draw(std::uint64_t done) {
  const Clock::time_point now = Clock::now();
  const double since = std::chrono::duration<double>(now - drawn_).count();
  if (since < 0.1) {
    // Called more often than it may draw, so it reads the clock less often.
    mask_ = since < 0.02 ? std::min(mask_ * 2 + 1, 1023U) : mask_;
    return;
  }
  drawn_ = now;
  mask_ /= 2;
  const double took = seconds_since(start_);
  const double part = std::min(1.0, static_cast<double>(done) / static_cast<double>(total_));
  std::string tail = fmt::format(" {:3.0f} %", part * 100);
  if (!unit_.empty() && took > 0.2) {
    tail += fmt::format("  {} {}/s", human_count(static_cast<double>(done) / took), unit_);
  }
  if (part > 0 && took > 0.5) {
    tail += fmt::format("  {:.0f} s left", took / part - took);
  }
  constexpr unsigned kBar = 24;
  const auto full = static_cast<unsigned>(part * kBar);
  std::string line = fmt::format("{}  [{}{}]{}", label_, std::string(full, '#'),
                                 std::string(kBar - full, '.'), tail);
  line.resize(std::min<std::size_t>(line.size(), width_of(STDERR_FILENO) - 1));
  say(fmt::format("\r{}\033[K", line));
}

}  // namespace tiermem::cli
