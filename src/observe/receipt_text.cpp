// The text has only numbers and names of our own, so nothing needs escaping.
#include "observe/receipt_text.hpp"

#include <fmt/format.h>

#include <array>
#include <iterator>

#include "base/error.hpp"
#include "observe/counters.hpp"

namespace tiermem {
namespace {

using Out = std::back_insert_iterator<std::string>;

const char* mechanism_name(Receipt::Mechanism mechanism) {
  constexpr std::array kNames = {"in_place", "uffd_move", "remap", "copy"};
  return kNames[static_cast<std::size_t>(mechanism)];
}

const char* path_name(Receipt::Path path) {
  constexpr std::array kNames = {"none", "locked", "staged", "pageable", "peer", "direct"};
  return kNames[static_cast<std::size_t>(path)];
}

const char* by_path(Receipt::Path path) {
  constexpr std::array kWords = {"",
                                 " by page-locked DRAM",
                                 " through the staging",
                                 " by DRAM that is not page-locked",
                                 " straight from the other GPU",
                                 " past the host's memory"};
  return kWords[static_cast<std::size_t>(path)];
}

// The number says which GPU; there is one of each other kind.
std::string tier_text(Place tier) {
  return tier.kind == Kind::gpu ? place_name(tier) : end_name(tier);
}

std::string human_ns(std::int64_t ns) {
  const auto value = static_cast<double>(ns);
  return ns < 10'000           ? fmt::format("{} ns", ns)
         : ns < 10'000'000     ? fmt::format("{:.0f} us", value / 1e3)
         : ns < 10'000'000'000 ? fmt::format("{:.0f} ms", value / 1e6)
                               : fmt::format("{:.0f} s", value / 1e9);
}

const char* because(Reason reason) {
  constexpr std::array kWords = {"",
                                 "because a caller waited for them",
                                 "ahead of the first use",
                                 "to make room for a waiting caller",
                                 "to keep room free",
                                 "on request",
                                 "because they were discarded"};
  return kWords[static_cast<std::size_t>(reason)];
}

void put_channel(Out out, const ChannelTotals& channel) {
  fmt::format_to(out,
                 "{{\"from\":\"{}\",\"to\":\"{}\",\"transfers\":{},\"failed\":{"
                 "},\"bytes\":{},\"requests\":{},"
                 "\"retries\":{},\"buffered\":{},\"ns\":{{\"sum\":{},\"p50\":{}"
                 ",\"p90\":{},\"p99\":{},"
                 "\"most\":{},\"buckets\":[",
                 end_name(channel.from), end_name(channel.to), channel.transfers, channel.failed,
                 channel.bytes, channel.requests, channel.retries, channel.buffered,
                 channel.ns.sum(), channel.ns.percentile(0.5), channel.ns.percentile(0.9),
                 channel.ns.percentile(0.99), channel.ns.worst());
  bool first = true;
  channel.ns.for_each([&](std::uint64_t end, std::uint64_t count) {
    fmt::format_to(out, "{}[{},{}]", first ? "" : ",", end, count);
    first = false;
  });
  fmt::format_to(out, "]}},\"by_reason\":{{");
  first = true;
  for (std::size_t i = 0; i < channel.by_reason.size(); ++i) {
    if (channel.by_reason[i] != 0) {
      fmt::format_to(out, "{}\"{}\":{}", first ? "" : ",", reason_name(static_cast<Reason>(i)),
                     channel.by_reason[i]);
      first = false;
    }
  }
  fmt::format_to(out, "}},\"from_index\":{},\"to_index\":{}}}", channel.from.index,
                 channel.to.index);
}

void put_receipt(Out out, const Receipt& r, std::int64_t now_ns) {
  fmt::format_to(out,
                 "{{\"buffer\":\"{:#x}\",\"offset\":{},\"bytes\":{},\"from\":"
                 "\"{}\",\"to\":\"{}\","
                 "\"reason\":\"{}\",\"mechanism\":\"{}\",\"ns\":{},\"age_ns\":{"
                 "},\"requests\":{},"
                 "\"retries\":{},\"depth\":{},\"path\":\"{}\",\"buffered\":{},\"failed\":{},"
                 "\"from_index\":{},\"to_index\":{}}}",
                 r.buffer, r.offset, r.bytes, end_name(r.from), end_name(r.to),
                 reason_name(r.reason), mechanism_name(r.mechanism), r.ended_ns - r.begun_ns,
                 now_ns - r.ended_ns, r.requests, r.retries, r.depth, path_name(r.path), r.buffered,
                 r.failed, r.from.index, r.to.index);
}

}  // namespace

const char* reason_name(Reason reason) noexcept {
  constexpr std::array kNames = {"none",  "demand", "prefetch", "room",
                                 "ahead", "asked",  "given_up"};
  static_assert(kNames.size() == Receipt::kReasons);
  return kNames[static_cast<std::size_t>(reason)];
}

const char* end_name(Place end) noexcept {
  return end.kind == Kind::any ? "nowhere" : kind_name(end.kind);
}

std::string whereabouts_text(const Whereabouts& where) {
  using State = Whereabouts::State;
  std::string text;
  switch (where.state) {
    case State::zero:
      text = "never written: zeros";
      break;
    case State::resident:
      text = "in " + place_name(where.place);
      break;
    case State::in_slot:
      text = "in " + place_name(where.place) + " only";
      break;
    case State::moving:
      text = "on its way";
      break;
    case State::lost:
      text = "lost";
      break;
  }
  text += where.pinned ? ", pinned" : "";
  text += where.dirty ? ", dirty" : "";
  const Receipt& last = where.last;
  if (last.reason == Reason::none) {
    return text;
  }
  const bool left = last.to.kind == Kind::any;
  text += fmt::format(", for {}: {} {} {} in {}", human_ns(where.since_ns), human_bytes(last.bytes),
                      left ? "left" : "came from", tier_text(last.from),
                      human_ns(last.ended_ns - last.begun_ns));
  if (last.from.kind == Kind::any) {
    text += " as zeros";
  }
  if (last.requests != 0) {
    text += fmt::format(" by {} request{}", last.requests, last.requests == 1 ? "" : "s");
  }
  if (last.retries != 0) {
    text += fmt::format(", {} of them made again", last.retries);
  }
  return fmt::format("{}{}{}, {}", text, by_path(last.path),
                     last.buffered ? " through the page cache" : "", because(last.reason));
}

std::string stats_json_text(const Stats& stats, const ReceiptsCopy& receipts, std::int64_t now_ns) {
  std::string text = "{\"format\":1,\"counters\":{";
  const Out out(text);
  bool first = true;
  for (const Counter& counter : counter_table()) {
    fmt::format_to(out, "{}\"{}\":{}", first ? "" : ",", counter.name, stats.*counter.field);
    first = false;
  }
  text += "},\n\"channels\":[";
  first = true;
  for (const ChannelTotals& channel : receipts.channels) {
    text += first ? "\n" : ",\n";
    put_channel(out, channel);
    first = false;
  }
  text += "],\n\"last\":[";
  first = true;
  for (const Receipt& receipt : receipts.last) {
    text += first ? "\n" : ",\n";
    put_receipt(out, receipt, now_ns);
    first = false;
  }
  text += "],\n\"tiers\":[";
  for (std::uint32_t i = 0; i < stats.tier_count; ++i) {
    const TierStats& tier = stats.tiers[i];
    fmt::format_to(out,
                   "{}\n{{\"tier\":\"{}\",\"index\":{},\"budget\":{},\"used\":{},\"pinned\":{},"
                   "\"bytes_in\":{},\"bytes_out\":{}}}",
                   i == 0 ? "" : ",", kind_name(tier.place.kind), tier.place.index, tier.budget,
                   tier.used, tier.pinned, tier.bytes_in, tier.bytes_out);
  }
  return text + "]}\n";
}

}  // namespace tiermem
