// Device memory that the program has already, of its own allocation or another library's, comes
// into a buffer by a view and a copy in the order of a stream: what docs/gpu.md tells engines to
// do.
#include "gpu/gpu_context.hpp"
#include "gpu/work.hpp"

namespace tiermem::test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kPiece = 2 * kMiB;

TEST_F(GpuContext, device_memory_of_the_programs_own_comes_in_by_a_view_and_a_copy) {
  open("0:8M");
  const Program program;
  const Work work(program);
  constexpr std::uint64_t kBytes = 12 * kMiB;  // More than the tier has of the device.
  cuda::DevicePointer own = 0;
  ASSERT_EQ(cu().cuMemAlloc_v2(&own, kBytes), cuda::kSuccess);
  program.put(reinterpret_cast<const void*>(own), kBytes, 7);  // NOLINT: a number to the host.
  const Buffer& buffer = add(kBytes);
  for (std::uint64_t at = 0; at < kBytes; at += kPiece) {
    auto view = buffer.acquire_on(kGpu, kDiscard, at, kPiece, kSoon, work.order());
    ASSERT_TRUE(view.ok()) << view.message();
    ASSERT_EQ(cu().cuMemcpyDtoDAsync_v2(reinterpret_cast<cuda::DevicePointer>(view->data()),
                                        own + at, kPiece, work.stream()),
              cuda::kSuccess);
  }
  // The program's again once the stream has come there; cuMemFree waits for that by itself.
  ASSERT_EQ(cu().cuMemFree_v2(own), cuda::kSuccess);
  EXPECT_TRUE(host_holds(buffer, 7));
}

}  // namespace
}  // namespace tiermem::test
