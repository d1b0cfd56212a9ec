// Writing text, JSON above all.
#include "cli/json_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

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

Status write_json(const std::string& path, const nlohmann::ordered_json& value) {
  return write_text(
      path, value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

Status write_text(const std::string& path, const std::string& text) {
  if (path == "-") {
    return put(stdout, text) ? Status() : cannot("to standard output", errno);
  }
  // A pipe or /dev/null cannot be replaced by a rename. One look-up of the path tells which it is.
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
