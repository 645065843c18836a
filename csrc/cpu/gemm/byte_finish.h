// What becomes of the 32-bit sums of 8-bit integer products: see ByteFinish.
#pragma once

#include "cpu/gemm/bytes.h"

namespace fl::cpu::products {

// Sums of some rows and columns of a product, rows `width` apart; they are overwritten.
struct ByteWindow {
  int32_t* sums;
  int64_t width;
  int64_t first_row, rows, first_column, columns;
  const RowGrid* grids;        // of the rows
  const int32_t* row_sums;     // of A, where B has zeros
  const int32_t* column_sums;  // of B, all columns
  int64_t depth;
};

void finish_bytes(const ByteFinish& finish, const ByteWindow& window);

// Floats on the grid of a result: out[j] = x[j] / scale + zero, rounded to even and clamped to the dtype.
void quantize_row(const float* x, int64_t n, float scale, int32_t zero, uint8_t* out);
void quantize_row(const float* x, int64_t n, float scale, int32_t zero, int8_t* out);

}  // namespace fl::cpu::products
