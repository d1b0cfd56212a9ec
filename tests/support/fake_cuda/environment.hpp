// TIERMEM_FAKE_CUDA, the environment variable that gives whole programs a machine and its faults.
// Read once, when the library is loaded.
#pragma once

#include "support/fake_cuda/control.hpp"

namespace tiermem::test {

/// Executes the variable. Reports unknown commands on stderr and aborts.
void follow_environment(FakeCuda& fake);

}  // namespace tiermem::test
