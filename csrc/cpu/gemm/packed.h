// Products with a matrix B that was rearranged before, for weights that stay from call to call.
//
// The panels of pack.h for all of B, one block of k after the other, in float: four bytes for each element,
// and columns rounded up to whole panels. bfloat16 stays in pairs (units.h) where there are instructions for
// them.
#pragma once

#include "cpu/gemm/gemm.h"

namespace fl::cpu {

bool can_pack(DType dtype);                               // Float and BFloat16
int64_t packed_count(DType dtype, int64_t k, int64_t n);  // floats
void pack_matrix(DType dtype, int64_t k, int64_t n, const void* b, int64_t b_row, int64_t b_col, float* to);

// The product of one batch with alpha = 1 and beta = 0; rows of A and C are contiguous, B is not looked at.
void gemm_packed(const GemmArgs& args, const float* packed);

}  // namespace fl::cpu
