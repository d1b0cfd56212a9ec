// The fixtures of the checks that a SlotTier passes: SlotContract for every tier, WritableSlots for
// those that allocate slots, ReadOnlySlots for adopted files. Each test creates the tier anew. At
// the end the test frees every slot that it still holds, and the tier must have no byte in use.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "contract/slot_subject.hpp"

namespace tiermem::contract {

class SlotContract : public ::testing::TestWithParam<SlotCase> {
 protected:
  void SetUp() override {
    std::string why_not;
    subject_ = GetParam().make(why_not);
    if (subject_ == nullptr) {
      GTEST_SKIP() << why_not;
    }
  }
  void TearDown() override {
    if (subject_ == nullptr) {
      return;
    }
    subject_->forgive();
    free_all();
    EXPECT_EQ(usage().in_use, 0U) << "something is charged and not held";
    EXPECT_TRUE(subject_->consistent());
  }

  SlotSubject& subject() { return *subject_; }
  SlotTier& tier() { return subject_->tier(); }
  const SlotFacts& facts() { return subject_->facts(); }
  bool allocates() { return facts().budget != 0; }
  SlotUsage usage() { return tier().usage(); }
  std::uint64_t smallest() { return facts().sizes.front(); }
  std::uint64_t largest() { return facts().sizes.back(); }
  static std::uint64_t pages(std::uint64_t bytes) {
    return (bytes + kSmallestExtent - 1) / kSmallestExtent * kSmallestExtent;
  }

  /// Allocates a slot, and grows the tier when it asks for that.
  Result<SlotId> try_allocate(std::uint64_t bytes, std::uint64_t avoid = 0) {
    auto slot = tier().allocate(bytes, avoid);
    if (!slot.ok() && slot.code() == Code::busy) {
      if (Status grown = tier().grow(bytes); !grown.ok()) {
        return grown;
      }
      slot = tier().allocate(bytes, avoid);
      EXPECT_NE(slot.code(), Code::busy) << "grow() has made room";
    }
    if (slot.ok()) {
      held_.push_back(*slot);
    }
    return slot;
  }
  SlotId allocate(std::uint64_t bytes) {
    auto slot = try_allocate(bytes);
    EXPECT_TRUE(slot.ok()) << slot.message();
    return slot.ok() ? *slot : SlotId{};
  }
  void free(SlotId slot) {
    std::erase(held_, slot);
    tier().free(slot);
  }
  void free_all() {
    for (; !held_.empty(); held_.pop_back()) {
      tier().free(held_.back());
    }
  }

  /// Waits for the given number of completions. Then none may be left.
  std::vector<SlotCompletion> reap(std::size_t count, std::size_t at_once = 5) {
    std::vector<SlotCompletion> all;
    while (all.size() < count) {
      std::vector<SlotCompletion> some(at_once);
      const std::size_t n = tier().reap(some);
      EXPECT_LE(n, at_once);
      all.insert(all.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(n));
      if (n == 0) {
        subject().wait();
      }
    }
    SlotCompletion more;
    EXPECT_EQ(tier().reap({&more, 1}), 0U) << "completed twice";
    EXPECT_EQ(all.size(), count);
    return all;
  }
  SlotCompletion run(const SlotTransfer& transfer) {
    tier().submit(transfer);
    tier().dispatch();
    const SlotCompletion done = reap(1).front();
    EXPECT_EQ(done.cookie, transfer.cookie);
    EXPECT_EQ(done.device, tier().device_of(transfer.slot));
    return done;
  }
  /// Writes bytes to a slot, from memory with room up to the next page.
  Code write(SlotId slot, const Block& bytes, std::uint64_t offset = 0) {
    Block memory = bytes;
    memory.resize(pages(bytes.size()), std::byte{0x3C});
    return run({.cookie = 1,
                .slot = slot,
                .write = true,
                .data = memory.data(),
                .length = bytes.size(),
                .offset = offset})
        .code;
  }
  Code read(SlotId slot, Block& bytes, std::uint64_t offset = 0) {
    Block memory(pages(bytes.size()), std::byte{0xC3});
    const Code code = run({.cookie = 2,
                           .slot = slot,
                           .write = false,
                           .data = memory.data(),
                           .length = bytes.size(),
                           .offset = offset})
                          .code;
    std::copy_n(memory.begin(), bytes.size(), bytes.begin());
    return code;
  }
  testing::AssertionResult holds(SlotId slot, const Block& expected, std::uint64_t offset = 0) {
    Block bytes(expected.size());
    EXPECT_EQ(read(slot, bytes, offset), Code::ok);
    return same(bytes, expected);
  }

 private:
  std::unique_ptr<SlotSubject> subject_;
  std::vector<SlotId> held_;
};

class WritableSlots : public SlotContract {};
class ReadOnlySlots : public SlotContract {};

inline std::string slot_name(const ::testing::TestParamInfo<SlotCase>& info) {
  return info.param.name;
}

}  // namespace tiermem::contract
