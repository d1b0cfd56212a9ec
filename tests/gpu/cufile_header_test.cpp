// Compares tiermem's declarations of cuFile with cuFile's header, where this is installed.
#include <gtest/gtest.h>

#include "os/cufile_types.hpp"

#if __has_include(<cufile.h>) && __has_include(<cuda.h>)
#include <cufile.h>

#include <cstddef>

namespace tiermem {
namespace {

static_assert(sizeof(cufile::Error) == sizeof(CUfileError_t) &&
              offsetof(cufile::Error, driver) == offsetof(CUfileError_t, cu_err));
static_assert(
    sizeof(cufile::Properties) == sizeof(CUfileDrvProps_t) &&
    offsetof(cufile::Properties, driver_minor) == offsetof(CUfileDrvProps_t, nvfs.minor_version) &&
    offsetof(cufile::Properties, status) == offsetof(CUfileDrvProps_t, nvfs.dstatusflags) &&
    offsetof(cufile::Properties, features) == offsetof(CUfileDrvProps_t, fflags) &&
    offsetof(cufile::Properties, most_batch) == offsetof(CUfileDrvProps_t, max_batch_io_size));
static_assert(cufile::kSuccess == CU_FILE_SUCCESS &&
              cufile::kNvme == 1U << CU_FILE_NVME_SUPPORTED &&
              cufile::kNvmeOverFabrics == 1U << CU_FILE_NVMEOF_SUPPORTED &&
              cufile::kScsi == 1U << CU_FILE_SCSI_SUPPORTED);

static_assert(sizeof(cufile::Description) == sizeof(CUfileDescr_t) &&
              offsetof(cufile::Description, descriptor) == offsetof(CUfileDescr_t, handle) &&
              offsetof(cufile::Description, operations) == offsetof(CUfileDescr_t, fs_ops) &&
              cufile::kOpaqueDescriptor == CU_FILE_HANDLE_TYPE_OPAQUE_FD &&
              sizeof(cufile::Handle) == sizeof(CUfileHandle_t));

TEST(CuFileHeader, our_declarations_are_those_of_the_library) {
  // A call with another shape does not compile here.
  CUfileError_t (*const open)() = &cuFileDriverOpen;
  CUfileError_t (*const get)(CUfileDrvProps_t*) = &cuFileDriverGetProperties;
  CUfileError_t (*const version)(int*) = &cuFileGetVersion;
  CUfileError_t (*const add)(CUfileHandle_t*, CUfileDescr_t*) = &cuFileHandleRegister;
  void (*const remove)(CUfileHandle_t) = &cuFileHandleDeregister;
  ssize_t (*const read)(CUfileHandle_t, void*, size_t, off_t, off_t) = &cuFileRead;
  ssize_t (*const write)(CUfileHandle_t, const void*, size_t, off_t, off_t) = &cuFileWrite;
  EXPECT_TRUE(add != nullptr && remove != nullptr && read != nullptr && write != nullptr);
  EXPECT_TRUE(open != nullptr && get != nullptr && version != nullptr);
}

}  // namespace
}  // namespace tiermem

#else

TEST(CuFileHeader, our_declarations_are_those_of_the_library) {
  GTEST_SKIP() << "no cufile.h; `scripts/test --full` fetches it";
}

#endif
