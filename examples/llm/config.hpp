// Config: the shape of a Gemma 3 network, as in config.json. Plain values, constant once read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace llm {

struct Config {
  std::string name;
  std::size_t vocabulary = 0;
  std::size_t width = 0;  ///< Width of the residual stream.
  std::size_t layers = 0;
  std::size_t feed_forward = 0;
  std::size_t heads = 0;
  std::size_t kv_heads = 0;        ///< Divides heads: several query heads share one key head.
  std::size_t head_width = 0;      ///< Even: RoPE rotates the first half against the second.
  std::size_t sliding_window = 0;  ///< Tokens that a local layer sees, including the current one.
  std::size_t global_layer_period = 0;  ///< Every layer with this period sees all tokens.
  float rope_base_global = 0;
  float rope_base_local = 0;
  float rms_epsilon = 0;
  float embedding_scale = 0;
  std::size_t context = 0;  ///< Positions the model was trained for.
  std::vector<std::uint32_t> end_tokens;

  bool is_global(std::size_t layer) const noexcept {
    return (layer + 1) % global_layer_period == 0;
  }
  std::size_t query_width() const noexcept { return heads * head_width; }
  std::size_t kv_width() const noexcept { return kv_heads * head_width; }
};

/// Throws Failure (files) if a value is missing or absurd.
Config read_config(const std::string& path);

}  // namespace llm
