// Errors as the program shows them.
#include "cli/command.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "base/shown.hpp"

namespace tiermem::cli {

ExitCode exit_code(const Status& status) {
  switch (status.code()) {
    case Code::ok:
      return kDone;
    case Code::invalid_argument:
      return kUsage;
    case Code::unsupported:
    case Code::unavailable:
    case Code::no_capacity:
      return kCannot;
    default:
      return kFailed;
  }
}

int complain(ExitCode code, std::string_view sentence) {
  fmt::print(stderr, "tiermem: {}\n", shown(sentence));
  return code;
}

int complain(const Status& status) {
  return complain(exit_code(status), status.message());
}

}  // namespace tiermem::cli
