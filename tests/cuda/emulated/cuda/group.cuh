// Products of four warps together, as the manual of PTX describes them; they are done when they start.
#pragma once

#include "cuda/matrix.cuh"

namespace fl::cuda::matrix {

inline void start_products() {}
inline void end_products() {}
template <int kLeft>
void wait_for_products() {}
template <int kN>
void settle(float (&)[kN][4]) {}
inline void publish_shared() {}

inline uint64_t describe(uint32_t address) {
  if (address % 1024) throw std::runtime_error("a tile is not aligned");
  return address >> 4;
}

template <bool kBrain>
float element(uint64_t tile, int row, int column) {
  const uint32_t plain = static_cast<uint32_t>(tile << 4) + row * 128 + column * 2;
  uint16_t bits;
  std::memcpy(&bits, emulated::shared_at(plain ^ (plain >> 7 & 7) << 4, 2), 2);
  return widen<kBrain>(bits);
}

// `left` gives the element of a row and column of the left side.
template <bool kBrain, bool kTurned, class F>
void multiply_four(float (&c)[8][4], uint64_t b, bool add, F left) {
  static float (*all[1024])[4];
  all[threadIdx.x] = c;
  auto* results = all + threadIdx.x / 128 * 128;
  emulated::meet(emulated::groups[threadIdx.x / 128], 128, [&] {
    for (int m = 0; m < 64; ++m)
      for (int n = 0; n < 64; ++n) {
        float sum = 0;
        for (int k = 0; k < 16; ++k)
          sum += left(m, k) * (kTurned ? element<kBrain>(b, k, n) : element<kBrain>(b, n, k));
        float& to = results[m / 16 * 32 + m % 8 * 4 + n % 8 / 2][n / 8][m % 16 / 8 * 2 + n % 2];
        to = add ? to + sum : sum;
      }
  });
}
template <bool kBrain>
void multiply_group(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b) {
  static const uint32_t* all[1024];
  all[threadIdx.x] = a;
  const uint32_t** lefts = all + threadIdx.x / 128 * 128;
  multiply_four<kBrain, true>(c, b, true, [&](int m, int k) {
    const uint32_t* held = lefts[m / 16 * 32 + m % 8 * 4 + k % 8 / 2];
    return widen<kBrain>(held[m % 16 / 8 + k / 8 * 2] >> k % 2 * 16);
  });
}
template <bool kBrain>
void multiply_group(float (&c)[8][4], uint64_t a, uint64_t b, bool add) {
  multiply_four<kBrain, false>(c, b, add, [&](int m, int k) { return element<kBrain>(a, m, k); });
}

}  // namespace fl::cuda::matrix
