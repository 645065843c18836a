// Weights of four bits in groups along k, and products with them: value = (number - 8) * scale + zero, or
// without zeros, which take as many bytes as scales.
//
// Columns of the product (rows of the weight) lie in panels of 16. Four numbers of each column follow each
// other: in byte 2 j + r of their 32 bytes, elements r (low half) and 2 + r (high half) of column j. So the
// low halves of all bytes are pairs along k of 16 columns, which a table turns into pairs of bfloat16
// (integers from -8 to 7 are exact there).
#pragma once

#include <cstdint>

namespace fl::cpu::quantized {

constexpr int64_t kInt4Panel = 16, kInt4Step = 4;

// (n, k) numbers from 0 to 15 into n * k / 2 bytes; n is a multiple of kInt4Panel, k of kInt4Step.
void pack_int4(const int32_t* numbers, int64_t n, int64_t k, uint8_t* packed);

// Rows of A in bfloat16, possibly with what rounding to it lost in a second row; and the sums of each group
// of them.
struct Int4Rows {
  int64_t rows;
  const uint16_t *high, *low;  // rows of k elements; low: null where A is bfloat16
  const float* group_sums;     // rows x groups
};
struct Int4Weights {
  int64_t n, k, group;
  const uint8_t* packed;
  const void* grids;  // groups x n pairs of scale and zero, or scales alone
  bool narrow;        // they are bfloat16; otherwise float
  bool zeros;         // whether there are zeros

  int64_t grid_numbers() const { return zeros ? 2 : 1; }
};
constexpr int64_t kMostInt4Rows = 4;

// Values of one panel, (k, 16) with rows `to_row` apart; T is float or BFloat16.
template <class T>
void widen_int4(const Int4Weights& b, int64_t panel, T* to, int64_t to_row);

// out[i * n + j] for the columns of panels [begin, end), rows <= kMostInt4Rows. Requires AVX512-BF16.
// Whether the processor has what multiply_int4 needs.
bool multiplies_int4();
void multiply_int4(const Int4Rows& a, const Int4Weights& b, int64_t begin, int64_t end, float* out);

}  // namespace fl::cpu::quantized
