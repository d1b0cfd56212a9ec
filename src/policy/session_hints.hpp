// The hints that a language model server could give during the replay of its recorded run: when a
// conversation has ended, it does not need its blocks any more. Pure; one thread at a time.
//
// The records do not identify conversations, so they are derived. A block stands for a prompt up to
// the end of the block. A request therefore continues a conversation if it begins with the last
// prompt of that conversation: all of it except its last block, which was not full. The first
// block, the instructions that nearly all requests share, connects no conversations. A conversation
// ends with its last request in the trace. The only assumption about the future is that the client
// reports this end when it happens.
#pragma once

#include <vector>

#include "policy/replay.hpp"
#include "policy/trace.hpp"

namespace tiermem {

/// Returns, at the end of each conversation, `advice` for those of its blocks that no open
/// conversation has. Returns no hints for a trace without requests.
std::vector<ReplayHint> session_end_hints(const Trace& trace, Advice advice);

}  // namespace tiermem
