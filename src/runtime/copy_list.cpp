#include "runtime/copy_list.hpp"

#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "runtime/prefetcher.hpp"
#include "runtime/range_reader.hpp"

namespace tiermem {

Status CopyCall::run() {
  Status usable = impl_.usable("copy");
  if (!usable.ok()) {
    refuse(usable.code());
    return usable;
  }
  copies_.resize(list_.size());
  for (std::size_t i = 0; i < list_.size(); ++i) {
    copies_[i].item = list_[i];
    copies_[i].status = check(i);
  }
  if (!promotes_) {
    read_below();
  }
  copy_all();
  Status first;
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    list_[i].code = copies_[i].status.code();
    if (first.ok() && !copies_[i].status.ok()) {
      first = at_item(i);
    }
  }
  return first;
}

void CopyCall::refuse(Code why) noexcept {
  for (CopyItem& item : list_) {
    item.code = why;
  }
}

Status CopyCall::check(std::size_t index) const {
  const CopyItem& item = copies_[index].item;
  if (item.mode != kRead && item.mode != kWrite) {
    return fail(Code::invalid_argument,
                "copy: mode {:#x}; accepted are 1 (out of the buffer) and 2 (into the buffer)",
                item.mode);
  }
  if (item.memory == nullptr && item.bytes != 0) {
    return fail(Code::invalid_argument, "copy: the memory is null; pass memory of {} bytes",
                item.bytes);
  }
  return {};
}

// Adds the item to the message.
Status CopyCall::at_item(std::size_t index) const {
  const Status& why = copies_[index].status;
  ErrorInfo info =
      why.info() != nullptr ? *why.info() : error_info(why.code(), "{}", why.message());
  constexpr std::string_view kCall = "copy: ";
  const bool named = std::string_view(why.message()).starts_with(kCall);
  const char* const reason = why.message() + (named ? kCall.size() : 0);
  const ErrorInfo longer = error_info(info.code, "copy: item {} of the list: {}", index, reason);
  std::memcpy(info.text, longer.text, sizeof(info.text));
  info.buffer = copies_[index].item.buffer;
  return Status(info);
}

void CopyCall::read_below() {
  Vector<RangeReader::Range> ranges;
  Vector<std::size_t> of;
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    const CopyItem& item = copies_[i].item;
    if (copies_[i].status.ok() && item.mode == kRead) {
      ranges.push_back({.buffer = item.buffer,
                        .offset = item.offset,
                        .length = item.bytes,
                        .to = static_cast<std::byte*>(item.memory),
                        .status = {}});
      of.push_back(i);
    }
  }
  RangeReader(impl_, "copy", limits_).run(ranges);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    copies_[of[i]].status = std::move(ranges[i].status);
  }
}

void CopyCall::copy_all() {
  Vector<Access> read(copies_.size());  // 0 bytes: the item is not read here.
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    const CopyItem& item = copies_[i].item;
    if (copies_[i].status.ok() && item.mode == kRead && promotes_ && !limits_.never_waits) {
      read[i] = {item.buffer, item.offset, item.bytes, kRead, {}, 0};
    }
  }
  Prefetcher prefetcher(context_, impl_.config.dram.budget / 4, read);
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    const CopyItem& item = copies_[i].item;
    if (!copies_[i].status.ok() || (item.mode == kRead && !promotes_)) {
      continue;
    }
    auto* const memory = static_cast<std::byte*>(item.memory);
    prefetcher.begin(i);
    copies_[i].status =
        impl_.copy(context_, item.buffer, item.offset, item.mode == kRead ? memory : nullptr,
                   item.mode == kRead ? nullptr : memory, item.bytes, limits_);
    prefetcher.end(i);
  }
}

}  // namespace tiermem
