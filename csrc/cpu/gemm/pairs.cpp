// Products of bfloat16 in pairs: see pairs.h.
#include "cpu/gemm/pairs.h"

#include "cpu/gemm/bfloat16_lanes.h"
#include "cpu/gemm/product_finish.h"
#include "cpu/gemm/unit_walk.h"

#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns of its own intrinsics
#pragma GCC diagnostic ignored "-Wuninitialized"

namespace fl::cpu::products {
namespace {

using Bits = uint16_t;

const Bits* bits(const BFloat16* p) {
  return reinterpret_cast<const Bits*>(p);
}

constexpr int64_t kPackedColumns = 1024;  // of B packed at a time
constexpr int64_t kFewPanels = 4;         // of B: too few for packing A to pay
constexpr int64_t kRowGap = 64;  // bytes between packed rows, so that they do not all use the same lines

// Rows so many bytes apart, or a multiple of it, share lines of the first cache: a tile of 16 rows does not
// fit there.
constexpr int64_t kConflict = 512;

// ---- results -----------------------------------------------------------------------------------

#ifdef FL_X86
// The sums as they are, or with a bias added, as bfloat16.
FL_AVX512 void store_sums(const float* sums, int64_t sums_row, const BFloat16* bias, bool relu, BFloat16* to,
                          int64_t to_row, int64_t rows, int64_t cols) {
  for (int64_t j = 0; j < cols; j += 16) {
    const __mmask16 lanes = cols - j >= 16 ? 0xffff : __mmask16((1u << (cols - j)) - 1);
    __m512 added = _mm512_setzero_ps();
    if (bias) added = load_widened(bias + j, lanes);
    for (int64_t i = 0; i < rows; ++i) {
      __m512 x = _mm512_loadu_ps(sums + i * sums_row + j);
      if (bias) x = _mm512_add_ps(x, added);
      if (relu)
        x = _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ),
                               _mm512_setzero_ps());
      store_rounded(to + i * to_row + j, x, lanes);
    }
  }
}
#else
void store_sums(const float* sums, int64_t sums_row, const BFloat16* bias, bool relu, BFloat16* to,
                int64_t to_row, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) {
      const float x = sums[i * sums_row + j] + (bias ? float(bias[j]) : 0.0f);
      to[i * to_row + j] = BFloat16(relu && x < 0.0f ? 0.0f : x);
    }
}
#endif

template <class D>
void store_window(const Product<BFloat16, float, D>& p, const float* sums, int64_t width, int64_t i0,
                  int64_t rows, int64_t j0, int64_t used) {
  if constexpr (std::is_same_v<D, BFloat16>)
    if (p.alpha == 1.0f && p.beta == 0.0f && p.c_col == 1 && p.bias_row == 0 && (!p.bias || p.bias_col == 1))
      return store_sums(sums, width, p.bias ? p.bias + j0 : nullptr, p.relu, p.c + i0 * p.c_row + j0, p.c_row,
                        rows, used);
  finish_tile(p, sums, width, i0, j0, rows, used, kFirst | kLast);
}

// ---- operands ----------------------------------------------------------------------------------

// How the rows of A reach the kernels.
template <class D>
class PairRows {
 public:
  PairRows(const UnitSet& set, const UnitDepth& depth, const Product<BFloat16, float, D>& p, int64_t rows)
      : set_(set), depth_(depth), p_(p) {
    const bool whole_blocks = p.k % (set.elements * set.unit_multiple) == 0 &&
                              depth.block % (set.elements * set.unit_multiple) == 0;
    const bool in_rows = p.a_col == 1 && whole_blocks;
    direct_ = in_rows && (set.rows_only ? rows % set.max_rows == 0 && p.a_row * 2 % kConflict != 0
                                        : p.n <= kFewPanels * set.width);
  }

  UnitRows operator()(int64_t first, int64_t rows, int64_t height) const {
    const BFloat16* a = p_.a + first * p_.a_row;
    if (direct_) return plain_rows(a, p_.a_row * 2, depth_.block * 2, height);
    const int64_t tiles = divide_up(rows, height);
    if (!set_.rows_only) {
      auto* to = static_cast<uint32_t*>(scratch(0).get(size_t(tiles * height * depth_.units) * 4));
      pack_pairs(bits(a), p_.a_row, p_.a_col, rows, depth_, to, height, 0, tiles);
      return dense_rows(to, height, depth_);
    }
    const int64_t row_bytes = depth_.units * 4 + kRowGap;
    auto* to = static_cast<char*>(scratch(0).get(size_t(tiles * height * row_bytes)));
    pack_pair_rows(bits(a), p_.a_row, p_.a_col, rows, depth_, to, row_bytes);
    return plain_rows(to, row_bytes, depth_.block_units * 4, height);
  }

 private:
  const UnitSet& set_;
  const UnitDepth& depth_;
  const Product<BFloat16, float, D>& p_;
  bool direct_;
};

// Rough cost in cycles of doing the product this way round, to compare with the other way.
template <class D>
double pair_cost(const Product<BFloat16, float, D>& p, const UnitSet& set) {
  const double m = double(p.m), n = double(p.n), k = double(p.k);
  const double stall = p.m >= 6 ? 1.0 : 6.0 / m;
  double cycles = m * double(round_up(p.n, set.lanes())) * k / (2.0 * set.lanes()) * stall;
  if (set.rows_only) cycles /= 8;
  cycles += n * k * (p.b_col == 1 ? 0.15 : p.b_row == 1 ? 0.3 : 2.0);
  if (p.a_col != 1) cycles += m * k * (p.a_row == 1 && !set.rows_only ? 0.15 : 2.0);
  if (p.c_col != 1) cycles += m * n * 1.5;
  return cycles;
}

UnitDepth depth_of(const UnitSet& set, int64_t k) {
  return UnitDepth(set, k, depth_of_pairs(k));
}

// ---- few rows ----------------------------------------------------------------------------------

constexpr int64_t kFewRows = 8;   // that read B where it lies
constexpr int64_t kFewTiles = 4;  // the same beside AMX, whose tiles are so much quicker

#ifdef FL_X86
#define FL_BFLOAT16 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")))

// Dots of ROWS rows of A with COLUMNS columns of B, all of them along k.
template <int ROWS, int COLUMNS>
FL_BFLOAT16 void dot_block(const Bits* a, int64_t a_row, const Bits* b, int64_t b_col, int64_t k, float* sums,
                           int64_t sums_row) {
  __m512 total[ROWS][COLUMNS];
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < COLUMNS; ++j) total[i][j] = _mm512_setzero_ps();
  for (int64_t p = 0; p < k; p += 32) {
    const __mmask32 lanes = k - p >= 32 ? ~__mmask32(0) : __mmask32((1u << (k - p)) - 1);
    __m512i columns[COLUMNS];
#pragma GCC unroll 2
    for (int j = 0; j < COLUMNS; ++j) columns[j] = _mm512_maskz_loadu_epi16(lanes, b + j * b_col + p);
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i) {
      const auto row = (__m512bh)_mm512_maskz_loadu_epi16(lanes, a + i * a_row + p);
#pragma GCC unroll 2
      for (int j = 0; j < COLUMNS; ++j)
        total[i][j] = _mm512_dpbf16_ps(total[i][j], row, (__m512bh)columns[j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < COLUMNS; ++j) sums[i * sums_row + j] = _mm512_reduce_add_ps(total[i][j]);
}
#else
template <int ROWS, int COLUMNS>
void dot_block(const Bits* a, int64_t a_row, const Bits* b, int64_t b_col, int64_t k, float* sums,
               int64_t sums_row) {
  const auto value = [](Bits bits) {
    const uint32_t whole = uint32_t(bits) << 16;
    float x;
    std::memcpy(&x, &whole, 4);
    return x;
  };
  for (int i = 0; i < ROWS; ++i)
    for (int j = 0; j < COLUMNS; ++j) {
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t p = 0; p < k; ++p) sum += value(a[i * a_row + p]) * value(b[j * b_col + p]);
      sums[i * sums_row + j] = sum;
    }
}
#endif

using DotBlock = void (*)(const Bits*, int64_t, const Bits*, int64_t, int64_t, float*, int64_t);
template <int COLUMNS>
DotBlock dot_block_of(int64_t rows) {
  constexpr DotBlock blocks[kFewRows] = {dot_block<1, COLUMNS>, dot_block<2, COLUMNS>, dot_block<3, COLUMNS>,
                                         dot_block<4, COLUMNS>, dot_block<5, COLUMNS>, dot_block<6, COLUMNS>,
                                         dot_block<7, COLUMNS>, dot_block<8, COLUMNS>};
  return blocks[rows - 1];
}

// Whether packing B would cost more than the product.
template <class D>
bool is_few(const UnitSet& set, const Product<BFloat16, float, D>& p) {
  return p.m <= (set.rows_only ? kFewTiles : kFewRows) && p.n > p.m && p.a_col == 1 && p.b_row == 1;
}

template <class D>
void multiply_few(const Product<BFloat16, float, D>& p) {
  constexpr int64_t width = kUnitWidth;
  float sums[kFewRows * width];
  const DotBlock two = dot_block_of<2>(p.m), one = dot_block_of<1>(p.m);
  for (int64_t j0 = 0; j0 < p.n; j0 += width) {
    const int64_t used = std::min(width, p.n - j0);
    int64_t j = 0;
    for (; j + 2 <= used; j += 2)
      two(bits(p.a), p.a_row, bits(p.b) + (j0 + j) * p.b_col, p.b_col, p.k, sums + j, width);
    if (j < used) one(bits(p.a), p.a_row, bits(p.b) + (j0 + j) * p.b_col, p.b_col, p.k, sums + j, width);
    store_window(p, sums, width, 0, p.m, j0, used);
  }
}

// ---- rounding ----------------------------------------------------------------------------------

// A matrix of floats as bfloat16, lines of neighbours one after the other: along k, or across it.
struct Rounded {
  const BFloat16* data;
  int64_t stride, k_stride;
};

Rounded rounded(const float* from, int64_t stride, int64_t k_stride, int64_t count, int64_t k, BFloat16* to) {
  const bool across = stride == 1 && k_stride != 1;
  const int64_t lines = across ? k : count, length = across ? count : k;
  const int64_t line = across ? k_stride : stride, step = across ? 1 : k_stride;
  for (int64_t i = 0; i < lines; ++i)
    for (int64_t j = 0; j < length; ++j) to[i * length + j] = BFloat16(from[i * line + j * step]);
  return across ? Rounded{to, 1, count} : Rounded{to, k, 1};
}

}  // namespace

void multiply_rounded(const UnitSet& set, const Product<float, float, float>& p) {
  static thread_local Workspace space;
  auto* room = static_cast<BFloat16*>(space.get(size_t(p.m + p.n) * size_t(p.k) * sizeof(BFloat16)));
  const Rounded a = rounded(p.a, p.a_row, p.a_col, p.m, p.k, room);
  const Rounded b = rounded(p.b, p.b_col, p.b_row, p.n, p.k, room + p.m * p.k);
  multiply_pairs(set, Product<BFloat16, float, float>{p.m, p.n, p.k, a.data, a.stride, a.k_stride, b.data,
                                                      b.k_stride, b.stride, p.c, p.c_row, p.c_col, p.alpha,
                                                      p.beta, p.bias, p.bias_row, p.bias_col, p.relu});
}

template <class D>
void multiply_pairs(const UnitSet& set, Product<BFloat16, float, D> p) {
  {
    const auto t = p.transposed();
    if (pair_cost(t, set) < pair_cost(p, set)) p = t;
  }
  if (is_few(set, p)) return multiply_few(p);
  if (const auto t = p.transposed(); is_few(set, t)) return multiply_few(t);
  const UnitDepth depth = depth_of(set, p.k);
  const PairRows<D> rows(set, depth, p, p.m);
  const int64_t most = std::min(round_up(p.n, set.width), kPackedColumns);
  auto* packed = static_cast<uint32_t*>(scratch(1).get(size_t(most * depth.units) * 4));
  for (int64_t j = 0; j < p.n; j += most) {
    const int64_t cols = std::min(most, p.n - j);
    pack_pairs(bits(p.b + j * p.b_col), p.b_col, p.b_row, cols, depth, packed, set.width, 0,
               divide_up(cols, set.width));
    walk_units<float>(set, depth, packed, {0, p.m}, {0, cols}, rows,
                      [&](const float* sums, int64_t i0, int64_t high, int64_t j0, int64_t used) {
                        store_window(p, sums, set.width, i0, high, j + j0, used);
                      });
  }
}

template void multiply_pairs(const UnitSet&, Product<BFloat16, float, BFloat16>);
template void multiply_pairs(const UnitSet&, Product<BFloat16, float, float>);

int64_t packed_pair_count(const UnitSet& set, int64_t k, int64_t n) {
  return round_up(n, set.width) * depth_of(set, k).units;
}

void pack_pair_matrix(const UnitSet& set, int64_t k, int64_t n, const BFloat16* b, int64_t b_row,
                      int64_t b_col, uint32_t* to) {
  const UnitDepth depth = depth_of(set, k);
  parallel_for(divide_up(n, set.width), std::max<int64_t>(1, kGrain / (k * set.width + 1)),
               [&](int64_t begin, int64_t end) {
                 pack_pairs(bits(b), b_col, b_row, n, depth, to, set.width, begin, end);
               });
}

void multiply_packed_pairs(const UnitSet& set, const Product<BFloat16, float, BFloat16>& p,
                           const uint32_t* packed, const ProductFinish* finish, Range is, Range js) {
  const UnitDepth depth = depth_of(set, p.k);
  const PairRows<BFloat16> rows(set, depth, p, is.end - is.begin);
  walk_units<float>(set, depth, packed, is, js, rows,
                    [&](const float* sums, int64_t i0, int64_t high, int64_t j0, int64_t used) {
                      store_window(p, sums, set.width, i0, high, j0, used);
                      if (finish) finish_window(*finish, p.c + i0 * p.c_row + j0, high, used);
                    });
}

}  // namespace fl::cpu::products
