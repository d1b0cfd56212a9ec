// GGUF files as ggml's buffer type.
#include "weights.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/checked.hpp"
#include "base/results.hpp"
#include "failure.hpp"

namespace tiermem::ggml {
namespace {

constexpr std::uint64_t kExtent = 2 << 20, kSmallestExtent = 64 << 10;
constexpr std::uint64_t kMostAhead = 64 << 20;  // More than a device needs to be busy.
constexpr std::size_t kCompared = 64;           // Bytes at the begin of each tensor.
constexpr int kSuccess = 0, kFailed = -1;       // ggml_status.
constexpr std::string_view kRouter = "ffn_moe_topk-";

// Buffers of this library, by their address: ggml's callbacks name nothing else. Buffers are made
// and freed when models are.
std::mutex buffers_mutex;
std::unordered_map<const Buffer*, Weights*> buffers;

Weights* owner_of(const Buffer* buffer) {
  const std::lock_guard lock(buffers_mutex);
  const auto found = buffers.find(buffer);
  return found == buffers.end() ? nullptr : found->second;
}

std::string last_error() {
  tm_error_info info{};
  info.size = sizeof info;
  return tm_error(nullptr, 0, &info) == TM_OK ? info.text : "no message";
}

void must(tm_status status) {
  if (status != TM_OK) {
    throw Failure(status, "tm_ggml_open: " + last_error());
  }
}

tm_counters counters_of(tm_context* context) {
  tm_counters counters{};
  counters.size = sizeof counters;
  must(tm_stats(context, &counters));
  return counters;
}

// An expert's matrix should be several extents, so that little is read that no token needs.
std::uint64_t extent_for(const Gguf& model) {
  std::uint64_t part = 0;
  for (const Entry& entry : model.entries) {
    if (entry.layer) {
      part = std::max(part, entry.bytes / model.experts);
    }
  }
  return part == 0 ? kExtent : std::clamp(std::bit_floor(part / 4), kSmallestExtent, kExtent);
}

}  // namespace

Weights::Weights(tm_context* context, const std::string& path, const tm_ggml_options& options)
    : library_(options.library),
      context_(context),
      gguf_(library_, path),
      adopted_(context),
      extent_bytes_(options.extent_bytes != 0 ? options.extent_bytes : extent_for(gguf_)),
      ahead_((options.flags & TM_GGML_NO_AHEAD) == 0) {
  library_.make_type(type_, {[](BufferType*) { return "tiermem"; }, alloc_buffer}, this);
  const std::uint64_t budget = counters_of(context_).dram_budget;
  for (const File& file : gguf_.files) {
    adopt(file, options.flags);
    bytes_ += file.bytes();
  }
  if (ahead_) {
    const std::uint64_t ahead =
        options.ahead_bytes != 0 ? options.ahead_bytes : std::min(budget / 6, kMostAhead);
    plan_ = std::make_unique<Plan>(gguf_, context_, adopted_.parts,
                                   Plan::Limits{extent_bytes_, budget, ahead});
  }
}

void Weights::adopt(const File& file, std::uint32_t flags) {
  const std::string label = file.path().substr(file.path().find_last_of('/') + 1);
  tm_buffer_options how{};
  how.size = sizeof how;
  how.extent_bytes = extent_bytes_;
  // Pages of a private buffer are moved into the window as huge pages; those of a read-only one are
  // copied as small pages, which takes twice the processor time.
  how.flags = TM_MAPPED;
  if ((flags & TM_GGML_READ_ONLY) == 0) {
    how.flags |= TM_PRIVATE;
  }
  how.label = label.c_str();
  std::vector<Part>& parts = adopted_.parts;
  const std::uint64_t begin =
      parts.empty() ? 0 : round_up(parts.back().begin + parts.back().bytes, extent_bytes_);
  parts.push_back({0, nullptr, file.bytes(), begin});
  Part& part = parts.back();
  must(tm_adopt_file(context_, file.path().c_str(), 0, 0, &how, &part.buffer));
  void* address = nullptr;
  must(tm_address(context_, part.buffer, &address));
  part.base = static_cast<const char*>(address);
}

Weights::Adopted::~Adopted() {
  for (const Part& part : parts) {
    (void)tm_free(context, part.buffer);  // TM_SHUT_DOWN after the end of the context.
  }
}

const Part* Weights::part_of(const void* data) const {
  const auto found = std::find_if(adopted_.parts.begin(), adopted_.parts.end(),
                                  [&](const Part& part) { return part.has(data); });
  return found == adopted_.parts.end() ? nullptr : &*found;
}

void Weights::complain(const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (complaint_.empty()) {
    complaint_ = what;
  }
}

void Weights::check() {
  const std::lock_guard lock(mutex_);
  if (!complaint_.empty()) {
    throw Failure(TM_INVALID_ARGUMENT, "tm_ggml_check: " + complaint_);
  }
  if (placed_ == 0) {
    throw Failure(TM_INVALID_ARGUMENT, "tm_ggml_check: llama.cpp has placed no tensor in " +
                                           gguf_.files.front().path() +
                                           "; pass the buffer type in tensor_buft_overrides");
  }
}

// ---- The buffer type ----

Buffer* Weights::alloc_buffer(BufferType* type, std::size_t bytes) {
  auto& self = *static_cast<Weights*>(Library::owner_of(type));
  // At least a page: ggml asks for empty buffers to see what a device supports.
  const std::size_t length = std::max<std::size_t>(bytes, 4096);
  void* const base =
      mmap(nullptr, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return nullptr;
  }
  Buffer* const buffer =
      self.library_.make_buffer(type, base, length, {free_buffer, init_tensor, set_tensor});
  if (buffer == nullptr) {
    best_effort(munmap(base, length), "address space without memory is left");
    return nullptr;
  }
  try {
    const std::lock_guard lock(buffers_mutex);
    buffers[buffer] = &self;
  } catch (const std::exception&) {
    self.library_.call().ggml_backend_buffer_free(buffer);
    best_effort(munmap(base, length), "address space without memory is left");
    return nullptr;
  }
  return buffer;
}

void Weights::free_buffer(Buffer* buffer) {
  Weights* const self = owner_of(buffer);
  if (self == nullptr) {
    return;
  }
  const Functions& call = self->library_.call();
  best_effort(
      munmap(call.ggml_backend_buffer_get_base(buffer), call.ggml_backend_buffer_get_size(buffer)),
      "address space without memory is left");
  const std::lock_guard lock(buffers_mutex);
  buffers.erase(buffer);
}

int Weights::init_tensor(Buffer* buffer, Tensor* tensor) {
  Weights* const self = owner_of(buffer);
  if (self == nullptr || self->part_of(self->library_.data(tensor)) != nullptr) {
    return kSuccess;  // A view of a tensor that was placed before.
  }
  const char* const name = self->library_.name(tensor);
  const auto found = self->gguf_.by_name.find(name);
  if (found == self->gguf_.by_name.end()) {
    self->complain("llama.cpp needs tensor " + std::string(name) + ", and " +
                   self->gguf_.files.front().path() +
                   " has none of this name; load the adopted file, with lazy_mode off");
    return kFailed;
  }
  const Entry& entry = self->gguf_.entries[found->second];
  if (self->library_.call().ggml_nbytes(tensor) != entry.bytes) {
    self->complain("llama.cpp loads tensor " + entry.name + " with " +
                   std::to_string(self->library_.call().ggml_nbytes(tensor)) + " bytes, and " +
                   self->gguf_.files[entry.file].path() + " has " + std::to_string(entry.bytes) +
                   "; load the adopted file");
    return kFailed;
  }
  self->library_.set_data(tensor,
                          const_cast<char*>(self->adopted_.parts[entry.file].base) + entry.offset);
  const std::lock_guard lock(self->mutex_);
  ++self->placed_;
  return kSuccess;
}

// The loader copies the tensor's bytes from its own mapping of the file. They are here already:
// only whether it is the same file is checked, by the first bytes of each tensor.
void Weights::set_tensor(Buffer* buffer, Tensor* tensor, const void* data, std::size_t offset,
                         std::size_t bytes) {
  Weights* const self = owner_of(buffer);
  if (self == nullptr) {
    return;
  }
  const auto* const at = static_cast<const char*>(self->library_.data(tensor)) + offset;
  const Part* const part = self->part_of(at);
  if (part == nullptr) {
    return;
  }
  const File& file =
      self->gguf_.files[static_cast<std::size_t>(part - self->adopted_.parts.data())];
  if (!file.has(static_cast<std::uint64_t>(at - part->base), data, std::min(bytes, kCompared))) {
    self->complain("llama.cpp loads tensor " + std::string(self->library_.name(tensor)) +
                   " with other bytes than " + file.path() + " has; load the adopted file");
  }
}

// ---- The evaluation ----

bool Weights::eval(Tensor* tensor, bool ask) {
  if (plan_ == nullptr) {
    return !ask;  // No node is needed.
  }
  if (!ask && pacer_ != nullptr) {
    pacer_->stop();  // Without the lock, which the pacer takes.
  }
  const std::lock_guard lock(mutex_);
  if (ask) {
    const bool report = announce(tensor);
    begins_ = {};
    return report;
  }
  begins_ = std::this_thread::get_id();
  route(tensor);
  plan_->computed();
  return true;
}

// Returns whether ggml should report the end of the operation.
bool Weights::announce(const Tensor* tensor) {
  if (gguf_.experts != 0 && std::string_view(library_.name(tensor)).starts_with(kRouter)) {
    return true;
  }
  if (!plan_->streams()) {
    return false;
  }
  const std::string before = std::exchange(last_, library_.name(tensor));
  bool report = reports_.count(last_) != 0;
  for (unsigned i = 0; i < 2; ++i) {
    const Tensor* const source = library_.source(tensor, i);
    if (source == nullptr || part_of(library_.data(source)) == nullptr) {
      continue;
    }
    const std::string_view what = library_.call().ggml_op_desc(tensor);
    const auto found = gguf_.by_name.find(library_.name(source));
    if (what != "GET_ROWS" && what != "MUL_MAT_ID" && found != gguf_.by_name.end()) {
      report = plan_->will_use(found->second) || report;
      if (i == 0 && what == "MUL_MAT" && plan_->is_large(found->second)) {
        reports_.insert(before);
        watch(tensor, found->second);
      }
    }
  }
  return report;
}

// Follows the product of a large matrix and one vector. Nothing may use its result before: it is
// the first operation that ggml computes after the last report.
void Weights::watch(const Tensor* product, std::size_t entry) {
  const auto rows = static_cast<std::size_t>(library_.length(product, 0));
  if (begins_ != std::this_thread::get_id() ||
      library_.call().ggml_nbytes(product) != rows * sizeof(float) ||
      library_.stride(product, 0) != sizeof(float) || !library_.is_in_host_memory(product)) {
    return;
  }
  if (pacer_ == nullptr) {
    pacer_ = std::make_unique<Pacer>([this](std::size_t done) {
      const std::lock_guard lock(mutex_);
      plan_->computed_but(watched_, gguf_.entries[watched_].bytes / watched_rows_ * done);
    });
  }
  watched_ = entry;
  watched_rows_ = rows;
  pacer_->watch(static_cast<float*>(library_.data(product)), rows);
}

void Weights::route(const Tensor* tensor) {
  const std::string_view name = library_.name(tensor);
  if (!name.starts_with(kRouter)) {
    return;
  }
  std::uint32_t layer = 0;
  for (const char digit : name.substr(kRouter.size())) {
    if (digit < '0' || digit > '9') {
      return;
    }
    layer = 10 * layer + static_cast<std::uint32_t>(digit - '0');
  }
  if (!plan_->has_experts(layer)) {
    return;
  }
  // A view: `used` ids of each token, with a stride. It may be in a device's memory.
  const auto used = static_cast<std::size_t>(library_.length(tensor, 0));
  const auto tokens = static_cast<std::size_t>(library_.length(tensor, 1));
  scratch_.resize(library_.call().ggml_nbytes(tensor));
  library_.call().ggml_backend_tensor_get(tensor, scratch_.data(), 0, scratch_.size());
  ids_.resize(used * tokens);
  for (std::size_t token = 0; token < tokens; ++token) {
    std::memcpy(ids_.data() + token * used, scratch_.data() + token * library_.stride(tensor, 1),
                used * sizeof(std::int32_t));
  }
  plan_->routed(layer, ids_);
}

void Weights::count(tm_ggml_counters& out) {
  const std::lock_guard lock(mutex_);
  out.bytes = bytes_;
  out.files = gguf_.files.size();
  out.tensors = placed_;
  out.extent_bytes = extent_bytes_;
  if (plan_ != nullptr) {
    out.expert_bytes = plan_->expert_bytes();
    out.kept_bytes = plan_->kept_bytes();
    out.routed = plan_->routed();
    out.ahead_bytes = plan_->ahead_bytes();
    out.ahead_calls = plan_->ahead_calls();
  }
}

}  // namespace tiermem::ggml
