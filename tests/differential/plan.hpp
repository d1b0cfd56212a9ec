// Lists of calls for the differential test: drawn from a seed, written as text, read again. A call
// names its objects by the number of a place instead of a handle, and its ranges by numbers that
// are adjusted at run time. Each part of a list is therefore a valid list, and a failing one can be
// shortened. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace tiermem::differential {

enum class What : std::uint8_t {
  alloc,
  free,
  read,
  write,
  acquire,
  use,
  release,
  evict,
  prefetch,
  advise,
  empty,
  gather,
  gather_into,
  scatter,
  copy,
  move_bytes,
  touch,
  object,
  budget,
  migrate,
  ask,
  acquire_async,
  adopt,
  wrong_handle,
  thread,
  kCount
};

/// The numbers that a call derives its arguments from.
struct Call {
  What what = What::alloc;
  std::array<std::uint64_t, 6> n{};
};

using Plan = std::vector<Call>;

/// Draws the calls of one sequence; the same seed gives the same calls.
Plan draw(std::uint64_t seed, unsigned calls);
/// One line for each call.
std::string text_of(const Plan& plan);
/// Returns false if a line does not come from text_of().
bool read_plan(const std::string& text, Plan& plan);

}  // namespace tiermem::differential
