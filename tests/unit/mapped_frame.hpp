// A frame of 2 MiB and a mapped window for it, for each mechanism that moves pages into windows.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "dram_fixture.hpp"

namespace tiermem {

class MappedFrame : public ::testing::TestWithParam<Mechanism>, protected MovedFrame {
 protected:
  MappedFrame() : MovedFrame(GetParam()) {}
  static bool copies() { return GetParam() == Mechanism::copy; }
  void SetUp() override {
    if (!why_not.empty()) {
      GTEST_SKIP() << why_not;
    }
    space->release_window(window, kWindow);
    auto mapped = space->reserve_window(kWindow, kBytes, true);
    ASSERT_TRUE(mapped.ok()) << mapped.message();
    window = *mapped;
  }
};

inline std::string mechanism_name(const ::testing::TestParamInfo<Mechanism>& mechanism) {
  return mechanism.param == Mechanism::copy ? "copy" : "uffd_move";
}

}  // namespace tiermem
