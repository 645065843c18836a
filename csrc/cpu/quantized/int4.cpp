// Products of few rows with weights of four bits: see int4.h.
#include "cpu/quantized/int4.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/dtype.h"
#include "cpu/engine/capability.h"
#include "cpu/engine/x86.h"
#include "cpu/gemm/bfloat16_lanes.h"

namespace fl::cpu::quantized {

#ifdef FL_X86
#define FL_INT4 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace {

// What is fetched before it is needed: bytes of weights, and grids of the panels that follow.
constexpr int64_t kBytesAhead = 8192, kPanelsAhead = 2;

// The bits of -8 to 7 as bfloat16, twice: bit 4 of an index is not looked at.
const uint16_t* number_table() {
  alignas(64) static const auto table = [] {
    struct {
      uint16_t bits[32];
    } t;
    for (int i = 0; i < 32; ++i) {
      const float value = float(i % 16 - 8);
      uint32_t whole;
      std::memcpy(&whole, &value, 4);
      t.bits[i] = uint16_t(whole >> 16);
    }
    return t;
  }();
  return table.bits;
}

// The pair of x at element p in all lanes.
FL_INT4 inline __attribute__((always_inline)) __m512i pair_at(const uint16_t* x) {
  int pair;
  std::memcpy(&pair, x, 4);
  return _mm512_set1_epi32(pair);
}

// Scales and zeros of 16 columns.
FL_INT4 inline __attribute__((always_inline)) void load_grids(const Int4Weights& b, int64_t column,
                                                              __m512& scale, __m512& zero) {
  if (!b.zeros) {
    const auto* narrow = static_cast<const BFloat16*>(b.grids) + column;
    scale = b.narrow ? products::load_widened(narrow, 0xffff)
                     : _mm512_loadu_ps(static_cast<const float*>(b.grids) + column);
    zero = _mm512_setzero_ps();
    return;
  }
  if (b.narrow) {
    const __m512i both = _mm512_loadu_si512(static_cast<const uint16_t*>(b.grids) + 2 * column);
    scale = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    zero = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(int(0xffff0000))));
    return;
  }
  const float* pairs = static_cast<const float*>(b.grids) + 2 * column;
  const __m512 first = _mm512_loadu_ps(pairs), second = _mm512_loadu_ps(pairs + 16);
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  scale = _mm512_permutex2var_ps(first, even, second);
  zero = _mm512_permutex2var_ps(first, _mm512_add_epi32(even, _mm512_set1_epi32(1)), second);
}

// Sums of one group of a panel for ROWS rows, scaled and added to `totals`. Steps take turns with several
// sums of each row, so that enough of them are in flight.
template <int ROWS, bool SPLIT>
FL_INT4 inline __attribute__((always_inline)) void add_group(const Int4Rows& a, const Int4Weights& b,
                                                             int64_t panel, int64_t g, __m512 totals[ROWS]) {
  constexpr int chains = ROWS == 1 ? 4 : ROWS == 2 ? 2 : 1;
  const int64_t first = g * b.group, steps = std::min(b.group, b.k - first) / kInt4Step;
  const __m512i table = _mm512_loadu_si512(number_table());
  __m512 sums[ROWS][chains][2];
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
    for (int c = 0; c < chains; ++c) sums[i][c][0] = sums[i][c][1] = _mm512_setzero_ps();
  const uint8_t* from = b.packed + panel * b.k * 8 + first * 8;
  const auto add = [&](int64_t s, int c) __attribute__((
                       always_inline, target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16"))) {
    const __m512i words =
        _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + s * 32)));
    const auto low = (__m512bh)_mm512_permutexvar_epi16(words, table);
    const auto high = (__m512bh)_mm512_permutexvar_epi16(_mm512_srli_epi16(words, 4), table);
#pragma GCC unroll 4
    for (int i = 0; i < ROWS; ++i) {
      const uint16_t* x = a.high + i * b.k + first + s * kInt4Step;
      sums[i][c][0] = _mm512_dpbf16_ps(sums[i][c][0], low, (__m512bh)pair_at(x));
      sums[i][c][1] = _mm512_dpbf16_ps(sums[i][c][1], high, (__m512bh)pair_at(x + 2));
      if (SPLIT) {
        const uint16_t* rest = a.low + i * b.k + first + s * kInt4Step;
        sums[i][c][0] = _mm512_dpbf16_ps(sums[i][c][0], low, (__m512bh)pair_at(rest));
        sums[i][c][1] = _mm512_dpbf16_ps(sums[i][c][1], high, (__m512bh)pair_at(rest + 2));
      }
    }
  };
  int64_t s = 0;
  for (; s + 4 <= steps; s += 4) {
    _mm_prefetch(reinterpret_cast<const char*>(from + s * 32 + kBytesAhead), _MM_HINT_NTA);
    _mm_prefetch(reinterpret_cast<const char*>(from + s * 32 + kBytesAhead + 64), _MM_HINT_NTA);
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) add(s + c, c % chains);
  }
  for (; s < steps; ++s) add(s, 0);
  // Grids of a panel lie a row of all columns apart: too far for the hardware to foresee.
  const int64_t place = g * b.n + panel * kInt4Panel;
  const int64_t bytes = (b.narrow ? 2 : 4) * b.grid_numbers(),
                ahead = kPanelsAhead * kInt4Panel * 2 / b.grid_numbers();
  _mm_prefetch(static_cast<const char*>(b.grids) + (place + ahead) * bytes, _MM_HINT_NTA);
  __m512 scale, zero;
  load_grids(b, place, scale, zero);
  const int64_t groups = (b.k + b.group - 1) / b.group;
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i) {
    __m512 sum = _mm512_add_ps(sums[i][0][0], sums[i][0][1]);
#pragma GCC unroll 4
    for (int c = 1; c < chains; ++c) sum = _mm512_add_ps(sum, _mm512_add_ps(sums[i][c][0], sums[i][c][1]));
    totals[i] = _mm512_fmadd_ps(sum, scale, totals[i]);
    if (b.zeros) totals[i] = _mm512_fmadd_ps(zero, _mm512_set1_ps(a.group_sums[i * groups + g]), totals[i]);
  }
}

// Panels follow each other, so that weights are one stream.
template <int ROWS, bool SPLIT>
FL_INT4 void multiply_rows(const Int4Rows& a, const Int4Weights& b, int64_t begin, int64_t end, float* out) {
  for (int64_t panel = begin; panel < end; ++panel) {
    __m512 totals[ROWS];
#pragma GCC unroll 4
    for (int i = 0; i < ROWS; ++i) totals[i] = _mm512_setzero_ps();
    for (int64_t g = 0; g * b.group < b.k; ++g) add_group<ROWS, SPLIT>(a, b, panel, g, totals);
#pragma GCC unroll 4
    for (int i = 0; i < ROWS; ++i) _mm512_storeu_ps(out + i * b.n + panel * kInt4Panel, totals[i]);
  }
}

template <bool SPLIT>
void multiply_any(const Int4Rows& a, const Int4Weights& b, int64_t begin, int64_t end, float* out) {
  switch (a.rows) {
    case 1:
      return multiply_rows<1, SPLIT>(a, b, begin, end, out);
    case 2:
      return multiply_rows<2, SPLIT>(a, b, begin, end, out);
    case 3:
      return multiply_rows<3, SPLIT>(a, b, begin, end, out);
    default:
      return multiply_rows<4, SPLIT>(a, b, begin, end, out);
  }
}

}  // namespace
#endif

void pack_int4(const int32_t* numbers, int64_t n, int64_t k, uint8_t* packed) {
  for (int64_t panel = 0; panel < n / kInt4Panel; ++panel)
    for (int64_t s = 0; s < k / kInt4Step; ++s) {
      uint8_t* to = packed + panel * k * 8 + s * 32;
      for (int64_t b = 0; b < 32; ++b) {
        const int32_t* column = numbers + (panel * kInt4Panel + b / 2) * k + s * kInt4Step + b % 2;
        to[b] = uint8_t((column[0] & 15) | (column[2] & 15) << 4);
      }
    }
}

#ifdef FL_X86
namespace {

// The same with AVX-512: vpermps looks at four bits of each index, so that shifts alone single out a number.
template <class T>
FL_INT4 void widen_panel(const Int4Weights& b, int64_t panel, T* to, int64_t to_row) {
  const __m512 table = _mm512_set_ps(7, 6, 5, 4, 3, 2, 1, 0, -1, -2, -3, -4, -5, -6, -7, -8);
  __m512 scale, zero;
  for (int64_t p = 0; p < b.k; p += kInt4Step, to += kInt4Step * to_row) {
    if (p % b.group == 0) load_grids(b, p / b.group * b.n + panel * kInt4Panel, scale, zero);
    const auto* from = reinterpret_cast<const __m256i*>(b.packed + panel * b.k * 8 + p * 8);
    const __m512i words = _mm512_cvtepu8_epi16(_mm256_loadu_si256(from));
    const __m512i numbers[kInt4Step] = {words, _mm512_srli_epi32(words, 16), _mm512_srli_epi32(words, 4),
                                        _mm512_srli_epi32(words, 20)};
#pragma GCC unroll 4
    for (int i = 0; i < kInt4Step; ++i) {
      const __m512 values = _mm512_fmadd_ps(_mm512_permutexvar_ps(numbers[i], table), scale, zero);
      if constexpr (std::is_same_v<T, float>)
        _mm512_storeu_ps(to + i * to_row, values);
      else
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i * to_row), (__m256i)_mm512_cvtneps_pbh(values));
    }
  }
}

}  // namespace
#endif

bool multiplies_int4() {
  return has_capability(Capability::Avx512Bf16);
}

template <class T>
void widen_int4(const Int4Weights& b, int64_t panel, T* to, int64_t to_row) {
#ifdef FL_X86
  if (multiplies_int4()) return widen_panel(b, panel, to, to_row);
#endif
  float scales[kInt4Panel], zeros[kInt4Panel];
  for (int64_t p = 0; p < b.k; ++p) {
    if (p % b.group == 0)
      for (int64_t j = 0; j < kInt4Panel; ++j) {
        const int64_t at = b.grid_numbers() * (p / b.group * b.n + panel * kInt4Panel + j);
        const auto* narrow = static_cast<const BFloat16*>(b.grids) + at;
        const auto* wide = static_cast<const float*>(b.grids) + at;
        scales[j] = b.narrow ? float(narrow[0]) : wide[0];
        zeros[j] = !b.zeros ? 0.0f : b.narrow ? float(narrow[1]) : wide[1];
      }
    const uint8_t* from = b.packed + panel * b.k * 8 + p / kInt4Step * 32 + p % 2;
    const int shift = p % kInt4Step < 2 ? 0 : 4;
    float line[kInt4Panel];
    for (int64_t j = 0; j < kInt4Panel; ++j)
      line[j] = float((from[2 * j] >> shift & 15) - 8) * scales[j] + zeros[j];
    for (int64_t j = 0; j < kInt4Panel; ++j) to[p * to_row + j] = T(line[j]);
  }
}
template void widen_int4(const Int4Weights&, int64_t, float*, int64_t);
template void widen_int4(const Int4Weights&, int64_t, BFloat16*, int64_t);

void multiply_int4(const Int4Rows& a, const Int4Weights& b, int64_t begin, int64_t end, float* out) {
#ifdef FL_X86
  return a.low ? multiply_any<true>(a, b, begin, end, out) : multiply_any<false>(a, b, begin, end, out);
#else
  fail("[multiply_int4] expected a processor with AVX-512");
#endif
}

}  // namespace fl::cpu::quantized
