// The times of a run's calls. One thread.
#pragma once

#include "observe/histogram.hpp"

namespace tiermem::cli {

using LatencyHistogram = Histogram;

}  // namespace tiermem::cli
