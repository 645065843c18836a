// The text of the kernels over units in vector registers, which unit_tiles*.cpp compile for instruction sets:
// see units.h.
#pragma once

#include <algorithm>
#include <cstring>

#include "cpu/engine/capability.h"
#include "cpu/engine/x86.h"
#include "cpu/gemm/units.h"

namespace fl::cpu::products {
namespace {

inline __attribute__((always_inline)) int unit_at(const char* p) {
  int unit;
  std::memcpy(&unit, p, sizeof unit);
  return unit;
}

#define FL_SUM(sum) sum

// The text is expanded once for each instruction because GCC refuses to inline across targets.
//   VEC, SUM: the types of the vectors of units and of sums; DOT(sum, a, b): sum + a . b; RESULT(sum): what
//   is added to memory
#define FL_DEFINE_UNIT_TILE(NAME, TARGET, VEC, SUM, LANES, ZERO, BROADCAST, LOAD, DOT, RESULT, LOAD_SUM, \
                            ADD, STORE)                                                                  \
  struct NAME {                                                                                          \
    template <int ROWS, int VECS, bool DENSE>                                                            \
    __attribute__((target(TARGET))) static void tile(int64_t units, const char* a, int64_t a_row,        \
                                                     int64_t a_unit, const uint32_t* b, void* out,       \
                                                     int64_t out_row, bool accumulate,                   \
                                                     UnitSegments segments) {                            \
      SUM sums[ROWS][VECS];                                                                              \
      _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i)                                            \
          _Pragma("GCC unroll 2") for (int v = 0; v < VECS; ++v) sums[i][v] = ZERO;                      \
      if (DENSE) a_row = 4;                                                                              \
      for (int64_t s = 0; s < segments.count; ++s) {                                                     \
        const char* at = segments.offsets ? a + segments.offsets[s] : a;                                 \
        /* Three rows for a pointer: x86 addresses reach p, p + s and p + 2s. */                         \
        const char* rows[(ROWS + 2) / 3];                                                                \
        _Pragma("GCC unroll 16") for (int i = 0; i < (ROWS + 2) / 3; ++i) rows[i] = at + 3 * i * a_row;  \
        for (int64_t u = 0; u < units; ++u) {                                                            \
          VEC columns[VECS];                                                                             \
          _Pragma("GCC unroll 2") for (int v = 0; v < VECS; ++v) columns[v] = LOAD(b + v * LANES);       \
          _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i) {                                      \
            const VEC x = BROADCAST(unit_at(DENSE ? at + 4 * i : rows[i / 3] + (i % 3) * a_row));        \
            _Pragma("GCC unroll 2") for (int v = 0; v < VECS; ++v) sums[i][v] =                          \
                DOT(sums[i][v], x, columns[v]);                                                          \
          }                                                                                              \
          b += 2 * LANES;                                                                                \
          at += a_unit;                                                                                  \
          if (!DENSE) {                                                                                  \
            _Pragma("GCC unroll 16") for (int i = 0; i < (ROWS + 2) / 3; ++i) rows[i] += a_unit;         \
          }                                                                                              \
        }                                                                                                \
      }                                                                                                  \
      _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i) {                                          \
        _Pragma("GCC unroll 2") for (int v = 0; v < VECS; ++v) {                                         \
          uint32_t* to = static_cast<uint32_t*>(out) + i * out_row + v * LANES;                          \
          const auto result = RESULT(sums[i][v]);                                                        \
          STORE(to, accumulate ? ADD(LOAD_SUM(to), result) : result);                                    \
        }                                                                                                \
      }                                                                                                  \
    }                                                                                                    \
  };

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

}  // namespace
}  // namespace fl::cpu::products
