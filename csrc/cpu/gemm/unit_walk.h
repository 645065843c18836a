// The walk over a window of a product of units, on one thread: see units.h.
//
// Groups of rows that stay in the second cache, panels of B, blocks of depth, tiles. Sums of a group's rows
// of a panel are finished while they lie in the first cache.
#pragma once

#include "cpu/gemm/unit_pack.h"

namespace fl::cpu::products {

// Rows of A as kernels read them; strides count bytes.
struct UnitRows {
  const char* at;
  int64_t tile;  // from a tile to the next
  int64_t row, unit;
  int64_t block;  // from a block of depth to the next
  bool dense;
};

// Rows in panels of `height`, unit after unit.
inline UnitRows dense_rows(const void* panels, int64_t height, const UnitDepth& depth) {
  return {static_cast<const char*>(panels),
          height * depth.units * 4,
          4,
          height * 4,
          depth.block_units * height * 4,
          true};
}
// Rows one after the other.
inline UnitRows plain_rows(const void* rows, int64_t row_bytes, int64_t block_bytes, int64_t height) {
  return {static_cast<const char*>(rows), height * row_bytes, row_bytes, 4, block_bytes, false};
}

constexpr int64_t kGroupBytes = 400'000;  // of A, which stay in the second cache
constexpr int64_t kMostGroup = 336;

// The height of tiles for so many rows.
inline int64_t tile_height(const UnitSet& set, int64_t rows) {
  if (set.rows_only) return set.max_rows;
  return divide_up(rows, divide_up(rows, set.max_rows));
}

// Calls finish(sums, first row, rows, first column, columns) for parts of the window; rows(first, count,
// height) gives the units of A; columns begin at a panel, and `packed` is the first panel of all.
template <class Sum, class Rows, class Finish>
void walk_units(const UnitSet& set, const UnitDepth& depth, const uint32_t* packed, Range is, Range js,
                const Rows& rows_of, const Finish& finish) {
  const UnitScope scope(set);
  const int64_t width = set.width, height = tile_height(set, is.end - is.begin);
  const int64_t most = std::clamp<int64_t>(kGroupBytes / (depth.units * 4 + 1), 2 * height, kMostGroup);
  const int64_t group = std::min(most / height * height, round_up(is.end - is.begin, height));
  Sum* sums = static_cast<Sum*>(scratch(2).get(size_t(group) * width * sizeof(Sum)));
  for (int64_t i0 = is.begin; i0 < is.end; i0 += group) {
    const int64_t rows = std::min(group, is.end - i0), tiles = divide_up(rows, height);
    const UnitRows a = rows_of(i0, rows, height);
    for (int64_t j0 = js.begin; j0 < js.end; j0 += width) {
      const int64_t used = std::min(width, js.end - j0);
      const int vectors = used > set.lanes() ? 2 : 1;
      const uint32_t* panel = packed + j0 * depth.units;
      for (int64_t b = 0; b < depth.blocks; ++b)
        for (int64_t t = 0; t < tiles; ++t) {
          const int64_t high = std::min(height, rows - t * height);
          set.kernel[a.dense][vectors - 1][high - 1](depth.units_in(b), a.at + t * a.tile + b * a.block,
                                                     a.row, a.unit, panel + b * depth.block_units * width,
                                                     sums + t * height * width, width, b > 0, {});
        }
      finish(sums, i0, rows, j0, used);
    }
  }
}

}  // namespace fl::cpu::products
