// Weights: the adopted GGUF files of a model, ggml's buffer type over them, and their plan.
//
// llama.cpp allocates a buffer of this type, and places each tensor in it. The buffer itself is
// reserved address space without memory. When a tensor is placed, its `data` is set to its bytes in
// a mapped file. When the loader then copies the tensor's bytes to it, nothing is left to do.
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
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  BufferType* type() { return reinterpret_cast<BufferType*>(&type_); }
  /// The buffer over the model's file with this number; 0 if there is none.
  tm_buffer buffer(std::size_t file) const {
    return file < adopted_.parts.size() ? adopted_.parts[file].buffer : 0;
  }
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

  /// The files as buffers, which end with it.
  struct Adopted {
    explicit Adopted(tm_context* its) : context(its) {}
    Adopted(const Adopted&) = delete;
    Adopted& operator=(const Adopted&) = delete;
    ~Adopted();
    tm_context* const context;
    std::vector<Part> parts;
  };

  void adopt(const File& file, std::uint32_t flags);
  /// Returns the part that has the byte at this address, or null.
  const Part* part_of(const void* data) const;
  bool announce(const Tensor* tensor);
  void watch(const Tensor* product, std::size_t entry);
  void route(const Tensor* tensor);
  /// Keeps the first complaint about a load.
  void complain(const std::string& what);

  Library library_;  // Constant after construction.
  tm_context* const context_;
  const Gguf gguf_;
  std::uint64_t bytes_ = 0;  // The length of all files.
  Adopted adopted_;
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
