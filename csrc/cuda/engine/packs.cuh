// Elements of floating types in words of 16 bytes, for kernels whose dtype is known when they are compiled:
// words stay as they are in registers until they are used, so that many can wait for memory at once.
#pragma once

#include "cuda/engine/device.cuh"

namespace fl::cuda {

template <class T>
struct AccumulateIn {
  using type = float;
};
template <>
struct AccumulateIn<double> {
  using type = double;
};
template <>
struct AccumulateIn<int64_t> {
  using type = int64_t;
};

// Neighbours that are read and written at once, as they lie in memory: a word of 16 bytes, or a single one.
template <class T, int V>
struct Pack {
  uint4 bits;
  template <class A>
  __device__ __forceinline__ void get(A (&x)[V]) const {
    const uint32_t w[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int j = 0; j < V; ++j) {
      if constexpr (std::is_same_v<T, __nv_bfloat16>)
        x[j] = __uint_as_float(j % 2 ? w[j / 2] & 0xffff0000u : w[j / 2] << 16);
      else if constexpr (std::is_same_v<T, __half>)
        x[j] = __half2float(__ushort_as_half(static_cast<uint16_t>(w[j / 2] >> (j % 2 * 16))));
      else if constexpr (std::is_same_v<T, float>)
        x[j] = __uint_as_float(w[j]);
      else
        x[j] = __hiloint2double(static_cast<int>(w[2 * j + 1]), static_cast<int>(w[2 * j]));
    }
  }
  template <class A>
  __device__ __forceinline__ void set(const A (&x)[V]) {
    uint32_t w[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(x[2 * k], x[2 * k + 1]);
        w[k] = *reinterpret_cast<const uint32_t*>(&pair);
      } else if constexpr (std::is_same_v<T, __half>) {
        const __half2 pair = __floats2half2_rn(x[2 * k], x[2 * k + 1]);
        w[k] = *reinterpret_cast<const uint32_t*>(&pair);
      } else if constexpr (std::is_same_v<T, float>) {
        w[k] = __float_as_uint(x[k]);
      } else {
        w[k] = static_cast<uint32_t>(k % 2 ? __double2hiint(x[k / 2]) : __double2loint(x[k / 2]));
      }
    }
    bits = make_uint4(w[0], w[1], w[2], w[3]);
  }
};
template <class T>
struct Pack<T, 1> {
  T one;
  template <class A>
  __device__ __forceinline__ void get(A (&x)[1]) const {
    if constexpr (std::is_same_v<T, __nv_bfloat16>)
      x[0] = __bfloat162float(one);
    else if constexpr (std::is_same_v<T, __half>)
      x[0] = __half2float(one);
    else
      x[0] = one;
  }
  template <class A>
  __device__ __forceinline__ void set(const A (&x)[1]) {
    if constexpr (std::is_same_v<T, __nv_bfloat16>)
      one = __float2bfloat16_rn(x[0]);
    else if constexpr (std::is_same_v<T, __half>)
      one = __float2half_rn(x[0]);
    else
      one = x[0];
  }
};
template <class T, int V>
__device__ __forceinline__ Pack<T, V> read_pack(const char* base, int64_t at) {
  return *reinterpret_cast<const Pack<T, V>*>(reinterpret_cast<const T*>(base) + at);
}
template <class T, int V, class A>
__device__ __forceinline__ void write_pack(char* base, int64_t at, const A (&x)[V]) {
  Pack<T, V> p;
  p.set(x);
  *reinterpret_cast<Pack<T, V>*>(reinterpret_cast<T*>(base) + at) = p;
}

}  // namespace fl::cuda
