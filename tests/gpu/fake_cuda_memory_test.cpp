// The fake driver's memory: on its devices, where the host has no access and the rules of virtual
// memory management apply, and page-locked on the host.
#include <signal.h>
#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "fake_cuda_client.hpp"
#include "support/sanitizers.hpp"

namespace tiermem::test {
namespace {

using cuda::kInvalidValue;
using cuda::kSuccess;

using FakeMemory = FakeDriver;

TEST_F(FakeMemory, the_host_cannot_touch_a_device_s) {
  if (kAddressSanitizer || kThreadSanitizer) {
    GTEST_SKIP() << "a sanitizer has SIGSEGV";
  }
  const auto touch = [](cuda::DevicePointer at) {
    return *reinterpret_cast<volatile unsigned char*>(at);
  };
  const cuda::DevicePointer at = mapped();
  const cuda::DevicePointer plain = allocated(1);
  EXPECT_EXIT((void)touch(at), testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT((void)touch(plain), testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(FakeMemory, fresh_memory_is_not_zero) {
  const cuda::DevicePointer at = mapped(2 * kChunk);
  EXPECT_EQ(byte_at(at), 0xA5);
  EXPECT_EQ(byte_at(at + 2 * kChunk - 1), 0xA5);
  EXPECT_EQ(byte_at(allocated(100) + 99), 0xA5);
}

TEST_F(FakeMemory, a_copy_may_cross_from_one_mapping_to_the_next) {
  const cuda::DevicePointer at = addresses(2 * kChunk);
  const cuda::MemoryHandle second = chunk();
  ASSERT_EQ(cu.cuMemMap(at, kChunk, 0, chunk(), 0), kSuccess);
  ASSERT_EQ(cu.cuMemMap(at + kChunk, kChunk, 0, second, 0), kSuccess);
  ASSERT_EQ(allow(at, 2 * kChunk), kSuccess);
  const cuda::DevicePointer other = addresses();
  ASSERT_EQ(cu.cuMemMap(other, kChunk, 0, second, 0), kSuccess);
  ASSERT_EQ(allow(other, kChunk), kSuccess);

  const std::vector<unsigned char> source = {1, 2, 3, 4};
  std::vector<unsigned char> back(4);
  ASSERT_EQ(cu.cuMemcpyHtoD_v2(at + kChunk - 2, source.data(), 4), kSuccess);
  ASSERT_EQ(cu.cuMemcpyDtoH_v2(back.data(), at + kChunk - 2, 4), kSuccess);
  EXPECT_EQ(back, source);
  EXPECT_EQ(byte_at(other), 3) << "the same memory at another address";
  EXPECT_EQ(byte_at(other + 1), 4);
}

TEST_F(FakeMemory, sizes_are_multiples_of_the_granularity) {
  const cuda::AllocationProperties properties = on(0);
  std::size_t granularity = 0;
  EXPECT_EQ(cu.cuMemGetAllocationGranularity(&granularity, &properties, 0), kSuccess);
  EXPECT_EQ(granularity, kChunk);
  cuda::MemoryHandle handle = 0;
  cuda::DevicePointer at = 0;
  for (const std::uint64_t bytes : {std::uint64_t{0}, kChunk / 2, kChunk + 4096}) {
    EXPECT_EQ(cu.cuMemCreate(&handle, bytes, &properties, 0), kInvalidValue);
    EXPECT_EQ(cu.cuMemAddressReserve(&at, bytes, 0, 0, 0), kInvalidValue);
  }
  EXPECT_EQ(cu.cuMemAddressReserve(&at, kChunk, 4096, 0, 0), kInvalidValue);
  EXPECT_EQ(cu.cuMemAddressReserve(&at, kChunk, 3 * kChunk, 0, 0), kInvalidValue);
  EXPECT_EQ(cu.cuMemCreate(&handle, kChunk, &properties, 1), kInvalidValue);
  const cuda::AllocationProperties elsewhere_properties = on(1);
  EXPECT_EQ(cu.cuMemCreate(&handle, kChunk, &elsewhere_properties, 0), cuda::kInvalidDevice);

  const cuda::DevicePointer two = addresses(2 * kChunk);
  handle = chunk();
  EXPECT_EQ(cu.cuMemMap(two + 4096, kChunk, 0, handle, 0), kInvalidValue);
  EXPECT_EQ(cu.cuMemMap(two, kChunk / 2, 0, handle, 0), kInvalidValue);
  EXPECT_EQ(cu.cuMemMap(two, 2 * kChunk, 0, handle, 0), kInvalidValue) << "more than it has";
  EXPECT_EQ(cu.cuMemMap(two, kChunk, kChunk, handle, 0), kInvalidValue);
  EXPECT_EQ(cu.cuMemMap(two, kChunk, 0, handle + 100, 0), kInvalidValue);
}

TEST_F(FakeMemory, addresses_are_aligned_and_may_be_wished_for) {
  cuda::DevicePointer at = 0;
  ASSERT_EQ(cu.cuMemAddressReserve(&at, kChunk, 16 * kChunk, 0, 0), kSuccess);
  EXPECT_EQ(at % (16 * kChunk), 0u);
  cuda::DevicePointer again = 0;
  ASSERT_EQ(cu.cuMemAddressReserve(&again, kChunk, 0, at, 0), kSuccess);
  EXPECT_NE(again, at) << "a wish for what is taken";
  ASSERT_EQ(cu.cuMemAddressFree(at, kChunk), kSuccess);
  ASSERT_EQ(cu.cuMemAddressReserve(&again, kChunk, 0, at, 0), kSuccess);
  EXPECT_EQ(again, at);
}

TEST_F(FakeMemory, mappings_neither_overlap_nor_leave_the_reservation) {
  const cuda::DevicePointer at = addresses(2 * kChunk);
  const cuda::MemoryHandle small = chunk();
  const cuda::MemoryHandle large = chunk(2 * kChunk);
  ASSERT_EQ(cu.cuMemMap(at + kChunk, kChunk, 0, small, 0), kSuccess);
  EXPECT_EQ(cu.cuMemMap(at + kChunk, kChunk, 0, small, 0), kInvalidValue);
  EXPECT_EQ(cu.cuMemMap(at, 2 * kChunk, 0, large, 0), kInvalidValue);
  EXPECT_EQ(cu.cuMemMap(at + 2 * kChunk, kChunk, 0, small, 0), kInvalidValue);
  ASSERT_EQ(cu.cuMemUnmap(at + kChunk, kChunk), kSuccess);
  EXPECT_EQ(cu.cuMemMap(at + kChunk, 2 * kChunk, 0, large, 0), kInvalidValue);
  EXPECT_EQ(cu.cuMemMap(at, 2 * kChunk, 0, large, 0), kSuccess);
  EXPECT_EQ(cu.cuMemMap(at + kChunk, kChunk, 0, small, 0), kInvalidValue);
}

TEST_F(FakeMemory, mappings_end_whole_and_before_their_addresses) {
  const cuda::DevicePointer at = addresses(3 * kChunk);
  ASSERT_EQ(cu.cuMemMap(at, 2 * kChunk, 0, chunk(2 * kChunk), 0), kSuccess);
  EXPECT_EQ(cu.cuMemUnmap(at, kChunk), kInvalidValue);
  EXPECT_EQ(cu.cuMemUnmap(at + kChunk, kChunk), kInvalidValue);
  EXPECT_EQ(cu.cuMemUnmap(at, 3 * kChunk), kInvalidValue) << "the rest is not mapped";
  EXPECT_EQ(allow(at, kChunk), kInvalidValue);
  EXPECT_EQ(allow(at, 3 * kChunk), kInvalidValue);
  EXPECT_EQ(cu.cuMemAddressFree(at, 3 * kChunk), kInvalidValue);
  ASSERT_EQ(cu.cuMemMap(at + 2 * kChunk, kChunk, 0, chunk(), 0), kSuccess);
  EXPECT_EQ(allow(at, 3 * kChunk, 2), kInvalidValue) << "no such access";
  EXPECT_EQ(allow(at, 3 * kChunk, cuda::kAccessReadWrite, 1), cuda::kInvalidDevice);
  EXPECT_EQ(allow(at, 3 * kChunk), kSuccess);
  EXPECT_EQ(cu.cuMemUnmap(at, 3 * kChunk), kSuccess);
  EXPECT_EQ(cu.cuMemUnmap(at, 3 * kChunk), kInvalidValue);
  EXPECT_EQ(cu.cuMemAddressFree(at, kChunk), kInvalidValue);
  EXPECT_EQ(cu.cuMemAddressFree(at, 3 * kChunk), kSuccess);
}

TEST_F(FakeMemory, released_memory_stays_while_it_is_mapped) {
  const cuda::DevicePointer at = addresses();
  const cuda::MemoryHandle handle = chunk();
  ASSERT_EQ(cu.cuMemMap(at, kChunk, 0, handle, 0), kSuccess);
  ASSERT_EQ(allow(at, kChunk), kSuccess);
  ASSERT_EQ(cu.cuMemRelease(handle), kSuccess);
  EXPECT_EQ(cu.cuMemRelease(handle), kInvalidValue);
  EXPECT_EQ(free_bytes(), 127 * kChunk);
  EXPECT_EQ(cu.cuMemsetD8_v2(at, 7, kChunk), kSuccess);
  EXPECT_EQ(byte_at(at + kChunk - 1), 7);
  ASSERT_EQ(cu.cuMemUnmap(at, kChunk), kSuccess);
  EXPECT_EQ(free_bytes(), 128 * kChunk);
}

TEST_F(FakeMemory, a_device_has_so_much_and_no_more) {
  fake.set_capacity(8 * kChunk);
  fake.set_taken(0, 3 * kChunk);
  EXPECT_EQ(free_bytes(), 5 * kChunk);
  const cuda::MemoryHandle handle = chunk(4 * kChunk);
  const cuda::AllocationProperties properties = on(0);
  cuda::MemoryHandle more = 0;
  cuda::DevicePointer at = 0;
  EXPECT_EQ(cu.cuMemCreate(&more, 2 * kChunk, &properties, 0), cuda::kOutOfMemory);
  EXPECT_EQ(cu.cuMemAlloc_v2(&at, kChunk + 1), cuda::kOutOfMemory);
  EXPECT_EQ(cu.cuMemAlloc_v2(&at, kChunk), kSuccess);
  EXPECT_EQ(free_bytes(), 0u);
  EXPECT_EQ(cu.cuMemRelease(handle), kSuccess);
  EXPECT_EQ(cu.cuMemFree_v2(at), kSuccess);
  EXPECT_EQ(free_bytes(), 5 * kChunk);
  fake.set_taken(0, 100 * kChunk);
  EXPECT_EQ(free_bytes(), 0u);
}

TEST_F(FakeMemory, a_mapping_without_access_is_an_illegal_address) {
  const cuda::DevicePointer at = addresses();
  ASSERT_EQ(cu.cuMemMap(at, kChunk, 0, chunk(), 0), kSuccess);
  unsigned char byte = 0;
  EXPECT_EQ(cu.cuMemcpyDtoH_v2(&byte, at, 1), cuda::kIllegalAddress);
}

TEST_F(FakeMemory, memory_to_read_is_not_written) {
  const cuda::DevicePointer at = mapped();
  ASSERT_EQ(allow(at, kChunk, 1), kSuccess);
  EXPECT_EQ(byte_at(at), 0xA5);
  EXPECT_EQ(cu.cuMemsetD8_v2(at, 0, 1), cuda::kIllegalAddress);
}

TEST_F(FakeMemory, an_illegal_address_is_found_later_and_breaks_the_context) {
  const cuda::Stream own = stream();
  unsigned char* const host = locked(1);
  const cuda::DevicePointer at = addresses();
  fake.hold_work(true);
  ASSERT_EQ(cu.cuMemcpyHtoDAsync_v2(at, host, 1, own), kSuccess) << "the call knows of nothing";
  fake.hold_work(false);
  EXPECT_EQ(cu.cuStreamSynchronize(own), cuda::kIllegalAddress);
  std::size_t bytes = 0;
  EXPECT_EQ(cu.cuMemGetInfo_v2(&bytes, &bytes), cuda::kIllegalAddress);
  EXPECT_EQ(cu.cuStreamQuery(own), cuda::kIllegalAddress);
  const cuda::AllocationProperties properties = on(0);
  cuda::MemoryHandle handle = 0;
  EXPECT_EQ(cu.cuMemCreate(&handle, kChunk, &properties, 0), cuda::kIllegalAddress);
  // These calls release their objects, although they report the failure.
  EXPECT_EQ(cu.cuMemFreeHost(host), cuda::kIllegalAddress);
  EXPECT_EQ(cu.cuMemAddressFree(at, kChunk), cuda::kIllegalAddress);
  EXPECT_EQ(cu.cuStreamDestroy_v2(own), cuda::kIllegalAddress);
  EXPECT_EQ(fake.live(), FakeCudaLive{.contexts = 1});
}

TEST_F(FakeMemory, a_host_s_address_is_not_a_device_s) {
  const cuda::DevicePointer at = mapped();
  unsigned char byte = 0;
  EXPECT_EQ(cu.cuMemcpyHtoD_v2(at, reinterpret_cast<void*>(at), 1), kInvalidValue);
  EXPECT_EQ(cu.cuMemHostRegister_v2(reinterpret_cast<void*>(at), 4096, 0), kInvalidValue);
  EXPECT_EQ(cu.cuMemcpyHtoD_v2(reinterpret_cast<std::uintptr_t>(&byte), &byte, 1),
            cuda::kIllegalAddress);
}

TEST_F(FakeMemory, unmapping_under_a_copy_is_an_illegal_address) {
  const cuda::Stream own = stream();
  unsigned char* const host = locked(1);
  const cuda::DevicePointer at = mapped();
  fake.hold_work(true);
  ASSERT_EQ(cu.cuMemcpyHtoDAsync_v2(at, host, 1, own), kSuccess);
  ASSERT_EQ(cu.cuMemUnmap(at, kChunk), kSuccess);
  fake.hold_work(false);
  EXPECT_EQ(cu.cuStreamSynchronize(own), cuda::kIllegalAddress);
}

TEST_F(FakeMemory, unmapping_during_a_copy_is_an_illegal_address_too) {
  const cuda::Stream own = stream();
  unsigned char* const host = locked(1);
  const cuda::DevicePointer at = mapped();
  fake.slow_copies(0, std::chrono::milliseconds(100));
  ASSERT_EQ(cu.cuMemcpyHtoDAsync_v2(at, host, 1, own), kSuccess);
  while (fake.calls(FakeCuda::kWork) == 0) {
    std::this_thread::yield();
  }
  ASSERT_EQ(cu.cuMemUnmap(at, kChunk), kSuccess);
  ASSERT_EQ(cu.cuMemMap(at, kChunk, 0, chunk(), 0), kSuccess);
  ASSERT_EQ(allow(at, kChunk), kSuccess) << "other memory is at this address now";
  EXPECT_EQ(cu.cuStreamSynchronize(own), cuda::kIllegalAddress);
}

TEST_F(FakeMemory, a_device_needs_access_to_another_s_memory) {
  fake.set_devices(2);
  cuda::Context second = nullptr;
  ASSERT_EQ(cu.cuDevicePrimaryCtxRetain(&second, 1), kSuccess);
  const cuda::DevicePointer at = mapped();
  ASSERT_EQ(cu.cuCtxSetCurrent(second), kSuccess);
  ASSERT_EQ(allow(at, kChunk, cuda::kAccessReadWrite, 1), kSuccess);
  EXPECT_EQ(byte_at(at), 0xA5);
  EXPECT_EQ(free_bytes(), 128 * kChunk) << "it is the first device's memory";
  ASSERT_EQ(allow(at, kChunk, 0, 1), kSuccess);
  unsigned char byte = 0;
  EXPECT_EQ(cu.cuMemcpyDtoH_v2(&byte, at, 1), cuda::kIllegalAddress);
  ASSERT_EQ(cu.cuCtxSetCurrent(context), kSuccess);
  EXPECT_EQ(byte_at(at), 0xA5) << "the first device's context is whole";
}

TEST_F(FakeMemory, pointers_tell_what_they_are) {
  fake.set_devices(2);
  cuda::DevicePointer base = 0;
  std::size_t bytes = 0;
  const cuda::DevicePointer at = allocated(1000);
  EXPECT_EQ(cu.cuMemGetAddressRange_v2(&base, &bytes, at + 10), kSuccess);
  EXPECT_EQ(base, at);
  EXPECT_EQ(bytes, 1000u);
  EXPECT_EQ(cu.cuMemGetAddressRange_v2(&base, &bytes, at + 1000), cuda::kNotFound);

  std::vector<unsigned char> host(100);
  const auto host_at = reinterpret_cast<std::uintptr_t>(host.data());
  const auto type_of = [&](cuda::DevicePointer pointer) {
    unsigned type = 0;
    const cuda::Result result = cu.cuPointerGetAttribute(&type, 2, pointer);
    return result == kSuccess ? static_cast<int>(type) : -result;
  };
  EXPECT_EQ(type_of(at + 10), 2);
  EXPECT_EQ(type_of(mapped()), 2);
  EXPECT_EQ(type_of(host_at), -kInvalidValue);
  ASSERT_EQ(cu.cuMemHostRegister_v2(host.data(), host.size(), 0), kSuccess);
  EXPECT_EQ(type_of(host_at), 1);
  int device = -1;
  EXPECT_EQ(cu.cuPointerGetAttribute(&device, 9, at), kSuccess);
  EXPECT_EQ(device, 0);
  EXPECT_EQ(cu.cuPointerGetAttribute(&base, 3, at + 5), kSuccess);
  EXPECT_EQ(base, at + 5);
  EXPECT_EQ(cu.cuMemHostUnregister(host.data()), kSuccess);
}

TEST_F(FakeMemory, freeing_takes_what_was_allocated) {
  const cuda::DevicePointer at = allocated(1000);
  EXPECT_EQ(cu.cuMemFree_v2(at + 1), kInvalidValue);
  EXPECT_EQ(cu.cuMemFree_v2(mapped()), kInvalidValue);
  EXPECT_EQ(cu.cuMemAddressFree(at, 4096), kInvalidValue);
  EXPECT_EQ(cu.cuMemFree_v2(0), kSuccess);
  EXPECT_EQ(cu.cuMemFree_v2(at), kSuccess);
  EXPECT_EQ(cu.cuMemFree_v2(at), kInvalidValue);
  EXPECT_EQ(cu.cuMemAlloc_v2(nullptr, 1), kInvalidValue);
}

TEST_F(FakeMemory, a_range_is_registered_once) {
  unsigned char* const host = static_cast<unsigned char*>(
      ::mmap(nullptr, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  const auto add = [&](int page, int pages) {
    return cu.cuMemHostRegister_v2(host + page * 4096, static_cast<std::size_t>(pages) * 4096, 0);
  };
  ASSERT_EQ(add(1, 2), kSuccess);
  EXPECT_EQ(add(1, 2), cuda::kAlreadyRegistered);
  EXPECT_EQ(add(0, 2), cuda::kAlreadyRegistered);
  EXPECT_EQ(add(2, 2), cuda::kAlreadyRegistered);
  EXPECT_EQ(add(0, 4), cuda::kAlreadyRegistered);
  EXPECT_EQ(add(0, 1), kSuccess);
  EXPECT_EQ(add(3, 1), kSuccess);
  EXPECT_EQ(add(3, 0), kInvalidValue);
  EXPECT_EQ(fake.live().registrations, 3u);
  EXPECT_EQ(fake.live().locked_bytes, 4 * 4096u);
  EXPECT_EQ(cu.cuMemHostUnregister(host + 2 * 4096), kInvalidValue) << "a part of one";
  EXPECT_EQ(cu.cuMemHostUnregister(host + 4096), kSuccess);
  EXPECT_EQ(cu.cuMemHostUnregister(host + 4096), cuda::kNotRegistered);
  EXPECT_EQ(cu.cuMemFreeHost(host), kInvalidValue);
  EXPECT_EQ(cu.cuMemHostUnregister(host), kSuccess);
  EXPECT_EQ(cu.cuMemHostUnregister(host + 3 * 4096), kSuccess);
  EXPECT_EQ(fake.live().locked_bytes, 0u);
  ::munmap(host, 4 * 4096);
}

TEST_F(FakeMemory, so_much_can_be_locked_and_no_more) {
  fake.set_lockable(3 * 4096);
  void* at = nullptr;
  EXPECT_EQ(cu.cuMemHostAlloc(&at, 4 * 4096, 0), cuda::kOutOfMemory);
  unsigned char* const host = locked(2 * 4096);
  EXPECT_EQ(cu.cuMemHostAlloc(&at, 2 * 4096, 0), cuda::kOutOfMemory);
  EXPECT_EQ(cu.cuMemHostUnregister(host), kInvalidValue) << "it was not registered";
  EXPECT_EQ(cu.cuMemFreeHost(host), kSuccess);
  EXPECT_EQ(cu.cuMemFreeHost(host), kInvalidValue);
  EXPECT_EQ(fake.live().locked_bytes, 0u);
}

TEST_F(FakeMemory, a_copy_stays_in_the_registration_it_begins_in) {
  const cuda::DevicePointer at = mapped();
  std::vector<unsigned char> host(2 * 4096);
  ASSERT_EQ(cu.cuMemHostRegister_v2(host.data(), 4096, 0), kSuccess);
  EXPECT_EQ(cu.cuMemcpyHtoDAsync_v2(at, host.data(), 4096, nullptr), kSuccess);
  EXPECT_EQ(cu.cuMemcpyHtoDAsync_v2(at, host.data(), 4097, nullptr), kInvalidValue);
  EXPECT_EQ(cu.cuMemcpyDtoHAsync_v2(host.data() + 4095, at, 2, nullptr), kInvalidValue);
  EXPECT_EQ(cu.cuMemcpyHtoDAsync_v2(at, host.data() + 4096, 4096, nullptr), kSuccess);
  EXPECT_EQ(cu.cuCtxSynchronize(), kSuccess) << "a refused copy breaks nothing";
  EXPECT_EQ(fake.copied_bytes(), 2 * 4096u);
  EXPECT_EQ(fake.pageable_bytes(), 4096u);
  EXPECT_EQ(cu.cuMemHostUnregister(host.data()), kSuccess);
}

TEST_F(FakeDriver, a_copy_between_devices_reaches_each_by_its_own_context) {
  fake.set_devices(2);
  cuda::Context other = nullptr;
  ASSERT_EQ(cu.cuDevicePrimaryCtxRetain(&other, 1), kSuccess);
  const cuda::DevicePointer here = allocated(kChunk);
  EXPECT_EQ(cu.cuMemsetD8_v2(here, 7, kChunk), kSuccess);
  ASSERT_EQ(cu.cuCtxSetCurrent(other), kSuccess);
  const cuda::DevicePointer there = allocated(kChunk);
  EXPECT_EQ(cu.cuMemcpyPeer(there, other, here, context, kChunk), kSuccess);
  EXPECT_EQ(byte_at(there + kChunk - 1), 7);
  EXPECT_EQ(fake.peer_bytes(), kChunk);
  EXPECT_EQ(cu.cuMemcpyPeer(there, other, here, nullptr, kChunk), cuda::kInvalidContext);
  // Without the contexts this is an access by the second device to memory that only the first may
  // use.
  EXPECT_EQ(cu.cuMemcpyDtoD_v2(there, here, kChunk), cuda::kIllegalAddress);
}

TEST_F(FakeDriver, whether_devices_reach_each_other_is_the_machines) {
  fake.set_devices(2);
  int can = -1;
  EXPECT_EQ(cu.cuDeviceCanAccessPeer(&can, 0, 1), kSuccess);
  EXPECT_EQ(can, 1);
  fake.set_peers(false);
  cuda::Context other = nullptr;
  ASSERT_EQ(cu.cuDevicePrimaryCtxRetain(&other, 1), kSuccess);
  EXPECT_EQ(cu.cuDeviceCanAccessPeer(&can, 0, 1), kSuccess);
  EXPECT_EQ(can, 0);
  EXPECT_EQ(cu.cuCtxEnablePeerAccess(other, 0), cuda::kPeerAccessUnsupported);
}

}  // namespace
}  // namespace tiermem::test
