// Cgroups by their files: proc(5), cgroups(7).
#include "bench/limited_child.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "base/error.hpp"

namespace tiermem::bench {
namespace {

bool write_text(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const bool ok =
      fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (fd >= 0) {
    ::close(fd);
  }
  return ok;
}

struct Group {
  std::string path;
  const char* limit = "";
};

/// This process's own path in the hierarchy of `controller`; "" means version 2.
std::string own_path(const std::string& controller) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    std::stringstream names(line.substr(first + 1, second - first - 1));
    std::string name;
    bool ours = controller.empty() && second == first + 1;
    while (std::getline(names, name, ',')) {
      ours = ours || (!controller.empty() && name == controller);
    }
    if (ours) {
      const std::string path = line.substr(second + 1);
      return path == "/" ? "" : path;
    }
  }
  return "";
}

std::optional<Group> make_group() {
  static unsigned made = 0;
  const std::string name = fmt::format("/tiermem-bench-{}-{}", ::getpid(), ++made);
  const auto try_in = [&](const std::string& parent, const char* limit) -> std::optional<Group> {
    const std::string path = parent + name;
    if (::mkdir(path.c_str(), 0755) != 0) {
      return std::nullopt;
    }
    if (::access((path + "/" + limit).c_str(), W_OK) == 0) {
      return Group{path, limit};
    }
    ::rmdir(path.c_str());
    return std::nullopt;
  };
  // A container may hide its own path; the mount's root is used instead.
  for (const std::string& own : {own_path("memory"), std::string()}) {
    if (auto group = try_in("/sys/fs/cgroup/memory" + own, "memory.limit_in_bytes")) {
      return group;
    }
  }
  for (const char* const root : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
    for (std::string own = own_path("");; own.resize(own.rfind('/'))) {
      if (auto group = try_in(root + own, "memory.max")) {
        return group;
      }
      if (own.empty()) {
        break;
      }
    }
  }
  return std::nullopt;
}

void remove_group(const std::string& path) {
  for (int i = 0; i < 200 && ::rmdir(path.c_str()) != 0 && errno == EBUSY; ++i) {
    ::usleep(10'000);  // The group's last process is still being removed.
  }
}

/// Runs in the child: answers until there are no more questions.
[[noreturn]] void serve(const std::string& group, pid_t parent, int socket,
                        const std::function<LimitedChild::Answer()>& begin) {
  LimitedChild::Answer answer;
  // If the parent ended before the request, the signal would never come.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && ::getppid() == parent &&
      write_text(group + "/cgroup.procs", "0")) {
    answer = begin();
  }
  double value = answer ? 1 : 0;
  std::uint32_t question = 0;
  while (::send(socket, &value, sizeof(value), MSG_NOSIGNAL) == sizeof(value) && answer &&
         ::recv(socket, &question, sizeof(question), 0) == sizeof(question)) {
    value = answer(question);
  }
  ::_exit(0);
}

}  // namespace

Result<std::unique_ptr<LimitedChild>> LimitedChild::start(std::uint64_t bytes,
                                                          const std::function<Answer()>& begin) {
  const std::optional<Group> group = make_group();
  if (!group) {
    return fail(Code::unavailable, "no memory cgroup can be made here (root may)");
  }
  std::unique_ptr<LimitedChild> self(new LimitedChild(group->path));
  if (!write_text(group->path + "/" + group->limit, std::to_string(bytes))) {
    return fail(Code::unavailable, "the memory of {} cannot be limited", group->path);
  }
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return fail_native(Code::internal, errno, "socketpair: {}", std::strerror(errno));
  }
  self->socket_ = ends[0];
  const pid_t parent = ::getpid();
  self->child_ = ::fork();
  if (self->child_ == 0) {
    // Each process has one end only, so each side notices when the other is gone.
    ::close(ends[0]);
    serve(group->path, parent, ends[1], begin);
  }
  ::close(ends[1]);
  auto ready = self->answer();
  if (!ready.ok()) {
    return std::move(ready).status();
  }
  return self;
}

LimitedChild::~LimitedChild() {
  if (socket_ >= 0) {
    ::close(socket_);
  }
  if (child_ > 0) {
    (void)::kill(child_, SIGKILL);
    while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  remove_group(group_);
}

Result<double> LimitedChild::ask(std::uint32_t question) {
  if (::send(socket_, &question, sizeof(question), MSG_NOSIGNAL) != sizeof(question)) {
    return fail_native(Code::unavailable, errno, "the limited child is gone: {}",
                       std::strerror(errno));
  }
  return answer();
}

Result<double> LimitedChild::answer() {
  double value = 0;
  ssize_t got = 0;
  while ((got = ::recv(socket_, &value, sizeof(value), 0)) < 0 && errno == EINTR) {
  }
  if (got != sizeof(value)) {
    return fail(Code::unavailable, "the limited child ended; was it out of memory?");
  }
  if (!(value > 0)) {
    return fail(Code::io_error, "the limited child could not begin, or read wrong bytes");
  }
  return value;
}

}  // namespace tiermem::bench
