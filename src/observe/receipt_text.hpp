// Receipts as sentences and as JSON. For cold paths: they format and allocate. Any thread.
#pragma once

#include <string>

#include "observe/receipts.hpp"
#include "tiermem/receipt.hpp"

namespace tiermem {

const char* reason_name(Reason reason) noexcept;
/// Returns the name of an end of a movement: that of the kind, or "nowhere" for {any, 0}.
const char* end_name(Place end) noexcept;

/// Returns a sentence such as "in dram for 1.2 s: 2.0 MiB came from block in 431 us (1 request),
/// because a caller waited for them".
std::string whereabouts_text(const Whereabouts& where);

/// Returns one JSON object: counters by name, channels with times, and the last receipts. `now_ns`:
/// CLOCK_MONOTONIC, from which ages are counted.
std::string stats_json_text(const Stats& stats, const ReceiptsCopy& receipts, std::int64_t now_ns);

}  // namespace tiermem
