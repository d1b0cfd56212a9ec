// Tests of the suite FaultsFound, one for each fault by its number. GoogleTest allows one fixture
// per suite, and these need several: each test makes its own.
#pragma once

#include <gtest/gtest.h>

/// As TEST_F(Fixture, name), in the suite FaultsFound.
#define FOUND_TEST(Fixture, name)               \
  struct name final : Fixture {                 \
    void TestBody() override;                   \
    void run() {                                \
      SetUp();                                  \
      if (!HasFatalFailure() && !IsSkipped()) { \
        TestBody();                             \
      }                                         \
      TearDown();                               \
    }                                           \
  };                                            \
  TEST(FaultsFound, name) {                     \
    name().run();                               \
  }                                             \
  void name::TestBody()
