// Packing into units: see unit_pack.h.
#include "cpu/gemm/unit_pack.h"

#include <type_traits>

#include "cpu/engine/capability.h"

namespace fl::cpu::products {
namespace {

#ifdef FL_X86
#define FL_UNITS FL_AVX512

FL_INLINE __mmask16 first_lanes(int64_t n) {
  return n >= 16 ? __mmask16(0xffff) : __mmask16((1u << n) - 1);
}

// Two rows as pairs: to[j] = (first[j], second[j]); without a second row its elements are zeros.
FL_AVX512 inline void join_rows(const uint16_t* first, const uint16_t* second, uint32_t* to, int64_t n) {
  for (int64_t j = 0; j < n; j += 16) {
    const __mmask16 lanes = first_lanes(n - j);
    __m512i pairs = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, first + j));
    if (second)
      pairs = _mm512_or_si512(
          pairs, _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, second + j)), 16));
    _mm512_mask_storeu_epi32(to + j, lanes, pairs);
  }
}

// Rows of 16 units, of which `lanes` are read, become columns.
FL_AVX512 inline void transpose_16(const char* from, int64_t stride, int64_t rows, __mmask16 lanes,
                                   int64_t units, uint32_t* to, int64_t width) {
  __m512i r[16], t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i)
    r[i] = i < rows ? _mm512_maskz_loadu_epi32(lanes, from + i * stride) : _mm512_setzero_si512();
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    const __m512i a = _mm512_unpacklo_epi32(r[i], r[i + 1]), b = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    const __m512i c = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]),
                  d = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);
    t[i] = _mm512_unpacklo_epi64(a, c), t[i + 1] = _mm512_unpackhi_epi64(a, c);
    t[i + 2] = _mm512_unpacklo_epi64(b, d), t[i + 3] = _mm512_unpackhi_epi64(b, d);
  }
  // t[4 g + c] has, in each quarter q, unit 4 q + c of rows 4 g to 4 g + 3.
  const __mmask16 stored = first_lanes(rows);
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i low = _mm512_shuffle_i32x4(t[c], t[4 + c], 0x44),
                  high = _mm512_shuffle_i32x4(t[c], t[4 + c], 0xee);
    const __m512i low2 = _mm512_shuffle_i32x4(t[8 + c], t[12 + c], 0x44);
    const __m512i high2 = _mm512_shuffle_i32x4(t[8 + c], t[12 + c], 0xee);
    const __m512i columns[4] = {_mm512_shuffle_i32x4(low, low2, 0x88), _mm512_shuffle_i32x4(low, low2, 0xdd),
                                _mm512_shuffle_i32x4(high, high2, 0x88),
                                _mm512_shuffle_i32x4(high, high2, 0xdd)};
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q)
      if (4 * q + c < units) _mm512_mask_storeu_epi32(to + (4 * q + c) * width, stored, columns[q]);
  }
}

#else
#define FL_UNITS

inline void join_rows(const uint16_t* first, const uint16_t* second, uint32_t* to, int64_t n) {
  for (int64_t j = 0; j < n; ++j) to[j] = first[j] | (second ? uint32_t(second[j]) << 16 : 0);
}
#endif

// One block of one panel whose elements lie along k.
void pack_columns(const uint16_t* from, int64_t stride, int64_t count, int64_t k, uint32_t* to,
                  int64_t width) {
  transpose_units(reinterpret_cast<const char*>(from), stride * 2, count, k / 2, to, width);
  if (k % 2)
    for (int64_t j = 0; j < count; ++j) to[k / 2 * width + j] = from[j * stride + k - 1];
}

void pack_any(const uint16_t* from, int64_t stride, int64_t k_stride, int64_t count, int64_t k, uint32_t* to,
              int64_t width) {
  for (int64_t p = 0; p < k; p += 2)
    for (int64_t j = 0; j < count; ++j) {
      const uint16_t* at = from + j * stride + p * k_stride;
      to[p / 2 * width + j] = at[0] | (p + 1 < k ? uint32_t(at[k_stride]) << 16 : 0);
    }
}

// What lies beyond the elements of a block of a panel: columns from `count` on, units from `used` on.
void fill_rest(uint32_t* to, int64_t width, int64_t count, int64_t used, int64_t units) {
  if (count < width)
    for (int64_t u = 0; u < used; ++u) std::fill(to + u * width + count, to + (u + 1) * width, 0u);
  std::fill(to + used * width, to + units * width, 0u);
}

}  // namespace

FL_UNITS void transpose_units(const char* from, int64_t stride, int64_t count, int64_t units, uint32_t* to,
                              int64_t width) {
#ifdef FL_X86
  for (int64_t u = 0; u < units; u += 16)
    for (int64_t j = 0; j < count; j += 16)
      transpose_16(from + j * stride + u * 4, stride, std::min<int64_t>(16, count - j),
                   first_lanes(units - u), units - u, to + u * width + j, width);
#else
  for (int64_t u = 0; u < units; ++u)
    for (int64_t j = 0; j < count; ++j) std::memcpy(to + u * width + j, from + j * stride + u * 4, 4);
#endif
}

FL_UNITS void pack_pairs(const uint16_t* from, int64_t stride, int64_t k_stride, int64_t count,
                         const UnitDepth& depth, uint32_t* to, int64_t width, int64_t begin, int64_t end) {
  constexpr int64_t together = 16;  // panels that are filled side by side, so that rows are read along
  for (int64_t b = 0; b < depth.blocks; ++b) {
    const int64_t k = depth.elements_in(b);
    const uint16_t* source = from + b * depth.block * k_stride;
    const auto panel = [&](int64_t q) { return to + (q * depth.units + b * depth.block_units) * width; };
    const auto columns = [&](int64_t q) { return std::min(width, count - q * width); };
    for (int64_t q0 = begin; q0 < end; q0 += together) {
      const int64_t q1 = std::min(q0 + together, end);
      if (stride == 1) {
        for (int64_t p = 0; p < k; p += 2)
          for (int64_t q = q0; q < q1; ++q) {
            const uint16_t* row = source + p * k_stride + q * width;
            join_rows(row, p + 1 < k ? row + k_stride : nullptr, panel(q) + p / 2 * width, columns(q));
          }
      } else {
        for (int64_t q = q0; q < q1; ++q)
          if (k_stride == 1)
            pack_columns(source + q * width * stride, stride, columns(q), k, panel(q), width);
          else
            pack_any(source + q * width * stride, stride, k_stride, columns(q), k, panel(q), width);
      }
      for (int64_t q = q0; q < q1; ++q)
        fill_rest(panel(q), width, columns(q), divide_up(k, 2), depth.units_in(b));
    }
  }
}

// ---- integers ----------------------------------------------------------------------------------

namespace {

// A unit of up to four elements that lie `k_stride` apart.
template <class E>
FL_INLINE uint32_t unit_of(const int8_t* from, int64_t k_stride, int64_t elements) {
  using Bits = std::make_unsigned_t<E>;
  uint32_t unit = 0;
  for (int64_t r = 0; r < elements; ++r) unit |= uint32_t(Bits(E(from[r * k_stride]))) << (8 * sizeof(E) * r);
  return unit;
}

// One panel of columns that lie beside each other: rows are read along.
template <class E>
void pack_beside(const int8_t* from, int64_t k_stride, int64_t columns, int64_t k, uint32_t* to,
                 int64_t width, int32_t* sums) {
  constexpr int64_t each = 4 / sizeof(E);
  for (int64_t p = 0; p < k; p += each) {
    uint32_t* units = to + p / each * width;
    const int8_t* row = from + p * k_stride;
    if (p + each <= k) {
      for (int64_t j = 0; j < columns; ++j) units[j] = unit_of<E>(row + j, k_stride, each);
    } else {
      for (int64_t j = 0; j < columns; ++j) units[j] = unit_of<E>(row + j, k_stride, k - p);
    }
    for (int64_t r = 0; r < std::min(each, k - p); ++r)
      for (int64_t j = 0; j < columns; ++j) sums[j] += row[r * k_stride + j];
  }
}

#ifdef FL_X86
// 4 rows of 32 columns as units of 4 bytes, and the sums of columns.
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))) inline void join_bytes(
    const int8_t* const rows[4], uint32_t* to, __m512i& low_sums, __m512i& high_sums) {
  __m256i r[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) r[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[i]));
  const __m256i a = _mm256_unpacklo_epi8(r[0], r[1]), b = _mm256_unpackhi_epi8(r[0], r[1]);
  const __m256i c = _mm256_unpacklo_epi8(r[2], r[3]), d = _mm256_unpackhi_epi8(r[2], r[3]);
  // Each has 4 columns in either half: columns 0 and 16 on, 4 and 20 on, and so forth.
  const __m256i u[4] = {_mm256_unpacklo_epi16(a, c), _mm256_unpackhi_epi16(a, c), _mm256_unpacklo_epi16(b, d),
                        _mm256_unpackhi_epi16(b, d)};
  const __m512i low = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_permute2x128_si256(u[0], u[1], 0x20)),
                                         _mm256_permute2x128_si256(u[2], u[3], 0x20), 1);
  const __m512i high = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_permute2x128_si256(u[0], u[1], 0x31)),
                                          _mm256_permute2x128_si256(u[2], u[3], 0x31), 1);
  _mm512_storeu_si512(to, low), _mm512_storeu_si512(to + 16, high);
  const __m512i ones = _mm512_set1_epi8(1);
  low_sums = _mm512_dpbusd_epi32(low_sums, ones, low), high_sums = _mm512_dpbusd_epi32(high_sums, ones, high);
}

// A whole panel of 32 columns that lie beside each other.
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))) void pack_beside_32(
    const int8_t* from, int64_t k_stride, int64_t k, uint32_t* to, int32_t* sums) {
  static const int8_t nothing[32] = {};
  __m512i low = _mm512_setzero_si512(), high = low;
  for (int64_t p = 0; p < k; p += 4, to += 32) {
    const int8_t* rows[4];
    for (int64_t r = 0; r < 4; ++r) rows[r] = p + r < k ? from + (p + r) * k_stride : nothing;
    join_bytes(rows, to, low, high);
  }
  _mm512_storeu_si512(sums, low), _mm512_storeu_si512(sums + 16, high);
}
#endif

// One panel of columns that lie apart.
template <class E>
void pack_apart(const int8_t* from, int64_t stride, int64_t k_stride, int64_t columns, int64_t k,
                uint32_t* to, int64_t width, int32_t* sums) {
  constexpr int64_t each = 4 / sizeof(E);
  const bool moves =
      sizeof(E) == 1 && k_stride == 1 && isa() != Isa::Avx2;  // units lie in memory as they should
  const int64_t moved = moves ? k / each : 0;
  if (moves) transpose_units(reinterpret_cast<const char*>(from), stride, columns, moved, to, width);
  for (int64_t j = 0; j < columns; ++j) {
    const int8_t* column = from + j * stride;
    for (int64_t p = moved * each; p < k; p += each)
      to[p / each * width + j] = unit_of<E>(column + p * k_stride, k_stride, std::min(each, k - p));
    int32_t sum = 0;
    if (k_stride == 1)
      for (int64_t p = 0; p < k; ++p) sum += column[p];
    else
      for (int64_t p = 0; p < k; ++p) sum += column[p * k_stride];
    sums[j] = sum;
  }
}

}  // namespace

template <class E>
void pack_integers(const int8_t* from, int64_t stride, int64_t k_stride, int64_t count,
                   const UnitDepth& depth, uint32_t* to, int64_t width, int32_t* sums, int64_t begin,
                   int64_t end) {
  constexpr int64_t each = 4 / sizeof(E);
  for (int64_t q = begin; q < end; ++q) {
    uint32_t* panel = to + q * depth.units * width;
    const int64_t columns = std::min(width, count - q * width);
    const int8_t* source = from + q * width * stride;
    std::fill_n(sums + q * width, width, 0);
#ifdef FL_X86
    if (stride == 1 && sizeof(E) == 1 && width == 32 && columns == 32 &&
        has_capability(Capability::Avx512Vnni)) {
      pack_beside_32(source, k_stride, depth.k, panel, sums + q * width);
      fill_rest(panel, width, columns, divide_up(depth.k, each), depth.units);
      continue;
    }
#endif
    if (stride == 1)
      pack_beside<E>(source, k_stride, columns, depth.k, panel, width, sums + q * width);
    else
      pack_apart<E>(source, stride, k_stride, columns, depth.k, panel, width, sums + q * width);
    fill_rest(panel, width, columns, divide_up(depth.k, each), depth.units);
  }
}
template void pack_integers<int8_t>(const int8_t*, int64_t, int64_t, int64_t, const UnitDepth&, uint32_t*,
                                    int64_t, int32_t*, int64_t, int64_t);
template void pack_integers<int16_t>(const int8_t*, int64_t, int64_t, int64_t, const UnitDepth&, uint32_t*,
                                     int64_t, int32_t*, int64_t, int64_t);

}  // namespace fl::cpu::products
