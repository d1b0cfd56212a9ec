// C: receipts of transfers, and where bytes are and why.
#include <cstring>

#include "base/error.hpp"
#include "checks.hpp"
#include "observe/receipt_text.hpp"
#include "runtime/context_impl.hpp"
#include "tm_context.hpp"

using namespace tiermem;
using namespace tiermem::c_abi;

extern "C" tm_status tm_stats_json(tm_context* context, uint32_t last, char* text, size_t room,
                                   size_t* out_length) {
  if (tm_status bad = check_not_null("stats_json", context, "context")) {
    return bad;
  }
  if (tm_status bad = check_not_null("stats_json", out_length, "out_length")) {
    return bad;
  }
  return guarded([&]() -> Status {
    const auto json = context->context->stats_json(last);
    if (!json.ok()) {
      return json.status().clone();
    }
    if (text != nullptr && json->size() >= room) {
      return fail(
          Code::no_capacity,
          "stats_json: the text needs {} bytes, but there is room for {}; pass a larger buffer",
          json->size() + 1, room);
    }
    if (text != nullptr) {
      std::memcpy(text, json->c_str(), json->size() + 1);
    }
    *out_length = json->size();
    return {};
  });
}

extern "C" tm_status tm_why(tm_context* context, tm_buffer buffer, uint64_t offset,
                            tm_whereabouts* out) {
  if (tm_status bad = check_not_null("why", context, "context")) {
    return bad;
  }
  if (tm_status bad = check_info("why", out, kWhereabouts1)) {
    return bad;
  }
  return guarded([&]() -> Status {
    const auto where = context->context->why(buffer, offset);
    if (!where.ok()) {
      return where.status().clone();
    }
    const Receipt& receipt = where->last;
    tm_whereabouts info{};
    info.state = static_cast<uint32_t>(where->state);
    info.flags |= where->dirty ? +TM_WHERE_DIRTY : 0;
    info.flags |= where->pinned ? +TM_WHERE_PINNED : 0;
    info.flags |= receipt.buffered ? +TM_WHERE_BUFFERED : 0;
    info.place = {static_cast<uint16_t>(where->place.kind), where->place.index};
    info.reason = static_cast<uint32_t>(receipt.reason);
    info.since_ns = where->since_ns;
    info.took_ns = receipt.ended_ns - receipt.begun_ns;
    info.bytes = receipt.bytes;
    info.requests = receipt.requests;
    info.retries = receipt.retries;
    info.depth = receipt.depth;
    info.path = static_cast<uint32_t>(receipt.path);
    const ArenaScope inside;
    set_text(info.text, whereabouts_text(*where));
    fill_info(out, info);
    return {};
  });
}
