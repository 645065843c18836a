// Sixteen bfloat16 in memory as floats of a vector register, and back.
#pragma once

#include "core/dtype.h"
#include "cpu/engine/x86.h"
#include "cpu/gemm/tiles.h"

#ifdef FL_X86

namespace fl::cpu::products {

FL_AVX512 inline __m512 load_widened(const BFloat16* from, __mmask16 lanes) {
  const __m512i loaded = _mm512_maskz_loadu_epi16(lanes, from);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(loaded)), 16));
}

// Rounds 16 floats to bfloat16, ties to even; NaN stays one.
FL_AVX512 inline void store_rounded(BFloat16* to, __m512 x, __mmask16 lanes) {
  const __m512i whole = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(whole, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(whole, odd), _mm512_set1_epi32(0x7fff));
  rounded =
      _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), _mm512_set1_epi32(0x7fc00000));
  _mm512_mask_cvtepi32_storeu_epi16(to, lanes, _mm512_srli_epi32(rounded, 16));
}

}  // namespace fl::cpu::products

#endif  // FL_X86
