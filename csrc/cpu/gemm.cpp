// Dense products on the CPU: see gemm.h.
//
// float, double, bfloat16 and half use one blocked algorithm.  The product is cut into tiles of up to
// 14 x 32 results (for AVX-512 floats) kept in registers while a block of k is walked; rows of B are
// loaded as vectors, elements of A are broadcast.  Blocks of A and B are rearranged ("packed") into
// the order the tile kernel walks them, converting 16-bit types to float on the way, unless the
// operand already lies well and is read too few times for packing to pay.  C^T = B^T A^T is
// computed instead when that side is cheaper.  Measured against the oneDNN matmul primitive this is
// as fast or faster (three times so for bfloat16, which oneDNN emulates on most processors), and
// no primitive has to be built for each shape.  Only large products of
// float and double go to oneDNN's sgemm and OpenBLAS's dgemm.
// Matrix-vector products, integers and complex types have their own simpler paths below.
#include "cpu/gemm.h"

#include <immintrin.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "cpu/onednn.h"
#include "cpu/parallel.h"

namespace fl::cpu {
namespace {

#define FL_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")))
#define FL_AVX2 __attribute__((target("avx2,fma,f16c")))
#define FL_INLINE inline __attribute__((always_inline))

// ---- tile kernels ------------------------------------------------------------------------------

// out[i][j] (+)= sum_p a[i * a_row + p * a_col] * b[p * b_row + j], i < ROWS, j < VECS * lanes.
// With A_DENSE a_row is 1.  The text is expanded once per instruction set because GCC splits wide
// vectors before inlining, which rules out a shared always-inline body.
#define FL_DEFINE_TILE(SET, TARGET, BYTES)                                                                  \
  struct SET {                                                                                              \
    template <class T, int ROWS, int VECS, bool A_DENSE>                                                    \
    TARGET static void tile(int64_t k, const T* a, int64_t a_row, int64_t a_col, const T* b, int64_t b_row, \
                            T* out, int64_t out_row, bool accumulate) {                                     \
      typedef T Vec __attribute__((vector_size(BYTES)));                                                    \
      typedef T Mem __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));                     \
      constexpr int lanes = BYTES / sizeof(T);                                                              \
      Vec acc[ROWS][VECS] = {};                                                                             \
      if (A_DENSE) a_row = 1;                                                                               \
      /* Three rows per pointer: x86 addresses reach p, p + s and p + 2s. */                                \
      const T* rows[(ROWS + 2) / 3];                                                                        \
      _Pragma("GCC unroll 16") for (int i = 0; i < (ROWS + 2) / 3; ++i) rows[i] = a + 3 * i * a_row;        \
      _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i) for (int v = 0; v < VECS; ++v)                \
          __builtin_prefetch(out + i * out_row + v * lanes, 1);                                             \
      for (int64_t p = 0; p < k; ++p) {                                                                     \
        Vec bv[VECS];                                                                                       \
        _Pragma("GCC unroll 16") for (int v = 0; v < VECS; ++v) bv[v] =                                     \
            *reinterpret_cast<const Mem*>(b + v * lanes);                                                   \
        _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i) {                                           \
          const T x = A_DENSE ? a[i] : rows[i / 3][(i % 3) * a_row];                                        \
          _Pragma("GCC unroll 16") for (int v = 0; v < VECS; ++v) acc[i][v] += x * bv[v];                   \
        }                                                                                                   \
        b += b_row;                                                                                         \
        a += a_col;                                                                                         \
        if (!A_DENSE) {                                                                                     \
          _Pragma("GCC unroll 16") for (int i = 0; i < (ROWS + 2) / 3; ++i) rows[i] += a_col;               \
        }                                                                                                   \
      }                                                                                                     \
      _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i) {                                             \
        _Pragma("GCC unroll 16") for (int v = 0; v < VECS; ++v) {                                           \
          Mem* o = reinterpret_cast<Mem*>(out + i * out_row + v * lanes);                                   \
          *o = accumulate ? Vec(*o + acc[i][v]) : acc[i][v];                                                \
        }                                                                                                   \
      }                                                                                                     \
    }                                                                                                       \
  };

FL_DEFINE_TILE(Avx512Tile, FL_AVX512, 64)
FL_DEFINE_TILE(Avx2Tile, FL_AVX2, 32)
FL_DEFINE_TILE(BaseTile, , 16)
#undef FL_DEFINE_TILE

enum class Isa { Base, Avx2, Avx512 };

Isa isa() {
  static const Isa best = [] {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      return Isa::Avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::Avx2;
    return Isa::Base;
  }();
  return best;
}

constexpr int kMaxRows = 14;
constexpr int kMaxWidth = 32;  // floats in two AVX-512 vectors

// The tile kernels of the best instruction set for T.
template <class T>
struct TileSet {
  using Kernel = void (*)(int64_t, const T*, int64_t, int64_t, const T*, int64_t, T*, int64_t, bool);
  int max_rows = 0;
  int lanes = 0;                       // a panel of B is two vectors wide, or one at the edge
  Kernel kernel[2][2][kMaxRows] = {};  // [A dense][vectors - 1][rows - 1]

  int width() const { return 2 * lanes; }

  static const TileSet& get() {
    static const TileSet set = [] {
      TileSet s;
      switch (isa()) {
        case Isa::Avx512:
          s.fill<Avx512Tile, 14>(64);
          break;
        case Isa::Avx2:
          s.fill<Avx2Tile, 6>(32);
          break;
        case Isa::Base:
          s.fill<BaseTile, 6>(16);
          break;
      }
      return s;
    }();
    return set;
  }

 private:
  template <class Set, int ROWS>
  void fill(int bytes) {
    max_rows = std::max(max_rows, ROWS);
    lanes = bytes / int(sizeof(T));
    kernel[0][0][ROWS - 1] = &Set::template tile<T, ROWS, 1, false>;
    kernel[0][1][ROWS - 1] = &Set::template tile<T, ROWS, 2, false>;
    kernel[1][0][ROWS - 1] = &Set::template tile<T, ROWS, 1, true>;
    kernel[1][1][ROWS - 1] = &Set::template tile<T, ROWS, 2, true>;
    if constexpr (ROWS > 1) fill<Set, ROWS - 1>(bytes);
  }
};

// ---- element conversion ------------------------------------------------------------------------

FL_INLINE float widen(float x) {
  return x;
}
FL_INLINE double widen(double x) {
  return x;
}
FL_INLINE float widen(Half x) {
  return float(x);
}
FL_INLINE float widen(BFloat16 x) {
  return float(x);
}

FL_AVX2 void widen_half_f16c(const Half* src, float* dst, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(src + i))));
  for (; i < n; ++i) dst[i] = float(src[i]);
}

FL_AVX2 void narrow_half_f16c(const float* src, Half* dst, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
  for (; i < n; ++i) dst[i] = Half(src[i]);
}

template <class S, class T>
void widen_row(const S* src, T* dst, int64_t n) {
  if constexpr (std::is_same_v<S, T>) {
    if (size_t(n) * sizeof(T) == 128)  // a whole panel row: known size, no call
      std::memcpy(dst, src, 128);
    else
      std::memcpy(dst, src, size_t(n) * sizeof(T));
  } else {
    if constexpr (std::is_same_v<S, Half>)
      if (isa() != Isa::Base) return widen_half_f16c(src, dst, n);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) dst[i] = widen(src[i]);
  }
}

// ---- packing -----------------------------------------------------------------------------------

// Four k-contiguous rows of length n, interleaved: dst[p * width + r] = rows[r][p].
FL_INLINE void interleave4(const float* const r[4], float* dst, int64_t width, int64_t n) {
  int64_t p = 0;
  for (; p + 4 <= n; p += 4) {
    __m128 a = _mm_loadu_ps(r[0] + p), b = _mm_loadu_ps(r[1] + p);
    __m128 c = _mm_loadu_ps(r[2] + p), d = _mm_loadu_ps(r[3] + p);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(dst + p * width, a);
    _mm_storeu_ps(dst + (p + 1) * width, b);
    _mm_storeu_ps(dst + (p + 2) * width, c);
    _mm_storeu_ps(dst + (p + 3) * width, d);
  }
  for (; p < n; ++p)
    for (int i = 0; i < 4; ++i) dst[p * width + i] = r[i][p];
}

FL_INLINE void interleave4(const double* const r[4], double* dst, int64_t width, int64_t n) {
  for (int64_t p = 0; p < n; ++p, dst += width)
    dst[0] = r[0][p], dst[1] = r[1][p], dst[2] = r[2][p], dst[3] = r[3][p];
}

// Packs one panel: dst[p * width + j] = src[j * stride + p * k_stride], j < count, zeros above.
template <class S, class T>
void pack_panel(const S* src, int64_t stride, int64_t k_stride, int64_t count, int64_t k, T* dst,
                int64_t width) {
  if (stride == 1) {
    for (int64_t p = 0; p < k; ++p) widen_row(src + p * k_stride, dst + p * width, count);
  } else if (k_stride == 1) {
    int64_t j = 0;
    for (; j + 4 <= count; j += 4) {
      if constexpr (std::is_same_v<S, T>) {
        const T* rows[4];
        for (int i = 0; i < 4; ++i) rows[i] = src + (j + i) * stride;
        interleave4(rows, dst + j, width, k);
      } else {
        constexpr int64_t chunk = 128;
        T buffer[4][chunk];
        const T* rows[4] = {buffer[0], buffer[1], buffer[2], buffer[3]};
        for (int64_t p = 0; p < k; p += chunk) {
          const int64_t n = std::min(chunk, k - p);
          for (int i = 0; i < 4; ++i) widen_row(src + (j + i) * stride + p, buffer[i], n);
          interleave4(rows, dst + p * width + j, width, n);
        }
      }
    }
    for (; j < count; ++j)
      for (int64_t p = 0; p < k; ++p) dst[p * width + j] = widen(src[j * stride + p]);
  } else {
    for (int64_t p = 0; p < k; ++p)
      for (int64_t j = 0; j < count; ++j) dst[p * width + j] = widen(src[j * stride + p * k_stride]);
  }
  if (count < width)
    for (int64_t p = 0; p < k; ++p)
      for (int64_t j = count; j < width; ++j) dst[p * width + j] = T(0);
}

// Packs panels [begin, end) of a matrix `count` wide.  Where rows are contiguous several panels are
// filled together, so that each memory page is visited once.
template <class S, class T>
void pack_panels(const S* src, int64_t stride, int64_t k_stride, int64_t count, int64_t k, T* dst,
                 int64_t width, int64_t begin, int64_t end) {
  constexpr int64_t together = 16;
  for (int64_t t = begin; t < end;) {
    const int64_t whole = std::min({together, end - t, count / width - t});
    if (stride == 1 && whole > 1) {
      for (int64_t p = 0; p < k; ++p)
        for (int64_t q = t; q < t + whole; ++q)
          widen_row(src + p * k_stride + q * width, dst + (q * k + p) * width, width);
      t += whole;
    } else {
      pack_panel(src + t * width * stride, stride, k_stride, std::min(width, count - t * width), k,
                 dst + t * width * k, width);
      ++t;
    }
  }
}

// ---- one product -------------------------------------------------------------------------------

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
    for (int64_t j = 0; j < cols; ++j) line[j] = g.alpha * sums[j];
    if (keep != T(0))
      for (int64_t j = 0; j < cols; ++j) line[j] += keep * widen(c[j * g.c_col]);
    if (last && g.bias) {
      const D* bias = g.bias + (i0 + i) * g.bias_row + j0 * g.bias_col;
      for (int64_t j = 0; j < cols; ++j) line[j] += widen(bias[j * g.bias_col]);
    }
    if (last && g.relu)
      for (int64_t j = 0; j < cols; ++j) line[j] = line[j] < T(0) ? T(0) : line[j];
    if constexpr (std::is_same_v<D, Half>) {
      if (g.c_col == 1 && isa() != Isa::Base) {
        narrow_half_f16c(line, c, cols);
        continue;
      }
    }
    if (g.c_col == 1)
      for (int64_t j = 0; j < cols; ++j) c[j] = D(line[j]);
    else
      for (int64_t j = 0; j < cols; ++j) c[j * g.c_col] = D(line[j]);
  }
}

constexpr int64_t kBlockK = 192;   // depth of a packed block
constexpr int64_t kBlockM = 2016;  // rows of A packed at once
constexpr int64_t kBlockN = 2048;  // columns of B packed at once
constexpr int64_t kInnerM = 336;   // rows of packed A kept in L2 while panels of B pass by

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

constexpr int64_t kWholeB = 400000;  // bytes of B that need no splitting along k

// How one block of the product is carried out.
struct BlockPlan {
  int64_t tile_rows;    // height of a tile
  bool pack_a, pack_b;  // panels of B at the right edge are always packed
};

template <class S, class T, class D>
void multiply_block(const Product<S, T, D>& g, const TileSet<T>& set, const BlockPlan& plan, int64_t i0,
                    int64_t rows, int64_t j0, int64_t cols, int64_t p0, int64_t depth, T* packed_a,
                    T* packed_b) {
  const int64_t width = set.width(), height = plan.tile_rows;
  const int64_t tiles = divide_up(rows, height), panels = divide_up(cols, width);
  const int position = (p0 == 0 ? kFirst : 0) | (p0 + depth == g.k ? kLast : 0);

  if (plan.pack_a)
    pack_panels(g.a + i0 * g.a_row + p0 * g.a_col, g.a_row, g.a_col, rows, depth, packed_a, height, 0, tiles);
  // Unpacked or not, the panel at the edge is: kernels load whole vectors.
  const int64_t first = plan.pack_b ? 0 : cols % width ? panels - 1 : panels;
  pack_panels(g.b + j0 * g.b_col + p0 * g.b_row, g.b_col, g.b_row, cols, depth, packed_b, width, first,
              panels);

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

// Scratch of this thread: [0] packed A, [1] packed B, [2] other temporaries.
Workspace& scratch(int which) {
  thread_local Workspace spaces[3];
  return spaces[which];
}

// Whether A (B) has to be packed.  A panel of A is read once per panel of B, a panel of B once per
// tile of rows; reading in place also wants neighbours in memory to be neighbours in the walk.
template <class S, class T, class D>
BlockPlan plan_for(const Product<S, T, D>& g, const TileSet<T>& set) {
  BlockPlan plan;
  plan.tile_rows = divide_up(g.m, divide_up(g.m, set.max_rows));
  const bool same = std::is_same_v<S, T>;
  const bool a_small = g.a_row == 1 && g.m * g.k <= 8192 && g.a_col < 2 * g.m;
  const bool b_small = g.k * g.n <= 8192 && g.b_row < 2 * g.n;
  plan.pack_a = !(same && ((g.a_col == 1 && g.n <= 4 * set.width()) || a_small));
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

struct Range {
  int64_t begin, end;
};
// Part number `part` of `count` items split evenly into `parts`.
Range share(int64_t count, int parts, int part) {
  return {count * part / parts, count * (part + 1) / parts};
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
  const int64_t block_k =
      g.k <= whole_k ? std::max<int64_t>(g.k, 1) : divide_up(g.k, divide_up(g.k, kBlockK));
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

// ---- matrix times vector -----------------------------------------------------------------------

// out[i] = sum_p m[i * row + p] * x[p] for `rows` rows: each row of M is contiguous.
template <class S, class T>
FL_INLINE void row_dots(const S* m, int64_t row, const T* x, int64_t rows, int64_t k, T* out) {
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4) {
    const S *r0 = m + i * row, *r1 = r0 + row, *r2 = r1 + row, *r3 = r2 + row;
    T s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
    for (int64_t p = 0; p < k; ++p) {
      s0 += widen(r0[p]) * x[p];
      s1 += widen(r1[p]) * x[p];
      s2 += widen(r2[p]) * x[p];
      s3 += widen(r3[p]) * x[p];
    }
    out[i] = s0, out[i + 1] = s1, out[i + 2] = s2, out[i + 3] = s3;
  }
  for (; i < rows; ++i) {
    const S* r = m + i * row;
    constexpr int64_t step = 128 / sizeof(T) * 2;  // several vectors, so that additions overlap
    T partial[step] = {};
    int64_t p = 0;
    for (; p + step <= k; p += step)
#pragma omp simd
      for (int64_t q = 0; q < step; ++q) partial[q] += widen(r[p + q]) * x[p + q];
    T s = 0;
    for (; p < k; ++p) s += widen(r[p]) * x[p];
    for (int64_t q = 0; q < step; ++q) s += partial[q];
    out[i] = s;
  }
}

// out[i] = sum_p m[i + p * col] * x[p]: each column of M is contiguous.
template <class S, class T>
FL_INLINE void column_sums(const S* m, int64_t col, const T* x, int64_t rows, int64_t k, T* out) {
  for (int64_t i = 0; i < rows; ++i) out[i] = 0;
  int64_t p = 0;
  for (; p + 8 <= k; p += 8) {
    const S* c = m + p * col;
    const T* v = x + p;
#pragma omp simd
    for (int64_t i = 0; i < rows; ++i)
      out[i] += widen(c[i]) * v[0] + widen(c[i + col]) * v[1] + widen(c[i + 2 * col]) * v[2] +
                widen(c[i + 3 * col]) * v[3] + widen(c[i + 4 * col]) * v[4] + widen(c[i + 5 * col]) * v[5] +
                widen(c[i + 6 * col]) * v[6] + widen(c[i + 7 * col]) * v[7];
  }
  for (; p < k; ++p)
#pragma omp simd
    for (int64_t i = 0; i < rows; ++i) out[i] += widen(m[i + p * col]) * x[p];
}

// The two above compiled for each instruction set.
template <class S, class T>
struct VectorKernels {
  using Fn = void (*)(const S*, int64_t, const T*, int64_t, int64_t, T*);
  Fn dots, sums;
#define FL_VECTOR_KERNELS(SUFFIX, TARGET)                                                           \
  TARGET static void dots_##SUFFIX(const S* m, int64_t s, const T* x, int64_t r, int64_t k, T* o) { \
    row_dots(m, s, x, r, k, o);                                                                     \
  }                                                                                                 \
  TARGET static void sums_##SUFFIX(const S* m, int64_t s, const T* x, int64_t r, int64_t k, T* o) { \
    column_sums(m, s, x, r, k, o);                                                                  \
  }
  FL_VECTOR_KERNELS(avx512, FL_AVX512)
  FL_VECTOR_KERNELS(avx2, FL_AVX2)
  FL_VECTOR_KERNELS(base, )
#undef FL_VECTOR_KERNELS

  static VectorKernels get() {
    switch (isa()) {
      case Isa::Avx512:
        return {&dots_avx512, &sums_avx512};
      case Isa::Avx2:
        return {&dots_avx2, &sums_avx2};
      default:
        return {&dots_base, &sums_base};
    }
  }
};

// A product with n == 1: C[:, 0] = A @ b.
template <class S, class T, class D>
void multiply_vector(const Product<S, T, D>& g, int threads) {
  const auto kernels = VectorKernels<S, T>::get();
  const T* x = nullptr;
  if constexpr (std::is_same_v<S, T>)
    if (g.b_row == 1) x = g.b;
  if (!x) {
    T* copy = static_cast<T*>(scratch(1).get(std::max<int64_t>(g.k, 1) * sizeof(T)));
    for (int64_t p = 0; p < g.k; ++p) copy[p] = widen(g.b[p * g.b_row]);
    x = copy;
  }
  // Results [first, first + rows), over k in [p0, p0 + depth).
  auto sums = [&](int64_t first, int64_t rows, int64_t p0, int64_t depth, T* out) {
    const S* a = g.a + first * g.a_row + p0 * g.a_col;
    if (g.a_col == 1) return kernels.dots(a, g.a_row, x + p0, rows, depth, out);
    if (g.a_row == 1) return kernels.sums(a, g.a_col, x + p0, rows, depth, out);
    for (int64_t i = 0; i < rows; ++i) {
      T s = 0;
      for (int64_t p = 0; p < depth; ++p) s += widen(a[i * g.a_row + p * g.a_col]) * x[p0 + p];
      out[i] = s;
    }
  };
  constexpr int64_t most = 512;
  constexpr int kMaxTeam = 64;
  threads = std::min(threads, kMaxTeam);
  if (threads > 1 && g.m < 8 * threads && g.m <= 64) {  // few long rows: split k
    static thread_local T partial_space[kMaxTeam][64];
    T(*partial)[64] = partial_space;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; ++t) {
      const Range r = share(g.k, threads, t);
      sums(0, g.m, r.begin, r.end - r.begin, partial[t]);
    }
    for (int t = 1; t < threads; ++t)
      for (int64_t i = 0; i < g.m; ++i) partial[0][i] += partial[t][i];
    return finish_tile(g, partial[0], 1, 0, 0, g.m, 1, kFirst | kLast);
  }
  auto run = [&](int64_t begin, int64_t end) {
    T out[most];
    for (int64_t i = begin; i < end; i += most) {
      const int64_t rows = std::min(most, end - i);
      sums(i, rows, 0, g.k, out);
      finish_tile(g, out, 1, i, 0, rows, 1, kFirst | kLast);
    }
  };
  if (threads <= 1) return run(0, g.m);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int t = 0; t < threads; ++t) {
    const Range r = share(g.m, threads, t);
    run(r.begin, r.end);
  }
}

// ---- batches and threads -----------------------------------------------------------------------

// Threads worth waking for this much work (in multiplications, or elements read if that is more).
int team_for(double work) {
  if (work < 1.0e6 || omp_in_parallel()) return 1;
  return std::max(1, int(std::min<double>(num_threads(), work / 4.0e5)));
}

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

template <class S, class T>
void multiply_part(const Product<S, T, S>& p) {
  if constexpr (std::is_same_v<S, T>)  // at such sizes the libraries are ahead, even with a pass for the bias
    if (std::min({p.m, p.n, p.k}) >= 128 && double(p.m) * p.n * p.k > 1.5e7 &&
        blas_gemm(p.m, p.n, p.k, p.alpha, p.a, p.a_row, p.a_col, p.b, p.b_row, p.b_col, p.beta, p.c, p.c_row,
                  p.c_col)) {
      if (p.bias || p.relu) add_bias(p);
      return;
    }
  if (std::is_same_v<S, T> || p.k <= kBlockK) return multiply(p);
  // Sums over several k blocks have to be carried in T: C is rounded once, at the end.
  T* wide = static_cast<T*>(scratch(2).get(size_t(p.m) * p.n * sizeof(T)));
  multiply(Product<S, T, T>{p.m, p.n, p.k, p.a, p.a_row, p.a_col, p.b, p.b_row, p.b_col, wide, p.n, 1, T(1),
                            T(0), nullptr, 0, 0, false});
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; j += kMaxWidth)
      finish_tile(p, wide + i * p.n + j, p.n, i, j, 1, std::min<int64_t>(kMaxWidth, p.n - j), kFirst | kLast);
}

template <class S, class T>
void multiply_any(Product<S, T, S> p, int threads) {
  if (p.m == 1 && p.n > 1) p = p.transposed();
  if (p.n == 1) return multiply_vector(p, threads);
  if (threads <= 1) return multiply_part<S, T>(p);
  // Threads work on separate rectangles of C, nearly square, and meet only at the end: packing some
  // blocks twice costs less than waiting for each other, above all on a busy machine.
  int across = 1;
  for (int t = 1; t <= threads; ++t)
    if (threads % t == 0 && double(p.n) * threads >= double(p.m) * t * t) across = t;
  const int down = threads / across;
  const int64_t width = TileSet<T>::get().width();
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int cell = 0; cell < down * across; ++cell) {
    const Range i = share(p.m, down, cell / across);
    Range j = share(divide_up(p.n, width), across, cell % across);
    j = {j.begin * width, std::min(j.end * width, p.n)};
    Product<S, T, S> part = p;
    part.m = i.end - i.begin, part.n = j.end - j.begin;
    if (part.m <= 0 || part.n <= 0) continue;
    part.a += i.begin * p.a_row;
    part.b += j.begin * p.b_col;
    part.c += i.begin * p.c_row + j.begin * p.c_col;
    if (p.bias) part.bias += i.begin * p.bias_row + j.begin * p.bias_col;
    multiply_part<S, T>(part);
  }
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
  if (threads > 1 && g.batch >= threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < g.batch; ++i) multiply_any<S, T>(product_of<S, T, S>(g, i), 1);
  } else {
    for (int64_t i = 0; i < g.batch; ++i) multiply_any<S, T>(product_of<S, T, S>(g, i), threads);
  }
}

// ---- integers and complex numbers --------------------------------------------------------------

template <class T>
T scalar_of(std::complex<double> s) {
  if constexpr (std::is_arithmetic_v<T>)
    return T(s.real());
  else
    return T(s);
}

// One row of C at a time: W is wide enough not to overflow in a way the language forbids.
template <class T, class W>
void gemm_loops(const GemmArgs& g) {
  const W alpha = scalar_of<W>(g.alpha), beta = scalar_of<W>(g.beta);
  const int threads = team_for(8.0 * double(g.batch) * g.m * g.n * std::max<int64_t>(g.k, 1));
  constexpr int64_t block = 512;
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
  for (int64_t r = 0; r < g.batch * g.m; ++r) {
    const int64_t batch = r / g.m, i = r % g.m;
    const T* a = static_cast<const T*>(g.a) + batch * g.a_batch + i * g.a_row;
    T* c = static_cast<T*>(g.c) + batch * g.c_batch + i * g.c_row;
    const T* bias = static_cast<const T*>(g.bias);
    for (int64_t j0 = 0; j0 < g.n; j0 += block) {
      const int64_t cols = std::min(block, g.n - j0);
      const T* b = static_cast<const T*>(g.b) + batch * g.b_batch + j0 * g.b_col;
      W sums[block];
      std::fill(sums, sums + cols, W(0));
      if (g.b_col == 1) {
        for (int64_t p = 0; p < g.k; ++p) {
          const W x = W(a[p * g.a_col]);
          const T* row = b + p * g.b_row;
          for (int64_t j = 0; j < cols; ++j) sums[j] += x * W(row[j]);
        }
      } else {
        for (int64_t j = 0; j < cols; ++j) {
          W s(0);
          for (int64_t p = 0; p < g.k; ++p) s += W(a[p * g.a_col]) * W(b[p * g.b_row + j * g.b_col]);
          sums[j] = s;
        }
      }
      for (int64_t j = 0; j < cols; ++j) {
        T& out = c[(j0 + j) * g.c_col];
        W v = alpha * sums[j];
        if (beta != W(0)) v += beta * W(out);
        if (bias) v += W(bias[(j0 + j) * g.bias_stride]);
        out = T(v);
        if constexpr (std::is_arithmetic_v<T>)
          if (g.relu && out < T(0)) out = T(0);
      }
    }
  }
}

// Integers multiply as unsigned, where wrapping around is defined; relu looks at the signed result.
template <class T>
void gemm_integer(const GemmArgs& g) {
  gemm_loops<T, std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>>(g);
}

template <class R>
void gemm_complex(const GemmArgs& g) {
  using T = std::complex<R>;
  const double work = double(g.m) * g.n * g.k * 4;
  const BlasMatrix la = blas_matrix(g.m, g.k, g.a_row, g.a_col), lb = blas_matrix(g.k, g.n, g.b_row, g.b_col);
  const BlasMatrix lc = blas_matrix(g.m, g.n, g.c_row, g.c_col);
  const bool fits =
      la.fits && lb.fits && lc.fits && !lc.transposed && !g.bias && g.k > 0 && work * double(g.batch) > 4096;
  const OpenBlas* blas = fits ? openblas() : nullptr;
  if (!blas) return gemm_loops<T, T>(g);
  const auto gemm = sizeof(R) == 4 ? blas->cgemm : blas->zgemm;
  const T alpha(g.alpha), beta(g.beta);
  // Chunks of rows of one product, spread over our pool; OpenBLAS itself stays single-threaded.
  const int threads = team_for(work * double(g.batch));
  const int64_t parts = g.batch >= threads ? 1 : std::min<int64_t>(threads, g.m);
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
  for (int64_t u = 0; u < g.batch * parts; ++u) {
    const int64_t batch = u / parts;
    const Range r = share(g.m, int(parts), int(u % parts));
    gemm(101, la.transposed ? 112 : 111, lb.transposed ? 112 : 111, int(r.end - r.begin), int(g.n), int(g.k),
         &alpha, static_cast<const T*>(g.a) + batch * g.a_batch + r.begin * g.a_row, la.lead,
         static_cast<const T*>(g.b) + batch * g.b_batch, lb.lead, &beta,
         static_cast<T*>(g.c) + batch * g.c_batch + r.begin * g.c_row, lc.lead);
  }
}

}  // namespace

void gemm(const GemmArgs& g) {
  if (g.batch <= 0 || g.m <= 0 || g.n <= 0) return;
  switch (g.dtype) {
    case DType::Float:
      return gemm_floating<float, float>(g);
    case DType::Double:
      return gemm_floating<double, double>(g);
    case DType::BFloat16:
      return gemm_floating<BFloat16, float>(g);
    case DType::Half:
      return gemm_floating<Half, float>(g);
    case DType::Int64:
      return gemm_integer<int64_t>(g);
    case DType::Int32:
      return gemm_integer<int32_t>(g);
    case DType::Int16:
      return gemm_integer<int16_t>(g);
    case DType::Int8:
      return gemm_integer<int8_t>(g);
    case DType::UInt8:
      return gemm_integer<uint8_t>(g);
    case DType::ComplexFloat:
      return gemm_complex<float>(g);
    case DType::ComplexDouble:
      return gemm_complex<double>(g);
    case DType::Bool:
      break;
  }
  throw std::runtime_error("[gemm] expected a numeric dtype, got bool");
}

void dot(DType dtype, int64_t n, const void* x, int64_t x_stride, const void* y, int64_t y_stride,
         void* out) {
  GemmArgs g;
  g.dtype = dtype;
  g.m = g.n = 1;
  g.k = n;
  g.a = x, g.a_col = x_stride;
  g.b = y, g.b_row = y_stride;
  g.c = out;
  gemm(g);
}

}  // namespace fl::cpu
