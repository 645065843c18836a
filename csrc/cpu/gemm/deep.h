// Products with few results and long sums, such as gradients of weights: threads share the sums as well.
// Rectangles alone would become so small that packing takes as long as multiplying.
#pragma once

#include "cpu/gemm/paths.h"
#include "cpu/gemm/product.h"

namespace fl::cpu::products {

constexpr double kLongSums = 40'000;                 // nanoseconds of a product that may be shared so
constexpr int64_t kLeastDepth = 128;                 // of one part of the sums
constexpr int64_t kMostPartials = int64_t(8) << 20;  // bytes of partial sums
constexpr double kAdding = 32;                       // multiplications that adding one partial sum is worth
constexpr double kSecondRegion = 1e5;                // and that the region that adds is worth
constexpr double kWorthSharing = 0.9;                // of the time without

// Rectangles of the results, and parts of the sums of each.
struct DeepGrid {
  Grid grid;
  int deep;
};
inline DeepGrid deep_grid_for(int threads, int64_t m, int64_t n, int64_t k, int64_t width, int64_t itemsize) {
  DeepGrid best{grid_for(threads, m, n, width), 1};
  double least = kWorthSharing * rectangle_cost(best.grid, m, n, width) * double(k);
  for (int deep = 2; deep <= threads; ++deep) {
    if (k / deep < kLeastDepth || (deep - 1) * m * n * itemsize > kMostPartials) break;
    const Grid grid = grid_for(threads / deep, m, n, width);
    const double cost = rectangle_cost(grid, m, n, width) * double((k + deep - 1) / deep) +
                        kAdding * double(m * n) * deep / threads + kSecondRegion;
    if (cost < least) least = cost, best = {grid, deep};
  }
  return best;
}

// One part: all of C where it is the first, else the partial sums.
template <class T>
Product<T, T, T> part_of_sums(Product<T, T, T> p, const DeepGrid& grid, int part, T* partials) {
  const Range depth = share(p.k, grid.deep, part);
  p.a += depth.begin * p.a_col, p.b += depth.begin * p.b_row, p.k = depth.end - depth.begin;
  if (part > 0) {
    p.c = partials + (part - 1) * p.m * p.n;
    if (p.c_col == 1)
      p.c_row = p.n;
    else
      p.c_col = p.m;
  }
  return p;
}

// C += each of the partial sums, in order; `lines` of `length` results that lie beside each other.
template <class T, class F>
void add_partials(T* c, int64_t lines, int64_t length, int64_t stride, const T* partials, int count,
                  const F& finished) {
  parallel_for(lines, std::max<int64_t>(1, kGrain / (length * count)), [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line)
      for (int part = 0; part < count; ++part) {
        T* to = c + line * stride;
        const T* from = partials + (part * lines + line) * length;
#pragma GCC ivdep
        for (int64_t i = 0; i < length; ++i) to[i] += from[i];
      }
    finished(begin, end);
  });
}

}  // namespace fl::cpu::products
