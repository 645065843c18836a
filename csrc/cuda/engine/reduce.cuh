// The kernels of a reduction record from its scalar arithmetic. Work is divided by blocks, groups of threads
// or columns; where there are few results of many elements, the reduced elements are divided too, and a
// second kernel reduces the parts in a fixed order, so that results do not change from run to run.
#pragma once

#include "cuda/engine/device.cuh"
#include "cuda/engine/generated.h"

namespace fl::cuda {

// Eight neighbours in int64, of integers of any size, and of doubles; those in float are in device.cuh.
__device__ __forceinline__ void load_vector(int64_t (&v)[kVector], const char* p, DType dtype) {
  switch (dtype) {
    case DType::Int64: {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const longlong2 pair = reinterpret_cast<const longlong2*>(p)[i];
        v[2 * i] = pair.x, v[2 * i + 1] = pair.y;
      }
      return;
    }
    case DType::Int32: {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int4 four = reinterpret_cast<const int4*>(p)[i];
        v[4 * i] = four.x, v[4 * i + 1] = four.y, v[4 * i + 2] = four.z, v[4 * i + 3] = four.w;
      }
      return;
    }
    case DType::Int16: {
      const uint4 a = *reinterpret_cast<const uint4*>(p);
      const uint32_t w[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] = static_cast<int16_t>(w[i / 2] >> (i % 2 * 16));
      return;
    }
    default: {
      const uint2 a = *reinterpret_cast<const uint2*>(p);
      const uint32_t w[2] = {a.x, a.y};
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const uint32_t byte = w[i / 4] >> (i % 4 * 8) & 0xff;
        v[i] = dtype == DType::Bool   ? int64_t(byte != 0)
               : dtype == DType::Int8 ? int64_t(static_cast<int8_t>(byte))
                                      : int64_t(byte);
      }
    }
  }
}
__device__ __forceinline__ void load_vector(double (&v)[kVector], const char* p, DType) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const double2 pair = reinterpret_cast<const double2*>(p)[i];
    v[2 * i] = pair.x, v[2 * i + 1] = pair.y;
  }
}
// Whether load_vector of T takes elements of a dtype.
template <class T>
bool takes_vectors(DType dtype) {
  if (std::is_same_v<T, double>) return dtype == DType::Double;
  const bool byte = dtype == DType::Bool || dtype == DType::UInt8;
  if (std::is_same_v<T, float>)
    return byte || dtype == DType::Float || dtype == DType::BFloat16 || dtype == DType::Half;
  return byte || dtype == DType::Int8 || dtype == DType::Int16 || dtype == DType::Int32 ||
         dtype == DType::Int64;
}

// Accumulators of two numbers name the type of their second result; those with a place are told which element
// they take, and have a quicker way, F::later, to take one that comes after all they have seen.
template <class A, class = void>
struct IsPair : std::false_type {};
template <class A>
struct IsPair<A, std::void_t<typename A::Second>> : std::true_type {};

// F: init<A>(), load<T>(T, const P*), combine<A>(A, A), finish<A>(A, A n, const P*), or for pairs
// first(A, const P*) and second(A); R is what is written.
template <class F, class T, class A, class R>
struct Reduction {
  using P = typename RealOf<T>::type;
  static __device__ __forceinline__ A init() { return F::template init<A>(); }
  static __device__ __forceinline__ A combine(A a, A b) { return F::template combine<A>(a, b); }
  static __device__ __forceinline__ A take(T x, [[maybe_unused]] uint32_t place, const P* p) {
    A taken = static_cast<A>(F::template load<T, P>(x, p));
    if constexpr (IsPair<A>::value)
      if constexpr (A::placed) taken.at = place;
    return taken;
  }
  static __device__ __forceinline__ A add(A a, T x, uint32_t place, const P* p) {
    if constexpr (IsPair<A>::value)
      if constexpr (A::placed) return F::later(a, take(x, place, p));
    return combine(a, take(x, place, p));
  }
  static __device__ __forceinline__ void params(const ReduceArgs& a, P (&p)[2]) {
    p[0] = static_cast<P>(a.param[0]);
    p[1] = static_cast<P>(a.param[1]);
  }
  static __device__ __forceinline__ void write_result(const ReduceArgs& a, uint32_t output, A total,
                                                      const P* p) {
    int64_t at[2];
    a.kept.locate(output, at);
    char* const out = a.out + at[1] * a.out_item;
    if constexpr (IsPair<A>::value) {
      if (a.out) store<R>(out, a.out_dtype, F::first(total, p));
      if (a.second)
        store<typename A::Second>(a.second + at[1] * a.second_item, a.second_dtype, F::second(total));
    } else {
      store<R>(out, a.out_dtype, static_cast<R>(F::template finish<A, P>(total, static_cast<A>(a.count), p)));
    }
  }
  static __device__ __forceinline__ void write(const ReduceArgs& a, uint32_t output, uint32_t part, A total,
                                               const P* p) {
    if (a.parts > 1)
      static_cast<A*>(a.partial)[int64_t(part) * a.outputs + output] = total;
    else
      write_result(a, output, total, p);
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
        for (int k = 0; k < 4; ++k) lane[k] = add(lane[k], x[k], i + k * step, p);
      }
      for (; i < end; i += step) lane[0] = add(lane[0], load<T>(in + int64_t(i) * size, a.in_dtype), i, p);
    } else {
      for (; i < end; i += step) {
        int64_t at[1];
        a.reduced.locate(i, at);
        lane[0] = add(lane[0], load<T>(in + at[0], a.in_dtype), i, p);
      }
    }
    return combine(combine(lane[0], lane[1]), combine(lane[2], lane[3]));
  }
  // The same for elements that lie side by side on the boundaries of vectors, eight at a time.
  static __device__ __forceinline__ A wide(const ReduceArgs& a, const char* in, uint32_t begin, uint32_t end,
                                           uint32_t thread, uint32_t threads, const P* p) {
    if constexpr (std::is_arithmetic_v<T>) {
      const int64_t size = a.in_item;
      if (a.wide && (reinterpret_cast<uintptr_t>(in + begin * size) & (a.unit - 1)) == 0) {
        const auto read = [&](T(&x)[kVector], uint32_t i) {
          int64_t at[1] = {i * size};
          if (!a.contiguous) a.reduced.locate(i, at);
          load_vector(x, in + at[0], a.in_dtype);
        };
        A lane[kVector];
#pragma unroll
        for (int k = 0; k < kVector; ++k) lane[k] = init();
        const auto fold = [&](const T(&x)[kVector], uint32_t i) {
#pragma unroll
          for (int k = 0; k < kVector; ++k) lane[k] = add(lane[k], x[k], i + k, p);
        };
        const uint32_t step = threads * kVector, last = begin + (end - begin) / kVector * kVector;
        uint32_t i = begin + thread * kVector;
        for (; i + step < last; i += 2 * step) {
          T x[kVector], y[kVector];
          read(x, i);
          read(y, i + step);
          fold(x, i);
          fold(y, i + step);
        }
        if (i < last) {
          T x[kVector];
          read(x, i);
          fold(x, i);
        }
        for (i = last + thread; i < end; i += threads)
          lane[0] = add(lane[0], load<T>(in + i * size, a.in_dtype), i, p);
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

// Neighbouring threads, a power of two up to a warp, for each result.
template <class F, class T, class A, class R>
__global__ void __launch_bounds__(256) reduce_groups(const __grid_constant__ ReduceArgs a) {
  using K = Reduction<F, T, A, R>;
  typename K::P p[2];
  K::params(a, p);
  const uint32_t group = 1u << a.group_bits, thread = threadIdx.x & (group - 1);
  const uint32_t output = (blockIdx.x * (256 >> a.group_bits)) + (threadIdx.x >> a.group_bits);
  A total = K::init();
  if (output < a.outputs) {
    int64_t at[2];
    a.kept.locate(output, at);
    total = K::wide(a, a.in + at[0], 0, a.length, thread, group, p);
  }
  for (int m = group / 2; m > 0; m >>= 1) total = K::combine(total, shuffle_xor(total, m));
  if (thread == 0 && output < a.outputs) K::write_result(a, output, total, p);
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

// Columns that lie side by side, eight to a thread; block: (32, 8) on 256 columns.
template <class F, class T, class A, class R>
__global__ void __launch_bounds__(256) reduce_wide_columns(const __grid_constant__ ReduceArgs a) {
  using K = Reduction<F, T, A, R>;
  constexpr int kPitch = 32 * kVector + 1;
  __shared__ SharedArray<A, 8 * kPitch> memory;
  A(*const shared)[kPitch] = reinterpret_cast<A(*)[kPitch]>(memory.get());
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
      T x[kVector], y[kVector];
      load_vector(x, in + int64_t(i) * step, a.in_dtype);
      load_vector(y, in + int64_t(i + 8) * step, a.in_dtype);
#pragma unroll
      for (int j = 0; j < kVector; ++j) total[j] = K::add(K::add(total[j], x[j], i, p), y[j], i + 8, p);
    }
    for (; i < end; i += 8) {
      T x[kVector];
      load_vector(x, in + int64_t(i) * step, a.in_dtype);
#pragma unroll
      for (int j = 0; j < kVector; ++j) total[j] = K::add(total[j], x[j], i, p);
    }
  }
#pragma unroll
  for (int j = 0; j < kVector; ++j) shared[threadIdx.y][j * 32 + threadIdx.x] = total[j];
  __syncthreads();
  // Each row of threads reduces one of the eight columns of all threads.
  A sum = shared[0][threadIdx.y * 32 + threadIdx.x];
#pragma unroll
  for (int k = 1; k < 8; ++k) sum = K::combine(sum, shared[k][threadIdx.y * 32 + threadIdx.x]);
  if (output < a.outputs) K::write(a, output + threadIdx.y, blockIdx.y, sum, p);
}

// A block for each result, or where there are many for 32 of them, with eight threads on each.
template <class F, class T, class A, class R>
__global__ void __launch_bounds__(256) reduce_finish(const __grid_constant__ ReduceArgs a) {
  using K = Reduction<F, T, A, R>;
  __shared__ SharedArray<A, 8 * 33> memory;
  A* const shared = memory.get();
  typename K::P p[2];
  K::params(a, p);
  const A* partial = static_cast<const A*>(a.partial);
  const bool many = a.outputs >= kFinishByColumns;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t output = many ? blockIdx.x * 32 + lane : blockIdx.x;
  A total = K::init();
  if (output < a.outputs)
    for (uint32_t i = many ? warp : threadIdx.x; i < a.parts; i += many ? 8 : 256)
      total = K::combine(total, partial[int64_t(i) * a.outputs + output]);
  if (many) {
    shared[warp * 33 + lane] = total;
    __syncthreads();
    if (warp != 0 || output >= a.outputs) return;
#pragma unroll
    for (int k = 1; k < 8; ++k) total = K::combine(total, shared[k * 33 + lane]);
  } else {
    total = block_fold(total, typename K::Combine{}, K::init(), shared);
    if (threadIdx.x != 0) return;
  }
  K::write_result(a, output, total, p);
}

template <class F, class T, class A, class R>
ReduceKernels reduce_kernels() {
  ReduceKernels k{&reduce_rows<F, T, A, R>,
                  &reduce_groups<F, T, A, R>,
                  &reduce_columns<F, T, A, R>,
                  &reduce_finish<F, T, A, R>,
                  nullptr,
                  nullptr,
                  int(sizeof(A))};
  if constexpr (std::is_arithmetic_v<T>) {
    k.by_eight = &takes_vectors<T>;
    if constexpr (sizeof(A) <= 16) k.wide_columns = &reduce_wide_columns<F, T, A, R>;
  }
  return k;
}

}  // namespace fl::cuda
