// The ways a dense product may take, by dtype; gemm.cpp chooses.
#pragma once

#include <omp.h>

#include <algorithm>

#include "core/parallel.h"
#include "cpu/gemm/gemm.h"

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

// Calls f(rows, columns) for separate rectangles of C, nearly square, one for each thread, which meet only at
// the end: packing some blocks twice costs less than waiting for each other, above all on a busy machine.
// Columns are cut at multiples of `width`.
template <class F>
void over_rectangles(int threads, int64_t m, int64_t n, int64_t width, const F& f) {
  if (threads <= 1) return f(Range{0, m}, Range{0, n});
  int across = 1;
  for (int t = 1; t <= threads; ++t)
    if (threads % t == 0 && double(n) * threads >= double(m) * t * t) across = t;
  const int down = threads / across;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int cell = 0; cell < down * across; ++cell) {
    const Range i = share(m, down, cell / across);
    Range j = share((n + width - 1) / width, across, cell % across);
    j = {j.begin * width, std::min(j.end * width, n)};
    if (i.end > i.begin && j.end > j.begin) f(i, j);
  }
}

}  // namespace fl::cpu::products
