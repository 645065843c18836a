// The tile kernels of dense products: small blocks of results kept in registers (see gemm.cpp).
#pragma once

#include <cstdint>

#include "cpu/engine/capability.h"
#include "cpu/engine/x86.h"

namespace fl::cpu::products {

#define FL_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")))
#define FL_AVX2 __attribute__((target("avx2,fma,f16c")))
#define FL_INLINE inline __attribute__((always_inline))

enum class Isa { Avx2, Avx512, Neon };

#ifdef FL_X86
inline Isa isa() {
  static const Isa best = has_capability(Capability::Avx512) ? Isa::Avx512 : Isa::Avx2;
  return best;
}
#else
constexpr Isa isa() {
  return Isa::Neon;
}
#endif

constexpr int kMaxRows = 14;
constexpr int kMaxWidth = 32;  // floats in two AVX-512 vectors

// The tile kernels of the best instruction set for T, made in gemm_tiles_<T>.cpp.
template <class T>
struct TileSet {
  using Kernel = void (*)(int64_t, const T*, int64_t, int64_t, const T*, int64_t, T*, int64_t, bool);
  int max_rows = 0;
  int lanes = 0;                       // a panel of B is two vectors wide, or one at the edge
  Kernel kernel[2][2][kMaxRows] = {};  // [A dense][vectors - 1][rows - 1]

  int width() const { return 2 * lanes; }
  static const TileSet& get();
};
template <>
const TileSet<float>& TileSet<float>::get();
template <>
const TileSet<double>& TileSet<double>::get();

}  // namespace fl::cpu::products
