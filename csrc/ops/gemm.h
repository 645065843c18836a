// Dense products: batched C = alpha * A @ B + beta * C (+ bias) (relu).
//
// The kernels know nothing about tensors: they take raw pointers, sizes and element strides.  Any
// stride is accepted for A, B and C (transposed, sliced, broadcast with a batch stride of 0);
// operands are read where they lie, and only the blocks being multiplied are rearranged.
#pragma once

#include <complex>
#include <cstdint>

#include "core/device_function.h"
#include "core/dtype.h"

namespace fl {

namespace cpu {
struct ProductFinish;
}

// One batched product.  A is m x k, B is k x n, C is m x n; strides count elements.
struct GemmArgs {
  DType dtype = DType::Float;  // of A, B, C and bias; every type but Bool
  int64_t batch = 1, m = 0, n = 0, k = 0;

  const void* a = nullptr;
  int64_t a_batch = 0, a_row = 0, a_col = 1;

  const void* b = nullptr;
  int64_t b_batch = 0, b_row = 0, b_col = 1;

  // C may overlap neither A nor B, and no two of its elements may share an address.
  void* c = nullptr;
  int64_t c_batch = 0, c_row = 0, c_col = 1;

  std::complex<double> alpha{1, 0};
  std::complex<double> beta{0, 0};  // 0: C is only written, so it may hold anything, NaN too

  const void* bias = nullptr;  // n values added to every row, not scaled; null: none
  int64_t bias_stride = 1;
  bool relu = false;  // max(0, .) last of all; ignored by complex types
  const cpu::ProductFinish* finish =
      nullptr;           // what follows, on the CPU (cpu/gemm/product_finish.h): after all of the above
  bool narrow = false;   // floats of 16-bit origin: the accelerator may multiply with as few bits (TF32)
  bool widened = false;  // of 16-bit types on an accelerator: C is of floats
  int8_t device = -1;    // of the accelerator, where all operands lie; -1: on the CPU
};

// alpha * A @ B + beta * C + bias. m, n, k or batch may be 0 (k = 0 leaves beta * C + bias). bfloat16 and
// half accumulate in float; integers wrap around.
namespace device {
extern DeviceFunction<void(const GemmArgs&)> gemm;
// sum_i x[i] * y[i] of n elements, written to *out; no conjugation. Devices without it multiply matrices.
extern DeviceFunction<void(DType dtype, int64_t n, const void* x, int64_t x_stride, const void* y,
                           int64_t y_stride, void* out)>
    dot;
}  // namespace device

}  // namespace fl
