// Dense products on the CPU, for kernels that are made of products: see gemm.cpp.
#pragma once

#include "ops/gemm.h"

namespace fl::cpu {

// The product of device::gemm; all operands are in the memory of the host.
void gemm(const GemmArgs& args);

// sum_i x[i] * y[i], written to *out (one element of dtype); no conjugation.
void dot(DType dtype, int64_t n, const void* x, int64_t x_stride, const void* y, int64_t y_stride, void* out);

}  // namespace fl::cpu
