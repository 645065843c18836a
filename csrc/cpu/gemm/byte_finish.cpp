// Finishing 8-bit integer products: zeros are taken out, sums become floats, then results. See byte_finish.h.
#include "cpu/gemm/byte_finish.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/gemm/pack.h"

namespace fl::cpu::products {
namespace {

// The products of the values' integers: zeros of A and B are taken out of the sums.
void take_out_zeros(const ByteFinish& f, const ByteWindow& w) {
  const int32_t* column_sums = w.column_sums + w.first_column;
  for (int64_t i = 0; i < w.rows; ++i) {
    int32_t* sums = w.sums + i * w.width;
    const uint32_t zero = uint32_t(w.grids[i].zero);
    if (zero != 0)
#pragma omp simd
      for (int64_t j = 0; j < w.columns; ++j)
        sums[j] = int32_t(uint32_t(sums[j]) - zero * uint32_t(column_sums[j]));
    if (!f.b_zeros) continue;
    const int32_t* b_zeros = f.b_zeros + w.first_column;
    const uint32_t rest = uint32_t(w.row_sums[i]) - uint32_t(w.depth) * zero;
#pragma omp simd
    for (int64_t j = 0; j < w.columns; ++j)
      sums[j] = int32_t(uint32_t(sums[j]) - uint32_t(b_zeros[j]) * rest);
  }
}

// Sums as floats, scaled, with the bias.
void scale_sums(const ByteFinish& f, const ByteWindow& w, float* values) {
  float scales[kUnitWidth], bias[kUnitWidth] = {};
  for (int64_t j = 0; j < w.columns; ++j) scales[j] = f.b_scales[f.one_scale ? 0 : w.first_column + j];
  if (f.bias) std::copy_n(f.bias + w.first_column, w.columns, bias);
  for (int64_t i = 0; i < w.rows; ++i) {
    const float scale = w.grids[i].scale;
    const int32_t* sums = w.sums + i * w.width;
    float* row = values + i * w.width;
#pragma GCC ivdep
    for (int64_t j = 0; j < w.columns; ++j) row[j] = float(sums[j]) * (scale * scales[j]) + bias[j];
  }
}

template <class T>
void add_other(const ByteFinish& f, const ByteWindow& w, float* values) {
  for (int64_t i = 0; i < w.rows; ++i) {
    const T* other = static_cast<const T*>(f.other) + (w.first_row + i) * f.other_row + w.first_column;
    float* row = values + i * w.width;
    if constexpr (std::is_integral_v<T>) {
#pragma omp simd
      for (int64_t j = 0; j < w.columns; ++j)
        row[j] += float(int32_t(other[j]) - f.other_zero) * f.other_scale;
    } else {
#pragma omp simd
      for (int64_t j = 0; j < w.columns; ++j) row[j] += float(other[j]);
    }
  }
}

void add_other(const ByteFinish& f, const ByteWindow& w, float* values) {
  switch (f.other_dtype) {
    case DType::UInt8:
      return add_other<uint8_t>(f, w, values);
    case DType::Int8:
      return add_other<int8_t>(f, w, values);
    case DType::BFloat16:
      return add_other<BFloat16>(f, w, values);
    default:
      return add_other<float>(f, w, values);
  }
}

void activate(const ByteFinish& f, const ByteWindow& w, float* values) {
  if (f.relu) {
    for (int64_t i = 0; i < w.rows; ++i) {
      float* row = values + i * w.width;
#pragma omp simd
      for (int64_t j = 0; j < w.columns; ++j) row[j] = row[j] < 0.0f ? 0.0f : row[j];
    }
    return;
  }
  ProductFinish step;
  step.start = values;
  step.columns = w.width;
  step.add(f.activation);
  finish_window(step, values, w.rows, w.columns);
}

#ifdef FL_X86
// 8 floats as integers on a grid, rounded to even, still 32 bits wide. NaN becomes the least.
FL_INLINE __m256i quantize_8(const float* x, __m256 inverse, __m256i zero) {
  // Beyond +-1e6 every grid is left, and integers must not overflow.
  const __m256 bound = _mm256_set1_ps(1.0e6f);
  const __m256 least = _mm256_sub_ps(_mm256_setzero_ps(), bound);
  const __m256 v = _mm256_min_ps(_mm256_max_ps(_mm256_mul_ps(_mm256_loadu_ps(x), inverse), least), bound);
  return _mm256_add_epi32(_mm256_cvtps_epi32(v), zero);
}

template <class T>
void quantize_any(const float* x, int64_t n, float scale, int32_t zero, T* out) {
  const __m256 inverse = _mm256_set1_ps(1.0f / scale);
  const __m256i zeros = _mm256_set1_epi32(zero);
  const auto eight = [&](const float* from, T* to) {
    const __m256i q = quantize_8(from, inverse, zeros);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), std::is_same_v<T, uint8_t>
                                                         ? _mm_packus_epi16(words, words)
                                                         : _mm_packs_epi16(words, words));
  };
  int64_t j = 0;
  for (; j + 8 <= n; j += 8) eight(x + j, out + j);
  if (j == n) return;
  float rest[8] = {};
  T bytes[8];
  std::copy_n(x + j, n - j, rest);
  eight(rest, bytes);
  std::copy_n(bytes, n - j, out + j);
}
#else
// Floats as integers on a grid, rounded to even. NaN becomes the least.
template <class T>
void quantize_any(const float* x, int64_t n, float scale, int32_t zero, T* out) {
  constexpr float bound = 1.0e6f;  // beyond it every grid is left, and integers must not overflow
  constexpr int32_t least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
  const float inverse = 1.0f / scale;
  for (int64_t j = 0; j < n; ++j) {
    const float scaled = x[j] * inverse, low = scaled > -bound ? scaled : -bound;
    const int32_t whole = int32_t(std::nearbyint(low < bound ? low : bound)) + zero;
    out[j] = T(std::min(std::max(whole, least), most));
  }
}
#endif

template <class T>
void store_rows(const ByteFinish& f, const ByteWindow& w, const float* values) {
  for (int64_t i = 0; i < w.rows; ++i) {
    const float* row = values + i * w.width;
    T* out = static_cast<T*>(f.out) + (w.first_row + i) * f.out_row + w.first_column;
    if constexpr (std::is_integral_v<T>) {
      quantize_any(row, w.columns, f.out_scale, f.out_zero, out);
    } else {
#pragma omp simd
      for (int64_t j = 0; j < w.columns; ++j) out[j] = T(row[j]);
    }
  }
}

void store(const ByteFinish& f, const ByteWindow& w, const float* values) {
  switch (f.out_dtype) {
    case DType::UInt8:
      return store_rows<uint8_t>(f, w, values);
    case DType::Int8:
      return store_rows<int8_t>(f, w, values);
    case DType::BFloat16:
      return store_rows<BFloat16>(f, w, values);
    default:
      return store_rows<float>(f, w, values);
  }
}

// ---- the usual case in one pass ----------------------------------------------------------------

#ifdef FL_X86
// Whether one pass with AVX-512 does all: bytes to bytes, rows on one grid, at most a residual of bytes and
// relu.
bool is_usual(const ByteFinish& f, const ByteWindow& w) {
  const auto is_byte = [](DType dtype) { return dtype == DType::UInt8 || dtype == DType::Int8; };
  if (isa() != Isa::Avx512 || !f.b_scales || f.b_zeros || (f.activates && !f.relu)) return false;
  if (!(is_byte(f.out_dtype) || f.out_dtype == DType::Float) || (f.other && !is_byte(f.other_dtype)))
    return false;
  for (int64_t i = 1; i < w.rows; ++i)
    if (w.grids[i].zero != w.grids[0].zero || w.grids[i].scale != w.grids[0].scale) return false;
  return true;
}

// What the lanes of up to 16 columns have in common for all rows.
struct ColumnTerms {
  __m512i zeros;
  __m512 scales, bias;
};

FL_AVX512 inline ColumnTerms column_terms(const ByteFinish& f, const ByteWindow& w, int64_t column,
                                          __mmask16 lanes) {
  const __m512i zero = _mm512_set1_epi32(w.grids[0].zero);
  ColumnTerms t;
  t.zeros = w.grids[0].zero
                ? _mm512_mullo_epi32(zero, _mm512_maskz_loadu_epi32(lanes, w.column_sums + column))
                : _mm512_setzero_si512();
  const __m512 scales =
      f.one_scale ? _mm512_set1_ps(f.b_scales[0]) : _mm512_maskz_loadu_ps(lanes, f.b_scales + column);
  t.scales = _mm512_mul_ps(scales, _mm512_set1_ps(w.grids[0].scale));
  t.bias = f.bias ? _mm512_maskz_loadu_ps(lanes, f.bias + column) : _mm512_setzero_ps();
  return t;
}

template <class T>
FL_AVX512 inline __m512 with_other(const ByteFinish& f, __m512 values, int64_t at, __mmask16 lanes) {
  const __m128i bytes = _mm_maskz_loadu_epi8(lanes, static_cast<const T*>(f.other) + at);
  const __m512i whole =
      std::is_same_v<T, uint8_t> ? _mm512_cvtepu8_epi32(bytes) : _mm512_cvtepi8_epi32(bytes);
  const __m512i centered = _mm512_sub_epi32(whole, _mm512_set1_epi32(f.other_zero));
  return _mm512_add_ps(values, _mm512_mul_ps(_mm512_cvtepi32_ps(centered), _mm512_set1_ps(f.other_scale)));
}

// 16 values on the grid of the result, as store_rows writes them.
FL_AVX512 inline void store_16(const ByteFinish& f, __m512 values, __m512 inverse, int64_t at,
                               __mmask16 lanes) {
  if (f.out_dtype == DType::Float) {
    _mm512_mask_storeu_ps(static_cast<float*>(f.out) + at, lanes, values);
    return;
  }
  const __m512 bound = _mm512_set1_ps(1.0e6f), least = _mm512_set1_ps(-1.0e6f);
  const __m512 scaled = _mm512_min_ps(_mm512_max_ps(_mm512_mul_ps(values, inverse), least), bound);
  const __m512i whole = _mm512_add_epi32(_mm512_cvtps_epi32(scaled), _mm512_set1_epi32(f.out_zero));
  if (f.out_dtype == DType::UInt8)
    _mm_mask_storeu_epi8(static_cast<uint8_t*>(f.out) + at, lanes,
                         _mm512_cvtusepi32_epi8(_mm512_max_epi32(whole, _mm512_setzero_si512())));
  else
    _mm_mask_storeu_epi8(static_cast<int8_t*>(f.out) + at, lanes, _mm512_cvtsepi32_epi8(whole));
}

FL_AVX512 void finish_usual(const ByteFinish& f, const ByteWindow& w) {
  const __m512 inverse = _mm512_set1_ps(1.0f / f.out_scale);
  for (int64_t j = 0; j < w.columns; j += 16) {
    const __mmask16 lanes = w.columns - j >= 16 ? __mmask16(0xffff) : __mmask16((1u << (w.columns - j)) - 1);
    const int64_t column = w.first_column + j;
    const ColumnTerms terms = column_terms(f, w, column, lanes);
    for (int64_t i = 0; i < w.rows; ++i) {
      const __m512i sums = _mm512_sub_epi32(_mm512_loadu_si512(w.sums + i * w.width + j), terms.zeros);
      __m512 values = _mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sums), terms.scales), terms.bias);
      const int64_t row = w.first_row + i;
      if (f.other && f.other_dtype == DType::UInt8)
        values = with_other<uint8_t>(f, values, row * f.other_row + column, lanes);
      else if (f.other)
        values = with_other<int8_t>(f, values, row * f.other_row + column, lanes);
      if (f.activates)
        values = _mm512_mask_mov_ps(values, _mm512_cmp_ps_mask(values, _mm512_setzero_ps(), _CMP_LT_OQ),
                                    _mm512_setzero_ps());
      store_16(f, values, inverse, row * f.out_row + column, lanes);
    }
  }
}
#endif

}  // namespace

void quantize_row(const float* x, int64_t n, float scale, int32_t zero, uint8_t* out) {
  quantize_any(x, n, scale, zero, out);
}
void quantize_row(const float* x, int64_t n, float scale, int32_t zero, int8_t* out) {
  quantize_any(x, n, scale, zero, out);
}

void finish_bytes(const ByteFinish& f, const ByteWindow& w) {
#ifdef FL_X86
  if (is_usual(f, w)) return finish_usual(f, w);
#endif
  take_out_zeros(f, w);
  if (!f.b_scales) {
    for (int64_t i = 0; i < w.rows; ++i)
      std::copy_n(w.sums + i * w.width, w.columns,
                  static_cast<int32_t*>(f.out) + (w.first_row + i) * f.out_row + w.first_column);
    return;
  }
  auto* values = reinterpret_cast<float*>(w.sums);  // a value replaces its sum
  scale_sums(f, w, values);
  if (f.other) add_other(f, w, values);
  if (f.activates) activate(f, w, values);
  store(f, w, values);
}

}  // namespace fl::cpu::products
