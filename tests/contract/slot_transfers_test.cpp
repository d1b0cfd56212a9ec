// Transfers of slots: bytes, completions, parts of slots, neighbours, and failures.
#include <map>
#include <thread>

#include "contract/slot_contract.hpp"

namespace tiermem::contract {
namespace {

TEST_P(WritableSlots, slots_of_all_sizes_keep_their_own_bytes) {
  std::vector<std::pair<SlotId, std::uint64_t>> slots;
  for (int round = 0; round < 3; ++round) {
    for (const std::uint64_t bytes : facts().sizes) {
      slots.emplace_back(allocate(bytes), bytes);
      ASSERT_EQ(write(slots.back().first, pattern(bytes, slots.size())), Code::ok);
    }
  }
  for (std::size_t i = 0; i < slots.size(); ++i) {
    EXPECT_TRUE(holds(slots[i].first, pattern(slots[i].second, i + 1))) << slots[i].second;
  }
  // A slot that is freed and allocated again holds what is written to it last.
  free(slots[1].first);
  const SlotId again = allocate(slots[1].second);
  ASSERT_EQ(write(again, pattern(slots[1].second, 99)), Code::ok);
  EXPECT_TRUE(holds(again, pattern(slots[1].second, 99)));
  EXPECT_TRUE(holds(slots[0].first, pattern(slots[0].second, 1)));
  EXPECT_TRUE(holds(slots[2].first, pattern(slots[2].second, 3)));
}

TEST_P(SlotContract, transfers_up_to_the_depth_are_submitted_then_each_completes_once) {
  const std::vector<SlotSubject::Known> known = subject().known();
  for (const bool writes : {true, false}) {
    if (writes && !allocates()) {
      continue;
    }
    for (const std::size_t at_once : {1, 64}) {
      struct Sent {
        SlotId slot;
        Block bytes;
        int completions = 0;
      };
      std::vector<Sent> sent(tier().depth());
      for (std::size_t i = 0; i < sent.size(); ++i) {
        const std::uint64_t bytes = facts().sizes[i % facts().sizes.size()];
        sent[i].slot = allocates() ? allocate(bytes) : known[i % known.size()].slot;
        sent[i].bytes = pattern(bytes, i + 1);
        if (allocates() && !writes) {
          ASSERT_EQ(write(sent[i].slot, sent[i].bytes), Code::ok);
        }
        if (!writes) {
          std::fill(sent[i].bytes.begin(), sent[i].bytes.end(), std::byte{0x77});
        }
      }
      for (std::size_t i = 0; i < sent.size(); ++i) {
        tier().submit({.cookie = 1000 + i,
                       .slot = sent[i].slot,
                       .write = writes,
                       .data = sent[i].bytes.data(),
                       .length = sent[i].bytes.size()});
      }
      tier().dispatch();
      for (const SlotCompletion& done : reap(sent.size(), at_once)) {
        ASSERT_GE(done.cookie, 1000U);
        ASSERT_LT(done.cookie, 1000 + sent.size());
        Sent& one = sent[done.cookie - 1000];
        ++one.completions;
        EXPECT_EQ(done.code, Code::ok);
        EXPECT_EQ(done.native, 0);
        EXPECT_EQ(done.device, tier().device_of(one.slot));
      }
      for (std::size_t i = 0; i < sent.size(); ++i) {
        EXPECT_EQ(sent[i].completions, 1) << "transfer " << i;
        Block expected = pattern(sent[i].bytes.size(), i + 1);
        if (!allocates()) {
          expected = known[i % known.size()].bytes;
          expected.resize(sent[i].bytes.size());
        }
        EXPECT_EQ(sent[i].bytes, expected) << "transfer " << i;
        if (writes) {
          EXPECT_TRUE(holds(sent[i].slot, expected)) << "transfer " << i;
        }
      }
      free_all();
    }
  }
  EXPECT_TRUE(subject().consistent());
}

TEST_P(WritableSlots, part_of_a_slot_is_written_then_only_its_pages_change) {
  const SlotId slot = allocate(largest());
  Block expected = pattern(largest(), 1);
  ASSERT_EQ(write(slot, expected), Code::ok);
  std::uint64_t seed = 2;
  for (std::uint64_t offset = 0; offset < largest(); offset = 2 * offset + kSmallestExtent) {
    for (const std::uint64_t length :
         {kSmallestExtent, std::min(3 * kSmallestExtent, largest() - offset)}) {
      const Block part = pattern(length, seed++);
      ASSERT_EQ(write(slot, part, offset), Code::ok);
      std::copy(part.begin(), part.end(), expected.begin() + static_cast<std::ptrdiff_t>(offset));
      ASSERT_TRUE(holds(slot, part, offset)) << length << " bytes at " << offset;
    }
  }
  EXPECT_TRUE(holds(slot, expected));
  const Block end(expected.end() - kSmallestExtent, expected.end());
  EXPECT_TRUE(holds(slot, end, largest() - kSmallestExtent));
}

// On the calling thread, beside transfers of other slots. A read that fails says so, and is left to
// submit().
TEST_P(WritableSlots, bytes_are_read_on_the_calling_thread_by_tiers_that_say_so) {
  const SlotId slot = allocate(largest());
  const Block expected = pattern(largest(), 1);
  ASSERT_EQ(write(slot, expected), Code::ok);
  const SlotId other = allocate(largest());
  ASSERT_EQ(write(other, pattern(largest(), 2)), Code::ok);
  Block beside(largest());
  tier().submit({.cookie = 7, .slot = other, .data = beside.data(), .length = beside.size()});
  tier().dispatch();
  for (std::uint64_t offset = 0; offset < largest(); offset = 2 * offset + kSmallestExtent) {
    Block part(kSmallestExtent, std::byte{0x77});
    SlotCompletion done;
    std::thread thread([&] {
      for (int tries = 0; tries < 100 && (tries == 0 || done.code == Code::io_error); ++tries) {
        done = tier().read_here({.cookie = 1000 + offset,
                                 .slot = slot,
                                 .data = part.data(),
                                 .length = part.size(),
                                 .offset = offset});
      }
    });
    thread.join();
    EXPECT_EQ(done.cookie, 1000 + offset);
    if (!tier().reads_here()) {
      EXPECT_NE(done.code, Code::ok);
      EXPECT_EQ(part, Block(kSmallestExtent, std::byte{0x77}));
      continue;
    }
    ASSERT_EQ(done.code, Code::ok) << done.native;
    EXPECT_EQ(done.requests, 1u);
    EXPECT_EQ(done.device, tier().device_of(slot));
    const auto from = expected.begin() + static_cast<std::ptrdiff_t>(offset);
    EXPECT_EQ(part, Block(from, from + kSmallestExtent)) << offset;
  }
  (void)reap(1, 1);
  EXPECT_EQ(beside, pattern(largest(), 2));
  EXPECT_TRUE(subject().consistent());
}

TEST_P(WritableSlots, length_ends_within_a_block_then_every_byte_of_it_is_transferred) {
  const SlotId slot = allocate(largest());
  for (const std::uint64_t length : {std::uint64_t{1}, std::uint64_t{511}, std::uint64_t{513},
                                     kSmallestExtent + 1, 3 * kSmallestExtent - 1, largest() - 1}) {
    Block expected = pattern(largest(), length);
    ASSERT_EQ(write(slot, expected), Code::ok);
    const Block part = pattern(length, length + 1);
    ASSERT_EQ(write(slot, part), Code::ok);
    EXPECT_TRUE(holds(slot, part)) << length;
    // The tier may write up to the end of the block, and nothing after that.
    const std::uint64_t end = pages(length);
    if (end < largest()) {
      const Block rest(expected.begin() + static_cast<std::ptrdiff_t>(end), expected.end());
      EXPECT_TRUE(holds(slot, rest, end)) << length;
    }
  }
}

TEST_P(WritableSlots, neighbours_are_submitted_as_a_group_then_each_has_its_bytes) {
  const std::size_t count = std::min<std::size_t>(tier().depth(), 8);
  std::vector<SlotId> slots;
  for (std::size_t i = 0; i < count; ++i) {
    auto slot = try_allocate(smallest(), ~std::uint64_t{1});  // All on one device.
    ASSERT_TRUE(slot.ok()) << slot.message();
    slots.push_back(*slot);
  }
  for (const bool writes : {true, false}) {
    std::vector<Block> memory;
    for (std::size_t i = 0; i < count; ++i) {
      memory.push_back(writes ? pattern(smallest(), i + 1) : Block(smallest()));
    }
    for (std::size_t i = 0; i < count; ++i) {
      tier().submit({.cookie = i,
                     .slot = slots[i],
                     .write = writes,
                     .data = memory[i].data(),
                     .length = smallest()});
    }
    tier().dispatch();
    std::uint32_t requests = 0;
    for (const SlotCompletion& done : reap(count)) {
      EXPECT_EQ(done.code, Code::ok);
      EXPECT_LE(done.requests, 1U) << "one block, or a part of a neighbour's request";
      requests += done.requests;
    }
    EXPECT_GE(requests, 1U);
    EXPECT_LE(requests, count);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(memory[i], pattern(smallest(), i + 1)) << "slot " << i;
    }
  }
}

TEST_P(SlotContract, transfer_fails_then_it_is_reported_once_and_the_tier_works_on) {
  const std::vector<SlotSubject::Known> known = subject().known();
  const SlotId slot = allocates() ? allocate(largest()) : known.front().slot;
  Block expected = allocates() ? pattern(largest(), 1) : known.front().bytes;
  expected.resize(largest());
  if (allocates()) {
    ASSERT_EQ(write(slot, expected), Code::ok);
  }
  ASSERT_TRUE(holds(slot, expected));
  for (const bool writes : {false, true}) {
    if ((writes && !allocates()) || !subject().fail_transfers()) {
      continue;
    }
    Block memory = pattern(largest(), 1);
    for (std::uint64_t i = 0; i < 2; ++i) {
      const SlotCompletion done = run({.cookie = 50 + i,
                                       .slot = slot,
                                       .write = writes,
                                       .data = memory.data(),
                                       .length = memory.size()});
      EXPECT_NE(done.code, Code::ok);
      EXPECT_NE(done.native, 0) << "errno";
    }
    subject().forgive();
    if (allocates()) {
      ASSERT_EQ(write(slot, expected), Code::ok);
    }
    EXPECT_TRUE(holds(slot, expected));
  }
  EXPECT_TRUE(subject().consistent());
}

TEST_P(ReadOnlySlots, known_slots_are_read_then_their_bytes_and_zeros_after_them_arrive) {
  ASSERT_FALSE(subject().known().empty());
  for (const SlotSubject::Known& known : subject().known()) {
    Block expected = known.bytes;
    expected.resize(std::max<std::uint64_t>(largest(), pages(expected.size())));
    for (const std::uint64_t size : facts().sizes) {
      const std::uint64_t length = std::min<std::uint64_t>(size, expected.size());
      const Block whole(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(length));
      EXPECT_TRUE(holds(known.slot, whole)) << length;
    }
    // A part of the slot.
    for (std::uint64_t offset = kSmallestExtent; offset < known.bytes.size();
         offset += kSmallestExtent) {
      const Block part(expected.begin() + static_cast<std::ptrdiff_t>(offset),
                       expected.begin() + static_cast<std::ptrdiff_t>(offset + kSmallestExtent));
      EXPECT_TRUE(holds(known.slot, part, offset)) << "at " << offset;
    }
    const std::uint64_t after = pages(known.bytes.size());
    EXPECT_TRUE(holds(known.slot, Block(kSmallestExtent), after)) << "nothing but zeros";
    // A length within a block.
    const Block some(expected.begin(), expected.begin() + 1000);
    EXPECT_TRUE(holds(known.slot, some));
  }
}

}  // namespace
}  // namespace tiermem::contract
