// tiermem why: asks a running process where the bytes of its buffers are, and why. Processes that
// were started with the option `inspect` answer (runtime/inspector.hpp). This is the asking side.
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/results.hpp"
#include "base/shown.hpp"
#include "cli/command.hpp"
#include "cli/json_file.hpp"
#include "cli/option_facts.hpp"
#include "cli/table.hpp"
#include "cli/values.hpp"

namespace tiermem::cli {
namespace {

constexpr std::uint64_t kMostLines = 64;  // Lines for a buffer's extents, if no offset is given.
constexpr std::chrono::seconds kPatience(5);
constexpr std::size_t kMostAnswer = std::size_t{256} << 20;
constexpr const char* kBegin = "tiermem-";
constexpr const char* kEnd = ".sock";

struct Arguments {
  std::string directory;
  std::string process;
  std::string handle;
  std::string offset;
  std::string json;
  int stats = -1;
};

struct Reply {
  bool gone = false;  ///< No process listens there.
  Status status;
  std::vector<std::string> lines;  ///< Without the first line.
};

struct Socket {
  explicit Socket(int opened) : fd(opened) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    if (fd >= 0) {
      best_effort(::close(fd), "the descriptor is gone in any case");
    }
  }
  int fd;
};

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Reply ask(const std::string& path, const std::string& question) {
  Reply reply;
  const auto failed = [&](const char* what) {
    reply.gone = errno == ECONNREFUSED || errno == ENOENT;
    reply.status = fail(Code::io_error, "why: {} {}: {}", what, path, std::strerror(errno));
    return std::move(reply);
  };
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    reply.status =
        fail(Code::invalid_argument,
             "why: the path {} is too long for a socket; give --dir a shorter path", path);
    return reply;
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  // Any user may have created the socket, so the answer has one deadline and a largest size.
  const Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.fd < 0 ||
      ::connect(socket.fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return failed("cannot ask at");
  }
  const std::string line = question + "\n";
  if (::send(socket.fd, line.data(), line.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(line.size())) {
    return failed("cannot ask at");
  }
  std::string said;
  char some[65536];
  const auto until = std::chrono::steady_clock::now() + kPatience;
  for (ssize_t n = 1; n > 0;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    pollfd ready{socket.fd, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) != 1) {
      errno = ETIMEDOUT;
      return failed("no answer from");
    }
    if (said.size() > kMostAnswer) {
      errno = EMSGSIZE;
      return failed("the answer is too long, so it is not that of tiermem, from");
    }
    n = ::recv(socket.fd, some, sizeof(some), 0);
    if (n < 0 && errno == EAGAIN) {
      n = 1;
      continue;
    }
    if (n < 0) {
      return failed("no answer from");
    }
    said.append(some, static_cast<std::size_t>(n));
  }
  reply.lines = split(said, '\n');
  if (reply.lines.empty() || said.back() != '\n') {
    reply.status = fail(Code::io_error,
                        "why: no answer from {}: the process has ended, or does not answer this "
                        "user; run it as the user of the process",
                        path);
  } else if (reply.lines.front() != "ok") {
    const std::string& why = reply.lines.front();
    reply.status = fail(Code::io_error, "{}", why.rfind("error ", 0) == 0 ? why.substr(6) : why);
  } else {
    reply.lines.erase(reply.lines.begin());
  }
  return reply;
}

/// `1234-0` for each socket in the directory, including those that do not answer.
std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    const std::size_t edges = std::strlen(kBegin) + std::strlen(kEnd);
    if (name.size() > edges && name.rfind(kBegin, 0) == 0 &&
        name.compare(name.size() - std::strlen(kEnd), std::string::npos, kEnd) == 0) {
      names.push_back(name.substr(std::strlen(kBegin), name.size() - edges));
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string path_of(const std::string& directory, const std::string& name) {
  return fmt::format("{}/{}{}{}", directory, kBegin, name, kEnd);
}

std::string command_of(const std::string& name) {
  std::ifstream file("/proc/" + name.substr(0, name.find('-')) + "/comm");
  std::string command;
  std::getline(file, command);
  return command;
}

std::uint64_t number(const std::string& word) {
  return std::strtoull(word.c_str(), nullptr, 0);
}

std::string human(const std::string& word) {
  const std::uint64_t bytes = number(word);
  return bytes == 0 ? "-" : human_bytes(bytes);
}

/// Writes JSON if requested, and the table unless the JSON goes to standard output.
int show(const Arguments& arguments, const Table& table, const nlohmann::ordered_json& rows,
         const std::string& after = "") {
  if (!arguments.json.empty()) {
    const Status written = write_json(arguments.json, rows);
    if (!written.ok()) {
      return complain(written);
    }
  }
  if (arguments.json != "-") {
    table.print();
    if (!after.empty()) {
      print_text(after);
    }
  }
  return kDone;
}

/// Lists the processes that answer. Removes the sockets of processes that have ended.
int list_processes(const Arguments& arguments) {
  const std::string& directory = arguments.directory;
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error)) {
    return complain(
        kFailed, fmt::format("why: --dir {:.160}: {}; name the directory of TIERMEM_INSPECT",
                             directory, error ? error.message() : std::string("not a directory")));
  }
  Table table({{"process"}, {"program"}, {"buffers", Table::Align::right}});
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const std::string& name : names_in(directory)) {
    const std::string path = path_of(directory, name);
    struct stat asked {};
    struct stat now {};
    const bool is_socket = ::lstat(path.c_str(), &asked) == 0 && S_ISSOCK(asked.st_mode);
    const Reply reply = ask(path, "buffers");
    if (reply.gone) {
      // A new process may have the same number; its socket is another file.
      if (is_socket && ::lstat(path.c_str(), &now) == 0 && now.st_dev == asked.st_dev &&
          now.st_ino == asked.st_ino) {
        best_effort(::unlink(path.c_str()), "a name that stays behind only takes room");
      }
    } else {
      const bool answers = reply.status.ok();
      table.add({name, command_of(name),
                 answers ? fmt::format("{}", reply.lines.size()) : reply.status.message()});
      nlohmann::ordered_json& each = all.emplace_back();
      each["process"] = name;
      each["program"] = command_of(name);
      each["buffers"] = answers ? nlohmann::ordered_json(reply.lines.size()) : nullptr;
      each["error"] = answers ? nlohmann::ordered_json() : reply.status.message();
    }
  }
  if (table.empty()) {
    return complain(kFailed, fmt::format("why: no process has a socket in {}; start a program "
                                         "with TIERMEM_INSPECT={} in its environment",
                                         directory, directory));
  }
  return show(arguments, table, all);
}

/// The socket of `process`: a pid, or one of its contexts as 1234-1.
Result<std::string> find_process(const Arguments& arguments) {
  std::vector<std::string> found;
  for (const std::string& name : names_in(arguments.directory)) {
    if (name == arguments.process || name.rfind(arguments.process + "-", 0) == 0) {
      found.push_back(name);
    }
  }
  if (found.empty()) {
    return fail(Code::io_error,
                "why: process {:.60} has no socket in {}; list the processes that have one with "
                "`tiermem why --dir {}`",
                arguments.process, arguments.directory, arguments.directory);
  }
  if (found.size() > 1) {
    return fail(Code::io_error, "why: process {} has {} contexts; name one, such as {}",
                arguments.process, found.size(), found.back());
  }
  return path_of(arguments.directory, found.front());
}

constexpr const char* kFields[] = {"handle", "bytes", "extent_bytes", "resident", "in_slots",
                                   "zero",   "lost",  "dirty",        "pinned",   "label"};
constexpr std::size_t kFieldCount = std::size(kFields);

int list_buffers(const Arguments& arguments, const Reply& reply) {
  Table table({{"handle"},
               {"label"},
               {"bytes", Table::Align::right},
               {"in memory", Table::Align::right},
               {"on disk", Table::Align::right},
               {"zeros", Table::Align::right},
               {"dirty", Table::Align::right},
               {"pinned", Table::Align::right},
               {"lost", Table::Align::right}});
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const std::string& line : reply.lines) {
    std::vector<std::string> words = split(line, '\t');
    words.resize(kFieldCount);  // An empty label is not a word.
    table.add({words[0], words[9], human(words[1]), human(words[3]), human(words[4]),
               human(words[5]), human(words[7]), human(words[8]), human(words[6])});
    nlohmann::ordered_json& each = all.emplace_back();
    for (std::size_t i = 0; i < kFieldCount; ++i) {
      const bool is_text = i == 0 || i == kFieldCount - 1;
      is_text ? each[kFields[i]] = words[i] : each[kFields[i]] = number(words[i]);
    }
  }
  return show(arguments, table, all, table.empty() ? "No buffers." : "");
}

/// Prints a line for the extent at the offset, or for every extent.
int tell_why(const Arguments& arguments, const std::string& path) {
  std::uint64_t at = number(arguments.offset), end = at + 1, step = 1;
  if (arguments.offset.empty()) {
    const Reply buffers = ask(path, "buffers");
    if (!buffers.status.ok()) {
      return complain(buffers.status);
    }
    for (const std::string& line : buffers.lines) {
      const std::vector<std::string> words = split(line, '\t');
      if (words.size() > 2 && number(words[0]) == number(arguments.handle)) {
        end = std::max<std::uint64_t>(1, number(words[1]));
        step = std::max<std::uint64_t>(1, number(words[2]));
      }
    }
  }
  Table table({{"offset", Table::Align::right}, {"where, and why"}});
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  const std::uint64_t last = std::min(end, at + kMostLines * step);
  for (; at < last; at += step) {
    const Reply reply = ask(path, fmt::format("why {} {}", arguments.handle, at));
    if (!reply.status.ok()) {
      return complain(reply.status);
    }
    const std::string line = reply.lines.empty() ? "" : reply.lines.front();
    const std::size_t first = line.find('\t'), second = line.find('\t', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      return complain(
          kFailed,
          fmt::format("why: the answer from {} is malformed: {}; use the `tiermem` of its version",
                      path, line));
    }
    const std::string offset = line.substr(first + 1, second - first - 1);
    table.add({offset, line.substr(second + 1)});
    all.push_back({{"buffer", arguments.handle},
                   {"label", line.substr(0, first)},
                   {"offset", number(offset)},
                   {"text", line.substr(second + 1)}});
  }
  return show(arguments, table, all,
              last < end ? fmt::format("And {} more extents; name an OFFSET.",
                                       (end - last + step - 1) / step)
                         : "");
}

int why(const Arguments& arguments) {
  if (const Status can = check_json_output("why: --json", arguments.json); !can.ok()) {
    return complain(can);
  }
  if (arguments.process.empty()) {
    if (arguments.stats >= 0) {
      return complain(kUsage, "why: --stats needs PROCESS; write `tiermem why PROCESS --stats N`");
    }
    return list_processes(arguments);
  }
  const auto path = find_process(arguments);
  if (!path.ok()) {
    return complain(path.status());
  }
  if (arguments.stats >= 0) {
    const Reply reply = ask(*path, fmt::format("stats {}", arguments.stats));
    if (!reply.status.ok()) {
      return complain(reply.status);
    }
    std::string text;
    for (const std::string& line : reply.lines) {
      text += shown(line) + "\n";
    }
    const Status written = write_text(arguments.json.empty() ? "-" : arguments.json, text);
    return written.ok() ? kDone : complain(written);
  }
  if (!arguments.handle.empty()) {
    return tell_why(arguments, *path);
  }
  const Reply reply = ask(*path, "buffers");
  return reply.status.ok() ? list_buffers(arguments, reply) : complain(reply.status);
}

/// An address as shown by `tiermem why`: decimal, or hexadecimal after 0x.
std::string is_number(const std::string& word) {
  const bool hex = word.rfind("0x", 0) == 0;
  const char* const begin = word.c_str() + (hex ? 2 : 0);
  const char* const end = word.c_str() + word.size();
  std::uint64_t value = 0;
  const auto read = std::from_chars(begin, end, value, hex ? 16 : 10);
  return begin != end && read.ec == std::errc() && read.ptr == end
             ? ""
             : fmt::format("'{:.60}' is not a number; write 4096 or 0x1000", word);
}

}  // namespace

void add_why(CLI::App& program, int& exit) {
  auto arguments = std::make_shared<Arguments>();
  const char* const named = std::getenv("TIERMEM_INSPECT");
  arguments->directory = named != nullptr && *named != '\0' ? named : "/tmp";
  Command* command = add_command(
      program, "why", "Ask a running process where the bytes of its buffers are, and why");
  command
      ->add_option("process", arguments->process,
                   "The number of the process. Without it, list the processes that answer.")
      ->type_name("PID");
  command
      ->add_option("handle", arguments->handle,
                   "One of its buffers. Without it, list all buffers, the largest first.")
      ->type_name("HANDLE")
      ->check(CLI::Validator(is_number, ""));
  command
      ->add_option("offset", arguments->offset,
                   "A byte of the buffer. Without it, show the first 64 extents.")
      ->type_name("BYTES")
      ->check(CLI::Validator(is_number, ""));
  command
      ->add_option("--dir", arguments->directory,
                   "The directory of the sockets: what the process has in its option inspect.")
      ->type_name(kFolder)
      ->default_str("$TIERMEM_INSPECT, else /tmp");
  command
      ->add_option("--stats", arguments->stats,
                   "Print counters, channels and the last N receipts, always as JSON.")
      ->type_name("N")
      ->check(whole_number(0, 16384));
  add_json(*command, arguments->json);
  command->manual.description = {
      "A process answers if it was started with TIERMEM_INSPECT=DIR in its environment, or with "
      "inspect=DIR in its options. Only its own user and root may ask. A process with several "
      "contexts has a number for each: 1234-0, 1234-1."};
  command->manual.variables = {"TIERMEM_INSPECT", "NO_COLOR"};
  command->manual.files = {
      {"DIR/tiermem-PID-N.sock", "The socket at which context N of process PID answers."}};
  command->manual.examples = {
      {"TIERMEM_INSPECT=/tmp prog & tiermem why", "List the processes that answer."},
      {"tiermem why 1234", "List the buffers of process 1234."},
      {"tiermem why 1234 0x100000001 4096", "Say where a byte of a buffer is, and why."}};
  command->callback([arguments, &exit] { exit = why(*arguments); });
}

}  // namespace tiermem::cli
