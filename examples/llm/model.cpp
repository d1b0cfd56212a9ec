// One pass: embed, then every layer's attention and feed-forward, then the output matrix.
// Gemma 3 in particular: a norm before *and* after each half layer, norms on the heads of query and
// key, GELU-gated feed-forward, a sliding window in five layers of six, tied embeddings.
#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace llm {
namespace {

const f16* as_f16(const std::byte* bytes) noexcept {
  return reinterpret_cast<const f16*>(bytes);
}

float dot_floats(std::span<const float> a, std::span<const float> b) noexcept {
  constexpr std::size_t kSums = 8;  // Independent sums let the compiler use vectors.
  float sums[kSums] = {};
  std::size_t i = 0;
  for (; i + kSums <= a.size(); i += kSums) {
    for (std::size_t j = 0; j < kSums; ++j) {
      sums[j] += a[i + j] * b[i + j];
    }
  }
  for (; i < a.size(); ++i) {
    sums[0] += a[i] * b[i];
  }
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

}  // namespace

Model::Model(const Config& config, const Layout& layout, Dot dot, Team& team, std::size_t positions)
    : config_(config),
      layout_(layout),
      dot_(dot),
      team_(team),
      local_(config.rope_base_local, config.head_width, positions),
      global_(config.rope_base_global, config.head_width, positions),
      stream_(positions, config.width),
      normed_(positions, config.width),
      query_(positions, config.query_width()),
      key_(positions, config.kv_width()),
      value_(positions, config.kv_width()),
      mixed_(positions, config.query_width()),
      gate_(positions, config.feed_forward),
      up_(positions, config.feed_forward),
      change_(positions, config.width),
      keys_(config.layers, Rows(positions, config.kv_width())),
      values_(config.layers, Rows(positions, config.kv_width())),
      embedding_row_(config.width),
      likeliest_row_(config.width),
      output_norm_(config.width),
      logits_(config.vocabulary) {}

std::span<const float> Model::forward(std::span<const std::uint32_t> tokens, Weights& weights) {
  const std::size_t count = tokens.size();
  embed(tokens, weights);

  std::size_t part = 0;
  for (std::size_t number = 0; number < config_.layers; ++number) {
    const Lease layer = weights.take(part++);
    attention(number, layer.data, count);
    feed_forward(number, layer.data, count);
  }

  // Only the successor of the last token is needed.
  weights.read(layout_.output_norm, output_norm_.data());
  const std::span<float> last = normed_[0];
  rms_norm(stream_[count - 1], output_norm_.data(), config_.rms_epsilon, last.data());
  for (const OutputChunk& chunk : layout_.chunks) {
    const Lease rows = weights.take(part++);
    team_.run(chunk.count, [&](std::size_t begin, std::size_t end) {
      for (std::size_t row = begin; row < end; ++row) {
        const std::byte* at = rows.data + row * layout_.row_bytes;
        logits_[chunk.first + row] = dot_(as_f16(at), last.data(), last.size());
      }
    });
    note_likeliest(chunk, rows.data);
  }
  position_ += count;
  return logits_;
}

void Model::embed(std::span<const std::uint32_t> tokens, Weights& weights) {
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const bool noted = position_ > 0 && tokens[t] == likeliest_;
    if (!noted) {
      weights.read(layout_.embedding_row(tokens[t]), embedding_row_.data());
    }
    const std::vector<f16>& row = noted ? likeliest_row_ : embedding_row_;
    std::transform(row.begin(), row.end(), stream_[t].begin(),
                   [&](f16 value) { return to_float(value) * config_.embedding_scale; });
  }
}

// The output matrix is the embedding matrix, so the most probable next token's row is in memory
// now. Reading it later would be a wait at the beginning of the pass, when there is nothing else to
// compute.
void Model::note_likeliest(const OutputChunk& chunk, const std::byte* rows) {
  const auto begin = logits_.begin() + static_cast<std::ptrdiff_t>(chunk.first);
  const auto best = std::max_element(begin, begin + static_cast<std::ptrdiff_t>(chunk.count));
  if (chunk.first == 0 || *best > logits_[likeliest_]) {
    likeliest_ = static_cast<std::size_t>(best - logits_.begin());
    const f16* row = as_f16(rows + (likeliest_ - chunk.first) * layout_.row_bytes);
    std::copy_n(row, likeliest_row_.size(), likeliest_row_.begin());
  }
}

void Model::attention(std::size_t number, const std::byte* part, std::size_t count) {
  const LayerLayout& at = layout_.layers[number];
  norm_rows(stream_, part + at.attn_norm, normed_, count);
  project(part + at.attn_q, normed_, query_, count);
  project(part + at.attn_k, normed_, key_, count);
  project(part + at.attn_v, normed_, value_, count);

  for (std::size_t t = 0; t < count; ++t) {
    const std::size_t position = position_ + t;
    norm_heads(query_[t], part + at.attn_q_norm);
    norm_heads(key_[t], part + at.attn_k_norm);
    turn_heads(number, query_[t], position);
    turn_heads(number, key_[t], position);
    std::ranges::copy(key_[t], keys_[number][position].begin());
    std::ranges::copy(value_[t], values_[number][position].begin());
  }
  team_.run(count, [&](std::size_t begin, std::size_t end) {
    for (std::size_t t = begin; t < end; ++t) {
      attend(number, t);
    }
  });

  project(part + at.attn_output, mixed_, change_, count);
  add_normed(change_, part + at.post_attention_norm, count);
}

// Token t attends to the cache: every head mixes the values by how well keys match its query.
void Model::attend(std::size_t number, std::size_t t) {
  const std::size_t width = config_.head_width;
  const std::size_t end = position_ + t + 1;
  const bool all = config_.is_global(number) || end <= config_.sliding_window;
  const std::size_t begin = all ? 0 : end - config_.sliding_window;
  const float scale = 1.0f / std::sqrt(static_cast<float>(width));
  std::vector<float> match(end - begin);

  for (std::size_t head = 0; head < config_.heads; ++head) {
    const std::size_t kv = head / (config_.heads / config_.kv_heads) * width;
    const std::span<const float> query = query_[t].subspan(head * width, width);
    const std::span<float> mixed = mixed_[t].subspan(head * width, width);
    for (std::size_t p = begin; p < end; ++p) {
      match[p - begin] = dot_floats(query, keys_[number][p].subspan(kv, width)) * scale;
    }
    softmax(match);
    std::ranges::fill(mixed, 0.0f);
    for (std::size_t p = begin; p < end; ++p) {
      const std::span<const float> value = values_[number][p].subspan(kv, width);
      for (std::size_t i = 0; i < width; ++i) {
        mixed[i] += match[p - begin] * value[i];
      }
    }
  }
}

void Model::feed_forward(std::size_t number, const std::byte* part, std::size_t count) {
  const LayerLayout& at = layout_.layers[number];
  norm_rows(stream_, part + at.ffn_norm, normed_, count);
  project(part + at.ffn_gate, normed_, gate_, count);
  project(part + at.ffn_up, normed_, up_, count);
  for (std::size_t t = 0; t < count; ++t) {
    geglu(gate_[t], up_[t].data());
  }
  project(part + at.ffn_down, gate_, change_, count);
  add_normed(change_, part + at.post_ffw_norm, count);
}

// to[t] = matrix · from[t] for all tokens. A thread's piece of rows fits into its cache, so the
// matrix is read from memory only once, for any number of tokens.
void Model::project(const std::byte* matrix, Rows& from, Rows& to, std::size_t count) {
  const std::size_t row_bytes = from.width * sizeof(f16);
  team_.run(to.width, [&](std::size_t begin, std::size_t end) {
    for (std::size_t t = 0; t < count; ++t) {
      for (std::size_t row = begin; row < end; ++row) {
        to[t][row] = dot_(as_f16(matrix + row * row_bytes), from[t].data(), from.width);
      }
    }
  });
}

void Model::norm_heads(std::span<float> heads, const std::byte* weight) const {
  for (std::size_t i = 0; i < heads.size(); i += config_.head_width) {
    const std::span<float> head = heads.subspan(i, config_.head_width);
    rms_norm(head, as_f16(weight), config_.rms_epsilon, head.data());
  }
}

void Model::turn_heads(std::size_t layer, std::span<float> heads, std::size_t position) const {
  const Rotation& rotation = config_.is_global(layer) ? global_ : local_;
  for (std::size_t i = 0; i < heads.size(); i += config_.head_width) {
    rotation.turn(heads.subspan(i, config_.head_width), position);
  }
}

void Model::norm_rows(Rows& from, const std::byte* weight, Rows& to, std::size_t count) const {
  for (std::size_t t = 0; t < count; ++t) {
    rms_norm(from[t], as_f16(weight), config_.rms_epsilon, to[t].data());
  }
}

void Model::add_normed(Rows& change, const std::byte* weight, std::size_t count) {
  norm_rows(change, weight, change, count);
  for (std::size_t t = 0; t < count; ++t) {
    std::ranges::transform(stream_[t], change[t], stream_[t].begin(), std::plus<float>());
  }
}

}  // namespace llm
