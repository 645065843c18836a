// Complex numbers in kernels. Both kinds are computed in double precision, as on the CPU, so that a record
// needs one kernel. Include this before the other headers of device code.
#pragma once

#define FL_DEVICE_COMPLEX
#include "cuda/engine/device.cuh"
#include "cuda/engine/generated.h"
#include "math/record_math.h"

namespace fl::cuda {

using Complex = math::complex128;

template <>
struct RealOf<Complex> {
  using type = double;
};

template <>
__device__ __forceinline__ Complex load<Complex>(const char* p, DType dtype) {
  if (dtype == DType::ComplexFloat) {
    const float2 z = *reinterpret_cast<const float2*>(p);
    return {z.x, z.y};
  }
  if (dtype == DType::ComplexDouble) {
    const double* z = reinterpret_cast<const double*>(p);
    return {z[0], z[1]};
  }
  return {load<double>(p, dtype), 0.0};
}

template <>
__device__ __forceinline__ void store<Complex>(char* p, DType dtype, Complex z) {
  if (dtype == DType::ComplexFloat) {
    *reinterpret_cast<float2*>(p) = make_float2(float(z.real()), float(z.imag()));
  } else {
    reinterpret_cast<double*>(p)[0] = z.real();
    reinterpret_cast<double*>(p)[1] = z.imag();
  }
}

template <>
__device__ __forceinline__ Complex shuffle_xor<Complex>(Complex z, int mask) {
  return {shuffle_xor(z.real(), mask), shuffle_xor(z.imag(), mask)};
}

// F as for real numbers (pointwise.cuh); R is what is written: Complex, double or bool.
template <class F, class R>
__global__ void __launch_bounds__(256) pointwise_complex(const __grid_constant__ ComplexArgs a) {
  const auto real = [](uint64_t bits) { return __longlong_as_double(static_cast<long long>(bits)); };
  Complex p[F::params > 0 ? F::params : 1];
#pragma unroll
  for (int k = 0; k < F::params; ++k) p[k] = Complex(real(a.param[k]), a.imaginary_param[k]);
  for (uint32_t i = blockIdx.x * 256 + threadIdx.x; i < a.n; i += gridDim.x * 256) {
    int64_t at[5];
    a.geometry.locate(i, at);
    Complex x[F::operands];
#pragma unroll
    for (int k = 0; k < F::operands; ++k)
      x[k] = a.constants >> k & 1 ? Complex(real(a.constant[k]), a.imaginary_constant[k])
                                  : load<Complex>(a.in[k] + at[k + 1], a.in_dtype[k]);
    store<R>(a.out + at[0], a.out_dtype, static_cast<R>(F::template apply<Complex>(x, p)));
  }
}

}  // namespace fl::cuda
