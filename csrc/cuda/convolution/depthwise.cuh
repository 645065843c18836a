// What the kernels of depthwise convolutions share: packs of channels, and how work is shared out.
#pragma once

#include <cstring>
#include <type_traits>

#include "cuda/convolution/depthwise.h"
#include "cuda/engine/device.cuh"

namespace fl::cuda::depthwise {

template <class T>
using Sums = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Neighbouring channels, read and written at once. What was read stays as it is until it is used, so that
// many can wait for memory.
template <class T, int V>
struct Pack {
  static constexpr int bytes = sizeof(T) * V;
  uint32_t word[bytes == 2 ? 1 : bytes / 4] = {};

  __device__ __forceinline__ void read(const void* from) {
    if constexpr (bytes == 2) {
      word[0] = __ldg(static_cast<const uint16_t*>(from));
    } else if constexpr (bytes == 4) {
      word[0] = __ldg(static_cast<const uint32_t*>(from));
    } else if constexpr (bytes == 8) {
      const uint2 words = __ldg(static_cast<const uint2*>(from));
      word[0] = words.x, word[1] = words.y;
    } else {
      const uint4 words = __ldg(static_cast<const uint4*>(from));
      word[0] = words.x, word[1] = words.y, word[2] = words.z, word[3] = words.w;
    }
  }
  __device__ __forceinline__ Sums<T> get(int v) const {
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      return as<float>(v % 2 ? word[v / 2] & 0xffff0000u : word[v / 2] << 16);
    } else if constexpr (sizeof(T) == 2) {
      return static_cast<float>(as<T>(static_cast<uint16_t>(word[v / 2] >> (v % 2 * 16))));
    } else if constexpr (sizeof(T) == 4) {
      return as<float>(word[v]);
    } else {
      return as<double>(uint64_t(word[2 * v + 1]) << 32 | word[2 * v]);
    }
  }

 private:
  template <class To, class From>
  static __device__ __forceinline__ To as(From bits) {
    To x;
    memcpy(&x, &bits, sizeof x);
    return x;
  }
};
template <class T, int V>
__device__ __forceinline__ void read(const T* from, Sums<T> (&x)[V]) {
  Pack<T, V> pack;
  pack.read(from);
#pragma unroll
  for (int v = 0; v < V; ++v) x[v] = pack.get(v);
}
template <class T, int V>
__device__ __forceinline__ void write(T* to, const Sums<T> (&x)[V]) {
  struct alignas(sizeof(T) * V) Items {
    T item[V];
  } items;
#pragma unroll
  for (int v = 0; v < V; ++v) items.item[v] = static_cast<T>(x[v]);
  *reinterpret_cast<Items*>(to) = items;
}

// Makes the compiler compute a value here and once. It would rather do so again in each branch that uses it.
template <class X>
__device__ __forceinline__ void settle([[maybe_unused]] X& x) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_pointer_v<X>)
    asm volatile("" : "+l"(x));
  else
    asm volatile("" : "+f"(x));
#endif
}

// Places of an axis, as they were read.
template <class T, int V, int N>
struct Line {
  Pack<T, V> pack[N];
  // `inside` has a bit for each place that exists.
  __device__ __forceinline__ void read(const T* from, int step, uint32_t inside) {
    settle(from);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      pack[j] = {};
      if (inside >> j & 1) pack[j].read(from + int64_t(step) * j);
    }
  }
  __device__ __forceinline__ void get(Sums<T> (&x)[N][V]) const {
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
      for (int v = 0; v < V; ++v) {
        x[j][v] = pack[j].get(v);
        settle(x[j][v]);
      }
  }
};
template <int N>
__device__ __forceinline__ uint32_t inside_of(int first, int size) {
  uint32_t inside = 0;
#pragma unroll
  for (int j = 0; j < N; ++j)
    inside |= uint32_t(static_cast<unsigned>(first + j) < static_cast<unsigned>(size)) << j;
  return inside;
}

// One axis of what is read (`x`) and what is written or, for the gradient of weights, read beside it (`y`),
// and the distances of neighbours there.
struct Axis {
  int x, y, kernel, stride, padding, dilation;
  int x_step, y_step, tap_step;
};

struct Launch {
  const char *x, *weight, *bias, *grad;
  char* y;
  Axis tiled, other;
  int channels, taps;
  int x_image, y_image, x_channel, y_channel;  // distances of neighbours
  bool last, flipped;                          // flipped: taps are counted from the last
  bool spread;                                 // a result is read where steps would have led to it
  int across, slots;                           // threads of a block: for packs of channels, for places
  int chunks, parts;                           // blocks: for channels, for places
  int places, length;                          // of all, and of a block
  int rows;                                    // that a thread walks down
  Divider inner, outer;                        // of places: the axis of neighbours, and the next
};

struct Place {
  int image, tile, other;
};
__device__ __forceinline__ Place place_of(const Launch& a, int i) {
  const int q = static_cast<int>(a.inner.divide(i)), r = i - q * static_cast<int>(a.inner.divisor),
            n = static_cast<int>(a.outer.divide(q)), m = q - n * static_cast<int>(a.outer.divisor);
  return {n, a.last ? r : m, a.last ? m : r};
}
__device__ __forceinline__ int end_of(const Launch& a) {
  return min(a.places, static_cast<int>(blockIdx.y + 1) * a.length);
}

// The weights of the channels of a block, by taps.
template <class T, int K>
__device__ __forceinline__ void share_weights(const Launch& a, Sums<T>* weights, int wide, int first) {
  for (int i = threadIdx.x; i < wide * K * K; i += a.across * a.slots) {
    const int c = i / (K * K), tap = i % (K * K);
    Sums<T> w[1] = {0};
    if (first + c < a.channels)
      read<T, 1>(reinterpret_cast<const T*>(a.weight) + (first + c) * K * K + tap, w);
    weights[(a.flipped ? K * K - 1 - tap : tap) * wide + c] = w[0];
  }
}

}  // namespace fl::cuda::depthwise
