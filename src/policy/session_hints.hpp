// The hints that a language model's server could give while a recorded run of it is replayed: when
// a conversation has ended, its blocks are not needed by it any more. Pure; any one thread.
//
// The records name no conversations, so they are derived. A block stands for a prompt up to its
// end, hence a request goes on with the conversation whose last prompt it begins with: all of that
// but its last block, which was not full. The first block, the instructions that nearly all begin
// with, ties none together. A conversation ends with its last request in the trace: that the client
// says so then is the assumption here, and all that is known of the future.
#pragma once

#include <vector>

#include "policy/replay.hpp"
#include "policy/trace.hpp"

namespace tiermem {

/// At the end of each conversation, `advice` for those of its blocks that no open conversation has.
/// None of a trace that tells no requests.
std::vector<ReplayHint> session_end_hints(const Trace& trace, Advice advice);

}  // namespace tiermem
