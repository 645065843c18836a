// Positions in strided operands, filled in by the host and read by kernels.
#pragma once

#include <cstdint>

namespace fl::cuda {

constexpr int kVector = 8;    // elements that one thread takes where they lie side by side
constexpr int kMaxDims = 10;  // of an operand after merging

// n / d for n < 2**31, by multiplication.
struct Divider {
  uint32_t divisor = 1, multiplier = 1, shift = 0;
  Divider() = default;
  explicit Divider(uint32_t d) : divisor(d) {
    while (shift < 32 && (uint64_t(1) << shift) < d) ++shift;
    multiplier = static_cast<uint32_t>(((uint64_t(1) << 32) * ((uint64_t(1) << shift) - d)) / d + 1);
  }
#if defined(__CUDACC__)
  __device__ __forceinline__ uint32_t divide(uint32_t n) const {
    return (__umulhi(n, multiplier) + n) >> shift;
  }
#endif
};

// Where element i of a strided operand lies: dimensions innermost first, strides in bytes.
template <int N>
struct Geometry {
  int ndim = 0;
  Divider size[kMaxDims];
  int64_t stride[N][kMaxDims];
#if defined(__CUDACC__)
  __device__ __forceinline__ void locate(uint32_t i, int64_t (&at)[N]) const {
#pragma unroll
    for (int k = 0; k < N; ++k) at[k] = 0;
#pragma unroll
    for (int d = 0; d < kMaxDims; ++d) {
      if (d == ndim) break;
      const uint32_t q = size[d].divide(i), r = i - q * size[d].divisor;
#pragma unroll
      for (int k = 0; k < N; ++k) at[k] += r * stride[k][d];
      i = q;
    }
  }
#endif
};

}  // namespace fl::cuda
