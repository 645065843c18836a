// Products of bfloat16 by instructions that multiply pairs of them (AVX512-BF16, AMX-BF16): see units.h.
#pragma once

#include "cpu/gemm/product.h"
#include "cpu/gemm/units.h"

namespace fl::cpu {
struct ProductFinish;
}

namespace fl::cpu::products {

// The product on this thread alone; D is BFloat16 or float.
template <class D>
void multiply_pairs(const UnitSet& set, Product<BFloat16, float, D> p);

// The same for operands of float, which are rounded to bfloat16 first.
void multiply_rounded(const UnitSet& set, const Product<float, float, float>& p);

// B as multiply_packed_pairs reads it, in 32-bit units.
int64_t packed_pair_count(const UnitSet& set, int64_t k, int64_t n);
void pack_pair_matrix(const UnitSet& set, int64_t k, int64_t n, const BFloat16* b, int64_t b_row,
                      int64_t b_col, uint32_t* to);
// Rows `is` and columns `js` (which begin at a panel) of a product with packed B, and what follows it.
void multiply_packed_pairs(const UnitSet& set, const Product<BFloat16, float, BFloat16>& p,
                           const uint32_t* packed, const ProductFinish* finish, Range is, Range js);

}  // namespace fl::cpu::products
