// The records of the C interface have the layout of the C++ records, so a list passes through
// without a copy. The static_asserts here check this. This file has conversions only and no state.
// Any thread may use it.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

#include "tiermem.h"
#include "tiermem/receipt.hpp"
#include "tiermem/status.hpp"
#include "tiermem/types.hpp"
#include "tiermem/version.hpp"

namespace tiermem::c_abi {

template <typename Enum>
constexpr long long number(Enum value) {
  return static_cast<long long>(value);
}

static_assert(TM_VERSION_MAJOR == TIERMEM_VERSION_MAJOR);
static_assert(TM_VERSION_MINOR == TIERMEM_VERSION_MINOR);
static_assert(TM_VERSION_PATCH == TIERMEM_VERSION_PATCH);

static_assert(TM_OK == number(Code::ok));
static_assert(TM_INVALID_ARGUMENT == number(Code::invalid_argument));
static_assert(TM_STALE_HANDLE == number(Code::stale_handle));
static_assert(TM_NO_CAPACITY == number(Code::no_capacity));
static_assert(TM_BUSY == number(Code::busy));
static_assert(TM_TIMED_OUT == number(Code::timed_out));
static_assert(TM_CANCELLED == number(Code::cancelled));
static_assert(TM_UNSUPPORTED == number(Code::unsupported));
static_assert(TM_UNAVAILABLE == number(Code::unavailable));
static_assert(TM_IO_ERROR == number(Code::io_error));
static_assert(TM_DISCARDED == number(Code::discarded));
static_assert(TM_LOST == number(Code::lost));
static_assert(TM_SHUT_DOWN == number(Code::shut_down));
static_assert(TM_INTERNAL == number(Code::internal));

static_assert(TM_STATE_ZERO == number(Whereabouts::State::zero));
static_assert(TM_STATE_RESIDENT == number(Whereabouts::State::resident));
static_assert(TM_STATE_IN_SLOT == number(Whereabouts::State::in_slot));
static_assert(TM_STATE_MOVING == number(Whereabouts::State::moving));
static_assert(TM_STATE_LOST == number(Whereabouts::State::lost));
static_assert(TM_REASON_NONE == number(Reason::none));
static_assert(TM_REASON_DEMAND == number(Reason::demand));
static_assert(TM_REASON_PREFETCH == number(Reason::prefetch));
static_assert(TM_REASON_ROOM == number(Reason::room));
static_assert(TM_REASON_AHEAD == number(Reason::ahead));
static_assert(TM_REASON_ASKED == number(Reason::asked));
static_assert(TM_REASON_GIVEN_UP == number(Reason::given_up));

static_assert(TM_ANY == number(Kind::any) && TM_HOST == number(Kind::host));
static_assert(TM_DRAM == number(Kind::dram) && TM_NUMA == number(Kind::numa));
static_assert(TM_PMEM == number(Kind::pmem) && TM_GPU == number(Kind::gpu));
static_assert(TM_BLOCK == number(Kind::block) && TM_REMOTE == number(Kind::remote));
static_assert(TM_COMPRESSED == number(Kind::compressed) && TM_FILE == number(Kind::file));

static_assert(TM_READ == number(kRead) && TM_WRITE == number(kWrite));
static_assert(TM_DISCARD == number(kDiscard));
static_assert(TM_DROPPABLE == number(kDroppable) && TM_KEEP_ON_FREE == number(kKeepOnFree));
static_assert(TM_PRIVATE == number(kPrivate));
static_assert(TM_INTERLEAVED == number(kInterleaved));
static_assert(TM_NO_CHECKSUM == number(kNoChecksum) && TM_ISOLATED == number(kIsolated));

static_assert(TM_STREAM_HOST == number(StreamOrder::kHost));
static_assert(TM_STREAM_CUDA == number(StreamOrder::kCuda));

static_assert(TM_ADVICE_NORMAL == number(Advice::normal));
static_assert(TM_READ_MOSTLY == number(Advice::read_mostly));
static_assert(TM_WILL_NEED == number(Advice::will_need));
static_assert(TM_DONT_NEED == number(Advice::dont_need));
static_assert(TM_COLD == number(Advice::cold));
static_assert(TM_SEQUENTIAL == number(Advice::sequential));
static_assert(TM_RANDOM == number(Advice::random));
static_assert(TM_STREAMED == number(Advice::streamed));
static_assert(TM_TOUCHED == number(Advice::touched));
static_assert(TM_FROZEN == number(Advice::frozen));
static_assert(TM_PREFERRED == number(Advice::preferred));
static_assert(TM_KEEP == number(Advice::keep));
static_assert(TM_NEXT_USE == number(Advice::next_use));

// Asserts that one field has the same offset and type in two structs.
#define TM_SAME_FIELD(c_type, cpp_type, field)                          \
  static_assert(offsetof(c_type, field) == offsetof(cpp_type, field) && \
                sizeof(c_type::field) == sizeof(cpp_type::field))

static_assert(sizeof(tm_place) == sizeof(Place) && alignof(tm_place) == alignof(Place));
TM_SAME_FIELD(tm_place, Place, kind);
TM_SAME_FIELD(tm_place, Place, index);

static_assert(sizeof(tm_rows) == 48);
static_assert(sizeof(tm_access) == 40 && sizeof(Access) == 40);
static_assert(alignof(tm_access) == alignof(Access));
TM_SAME_FIELD(tm_access, Access, buffer);
TM_SAME_FIELD(tm_access, Access, offset);
TM_SAME_FIELD(tm_access, Access, length);
TM_SAME_FIELD(tm_access, Access, mode);
TM_SAME_FIELD(tm_access, Access, where);
TM_SAME_FIELD(tm_access, Access, reserved);

static_assert(sizeof(tm_view) == 40 && sizeof(ViewRecord) == 40);
static_assert(alignof(tm_view) == alignof(ViewRecord));
TM_SAME_FIELD(tm_view, ViewRecord, data);
TM_SAME_FIELD(tm_view, ViewRecord, length);
TM_SAME_FIELD(tm_view, ViewRecord, token);
TM_SAME_FIELD(tm_view, ViewRecord, place);
TM_SAME_FIELD(tm_view, ViewRecord, flags);

#undef TM_SAME_FIELD

static_assert(std::is_standard_layout_v<Access> && std::is_trivially_copyable_v<Access>);
static_assert(std::is_standard_layout_v<ViewRecord> && std::is_trivially_copyable_v<ViewRecord>);
static_assert(sizeof(tm_buffer) == sizeof(Handle) && sizeof(tm_op) == sizeof(OpHandle));
static_assert(sizeof(tm_stream) == 16);  // It fits in two registers.

// Sizes of version 1 of the structs that grow. These sizes never change; a later version is larger.
inline constexpr std::size_t kContextOptions1 = 32;
inline constexpr std::size_t kBufferOptions1 = 48;
inline constexpr std::size_t kErrorInfo1 = 344;
inline constexpr std::size_t kResidency1 = 112;
inline constexpr std::size_t kCounters1 = 232;
inline constexpr std::size_t kTierCounters1 = 56;
inline constexpr std::size_t kStoreOptions1 = 32;
inline constexpr std::size_t kStoreCounters1 = 88;
inline constexpr std::size_t kEvent1 = 472;
inline constexpr std::size_t kLabelCounters1 = 232;
inline constexpr std::size_t kAllocator1 = 64;
inline constexpr std::size_t kWhereabouts1 = 272;
inline constexpr std::size_t kCapabilities1 = 72;
static_assert(sizeof(tm_context_options) >= kContextOptions1);
static_assert(sizeof(tm_buffer_options) >= kBufferOptions1);
static_assert(sizeof(tm_error_info) >= kErrorInfo1);
static_assert(sizeof(tm_residency) >= kResidency1);
static_assert(sizeof(tm_counters) >= kCounters1);
static_assert(sizeof(tm_tier_counters) >= kTierCounters1);
static_assert(sizeof(tm_store_options) >= kStoreOptions1);
static_assert(sizeof(tm_store_counters) >= kStoreCounters1);
static_assert(sizeof(tm_event) >= kEvent1);
static_assert(sizeof(tm_label_counters) >= kLabelCounters1);
static_assert(sizeof(tm_allocator) >= kAllocator1);
static_assert(sizeof(tm_whereabouts) >= kWhereabouts1);
static_assert(sizeof(tm_capabilities) >= kCapabilities1);

inline std::span<const Access> accesses(const tm_access* list, std::size_t n) noexcept {
  return {reinterpret_cast<const Access*>(list), n};
}
inline std::span<ViewRecord> views(tm_view* list, std::size_t n) noexcept {
  return {reinterpret_cast<ViewRecord*>(list), n};
}
inline std::span<const ViewRecord> views(const tm_view* list, std::size_t n) noexcept {
  return {reinterpret_cast<const ViewRecord*>(list), n};
}
inline StreamOrder order(tm_stream c) noexcept {
  return {c.kind, c.reserved, c.handle};
}
inline Place place(tm_place c) noexcept {
  return {static_cast<Kind>(c.kind), c.index};
}
inline tm_place place(Place cpp) noexcept {
  return {static_cast<std::uint16_t>(cpp.kind), cpp.index};
}
/// Fills what tm_error_info and tm_event have of an error. Not the status, and not `holder` and
/// `setting`, which are pointers in one and text in the other.
template <typename To>
void fill_error(To& to, const ErrorInfo& from) noexcept {
  to.native = from.native;
  to.device = from.device;
  to.tier = place(from.tier);
  to.buffer = from.buffer;
  to.offset = from.offset;
  to.needed = from.needed;
  to.budget = from.budget;
  to.used = from.used;
  to.pinned = from.pinned;
  static_assert(sizeof(to.text) == sizeof(from.text));
  std::memcpy(to.text, from.text, sizeof(to.text));
}

}  // namespace tiermem::c_abi
