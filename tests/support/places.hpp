// The folders of this build and its source, for tests that read documents or traces, or load build
// outputs. In a separate file, so that a copy of the tree elsewhere finds all other objects in the
// compiler cache.
#pragma once

namespace tiermem {

/// The root of the source tree.
const char* source_folder();
/// The CUDA driver of tests/support/fake_cuda.
const char* fake_cuda_path();
/// Returns whether the GPU tests must treat the fake driver as a real one, which they cannot steer.
/// TIERMEM_GPU_TEST_AS_REAL=1 says so. It shows that each test that needs the fake driver is
/// skipped on a machine with a GPU.
bool fake_cuda_is_disguised();
/// The cuFile of tests/support/fake_cufile.
const char* fake_cufile_path();
/// A program without a dynamic linker; null if the build has none (sanitizers).
const char* static_program_path();
/// The preload library, and the program of its tests; null where the build makes none.
const char* preload_library_path();
const char* preloaded_program_path();

}  // namespace tiermem
