// Fault L3: the word of an extent counted writes in 23 bits. Exactly 2^23 writes during one
// write-back looked like none, and the slot's old bytes counted as the newest. The word now has a
// flag that a writer clears. These tests write 2^23 times, and once, under each kind of copy.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "tests/unit/mover_fixture.hpp"

namespace tiermem {
namespace {

using M = SteppedMover;

constexpr std::uint32_t kWrap = 1u << 23;
constexpr Place kGpu{Kind::gpu, 0};
constexpr unsigned kDevice = 1;

ExtentWord& word_of(M& m, Handle x, unsigned space = kHost) {
  return m.residency.extents.word(space, m.ref(x));
}

// Pins and unpins for writing, as acquire and release do.
void write_often(ExtentWord& word, std::uint32_t times) {
  for (std::uint32_t n = 0; n < times; ++n) {
    ASSERT_EQ(word.pin_write(), Pin::ok);
    ASSERT_TRUE(word.unpin_write());
  }
}

// Runs jobs until copies of a device are in progress.
void run_jobs(M& m) {
  m.settle();
  while (!m.workers.jobs.empty()) {
    m.workers.run();
    m.settle();
  }
}

// Writes `value` through one view, then pins and unpins for writing `times` - 1 times.
void write_under_copy(M& m, Handle x, unsigned char value, std::uint32_t times) {
  Call& writer = m.acquire(x, kWrite);
  ASSERT_EQ(writer.code(), Code::ok);
  std::memset(writer.data(), value, M::kExtent);
  m.release(writer);
  write_often(word_of(m, x), times - 1);
}

TEST(FaultsFound, L03_word_is_written_2_to_the_23_times_under_a_copy_then_copy_is_not_published) {
  ExtentWord word;
  word.set_phase(Phase::incoming);
  word.set_phase(Phase::exclusive);
  word.set_dirty();
  ASSERT_TRUE(word.start_copy());
  for (std::uint32_t done = 0; done < kWrap;) {
    const std::uint32_t next = done == 0 ? 1 : 2 * done;
    write_often(word, next - done);
    done = next;
    EXPECT_FALSE(word.publish_clean()) << done;
    EXPECT_FALSE(word.try_share()) << done;
    EXPECT_FALSE(word.try_take_over()) << done;
  }
  EXPECT_TRUE(word.load().dirty());
  ASSERT_TRUE(word.start_copy());
  EXPECT_TRUE(word.publish_clean());
  EXPECT_FALSE(word.load().dirty());
}

TEST(FaultsFound, L03_extent_is_written_under_its_write_back_then_it_is_written_back_again) {
  for (const std::uint32_t times : {1u, kWrap}) {
    M m;
    const Handle x = m.buffer();
    m.write(x, 0x11);
    const Call& clean = m.ask(RequestKind::clean, {M::access(x, kRead)});
    m.run_workers();
    ASSERT_EQ(m.port.requests.size(), 1u);
    write_under_copy(m, x, 0x22, times);
    m.port.end();  // The device has the bytes from before the write.
    m.settle();
    EXPECT_TRUE(m.bits(x).dirty());
    m.end_all();
    EXPECT_EQ(clean.code(), Code::ok);
    EXPECT_EQ(m.port.writes, 2u);
    m.evict(x);
    EXPECT_EQ(m.value(x), 0x22);
  }
}

TEST(FaultsFound, L03_source_is_written_under_a_copy_to_a_device_then_it_is_copied_again) {
  for (const std::uint32_t times : {1u, kWrap}) {
    M m({.devices = 1});
    const Handle x = m.buffer();
    m.write(x, 0x11);
    const Call& reader = m.acquire(x, kRead, kGpu);
    run_jobs(m);
    ASSERT_EQ(m.workers.copies.size(), 1u);
    write_under_copy(m, x, 0x22, times);
    m.end_all();
    ASSERT_EQ(reader.code(), Code::ok);
    EXPECT_EQ(m.gpu[0].load(reader.data()), std::byte{0x22});
    EXPECT_EQ(m.stats().gpu_bytes_pageable, 2 * M::kExtent);
  }
}

// A stream may take over the source while the copy is in progress, unless a view has written it
// since the copy began.
TEST(FaultsFound, L03_source_is_written_under_a_copy_then_no_stream_takes_it_over) {
  for (const std::uint32_t times : {1u, kWrap}) {
    M m({.devices = 1});
    const Handle x = m.buffer();
    m.write(x, 0x11);
    Call& stream = m.prepare(RequestKind::acquire, {M::access(x, kWrite, kGpu)});
    stream.request.for_stream = true;
    m.post(stream);
    run_jobs(m);
    ASSERT_EQ(m.workers.copies.size(), 1u);
    write_under_copy(m, x, 0x22, times);
    m.workers.begin_copy();
    m.settle();
    EXPECT_FALSE(stream.done());
    m.end_all();
    ASSERT_EQ(stream.code(), Code::ok);
    EXPECT_EQ(m.gpu[0].load(stream.data()), std::byte{0x22});
    m.release(stream);
    EXPECT_EQ(m.value(x), 0x22);
  }
}

// A writer that finds a shared extent adds a pin and removes it. The stream already has a view of
// the copy, so the copy must stay valid and is not repeated under the stream.
TEST(FaultsFound, L03_writer_misses_a_shared_source_then_the_copy_of_a_stream_stays) {
  M m({.devices = 1});
  const Handle x = m.buffer();
  m.write(x, 0x11);
  Call& stream = m.prepare(RequestKind::acquire, {M::access(x, kRead, kGpu)});
  stream.request.for_stream = true;
  m.post(stream);
  run_jobs(m);
  m.workers.begin_copy();
  m.settle();
  ASSERT_EQ(stream.code(), Code::ok);
  ASSERT_EQ(m.bits(x).phase(), Phase::shared);
  // The first half of a pin_write that will miss.
  auto& bits = reinterpret_cast<std::atomic<std::uint64_t>&>(word_of(m, x));
  bits.fetch_add(ExtentBits::kWriterOne);
  m.workers.end_copy();
  m.settle();
  EXPECT_EQ(m.bits(x, 0, kDevice).phase(), Phase::shared);
  EXPECT_TRUE(m.bits(x, 0, kDevice).pinned());
  bits.fetch_sub(ExtentBits::kWriterOne);
  EXPECT_EQ(m.gpu[0].load(stream.data()), std::byte{0x11});
  m.release(stream);
  EXPECT_EQ(m.value(x), 0x11);
}

// A fault of the same kind: isolated buffers were numbered in 32 bits, and two with the same number
// showed each other's bytes. A buffer's domain is now its handle, so the number does not matter.
TEST(FaultsFound, L03_isolated_buffers_have_one_number_then_neither_shows_the_others_bytes) {
  M m({.frames = 1});
  const auto isolated = [&] {
    BufferShape shape;
    shape.bytes = M::kExtent;
    shape.extent_shift = static_cast<std::uint8_t>(std::countr_zero(M::kExtent));
    shape.extents = 1;
    shape.domain = 1;
    return *m.residency.buffers.create(shape);
  };
  const Handle first = isolated();
  m.write(first, 0x11);
  m.free(first);
  m.end_all();
  const Handle second = isolated();
  Call& view = m.acquire(second, kDiscard);  // Shows the frame as it is.
  m.end_all();
  ASSERT_EQ(view.code(), Code::ok);
  for (std::uint64_t i = 0; i < M::kExtent; ++i) {
    ASSERT_NE(view.data()[i], std::byte{0x11}) << i;
  }
  m.release(view);
}

// A cancelled copy leaves no mark, and the next copy starts over.
TEST(FaultsFound, L03_copy_fails_then_the_extent_is_not_marked_as_copied) {
  M m({.devices = 1});
  const Handle x = m.buffer();
  m.write(x, 0x11);
  m.dice.fail("copy_in");
  const Call& reader = m.acquire(x, kRead, kGpu);
  run_jobs(m);
  EXPECT_TRUE(m.bits(x).copying());
  m.end_all();
  EXPECT_EQ(reader.code(), Code::io_error);
  EXPECT_FALSE(m.bits(x).copying());
  m.evict(x);
  EXPECT_EQ(m.value(x), 0x11);
}

}  // namespace
}  // namespace tiermem
