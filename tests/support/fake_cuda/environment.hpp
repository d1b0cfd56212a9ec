// TIERMEM_FAKE_CUDA, the environment variable by which whole programs get a machine and its
// faults. Read once, when the library is loaded.
#pragma once

#include "support/fake_cuda/control.hpp"

namespace tiermem::test {

/// Does what the variable says; tells on stderr what it does not understand, and aborts.
void follow_environment(FakeCuda& fake);

}  // namespace tiermem::test
