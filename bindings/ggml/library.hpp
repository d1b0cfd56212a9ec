// The ggml that the process has loaded: its public functions, and the layout of the two records
// that this library reads or fills without a public function. Nothing of it is known when this file
// is compiled. Constant after construction; any thread.
//
// A tensor: the places of `data`, `src`, `ne`, `nb` and `buffer` are found in tensors that ggml
// makes for this purpose. A buffer type and a buffer: copies of ggml's own for the CPU, with a few
// functions replaced. Their places are checked with the public functions that read them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

struct ggml_tensor;
struct ggml_context;
struct ggml_backend_buffer_type;
struct ggml_backend_buffer;
struct gguf_context;

namespace tiermem::ggml {

using Tensor = ggml_tensor;
using BufferType = ggml_backend_buffer_type;
using Buffer = ggml_backend_buffer;

struct InitParams {
  std::size_t bytes;
  void* memory;
  bool no_alloc;
};
struct GgufParams {
  bool no_alloc;
  ggml_context** context;
};

// Functions of ggml.h, ggml-backend.h and gguf.h: name, result, arguments.
#define TIERMEM_GGML_FUNCTIONS(X)                                                                \
  X(ggml_init, ggml_context*, (InitParams))                                                      \
  X(ggml_free, void, (ggml_context*))                                                            \
  X(ggml_new_tensor_3d, Tensor*, (ggml_context*, int, std::int64_t, std::int64_t, std::int64_t)) \
  X(ggml_mul_mat_id, Tensor*, (ggml_context*, Tensor*, Tensor*, Tensor*))                        \
  X(ggml_get_name, const char*, (const Tensor*))                                                 \
  X(ggml_get_data, void*, (const Tensor*))                                                       \
  X(ggml_nbytes, std::size_t, (const Tensor*))                                                   \
  X(ggml_op_desc, const char*, (const Tensor*))                                                  \
  X(ggml_backend_tensor_alloc, int, (Buffer*, Tensor*, void*))                                   \
  X(ggml_backend_tensor_get, void, (const Tensor*, void*, std::size_t, std::size_t))             \
  X(ggml_backend_cpu_buffer_type, BufferType*, ())                                               \
  X(ggml_backend_cpu_buffer_from_ptr, Buffer*, (void*, std::size_t))                             \
  X(ggml_backend_buffer_free, void, (Buffer*))                                                   \
  X(ggml_backend_buffer_get_type, BufferType*, (Buffer*))                                        \
  X(ggml_backend_buffer_get_base, void*, (Buffer*))                                              \
  X(ggml_backend_buffer_get_size, std::size_t, (Buffer*))                                        \
  X(ggml_backend_buffer_is_host, bool, (Buffer*))                                                \
  X(ggml_backend_buft_name, const char*, (BufferType*))                                          \
  X(ggml_backend_buft_is_host, bool, (BufferType*))                                              \
  X(ggml_backend_buft_get_alignment, std::size_t, (BufferType*))                                 \
  X(ggml_backend_buft_get_device, void*, (BufferType*))                                          \
  X(gguf_init_from_file, gguf_context*, (const char*, GgufParams))                               \
  X(gguf_free, void, (gguf_context*))                                                            \
  X(gguf_get_data_offset, std::size_t, (const gguf_context*))                                    \
  X(gguf_get_n_tensors, std::int64_t, (const gguf_context*))                                     \
  X(gguf_get_tensor_name, const char*, (const gguf_context*, std::int64_t))                      \
  X(gguf_get_tensor_offset, std::size_t, (const gguf_context*, std::int64_t))                    \
  X(gguf_get_tensor_size, std::size_t, (const gguf_context*, std::int64_t))                      \
  X(gguf_find_key, std::int64_t, (const gguf_context*, const char*))                             \
  X(gguf_get_kv_type, int, (const gguf_context*, std::int64_t))                                  \
  X(gguf_get_val_str, const char*, (const gguf_context*, std::int64_t))                          \
  X(gguf_get_val_u16, std::uint16_t, (const gguf_context*, std::int64_t))                        \
  X(gguf_get_val_u32, std::uint32_t, (const gguf_context*, std::int64_t))

struct Functions {
#define TIERMEM_GGML_MEMBER(name, result, arguments) result(*name) arguments = nullptr;
  TIERMEM_GGML_FUNCTIONS(TIERMEM_GGML_MEMBER)
#undef TIERMEM_GGML_MEMBER
};

/// A buffer type of ours: ggml's record for the CPU, with two functions replaced.
struct OwnType {
  std::array<void*, 16> words{};  // More than any version has; unused ones are null.
  void* owner = nullptr;
};

class Library {
 public:
  /// `address`: any address in libllama or libggml; null: the global symbols. Throws Failure.
  explicit Library(const void* address);

  const Functions& call() const { return functions_; }

  const char* name(const Tensor* tensor) const { return functions_.ggml_get_name(tensor); }
  void* data(const Tensor* tensor) const { return functions_.ggml_get_data(tensor); }
  void set_data(Tensor* tensor, void* data) const { at<void*>(tensor, data_) = data; }
  const Tensor* source(const Tensor* tensor, unsigned i) const {
    return at<const Tensor*>(tensor, src_ + i * sizeof(void*));
  }
  std::int64_t length(const Tensor* tensor, unsigned i) const {
    return at<std::int64_t>(tensor, ne_ + i * sizeof(std::int64_t));
  }
  std::size_t stride(const Tensor* tensor, unsigned i) const {
    return at<std::size_t>(tensor, nb_ + i * sizeof(std::size_t));
  }

  /// Returns whether the processor may read and write the tensor's data.
  bool is_in_host_memory(const Tensor* tensor) const {
    Buffer* const buffer = at<Buffer*>(tensor, buffer_);
    return buffer != nullptr && functions_.ggml_backend_buffer_is_host(buffer);
  }

  struct TypeFunctions {
    const char* (*name)(BufferType*);
    Buffer* (*alloc)(BufferType*, std::size_t);
  };
  /// Makes a buffer type. Throws Failure if its record is not as expected.
  void make_type(OwnType& type, const TypeFunctions& own, void* owner);
  static void* owner_of(BufferType* type) { return reinterpret_cast<OwnType*>(type)->owner; }

  struct BufferFunctions {
    void (*free)(Buffer*);
    int (*init_tensor)(Buffer*, Tensor*);
    void (*set_tensor)(Buffer*, Tensor*, const void*, std::size_t, std::size_t);
  };
  /// Makes a buffer of ours over [base, base + bytes). Null if its record is not as expected.
  Buffer* make_buffer(BufferType* type, void* base, std::size_t bytes,
                      const BufferFunctions& own) const;

 private:
  template <class T>
  static T& at(const Tensor* tensor, std::size_t offset) {
    return *reinterpret_cast<T*>(reinterpret_cast<char*>(const_cast<Tensor*>(tensor)) + offset);
  }
  void find_layout();
  /// Checks make_buffer() on a page of memory, and finds the field with the buffer of a tensor.
  /// Throws Failure.
  void check_buffer(BufferType* type);

  Functions functions_;
  std::size_t data_ = 0, src_ = 0, ne_ = 0, nb_ = 0, buffer_ = 0;
};

}  // namespace tiermem::ggml
