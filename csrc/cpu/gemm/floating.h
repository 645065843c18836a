// Batches and threads of products of floating types; gemm_<type>.cpp compile it for a type each.
#pragma once

#include <cstring>

#include "cpu/engine/onednn.h"
#include "cpu/gemm/deep.h"
#include "cpu/gemm/gemm.h"
#include "cpu/gemm/pairs.h"
#include "cpu/gemm/paths.h"
#include "cpu/gemm/product_finish.h"
#include "cpu/gemm/small.h"
#include "cpu/gemm/vector.h"

namespace fl::cpu::products {
namespace {

template <class S, class T, class D>
Product<S, T, D> product_of(const GemmArgs& g, int64_t batch) {
  Product<S, T, D> p;
  p.m = g.m, p.n = g.n, p.k = g.k;
  p.a = static_cast<const S*>(g.a) + batch * g.a_batch, p.a_row = g.a_row, p.a_col = g.a_col;
  p.b = static_cast<const S*>(g.b) + batch * g.b_batch, p.b_row = g.b_row, p.b_col = g.b_col;
  p.c = static_cast<D*>(g.c) + batch * g.c_batch, p.c_row = g.c_row, p.c_col = g.c_col;
  p.alpha = T(g.alpha.real()), p.beta = T(g.beta.real());
  p.bias = static_cast<const D*>(g.bias), p.bias_row = 0, p.bias_col = g.bias_stride;
  p.relu = g.relu;
  return p;
}

// Adds the bias to a product that lies in C, and takes the positive part if asked to.
template <class T>
void add_bias(Product<T, T, T> p) {
  if (p.c_col != 1) p = p.transposed();
  for (int64_t i = 0; i < p.m; ++i) {
    T* row = p.c + i * p.c_row;
    if (p.bias && p.bias_col == 1 && p.c_col == 1) {
      const T* bias = p.bias + i * p.bias_row;
#pragma GCC ivdep
      for (int64_t j = 0; j < p.n; ++j) row[j] += bias[j];
    } else if (p.bias) {
      const T* bias = p.bias + i * p.bias_row;
      for (int64_t j = 0; j < p.n; ++j) row[j * p.c_col] += bias[j * p.bias_col];
    }
    if (p.relu)
      for (int64_t j = 0; j < p.n; ++j) row[j * p.c_col] = row[j * p.c_col] < T(0) ? T(0) : row[j * p.c_col];
  }
}

// The multiplications from which oneDNN's and OpenBLAS's blocking is ahead, even with a pass for the bias.
// With AVX-512 that is early for short sums, above all on many cores.
template <class T>
double least_for_libraries(int64_t k) {
  constexpr int64_t kShortSums = 512;
  return std::is_same_v<T, float> && isa() == Isa::Avx512 && k <= kShortSums ? 4e6 : 1.5e7;
}

constexpr int64_t kLeastRounded = 32;  // rows, columns and depth for which rounding operands pays

template <class S, class T>
void multiply_part(const Product<S, T, S>& p) {
  if constexpr (std::is_same_v<S, BFloat16>)
    if (const UnitSet* set = bfloat16_units()) return multiply_pairs(*set, p);
  if constexpr (std::is_same_v<S, float>)
    if (rounds_products() && std::min({p.m, p.n, p.k}) >= kLeastRounded)
      if (const UnitSet* set = bfloat16_units()) return multiply_rounded(*set, p);
  // oneDNN reads a tall transposed A, as in gradients of weights, at two thirds of its usual speed.
  const bool turned = std::is_same_v<T, float> && p.a_row == 1 && p.a_col != 1 && p.c_col == 1 && p.m >= p.n;
  if constexpr (std::is_same_v<S, T>)
    if (!turned && std::min({p.m, p.n, p.k}) >= 128 &&
        double(p.m) * p.n * p.k > least_for_libraries<T>(p.k) &&
        blas_gemm(p.m, p.n, p.k, p.alpha, p.a, p.a_row, p.a_col, p.b, p.b_row, p.b_col, p.beta, p.c, p.c_row,
                  p.c_col)) {
      if (p.bias || p.relu) add_bias(p);
      return;
    }
  if (std::is_same_v<S, T> || p.k <= kWholePairs) return multiply(p);
  // Sums over several k blocks have to be carried in T: C is rounded once, at the end.
  T* wide = static_cast<T*>(scratch(2).get(size_t(p.m) * p.n * sizeof(T)));
  multiply(Product<S, T, T>{p.m, p.n, p.k, p.a, p.a_row, p.a_col, p.b, p.b_row, p.b_col, wide, p.n, 1,
                            p.alpha, T(0), nullptr, 0, 0, false});
  Product<S, T, S> scaled = p;
  scaled.alpha = T(1);
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; j += kMaxWidth)
      finish_tile(scaled, wide + i * p.n + j, p.n, i, j, 1, std::min<int64_t>(kMaxWidth, p.n - j),
                  kFirst | kLast);
}

// Products so small that a plan and packing cost more than the arithmetic: R rows of W sums, each row a
// vector in a register.
template <int R, int W, class T>
void tiny_rows(const Product<T, T, T>& p, int64_t i, int64_t j) {
  typedef T Row __attribute__((vector_size(W * sizeof(T))));
  Row sums[R] = {};
  const T* a = p.a + i * p.a_row;
  for (int64_t l = 0; l < p.k; ++l) {
    Row b;
    std::memcpy(&b, p.b + l * p.b_row + j, sizeof(Row));
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) sums[r] += a[r * p.a_row + l * p.a_col] * b;
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) std::memcpy(p.c + (i + r) * p.c_row + j, &sums[r], sizeof(Row));
}

template <int W, class T>
void multiply_tiny(const Product<T, T, T>& p) {
  for (int64_t j = 0; j < p.n; j += W) {
    int64_t i = 0;
    for (; i + 4 <= p.m; i += 4) tiny_rows<4, W>(p, i, j);
    for (; i < p.m; ++i) tiny_rows<1, W>(p, i, j);
  }
}

template <class T>
bool try_tiny(const Product<T, T, T>& p) {
  if (p.m > 16 || p.k > 64 || p.b_col != 1 || p.c_col != 1 || p.alpha != T(1) || p.beta != T(0) || p.bias ||
      p.relu)
    return false;
  constexpr int most = 32 / sizeof(T);  // wider vectors than the processor's are taken apart in memory
  if (p.n != 4 && p.n != 8 && p.n != 16) return false;
  if (p.n % most == 0)
    multiply_tiny<most>(p);
  else
    multiply_tiny<4>(p);
  return true;
}

// One rectangle of a product, and what follows it.
template <class S, class T>
void multiply_rectangle(const Product<S, T, S>& p, Range i, Range j, const ProductFinish* finish) {
  Product<S, T, S> part = p;
  part.m = i.end - i.begin, part.n = j.end - j.begin;
  part.a += i.begin * p.a_row;
  part.b += j.begin * p.b_col;
  part.c += i.begin * p.c_row + j.begin * p.c_col;
  if (p.bias) part.bias += i.begin * p.bias_row + j.begin * p.bias_col;
  multiply_part<S, T>(part);
  if (finish) finish_window(*finish, part.c, part.m, part.n);
}

// Products with few results and long sums: the result is false for others.
template <class T>
bool try_deep(const Product<T, T, T>& p, int threads, const ProductFinish* finish) {
  if (threads < kManyThreads || p.alpha != T(1) || p.beta != T(0) || p.bias || p.relu) return false;
  if (p.c_col != 1 && (p.c_row != 1 || finish)) return false;
  const double time = double(p.m) * double(p.n) * double(p.k) * kMultiplyTime;
  if (time < kLongSums) return false;
  const int64_t width = TileSet<T>::get().width();
  const DeepGrid grid = deep_grid_for(threads, p.m, p.n, p.k, width, sizeof(T));
  if (grid.deep == 1) return false;
  T* const partials = static_cast<T*>(scratch(2).get((grid.deep - 1) * p.m * p.n * sizeof(T)));
  const int cells = grid.grid.down * grid.grid.across;
  parallel_pieces(cells * grid.deep, time, [&](int piece, int) {
    const Cell cell = cell_of(grid.grid, piece % cells, p.m, p.n, width);
    if (!cell.rows.empty() && !cell.columns.empty())
      multiply_rectangle<T, T>(part_of_sums(p, grid, piece / cells, partials), cell.rows, cell.columns,
                               nullptr);
  });
  const bool rows = p.c_col == 1;
  add_partials(p.c, rows ? p.m : p.n, rows ? p.n : p.m, rows ? p.c_row : p.c_col, partials, grid.deep - 1,
               [&](int64_t begin, int64_t end) {
                 if (finish) finish_window(*finish, p.c + begin * p.c_row, end - begin, p.n);
               });
  return true;
}

template <class S, class T>
void multiply_any(Product<S, T, S> p, int threads, bool alone, const ProductFinish* finish) {
  const auto finished = [&](S* c, int64_t rows, int64_t cols) {
    if (finish) finish_window(*finish, c, rows, cols);
  };
  if (p.m == 1 || p.n == 1) {
    multiply_vector(p.n == 1 ? p : p.transposed(), threads);
    return finished(p.c, p.m, p.n);
  }
  if constexpr (std::is_same_v<S, T>) {
    if (try_tiny(p)) return finished(p.c, p.m, p.n);
  } else if (alone && double(p.m) * p.n * p.k <= kSmall) {
    multiply_small(p);
    return finished(p.c, p.m, p.n);
  }
  if constexpr (std::is_same_v<S, T>)
    if (try_deep(p, threads, finish)) return;
  over_rectangles(threads, p.m, p.n, p.k, TileSet<T>::get().width(),
                  [&](Range i, Range j) { multiply_rectangle(p, i, j, finish); });
}

template <class S, class T>
void gemm_floating(GemmArgs g) {
  // A batch that merely continues the rows of A and C is one taller product.
  if (g.batch > 1 && g.b_batch == 0 && g.a_batch == g.m * g.a_row && g.c_batch == g.m * g.c_row) {
    g.m *= g.batch;
    g.batch = 1;
  }
  const bool vector = g.m == 1 || g.n == 1;
  const double one = vector ? 8.0 * double(g.m) * g.n * g.k : double(g.m) * g.n * g.k;
  const int threads = team_for(one * double(g.batch));
  if (threads == 1 || g.batch == 1 || (vector && g.batch < threads)) {
    for (int64_t i = 0; i < g.batch; ++i)
      multiply_any<S, T>(product_of<S, T, S>(g, i), threads, g.batch == 1, g.finish);
    return;
  }
  // One region for all products of the batch.
  const double time = one * double(g.batch) * kMultiplyTime;
  const int64_t width = TileSet<T>::get().width();
  const Grid grid = vector ? Grid{1, 1} : grid_in_batch(threads, g.batch, time, g.m, g.n, width);
  const int cells = grid.down * grid.across;
  if (cells == 1) {
    // Few threads run equally fast, and each finds its share of the batch in its cache again.
    const double most = threads < kManyThreads ? threads : std::min<double>(double(g.batch), kMostPieces);
    const int shares = static_cast<int>(std::clamp<double>(time / kShortPiece, threads, most));
    return parallel_pieces(shares, time, [&](int piece, int pieces) {
      const Range part = share(g.batch, pieces, piece);
      for (int64_t i = part.begin; i < part.end; ++i)
        multiply_any<S, T>(product_of<S, T, S>(g, i), 1, false, g.finish);
    });
  }
  parallel_pieces(static_cast<int>(g.batch) * cells, time, [&](int piece, int) {
    const Cell cell = cell_of(grid, piece % cells, g.m, g.n, width);
    if (!cell.rows.empty() && !cell.columns.empty())
      multiply_rectangle(product_of<S, T, S>(g, piece / cells), cell.rows, cell.columns, g.finish);
  });
}

}  // namespace
}  // namespace fl::cpu::products
