// One class reads and counts lines; each format has one function. See trace.hpp.
#include "policy/trace.hpp"

#include <algorithm>
#include <charconv>
#include <exception>
#include <optional>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace tiermem {

namespace {

constexpr std::uint64_t kTensorBlock = std::uint64_t{2} << 20;

std::string_view without_ending(std::string_view name, std::string_view ending) {
  return name.ends_with(ending) ? name.substr(0, name.size() - ending.size()) : name;
}

/// Removes the next word from `rest` and returns it; empty at the end.
std::string_view next_word(std::string_view& rest) {
  const std::size_t start = rest.find_first_not_of(" \t\r");
  if (start == std::string_view::npos) {
    rest = {};
    return {};
  }
  const std::size_t stop = std::min(rest.find_first_of(" \t\r", start), rest.size());
  const std::string_view word = rest.substr(start, stop - start);
  rest.remove_prefix(stop);
  return word;
}

std::optional<std::uint64_t> number(std::string_view word) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (word.empty() || error != std::errc() || end != word.data() + word.size()) {
    return std::nullopt;
  }
  return value;
}

class Parser {
 public:
  Parser(std::string_view file_name, const TraceLimits& limits)
      : file_(file_name), limits_(limits) {}

  Result<Trace> parse(std::string_view bytes) {
    std::string_view name = without_ending(without_ending(file_, ".gz"), ".zst");
    Status (Parser::*line)(std::string_view) = nullptr;
    if (name.ends_with(".lis")) {
      line = &Parser::lis;
    } else if (name.ends_with(".trace")) {
      line = &Parser::lirs;
    } else if (name.ends_with(".jsonl")) {
      line = &Parser::mooncake;
    } else if (name.ends_with(".ttrace")) {
      line = &Parser::tensor;
      trace_.block_bytes_hint = kTensorBlock;
      trace_.one_step = true;
    } else {
      return fail(Code::invalid_argument,
                  "trace {}: unknown kind; accepted are names ending in .lis, .trace, .jsonl or "
                  ".ttrace, then .gz or .zst if compressed",
                  shown(file_));
    }
    while (!bytes.empty()) {
      ++line_;
      const std::size_t stop = std::min(bytes.find('\n'), bytes.size());
      std::string_view text = bytes.substr(0, stop);
      bytes.remove_prefix(std::min(stop + 1, bytes.size()));
      if (text.ends_with('\r')) {
        text.remove_suffix(1);
      }
      if (text.find_first_not_of(" \t") != std::string_view::npos) {
        if (Status status = (this->*line)(text); !status.ok()) {
          return status;
        }
      }
    }
    if (trace_.references.empty()) {
      return fail(Code::invalid_argument,
                  "trace {}: its {} lines hold no reference; name a trace that has some",
                  shown(file_), line_);
    }
    name = name.substr(name.find_last_of('/') + 1);
    trace_.name = name.substr(0, name.find_last_of('.'));
    return std::move(trace_);
  }

 private:
  static std::string_view shown(std::string_view text) { return text.substr(0, 60); }

  Status expected(std::string_view what, std::string_view found) const {
    return fail(Code::invalid_argument, "trace {}, line {}: expected {}, found '{}'", shown(file_),
                line_, what, shown(found));
  }
  Status too_many(std::string_view what, std::uint64_t limit) const {
    return fail(Code::no_capacity, "trace {}, line {}: more than {} {}; use a smaller part",
                shown(file_), line_, limit, what);
  }

  Status add(std::uint32_t block, bool write) {
    if (trace_.references.size() >= limits_.references) {
      return too_many("references", limits_.references);
    }
    trace_.references.push_back({block, write});
    return {};
  }
  /// Adds a block by the number that the file gives it.
  Status add_named(std::uint64_t id) {
    const auto [entry, is_new] = numbers_.try_emplace(id, trace_.blocks);
    if (is_new) {
      if (trace_.blocks >= limits_.blocks) {
        return too_many("blocks", limits_.blocks);
      }
      ++trace_.blocks;
    }
    return add(entry->second, false);
  }

  Status lis(std::string_view text) {
    std::string_view rest = text;
    const auto start = number(next_word(rest)), count = number(next_word(rest));
    const auto ignored = number(next_word(rest)), request = number(next_word(rest));
    if (!start || !count || !ignored || !request || !next_word(rest).empty()) {
      return expected("'start count ignored request', four numbers", text);
    }
    if (*count > ~*start) {
      return expected("a run of blocks that ends below 2^64", text);
    }
    for (std::uint64_t i = 0; i < *count; ++i) {
      if (Status status = add_named(*start + i); !status.ok()) {
        return status;
      }
    }
    return {};
  }

  Status lirs(std::string_view text) {
    std::string_view rest = text;
    const std::string_view word = next_word(rest);
    if (word.starts_with('*')) {
      return {};
    }
    const auto block = number(word);
    if (!block || !next_word(rest).empty()) {
      return expected("a block number, or * first", text);
    }
    return add_named(*block);
  }

  Status mooncake(std::string_view text) {
    const auto json = nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
    if (!json.is_object() || !json.contains("hash_ids") || !json["hash_ids"].is_array()) {
      return expected("a JSON object with an array \"hash_ids\"", text);
    }
    for (const auto& id : json["hash_ids"]) {
      if (!id.is_number_unsigned()) {
        return expected("numbers from 0 in \"hash_ids\"", text);
      }
      if (Status status = add_named(id.get<std::uint64_t>()); !status.ok()) {
        return status;
      }
    }
    trace_.request_ends.push_back(trace_.references.size());
    return {};
  }

  Status tensor(std::string_view text) {
    std::string_view rest = text;
    const std::string_view kind = next_word(rest);
    if (kind.starts_with('#')) {
      return {};
    }
    if (kind == "T") {
      return tensor_size(rest, text);
    }
    if (kind != "K" || !number(next_word(rest)) || !number(next_word(rest)) ||
        next_word(rest).empty()) {
      return expected("'# …', 'T id bytes persistent' or 'K number ns name r:… w:…'", text);
    }
    for (std::string_view word = next_word(rest); !word.empty(); word = next_word(rest)) {
      if (!word.starts_with("r:") && !word.starts_with("w:")) {
        return expected("'r:' or 'w:' and tensor ids with commas between", word);
      }
      if (Status status = tensor_uses(word.substr(2), word[0] == 'w'); !status.ok()) {
        return status;
      }
    }
    return {};
  }

  Status tensor_size(std::string_view rest, std::string_view text) {
    const auto id = number(next_word(rest)), bytes = number(next_word(rest));
    const std::string_view persistent = next_word(rest);
    if (!id || !bytes || (persistent != "0" && persistent != "1") || !next_word(rest).empty()) {
      return expected("'T id bytes persistent', persistent 0 or 1", text);
    }
    const std::uint64_t blocks = *bytes / kTensorBlock + (*bytes % kTensorBlock != 0 ? 1 : 0);
    if (blocks > limits_.blocks - trace_.blocks) {
      return too_many("blocks", limits_.blocks);
    }
    const Run run{trace_.blocks, static_cast<std::uint32_t>(blocks)};
    if (!tensors_.try_emplace(*id, run).second) {
      return expected("a tensor id that was not defined before", text);
    }
    trace_.blocks += run.count;
    return {};
  }

  Status tensor_uses(std::string_view ids, bool write) {
    while (!ids.empty()) {
      const std::size_t stop = std::min(ids.find(','), ids.size());
      const auto id = number(ids.substr(0, stop));
      const auto found = id ? tensors_.find(*id) : tensors_.end();
      if (found == tensors_.end()) {
        return expected("the id of a tensor defined above", ids.substr(0, stop));
      }
      for (std::uint32_t i = 0; i < found->second.count; ++i) {
        if (Status status = add(found->second.first + i, write); !status.ok()) {
          return status;
        }
      }
      ids.remove_prefix(std::min(stop + 1, ids.size()));
    }
    return {};
  }

  struct Run {
    std::uint32_t first, count;
  };

  const std::string_view file_;
  const TraceLimits limits_;
  std::uint64_t line_ = 0;
  Trace trace_;
  std::unordered_map<std::uint64_t, std::uint32_t> numbers_;
  std::unordered_map<std::uint64_t, Run> tensors_;
};

}  // namespace

Result<Trace> parse_trace(std::string_view file_name, std::string_view bytes,
                          const TraceLimits& limits) {
  try {
    TraceLimits bounded = limits;
    bounded.blocks = std::min<std::uint64_t>(limits.blocks, 0xFFFF'FFFE);
    return Parser(file_name, bounded).parse(bytes);
  } catch (const std::exception& error) {  // Only an allocation can fail here.
    return fail(Code::no_capacity,
                "trace {}: {} while parsing {}; free memory, or use a smaller part",
                file_name.substr(0, 60), error.what(), human_bytes(bytes.size()));
  }
}

}  // namespace tiermem
