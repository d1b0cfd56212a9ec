// Divides the budget among the rows of the run's page, and announces changes to them.
#pragma once

#include <cstdint>

#include "preload/run_page.hpp"

namespace tiermem::run {

/// The share in a row's grant, in bytes.
std::uint64_t share_of(std::uint64_t grant);
/// Whether the row takes part in the division: it is live and not a guest.
bool counts(const RunPage::Row& row);
/// Sum over all rows of the share, or of the bytes not given up yet.
std::uint64_t charge_of_all(const RunPage& page);

/// Divides the budget again. Any number of processes may do so at once, and each may die while it
/// does: the newest rebalance wins. It reads all wants after it took its epoch, so it knows all
/// that older ones know. A rebalance that dies half-way leaves shares that are too small, never too
/// large, and may wake no process. The death of its process causes another rebalance, which wakes
/// all.
void rebalance(RunPage& page);

/// Changes the generation and wakes all waiting threads.
void tell_everyone(RunPage& page);
/// Sleeps until the generation is not `seen`, and returns it.
std::uint32_t wait_on(const RunPage& page, std::uint32_t seen);

}  // namespace tiermem::run
