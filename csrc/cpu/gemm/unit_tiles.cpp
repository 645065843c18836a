// Kernels over units in the vector registers of x86: see units.h.
#include "cpu/gemm/unit_tile.h"

#ifdef FL_X86

namespace fl::cpu::products {
namespace {

#define FL_LOAD_512(p) _mm512_loadu_si512(p)
#define FL_STORE_512(p, x) _mm512_storeu_si512(p, x)
#define FL_LOAD_FLOATS(p) _mm512_loadu_ps(p)
#define FL_STORE_FLOATS(p, x) _mm512_storeu_ps(p, x)
#define FL_LOAD_256(p) _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))
#define FL_STORE_256(p, x) _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x)
#define FL_DOT_BFLOAT16(s, x, y) _mm512_dpbf16_ps(s, (__m512bh)(x), (__m512bh)(y))
#define FL_DOT_WORDS_512(s, x, y) _mm512_add_epi32(s, _mm512_madd_epi16(x, y))
#define FL_DOT_WORDS_256(s, x, y) _mm256_add_epi32(s, _mm256_madd_epi16(x, y))

// GCC 12 keeps sums in memory through the whole loop when it sees this conversion behind it.
__attribute__((target("avx512f"))) inline __m512 as_floats(__m512i sums) {
  __m512 floats;
  asm("vcvtdq2ps %1, %0" : "=v"(floats) : "v"(sums));
  return floats;
}

FL_DEFINE_UNIT_TILE(Bfloat16Tile, "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16", __m512i, __m512, 16,
                    _mm512_setzero_ps(), _mm512_set1_epi32, FL_LOAD_512, FL_DOT_BFLOAT16, FL_SUM,
                    FL_LOAD_FLOATS, _mm512_add_ps, FL_STORE_FLOATS)
FL_DEFINE_UNIT_TILE(Vnni512Tile, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni", __m512i, __m512i, 16,
                    _mm512_setzero_si512(), _mm512_set1_epi32, FL_LOAD_512, _mm512_dpbusd_epi32, FL_SUM,
                    FL_LOAD_512, _mm512_add_epi32, FL_STORE_512)
FL_DEFINE_UNIT_TILE(Words512Tile, "avx512f,avx512bw,avx512dq,avx512vl", __m512i, __m512i, 16,
                    _mm512_setzero_si512(), _mm512_set1_epi32, FL_LOAD_512, FL_DOT_WORDS_512, FL_SUM,
                    FL_LOAD_512, _mm512_add_epi32, FL_STORE_512)
FL_DEFINE_UNIT_TILE(FloatWords512Tile, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni", __m512i, __m512i, 16,
                    _mm512_setzero_si512(), _mm512_set1_epi32, FL_LOAD_512, _mm512_dpwssd_epi32, as_floats,
                    FL_LOAD_FLOATS, _mm512_add_ps, FL_STORE_FLOATS)
FL_DEFINE_UNIT_TILE(VnniTile, "avx2,avxvnni", __m256i, __m256i, 8, _mm256_setzero_si256(), _mm256_set1_epi32,
                    FL_LOAD_256, _mm256_dpbusd_avx_epi32, FL_SUM, FL_LOAD_256, _mm256_add_epi32, FL_STORE_256)
FL_DEFINE_UNIT_TILE(WordsTile, "avx2", __m256i, __m256i, 8, _mm256_setzero_si256(), _mm256_set1_epi32,
                    FL_LOAD_256, FL_DOT_WORDS_256, FL_SUM, FL_LOAD_256, _mm256_add_epi32, FL_STORE_256)

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

const UnitSet* word_units() {
  const bool is_quickest = has_capability(Capability::Avx512Bf16) && !has_capability(Capability::Amx);
  static const UnitSet set = is_quickest ? set_of<FloatWords512Tile, kUnitTileRows>(2, 32) : UnitSet();
  return set.max_rows > 0 ? &set : nullptr;
}

const UnitSet& byte_units() {
  static const UnitSet set = best_byte_units();
  return set;
}

}  // namespace fl::cpu::products

#endif  // FL_X86
