// The owner of a row of the run's page: a word with the state, pid and start time of a process.
//
//   unused ──join──▶ joining ──join──▶ live ──leave──▶ ended ──join──▶ joining …
//                       └──────────────┴──its process is gone──▲  (by any process that notices)
//
// A claim is one CAS. The start time distinguishes a pid that is used again.
#pragma once

#include <cstdint>

#include "preload/run_page.hpp"

namespace tiermem::run {

using Row = RunPage::Row;

enum class State : std::uint64_t { unused, joining, live, ended };

/// `identity` is pid and start time, as own_identity() returns them.
std::uint64_t owned(State state, std::uint64_t identity);
State state_of(std::uint64_t owner);
std::uint32_t pid_of(std::uint64_t owner);
/// Whether the state is joining or live.
bool has_process(std::uint64_t owner);
/// Whether the row is joining or live, and belongs to that process.
bool is_of(std::uint64_t owner, std::uint64_t identity);

/// This process's identity according to /proc. In a pid namespace that shares its parent's /proc,
/// getpid() returns another number. 0 without /proc.
std::uint64_t own_identity();

/// The identity of process `pid` according to this process's /proc. 0 if there is none.
std::uint64_t identity_of(std::uint32_t pid);

/// Claims an unused row, or else the row of an ended process. Its figures remain visible as long as
/// possible. The row becomes joining. Returns null if there is none.
Row* claim(RunPage& page, std::uint64_t identity);
/// Ends the row if `owner` still owns it. The counters stay. A process that did not finish joining
/// has no counters, so its row becomes unused.
bool end_row(Row& row, std::uint64_t owner);
bool end_rows_of_the_dead(RunPage& page);

/// The state of a process with a row, from /proc.
struct Life {
  bool found = false;
  /// Its main thread is neither running, nor ready to run, nor waiting for a disk.
  bool sleeps = false;
  std::uint64_t ticks = 0;  ///< Processor time of all its threads.
};
Life life_of(std::uint64_t owner);

}  // namespace tiermem::run
