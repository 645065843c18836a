// Kernels over units in vector registers: see units.h.
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "cpu/engine/capability.h"
#include "cpu/gemm/units.h"

namespace fl::cpu::products {
namespace {

inline __attribute__((always_inline)) int unit_at(const char* p) {
  int unit;
  std::memcpy(&unit, p, sizeof unit);
  return unit;
}

// The text is expanded once for each instruction because GCC refuses to inline across targets.
//   VEC, ADDEND: the types of the vectors of units and of sums; DOT(sum, a, b): sum + a . b
#define FL_DEFINE_UNIT_TILE(NAME, TARGET, VEC, SUM, LANES, ZERO, BROADCAST, LOAD, DOT, LOAD_SUM, ADD, STORE) \
  struct NAME {                                                                                              \
    template <int ROWS, int VECS, bool DENSE>                                                                \
    __attribute__((target(TARGET))) static void tile(int64_t units, const char* a, int64_t a_row,            \
                                                     int64_t a_unit, const uint32_t* b, void* out,           \
                                                     int64_t out_row, bool accumulate,                       \
                                                     UnitSegments segments) {                                \
      SUM sums[ROWS][VECS];                                                                                  \
      _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i)                                                \
          _Pragma("GCC unroll 2") for (int v = 0; v < VECS; ++v) sums[i][v] = ZERO;                          \
      if (DENSE) a_row = 4;                                                                                  \
      for (int64_t s = 0; s < segments.count; ++s) {                                                         \
        const char* at = segments.offsets ? a + segments.offsets[s] : a;                                     \
        /* Three rows for a pointer: x86 addresses reach p, p + s and p + 2s. */                             \
        const char* rows[(ROWS + 2) / 3];                                                                    \
        _Pragma("GCC unroll 16") for (int i = 0; i < (ROWS + 2) / 3; ++i) rows[i] = at + 3 * i * a_row;      \
        for (int64_t u = 0; u < units; ++u) {                                                                \
          VEC columns[VECS];                                                                                 \
          _Pragma("GCC unroll 2") for (int v = 0; v < VECS; ++v) columns[v] = LOAD(b + v * LANES);           \
          _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i) {                                          \
            const VEC x = BROADCAST(unit_at(DENSE ? at + 4 * i : rows[i / 3] + (i % 3) * a_row));            \
            _Pragma("GCC unroll 2") for (int v = 0; v < VECS; ++v) sums[i][v] =                              \
                DOT(sums[i][v], x, columns[v]);                                                              \
          }                                                                                                  \
          b += 2 * LANES;                                                                                    \
          at += a_unit;                                                                                      \
          if (!DENSE) {                                                                                      \
            _Pragma("GCC unroll 16") for (int i = 0; i < (ROWS + 2) / 3; ++i) rows[i] += a_unit;             \
          }                                                                                                  \
        }                                                                                                    \
      }                                                                                                      \
      _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i) {                                              \
        _Pragma("GCC unroll 2") for (int v = 0; v < VECS; ++v) {                                             \
          uint32_t* to = static_cast<uint32_t*>(out) + i * out_row + v * LANES;                              \
          STORE(to, accumulate ? ADD(LOAD_SUM(to), sums[i][v]) : sums[i][v]);                                \
        }                                                                                                    \
      }                                                                                                      \
    }                                                                                                        \
  };

#define FL_LOAD_512(p) _mm512_loadu_si512(p)
#define FL_STORE_512(p, x) _mm512_storeu_si512(p, x)
#define FL_LOAD_FLOATS(p) _mm512_loadu_ps(p)
#define FL_STORE_FLOATS(p, x) _mm512_storeu_ps(p, x)
#define FL_LOAD_256(p) _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))
#define FL_STORE_256(p, x) _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x)
#define FL_DOT_BFLOAT16(s, x, y) _mm512_dpbf16_ps(s, (__m512bh)(x), (__m512bh)(y))
#define FL_DOT_WORDS_512(s, x, y) _mm512_add_epi32(s, _mm512_madd_epi16(x, y))
#define FL_DOT_WORDS_256(s, x, y) _mm256_add_epi32(s, _mm256_madd_epi16(x, y))

FL_DEFINE_UNIT_TILE(Bfloat16Tile, "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16", __m512i, __m512, 16,
                    _mm512_setzero_ps(), _mm512_set1_epi32, FL_LOAD_512, FL_DOT_BFLOAT16, FL_LOAD_FLOATS,
                    _mm512_add_ps, FL_STORE_FLOATS)
FL_DEFINE_UNIT_TILE(Vnni512Tile, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni", __m512i, __m512i, 16,
                    _mm512_setzero_si512(), _mm512_set1_epi32, FL_LOAD_512, _mm512_dpbusd_epi32, FL_LOAD_512,
                    _mm512_add_epi32, FL_STORE_512)
FL_DEFINE_UNIT_TILE(Words512Tile, "avx512f,avx512bw,avx512dq,avx512vl", __m512i, __m512i, 16,
                    _mm512_setzero_si512(), _mm512_set1_epi32, FL_LOAD_512, FL_DOT_WORDS_512, FL_LOAD_512,
                    _mm512_add_epi32, FL_STORE_512)
FL_DEFINE_UNIT_TILE(VnniTile, "avx2,avxvnni", __m256i, __m256i, 8, _mm256_setzero_si256(), _mm256_set1_epi32,
                    FL_LOAD_256, _mm256_dpbusd_avx_epi32, FL_LOAD_256, _mm256_add_epi32, FL_STORE_256)
FL_DEFINE_UNIT_TILE(WordsTile, "avx2", __m256i, __m256i, 8, _mm256_setzero_si256(), _mm256_set1_epi32,
                    FL_LOAD_256, FL_DOT_WORDS_256, FL_LOAD_256, _mm256_add_epi32, FL_STORE_256)

template <class Tile, int ROWS>
void fill(UnitSet& set) {
  set.max_rows = std::max(set.max_rows, ROWS);
  set.kernel[0][0][ROWS - 1] = &Tile::template tile<ROWS, 1, false>;
  set.kernel[0][1][ROWS - 1] = &Tile::template tile<ROWS, 2, false>;
  set.kernel[1][0][ROWS - 1] = &Tile::template tile<ROWS, 1, true>;
  set.kernel[1][1][ROWS - 1] = &Tile::template tile<ROWS, 2, true>;
  if constexpr (ROWS > 1) fill<Tile, ROWS - 1>(set);
}

template <class Tile, int ROWS>
UnitSet set_of(int elements, int width) {
  UnitSet set;
  set.elements = elements, set.width = width;
  fill<Tile, ROWS>(set);
  return set;
}

UnitSet best_byte_units() {
  if (has_capability(Capability::Amx)) return amx_byte_units();
  if (has_capability(Capability::Avx512Vnni)) return set_of<Vnni512Tile, kUnitTileRows>(4, 32);
  if (has_capability(Capability::Avx512)) return set_of<Words512Tile, 13>(2, 32);
  if (has_capability(Capability::AvxVnni)) return set_of<VnniTile, 6>(4, 16);
  return set_of<WordsTile, 5>(2, 16);
}

}  // namespace

const UnitSet* bfloat16_units() {
  static const UnitSet set = has_capability(Capability::Amx) ? amx_bfloat16_units()
                             : has_capability(Capability::Avx512Bf16)
                                 ? set_of<Bfloat16Tile, kUnitTileRows>(2, 32)
                                 : UnitSet();
  return set.max_rows > 0 ? &set : nullptr;
}

const UnitSet& byte_units() {
  static const UnitSet set = best_byte_units();
  return set;
}

}  // namespace fl::cpu::products
