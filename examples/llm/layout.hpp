// Layout: the positions of a Gemma 3's tensors in the file, and the order in which a token uses
// them. Constant after construction.
//
// The unit of use is a *part*: a range of the file that is held as a whole during computation with
// it. The order of parts is the same for every token: layer 0, 1, …, and then the output matrix in
// chunks of whole rows. The output matrix is the embedding matrix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "config.hpp"
#include "safetensors.hpp"

namespace llm {

/// One layer's part, and where its tensors begin, as offsets from the part's first byte.
struct LayerLayout {
  ByteRange part;
  std::uint64_t attn_norm, attn_q, attn_k, attn_v, attn_q_norm, attn_k_norm, attn_output;
  std::uint64_t post_attention_norm, ffn_norm, ffn_gate, ffn_up, ffn_down, post_ffw_norm;
};

/// One part of the output matrix: rows [first, first + count).
struct OutputChunk {
  ByteRange part;
  std::size_t first, count;
};

struct Layout {
  /// Throws Failure (files) if the file is not this model, or the tensors of a layer are not
  /// neighbours.
  Layout(const Config& config, const Safetensors& file, std::uint64_t chunk_bytes);

  /// All parts in the order of their use, which is the same for every token.
  std::vector<ByteRange> parts() const;
  /// Row `token` of the embedding matrix.
  ByteRange embedding_row(std::uint32_t token) const noexcept;

  std::vector<LayerLayout> layers;
  ByteRange output_norm;
  ByteRange embedding;
  std::uint64_t row_bytes;
  std::vector<OutputChunk> chunks;
};

}  // namespace llm
