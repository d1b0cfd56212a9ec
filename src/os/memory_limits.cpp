// Compares limits with current usage. The values are read after the refusal: another thread may
// have released memory since, so that no limit is reached any more.
#include "os/memory_limits.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "base/error.hpp"
#include "base/results.hpp"
#include "os/host_memory.hpp"

namespace tiermem::host {
namespace {

constexpr std::uint64_t kNone = ~std::uint64_t{0};

// The beginning of a procfs file.
class ProcText {
 public:
  explicit ProcText(const char* path) {
    const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      return;
    }
    std::size_t length = 0;
    ssize_t n = 1;
    while (n > 0 && length < text_.size() - 1) {
      n = ::read(fd, text_.data() + length, text_.size() - 1 - length);
      length += n > 0 ? static_cast<std::size_t>(n) : 0;
    }
    text_[length] = '\0';
    best_effort(::close(fd), "the descriptor is gone in any case");
  }
  // Returns the number after the name, converted from kB to bytes, or 0 if there is none.
  std::uint64_t kilobytes(const char* name) const {
    const char* const at = std::strstr(text_.data(), name);
    return at == nullptr ? 0 : std::strtoull(at + std::strlen(name), nullptr, 10) * 1024;
  }
  std::uint64_t number() const { return std::strtoull(text_.data(), nullptr, 10); }

 private:
  std::array<char, 4096> text_{};
};

std::uint64_t limit_of(decltype(RLIMIT_AS) resource) {
  rlimit limit{};
  return ::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ? kNone
                                                                               : limit.rlim_cur;
}

bool exceeds(std::uint64_t used, std::uint64_t more, std::uint64_t limit) {
  return limit != kNone && (used > limit || more > limit - used);
}

// Counting the mappings reads them all, so this runs only if nothing else explains the refusal.
bool near_map_limit() {
  const std::uint64_t limit = map_limit();
  return limit != 0 && map_count() + 8 >= limit;
}

}  // namespace

std::uint64_t address_space_in_use() {
  return ProcText("/proc/self/status").kilobytes("VmSize:");
}

std::uint64_t data_in_use() {
  return ProcText("/proc/self/status").kilobytes("VmData:");
}

bool counts_commit() {
  return ProcText("/proc/sys/vm/overcommit_memory").number() == 2;
}

bool explain_refusal(std::uint64_t bytes, Wanted wanted, char* text, std::size_t text_room,
                     char* setting, std::size_t setting_room) {
  const auto say = [&]<typename... Args>(const char* name, fmt::format_string<Args...> format,
                                         Args&&... args) {
    const auto end = fmt::format_to_n(text, text_room - 1, format, std::forward<Args>(args)...);
    *end.out = '\0';
    set_text(setting, setting_room, name);
  };
  const std::uint64_t used = address_space_in_use();
  if (const std::uint64_t limit = limit_of(RLIMIT_AS); exceeds(used, bytes, limit)) {
    say("ulimit -v", "RLIMIT_AS is {}, of which {} are in use; raise `ulimit -v`",
        human_bytes(limit), human_bytes(used));
    return true;
  }
  const std::uint64_t data = data_in_use();
  if (const std::uint64_t limit = limit_of(RLIMIT_DATA);
      wanted == Wanted::memory && exceeds(data, bytes, limit)) {
    say("ulimit -d", "RLIMIT_DATA is {}, of which {} are in use; raise `ulimit -d`",
        human_bytes(limit), human_bytes(data));
    return true;
  }
  if (wanted == Wanted::memory && counts_commit()) {
    const ProcText machine("/proc/meminfo");
    say("vm.overcommit_memory",
        "vm.overcommit_memory is 2, with {} of {} committed; raise vm.overcommit_ratio, or set "
        "vm.overcommit_memory to 0",
        human_bytes(machine.kilobytes("Committed_AS:")),
        human_bytes(machine.kilobytes("CommitLimit:")));
    return true;
  }
  if (near_map_limit()) {
    say("vm.max_map_count", "the process has nearly vm.max_map_count mappings, {}; raise it",
        map_limit());
    return true;
  }
  if (bytes >= std::uint64_t{1} << 46) {
    say("", "the processor's address space has no such range; ask for less");
    return true;
  }
  say("ulimit -v",
      "neither `ulimit -v`, `ulimit -d`, vm.overcommit_memory nor vm.max_map_count is reached; the "
      "machine or its memory cgroup is out of memory");
  return false;
}

Status refused_memory(int error, std::uint64_t bytes, Wanted wanted, std::string_view what) {
  char why[160];
  ErrorInfo info;
  explain_refusal(bytes, wanted, why, sizeof(why), info.setting, sizeof(info.setting));
  const ErrorInfo said =
      error_info(Code::no_capacity, "{}: the kernel refused {} of {}: {}", what, human_bytes(bytes),
                 wanted == Wanted::memory ? "memory" : "address space", why);
  info.code = said.code;
  info.native = error;
  info.needed = bytes;
  set_text(info.text, said.text);
  return Status(info);
}

}  // namespace tiermem::host
