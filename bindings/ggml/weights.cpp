// A GGUF file as ggml's buffer type.
#include "weights.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <utility>

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
std::uint64_t extent_for(const Gguf& file) {
  std::uint64_t part = 0;
  for (const Entry& entry : file.entries) {
    if (entry.layer) {
      part = std::max(part, entry.bytes / file.experts);
    }
  }
  return part == 0 ? kExtent : std::clamp(std::bit_floor(part / 4), kSmallestExtent, kExtent);
}

}  // namespace

Weights::Weights(tm_context* context, const std::string& path, const tm_ggml_options& options)
    : library_(options.library),
      context_(context),
      path_(path),
      ahead_((options.flags & TM_GGML_NO_AHEAD) == 0) {
  library_.make_type(type_, {[](BufferType*) { return "tiermem"; }, alloc_buffer}, this);
  descriptor_.number = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat about {};
  if (descriptor_.number < 0 || fstat(descriptor_.number, &about) != 0) {
    const std::string why = std::strerror(errno);
    throw Failure(TM_IO_ERROR, "tm_ggml_open: " + path + " cannot be opened: " + why);
  }
  bytes_ = static_cast<std::uint64_t>(about.st_size);
  gguf_ = std::make_unique<Gguf>(library_, path, bytes_);
  adopt(options);
}

Weights::Descriptor::~Descriptor() {
  if (number >= 0) {
    best_effort(close(number), "the descriptor is gone in any case");
  }
}

void Weights::adopt(const tm_ggml_options& options) {
  extent_bytes_ = options.extent_bytes != 0 ? options.extent_bytes : extent_for(*gguf_);
  const tm_counters counters = counters_of(context_);
  const std::string label = path_.substr(path_.find_last_of('/') + 1);
  tm_buffer_options how{};
  how.size = sizeof how;
  how.extent_bytes = extent_bytes_;
  // Pages of a private buffer are moved into the window as huge pages; those of a read-only one are
  // copied as small pages, which takes twice the processor time.
  how.flags = TM_MAPPED;
  if ((options.flags & TM_GGML_READ_ONLY) == 0) {
    how.flags |= TM_PRIVATE;
  }
  how.label = label.c_str();
  must(tm_adopt_file(context_, path_.c_str(), 0, 0, &how, &buffer_));
  try {
    void* address = nullptr;
    must(tm_address(context_, buffer_, &address));
    base_ = static_cast<const char*>(address);
    const std::uint64_t budget = counters.dram_budget;
    const std::uint64_t ahead =
        options.ahead_bytes != 0 ? options.ahead_bytes : std::min(budget / 6, kMostAhead);
    if (ahead_) {
      plan_ = std::make_unique<Plan>(*gguf_, context_, buffer_, bytes_,
                                     Plan::Limits{extent_bytes_, budget, ahead});
    }
  } catch (...) {
    (void)tm_free(context_, buffer_);
    throw;
  }
}

Weights::~Weights() {
  (void)tm_free(context_, buffer_);  // TM_SHUT_DOWN after the end of the context.
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
    throw Failure(TM_INVALID_ARGUMENT, "tm_ggml_check: llama.cpp has placed no tensor in " + path_ +
                                           "; pass the buffer type in tensor_buft_overrides");
  }
}

// ---- The buffer type
// -----------------------------------------------------------------------------

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
  if (self == nullptr || self->is_in_file(self->library_.data(tensor))) {
    return kSuccess;  // A view of a tensor that was placed before.
  }
  const char* const name = self->library_.name(tensor);
  const auto found = self->gguf_->by_name.find(name);
  if (found == self->gguf_->by_name.end()) {
    self->complain("llama.cpp needs tensor " + std::string(name) + ", and " + self->path_ +
                   " has none of this name; load the adopted file, with lazy_mode off");
    return kFailed;
  }
  const Entry& entry = self->gguf_->entries[found->second];
  if (self->library_.call().ggml_nbytes(tensor) != entry.bytes) {
    self->complain("llama.cpp loads tensor " + entry.name + " with " +
                   std::to_string(self->library_.call().ggml_nbytes(tensor)) + " bytes, and " +
                   self->path_ + " has " + std::to_string(entry.bytes) + "; load the adopted file");
    return kFailed;
  }
  self->library_.set_data(tensor, const_cast<char*>(self->base_) + entry.offset);
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
  const auto place = static_cast<const char*>(self->library_.data(tensor)) + offset - self->base_;
  char expected[kCompared];
  const std::size_t length = std::min(bytes, sizeof expected);
  if (pread(self->descriptor_.number, expected, length, place) != static_cast<ssize_t>(length) ||
      std::memcmp(expected, data, length) != 0) {
    self->complain("llama.cpp loads tensor " + std::string(self->library_.name(tensor)) +
                   " with other bytes than " + self->path_ + " has; load the adopted file");
  }
}

// ---- The evaluation
// ------------------------------------------------------------------------------

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
  if (gguf_->experts != 0 && std::string_view(library_.name(tensor)).starts_with(kRouter)) {
    return true;
  }
  if (!plan_->streams()) {
    return false;
  }
  const std::string before = std::exchange(last_, library_.name(tensor));
  bool report = reports_.count(last_) != 0;
  for (unsigned i = 0; i < 2; ++i) {
    const Tensor* const source = library_.source(tensor, i);
    if (source == nullptr || !is_in_file(library_.data(source))) {
      continue;
    }
    const std::string_view what = library_.call().ggml_op_desc(tensor);
    const auto found = gguf_->by_name.find(library_.name(source));
    if (what != "GET_ROWS" && what != "MUL_MAT_ID" && found != gguf_->by_name.end()) {
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
      plan_->computed_but(watched_, gguf_->entries[watched_].bytes / watched_rows_ * done);
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
