// Finds the functions of the loaded ggml, and the layout of its records.
#include "library.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/results.hpp"
#include "failure.hpp"

namespace tiermem::ggml {
namespace {

constexpr int kF32 = 0, kI32 = 26;  // Numbers of the GGUF format.

// Slots of ggml's functions for a buffer type and for a buffer.
constexpr std::size_t kTypeName = 0, kTypeAlloc = 1;
constexpr std::size_t kFree = 0, kInitTensor = 2, kSetTensor = 4;
// Functions of a buffer: 9 until, 11 since version 2 of the backend interface. Its type, its
// context and its size follow.
constexpr std::size_t kFewestFunctions = 9, kMostFunctions = 16;
constexpr std::size_t kTypeWords = 8;  // Six functions, the device, the context.

[[noreturn]] void refuse(const std::string& what) {
  throw Failure(TM_UNSUPPORTED, "tm_ggml_open: this llama.cpp is not supported: " + what +
                                    "; use a version that docs/python/llama.md lists");
}

void* find(void* handle, const char* name) {
  void* const found = dlsym(handle, name);
  if (found == nullptr) {
    refuse(std::string("it has no function ") + name);
  }
  return found;
}

struct Closer {
  void operator()(void* handle) const {
    best_effort(dlclose(handle), "the library stays loaded then, which changes nothing");
  }
};

// The offset of the only place before `end` where the record has these words.
template <class Word>
std::size_t place_of(const Tensor* record, const std::vector<Word>& words, std::size_t end,
                     const char* what) {
  const auto* const bytes = reinterpret_cast<const char*>(record);
  const std::size_t length = words.size() * sizeof(Word);
  std::optional<std::size_t> found;
  for (std::size_t at = 0; at + length <= end; at += sizeof(Word)) {
    if (std::memcmp(bytes + at, words.data(), length) == 0) {
      if (found) {
        refuse(std::string("its tensors have two places that may be `") + what + "`");
      }
      found = at;
    }
  }
  if (!found) {
    refuse(std::string("its tensors have no field `") + what + "`");
  }
  return *found;
}

}  // namespace

Library::Library(const void* address) {
  std::unique_ptr<void, Closer> opened;
  void* handle = RTLD_DEFAULT;
  if (address != nullptr) {
    Dl_info about{};
    if (dladdr(address, &about) == 0 || about.dli_fname == nullptr) {
      throw Failure(
          TM_INVALID_ARGUMENT,
          "tm_ggml_open: the address in `library` belongs to no loaded library; pass that "
          "of a function of llama.cpp, or NULL");
    }
    opened.reset(dlopen(about.dli_fname, RTLD_LAZY | RTLD_NOLOAD));
    if (opened == nullptr) {
      refuse(std::string("the loader does not find ") + about.dli_fname + " again");
    }
    handle = opened.get();
  }
#define TIERMEM_GGML_FIND(name, result, arguments) \
  functions_.name = reinterpret_cast<decltype(functions_.name)>(find(handle, #name));
  TIERMEM_GGML_FUNCTIONS(TIERMEM_GGML_FIND)
#undef TIERMEM_GGML_FIND
  find_layout();
}

void Library::find_layout() {
  const std::unique_ptr<ggml_context, void (*)(ggml_context*)> context(
      functions_.ggml_init({std::size_t{1} << 20, nullptr, false}), functions_.ggml_free);
  if (context == nullptr) {
    throw Failure(TM_NO_CAPACITY, "tm_ggml_open: ggml_init failed; free memory");
  }
  Tensor* const experts = functions_.ggml_new_tensor_3d(context.get(), kF32, 32, 7, 5);
  Tensor* const input = functions_.ggml_new_tensor_3d(context.get(), kF32, 32, 1, 3);
  Tensor* const ids = functions_.ggml_new_tensor_3d(context.get(), kI32, 2, 3, 1);
  Tensor* const product = functions_.ggml_mul_mat_id(context.get(), experts, input, ids);
  if (functions_.ggml_nbytes(experts) != std::size_t{4} * 32 * 7 * 5 ||
      std::strcmp(functions_.ggml_op_desc(product), "MUL_MAT_ID") != 0) {
    refuse("ggml_mul_mat_id makes another operation");
  }
  const char* const name = functions_.ggml_get_name(product);
  const auto* const begin = reinterpret_cast<const char*>(product);
  if (name < begin || name - begin > 4096) {
    refuse("the name of a tensor is not inside its record");
  }
  const auto end = static_cast<std::size_t>(name - begin);
  data_ = place_of<void*>(experts, {functions_.ggml_get_data(experts)}, end, "data");
  src_ = place_of<const void*>(product, {experts, input, ids}, end, "src");
  ne_ = place_of<std::int64_t>(experts, {32, 7, 5, 1}, end, "ne");
  nb_ = place_of<std::size_t>(experts, {4, 128, 896, 4480}, end, "nb");
  for (const Tensor* each : {experts, input, ids, product}) {
    if (at<void*>(each, data_) != functions_.ggml_get_data(each)) {
      refuse("`data` of its tensors is not where it was found");
    }
  }
}

void Library::make_type(OwnType& type, const TypeFunctions& own, void* owner) {
  BufferType* const model = functions_.ggml_backend_cpu_buffer_type();
  std::memcpy(type.words.data(), model, kTypeWords * sizeof(void*));
  if (type.words[kTypeName] == nullptr || type.words[kTypeAlloc] == nullptr) {
    refuse("its buffer types do not begin with get_name and alloc_buffer");
  }
  const auto their_name =
      reinterpret_cast<const char* (*)(BufferType*)>(type.words[kTypeName])(model);
  if (their_name != functions_.ggml_backend_buft_name(model)) {
    refuse("its buffer types do not begin with get_name");
  }
  type.words[kTypeName] = reinterpret_cast<void*>(own.name);
  type.words[kTypeAlloc] = reinterpret_cast<void*>(own.alloc);
  type.owner = owner;
  auto* const made = reinterpret_cast<BufferType*>(&type);
  if (functions_.ggml_backend_buft_name(made) != own.name(made) ||
      functions_.ggml_backend_buft_get_alignment(made) !=
          functions_.ggml_backend_buft_get_alignment(model) ||
      functions_.ggml_backend_buft_get_device(made) !=
          functions_.ggml_backend_buft_get_device(model) ||
      !functions_.ggml_backend_buft_is_host(made)) {
    refuse("a copy of its buffer type for the CPU does not behave like the original");
  }
  check_buffer(made);
}

Buffer* Library::make_buffer(BufferType* type, void* base, std::size_t bytes,
                             const BufferFunctions& own) const {
  Buffer* const buffer = functions_.ggml_backend_cpu_buffer_from_ptr(base, bytes);
  if (buffer == nullptr) {
    return nullptr;
  }
  auto* const words = reinterpret_cast<void**>(buffer);
  BufferType* const theirs = functions_.ggml_backend_buffer_get_type(buffer);
  std::size_t count = kFewestFunctions;
  const auto is_end = [&](std::size_t i) {
    return words[i] == theirs && words[i + 1] == base &&
           words[i + 2] == reinterpret_cast<void*>(bytes);
  };
  while (count < kMostFunctions && !is_end(count)) {
    ++count;
  }
  if (count == kMostFunctions || words[kFree] != nullptr || words[kInitTensor] != nullptr ||
      words[kSetTensor] == nullptr) {
    functions_.ggml_backend_buffer_free(buffer);
    return nullptr;
  }
  words[kFree] = reinterpret_cast<void*>(own.free);
  words[kInitTensor] = reinterpret_cast<void*>(own.init_tensor);
  words[kSetTensor] = reinterpret_cast<void*>(own.set_tensor);
  words[count] = type;
  return buffer;
}

void Library::check_buffer(BufferType* type) {
  alignas(64) static char page[4096];
  const BufferFunctions none{[](Buffer*) {}, [](Buffer*, Tensor*) { return 0; },
                             [](Buffer*, Tensor*, const void*, std::size_t, std::size_t) {}};
  Buffer* const buffer = make_buffer(type, page, sizeof page, none);
  if (buffer == nullptr) {
    refuse("its buffers have other fields");
  }
  const bool right = functions_.ggml_backend_buffer_get_type(buffer) == type &&
                     functions_.ggml_backend_buffer_get_base(buffer) == page &&
                     functions_.ggml_backend_buffer_get_size(buffer) == sizeof page &&
                     functions_.ggml_backend_buffer_is_host(buffer);
  const std::unique_ptr<ggml_context, void (*)(ggml_context*)> context(
      functions_.ggml_init({std::size_t{64} << 10, nullptr, true}), functions_.ggml_free);
  if (right && context != nullptr) {
    Tensor* const tensor = functions_.ggml_new_tensor_3d(context.get(), kF32, 32, 1, 1);
    const auto end = static_cast<std::size_t>(functions_.ggml_get_name(tensor) -
                                              reinterpret_cast<const char*>(tensor));
    if (functions_.ggml_backend_tensor_alloc(buffer, tensor, page) != 0) {
      refuse("it does not place a tensor in a buffer of this library");
    }
    buffer_ = place_of<void*>(tensor, {buffer}, end, "buffer");
  }
  functions_.ggml_backend_buffer_free(buffer);
  if (!right) {
    refuse("a buffer of this library does not behave like one of ggml's");
  }
}

}  // namespace tiermem::ggml
