// How dense products read their operands: conversion to the type computed in, and packing into the order in
// which the tile kernels walk.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/dtype.h"
#include "cpu/engine/transpose.h"
#include "cpu/gemm/tiles.h"

namespace fl::cpu::products {

// ---- element conversion ------------------------------------------------------------------------

FL_INLINE float widen(float x) {
  return x;
}
FL_INLINE double widen(double x) {
  return x;
}
FL_INLINE float widen(Half x) {
  return float(x);
}
FL_INLINE float widen(BFloat16 x) {
  return float(x);
}

#ifdef FL_X86
FL_AVX2 inline void widen_half(const Half* src, float* dst, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(src + i))));
  for (; i < n; ++i) dst[i] = float(src[i]);
}

FL_AVX2 inline void narrow_half(const float* src, Half* dst, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
  for (; i < n; ++i) dst[i] = Half(src[i]);
}
#else
inline void widen_half(const Half* src, float* dst, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dst[i] = float(src[i]);
}

inline void narrow_half(const float* src, Half* dst, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dst[i] = Half(src[i]);
}
#endif

template <class S, class T>
void widen_row(const S* src, T* dst, int64_t n) {
  if constexpr (std::is_same_v<S, T>) {
    // Rows of panels are this short; moves of a known size, overlapping if need be, save the call.
    const size_t bytes = size_t(n) * sizeof(T);
    const auto moves = [&](auto size) {
      std::memcpy(dst, src, size);
      std::memcpy(reinterpret_cast<char*>(dst) + bytes - size,
                  reinterpret_cast<const char*>(src) + bytes - size, size);
    };
    if (bytes >= 64 && bytes <= 128)
      moves(std::integral_constant<size_t, 64>{});
    else if (bytes >= 32 && bytes < 64)
      moves(std::integral_constant<size_t, 32>{});
    else
      std::memcpy(dst, src, bytes);
  } else {
    if constexpr (std::is_same_v<S, Half>) return widen_half(src, dst, n);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) dst[i] = widen(src[i]);
  }
}

// ---- packing -----------------------------------------------------------------------------------

// Where element p of k goes.  Types of 16 bits are added up two by two, the second of a pair first, as
// oneDNN does: then sums agree with its, and PyTorch's, to the last bit.
template <class S, class T>
FL_INLINE int64_t place(int64_t p, int64_t k) {
  return std::is_same_v<S, T> || (p | 1) >= k ? p : p ^ 1;
}

// Four k-contiguous rows of length n, interleaved: dst[p * width + r] = rows[r][p], neighbours exchanged
// if they are to be added up in pairs.
template <bool PAIRS>
FL_INLINE void interleave4(const float* const r[4], float* dst, int64_t width, int64_t n) {
  constexpr int64_t swap = PAIRS ? 1 : 0;
  int64_t p = 0;
  for (; p + 4 <= n; p += 4) {
    const float* const rows[4] = {r[0] + p, r[1] + p, r[2] + p, r[3] + p};
    float* const columns[4] = {dst + (p + swap) * width, dst + (p + 1 - swap) * width,
                               dst + (p + 2 + swap) * width, dst + (p + 3 - swap) * width};
    transpose_4(rows, columns);
  }
  for (; p < n; ++p)
    for (int i = 0; i < 4; ++i) dst[((p | swap) < n ? p ^ swap : p) * width + i] = r[i][p];
}

template <bool PAIRS>
FL_INLINE void interleave4(const double* const r[4], double* dst, int64_t width, int64_t n) {
  for (int64_t p = 0; p < n; ++p, dst += width)
    dst[0] = r[0][p], dst[1] = r[1][p], dst[2] = r[2][p], dst[3] = r[3][p];
}

// Packs one panel: dst[place(p) * width + j] = src[j * stride + p * k_stride], j < count, zeros above.
template <class S, class T>
void pack_panel(const S* src, int64_t stride, int64_t k_stride, int64_t count, int64_t k, T* dst,
                int64_t width) {
  if (stride == 1) {
    for (int64_t p = 0; p < k; ++p) widen_row(src + p * k_stride, dst + place<S, T>(p, k) * width, count);
  } else if (k_stride == 1) {
    int64_t j = 0;
    for (; j < count && count >= 4; j += 4) {
      j = std::min(j, count - 4);  // the last four overlap those before
      if constexpr (std::is_same_v<S, T>) {
        const T* rows[4];
        for (int i = 0; i < 4; ++i) rows[i] = src + (j + i) * stride;
        interleave4<false>(rows, dst + j, width, k);
      } else {
        constexpr int64_t chunk = 128;
        T buffer[4][chunk];
        const T* rows[4] = {buffer[0], buffer[1], buffer[2], buffer[3]};
        for (int64_t p = 0; p < k; p += chunk) {
          const int64_t n = std::min(chunk, k - p);
          for (int i = 0; i < 4; ++i) widen_row(src + (j + i) * stride + p, buffer[i], n);
          interleave4<true>(rows, dst + p * width + j, width, n);
        }
      }
    }
    for (; j < count; ++j)
      for (int64_t p = 0; p < k; ++p) dst[place<S, T>(p, k) * width + j] = widen(src[j * stride + p]);
  } else {
    for (int64_t p = 0; p < k; ++p)
      for (int64_t j = 0; j < count; ++j)
        dst[place<S, T>(p, k) * width + j] = widen(src[j * stride + p * k_stride]);
  }
  if (count < width)
    for (int64_t p = 0; p < k; ++p)
      for (int64_t j = count; j < width; ++j) dst[p * width + j] = T(0);
}

// Packs panels [begin, end) of a matrix `count` wide.  Where rows are contiguous several panels are
// filled together, so that each memory page is visited once.
template <class S, class T>
void pack_panels(const S* src, int64_t stride, int64_t k_stride, int64_t count, int64_t k, T* dst,
                 int64_t width, int64_t begin, int64_t end) {
  constexpr int64_t together = 16;
  for (int64_t t = begin; t < end;) {
    const int64_t whole = std::min({together, end - t, count / width - t});
    if (stride == 1 && whole > 1) {
      for (int64_t p = 0; p < k; ++p)
        for (int64_t q = t; q < t + whole; ++q)
          widen_row(src + p * k_stride + q * width, dst + (q * k + place<S, T>(p, k)) * width, width);
      t += whole;
    } else {
      pack_panel(src + t * width * stride, stride, k_stride, std::min(width, count - t * width), k,
                 dst + t * width * k, width);
      ++t;
    }
  }
}

}  // namespace fl::cpu::products
