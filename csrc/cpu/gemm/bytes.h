// Products of 8-bit integers with 32-bit sums, and what becomes of the sums: see units.h.
//
// The values are (a - a_zero) * a_scale and (b - b_zero) * b_scale. Instructions multiply unsigned with
// signed bytes, so that A is kept unsigned (signed bytes are moved up by 128, and their zero with them) and
// zeros are taken out of the sums afterwards, by the sums of columns of B and, where B has zeros, of rows of
// A. All of this is exact.
#pragma once

#include <vector>

#include "core/dtype.h"
#include "cpu/gemm/paths.h"
#include "cpu/gemm/product_finish.h"
#include "cpu/gemm/units.h"

namespace fl::cpu::products {

// B (k x n) as kernels read it: panels, and the sums of columns.
struct PackedBytes {
  int64_t k = 0, n = 0;
  const uint32_t* panels = nullptr;
  const int32_t* column_sums = nullptr;  // of n columns, rounded up to whole panels
};
int64_t packed_byte_panels(int64_t k, int64_t n);  // 32-bit units of the panels
int64_t packed_byte_columns(int64_t n);            // column sums, and columns of the panels
void pack_bytes(int64_t k, int64_t n, const int8_t* b, int64_t b_row, int64_t b_col, uint32_t* panels,
                int32_t* column_sums);

// A row of A as unsigned bytes on a grid of its own.
struct RowGrid {
  float scale = 1;
  int32_t zero = 0;
};

// Where the rows of A come from.
class ByteRows {
 public:
  virtual ~ByteRows() = default;
  // Writes k bytes of a row and says on which grid they lie.
  virtual RowGrid fill(int64_t row, uint8_t* to) const = 0;
  // The bytes of all rows, `row_stride` apart, where they lie already as they should (on `direct_grid`); else
  // null.
  const uint8_t* direct = nullptr;
  int64_t row_stride = 0;
  RowGrid direct_grid;
};

// What becomes of sums: float(sum) * a_scale * b_scale + bias + other, an activation, and the grid of the
// result.
struct ByteFinish {
  const float* b_scales = nullptr;  // of columns; null: results are the sums themselves (int32)
  bool one_scale = false;
  const int32_t* b_zeros = nullptr;  // of columns, or null
  const float* bias = nullptr;

  const void* other = nullptr;  // like the results, rows `other_row` apart
  DType other_dtype = DType::Float;
  int64_t other_row = 0;
  float other_scale = 1;
  int32_t other_zero = 0;

  bool activates = false, relu = false;
  FinishKind activation = FinishKind::Relu;

  void* out = nullptr;
  DType out_dtype = DType::Float;  // Float, BFloat16, UInt8, Int8, Int32
  int64_t out_row = 0;
  float out_scale = 1;
  int32_t out_zero = 0;
};

// The product of m rows with B, divided among threads.
void multiply_bytes(int64_t m, const ByteRows& rows, const PackedBytes& b, const ByteFinish& finish);

// The same for rows on one grid and B that is not packed, with sums as results, where multiplies_few_rows
// says so: few rows read B once.
constexpr int64_t kFewByteRows = 16;
bool multiplies_few_rows(int64_t m, int64_t k, int64_t b_row, int64_t b_col);
void multiply_few_rows(int64_t m, const ByteRows& rows, int64_t k, int64_t n, const int8_t* b, int64_t b_row,
                       int64_t b_col, int32_t* out);

// Bytes with another sign bit: int8 to uint8 with values moved up by 128, and back.
void flip_signs(const uint8_t* from, uint8_t* to, int64_t n);

}  // namespace fl::cpu::products
