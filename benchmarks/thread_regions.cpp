// The cost of a parallel region over the number of threads: the pool beside GNU OpenMP; and what the processor's
// multipliers and memory give to so many threads, which no kernel exceeds.
//
//   g++ -O3 -march=native -std=c++17 -fopenmp -Icsrc benchmarks/thread_regions.cpp csrc/core/thread_*.cpp -o /tmp/regions
//   GOMP_SPINCOUNT=1000 /tmp/regions 16
#include <immintrin.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/parallel.h"

namespace {

constexpr double kAll = 1e9;  // nanoseconds of work: every worker is worth waking
volatile long sink[1024 * 16];

double now() {  // microseconds
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class F>
double best_of(int repeats, int count, const F& f) {
  double best = 1e9;
  for (int r = 0; r < repeats; ++r) {
    const double start = now();
    for (int i = 0; i < count; ++i) f();
    best = std::min(best, (now() - start) / count);
  }
  return best;
}

void touch(int thread) {
  sink[thread * 16] = sink[thread * 16] + 1;
}
void region_of_pool(int threads) {
  fl::parallel_pieces(threads, kAll, [](int thread, int) { touch(thread); });
}
void region_of_openmp(int threads) {
#pragma omp parallel num_threads(threads)
  touch(omp_get_thread_num());
}

void empty_regions(int most) {
  std::printf("empty region, us\n%8s %8s %8s\n", "threads", "pool", "OpenMP");
  for (int k : {2, 3, 4, 6, 8, 12, 16, 32, 64}) {
    if (k > most) break;
    const double pool = best_of(15, 2000, [&] { region_of_pool(k); });
    const double openmp = best_of(15, 2000, [&] { region_of_openmp(k); });
    std::printf("%8d %8.2f %8.2f\n", k, pool, openmp);
  }
  const int sizes[] = {most, 2, std::max(2, most / 2), most, std::max(2, most - 1)};
  const auto in_turn = [&](void (*region)(int)) {
    return best_of(5, 50, [&] {
             for (int k : sizes) region(k);
           }) / std::size(sizes);
  };
  std::printf("teams of changing size: pool %.2f, OpenMP %.2f\n", in_turn(region_of_pool), in_turn(region_of_openmp));
}

void after_serial_work(int most) {
  for (int gap : {0, 20, 100, 1000}) {
    const auto mean = [&](void (*region)(int)) {
      double total = 0;
      for (int i = 0; i < 200; ++i) {
        for (const double start = now(); now() - start < gap;) continue;
        const double start = now();
        region(most);
        total += now() - start;
      }
      return total / 200;
    };
    std::printf("after %d us of one thread, mean: pool %.2f, OpenMP %.2f\n", gap, mean(region_of_pool),
                mean(region_of_openmp));
  }
}

void additions(int most) {
  std::printf("sum of two vectors of n floats, us by pieces 1 2 4 8 16\n");
  for (long n = 4096; n <= 1 << 24; n *= 4) {
    std::vector<float> a(n, 1), b(n, 2), c(n);
    std::printf("%9ld", n);
    for (int k = 1; k <= most && k <= 16; k *= 2) {
      const double us = best_of(7, static_cast<int>(std::max(3L, 2'000'000 / n)), [&] {
        fl::parallel_pieces(k, kAll, [&](int piece, int pieces) {
          for (long i = n * piece / pieces; i < n * (piece + 1) / pieces; ++i) c[i] = a[i] + b[i];
        });
      });
      std::printf(" %9.2f", us);
    }
    std::printf("\n");
  }
}

// Multiply-adds of vectors in registers.
double multiply(long count) {
#ifdef __AVX512F__
  typedef __m512 Vector;
  const auto fused = [](Vector x, Vector y, Vector z) { return _mm512_fmadd_ps(x, y, z); };
#else
  typedef __m256 Vector;
  const auto fused = [](Vector x, Vector y, Vector z) { return _mm256_fmadd_ps(x, y, z); };
#endif
  constexpr int kSums = 12;  // enough to hide the latency of both units
  Vector sums[kSums], factor = Vector{} + 0.999f, addend = Vector{} + 0.001f;
  for (int s = 0; s < kSums; ++s) sums[s] = Vector{} + static_cast<float>(s);
  for (long i = 0; i < count; ++i)
#pragma GCC unroll 16
    for (int s = 0; s < kSums; ++s) sums[s] = fused(sums[s], factor, addend);
  for (int s = 1; s < kSums; ++s) sums[0] += sums[s];
  sink[0] = static_cast<long>(sums[0][0]);
  return 2.0 * kSums * sizeof(Vector) / sizeof(float) * static_cast<double>(count);
}

// As much of it for each thread, whatever their number, and rounds of several lengths: short ones run at clock
// rates that long ones do not keep.
void peak(int most) {
  std::printf("multiply-adds in registers, GFLOP/s by threads (and of each): short, long\n");
  for (int k = 1; k <= most; k = k < 4 ? 2 * k : k + 4) {
    std::printf("%9d", k);
    for (long count : {20'000L, 2'000'000L}) {
      const double us = best_of(count > 1'000'000 ? 3 : 50, 1, [&] {
        fl::parallel_pieces(k, kAll, [&](int, int) { multiply(count); });
      });
      const double rate = multiply(1) * static_cast<double>(count) * k / us * 1e-3;
      std::printf(" %9.0f (%.0f)", rate, rate / k);
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int most = argc > 1 ? std::atoi(argv[1]) : fl::num_threads();
  fl::set_num_threads(most);
  empty_regions(most);
  after_serial_work(most);
  additions(most);
  peak(most);
}
