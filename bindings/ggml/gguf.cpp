// Reads the header of a GGUF file through ggml.
#include "gguf.hpp"

#include <algorithm>
#include <charconv>
#include <memory>
#include <string_view>

#include "failure.hpp"

namespace tiermem::ggml {
namespace {

constexpr int kU16 = 2, kU32 = 4, kString = 8;  // Types of the GGUF format.

// The layer of a tensor with routed experts: blk.N.ffn_{gate,up,gate_up,down}_exps.weight.
std::optional<std::uint32_t> layer_of_experts(std::string_view name) {
  constexpr std::string_view kBegin = "blk.", kEnd = "_exps.weight";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) {
    return std::nullopt;
  }
  std::uint32_t layer = 0;
  const char* const first = name.data() + kBegin.size();
  const auto [rest, error] = std::from_chars(first, name.data() + name.size(), layer);
  if (error != std::errc() || rest == first) {
    return std::nullopt;
  }
  return layer;
}

}  // namespace

Gguf::Gguf(const Library& library, const std::string& path, std::uint64_t file_bytes) {
  const Functions& call = library.call();
  const auto fail = [&path](const std::string& what) {
    return Failure(TM_INVALID_ARGUMENT, "tm_ggml_open: " + path + " " + what);
  };
  const std::unique_ptr<gguf_context, void (*)(gguf_context*)> header(
      call.gguf_init_from_file(path.c_str(), {true, nullptr}), call.gguf_free);
  if (header == nullptr) {
    throw fail("has no GGUF header that llama.cpp can read; check that the download is complete");
  }
  const auto number = [&](const std::string& key) -> std::uint64_t {
    const std::int64_t at = call.gguf_find_key(header.get(), key.c_str());
    const int kind = at < 0 ? -1 : call.gguf_get_kv_type(header.get(), at);
    return kind == kU16   ? call.gguf_get_val_u16(header.get(), at)
           : kind == kU32 ? call.gguf_get_val_u32(header.get(), at)
                          : 0;
  };
  if (const std::uint64_t parts = number("split.count"); parts > 1) {
    throw fail("is one of " + std::to_string(parts) +
               " parts of a model, and one file is accepted; merge them with llama-gguf-split "
               "--merge");
  }
  const std::int64_t arch = call.gguf_find_key(header.get(), "general.architecture");
  if (arch >= 0 && call.gguf_get_kv_type(header.get(), arch) == kString) {
    const std::string name = call.gguf_get_val_str(header.get(), arch);
    experts = static_cast<std::uint32_t>(number(name + ".expert_count"));
  }
  const std::uint64_t begin = call.gguf_get_data_offset(header.get());
  const std::int64_t count = call.gguf_get_n_tensors(header.get());
  for (std::int64_t i = 0; i < count; ++i) {
    Entry entry{call.gguf_get_tensor_name(header.get(), i),
                begin + call.gguf_get_tensor_offset(header.get(), i),
                call.gguf_get_tensor_size(header.get(), i),
                {}};
    if (entry.offset > file_bytes || entry.bytes > file_bytes - entry.offset) {
      throw fail("is cut: tensor " + entry.name + " ends at byte " +
                 std::to_string(entry.offset + entry.bytes) + ", and the file has " +
                 std::to_string(file_bytes) + "; check that the download is complete");
    }
    if (experts > 1 && entry.bytes % experts == 0) {
      entry.layer = layer_of_experts(entry.name);
    }
    entries.push_back(std::move(entry));
  }
  if (entries.empty()) {
    throw fail("has no tensors; give the path of a model");
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.offset < b.offset; });
  for (std::size_t i = 0; i < entries.size(); ++i) {
    by_name[entries[i].name] = i;
  }
}

}  // namespace tiermem::ggml
