// Finds a layer's tensors by their GGUF names, and checks every shape against the configuration.
#include "layout.hpp"

#include <algorithm>

#include "failure.hpp"
#include "kernels.hpp"

namespace llm {
namespace {

LayerLayout find_layer(const Config& c, const Safetensors& file, std::size_t number) {
  struct Wanted {
    const char* name;
    std::vector<std::uint64_t> shape;
    std::uint64_t LayerLayout::*offset;
  };
  const std::uint64_t query = c.query_width(), kv = c.kv_width();
  const Wanted wanted[] = {
      {"attn_norm", {c.width}, &LayerLayout::attn_norm},
      {"attn_q", {query, c.width}, &LayerLayout::attn_q},
      {"attn_k", {kv, c.width}, &LayerLayout::attn_k},
      {"attn_v", {kv, c.width}, &LayerLayout::attn_v},
      {"attn_q_norm", {c.head_width}, &LayerLayout::attn_q_norm},
      {"attn_k_norm", {c.head_width}, &LayerLayout::attn_k_norm},
      {"attn_output", {c.width, query}, &LayerLayout::attn_output},
      {"post_attention_norm", {c.width}, &LayerLayout::post_attention_norm},
      {"ffn_norm", {c.width}, &LayerLayout::ffn_norm},
      {"ffn_gate", {c.feed_forward, c.width}, &LayerLayout::ffn_gate},
      {"ffn_up", {c.feed_forward, c.width}, &LayerLayout::ffn_up},
      {"ffn_down", {c.width, c.feed_forward}, &LayerLayout::ffn_down},
      {"post_ffw_norm", {c.width}, &LayerLayout::post_ffw_norm},
  };
  LayerLayout layer{};
  std::uint64_t begin = file.file_bytes(), end = 0, sum = 0;
  for (const Wanted& tensor : wanted) {
    const std::string name = "blk." + std::to_string(number) + "." + tensor.name + ".weight";
    const ByteRange bytes = file.f16(name, tensor.shape);
    layer.*tensor.offset = bytes.offset;
    begin = std::min(begin, bytes.offset);
    end = std::max(end, bytes.end());
    sum += bytes.length;
  }
  if (end - begin != sum) {
    throw Failure(Exit::files, file.path() + ": the tensors of layer " + std::to_string(number) +
                                   " are not neighbours, so it cannot be held as one part");
  }
  for (const Wanted& tensor : wanted) {
    layer.*tensor.offset -= begin;
  }
  layer.part = {begin, sum};
  return layer;
}

}  // namespace

Layout::Layout(const Config& config, const Safetensors& file, std::uint64_t chunk_bytes)
    : output_norm(file.f16("output_norm.weight", {config.width})),
      embedding(file.f16("token_embd.weight", {config.vocabulary, config.width})),
      row_bytes(config.width * sizeof(f16)) {
  for (std::size_t i = 0; i < config.layers; ++i) {
    layers.push_back(find_layer(config, file, i));
  }
  const std::size_t rows = std::max<std::size_t>(1, chunk_bytes / row_bytes);
  for (std::size_t first = 0; first < config.vocabulary; first += rows) {
    const std::size_t count = std::min(rows, config.vocabulary - first);
    chunks.push_back({{embedding.offset + first * row_bytes, count * row_bytes}, first, count});
  }
}

std::vector<ByteRange> Layout::parts() const {
  std::vector<ByteRange> all;
  for (const LayerLayout& layer : layers) {
    all.push_back(layer.part);
  }
  for (const OutputChunk& chunk : chunks) {
    all.push_back(chunk.part);
  }
  return all;
}

ByteRange Layout::embedding_row(std::uint32_t token) const noexcept {
  return {embedding.offset + token * row_bytes, row_bytes};
}

}  // namespace llm
