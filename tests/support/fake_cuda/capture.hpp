// Calls that a capture on a stream forbids, and calls that break it. Work for a capturing stream is
// dropped: graphs do not run.
//
// Guarded by World::mutex.
#pragma once

#include "support/fake_cuda/world.hpp"

namespace tiermem::test {

/// For a call that could wait for held-back work of a capture. Returns kCaptureUnsupported and
/// invalidates the captures that forbid the call; otherwise kSuccess.
cuda::Result refuse_in_capture(World& world);
/// For a call that waits for this stream itself: the same, in any mode and thread.
cuda::Result refuse_if_capturing(StreamState& stream);

/// For work on a stream. Returns kSuccess, and sets `captured` if the work must not run.
cuda::Result accept(World& world, StreamState& stream, bool& captured);
/// Whether a blocking stream of the legacy stream's context captures.
bool captures_beside(const World& world, const StreamState& legacy);

}  // namespace tiermem::test
