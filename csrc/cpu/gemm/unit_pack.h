// Packing of operands into units of 32 bits: see units.h.
#pragma once

#include <algorithm>
#include <cstring>

#include "cpu/gemm/pack.h"
#include "cpu/gemm/product.h"
#include "cpu/gemm/units.h"

namespace fl::cpu::products {

inline int64_t round_up(int64_t a, int64_t b) {
  return divide_up(a, b) * b;
}

// How depth k becomes blocks of units.
struct UnitDepth {
  int64_t k, block;     // elements of all, and of a block but the last
  int64_t block_units;  // of a block but the last
  int64_t blocks, units;

  UnitDepth(const UnitSet& set, int64_t depth, int64_t most) : k(depth), block(std::max<int64_t>(most, 1)) {
    const auto units_of = [&](int64_t n) { return round_up(divide_up(n, set.elements), set.unit_multiple); };
    blocks = std::max<int64_t>(1, divide_up(k, block));
    block_units = units_of(std::min(block, k));
    units = (blocks - 1) * block_units + units_of(k - (blocks - 1) * block);
  }
  int64_t elements_in(int64_t b) const { return std::min(block, k - b * block); }
  int64_t units_in(int64_t b) const { return b + 1 < blocks ? block_units : units - b * block_units; }
};

// ---- pairs of bfloat16 -------------------------------------------------------------------------

// Packs panels [begin, end) of a matrix with `count` columns (or rows, for A): in panel q, unit u of column j
// lies at to[(q * depth.units + u) * width + j] and holds two elements along k, zeros where there are none.
// Requires AVX-512 on x86.
void pack_pairs(const uint16_t* from, int64_t stride, int64_t k_stride, int64_t count, const UnitDepth& depth,
                uint32_t* to, int64_t width, int64_t begin, int64_t end);

// Units that lie along k, transposed: to[u * width + j] = the unit at from + j * stride + 4 u (stride counts
// bytes), for j < count <= 32 and u < units. Requires AVX-512 on x86.
void transpose_units(const char* from, int64_t stride, int64_t count, int64_t units, uint32_t* to,
                     int64_t width);

// Rows as they are, each `row_bytes` after the other, with zeros at the end of blocks.
inline void pack_pair_rows(const uint16_t* from, int64_t stride, int64_t k_stride, int64_t rows,
                           const UnitDepth& depth, char* to, int64_t row_bytes) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t b = 0; b < depth.blocks; ++b) {
      const uint16_t* source = from + i * stride + b * depth.block * k_stride;
      uint16_t* row = reinterpret_cast<uint16_t*>(to + i * row_bytes + b * depth.block_units * 4);
      const int64_t n = depth.elements_in(b);
      if (k_stride == 1)
        std::memcpy(row, source, size_t(n) * sizeof(uint16_t));
      else
        for (int64_t p = 0; p < n; ++p) row[p] = source[p * k_stride];
      std::fill(row + n, row + 2 * depth.units_in(b), uint16_t(0));
    }
}

// ---- integers ----------------------------------------------------------------------------------

// Packs panels [begin, end) of signed bytes with `count` columns, in bytes (E is int8_t) or widened to 16
// bits (int16_t), and adds up columns.
template <class E>
void pack_integers(const int8_t* from, int64_t stride, int64_t k_stride, int64_t count,
                   const UnitDepth& depth, uint32_t* to, int64_t width, int32_t* sums, int64_t begin,
                   int64_t end);

}  // namespace fl::cpu::products
