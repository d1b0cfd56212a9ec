// Model: Gemma 3's forward pass with a KV cache. One thread uses it, and passes a Team for the
// matrices. It requests one part after the other from Weights and holds one at a time. Beside a
// part it needs only its own memory: activations and cache, allocated once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config.hpp"
#include "kernels.hpp"
#include "layout.hpp"
#include "rotation.hpp"
#include "team.hpp"
#include "weights.hpp"

namespace llm {

class Model {
 public:
  /// `positions`: the maximum number of tokens of prompt and answer together.
  Model(const Config& config, const Layout& layout, Dot dot, Team& team, std::size_t positions);

  /// Processes the tokens that follow those of earlier calls, in one pass over the weights. Returns
  /// the logits of the token after them, valid until the next call.
  std::span<const float> forward(std::span<const std::uint32_t> tokens, Weights& weights);

  std::size_t position() const noexcept { return position_; }

 private:
  /// Activations of the tokens of one pass: row t is token t, `width` values each.
  struct Rows {
    std::size_t width;
    std::vector<float> values;
    Rows(std::size_t count, std::size_t width_) : width(width_), values(count * width_) {}
    std::span<float> operator[](std::size_t t) { return {values.data() + t * width, width}; }
  };

  void embed(std::span<const std::uint32_t> tokens, Weights& weights);
  void note_likeliest(const OutputChunk& chunk, const std::byte* rows);
  void attention(std::size_t number, const std::byte* part, std::size_t count);
  void feed_forward(std::size_t number, const std::byte* part, std::size_t count);
  void attend(std::size_t number, std::size_t t);
  void project(const std::byte* matrix, Rows& from, Rows& to, std::size_t count);
  void norm_heads(std::span<float> heads, const std::byte* weight) const;
  void turn_heads(std::size_t layer, std::span<float> heads, std::size_t position) const;
  void norm_rows(Rows& from, const std::byte* weight, Rows& to, std::size_t count) const;
  void add_normed(Rows& change, const std::byte* weight, std::size_t count);

  const Config& config_;
  const Layout& layout_;
  const Dot dot_;
  Team& team_;
  const Rotation local_, global_;

  std::size_t position_ = 0;  // Tokens already in the cache.
  Rows stream_, normed_, query_, key_, value_, mixed_, gate_, up_, change_;
  std::vector<Rows> keys_, values_;  // The cache: for each layer, a row for each position.
  std::size_t likeliest_ = 0;  // The largest of the logits so far; its row of the matrix is noted.
  std::vector<f16> embedding_row_, likeliest_row_, output_norm_;
  std::vector<float> logits_;
};

}  // namespace llm
