// One product by blocks, on one thread: plan, packing, tiles, and what becomes of the sums.
#pragma once

#include <cmath>

#include "cpu/engine/onednn.h"
#include "cpu/gemm/pack.h"
#include "cpu/gemm/paths.h"

namespace fl::cpu::products {

// S: stored type of A and B, T: type computed in, D: stored type of C and bias.
template <class S, class T, class D>
struct Product {
  int64_t m, n, k;
  const S* a;
  int64_t a_row, a_col;
  const S* b;
  int64_t b_row, b_col;
  D* c;
  int64_t c_row, c_col;
  T alpha, beta;
  const D* bias;
  int64_t bias_row, bias_col;  // bias[i * bias_row + j * bias_col]
  bool relu;

  // The same product seen as C^T = B^T A^T.
  Product transposed() const {
    Product t = *this;
    std::swap(t.m, t.n);
    t.a = b, t.a_row = b_col, t.a_col = b_row;
    t.b = a, t.b_row = a_col, t.b_col = a_row;
    std::swap(t.c_row, t.c_col);
    std::swap(t.bias_row, t.bias_col);
    return t;
  }
};

// What a tile's sums become on their way to C.
enum : int { kFirst = 1, kLast = 2 };  // position of the k block

template <class S, class T, class D>
void finish_tile(const Product<S, T, D>& g, const T* tile, int64_t tile_row, int64_t i0, int64_t j0,
                 int64_t rows, int64_t cols, int position) {
  const bool last = position & kLast;
  const T keep = (position & kFirst) ? g.beta : T(1);
  T line[kMaxWidth];
  for (int64_t i = 0; i < rows; ++i) {
    const T* sums = tile + i * tile_row;
    D* c = g.c + (i0 + i) * g.c_row + j0 * g.c_col;
    if (keep == T(1) && !(position & kFirst)) {  // rounded once, as oneDNN does it
      for (int64_t j = 0; j < cols; ++j) line[j] = std::fma(g.alpha, sums[j], T(widen(c[j * g.c_col])));
    } else {
      for (int64_t j = 0; j < cols; ++j) line[j] = g.alpha * sums[j];
      if (keep != T(0))
        for (int64_t j = 0; j < cols; ++j) line[j] += keep * widen(c[j * g.c_col]);
    }
    if (last && g.bias) {
      const D* bias = g.bias + (i0 + i) * g.bias_row + j0 * g.bias_col;
      for (int64_t j = 0; j < cols; ++j) line[j] += widen(bias[j * g.bias_col]);
    }
    if (last && g.relu)
      for (int64_t j = 0; j < cols; ++j) line[j] = line[j] < T(0) ? T(0) : line[j];
    if constexpr (std::is_same_v<D, Half>) {
      if (g.c_col == 1) {
        narrow_half(line, c, cols);
        continue;
      }
    }
    if (g.c_col == 1)
      for (int64_t j = 0; j < cols; ++j) c[j] = D(line[j]);
    else
      for (int64_t j = 0; j < cols; ++j) c[j * g.c_col] = D(line[j]);
  }
}

constexpr int64_t kBlockK = 256;   // depth of a packed block
constexpr int64_t kBlockM = 2016;  // rows of A packed at once
constexpr int64_t kBlockN = 2048;  // columns of B packed at once
constexpr int64_t kInnerM = 336;   // rows of packed A kept in L2 while panels of B pass by

inline int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

constexpr int64_t kWholeB = 400000;  // bytes of B that need no splitting along k

// The depth of blocks of 16-bit types, each added up from zero: oneDNN's, so that sums agree with its.
constexpr int64_t kWholePairs = 384, kMostPairs = 768;
inline int64_t depth_of_pairs(int64_t k) {
  return k <= kWholePairs ? k : k <= 2 * kMostPairs ? divide_up(k, 2) : kMostPairs;
}

// How one block of the product is carried out.
struct BlockPlan {
  int64_t tile_rows;    // height of a tile
  bool pack_a, pack_b;  // panels of B at the right edge are always packed
};

// Runs the tiles of a block, whose operands are ready.
template <class S, class T, class D>
void walk_block(const Product<S, T, D>& g, const TileSet<T>& set, const BlockPlan& plan, int64_t i0,
                int64_t rows, int64_t j0, int64_t cols, int64_t p0, int64_t depth, const T* packed_a,
                const T* packed_b) {
  const int64_t width = set.width(), height = plan.tile_rows;
  const int64_t tiles = divide_up(rows, height), panels = divide_up(cols, width);
  const int position = (p0 == 0 ? kFirst : 0) | (p0 + depth == g.k ? kLast : 0);

  bool direct = false;  // the kernel may write (or add) into C itself
  bool accumulate = false;
  if constexpr (std::is_same_v<T, D>) {
    const bool finishing = (position & kLast) && (g.bias || g.relu);
    direct = g.c_col == 1 && g.alpha == T(1) && !finishing &&
             (!(position & kFirst) || g.beta == T(0) || g.beta == T(1));
    accumulate = !(position & kFirst) || g.beta == T(1);
  }
  alignas(64) T tile[kMaxRows * kMaxWidth];
  const int64_t group = std::max<int64_t>(1, kInnerM / height);
  for (int64_t t0 = 0; t0 < tiles; t0 += group) {
    const int64_t t1 = std::min(t0 + group, tiles);
    for (int64_t q = 0; q < panels; ++q) {
      const int64_t col = q * width, used = std::min(width, cols - col);
      const bool b_packed = plan.pack_b || used < width;
      const T* b = packed_b + q * width * depth;
      if constexpr (std::is_same_v<S, T>)
        if (!b_packed) b = g.b + (j0 + col) + p0 * g.b_row;
      const int64_t b_row = b_packed ? width : g.b_row;
      const int vectors = used > set.lanes ? 2 : 1;
      for (int64_t t = t0; t < t1; ++t) {
        const int64_t row = t * height, high = std::min(height, rows - row);
        const T* a = packed_a + row * depth;
        int64_t a_row = 1, a_col = height;
        if constexpr (std::is_same_v<S, T>)
          if (!plan.pack_a) {
            a = g.a + (i0 + row) * g.a_row + p0 * g.a_col;
            a_row = g.a_row, a_col = g.a_col;
          }
        const auto kernel = set.kernel[a_row == 1][vectors - 1][high - 1];
        if constexpr (std::is_same_v<T, D>)
          if (direct && used == vectors * set.lanes) {
            kernel(depth, a, a_row, a_col, b, b_row, g.c + (i0 + row) * g.c_row + j0 + col, g.c_row,
                   accumulate);
            continue;
          }
        kernel(depth, a, a_row, a_col, b, b_row, tile, width, false);
        finish_tile(g, tile, width, i0 + row, j0 + col, high, used, position);
      }
    }
  }
}

template <class S, class T, class D>
void multiply_block(const Product<S, T, D>& g, const TileSet<T>& set, const BlockPlan& plan, int64_t i0,
                    int64_t rows, int64_t j0, int64_t cols, int64_t p0, int64_t depth, T* packed_a,
                    T* packed_b) {
  const int64_t width = set.width(), height = plan.tile_rows, panels = divide_up(cols, width);
  if (plan.pack_a)
    pack_panels(g.a + i0 * g.a_row + p0 * g.a_col, g.a_row, g.a_col, rows, depth, packed_a, height, 0,
                divide_up(rows, height));
  // Unpacked or not, the panel at the edge is: kernels load whole vectors.
  const int64_t first = plan.pack_b ? 0 : cols % width ? panels - 1 : panels;
  pack_panels(g.b + j0 * g.b_col + p0 * g.b_row, g.b_col, g.b_row, cols, depth, packed_b, width, first,
              panels);
  walk_block(g, set, plan, i0, rows, j0, cols, p0, depth, packed_a, packed_b);
}

// Scratch of this thread: [0] packed A, [1] packed B, [2] other temporaries.
inline Workspace& scratch(int which) {
  thread_local Workspace spaces[3];
  return spaces[which];
}

constexpr int64_t kAliasing = 4096;  // bytes between lines that share a set of the first-level cache

// Whether A (B) has to be packed.  A panel of A is read once per panel of B, a panel of B once per
// tile of rows; reading in place also wants neighbours in memory to be neighbours in the walk.
template <class S, class T, class D>
BlockPlan plan_for(const Product<S, T, D>& g, const TileSet<T>& set) {
  BlockPlan plan;
  plan.tile_rows = divide_up(g.m, divide_up(g.m, set.max_rows));
  const bool same = std::is_same_v<S, T>;
  // Rows of A are read in place: a tile's stay in the first-level cache, unless all begin in the same set of
  // it.
  const bool a_rows =
      g.a_col == 1 && (g.n <= 4 * set.width() || g.a_row * int64_t(sizeof(T)) % kAliasing != 0);
  const bool a_small = g.a_row == 1 && g.m * g.k <= 8192 && g.a_col < 2 * g.m;
  const bool b_small = g.k * g.n <= 8192 && g.b_row < 2 * g.n;
  plan.pack_a = !(same && (a_rows || a_small));
  plan.pack_b = !(same && g.b_col == 1 && (g.m <= 3 * set.max_rows || b_small));
  return plan;
}

// Rough cost in cycles of doing the product this way round, to compare with the other way.
template <class S, class T, class D>
double cost(const Product<S, T, D>& g, const TileSet<T>& set) {
  const BlockPlan plan = plan_for(g, set);
  const double m = double(g.m), n = double(g.n), k = double(g.k);
  const double lanes = double(divide_up(g.n, set.lanes) * set.lanes);
  // A tile of few rows leaves the multipliers waiting for the previous sum.
  const double stall = g.m >= 4 ? 1.0 : 4.0 / m;
  double c = m * lanes * k / (2.0 * set.lanes) * stall;
  if (plan.pack_a) c += m * k * (g.a_row == 1 ? 0.2 : g.a_col == 1 ? 0.5 : 2.0);
  if (plan.pack_b) c += n * k * (g.b_col == 1 ? 0.2 : g.b_row == 1 ? 0.5 : 2.0);
  if (g.c_col != 1) c += m * n * 1.5;
  return c;
}

// The product on this thread alone.
template <class S, class T, class D>
void multiply(Product<S, T, D> g) {
  const TileSet<T>& set = TileSet<T>::get();
  {
    const auto t = g.transposed();
    if (cost(t, set) < cost(g, set)) g = t;
  }
  const int64_t width = set.width();
  const BlockPlan plan = plan_for(g, set);
  // With few panels of B they stay in L2 at any depth, and C is visited once only.
  const int64_t whole_k =
      g.n <= 4 * width ? std::max<int64_t>(kWholeB / (sizeof(T) * g.n), kBlockK) : kBlockK * 3 / 2;
  const int64_t block_k = !std::is_same_v<S, T> ? std::max<int64_t>(depth_of_pairs(g.k), 1)
                          : g.k <= whole_k      ? std::max<int64_t>(g.k, 1)
                                                : divide_up(g.k, divide_up(g.k, kBlockK));
  const int64_t most_rows =
      std::min(divide_up(g.m, plan.tile_rows) * plan.tile_rows, kBlockM / plan.tile_rows * plan.tile_rows);
  const int64_t most_cols = std::min(divide_up(g.n, width) * width, kBlockN);
  T* packed_a = plan.pack_a ? static_cast<T*>(scratch(0).get(most_rows * block_k * sizeof(T))) : nullptr;
  T* packed_b =
      plan.pack_b || g.n % width ? static_cast<T*>(scratch(1).get(most_cols * block_k * sizeof(T))) : nullptr;

  for (int64_t j = 0; j < g.n; j += most_cols) {
    const int64_t cols = std::min(most_cols, g.n - j);
    int64_t p = 0;
    do {
      const int64_t depth = std::min(block_k, g.k - p);
      for (int64_t i = 0; i < g.m; i += most_rows)
        multiply_block(g, set, plan, i, std::min(most_rows, g.m - i), j, cols, p, depth, packed_a, packed_b);
      p += depth;
    } while (p < g.k);
  }
}

}  // namespace fl::cpu::products
