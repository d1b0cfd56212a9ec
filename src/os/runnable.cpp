// One read of /proc/loadavg: "0.20 0.18 0.12 1/80 11206".
#include "os/runnable.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/results.hpp"

namespace tiermem {

Runnable runnable_now() {
  const int file = ::open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return {};
  }
  char text[128];
  const ssize_t got = ::read(file, text, sizeof text);
  best_effort(::close(file), "the descriptor is gone in any case");
  std::string_view rest(text, got > 0 ? static_cast<std::size_t>(got) : 0);
  for (int i = 0; i < 3 && !rest.empty(); ++i) {
    rest.remove_prefix(std::min(rest.find(' '), rest.size() - 1) + 1);
  }
  Runnable all;
  std::from_chars(rest.data(), rest.data() + rest.size(), all.threads);
  static const long processors = ::sysconf(_SC_NPROCESSORS_ONLN);  // It reads a file each time.
  all.processors = processors > 0 ? static_cast<unsigned>(processors) : 1;
  return all;
}

}  // namespace tiermem
