// The first thing a process does in the preload library, before any block is given out: tiermem's
// arena gets its range, and the fork handlers their places. Any thread, again and again; done once.
#pragma once

namespace tiermem::preload {

void start_process();

}  // namespace tiermem::preload
