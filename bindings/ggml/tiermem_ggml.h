/**
 * @file tiermem_ggml.h
 * Weights of llama.cpp in mapped adopted GGUF files: a model that is larger than memory.
 *
 * The library libggml-tiermem needs no source and no header of llama.cpp. It finds the functions
 * of the llama.cpp that the process has loaded, and checks the layout of the records that it uses.
 * If they are not as expected, tm_ggml_open() refuses and says what differs.
 *
 *     tm_ggml* weights;
 *     tm_ggml_open(context, "model.gguf", NULL, &weights);
 *     struct llama_model_tensor_buft_override all[] = {{".*", tm_ggml_buffer_type(weights)}, {0}};
 *     model_params.tensor_buft_overrides = all;       // with LLAMA_LOAD_MODE_MMAP
 *     model_params.use_extra_bufts = false;           // these would copy the weights
 *     ... = llama_model_load_from_file("model.gguf", model_params);
 *     tm_ggml_check(weights);
 *     context_params.cb_eval = tm_ggml_eval;          // optional: reads ahead
 *     context_params.cb_eval_user_data = weights;
 *
 * The functions follow the rules of tiermem.h for results and structs. Errors: tm_ggml_error().
 */
#ifndef TIERMEM_GGML_H
#define TIERMEM_GGML_H

#include <stdbool.h>

#include "tiermem.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_tensor;
struct ggml_backend_buffer_type;

/** The weights of one model. Opaque. */
typedef struct tm_ggml tm_ggml;

enum {
  TM_GGML_NO_AHEAD = 1, /**< No hints and no read-ahead: bytes come when they are touched. */
  /**
   * The window is read-only, and its pages are copied. Otherwise it is private: its pages are
   * moved, which takes half of the processor time, and a store to a weight is not a SIGSEGV.
   */
  TM_GGML_READ_ONLY = 2
};

/** Options of tm_ggml_open(). */
typedef struct tm_ggml_options {
  size_t size; /**< sizeof(tm_ggml_options). */
  /** Unit of movement in bytes, as for tm_buffer_options; 0: chosen by the size of the experts. */
  uint64_t extent_bytes;
  /** Max bytes that are read ahead; 0: a sixth of the DRAM budget, up to 64 MiB. */
  uint64_t ahead_bytes;
  /** Any address in libllama or libggml, such as that of a function. NULL: the global symbols. */
  const void* library;
  uint32_t flags;    /**< #TM_GGML_NO_AHEAD, #TM_GGML_READ_ONLY. */
  uint32_t reserved; /**< 0. */
} tm_ggml_options;

/** Counters of tm_ggml_stats(), since tm_ggml_open(). */
typedef struct tm_ggml_counters {
  size_t size;           /**< sizeof(tm_ggml_counters). */
  uint64_t bytes;        /**< Length of all files. */
  uint64_t expert_bytes; /**< Bytes of routed experts in the files. */
  uint64_t kept_bytes;   /**< Bytes that are advised to stay in memory. */
  uint64_t tensors;      /**< Tensors that llama.cpp has placed in the files. */
  uint64_t routed;       /**< Experts that routers have chosen, counted once for each layer. */
  uint64_t ahead_bytes;  /**< Bytes that were given to tm_prefetch(), resident or not. */
  uint64_t ahead_calls;  /**< Calls of tm_prefetch(). */
  uint64_t extent_bytes; /**< Unit of movement. */
  uint64_t files;        /**< Files of the model. */
} tm_ggml_counters;

/**
 * Adopts the GGUF file of a model as a mapped buffer, and makes a buffer type for it. Reads the
 * header only. A model in several files, as llama-gguf-split makes them, is a buffer for each.
 *
 * - `path`: the same file that llama.cpp loads: the model, or the first of its files. The others are
 *   found by their names (MODEL-00002-of-00005.gguf). No file may change while `out` exists.
 * - `options`: may be NULL.
 * - Ownership: the caller ends it with tm_ggml_close(), after the models and contexts that use it.
 *   The tm_context must outlive it.
 * - Errors: #TM_INVALID_ARGUMENT: a file is not a GGUF file, is cut, or is another part than its name
 *   says. #TM_IO_ERROR: a file cannot be opened.
 *   #TM_UNSUPPORTED: this llama.cpp has other records or lacks a function. The errors of
 *   tm_adopt_file().
 */
TIERMEM_API tm_status tm_ggml_open(tm_context* context, const char* path,
                                   const tm_ggml_options* options, tm_ggml** out);

/** Returns the buffer type, for `tensor_buft_overrides`. Valid until tm_ggml_close(). */
TIERMEM_API struct ggml_backend_buffer_type* tm_ggml_buffer_type(tm_ggml* weights);

/**
 * Checks that llama.cpp has loaded the adopted files. Call it after each load.
 *
 * - Errors: #TM_INVALID_ARGUMENT: llama.cpp loaded another file, or no tensor of this one. The
 *   model must not be used.
 */
TIERMEM_API tm_status tm_ggml_check(tm_ggml* weights);

/**
 * An evaluation callback of llama.cpp: reads the routed experts of a layer when its router has
 * chosen them, and the weights of the next layers of dense models. Results do not depend on it.
 *
 * - `user_data`: the tm_ggml.
 * - Threads: any, also several at the same time.
 */
TIERMEM_API bool tm_ggml_eval(struct ggml_tensor* tensor, bool ask, void* user_data);

/**
 * Returns the buffer over a file of the model, for hints and tm_why(). It ends with `weights`.
 *
 * - `file`: counts from 0.
 * - Returns: 0 if the model has no such file.
 */
TIERMEM_API tm_buffer tm_ggml_buffer(const tm_ggml* weights, size_t file);

/** Fills `out` with the counters. */
TIERMEM_API tm_status tm_ggml_stats(tm_ggml* weights, tm_ggml_counters* out);

/** Ends the weights. Accepts NULL. No model may use them any more. */
TIERMEM_API void tm_ggml_close(tm_ggml* weights);

/** Returns the sentence about the calling thread's last failure here. Valid until the next one. */
TIERMEM_API const char* tm_ggml_error(void);

#ifdef __cplusplus
}
#endif

#endif
