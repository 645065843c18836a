// The kernels of a pointwise record from its scalar arithmetic: one for operands that lie contiguously, eight
// elements to a thread, and one for any strides and dtypes. Dtypes are looked at at run time, so that a
// record needs two kernels for float and one for each other type of computation.
#pragma once

#include "cuda/engine/device.cuh"
#include "cuda/engine/device_math.cuh"
#include "cuda/engine/generated.h"

namespace fl::cuda {

template <class T>
__device__ __forceinline__ T number(uint64_t bits) {
  if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(__longlong_as_double(static_cast<long long>(bits)));
  else
    return static_cast<T>(static_cast<int64_t>(bits));
}

// F: operands, params, apply(const T (&x)[operands], const T* params). R is what is written.
template <class F, class T, class R>
__global__ void __launch_bounds__(256) pointwise_strided(const __grid_constant__ PointwiseArgs a) {
  T p[F::params > 0 ? F::params : 1];
#pragma unroll
  for (int k = 0; k < F::params; ++k) p[k] = number<T>(a.param[k]);
  for (uint32_t i = blockIdx.x * 256 + threadIdx.x; i < a.n; i += gridDim.x * 256) {
    int64_t at[5];
    a.geometry.locate(i, at);
    T x[F::operands];
#pragma unroll
    for (int k = 0; k < F::operands; ++k)
      x[k] = a.constants >> k & 1 ? number<T>(a.constant[k]) : load<T>(a.in[k] + at[k + 1], a.in_dtype[k]);
    store<R>(a.out + at[0], a.out_dtype, static_cast<R>(F::template apply<T>(x, p)));
  }
}

// Eight elements of all operands, which lie side by side in memory or are the same number.
template <class F, class R>
__device__ __forceinline__ void pointwise_eight(const FlatArgs& a, const float* p, const char* const (&in)[4],
                                                uint32_t same, char* out) {
  float x[F::operands][kVector];
#pragma unroll
  for (int k = 0; k < F::operands; ++k) {
    if (same >> k & 1) {
      const float c = a.constants >> k & 1 ? number<float>(a.constant[k]) : load<float>(in[k], a.in_dtype[k]);
#pragma unroll
      for (int j = 0; j < kVector; ++j) x[k][j] = c;
    } else {
      load_vector(x[k], in[k], a.in_dtype[k]);
    }
  }
  R y[kVector];
#pragma unroll
  for (int j = 0; j < kVector; ++j) {
    float e[F::operands];
#pragma unroll
    for (int k = 0; k < F::operands; ++k) e[k] = x[k][j];
    y[j] = static_cast<R>(F::template apply<float>(e, p));
  }
  store_vector<R>(out, a.out_dtype, y);
}

template <class F, class R>
__global__ void __launch_bounds__(256) pointwise_vector(const __grid_constant__ FlatArgs a) {
  float p[F::params > 0 ? F::params : 1];
#pragma unroll
  for (int k = 0; k < F::params; ++k) p[k] = number<float>(a.param[k]);
  const uint32_t first = (blockIdx.x * 256 + threadIdx.x) * kVector;
  if (first >= a.n) return;
  if (first + kVector <= a.n) {
    const char* in[4];
#pragma unroll
    for (int k = 0; k < F::operands; ++k) in[k] = a.in[k] + int64_t(first) * a.in_size[k];
    pointwise_eight<F, R>(a, p, in, a.constants, a.out + int64_t(first) * a.out_size);
    return;
  }
  for (uint32_t i = first; i < a.n; ++i) {
    float e[F::operands];
#pragma unroll
    for (int k = 0; k < F::operands; ++k)
      e[k] = a.constants >> k & 1 ? number<float>(a.constant[k])
                                  : load<float>(a.in[k] + int64_t(i) * a.in_size[k], a.in_dtype[k]);
    store<R>(a.out + int64_t(i) * a.out_size, a.out_dtype, static_cast<R>(F::template apply<float>(e, p)));
  }
}

// Rows whose elements lie side by side, or are one number, in every operand; the geometry counts vectors.
template <class F, class R>
__global__ void __launch_bounds__(256) pointwise_rows(const __grid_constant__ PointwiseArgs a) {
  float p[F::params > 0 ? F::params : 1];
#pragma unroll
  for (int k = 0; k < F::params; ++k) p[k] = number<float>(a.param[k]);
  const uint32_t i = blockIdx.x * 256 + threadIdx.x;
  if (i >= a.n) return;
  int64_t at[5];
  a.geometry.locate(i, at);
  const char* in[4];
#pragma unroll
  for (int k = 0; k < F::operands; ++k) in[k] = a.in[k] + at[k + 1];
  pointwise_eight<F, R>(a, p, in, a.constants | a.repeated, a.out + at[0]);
}

template <class F, class T, class R>
PointwiseKernels pointwise_kernels() {
  PointwiseKernels k;
  k.strided = &pointwise_strided<F, T, R>;
  if constexpr (std::is_same_v<T, float>) {
    k.vector = &pointwise_vector<F, R>;
    k.rows = &pointwise_rows<F, R>;
  }
  return k;
}

}  // namespace fl::cuda
