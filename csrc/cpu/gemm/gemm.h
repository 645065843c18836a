// Dense products on the CPU, for kernels that are made of products: see gemm.cpp.
#pragma once

#include "ops/gemm.h"

namespace fl::cpu {

// The product of device::gemm; all operands are in the memory of the host.
void gemm(const GemmArgs& args);

// sum_i x[i] * y[i], written to *out (one element of dtype); no conjugation.
void dot(DType dtype, int64_t n, const void* x, int64_t x_stride, const void* y, int64_t y_stride, void* out);

// Whether large products of float may round their operands to bfloat16, where the processor multiplies that
// more quickly: set_float32_matmul_precision("medium"). Sums stay in float.
void set_rounded_products(bool on);
bool rounds_products();

}  // namespace fl::cpu
