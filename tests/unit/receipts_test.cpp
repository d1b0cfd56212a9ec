// Receipts of transfers: totals by channel, the newest transfers one by one, and both as text.
#include "observe/receipts.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "observe/receipt_text.hpp"

namespace tiermem {
namespace {

constexpr Place kNowhere{}, kDram{Kind::dram, 0}, kBlock{Kind::block, 0};

Receipt read_of(std::uint64_t offset, std::int64_t took_ns = 500'000) {
  Receipt receipt;
  receipt.buffer = 7;
  receipt.offset = offset;
  receipt.bytes = 4096;
  receipt.begun_ns = 1'000'000;
  receipt.ended_ns = 1'000'000 + took_ns;
  receipt.requests = 1;
  receipt.from = kBlock;
  receipt.to = kDram;
  receipt.reason = Reason::demand;
  return receipt;
}

TEST(ReceiptsBook, keeps_the_newest_and_totals_of_all) {
  Receipts receipts(10);
  for (std::uint64_t i = 0; i < 25; ++i) {
    receipts.add(read_of(i));
  }
  ReceiptsCopy copy;
  receipts.copy(copy, 100);
  ASSERT_EQ(copy.last.size(), 10U);
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(copy.last[i].offset, 24 - i);
  }
  ASSERT_EQ(copy.channels.size(), 1U);
  EXPECT_EQ(copy.channels[0].transfers, 25U);
  EXPECT_EQ(copy.channels[0].bytes, 25U * 4096);
  EXPECT_EQ(copy.channels[0].by_reason[static_cast<std::size_t>(Reason::demand)], 25U);
  EXPECT_EQ(copy.channels[0].ns.count(), 25U);
  ReceiptsCopy few;
  receipts.copy(few, 3);
  EXPECT_EQ(few.last.size(), 3U);
  ReceiptsCopy none;
  receipts.copy(none, 0);
  EXPECT_TRUE(none.last.empty());
}

TEST(ReceiptsBook, finds_the_newest_that_is_kept) {
  Receipts receipts(4);
  for (std::uint64_t i = 0; i < 6; ++i) {
    receipts.add(read_of(i % 3, static_cast<std::int64_t>(i)));
  }
  const Receipt* found = receipts.newest([](const Receipt& r) { return r.offset == 1; });
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->ended_ns, 1'000'004);
  EXPECT_EQ(receipts.newest([](const Receipt& r) { return r.offset == 9; }), nullptr);
}

TEST(ReceiptsBook, keeps_totals_only_where_none_is_to_be_kept) {
  Receipts receipts(0);
  receipts.add(read_of(1));
  Receipt failed = read_of(2);
  failed.failed = true;
  failed.to = kNowhere;
  receipts.add(failed);
  EXPECT_EQ(receipts.newest([](const Receipt&) { return true; }), nullptr);
  ReceiptsCopy copy;
  receipts.copy(copy, 10);
  ASSERT_EQ(copy.channels.size(), 2U);
  EXPECT_EQ(copy.channels[0].failed, 0U);
  EXPECT_EQ(copy.channels[1].failed, 1U);
  EXPECT_EQ(copy.channels[1].transfers, 0U);
}

TEST(ReceiptsText, says_where_since_when_and_why) {
  Whereabouts where;
  EXPECT_EQ(whereabouts_text(where), "never written: zeros");
  where.state = Whereabouts::State::resident;
  where.place = {Kind::dram, 0};
  EXPECT_EQ(whereabouts_text(where), "in dram");
  where.last = read_of(0);
  where.since_ns = 12'000'000;
  EXPECT_EQ(whereabouts_text(where),
            "in dram, for 12 ms: 4.00 KiB came from block in 500 us by 1 "
            "request, because a caller waited for them");
  where.last.path = Receipt::Path::staged;
  EXPECT_NE(whereabouts_text(where).find("by 1 request through the staging, because"),
            std::string::npos)
      << whereabouts_text(where);
  where.last.path = Receipt::Path::direct;
  EXPECT_NE(whereabouts_text(where).find("by 1 request past the host's memory, because"),
            std::string::npos)
      << whereabouts_text(where);
  where.last.path = Receipt::Path::none;
  where.state = Whereabouts::State::in_slot;
  where.place = {Kind::block, 0};
  where.last.from = kDram;
  where.last.to = kNowhere;
  where.last.requests = 0;
  where.last.reason = Reason::ahead;
  EXPECT_NE(whereabouts_text(where).find("4.00 KiB left dram in 500 us, to keep room free"),
            std::string::npos)
      << whereabouts_text(where);
}

TEST(ReceiptsText, json_names_every_counter_and_channel) {
  Receipts receipts(4);
  receipts.add(read_of(4096));
  ReceiptsCopy copy;
  receipts.copy(copy, 4);
  Stats stats;
  stats.gpu_paused = 123;
  const std::string text = stats_json_text(stats, copy, 2'000'000);
  for (const char* part :
       {"\"dram_budget\":0", "\"gpu_paused\":123", "\"from\":\"block\",\"to\":\"dram\"",
        "\"path\":\"none\"", "\"by_reason\":{\"demand\":1}", "\"offset\":4096", "\"age_ns\":500000",
        "\"buckets\":[["}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

}  // namespace
}  // namespace tiermem
