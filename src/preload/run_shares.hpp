// How the rows of the run's page divide its budget, and how they learn of a change.
#pragma once

#include <cstdint>

#include "preload/run_page.hpp"

namespace tiermem::run {

/// Bytes, of a row's grant.
std::uint64_t share_of(std::uint64_t grant);
/// The row takes part in the division: it is live, and no guest.
bool counts(const RunPage::Row& row);
/// Of all rows: the share, or what the process has not given up yet.
std::uint64_t charge_of_all(const RunPage& page);

/// Divides the budget again. Any number of processes may do so at once, and any may die at it: the
/// newest wins. It read all wants after it took its epoch, so it knows what the older ones know.
/// One that dies half-way leaves shares too small, never too large, and maybe nobody told; its own
/// death is the reason for another, which tells everyone.
void rebalance(RunPage& page);

/// Another generation, and whoever waits for one is woken.
void tell_everyone(RunPage& page);
/// Sleeps until the generation is not `seen`, and returns it.
std::uint32_t wait_on(const RunPage& page, std::uint32_t seen);

}  // namespace tiermem::run
