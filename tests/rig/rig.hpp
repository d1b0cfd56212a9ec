// The emulated machine of scripts/rig, as its tests see it. Outside of it they skip.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

namespace tiermem::rig {

/// Returns the node that a variable of the rig names, if the machine has this node.
inline std::optional<unsigned> node_of(const char* variable) {
  const char* const value = std::getenv(variable);
  if (value == nullptr || *value == '\0') {
    return std::nullopt;
  }
  return static_cast<unsigned>(std::strtoul(value, nullptr, 10));
}

class RigTest : public testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("RIG") == nullptr) {
      GTEST_SKIP() << "not in the machine of scripts/rig";
    }
  }
};

}  // namespace tiermem::rig
