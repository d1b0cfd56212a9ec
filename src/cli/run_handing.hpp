// What `tiermem run` opens for a process under it that may not do so itself, as it has changed its
// user or its root directory: the broker's decisions.
#pragma once

#include "preload/run_broker.hpp"
#include "preload/run_page.hpp"
#include "runtime/config.hpp"

namespace tiermem::cli {

/// Fills `reply` with what is asked for: the page, /dev/userfaultfd, or a file in one of the
/// directories of the block tier. No other path is opened. Refused: `reply` stays empty.
void hand_over(const RunHost& host, const Config& config, BrokerRequest::What what,
               const char* path, BrokerReply& reply);

}  // namespace tiermem::cli
