// The kernels of a reduction record from its scalar arithmetic. Work is divided by blocks, warps or columns;
// where there are few results and much to fold, the reduced elements are divided too, and a second kernel
// folds the parts in a fixed order, so that results do not change from run to run.
#pragma once

#include "cuda/device.cuh"
#include "cuda/generated.h"

namespace fl::cuda {

// F: init<A>(), load<T>(T, const P*), combine<A>(A, A), finish<A>(A, A n, const P*); R is what is written.
template <class F, class T, class A, class R>
struct Reduction {
  using P = typename RealOf<T>::type;
  static __device__ __forceinline__ A init() { return F::template init<A>(); }
  static __device__ __forceinline__ A combine(A a, A b) { return F::template combine<A>(a, b); }
  static __device__ __forceinline__ A take(T x, const P* p) {
    return static_cast<A>(F::template load<T, P>(x, p));
  }
  static __device__ __forceinline__ void params(const ReduceArgs& a, P (&p)[2]) {
    p[0] = static_cast<P>(a.param[0]);
    p[1] = static_cast<P>(a.param[1]);
  }
  static __device__ __forceinline__ void write(const ReduceArgs& a, uint32_t output, uint32_t part, A total,
                                               const P* p) {
    if (a.parts > 1) {
      static_cast<A*>(a.partial)[int64_t(part) * a.outputs + output] = total;
      return;
    }
    int64_t at[2];
    a.kept.locate(output, at);
    store<R>(a.out + at[1], a.out_dtype,
             static_cast<R>(F::template finish<A, P>(total, static_cast<A>(a.count), p)));
  }

  // Some of the reduced elements of one result, every `step`th.
  static __device__ __forceinline__ A strided(const ReduceArgs& a, const char* in, uint32_t begin,
                                              uint32_t end, uint32_t step, const P* p) {
    A lane[4] = {init(), init(), init(), init()};
    uint32_t i = begin;
    if (a.contiguous) {
      const int64_t size = a.reduced.stride[0][0];
      for (; i + 3 * step < end; i += 4 * step) {
        T x[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) x[k] = load<T>(in + int64_t(i + k * step) * size, a.in_dtype);
#pragma unroll
        for (int k = 0; k < 4; ++k) lane[k] = combine(lane[k], take(x[k], p));
      }
      for (; i < end; i += step)
        lane[0] = combine(lane[0], take(load<T>(in + int64_t(i) * size, a.in_dtype), p));
    } else {
      for (; i < end; i += step) {
        int64_t at[1];
        a.reduced.locate(i, at);
        lane[0] = combine(lane[0], take(load<T>(in + at[0], a.in_dtype), p));
      }
    }
    return combine(combine(lane[0], lane[1]), combine(lane[2], lane[3]));
  }
  // The same for float elements that lie side by side on 16-byte boundaries, eight at a time.
  static __device__ __forceinline__ A wide(const ReduceArgs& a, const char* in, uint32_t begin, uint32_t end,
                                           uint32_t thread, uint32_t threads, const P* p) {
    if constexpr (std::is_same_v<T, float>) {
      const int64_t size = a.reduced.stride[0][0];
      const bool fits = a.contiguous &&
                        (a.in_dtype == DType::Float
                             ? size == 4
                             : (a.in_dtype == DType::BFloat16 || a.in_dtype == DType::Half) && size == 2) &&
                        (reinterpret_cast<uintptr_t>(in + begin * size) & 15) == 0;
      if (fits) {
        A lane[kVector];
#pragma unroll
        for (int k = 0; k < kVector; ++k) lane[k] = init();
        const uint32_t vectors = (end - begin) / kVector;
        for (uint32_t i = thread; i < vectors; i += threads) {
          float x[kVector];
          load_vector(x, in + (begin + int64_t(i) * kVector) * size, a.in_dtype);
#pragma unroll
          for (int k = 0; k < kVector; ++k) lane[k] = combine(lane[k], take(x[k], p));
        }
        const uint32_t rest = begin + vectors * kVector + thread;
        if (rest < end) lane[0] = combine(lane[0], take(load<T>(in + int64_t(rest) * size, a.in_dtype), p));
#pragma unroll
        for (int w = kVector / 2; w > 0; w /= 2)
#pragma unroll
          for (int k = 0; k < kVector / 2; ++k)
            if (k < w) lane[k] = combine(lane[k], lane[k + w]);
        return lane[0];
      }
    }
    return strided(a, in, begin + thread, end, threads, p);
  }
  struct Combine {
    __device__ A operator()(A x, A y) const { return combine(x, y); }
  };
};

// grid: (results, parts)
template <class F, class T, class A, class R>
__global__ void __launch_bounds__(512) reduce_rows(const __grid_constant__ ReduceArgs a) {
  using K = Reduction<F, T, A, R>;
  __shared__ SharedArray<A, 33> memory;
  A* const shared = memory.get();
  typename K::P p[2];
  K::params(a, p);
  const uint32_t begin = blockIdx.y * a.part, end = min(begin + a.part, a.length);
  for (uint32_t output = blockIdx.x; output < a.outputs; output += gridDim.x) {
    int64_t at[2];
    a.kept.locate(output, at);
    A total = K::wide(a, a.in + at[0], begin, end, threadIdx.x, blockDim.x, p);
    total = block_fold(total, typename K::Combine{}, K::init(), shared);
    if (threadIdx.x == 0) K::write(a, output, blockIdx.y, total, p);
    __syncthreads();
  }
}

// block: (32, warps)
template <class F, class T, class A, class R>
__global__ void __launch_bounds__(256) reduce_warps(const __grid_constant__ ReduceArgs a) {
  using K = Reduction<F, T, A, R>;
  typename K::P p[2];
  K::params(a, p);
  for (uint32_t output = blockIdx.x * 8 + threadIdx.y; output < a.outputs; output += gridDim.x * 8) {
    int64_t at[2];
    a.kept.locate(output, at);
    A total = K::wide(a, a.in + at[0], 0, a.length, threadIdx.x, 32, p);
    total = warp_fold(total, typename K::Combine{});
    if (threadIdx.x == 0) K::write(a, output, 0, total, p);
  }
}

// block: (32, 8): 32 neighbouring results, eight threads on each; grid: (results / 32, parts)
template <class F, class T, class A, class R>
__global__ void __launch_bounds__(256) reduce_columns(const __grid_constant__ ReduceArgs a) {
  using K = Reduction<F, T, A, R>;
  __shared__ SharedArray<A, 8 * 33> memory;
  A(*const shared)[33] = reinterpret_cast<A(*)[33]>(memory.get());
  typename K::P p[2];
  K::params(a, p);
  const uint32_t output = blockIdx.x * 32 + threadIdx.x;
  const uint32_t begin = blockIdx.y * a.part, end = min(begin + a.part, a.length);
  A total = K::init();
  if (output < a.outputs) {
    int64_t at[2];
    a.kept.locate(output, at);
    total = K::strided(a, a.in + at[0], begin + threadIdx.y, end, 8, p);
  }
  shared[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
#pragma unroll
  for (int w = 4; w > 0; w /= 2) {
    if (threadIdx.y < w)
      shared[threadIdx.y][threadIdx.x] =
          K::combine(shared[threadIdx.y][threadIdx.x], shared[threadIdx.y + w][threadIdx.x]);
    __syncthreads();
  }
  if (threadIdx.y == 0 && output < a.outputs) K::write(a, output, blockIdx.y, shared[0][threadIdx.x], p);
}

// Float columns that lie side by side, eight to a thread; block: (32, 8) on 256 columns.
template <class F, class T, class A, class R>
__global__ void __launch_bounds__(256) reduce_wide_columns(const __grid_constant__ ReduceArgs a) {
  using K = Reduction<F, T, A, R>;
  __shared__ A shared[8][32 * kVector + 1];
  typename K::P p[2];
  K::params(a, p);
  const uint32_t output = (blockIdx.x * 32 + threadIdx.x) * kVector;
  const uint32_t begin = blockIdx.y * a.part, end = min(begin + a.part, a.length);
  A total[kVector];
#pragma unroll
  for (int j = 0; j < kVector; ++j) total[j] = K::init();
  if (output < a.outputs) {
    int64_t at[2];
    a.kept.locate(output, at);
    const char* in = a.in + at[0];
    const int64_t step = a.reduced.stride[0][0];
    uint32_t i = begin + threadIdx.y;
    for (; i + 8 < end; i += 16) {
      float x[kVector], y[kVector];
      load_vector(x, in + int64_t(i) * step, a.in_dtype);
      load_vector(y, in + int64_t(i + 8) * step, a.in_dtype);
#pragma unroll
      for (int j = 0; j < kVector; ++j)
        total[j] = K::combine(total[j], K::combine(K::take(x[j], p), K::take(y[j], p)));
    }
    for (; i < end; i += 8) {
      float x[kVector];
      load_vector(x, in + int64_t(i) * step, a.in_dtype);
#pragma unroll
      for (int j = 0; j < kVector; ++j) total[j] = K::combine(total[j], K::take(x[j], p));
    }
  }
#pragma unroll
  for (int j = 0; j < kVector; ++j) shared[threadIdx.y][j * 32 + threadIdx.x] = total[j];
  __syncthreads();
  // Each row of threads folds one of the eight columns of all threads.
  A sum = shared[0][threadIdx.y * 32 + threadIdx.x];
#pragma unroll
  for (int k = 1; k < 8; ++k) sum = K::combine(sum, shared[k][threadIdx.y * 32 + threadIdx.x]);
  if (output < a.outputs) K::write(a, output + threadIdx.y, blockIdx.y, sum, p);
}

template <class F, class T, class A, class R>
__global__ void __launch_bounds__(256) reduce_finish(const __grid_constant__ ReduceArgs a) {
  using K = Reduction<F, T, A, R>;
  __shared__ SharedArray<A, 33> memory;
  A* const shared = memory.get();
  typename K::P p[2];
  K::params(a, p);
  const A* partial = static_cast<const A*>(a.partial);
  if (a.outputs >= kFinishByThread) {
    const uint32_t output = blockIdx.x * 256 + threadIdx.x;
    if (output >= a.outputs) return;
    A total = K::init();
    for (uint32_t i = 0; i < a.parts; ++i)
      total = K::combine(total, partial[int64_t(i) * a.outputs + output]);
    ReduceArgs last = a;
    last.parts = 1;
    K::write(last, output, 0, total, p);
    return;
  }
  const uint32_t output = blockIdx.x;
  A total = K::init();
  for (uint32_t i = threadIdx.x; i < a.parts; i += 256)
    total = K::combine(total, partial[int64_t(i) * a.outputs + output]);
  total = block_fold(total, typename K::Combine{}, K::init(), shared);
  if (threadIdx.x == 0) {
    ReduceArgs last = a;
    last.parts = 1;
    K::write(last, output, 0, total, p);
  }
}

template <class F, class T, class A, class R>
ReduceKernels reduce_kernels() {
  ReduceKernels k{&reduce_rows<F, T, A, R>,
                  &reduce_warps<F, T, A, R>,
                  &reduce_columns<F, T, A, R>,
                  &reduce_finish<F, T, A, R>,
                  nullptr,
                  int(sizeof(A))};
  if constexpr (std::is_same_v<T, float>) k.wide_columns = &reduce_wide_columns<F, T, A, R>;
  return k;
}

}  // namespace fl::cuda
