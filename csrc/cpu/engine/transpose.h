// Squares of floats transposed in registers.
#pragma once

namespace fl::cpu {

// Four rows of four floats become columns.
inline __attribute__((always_inline)) void transpose_4(const float* const r[4], float* const columns[4]) {
  typedef float Vec __attribute__((vector_size(16)));
  typedef float Mem __attribute__((vector_size(16), aligned(4), may_alias));
  const auto load = [](const float* p) -> Vec { return *reinterpret_cast<const Mem*>(p); };
  const Vec a = load(r[0]), b = load(r[1]), c = load(r[2]), d = load(r[3]);
  const Vec ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Vec ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7), cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  *reinterpret_cast<Mem*>(columns[0]) = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
  *reinterpret_cast<Mem*>(columns[1]) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
  *reinterpret_cast<Mem*>(columns[2]) = __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5);
  *reinterpret_cast<Mem*>(columns[3]) = __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7);
}

}  // namespace fl::cpu
