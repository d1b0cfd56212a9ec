// Decides what `tiermem run` opens for a process under it that lacks the permission, because it has
// changed its user or its root directory.
#pragma once

#include "preload/run_broker.hpp"
#include "preload/run_page.hpp"
#include "runtime/config.hpp"

namespace tiermem::cli {

/// Fills `reply` with the requested descriptor: the page, /dev/userfaultfd, or a file in one of the
/// directories of the block tier. No other path is opened. On refusal `reply` stays empty.
void hand_over(const RunHost& host, const Config& config, BrokerRequest::What what,
               const char* path, BrokerReply& reply);

}  // namespace tiermem::cli
