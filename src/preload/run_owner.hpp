// Who owns a row of the run's page: a word that names state, pid and start time of a process.
//
//   unused ──join──▶ joining ──join──▶ live ──leave──▶ ended ──join──▶ joining …
//                       └──────────────┴──its process is gone──▲  (by whoever notices)
//
// A claim is one CAS, and a pid that is used again is told apart.
#pragma once

#include <cstdint>

#include "preload/run_page.hpp"

namespace tiermem::run {

using Row = RunPage::Row;

enum class State : std::uint64_t { unused, joining, live, ended };

/// `identity`: pid and start time, as own_identity() gives them.
std::uint64_t owned(State state, std::uint64_t identity);
State state_of(std::uint64_t owner);
std::uint32_t pid_of(std::uint64_t owner);
/// Joining or live.
bool has_process(std::uint64_t owner);
/// And it is that one.
bool is_of(std::uint64_t owner, std::uint64_t identity);

/// This process's, as /proc names it: in a pid namespace that shares the /proc of its parent,
/// getpid() is another number. 0 when there is no /proc.
std::uint64_t own_identity();

/// The same of process `pid`, as /proc of this process names it. 0: there is none.
std::uint64_t identity_of(std::uint32_t pid);

/// A row that was never used, else one whose process ended: its figures are shown as long as
/// possible. It is joining then. Null: there is none.
Row* claim(RunPage& page, std::uint64_t identity);
/// Ends the row if it is still `owner`'s. The counters stay where they are. A process that did not
/// finish joining has none, and is forgotten.
bool end_row(Row& row, std::uint64_t owner);
bool end_rows_of_the_dead(RunPage& page);

/// What /proc says of a process with a row.
struct Life {
  bool found = false;
  /// Its main thread neither runs, nor would if there were a processor, nor waits for a disk.
  bool sleeps = false;
  std::uint64_t ticks = 0;  ///< Of processor time, of all its threads.
};
Life life_of(std::uint64_t owner);

}  // namespace tiermem::run
