// The text of the tile kernels; gemm_tiles_float.cpp and gemm_tiles_double.cpp compile it for a type each.
#pragma once

#include <algorithm>

#include "cpu/gemm/tiles.h"

namespace fl::cpu::products {
namespace {

// out[i][j] (+)= sum_p a[i * a_row + p * a_col] * b[p * b_row + j], i < ROWS, j < VECS * lanes.
// With A_DENSE a_row is 1.  The text is expanded once per instruction set because GCC splits wide
// vectors before inlining, which rules out a shared always-inline body.
#define FL_DEFINE_TILE(SET, TARGET, BYTES)                                                                  \
  struct SET {                                                                                              \
    template <class T, int ROWS, int VECS, bool A_DENSE>                                                    \
    TARGET static void tile(int64_t k, const T* a, int64_t a_row, int64_t a_col, const T* b, int64_t b_row, \
                            T* out, int64_t out_row, bool accumulate) {                                     \
      typedef T Vec __attribute__((vector_size(BYTES)));                                                    \
      typedef T Mem __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));                     \
      constexpr int lanes = BYTES / sizeof(T);                                                              \
      Vec acc[ROWS][VECS] = {};                                                                             \
      if (A_DENSE) a_row = 1;                                                                               \
      /* Three rows per pointer: x86 addresses reach p, p + s and p + 2s. */                                \
      const T* rows[(ROWS + 2) / 3];                                                                        \
      _Pragma("GCC unroll 16") for (int i = 0; i < (ROWS + 2) / 3; ++i) rows[i] = a + 3 * i * a_row;        \
      _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i) for (int v = 0; v < VECS; ++v)                \
          __builtin_prefetch(out + i * out_row + v * lanes, 1);                                             \
      for (int64_t p = 0; p < k; ++p) {                                                                     \
        Vec bv[VECS];                                                                                       \
        _Pragma("GCC unroll 16") for (int v = 0; v < VECS; ++v) bv[v] =                                     \
            *reinterpret_cast<const Mem*>(b + v * lanes);                                                   \
        _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i) {                                           \
          const T x = A_DENSE ? a[i] : rows[i / 3][(i % 3) * a_row];                                        \
          _Pragma("GCC unroll 16") for (int v = 0; v < VECS; ++v) acc[i][v] += x * bv[v];                   \
        }                                                                                                   \
        b += b_row;                                                                                         \
        a += a_col;                                                                                         \
        if (!A_DENSE) {                                                                                     \
          _Pragma("GCC unroll 16") for (int i = 0; i < (ROWS + 2) / 3; ++i) rows[i] += a_col;               \
        }                                                                                                   \
      }                                                                                                     \
      _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i) {                                             \
        _Pragma("GCC unroll 16") for (int v = 0; v < VECS; ++v) {                                           \
          Mem* o = reinterpret_cast<Mem*>(out + i * out_row + v * lanes);                                   \
          *o = accumulate ? Vec(*o + acc[i][v]) : acc[i][v];                                                \
        }                                                                                                   \
      }                                                                                                     \
    }                                                                                                       \
  };

#ifdef FL_X86
FL_DEFINE_TILE(Avx512Tile, FL_AVX512, 64)
FL_DEFINE_TILE(Avx2Tile, FL_AVX2, 32)
#else
FL_DEFINE_TILE(NeonTile, , 16)
#endif
#undef FL_DEFINE_TILE

template <class T, class Set, int ROWS>
void fill(TileSet<T>& set, int bytes) {
  set.max_rows = std::max(set.max_rows, ROWS);
  set.lanes = bytes / int(sizeof(T));
  set.kernel[0][0][ROWS - 1] = &Set::template tile<T, ROWS, 1, false>;
  set.kernel[0][1][ROWS - 1] = &Set::template tile<T, ROWS, 2, false>;
  set.kernel[1][0][ROWS - 1] = &Set::template tile<T, ROWS, 1, true>;
  set.kernel[1][1][ROWS - 1] = &Set::template tile<T, ROWS, 2, true>;
  if constexpr (ROWS > 1) fill<T, Set, ROWS - 1>(set, bytes);
}

template <class T>
TileSet<T> best_tiles() {
  TileSet<T> set;
#ifdef FL_X86
  if (isa() == Isa::Avx512)
    fill<T, Avx512Tile, 14>(set, 64);
  else
    fill<T, Avx2Tile, 6>(set, 32);
#else
  fill<T, NeonTile, 12>(set, 16);
#endif
  return set;
}

}  // namespace
}  // namespace fl::cpu::products
