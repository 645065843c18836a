// One large product by many threads that pack its operands once for all of them: rectangles that pack for
// themselves spend a tenth of their time on it when there are many.
#pragma once

#include "cpu/gemm/paths.h"
#include "cpu/gemm/product.h"

namespace fl::cpu::products {

constexpr int64_t kLeastShared = 256;               // rows, columns and depth
constexpr int64_t kMostShared = int64_t(64) << 20;  // bytes that are packed at a time
constexpr double kPackTime = 0.5;                   // nanoseconds of an element

// Where the packed blocks of a slab of k lie: for each block of k its panels of A and of B.
template <class T>
struct SharedOperands {
  T *a, *b;
  int64_t tiles, panels, height, width, block;
  int64_t a_at(int64_t p, int64_t tile, int64_t depth) const {
    return p * tiles * height + tile * height * depth;
  }
  int64_t b_at(int64_t p, int64_t panel, int64_t depth) const {
    return p * panels * width + panel * width * depth;
  }
};

// Packs slab [from, to) of k: each piece takes neighbouring panels of one block.
template <class T>
void pack_shared(const Product<T, T, T>& g, const SharedOperands<T>& to, int64_t begin, int64_t end) {
  constexpr int64_t kTogether = 4;
  const int64_t groups_a = divide_up(to.tiles, kTogether),
                groups = groups_a + divide_up(to.panels, kTogether);
  const int64_t items = divide_up(end - begin, to.block) * groups;
  const double time = kPackTime * double(end - begin) * double(g.m + g.n);
  parallel_pieces(thread_model::pieces_for(time), time, [&](int piece, int pieces) {
    const Range own = share(items, pieces, piece);
    for (int64_t item = own.begin; item < own.end; ++item) {
      const int64_t p = item / groups * to.block, depth = std::min(to.block, end - begin - p);
      int64_t group = item % groups;
      if (group < groups_a) {
        const int64_t first = group * kTogether;
        pack_panels(g.a + (begin + p) * g.a_col, g.a_row, g.a_col, g.m, depth, to.a + to.a_at(p, 0, depth),
                    to.height, first, std::min(first + kTogether, to.tiles));
      } else {
        const int64_t first = (group - groups_a) * kTogether;
        pack_panels(g.b + (begin + p) * g.b_row, g.b_col, g.b_row, g.n, depth, to.b + to.b_at(p, 0, depth),
                    to.width, first, std::min(first + kTogether, to.panels));
      }
    }
  });
}

// Calls finished(rows, columns) after each rectangle of the results.
template <class T, class F>
void multiply_shared(const Product<T, T, T>& g, int threads, const F& finished) {
  const TileSet<T>& set = TileSet<T>::get();
  BlockPlan plan;
  plan.tile_rows = divide_up(g.m, divide_up(g.m, set.max_rows));
  plan.pack_a = plan.pack_b = true;
  SharedOperands<T> packed;
  packed.height = plan.tile_rows, packed.width = set.width();
  packed.tiles = divide_up(g.m, packed.height), packed.panels = divide_up(g.n, packed.width);
  packed.block = divide_up(g.k, divide_up(g.k, kBlockK));
  const int64_t lines = packed.tiles * packed.height + packed.panels * packed.width;
  const int64_t slab = std::max<int64_t>(kMostShared / (lines * sizeof(T)) / packed.block, 1) * packed.block;
  const int64_t deepest = std::min(slab, g.k);
  packed.a = static_cast<T*>(scratch(0).get(packed.tiles * packed.height * deepest * sizeof(T)));
  packed.b = static_cast<T*>(scratch(1).get(packed.panels * packed.width * deepest * sizeof(T)));
  const double time = double(g.m) * double(g.n) * double(g.k) * kMultiplyTime;
  const Grid grid = grid_for(rectangles_for(threads, time), packed.tiles, packed.panels, 1);
  for (int64_t begin = 0; begin < g.k; begin += slab) {
    const int64_t end = std::min(begin + slab, g.k);
    pack_shared(g, packed, begin, end);
    parallel_pieces(grid.down * grid.across, time, [&](int number, int) {
      const Cell cell = cell_of(grid, number, packed.tiles, packed.panels, 1);
      if (cell.rows.empty() || cell.columns.empty()) return;
      const Range rows{cell.rows.begin * packed.height, std::min(cell.rows.end * packed.height, g.m)};
      const Range columns{cell.columns.begin * packed.width, std::min(cell.columns.end * packed.width, g.n)};
      for (int64_t p = 0; p < end - begin; p += packed.block) {
        const int64_t depth = std::min(packed.block, end - begin - p);
        walk_block(g, set, plan, rows.begin, rows.end - rows.begin, columns.begin,
                   columns.end - columns.begin, begin + p, depth,
                   packed.a + packed.a_at(p, cell.rows.begin, depth),
                   packed.b + packed.b_at(p, cell.columns.begin, depth));
      }
      if (end == g.k) finished(rows, columns);
    });
  }
}

}  // namespace fl::cpu::products
