// Products with packed weights: see gemm_packed.h.
//
// Without packing there is nothing to gain by transposing or by reading B in place, so that one walk serves
// every size: groups of rows that stay in the second cache, panels of B, blocks of k, tiles. What follows the
// product is applied to a group's rows of a panel, some 40 KB that have just been written.
#include "cpu/gemm/packed.h"

#include "cpu/engine/arch.h"
#include "cpu/gemm/pairs.h"
#include "cpu/gemm/product.h"
#include "cpu/gemm/product_finish.h"

namespace fl {
FL_DECLARE_ARCH(const FinishLoops, finish_loops);
}  // namespace fl

namespace fl::cpu {
namespace products {
namespace {

constexpr int64_t kWholeDepth = 1536, kMostDepth = 1024;  // panels of float that stay in the second cache
// Rows that meet a panel before the next one. Few are better for the cache as long as it has all panels: rows
// of results often are a multiple of 4 KB apart, and then go to the same lines of it.
constexpr int64_t kFewRows = 56, kSmallMatrix = 1 << 18;

template <class S>
int64_t depth_of(int64_t k) {
  if (!std::is_same_v<S, float>) return std::max<int64_t>(depth_of_pairs(k), 1);
  return k <= kWholeDepth ? std::max<int64_t>(k, 1) : divide_up(k, divide_up(k, kMostDepth));
}

template <class S>
void pack(int64_t k, int64_t n, const S* b, int64_t b_row, int64_t b_col, float* to) {
  const int64_t width = TileSet<float>::get().width(), panels = divide_up(n, width), most = depth_of<S>(k);
  for (int64_t p = 0; p < k; p += most) {
    const int64_t depth = std::min(most, k - p);
    parallel_for(panels, std::max<int64_t>(1, kGrain / (depth * width)), [&](int64_t begin, int64_t end) {
      pack_panels(b + p * b_row, b_col, b_row, n, depth, to + p * panels * width, width, begin, end);
    });
  }
}

// The rows and columns [i, i + rows) x [j, j + cols) of a product; j is the first column of a panel.
template <class S>
void multiply_window(const Product<S, float, S>& g, const float* packed, const ProductFinish* finish,
                     Range is, Range js) {
  constexpr bool converts = !std::is_same_v<S, float>;
  const TileSet<float>& set = TileSet<float>::get();
  const int64_t width = set.width(), all_panels = divide_up(g.n, width), most = depth_of<S>(g.k);
  const int64_t m = is.end - is.begin, height = divide_up(m, divide_up(m, set.max_rows));
  const int64_t most_rows = g.k * g.n <= kSmallMatrix ? kFewRows : kInnerM;
  const int64_t group = std::max<int64_t>(1, most_rows / height) * height;
  float* wide_a = converts ? static_cast<float*>(scratch(0).get(group * g.k * sizeof(float))) : nullptr;
  float* sums = static_cast<float*>(scratch(1).get(group * width * sizeof(float)));
  for (int64_t i0 = is.begin; i0 < is.end; i0 += group) {
    const int64_t rows = std::min(group, is.end - i0), tiles = divide_up(rows, height);
    if (converts)
      for (int64_t p = 0; p < g.k; p += most) {
        const int64_t depth = std::min(most, g.k - p);
        pack_panels(g.a + i0 * g.a_row + p, g.a_row, int64_t(1), rows, depth, wide_a + p * tiles * height,
                    height, 0, tiles);
      }
    for (int64_t j0 = js.begin; j0 < js.end; j0 += width) {
      const int64_t used = std::min(width, js.end - j0);
      const int vectors = used > set.lanes ? 2 : 1;
      const bool direct = !converts && used == vectors * set.lanes;
      float* to = sums;
      int64_t to_row = width;
      if constexpr (!converts)
        if (direct) to = g.c + i0 * g.c_row + j0, to_row = g.c_row;
      for (int64_t p = 0; p < g.k; p += most) {
        const int64_t depth = std::min(most, g.k - p);
        const float* b = packed + p * all_panels * width + j0 * depth;
        for (int64_t t = 0; t < tiles; ++t) {
          const int64_t row = t * height, high = std::min(height, rows - row);
          const float* a = wide_a + p * tiles * height + row * depth;
          int64_t a_row = 1, a_col = height;
          if constexpr (!converts) a = g.a + (i0 + row) * g.a_row + p, a_row = g.a_row, a_col = 1;
          set.kernel[a_row == 1][vectors - 1][high - 1](depth, a, a_row, a_col, b, width, to + row * to_row,
                                                        to_row, p > 0);
        }
      }
      if (!direct) finish_tile(g, sums, width, i0, j0, rows, used, kFirst | kLast);
      if (finish) finish_window(*finish, g.c + i0 * g.c_row + j0, rows, used);
    }
  }
}

template <class S>
void multiply_packed(const GemmArgs& g, const float* packed) {
  Product<S, float, S> p{g.m,
                         g.n,
                         g.k,
                         static_cast<const S*>(g.a),
                         g.a_row,
                         1,
                         nullptr,
                         0,
                         0,
                         static_cast<S*>(g.c),
                         g.c_row,
                         1,
                         1.0f,
                         0.0f,
                         static_cast<const S*>(g.bias),
                         0,
                         g.bias_stride,
                         false};
  const int threads = team_for(double(g.m) * g.n * g.k);
  if constexpr (std::is_same_v<S, BFloat16>)
    if (const UnitSet* set = bfloat16_units())
      return over_rectangles(threads, g.m, g.n, g.k, set->width, [&](Range i, Range j) {
        multiply_packed_pairs(*set, p, reinterpret_cast<const uint32_t*>(packed), g.finish, i, j);
      });
  over_rectangles(threads, g.m, g.n, g.k, TileSet<float>::get().width(),
                  [&](Range i, Range j) { multiply_window(p, packed, g.finish, i, j); });
}

}  // namespace
}  // namespace products

bool can_pack(DType dtype) {
  return dtype == DType::Float || dtype == DType::BFloat16;
}

int64_t packed_count(DType dtype, int64_t k, int64_t n) {
  if (const auto* set = products::bfloat16_units(); set && dtype == DType::BFloat16)
    return products::packed_pair_count(*set, k, n);
  const int64_t width = products::TileSet<float>::get().width();
  return products::divide_up(n, width) * width * k;
}

void pack_matrix(DType dtype, int64_t k, int64_t n, const void* b, int64_t b_row, int64_t b_col, float* to) {
  if (dtype == DType::Float) return products::pack(k, n, static_cast<const float*>(b), b_row, b_col, to);
  const auto* pairs = static_cast<const BFloat16*>(b);
  if (const auto* set = products::bfloat16_units())
    return products::pack_pair_matrix(*set, k, n, pairs, b_row, b_col, reinterpret_cast<uint32_t*>(to));
  products::pack(k, n, pairs, b_row, b_col, to);
}

void gemm_packed(const GemmArgs& g, const float* packed) {
  if (g.dtype == DType::Float) return products::multiply_packed<float>(g, packed);
  products::multiply_packed<BFloat16>(g, packed);
}

void finish_window(const ProductFinish& finish, void* c, int64_t rows, int64_t cols) {
  if (finish.dtype == DType::Float)
    picked_finish_loops().of_float(finish, static_cast<float*>(c), rows, cols);
  else
    picked_finish_loops().of_bfloat16(finish, static_cast<BFloat16*>(c), rows, cols);
}

}  // namespace fl::cpu
