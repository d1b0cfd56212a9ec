// What a capture on a stream forbids, and what breaks it. Work given to a capturing stream is
// forgotten: there are no graphs that run.
//
// Guarded by World::mutex.
#pragma once

#include "support/fake_cuda/world.hpp"

namespace tiermem::test {

/// For a call that could wait for what a capture holds back: kCaptureUnsupported, and the captures
/// that forbid it here are invalidated; else kSuccess.
cuda::Result refuse_in_capture(World& world);
/// For a call that waits for this stream itself: the same, whatever the mode and the thread.
cuda::Result refuse_if_capturing(StreamState& stream);

/// For work given to a stream: kSuccess, with `captured` telling that it shall not run.
cuda::Result accept(World& world, StreamState& stream, bool& captured);
/// A blocking stream of the legacy stream's context captures.
bool captures_beside(const World& world, const StreamState& legacy);

}  // namespace tiermem::test
