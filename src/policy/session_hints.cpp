// First derives the conversations, then the requests that need each block. See session_hints.hpp.
#include "policy/session_hints.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <unordered_map>

namespace tiermem {

namespace {

struct Session {
  std::size_t last_request = 0;
  std::vector<std::uint32_t> blocks;  ///< Each block once for every request that names it.
};

std::span<const Reference> request(const Trace& trace, std::size_t number) {
  const std::size_t begin = number == 0 ? 0 : trace.request_ends[number - 1];
  return std::span(trace.references).subspan(begin, trace.request_ends[number] - begin);
}

/// Returns the conversation of each request, and the conversations.
std::vector<std::size_t> sessions_of(const Trace& trace, std::vector<Session>& sessions) {
  std::vector<std::size_t> of(trace.request_ends.size());
  std::unordered_map<std::uint32_t, std::size_t> by_end;  // Last full block -> conversation.
  for (std::size_t number = 0; number < of.size(); ++number) {
    const auto blocks = request(trace, number);
    std::size_t found = sessions.size();
    for (std::size_t i = blocks.size(); i-- > 1 && found == sessions.size();) {
      if (const auto at = by_end.find(blocks[i].block); at != by_end.end()) {
        found = at->second;
        by_end.erase(at);
      }
    }
    if (found == sessions.size()) {
      sessions.emplace_back();
    }
    of[number] = found;
    sessions[found].last_request = number;
    for (const Reference& reference : blocks) {
      sessions[found].blocks.push_back(reference.block);
    }
    if (blocks.size() > 2) {
      by_end[blocks[blocks.size() - 2].block] = found;
    }
  }
  return of;
}

}  // namespace

std::vector<ReplayHint> session_end_hints(const Trace& trace, Advice advice) {
  std::vector<Session> sessions;
  const std::vector<std::size_t> of = sessions_of(trace, sessions);
  // Number of requests of open conversations that need each block.
  std::vector<std::uint32_t> held(trace.blocks);
  std::vector<ReplayHint> hints;
  for (std::size_t number = 0; number < of.size(); ++number) {
    for (const Reference& reference : request(trace, number)) {
      ++held[reference.block];
    }
    if (sessions[of[number]].last_request != number) {
      continue;
    }
    for (const std::uint32_t block : sessions[of[number]].blocks) {
      if (--held[block] == 0) {
        hints.push_back({trace.request_ends[number], block, advice});
      }
    }
  }
  return hints;
}

}  // namespace tiermem
