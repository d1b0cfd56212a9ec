// Writes text, mostly JSON.
#include "cli/json_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/results.hpp"
#include "os/file_identity.hpp"

namespace tiermem::cli {
namespace {

Status cannot(const std::string& path, int error) {
  return fail_native(Code::io_error, error, "cannot write {:.160}: {}", path, std::strerror(error));
}

bool put(std::FILE* file, const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
}

}  // namespace

Status check_output(const char* option, const std::string& path) {
  if (path.empty() || path == "-") {
    return {};
  }
  struct stat status {};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) {
    return fail(Code::invalid_argument, "{} {:.160}: it is a directory; name a file", option, path);
  }
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  // A regular file is replaced by a new one in the same folder.
  const bool in_place = exists && !S_ISREG(status.st_mode);
  if (::access(in_place ? path.c_str() : folder.c_str(), in_place ? W_OK : W_OK | X_OK) == 0) {
    return {};
  }
  return fail_native(Code::io_error, errno, "{}: cannot write {:.160}: {}", option, path,
                     std::strerror(errno));
}

Status check_json_output(const char* option, const std::string& path) {
  Status can = check_output(option, path);
  struct stat status {};
  if (!can.ok() || path.empty() || path == "-" || ::stat(path.c_str(), &status) != 0 ||
      !S_ISREG(status.st_mode) || status.st_size == 0) {
    return can;
  }
  std::ifstream file(path);
  if (nlohmann::json::accept(file)) {
    return can;  // An earlier run wrote it.
  }
  return fail(Code::invalid_argument,
              "{} {:.160}: the file exists and is not JSON; name another file, or remove it", option,
              path);
}

Status write_json(const std::string& path, const nlohmann::ordered_json& value) {
  return write_text(
      path, value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

Status write_text(const std::string& path, const std::string& text) {
  if (path == "-") {
    return put(stdout, text) ? Status() : cannot("to standard output", errno);
  }
  // A rename cannot replace a pipe or /dev/null. One look-up of the path finds the file's type.
  const int found = ::open(path.c_str(), O_PATH | O_CLOEXEC);
  struct stat status {};
  const bool in_place = found >= 0 && ::fstat(found, &status) == 0 && !S_ISREG(status.st_mode);
  int error = 0;
  if (in_place) {
    const int fd = reopen(found, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    std::FILE* const file = fd >= 0 ? ::fdopen(fd, "w") : nullptr;
    error = file != nullptr && put(file, text) ? 0 : errno;
    if (file != nullptr && std::fclose(file) != 0 && error == 0) {
      error = errno;
    }
  } else {
    error = replace_file(path, text, 0666);
  }
  if (found >= 0) {
    best_effort(::close(found), "the descriptor is gone in any case");
  }
  if (error != 0) {
    return cannot(path, error);
  }
  return {};
}

}  // namespace tiermem::cli
