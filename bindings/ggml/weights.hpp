// Weights: one adopted GGUF file, ggml's buffer type over it, and its plan.
//
// llama.cpp allocates a buffer of this type, and places each tensor in it. The buffer itself is
// reserved address space without memory. When a tensor is placed, its `data` is set to its bytes in
// the mapped file. When the loader then copies the tensor's bytes to it, nothing is left to do.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gguf.hpp"
#include "library.hpp"
#include "pacer.hpp"
#include "plan.hpp"
#include "tiermem_ggml.h"

namespace tiermem::ggml {

class Weights {
 public:
  /// Throws Failure.
  Weights(tm_context* context, const std::string& path, const tm_ggml_options& options);
  ~Weights();
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  BufferType* type() { return reinterpret_cast<BufferType*>(&type_); }
  tm_buffer buffer() const { return buffer_; }
  /// Throws Failure if llama.cpp loaded another file.
  void check();
  bool eval(Tensor* tensor, bool ask);
  void count(tm_ggml_counters& out);

 private:
  static Buffer* alloc_buffer(BufferType* type, std::size_t bytes);
  static void free_buffer(Buffer* buffer);
  static int init_tensor(Buffer* buffer, Tensor* tensor);
  static void set_tensor(Buffer* buffer, Tensor* tensor, const void* data, std::size_t offset,
                         std::size_t bytes);

  /// Closes the file.
  struct Descriptor {
    int number = -1;
    Descriptor() = default;
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor();
  };

  void adopt(const tm_ggml_options& options);
  bool is_in_file(const void* data) const {
    return static_cast<const char*>(data) >= base_ &&
           static_cast<const char*>(data) < base_ + bytes_;
  }
  bool announce(const Tensor* tensor);
  void watch(const Tensor* product, std::size_t entry);
  void route(const Tensor* tensor);
  /// Keeps the first complaint about a load.
  void complain(const std::string& what);

  Library library_;  // Constant after construction.
  tm_context* const context_;
  const std::string path_;
  Descriptor descriptor_;
  std::uint64_t bytes_ = 0;
  std::unique_ptr<Gguf> gguf_;
  tm_buffer buffer_ = 0;
  const char* base_ = nullptr;
  std::uint64_t extent_bytes_ = 0;
  OwnType type_;
  bool ahead_ = true;

  std::mutex mutex_;  // For all that follows.
  std::unique_ptr<Plan> plan_;
  std::string complaint_;
  std::uint64_t placed_ = 0;
  // The thread of the last report, if no operation was announced since: its next operation begins a
  // part of its graph, and nothing uses the result yet. Several threads may evaluate at a time.
  std::thread::id begins_;
  std::string last_;               // The operation that was announced last.
  std::set<std::string> reports_;  // Operations before a large one, of the last evaluation.
  std::size_t watched_ = 0, watched_rows_ = 0;
  std::vector<std::int32_t> ids_;
  std::vector<char> scratch_;
  std::unique_ptr<Pacer> pacer_;  // Ends first.
};

}  // namespace tiermem::ggml
