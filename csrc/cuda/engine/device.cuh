// Device code that all kernels share: elements of any dtype, division by a constant, positions in strided
// operands, reductions over warps and blocks.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "core/dtype.h"
#include "cuda/engine/geometry.h"

namespace fl::cuda {

// The first thing that a kernel of launch_early does: lets the one after it start its blocks, and waits for
// the one before it to end.
__device__ __forceinline__ void wait_for_kernel_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ float bits_to_float(uint16_t half_bits, DType dtype) {
  if (dtype == DType::BFloat16) return __uint_as_float(uint32_t(half_bits) << 16);
  return __half2float(__ushort_as_half(half_bits));
}
__device__ __forceinline__ uint16_t float_to_bits(float x, DType dtype) {
  if (dtype == DType::BFloat16) return __bfloat16_as_ushort(__float2bfloat16_rn(x));
  return __half_as_ushort(__float2half_rn(x));
}

// Of a floating dtype.
__device__ __forceinline__ int64_t item_size(DType dtype) {
  return dtype == DType::Double ? 8 : dtype == DType::Float ? 4 : 2;
}

// An element of a dtype known at run time; the branch is the same for all threads.
template <class T>
__device__ __forceinline__ T load(const char* p, DType dtype) {
  switch (dtype) {
    case DType::Float:
      return static_cast<T>(*reinterpret_cast<const float*>(p));
    case DType::BFloat16:
    case DType::Half:
      return static_cast<T>(bits_to_float(*reinterpret_cast<const uint16_t*>(p), dtype));
    case DType::Bool:
      return static_cast<T>(*reinterpret_cast<const uint8_t*>(p) != 0);
    case DType::UInt8:
      return static_cast<T>(*reinterpret_cast<const uint8_t*>(p));
    case DType::Int8:
      return static_cast<T>(*reinterpret_cast<const int8_t*>(p));
    case DType::Int16:
      return static_cast<T>(*reinterpret_cast<const int16_t*>(p));
    case DType::Int32:
      return static_cast<T>(*reinterpret_cast<const int32_t*>(p));
    case DType::Int64:
      return static_cast<T>(*reinterpret_cast<const int64_t*>(p));
    default:
      return static_cast<T>(*reinterpret_cast<const double*>(p));
  }
}

// Floating to integer goes through int64, as the CPU does it, so that narrow types wrap.
template <class I, class T>
__device__ __forceinline__ I to_integer(T x) {
  if constexpr (std::is_floating_point_v<T>)
    return static_cast<I>(static_cast<int64_t>(x));
  else
    return static_cast<I>(x);
}

template <class T>
__device__ __forceinline__ void store(char* p, DType dtype, T x) {
  switch (dtype) {
    case DType::Float:
      *reinterpret_cast<float*>(p) = static_cast<float>(x);
      return;
    case DType::BFloat16:
    case DType::Half:
      *reinterpret_cast<uint16_t*>(p) = float_to_bits(static_cast<float>(x), dtype);
      return;
    case DType::Bool:
      *reinterpret_cast<bool*>(p) = x != T(0);
      return;
    case DType::UInt8:
      *reinterpret_cast<uint8_t*>(p) = to_integer<uint8_t>(x);
      return;
    case DType::Int8:
      *reinterpret_cast<int8_t*>(p) = to_integer<int8_t>(x);
      return;
    case DType::Int16:
      *reinterpret_cast<int16_t*>(p) = to_integer<int16_t>(x);
      return;
    case DType::Int32:
      *reinterpret_cast<int32_t*>(p) = to_integer<int32_t>(x);
      return;
    case DType::Int64:
      *reinterpret_cast<int64_t*>(p) = to_integer<int64_t>(x);
      return;
    default:
      *reinterpret_cast<double*>(p) = static_cast<double>(x);
  }
}

// Eight neighbours of float, half, bfloat16, bool or uint8, 16 bytes at a time.
__device__ __forceinline__ void load_vector(float (&v)[kVector], const char* p, DType dtype) {
  if (dtype == DType::Float) {
    const float4 a = reinterpret_cast<const float4*>(p)[0], b = reinterpret_cast<const float4*>(p)[1];
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
  } else if (dtype == DType::BFloat16 || dtype == DType::Half) {
    const uint4 a = *reinterpret_cast<const uint4*>(p);
    const uint32_t w[4] = {a.x, a.y, a.z, a.w};
    if (dtype == DType::BFloat16) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        v[2 * i] = __uint_as_float(w[i] << 16);
        v[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&w[i]));
        v[2 * i] = pair.x;
        v[2 * i + 1] = pair.y;
      }
    }
  } else {
    const uint2 a = *reinterpret_cast<const uint2*>(p);
    const uint32_t w[2] = {a.x, a.y};
    const bool truth = dtype == DType::Bool;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t byte = w[i / 4] >> (i % 4 * 8) & 0xff;
      v[i] = truth ? float(byte != 0) : float(byte);
    }
  }
}
template <class T>
__device__ __forceinline__ void store_vector(char* p, DType dtype, const T (&v)[kVector]) {
  if (dtype == DType::Float) {
    reinterpret_cast<float4*>(p)[0] = make_float4(float(v[0]), float(v[1]), float(v[2]), float(v[3]));
    reinterpret_cast<float4*>(p)[1] = make_float4(float(v[4]), float(v[5]), float(v[6]), float(v[7]));
  } else if (dtype == DType::BFloat16 || dtype == DType::Half) {
    uint32_t w[4];
    if (dtype == DType::BFloat16) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(float(v[2 * i]), float(v[2 * i + 1]));
        w[i] = *reinterpret_cast<const uint32_t*>(&pair);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const __half2 pair = __floats2half2_rn(float(v[2 * i]), float(v[2 * i + 1]));
        w[i] = *reinterpret_cast<const uint32_t*>(&pair);
      }
    }
    *reinterpret_cast<uint4*>(p) = make_uint4(w[0], w[1], w[2], w[3]);
  } else {
    uint32_t w[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t byte =
          dtype == DType::Bool ? uint32_t(v[i] != T(0)) : uint32_t(to_integer<uint8_t>(v[i]));
      w[i / 4] |= byte << (i % 4 * 8);
    }
    *reinterpret_cast<uint2*>(p) = make_uint2(w[0], w[1]);
  }
}

// The memory of a block whose size is given when it is launched.
__device__ __forceinline__ char* shared_memory() {
  extern __shared__ __align__(16) char memory[];
  return memory;
}

// Memory that the threads of a block share, for types with constructors too.
template <class A, int N>
struct SharedArray {
  alignas(16) char data[N * sizeof(A)];
  __device__ A* get() { return reinterpret_cast<A*>(data); }
};

// The type of the parts of a number.
template <class T>
struct RealOf {
  using type = T;
};

template <class T>
__device__ __forceinline__ T shuffle_down(T x, int by) {
  return __shfl_down_sync(0xffffffffu, x, by);
}
template <class T>
__device__ __forceinline__ T shuffle_xor(T x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}

// The reduction of all values of a warp, in every lane.
template <class T, class F>
__device__ __forceinline__ T warp_fold(T x, F combine) {
#pragma unroll
  for (int m = 16; m > 0; m >>= 1) x = combine(x, shuffle_xor(x, m));
  return x;
}
// Of a block of up to 1024 threads (a multiple of 32), in every thread. `shared` holds 33 values.
template <class T, class F>
__device__ __forceinline__ T block_fold(T x, F combine, T initial, T* shared) {
  x = warp_fold(x, combine);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __syncthreads();
  if (lane == 0) shared[warp] = x;
  __syncthreads();
  if (warp == 0) {
    x = lane < blockDim.x / 32 ? shared[lane] : initial;
    x = warp_fold(x, combine);
    if (lane == 0) shared[32] = x;
  }
  __syncthreads();
  return shared[32];
}

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Most {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a != a ? a : b != b ? b : a > b ? a : b;
  }
};

// Calls f with a value of the unsigned type that moves elements of a size: they are not looked into.
template <class F>
void by_size(int64_t bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f(uint8_t());
    case 2:
      return f(uint16_t());
    case 4:
      return f(uint32_t());
    case 8:
      return f(uint64_t());
    default:
      return f(uint4());
  }
}

}  // namespace fl::cuda
