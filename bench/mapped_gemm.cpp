// A matrix product by tiles; the three matrices have twice the size of DRAM. The peer is the same
// program in plain memory. OpenBLAS multiplies the tiles on all processors, so time spent waiting
// in faults is visible.
#include <dlfcn.h>

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "bench/mapped.hpp"
#include "bench/sides.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kSide = 8192;  // Side of a matrix, in numbers.
constexpr std::uint64_t kTile = 1024;
constexpr std::uint64_t kTiles = kSide / kTile;
constexpr std::uint64_t kNumbers = kSide * kSide;
constexpr std::uint64_t kDram = 3 * kNumbers * sizeof(float) / 2;

/// OpenBLAS's function, loaded at run time, so that the program does not depend on it.
using Sgemm = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k,
                       float alpha, const float* a, int lda, const float* b, int ldb, float beta,
                       float* c, int ldc);
constexpr int kRowMajor = 101, kNotTransposed = 111;  // Constants of its interface.

Sgemm find_sgemm() {
  void* const library = ::dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  return library == nullptr
             ? nullptr
             : reinterpret_cast<Sgemm>(::dlsym(library, "cblas_sgemm"));  // NOLINT: see dlsym(3).
}

/// GFLOP/s of C = run number * A B. The numbers are small and whole: every sum is exact in a float,
/// in any order.
class Gemm : public Workload {
 public:
  explicit Gemm(Sgemm sgemm) : sgemm_(sgemm) {}
  std::uint64_t bytes() const override { return 3 * kNumbers * sizeof(float); }

  void fill(std::byte* data) override {
    auto* const numbers = reinterpret_cast<float*>(data);
    std::minstd_rand dice(7);
    for (std::uint64_t i = 0; i < 3 * kNumbers; ++i) {
      numbers[i] = static_cast<float>(static_cast<int>(dice() >> 8) % 16);
    }
  }

  double run(std::byte* data) override {
    alpha_ = 1 + alpha_ % 8;
    const double start = now_seconds();
    for (std::uint64_t row = 0; row < kTiles; ++row) {
      for (std::uint64_t column = 0; column < kTiles; ++column) {
        for (std::uint64_t inner = 0; inner < kTiles; ++inner) {
          constexpr int kWide = static_cast<int>(kTile);
          sgemm_(kRowMajor, kNotTransposed, kNotTransposed, kWide, kWide, kWide,
                 static_cast<float>(alpha_), tile(data, 0, row, inner), kWide,
                 tile(data, 1, inner, column), kWide, inner == 0 ? 0.0F : 1.0F,
                 tile(data, 2, row, column), kWide);
        }
      }
    }
    constexpr double kSteps = 2.0 * kSide * kSide * kSide;
    return kSteps / (now_seconds() - start) / 1e9;
  }

  /// Freivalds: C x = A (B x) for a random vector x. It is exact, because all numbers are whole.
  bool whole(const std::byte* data) override {
    std::mt19937_64 dice(11);
    std::vector<double> x(kSide);
    for (double& number : x) {
      number = static_cast<double>(dice() % 16);
    }
    const std::vector<double> right = times(data, 0, times(data, 1, x));
    const std::vector<double> found = times(data, 2, x);
    for (std::uint64_t i = 0; i < kSide; ++i) {
      if (found[i] != alpha_ * right[i]) {
        return false;
      }
    }
    return true;
  }

 private:
  static std::uint64_t tile_at(std::uint64_t matrix, std::uint64_t row, std::uint64_t column) {
    return matrix * kNumbers + (row * kTiles + column) * kTile * kTile;
  }
  static float* tile(std::byte* data, std::uint64_t matrix, std::uint64_t row,
                     std::uint64_t column) {
    return reinterpret_cast<float*>(data) + tile_at(matrix, row, column);
  }
  static std::vector<double> times(const std::byte* data, std::uint64_t matrix,
                                   const std::vector<double>& x) {
    std::vector<double> product(kSide);
    for (std::uint64_t i = 0; i < kSide; ++i) {
      for (std::uint64_t column = 0; column < kTiles; ++column) {
        const float* const line = reinterpret_cast<const float*>(data) +
                                  tile_at(matrix, i / kTile, column) + i % kTile * kTile;
        for (std::uint64_t j = 0; j < kTile; ++j) {
          product[i] += static_cast<double>(line[j]) * x[column * kTile + j];
        }
      }
    }
    return product;
  }

  const Sgemm sgemm_;
  int alpha_ = 0;
};

}  // namespace

Status mapped_gemm(Session& session) {
  const Sgemm sgemm = find_sgemm();
  if (sgemm == nullptr) {
    session.skip("mapped_gemm", "libopenblas.so.0 is not installed");
    return {};
  }
  const Contest gemm{.name = "mapped_gemm",
                     .unit = "GFLOP/s",
                     .bar = bars::kMappedGemm,
                     .make = [sgemm] { return std::make_unique<Gemm>(sgemm); },
                     .dram = kDram,
                     .rounds = 1};
  return compare_sides(session, gemm, {plain_side(gemm)});
}

}  // namespace tiermem::bench
