// The path that bytes take to a device, as their receipts report it.
#include <gtest/gtest.h>

#include <string>

#include "gpu/gpu_context.hpp"
#include "tiermem.h"

namespace tiermem::test {
namespace {

class GpuPaths : public GpuContext {
 protected:
  /// A view writes on the device first, so the only copy is there.
  Receipt::Path path_to_gpu(const Buffer& buffer) {
    (void)on_gpu(buffer, kWrite);
    const auto where = context->why(buffer.handle(), 0);
    EXPECT_TRUE(where.ok()) << where.message();
    EXPECT_EQ(where->place.kind, Kind::gpu);
    EXPECT_EQ(where->last.bytes, kChunk);
    return where->last.path;
  }
  bool json_has(const std::string& part) {
    const auto json = context->stats_json(4);
    EXPECT_TRUE(json.ok()) << json.message();
    return json->find(part) != std::string::npos;
  }
};

TEST_F(GpuPaths, what_lives_in_dram_is_locked_there_and_what_is_on_disk_is_staged) {
  open();
  const Buffer& in_dram = add(kChunk);
  host_puts(in_dram, 1);
  EXPECT_EQ(path_to_gpu(in_dram), Receipt::Path::locked);
  EXPECT_TRUE(json_has("\"to\":\"gpu\",\"reason\":\"demand\""));
  EXPECT_TRUE(json_has("\"path\":\"locked\""));
  const Buffer& on_disk = add(kChunk);
  host_puts(on_disk, 2);
  ASSERT_TRUE(on_disk.evict().ok());
  EXPECT_EQ(path_to_gpu(on_disk), Receipt::Path::staged);
  EXPECT_TRUE(json_has("\"path\":\"staged\""));
  EXPECT_TRUE(host_holds(on_disk, 2));
}

TEST_F(GpuPaths, what_cannot_be_locked_is_said_to_be_pageable) {
  fake_cuda().set_lockable(0);
  open();
  const Buffer& buffer = add(kChunk);
  host_puts(buffer, 3);
  EXPECT_EQ(path_to_gpu(buffer), Receipt::Path::pageable);
}

TEST_F(GpuPaths, zeros_have_none_and_what_comes_from_a_device_that_is_reached_is_a_peers) {
  fake_cuda().set_devices(2);
  fake_cuda().set_peers(true);
  open("0:8M,1:8M");
  const Buffer& buffer = add(kChunk);
  {
    auto there = buffer.acquire_on({Kind::gpu, 1}, kDiscard, 0, 0, kSoon);
    ASSERT_TRUE(there.ok()) << there.message();
    const auto where = context->why(buffer.handle(), 0);
    ASSERT_TRUE(where.ok());
    EXPECT_EQ(where->last.path, Receipt::Path::none);
  }
  EXPECT_EQ(path_to_gpu(buffer), Receipt::Path::peer);
}

TEST(GpuPathsCApi, the_path_is_in_what_tm_why_tells) {
  tm_context* const context = make_c_context();
  ASSERT_NE(context, nullptr);
  tm_buffer buffer = 0;
  ASSERT_EQ(tm_alloc(context, 2 << 20, nullptr, &buffer), TM_OK);
  for (const std::uint16_t kind : {std::uint16_t{TM_DRAM}, std::uint16_t{TM_GPU}}) {
    tm_access access = {buffer, 0, 0, TM_WRITE, {kind, 0}, 0};
    tm_view view;
    ASSERT_EQ(tm_acquire(context, &access, 1, TM_HOST_ORDER, std::int64_t{-1}, &view), TM_OK);
    ASSERT_EQ(tm_release(context, &view, 1, TM_HOST_ORDER), TM_OK);
  }
  tm_whereabouts where = {};
  where.size = sizeof where;
  ASSERT_EQ(tm_why(context, buffer, 0, &where), TM_OK);
  EXPECT_EQ(where.path, +TM_PATH_LOCKED) << where.text;
  EXPECT_EQ(tm_context_destroy(context, 0, std::int64_t{-1}), TM_OK);
}

}  // namespace
}  // namespace tiermem::test
