// Products of float vectors and matrices in the order in which MKL adds up, which PyTorch calls: what is
// fitted to a few numbers (L-BFGS above all) multiplies every other rounding. The orders were found by
// putting two large numbers that cancel among ones: the result counts the terms that were added later.
#pragma once

#include <cstdint>

#include "cpu/gemm/tiles.h"

namespace fl::cpu::products {

constexpr int64_t kOrderedDepth = 8192;  // longer sums are taken apart among threads

#ifdef FL_X86

// The sums of lanes that are eight, and then four, from each other.
FL_AVX512 inline __m128 quarter(__m512 v) {
  const __m256 low = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
  const __m256 eight = _mm256_add_ps(low, _mm512_extractf32x8_ps(v, 1));
  return _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
}

// Four vectors of sums by turns; of what is left over two vectors, one, and a part of one go to the first
// ones.
FL_AVX512 inline float ordered_dot_avx512(const float* x, const float* y, int64_t n) {
  __m512 a = _mm512_setzero_ps(), b = a, c = a, d = a;
  const auto add = [&](__m512 sum, int64_t i) __attribute__((always_inline, target("avx512f"))) {
    return _mm512_fmadd_ps(_mm512_loadu_ps(x + i), _mm512_loadu_ps(y + i), sum);
  };
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) a = add(a, i), b = add(b, i + 16), c = add(c, i + 32), d = add(d, i + 48);
  if (n - i >= 32) a = add(a, i), b = add(b, i + 16), i += 32;
  if (n - i >= 16) a = add(a, i), i += 16;
  if (i < n) {
    const __mmask16 mask = static_cast<__mmask16>((1u << (n - i)) - 1);
    a = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, x + i), _mm512_maskz_loadu_ps(mask, y + i), a);
  }
  a = _mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d));
  const __m128 four = quarter(a);
  return (four[0] + four[1]) + (four[2] + four[3]);
}

FL_AVX2 inline float ordered_dot_avx2(const float* x, const float* y, int64_t n) {
  __m256 a = _mm256_setzero_ps(), b = a, c = a, d = a;
  const auto add = [&](__m256 sum, int64_t i) __attribute__((always_inline, target("avx2,fma"))) {
    return _mm256_fmadd_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i), sum);
  };
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) a = add(a, i), b = add(b, i + 8), c = add(c, i + 16), d = add(d, i + 24);
  if (n - i >= 16) a = add(a, i), b = add(b, i + 8), i += 16;
  if (n - i >= 8) a = add(a, i), i += 8;
  if (i < n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n - i)), lane);
    a = _mm256_fmadd_ps(_mm256_maskload_ps(x + i, mask), _mm256_maskload_ps(y + i, mask), a);
  }
  a = _mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d));
  return ((a[0] + a[1]) + (a[4] + a[5])) + ((a[2] + a[3]) + (a[6] + a[7]));
}

inline float ordered_dot(const float* x, const float* y, int64_t n) {
  return isa() == Isa::Avx512 ? ordered_dot_avx512(x, y, n) : ordered_dot_avx2(x, y, n);
}

// The lanes of four vectors added up by halves.
FL_AVX512 inline __m128 folded(__m512 a, __m512 b, __m512 c, __m512 d) {
  const __m128 p = quarter(a), q = quarter(b), r = quarter(c), s = quarter(d);
  const __m128 pq = _mm_add_ps(_mm_movelh_ps(p, q), _mm_movehl_ps(q, p));
  const __m128 rs = _mm_add_ps(_mm_movelh_ps(r, s), _mm_movehl_ps(s, r));
  return _mm_add_ps(_mm_shuffle_ps(pq, rs, _MM_SHUFFLE(2, 0, 2, 0)),
                    _mm_shuffle_ps(pq, rs, _MM_SHUFFLE(3, 1, 3, 1)));
}

// out[i] = sum_p m[i * row + p] * x[p]. The first term of a row is by itself; rows come in groups of four.
FL_AVX512 inline void ordered_row_dots(const float* m, int64_t row, const float* x, int64_t rows, int64_t k,
                                       float* out) {
  const int64_t whole = (k - 1) / 16 * 16 + 1;
  const __mmask16 mask = static_cast<__mmask16>((1u << (k - whole)) - 1);
  const __m512 tail = _mm512_maskz_loadu_ps(mask, x + whole);
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4) {
    const float *r0 = m + i * row, *r1 = r0 + row, *r2 = r1 + row, *r3 = r2 + row;
    __m128 sums = _mm_mul_ps(_mm_setr_ps(*r0, *r1, *r2, *r3), _mm_set1_ps(*x));
    __m512 a, b, c, d;
    const auto begin = [&]() __attribute__((always_inline, target("avx512f"))) {
      const __m128 zero = _mm_setzero_ps();
      a = _mm512_zextps128_ps512(_mm_move_ss(zero, sums));
      b = _mm512_zextps128_ps512(_mm_move_ss(zero, _mm_movehdup_ps(sums)));
      c = _mm512_zextps128_ps512(_mm_move_ss(zero, _mm_movehl_ps(sums, sums)));
      d = _mm512_zextps128_ps512(_mm_move_ss(zero, _mm_shuffle_ps(sums, sums, 3)));
    };
    if (whole > 1) {
      begin();
      for (int64_t p = 1; p < whole; p += 16) {
        const __m512 v = _mm512_loadu_ps(x + p);
        a = _mm512_fmadd_ps(_mm512_loadu_ps(r0 + p), v, a);
        b = _mm512_fmadd_ps(_mm512_loadu_ps(r1 + p), v, b);
        c = _mm512_fmadd_ps(_mm512_loadu_ps(r2 + p), v, c);
        d = _mm512_fmadd_ps(_mm512_loadu_ps(r3 + p), v, d);
      }
      sums = folded(a, b, c, d);
    }
    if (whole < k) {
      begin();
      a = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, r0 + whole), tail, a);
      b = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, r1 + whole), tail, b);
      c = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, r2 + whole), tail, c);
      d = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, r3 + whole), tail, d);
      sums = folded(a, b, c, d);
    }
    _mm_storeu_ps(out + i, sums);
  }
  for (int64_t left = 0; i < rows; ++i, ++left) {
    const float* r = m + i * row;
    __m512 sum = _mm512_setzero_ps(), other = sum;
    const auto add = [&](__m512 to, int64_t p) __attribute__((always_inline, target("avx512f"))) {
      return _mm512_fmadd_ps(_mm512_loadu_ps(r + p), _mm512_loadu_ps(x + p), to);
    };
    int64_t p = 1;
    if (left != 1) {
      for (; p + 32 <= k; p += 32) sum = add(sum, p), other = add(other, p + 16);
      sum = _mm512_add_ps(sum, other);
    }
    for (; p < whole; p += 16) sum = add(sum, p);
    sum = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, r + whole), tail, sum);
    float first = *r * *x;
    asm("" : "+x"(first));  // rounded by itself
    out[i] = _mm_cvtss_f32(folded(sum, sum, sum, sum)) + first;
  }
}

// out[i] = sum_p m[i + p * col] * x[p]: sixteen rows take eight columns at a time, the rows left over one.
FL_AVX512 inline void ordered_column_sums(const float* m, int64_t col, const float* x, int64_t rows,
                                          int64_t k, float* out) {
  const __m512 zero = _mm512_setzero_ps();
  const int64_t whole = rows / 16 * 16;
  int64_t p = 0;
  // Memory is read along columns, so sums wait in `out`.
  for (int64_t i = 0; i < whole; i += 16) _mm512_storeu_ps(out + i, zero);
  for (; p + 8 <= k; p += 8) {
    __m512 v[8];
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) v[q] = _mm512_set1_ps(x[p + q]);
    const float* c = m + p * col;
    for (int64_t i = 0; i < whole; i += 16, c += 16) {
      const auto take = [&](int q, __m512 to) __attribute__((always_inline, target("avx512f"))) {
        return _mm512_fmadd_ps(_mm512_loadu_ps(c + q * col), v[q], to);
      };
      const __m512 a = take(4, take(6, _mm512_loadu_ps(out + i))), b = take(5, take(7, zero));
      const __m512 d = take(0, take(2, zero)), e = take(1, take(3, zero));
      _mm512_storeu_ps(out + i, _mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(d, e)));
    }
  }
  for (int64_t i = p < k ? 0 : whole; i < rows; i += 16) {
    const __mmask16 mask = i < whole ? 0xffff : static_cast<__mmask16>((1u << (rows - i)) - 1);
    __m512 sum = i < whole ? _mm512_loadu_ps(out + i) : zero;
    for (int64_t q = i < whole ? p : 0; q < k; ++q)
      sum = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, m + i + q * col), _mm512_set1_ps(x[q]), sum);
    _mm512_mask_storeu_ps(out + i, mask, sum);
  }
}

#else
// MKL has no order for other processors: four vectors of sums by turns.
inline float ordered_dot(const float* x, const float* y, int64_t n) {
  constexpr int64_t lanes = 16;
  float sums[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (int64_t j = 0; j < lanes; ++j) sums[j] += x[i + j] * y[i + j];
  for (int64_t j = 0; i + j < n; ++j) sums[j] += x[i + j] * y[i + j];
  for (int64_t half = lanes / 2; half > 0; half /= 2)
    for (int64_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  return sums[0];
}
#endif

}  // namespace fl::cpu::products
