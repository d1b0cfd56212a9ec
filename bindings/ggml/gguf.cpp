// Reads the headers of GGUF files through ggml.
#include "gguf.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "base/results.hpp"
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

// The end of the name of one of several files, as llama-gguf-split writes it. `part` counts from 0.
std::string ending_of(std::uint64_t part, std::uint64_t parts) {
  std::array<char, 64> text{};
  best_effort(std::snprintf(text.data(), text.size(), "-%05llu-of-%05llu.gguf",
                            static_cast<unsigned long long>(part) + 1,
                            static_cast<unsigned long long>(parts)),
              "two numbers fit");
  return text.data();
}

Failure refused(const std::string& path, const std::string& why) {
  return Failure(TM_INVALID_ARGUMENT, "tm_ggml_open: " + path + " " + why);
}

}  // namespace

// ---- A file ----

File::File(std::string path) : path_(std::move(path)) {
  descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat about {};
  if (descriptor_ < 0 || fstat(descriptor_, &about) != 0) {
    const std::string why = std::strerror(errno);
    throw Failure(TM_IO_ERROR, "tm_ggml_open: " + path_ + " cannot be opened: " + why);
  }
  bytes_ = static_cast<std::uint64_t>(about.st_size);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(other.bytes_) {}

File::~File() {
  if (descriptor_ >= 0) {
    best_effort(close(descriptor_), "the descriptor is gone in any case");
  }
}

bool File::has(std::uint64_t offset, const void* data, std::size_t bytes) const {
  std::string its(bytes, '\0');
  return pread(descriptor_, its.data(), bytes, static_cast<off_t>(offset)) ==
             static_cast<ssize_t>(bytes) &&
         std::memcmp(its.data(), data, bytes) == 0;
}

// ---- The headers ----

Gguf::Gguf(const Library& library, const std::string& path) {
  files.emplace_back(path);
  const std::uint64_t parts = read_header(library);
  const std::string ending = ending_of(0, parts);
  if (parts > 1 && !path.ends_with(ending)) {
    throw refused(path, "is the first of " + std::to_string(parts) +
                            " files of a model, which are found by their names; name it MODEL" +
                            ending + ", and the others in the same way");
  }
  for (std::uint64_t part = 1; part < parts; ++part) {
    files.emplace_back(path.substr(0, path.size() - ending.size()) + ending_of(part, parts));
    if (read_header(library) != parts) {
      throw refused(files.back().path(), "is not one of the " + std::to_string(parts) +
                                             " files of " + path +
                                             "; check that all are of one model");
    }
  }
  if (entries.empty()) {
    throw refused(path, "has no tensors; give the path of a model");
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.file, a.offset) < std::pair(b.file, b.offset);
  });
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto [first, is_new] = by_name.emplace(entries[i].name, i);
    if (!is_new) {
      throw refused(files[entries[i].file].path(),
                    "has tensor " + entries[i].name + ", as " +
                        files[entries[first->second].file].path() +
                        " has; check that all files are of one model");
    }
  }
}

std::uint64_t Gguf::read_header(const Library& library) {
  const Functions& call = library.call();
  const File& file = files.back();
  const std::unique_ptr<gguf_context, void (*)(gguf_context*)> header(
      call.gguf_init_from_file(file.path().c_str(), {true, nullptr}), call.gguf_free);
  if (header == nullptr) {
    throw refused(
        file.path(),
        "has no GGUF header that llama.cpp can read; check that the download is complete");
  }
  const auto number = [&](const std::string& key) -> std::uint64_t {
    const std::int64_t at = call.gguf_find_key(header.get(), key.c_str());
    const int kind = at < 0 ? -1 : call.gguf_get_kv_type(header.get(), at);
    return kind == kU16   ? call.gguf_get_val_u16(header.get(), at)
           : kind == kU32 ? call.gguf_get_val_u32(header.get(), at)
                          : 0;
  };
  const std::uint64_t parts = std::max<std::uint64_t>(number("split.count"), 1);
  if (const std::uint64_t part = number("split.no"); part != files.size() - 1) {
    throw refused(file.path(), "is part " + std::to_string(part + 1) + " of " +
                                   std::to_string(parts) + " of a model, in the place of part " +
                                   std::to_string(files.size()) +
                                   "; give the path of the first part, and rename no part");
  }
  const std::int64_t arch = call.gguf_find_key(header.get(), "general.architecture");
  if (arch >= 0 && call.gguf_get_kv_type(header.get(), arch) == kString) {
    const std::string name = call.gguf_get_val_str(header.get(), arch);
    experts = std::max(experts, static_cast<std::uint32_t>(number(name + ".expert_count")));
  }
  const std::uint64_t begin = call.gguf_get_data_offset(header.get());
  const std::int64_t count = call.gguf_get_n_tensors(header.get());
  for (std::int64_t i = 0; i < count; ++i) {
    Entry entry{call.gguf_get_tensor_name(header.get(), i),
                files.size() - 1,
                begin + call.gguf_get_tensor_offset(header.get(), i),
                call.gguf_get_tensor_size(header.get(), i),
                {}};
    if (entry.offset > file.bytes() || entry.bytes > file.bytes() - entry.offset) {
      throw refused(file.path(), "is cut: tensor " + entry.name + " ends at byte " +
                                     std::to_string(entry.offset + entry.bytes) +
                                     ", and the file has " + std::to_string(file.bytes()) +
                                     "; check that the download is complete");
    }
    if (experts > 1 && entry.bytes % experts == 0) {
      entry.layer = layer_of_experts(entry.name);
    }
    entries.push_back(std::move(entry));
  }
  return parts;
}

}  // namespace tiermem::ggml
