// Writing text, JSON above all.
#include "cli/json_file.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <nlohmann/json.hpp>

#include "base/error.hpp"

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
  // A pipe or /dev/null cannot be replaced by a rename.
  struct stat status {};
  const bool in_place = stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
  const std::string target = in_place ? path : path + ".part";
  std::FILE* file = std::fopen(target.c_str(), "we");
  if (file == nullptr) {
    return cannot(path, errno);
  }
  int error = put(file, text) ? 0 : errno;
  if (std::fclose(file) != 0 && error == 0) {
    error = errno;
  }
  if (error == 0 && !in_place && std::rename(target.c_str(), path.c_str()) != 0) {
    error = errno;
  }
  if (error != 0) {
    if (!in_place) {
      (void)std::remove(target.c_str());
    }
    return cannot(path, error);
  }
  return {};
}

}  // namespace tiermem::cli
