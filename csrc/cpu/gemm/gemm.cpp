// Dense products on the CPU: see gemm.h.
//
// float, double, bfloat16 and half use one blocked algorithm.  The product is divided into tiles of up to
// 14 x 32 results (for AVX-512 floats) kept in registers while a block of k is walked; rows of B are
// loaded as vectors, elements of A are broadcast.  Blocks of A and B are rearranged ("packed") into
// the order the tile kernel walks them, converting 16-bit types to float on the way, unless the
// operand already lies well and is read too few times for packing to pay.  C^T = B^T A^T is
// computed instead when that side is cheaper.  Measured against the oneDNN matmul primitive this is
// as fast or faster (three times so for bfloat16, which oneDNN emulates on most processors), and
// no primitive has to be built for each shape.  Processors that multiply pairs of bfloat16 have kernels for
// them.  Only large products of float and double go to oneDNN's sgemm and OpenBLAS's dgemm. Matrix-vector
// products, integers and complex types have simpler paths of their own.
//
//   tiles*        the tile kernels          pack.h       conversion and packing
//   product.h     one product, one thread   vector.h     matrix times vector
//   floating.h    batches and threads       others.cpp   integers and complex numbers
//   pairs.cpp     bfloat16 in pairs         bytes.cpp    8-bit integers (units.h)
#include "cpu/gemm/gemm.h"

#include <atomic>

#include "cpu/gemm/paths.h"
#include "cpu/gemm/vector_order.h"

namespace fl::cpu {

namespace {
std::atomic<bool> rounded_products{false};
}

void set_rounded_products(bool on) {
  rounded_products.store(on, std::memory_order_relaxed);
}

bool rounds_products() {
  return rounded_products.load(std::memory_order_relaxed);
}

void gemm(const GemmArgs& g) {
  if (g.batch <= 0 || g.m <= 0 || g.n <= 0) return;
  switch (g.dtype) {
    case DType::Float:
      return products::gemm_float(g);
    case DType::Double:
      return products::gemm_double(g);
    case DType::BFloat16:
      return products::gemm_bfloat16(g);
    case DType::Half:
      return products::gemm_half(g);
    case DType::Int64:
    case DType::Int32:
    case DType::Int16:
    case DType::Int8:
    case DType::UInt8:
      return products::gemm_integral(g);
    case DType::ComplexFloat:
    case DType::ComplexDouble:
      return products::gemm_complex(g);
    default:
      break;
  }
  fail(ErrorKind::NotImplemented, "[gemm] expected a dtype to multiply in, got ", name_of(g.dtype));
}

void dot(DType dtype, int64_t n, const void* x, int64_t x_stride, const void* y, int64_t y_stride,
         void* out) {
  if (dtype == DType::Float && x_stride == 1 && y_stride == 1 && n <= products::kOrderedDepth) {
    *static_cast<float*>(out) =
        products::ordered_dot(static_cast<const float*>(x), static_cast<const float*>(y), n);
    return;
  }
  GemmArgs g;
  g.dtype = dtype;
  g.m = g.n = 1;
  g.k = n;
  g.a = x, g.a_col = x_stride;
  g.b = y, g.b_row = y_stride;
  g.c = out;
  gemm(g);
}

FL_ATTACH(gemm, CPU, gemm);
FL_ATTACH(dot, CPU, dot);

}  // namespace fl::cpu
