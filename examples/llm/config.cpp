// Reading config.json, which convert.py wrote from the GGUF metadata.
#include "config.hpp"

#include <fstream>

#include <nlohmann/json.hpp>

#include "failure.hpp"

namespace llm {

Config read_config(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw Failure(Exit::files, path + ": cannot be opened; examples/llm/prepare makes it");
  }
  Config c;
  try {
    const auto json = nlohmann::json::parse(file);
    json.at("name").get_to(c.name);
    json.at("vocabulary").get_to(c.vocabulary);
    json.at("width").get_to(c.width);
    json.at("layers").get_to(c.layers);
    json.at("feed_forward").get_to(c.feed_forward);
    json.at("heads").get_to(c.heads);
    json.at("kv_heads").get_to(c.kv_heads);
    json.at("head_width").get_to(c.head_width);
    json.at("sliding_window").get_to(c.sliding_window);
    json.at("global_layer_period").get_to(c.global_layer_period);
    json.at("rope_base_global").get_to(c.rope_base_global);
    json.at("rope_base_local").get_to(c.rope_base_local);
    json.at("rms_epsilon").get_to(c.rms_epsilon);
    json.at("embedding_scale").get_to(c.embedding_scale);
    json.at("context").get_to(c.context);
    json.at("end_tokens").get_to(c.end_tokens);
  } catch (const nlohmann::json::exception& error) {
    throw Failure(Exit::files, path + ": " + error.what());
  }
  const bool sound = c.vocabulary > 0 && c.width > 0 && c.layers > 0 && c.feed_forward > 0 &&
                     c.kv_heads > 0 && c.heads > 0 && c.heads % c.kv_heads == 0 &&
                     c.head_width > 0 && c.head_width % 2 == 0 && c.sliding_window > 0 &&
                     c.global_layer_period > 0 && c.context > 0;
  if (!sound) {
    throw Failure(Exit::files, path +
                                   ": a size is zero, heads is not a multiple of kv_heads, or "
                                   "head_width is odd");
  }
  return c;
}

}  // namespace llm
