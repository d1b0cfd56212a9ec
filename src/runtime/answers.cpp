// Information about a context: for calls of the program, and for another process that asks
// (inspector.hpp). An answer to another process begins with the line `ok`, or `error` and a
// sentence. Lines with tabs between words follow:
//
//   buffers             for each buffer: handle, bytes, bytes of an extent; bytes that are
//                       resident, in slots, zeros, lost, dirty, pinned; the label
//   why HANDLE OFFSET   one line: the label, the extent's offset, and a sentence
//   stats LAST          JSON, as stats_json()
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/shown.hpp"
#include "observe/receipt_text.hpp"
#include "runtime/context_impl.hpp"

namespace tiermem {
namespace {

constexpr std::size_t kMostListed = 10'000;

// Removes the next word from `text` and returns it.
std::string_view next_word(std::string_view& text) {
  const std::size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

bool read_number(std::string_view word, std::uint64_t& number) {
  const bool hex = word.substr(0, 2) == "0x";
  word.remove_prefix(hex ? 2 : 0);
  const auto [end, error] =
      std::from_chars(word.data(), word.data() + word.size(), number, hex ? 16 : 10);
  return !word.empty() && error == std::errc() && end == word.data() + word.size();
}

std::string refused(const Status& status) {
  return fmt::format("error {}\n", status.message());
}

}  // namespace

Status Context::Impl::tell_stats(std::uint32_t last, std::string& text) {
  Stats stats;
  ReceiptsCopy receipts;
  {
    const ArenaScope inside;
    Request request;
    request.kind = RequestKind::stats;
    request.stats = &stats;
    request.receipts = &receipts;
    // The mover's thread fills it and should allocate as little as possible.
    receipts.last.reserve(std::min<std::size_t>(last, config.receipts));
    request.value = last;
    Status status = ask(request);
    if (!status.ok()) {
      return status;
    }
    add_own_counts(stats);
  }
  text = stats_json_text(stats, receipts, now_ns());
  return {};
}

Status Context::Impl::tell_info(Handle buffer, BufferInfo& info) {
  if (residency.buffers.find(buffer) == nullptr) {
    return residency.buffers.stale("info", buffer);
  }
  Request request;
  request.kind = RequestKind::info;
  request.index = Buffers::index_of(buffer);
  request.info = &info;
  return ask(request);
}

Status Context::Impl::tell_labels(std::vector<LabelStats>& labels) {
  constexpr std::size_t kRows = 64;
  std::map<std::string, LabelStats, std::less<>> sums;
  Census census;
  census.end = residency.buffers.used();
  census.rows.reserve(kRows);
  while (census.next < census.end) {
    census.rows.clear();
    Request request;
    request.kind = RequestKind::census;
    request.census = &census;
    Status status = ask(request);
    if (!status.ok()) {
      return status;
    }
    for (const Census::Row& row : census.rows) {
      LabelStats& sum = sums[row.info.label];
      ++sum.buffers;
      sum.bytes += row.info.bytes;
      sum.resident += row.info.resident;
      sum.dirty += row.info.dirty;
      sum.in_slots += row.info.in_slots;
      sum.zero += row.info.zero;
      sum.pinned += row.info.pinned;
      sum.lost += row.info.lost;
      for (std::size_t i = 0; i < sum.tiers.size(); ++i) {
        sum.tiers[i] += row.tiers[i];
      }
    }
  }
  labels.reserve(sums.size());
  for (auto& [label, sum] : sums) {
    set_text(sum.label, label);
    labels.push_back(sum);
  }
  std::stable_sort(labels.begin(), labels.end(),
                   [](const LabelStats& a, const LabelStats& b) { return a.bytes > b.bytes; });
  return {};
}

Status Context::Impl::find_bytes(Handle buffer, std::uint64_t offset, Whereabouts& where) {
  Request request;
  request.kind = RequestKind::where;
  request.where = &where;
  const Access byte{buffer, offset, 1, kRead, {}, 0};
  Status status = resolve_all({&byte, 1}, request, "why");
  return status.ok() ? ask(request) : std::move(status);
}

Status Context::Impl::start_inspector() {
  if (config.inspect == "off") {
    return {};
  }
  return inspector_.start(
      config.inspect,
      [](void* self, std::string_view question) {
        return static_cast<Impl*>(self)->answer(question);
      },
      this);
}

std::string Context::Impl::answer(std::string_view question) {
  std::string_view rest = question;
  const std::string_view word = next_word(rest);
  if (word == "buffers" && rest.empty()) {
    return list_buffers();
  }
  std::uint64_t first = 0, second = 0;
  if (word == "why" && read_number(next_word(rest), first) &&
      read_number(next_word(rest), second) && rest.empty()) {
    return tell_why(first, second);
  }
  if (word == "stats" && read_number(next_word(rest), first) && rest.empty()) {
    std::string text;
    const Status status =
        tell_stats(static_cast<std::uint32_t>(std::min<std::uint64_t>(first, 16384)), text);
    return status.ok() ? "ok\n" + text : refused(status);
  }
  return refused(fail(Code::invalid_argument,
                      "'{}' is not a question; accepted are buffers, why HANDLE OFFSET, stats LAST",
                      question));
}

// Lists the largest buffers first, in case there are more than fit.
std::string Context::Impl::list_buffers() {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> all;
  for (std::uint32_t index = 0; index < residency.buffers.used(); ++index) {
    const BufferRecord& record = residency.buffers.at(index);
    if ((record.generation.load(std::memory_order_acquire) & 1) != 0) {
      all.emplace_back(record.bytes.load(std::memory_order_relaxed), index);
    }
  }
  const std::size_t count = std::min(all.size(), kMostListed);
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count), all.end(),
                    [](const auto& a, const auto& b) {
                      return a.first != b.first ? a.first > b.first : a.second < b.second;
                    });
  std::string text = "ok\n";
  for (std::size_t i = 0; i < count; ++i) {
    const Handle handle = residency.buffers.handle_of(all[i].second);
    BufferInfo info;
    const Status status = tell_info(handle, info);
    if (!status.ok() && status.code() != Code::stale_handle) {
      return refused(status);
    }
    // A null pointer means that the buffer has been freed since.
    if (residency.buffers.find(handle) != nullptr) {
      fmt::format_to(std::back_inserter(text), "{:#x}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n",
                     handle, info.bytes, info.extent_bytes, info.resident, info.in_slots, info.zero,
                     info.lost, info.dirty, info.pinned, shown(info.label));
    }
  }
  return text;
}

std::string Context::Impl::tell_why(Handle buffer, std::uint64_t offset) {
  Whereabouts where;
  Status status = find_bytes(buffer, offset, where);
  const BufferRecord* const record = residency.buffers.find(buffer);
  if (status.ok() && record == nullptr) {
    status = fail(Code::stale_handle,
                  "why: handle {:#x} was freed during the call; ask about a live buffer", buffer);
  }
  if (!status.ok()) {
    return refused(status);
  }
  const std::uint64_t extent = std::uint64_t{1}
                               << record->extent_shift.load(std::memory_order_relaxed);
  return fmt::format("ok\n{}\t{}\t{}\n", shown(record->label.get().view()),
                     offset / extent * extent, whereabouts_text(where));
}

}  // namespace tiermem
