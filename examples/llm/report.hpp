// Report: the results of a run, as a table for readers and as JSON for programs. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weights.hpp"

namespace llm {

struct Report {
  std::string source;  ///< memory, mmap or tiermem.
  std::string model;
  std::string kernel;
  unsigned threads = 0;
  std::uint64_t model_bytes = 0;   ///< Bytes of all tensors.
  std::uint64_t budget_bytes = 0;  ///< DRAM budget of the weights.
  std::vector<std::uint32_t> prompt_ids;
  std::vector<std::uint32_t> tokens;
  std::string text;

  double prompt_seconds = 0;  ///< The first token's pass, and the first use of the weights.
  // Passes after the first, one for each further token:
  std::uint64_t passes = 0;
  double seconds = 0;
  double waiting_seconds = 0;
  std::optional<Traffic> traffic;  ///< According to the source.
  std::uint64_t read_bytes = 0;    ///< According to the kernel.
  std::uint64_t major_faults = 0;

  std::uint64_t peak_growth_bytes = 0;  ///< Resident memory above that without weights.

  double tokens_per_second() const noexcept {
    return seconds > 0 ? static_cast<double>(passes) / seconds : 0;
  }
  /// Bytes brought into memory for one token, demanded and prefetched, as a fraction of the model.
  double model_share() const noexcept;
  /// "streamed" if each token moves most of the model, "resident" if the weights stay.
  std::string_view verdict() const noexcept {
    return model_share() >= 0.7 ? "streamed" : "resident";
  }

  std::string table() const;
  /// Throws Failure (files) if it cannot be written.
  void write_json(const std::string& path) const;
};

}  // namespace llm
