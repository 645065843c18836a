// Matrix times vector: read once, so nothing is packed.
#pragma once

#include "cpu/gemm/product.h"
#include "cpu/gemm/vector_order.h"

namespace fl::cpu::products {

// out[i] = sum_p m[i * row + p] * x[p] for `rows` rows: each row of M is contiguous.
template <class S, class T>
FL_INLINE void row_dots(const S* m, int64_t row, const T* x, int64_t rows, int64_t k, T* out) {
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4) {
    const S *r0 = m + i * row, *r1 = r0 + row, *r2 = r1 + row, *r3 = r2 + row;
    T s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
    for (int64_t p = 0; p < k; ++p) {
      s0 += widen(r0[p]) * x[p];
      s1 += widen(r1[p]) * x[p];
      s2 += widen(r2[p]) * x[p];
      s3 += widen(r3[p]) * x[p];
    }
    out[i] = s0, out[i + 1] = s1, out[i + 2] = s2, out[i + 3] = s3;
  }
  for (; i < rows; ++i) {
    const S* r = m + i * row;
    constexpr int64_t step = 128 / sizeof(T) * 2;  // several vectors, so that additions overlap
    T partial[step] = {};
    int64_t p = 0;
    for (; p + step <= k; p += step)
#pragma omp simd
      for (int64_t q = 0; q < step; ++q) partial[q] += widen(r[p + q]) * x[p + q];
    for (int64_t q = 0; p + q < k; ++q) partial[q] += widen(r[p + q]) * x[p + q];
    for (int64_t half = step / 2; half > 0;
         half /= 2)  // pairwise, which rounds less than one after the other
#pragma omp simd
      for (int64_t q = 0; q < half; ++q) partial[q] += partial[q + half];
    out[i] = partial[0];
  }
}

// out[i] = sum_p m[i + p * col] * x[p]: each column of M is contiguous.
template <class S, class T>
FL_INLINE void column_sums(const S* m, int64_t col, const T* x, int64_t rows, int64_t k, T* out) {
  for (int64_t i = 0; i < rows; ++i) out[i] = 0;
  int64_t p = 0;
  for (; p + 8 <= k; p += 8) {
    const S* c = m + p * col;
    const T* v = x + p;
#pragma omp simd
    for (int64_t i = 0; i < rows; ++i)
      out[i] += widen(c[i]) * v[0] + widen(c[i + col]) * v[1] + widen(c[i + 2 * col]) * v[2] +
                widen(c[i + 3 * col]) * v[3] + widen(c[i + 4 * col]) * v[4] + widen(c[i + 5 * col]) * v[5] +
                widen(c[i + 6 * col]) * v[6] + widen(c[i + 7 * col]) * v[7];
  }
  for (; p < k; ++p)
#pragma omp simd
    for (int64_t i = 0; i < rows; ++i) out[i] += widen(m[i + p * col]) * x[p];
}

// The two above compiled for each instruction set.
template <class S, class T>
struct VectorKernels {
  using Fn = void (*)(const S*, int64_t, const T*, int64_t, int64_t, T*);
  Fn dots, sums;
#define FL_VECTOR_KERNELS(SUFFIX, TARGET)                                                           \
  TARGET static void dots_##SUFFIX(const S* m, int64_t s, const T* x, int64_t r, int64_t k, T* o) { \
    row_dots(m, s, x, r, k, o);                                                                     \
  }                                                                                                 \
  TARGET static void sums_##SUFFIX(const S* m, int64_t s, const T* x, int64_t r, int64_t k, T* o) { \
    column_sums(m, s, x, r, k, o);                                                                  \
  }
#ifdef FL_X86
  FL_VECTOR_KERNELS(avx512, FL_AVX512)
  FL_VECTOR_KERNELS(avx2, FL_AVX2)

  static VectorKernels get(int64_t k) {
    if constexpr (std::is_same_v<S, float>)
      if (isa() == Isa::Avx512 && k > 0 && k <= kOrderedDepth)
        return {&ordered_row_dots, &ordered_column_sums};
    if (isa() == Isa::Avx512) return {&dots_avx512, &sums_avx512};
    return {&dots_avx2, &sums_avx2};
  }
#else
  FL_VECTOR_KERNELS(neon, )

  static VectorKernels get(int64_t) { return {&dots_neon, &sums_neon}; }
#endif
#undef FL_VECTOR_KERNELS
};

// A product with n == 1: C[:, 0] = A @ b.
template <class S, class T, class D>
void multiply_vector(const Product<S, T, D>& g, int threads) {
  const auto kernels = VectorKernels<S, T>::get(g.k);
  const T* x = nullptr;
  if constexpr (std::is_same_v<S, T>)
    if (g.b_row == 1) x = g.b;
  if (!x) {
    T* copy = static_cast<T*>(scratch(1).get(std::max<int64_t>(g.k, 1) * sizeof(T)));
    for (int64_t p = 0; p < g.k; ++p) copy[p] = widen(g.b[p * g.b_row]);
    x = copy;
  }
  // Results [first, first + rows), over k in [p0, p0 + depth).
  auto sums = [&](int64_t first, int64_t rows, int64_t p0, int64_t depth, T* out) {
    const S* a = g.a + first * g.a_row + p0 * g.a_col;
    if (g.a_col == 1) return kernels.dots(a, g.a_row, x + p0, rows, depth, out);
    if (g.a_row == 1) return kernels.sums(a, g.a_col, x + p0, rows, depth, out);
    for (int64_t i = 0; i < rows; ++i) {
      T s = 0;
      for (int64_t p = 0; p < depth; ++p) s += widen(a[i * g.a_row + p * g.a_col]) * x[p0 + p];
      out[i] = s;
    }
  };
  constexpr int64_t most = 512;
  const double time = 8.0 * double(g.m) * g.k * kMultiplyTime;
  constexpr int kMaxTeam = 64;
  threads = std::min(threads, kMaxTeam);
  if (threads > 1 && g.m < 8 * threads && g.m <= 64) {  // few long rows: split k
    static thread_local T partial_space[kMaxTeam][64];
    T(*partial)[64] = partial_space;
    parallel_pieces(threads, time, [&](int t, int) {
      const Range r = share(g.k, threads, t);
      sums(0, g.m, r.begin, r.end - r.begin, partial[t]);
    });
    for (int t = 1; t < threads; ++t)
      for (int64_t i = 0; i < g.m; ++i) partial[0][i] += partial[t][i];
    return finish_tile(g, partial[0], 1, 0, 0, g.m, 1, kFirst | kLast);
  }
  auto run = [&](int64_t begin, int64_t end) {
    T out[most];
    for (int64_t i = begin; i < end; i += most) {
      const int64_t rows = std::min(most, end - i);
      sums(i, rows, 0, g.k, out);
      finish_tile(g, out, 1, i, 0, rows, 1, kFirst | kLast);
    }
  };
  if (threads <= 1) return run(0, g.m);
  parallel_pieces(threads, time, [&](int t, int) {
    const Range r = share(g.m, threads, t);
    run(r.begin, r.end);
  });
}

}  // namespace fl::cpu::products
