// The ways a dense product may take, by dtype; gemm.cpp chooses.
#pragma once

#include <omp.h>

#include <algorithm>

#include "cpu/gemm.h"
#include "cpu/parallel.h"

namespace fl::cpu::products {

void gemm_float(const GemmArgs& g);
void gemm_double(const GemmArgs& g);
void gemm_bfloat16(const GemmArgs& g);
void gemm_half(const GemmArgs& g);
void gemm_integral(const GemmArgs& g);
void gemm_complex(const GemmArgs& g);

// Threads worth waking for this much work (in multiplications, or elements read if that is more).
inline int team_for(double work) {
  if (work < 1.0e6 || omp_in_parallel()) return 1;
  return std::max(1, int(std::min<double>(num_threads(), work / 4.0e5)));
}

struct Range {
  int64_t begin, end;
};
// Part number `part` of `count` items split evenly into `parts`.
inline Range share(int64_t count, int parts, int part) {
  return {count * part / parts, count * (part + 1) / parts};
}

}  // namespace fl::cpu::products
