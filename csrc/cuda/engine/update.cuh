// The kernel of an update record (an optimizer step) over many tensors at once: each block takes a chunk of
// one of them.
#pragma once

#include "cuda/engine/device.cuh"
#include "cuda/engine/generated.h"

namespace fl::cuda {

// F: lists, written (a bit for each list), values, apply(T (&x)[lists], const T* values), which changes x;
// scalars, scalars_written, once(scalars, numbers, new scalars, values).
template <class F>
__global__ void update_once(const __grid_constant__ UpdateOnceArgs a) {
  const int i = threadIdx.x;
  if (i >= a.count) return;
  double s[F::scalars + 1], o[F::scalars + 1];
#pragma unroll
  for (int k = 0; k < F::scalars; ++k) s[k] = load<double>(a.scalar[k][i], a.dtype[k][i]);
  F::once(s, a.number, o, a.rows + i * F::values);
#pragma unroll
  for (int k = 0; k < F::scalars; ++k)
    if (F::scalars_written >> k & 1) store<double>(a.scalar[k][i], a.dtype[k][i], o[k]);
}

// Floats only, which most lists are: without a look at dtypes between them, all loads are under way at once.
// The answer is how many elements that were.
template <class F>
__device__ int update_floats(char* const (&data)[F::lists], int n, const float* u) {
  const int whole = n / 4 * 4;
#pragma unroll 2
  for (int i = threadIdx.x * 4; i < whole; i += kUpdateThreads * 4) {
    float4 x[F::lists];
#pragma unroll
    for (int k = 0; k < F::lists; ++k) x[k] = *reinterpret_cast<const float4*>(data[k] + i * 4);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float e[F::lists];
#pragma unroll
      for (int k = 0; k < F::lists; ++k) e[k] = reinterpret_cast<const float (&)[4]>(x[k])[j];
      F::template apply<float>(e, u);
#pragma unroll
      for (int k = 0; k < F::lists; ++k) reinterpret_cast<float (&)[4]>(x[k])[j] = e[k];
    }
#pragma unroll
    for (int k = 0; k < F::lists; ++k)
      if (F::written >> k & 1) *reinterpret_cast<float4*>(data[k] + i * 4) = x[k];
  }
  return whole;
}

// The last tensor that begins at a block or before it.
__device__ __forceinline__ int tensor_of(const UpdateArgs& a, uint32_t block) {
  int t = 0;
#pragma unroll
  for (int step = kUpdateTensors / 2; step > 0; step /= 2)
    if (a.first[t + step] <= block) t += step;
  return t;
}

template <class F, class T>
__global__ void __launch_bounds__(kUpdateThreads, 4) update_lists(const __grid_constant__ UpdateArgs a) {
  const int t = tensor_of(a, blockIdx.x);
  const int64_t base = int64_t(blockIdx.x - a.first[t]) * kUpdateChunk;
  const int n = static_cast<int>(min(int64_t(kUpdateChunk), a.numel[t] - base));
  T u[F::values > 0 ? F::values : 1];
  const double* value = a.rows ? a.rows + a.row[t] * F::values : a.value;
#pragma unroll
  for (int k = 0; k < F::values; ++k) u[k] = static_cast<T>(value[k]);
  char* data[F::lists];
  DType dtype[F::lists];
  bool aligned = std::is_same_v<T, float>, plain = aligned;
#pragma unroll
  for (int k = 0; k < F::lists; ++k) {
    dtype[k] = a.dtype[k][t];
    data[k] = a.data[k][t] + base * item_size(dtype[k]);
    aligned &= (reinterpret_cast<uintptr_t>(data[k]) & 15) == 0;
    plain &= dtype[k] == DType::Float;
  }
  int first = 0;
  if constexpr (std::is_same_v<T, float>) {
    if (aligned && plain) {
      first = update_floats<F>(data, n, u);
    } else if (aligned) {
      first = n / kVector * kVector;
      for (int i = threadIdx.x * kVector; i < first; i += kUpdateThreads * kVector) {
        float x[F::lists][kVector];
#pragma unroll
        for (int k = 0; k < F::lists; ++k) load_vector(x[k], data[k] + i * item_size(dtype[k]), dtype[k]);
#pragma unroll
        for (int j = 0; j < kVector; ++j) {
          float e[F::lists];
#pragma unroll
          for (int k = 0; k < F::lists; ++k) e[k] = x[k][j];
          F::template apply<float>(e, u);
#pragma unroll
          for (int k = 0; k < F::lists; ++k) x[k][j] = e[k];
        }
#pragma unroll
        for (int k = 0; k < F::lists; ++k)
          if (F::written >> k & 1) store_vector<float>(data[k] + i * item_size(dtype[k]), dtype[k], x[k]);
      }
    }
  }
  for (int i = first + threadIdx.x; i < n; i += kUpdateThreads) {
    T e[F::lists];
#pragma unroll
    for (int k = 0; k < F::lists; ++k) e[k] = load<T>(data[k] + i * item_size(dtype[k]), dtype[k]);
    F::template apply<T>(e, u);
#pragma unroll
    for (int k = 0; k < F::lists; ++k)
      if (F::written >> k & 1) store<T>(data[k] + i * item_size(dtype[k]), dtype[k], e[k]);
  }
}

}  // namespace fl::cuda
