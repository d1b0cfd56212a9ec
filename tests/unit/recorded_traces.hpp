// Recorded traces for tests, found through TIERMEM_TRACES or beside the source. A test that needs a
// missing trace, or one that this build cannot decompress, is skipped.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "cli/read_file.hpp"
#include "policy/trace.hpp"
#include "support/places.hpp"

namespace tiermem {

inline std::string traces_folder() {
  if (const char* set = std::getenv("TIERMEM_TRACES"); set != nullptr && *set != '\0') {
    return set;
  }
  return std::string(source_folder()) += "/../shared/traces";
}

}  // namespace tiermem

/// Defines `const Trace& variable`, or skips the calling test.
#define LOAD_OR_SKIP(variable, file)                                            \
  if (!std::filesystem::exists(traces_folder() + "/" + (file))) {               \
    GTEST_SKIP() << "no trace " << (file) << " in '" << traces_folder()         \
                 << "'; TIERMEM_TRACES can name the folder";                    \
  }                                                                             \
  auto variable##_bytes = cli::read_compressed(traces_folder() + "/" + (file)); \
  if (variable##_bytes.code() == Code::unsupported) {                           \
    GTEST_SKIP() << variable##_bytes.message();                                 \
  }                                                                             \
  ASSERT_TRUE(variable##_bytes.ok()) << variable##_bytes.message();             \
  auto variable##_result = parse_trace((file), *variable##_bytes);              \
  ASSERT_TRUE(variable##_result.ok()) << variable##_result.message();           \
  const Trace& variable = *variable##_result
