// The ways a dense product may take, by dtype; gemm.cpp chooses.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "cpu/gemm/gemm.h"

namespace fl::cpu::products {

void gemm_float(const GemmArgs& g);
void gemm_double(const GemmArgs& g);
void gemm_bfloat16(const GemmArgs& g);
void gemm_half(const GemmArgs& g);
void gemm_integral(const GemmArgs& g);
void gemm_complex(const GemmArgs& g);

constexpr double kLeastDivided = 5.0e5, kMultiplyTime = 1.0 / 50;  // nanoseconds of a multiplication
constexpr double kShortPiece = 10'000;  // nanoseconds, below which products of a batch share a piece
constexpr double kMostPieces = 4096;

// Threads worth waking for this much work (in multiplications, or elements read if that is more).
inline int team_for(double work) {
  if (work < kLeastDivided) return 1;
  return thread_model::pieces_for(work * kMultiplyTime);
}

struct Range {
  int64_t begin, end;
  bool empty() const { return begin >= end; }
};
// Part number `part` of `count` items split evenly into `parts`.
inline Range share(int64_t count, int parts, int part) {
  return {count * part / parts, count * (part + 1) / parts};
}

// How C is divided into rectangles.
struct Grid {
  int down, across;
};
// What the largest rectangle of a grid takes: its multiplications, and packing its rows of A and columns of
// B, which counts as much as kPacking multiplications for each element.
inline double rectangle_cost(const Grid& grid, int64_t m, int64_t n, int64_t width) {
  constexpr double kPacking = 8;
  const int64_t panels = (n + width - 1) / width;
  const double rows = double((m + grid.down - 1) / grid.down),
               cols = double((panels + grid.across - 1) / grid.across * width);
  return rows * cols + kPacking * (rows + cols);
}
// The grid of at most so many rectangles whose largest one takes least.
inline Grid grid_for(int threads, int64_t m, int64_t n, int64_t width) {
  const int64_t panels = (n + width - 1) / width;
  Grid best{1, 1};
  double least = HUGE_VAL;
  for (int down = 1; down <= threads && down <= m; ++down) {
    const int across = static_cast<int>(std::min<int64_t>(threads / down, panels));
    const double cost = rectangle_cost({down, across}, m, n, width);
    if (cost < least) least = cost, best = {down, across};
  }
  return best;
}

// The rows and columns of one rectangle.
struct Cell {
  Range rows, columns;
};
inline Cell cell_of(const Grid& grid, int number, int64_t m, int64_t n, int64_t width) {
  const Range columns = share((n + width - 1) / width, grid.across, number % grid.across);
  return {share(m, grid.down, number / grid.across),
          {columns.begin * width, std::min(columns.end * width, n)}};
}

// Many threads do not run equally fast: with several rectangles for each the quick ones take more of them.
// Packing costs more then, so that rectangles have to be long, and few threads get one each.
constexpr int kManyThreads = 4, kRectanglesEach = 3;
constexpr double kLongRectangle = 60'000;  // nanoseconds

inline int rectangles_for(int threads, double nanoseconds) {
  const int several = kRectanglesEach * threads;
  return threads >= kManyThreads && nanoseconds >= several * kLongRectangle ? several : threads;
}

// The rectangles of each product of a batch for which all threads are through soonest.
inline Grid grid_in_batch(int threads, int64_t batch, double nanoseconds, int64_t m, int64_t n,
                          int64_t width) {
  constexpr int kMore = 3;
  const int64_t least = (rectangles_for(threads, nanoseconds) + batch - 1) / batch;
  Grid best{1, 1};
  double soonest = HUGE_VAL;
  for (int64_t each = least; each <= least + kMore; ++each) {
    const Grid grid = grid_for(static_cast<int>(each), m, n, width);
    const int64_t rounds = (batch * grid.down * grid.across + threads - 1) / threads;
    const double time = double(rounds) * rectangle_cost(grid, m, n, width);
    if (time < soonest) soonest = time, best = grid;
  }
  return best;
}

// Calls f(rows, columns) for separate rectangles of C, which meet only at the end: packing some blocks twice
// costs less than waiting for each other, above all on a busy machine. Columns are divided at multiples of
// `width`.
template <class F>
void over_rectangles(int threads, int64_t m, int64_t n, int64_t k, int64_t width, const F& f) {
  if (threads <= 1) return f(Range{0, m}, Range{0, n});
  const double time = double(m) * double(n) * double(k) * kMultiplyTime;
  const Grid grid = grid_for(rectangles_for(threads, time), m, n, width);
  parallel_pieces(grid.down * grid.across, time, [&](int number, int) {
    const Cell cell = cell_of(grid, number, m, n, width);
    if (!cell.rows.empty() && !cell.columns.empty()) f(cell.rows, cell.columns);
  });
}

}  // namespace fl::cpu::products
