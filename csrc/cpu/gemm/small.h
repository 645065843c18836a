// Small products of 16-bit types, added up in the order PyTorch has for them: it depends on how the operands
// lie.  Larger ones are gemm_product.h's.
#pragma once

#include <cstring>

#include "cpu/gemm/product.h"

namespace fl::cpu::products {

constexpr int64_t kSmall = 4096;  // multiplications; from here on PyTorch asks oneDNN

// A product in LANES sums: neighbouring terms go to different ones.  Eight are added up by halves and the
// terms left over then; fewer one after the other, and the terms left over before.
template <int LANES, class S>
void multiply_small_in(const Product<S, float, S>& p, int64_t aligned) {
  constexpr int64_t width = 8;
  typedef float Row __attribute__((vector_size(width * sizeof(float))));
  const int64_t panels = divide_up(p.n, width), k = p.k;
  float* b = static_cast<float*>(scratch(1).get(size_t(panels * width * k + 1) * sizeof(float)));
  float* a = static_cast<float*>(scratch(0).get(size_t(k + 1) * sizeof(float)));
  for (int64_t q = 0; q < panels; ++q)
    for (int64_t l = 0; l < k; ++l)
      for (int64_t j = 0; j < width; ++j)
        b[(q * k + l) * width + j] =
            q * width + j < p.n ? widen(p.b[l * p.b_row + (q * width + j) * p.b_col]) : 0.0f;
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t l = 0; l < k; ++l) a[l] = widen(p.a[i * p.a_row + l * p.a_col]);
    for (int64_t q = 0; q < panels; ++q) {
      const float* row = b + q * k * width;
      Row sums[LANES] = {};
      const auto add = [&](Row& sum, int64_t l) {
        Row x;
        std::memcpy(&x, row + l * width, sizeof(Row));
        sum += a[l] * x;
      };
      int64_t l = 0;
      for (; l < aligned; l += LANES)
#pragma GCC unroll 8
        for (int t = 0; t < LANES; ++t) add(sums[t], l + t);
      if constexpr (LANES == 8) {
        for (int half = 4; half > 0; half /= 2)
          for (int t = 0; t < half; ++t) sums[t] += sums[t + half];
        for (; l < k; ++l) add(sums[0], l);
      } else {
        for (; l < k; ++l) add(sums[0], l);
        for (int t = 1; t < LANES; ++t) sums[0] += sums[t];
      }
      float line[width];
      std::memcpy(line, &sums[0], sizeof(Row));
      finish_tile(p, line, width, i, q * width, 1, std::min(width, p.n - q * width), kFirst | kLast);
    }
  }
}

template <class S>
void multiply_small(const Product<S, float, S>& p) {
  const bool a_along_k = p.a_col == 1, b_along_k = p.b_row == 1;
  if (a_along_k != b_along_k) return multiply_small_in<4>(p, p.k / 4 * 4);
  if (!a_along_k || p.k < 16) return multiply_small_in<1>(p, p.k);
  multiply_small_in<8>(p, p.k / 16 * 16);
}

}  // namespace fl::cpu::products
