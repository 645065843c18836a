// Kernels over units in the vector registers of aarch64: see units.h.
#include "cpu/gemm/unit_tile.h"

#ifndef FL_X86

#include <arm_neon.h>

namespace fl::cpu::products {
namespace {

// Vectors of 32-bit units; loads and stores are those of the compiler.
typedef int32x4_t Units;
#define FL_NEON inline __attribute__((always_inline))

FL_NEON Units load_units(const void* p) {
  Units x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
FL_NEON float32x4_t load_floats(const void* p) {
  float32x4_t x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
template <class Vector>
FL_NEON void store_units(void* p, Vector x) {
  std::memcpy(p, &x, sizeof x);
}

// The sums of pairs of products of 16-bit integers.
FL_NEON Units dot_words(Units sum, Units x, Units y) {
  const int16x8_t a = vreinterpretq_s16_s32(x), b = vreinterpretq_s16_s32(y);
  const int32x4_t low = vmull_s16(vget_low_s16(a), vget_low_s16(b)), high = vmull_high_s16(a, b);
  return vaddq_s32(sum, vpaddq_s32(low, high));
}

#define FL_ADD(x, y) ((x) + (y))
#define FL_DOT_MIXED(s, x, y) vusdotq_s32(s, vreinterpretq_u8_s32(x), vreinterpretq_s8_s32(y))
// Signed bytes alone are multiplied: x is taken as unsigned bytes less 128, and 128 times y is added.
#define FL_DOT_SIGNED(s, x, y)                                                                             \
  vsubq_s32(                                                                                               \
      vdotq_s32(s, vreinterpretq_s8_s32((x) ^ vdupq_n_s32(int32_t(0x80808080))), vreinterpretq_s8_s32(y)), \
      vdotq_s32(vdupq_n_s32(0), vdupq_n_s8(-128), vreinterpretq_s8_s32(y)))
#define FL_DOT_BFLOAT16(s, x, y) vbfdotq_f32(s, vreinterpretq_bf16_s32(x), vreinterpretq_bf16_s32(y))

FL_DEFINE_UNIT_TILE(WordsTile, "+simd", Units, Units, 4, vdupq_n_s32(0), vdupq_n_s32, load_units, dot_words,
                    FL_SUM, load_units, FL_ADD, store_units)
FL_DEFINE_UNIT_TILE(SignedTile, "arch=armv8.2-a+dotprod", Units, Units, 4, vdupq_n_s32(0), vdupq_n_s32,
                    load_units, FL_DOT_SIGNED, FL_SUM, load_units, FL_ADD, store_units)
FL_DEFINE_UNIT_TILE(MixedTile, "arch=armv8.2-a+dotprod+i8mm", Units, Units, 4, vdupq_n_s32(0), vdupq_n_s32,
                    load_units, FL_DOT_MIXED, FL_SUM, load_units, FL_ADD, store_units)
FL_DEFINE_UNIT_TILE(Bfloat16Tile, "arch=armv8.2-a+bf16", Units, float32x4_t, 4, vdupq_n_f32(0), vdupq_n_s32,
                    load_units, FL_DOT_BFLOAT16, FL_SUM, load_floats, FL_ADD, store_units)

constexpr int kRows = 12;  // of tiles: with two vectors of columns they fill the registers

UnitSet best_byte_units() {
  if (has_capability(Capability::NeonI8mm)) return set_of<MixedTile, kRows>(4, 8);
  if (has_capability(Capability::NeonDot)) return set_of<SignedTile, kRows>(4, 8);
  return set_of<WordsTile, kRows>(2, 8);
}

}  // namespace

const UnitSet* word_units() {
  return nullptr;
}

const UnitSet* bfloat16_units() {
  static const UnitSet set =
      has_capability(Capability::NeonBf16) ? set_of<Bfloat16Tile, kRows>(2, 8) : UnitSet();
  return set.max_rows > 0 ? &set : nullptr;
}

const UnitSet& byte_units() {
  static const UnitSet set = best_byte_units();
  return set;
}

}  // namespace fl::cpu::products

#endif  // FL_X86
