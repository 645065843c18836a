// Products of few rows of bytes with a matrix that is not packed: see multiply_few_rows.
//
// Such products take as long as reading B does, which is read once, in the order of memory. Columns that lie
// along k are multiplied as they are. Rows that lie along n are joined into units for a small part of B at a
// time, which stays in the first cache.
#include <cmath>

#include "cpu/engine/capability.h"
#include "cpu/gemm/byte_finish.h"
#include "cpu/gemm/unit_walk.h"

#define FL_VNNI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))

namespace fl::cpu::products {
namespace {

constexpr int64_t kRowGap = 64;      // bytes between rows of A, so that they do not all use the same lines
constexpr int64_t kBlockDepth = 64;  // rows of B that are joined at a time: no more pages than the TLB has
constexpr int64_t kBlockPanels = 8;
constexpr double kByteTime = 0.1;  // nanoseconds for a byte of B

// A as unsigned bytes, and one row more: all bytes are the zero of A, so that its products with B are what
// the others have too much.
class CopiedRows {
 public:
  CopiedRows(int64_t m, const ByteRows& source, int64_t k) : stride_(round_up(k, 64) + kRowGap) {
    bytes_.resize(size_t((m + 1) * stride_));
    RowGrid grid;
    for (int64_t i = 0; i < m; ++i) grid = source.fill(i, bytes_.data() + i * stride_);
    std::fill_n(bytes_.data() + m * stride_, k, uint8_t(grid.zero));
    has_zero = grid.zero != 0;
  }
  const uint8_t* row(int64_t i) const { return bytes_.data() + i * stride_; }
  int64_t stride() const { return stride_; }

  bool has_zero;

 private:
  const int64_t stride_;
  std::vector<uint8_t> bytes_;
};

// ---- columns along k ---------------------------------------------------------------------------

// out[i][j] = row i . column j, for ROWS rows of bytes and COLUMNS columns that lie `b_col` apart.
#ifdef FL_X86
template <int ROWS, int COLUMNS>
FL_VNNI void dot_block(const uint8_t* a, int64_t a_row, const int8_t* b, int64_t b_col, int64_t k,
                       int32_t* out, int64_t out_row) {
  __m512i sums[ROWS][COLUMNS];
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < COLUMNS; ++j) sums[i][j] = _mm512_setzero_si512();
  for (int64_t p = 0; p < k; p += 64) {
    const __mmask64 lanes = k - p >= 64 ? ~__mmask64(0) : (__mmask64(1) << (k - p)) - 1;
    __m512i columns[COLUMNS];
#pragma GCC unroll 4
    for (int j = 0; j < COLUMNS; ++j) columns[j] = _mm512_maskz_loadu_epi8(lanes, b + j * b_col + p);
#pragma GCC unroll 4
    for (int i = 0; i < ROWS; ++i) {
      const __m512i x = _mm512_loadu_si512(a + i * a_row + p);
#pragma GCC unroll 4
      for (int j = 0; j < COLUMNS; ++j) sums[i][j] = _mm512_dpbusd_epi32(sums[i][j], x, columns[j]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < COLUMNS; ++j) out[i * out_row + j] = _mm512_reduce_add_epi32(sums[i][j]);
}
#else
template <int ROWS, int COLUMNS>
void dot_block(const uint8_t* a, int64_t a_row, const int8_t* b, int64_t b_col, int64_t k, int32_t* out,
               int64_t out_row) {
  for (int i = 0; i < ROWS; ++i)
    for (int j = 0; j < COLUMNS; ++j) {
      int32_t sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t p = 0; p < k; ++p) sum += int32_t(a[i * a_row + p]) * int32_t(b[j * b_col + p]);
      out[i * out_row + j] = sum;
    }
}
#endif

template <int COLUMNS>
void dot_rows(const CopiedRows& a, int64_t rows, const int8_t* b, int64_t b_col, int64_t k, int32_t* out,
              int64_t out_row) {
  int64_t i = 0;
  const auto next = [&](auto kernel, int64_t count) {
    kernel(a.row(i), a.stride(), b, b_col, k, out + i * out_row, out_row);
    i += count;
  };
  while (i + 4 <= rows) next(dot_block<4, COLUMNS>, 4);
  if (rows - i == 3) return next(dot_block<3, COLUMNS>, 3);
  if (rows - i == 2) return next(dot_block<2, COLUMNS>, 2);
  if (rows - i == 1) return next(dot_block<1, COLUMNS>, 1);
}

void dot_columns(int64_t m, const CopiedRows& a, int64_t k, const int8_t* b, int64_t b_col, Range columns,
                 int32_t* out, int64_t out_row) {
  constexpr int64_t together = 4;
  const int64_t rows = m + (a.has_zero ? 1 : 0);
  std::vector<int32_t> sums(size_t(rows * together));
  for (int64_t j = columns.begin; j < columns.end; j += together) {
    const int64_t count = std::min(together, columns.end - j);
    if (count == together)
      dot_rows<together>(a, rows, b + j * b_col, b_col, k, sums.data(), together);
    else
      for (int64_t c = 0; c < count; ++c)
        dot_rows<1>(a, rows, b + (j + c) * b_col, b_col, k, sums.data() + c, together);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t c = 0; c < count; ++c) {
        const uint32_t more = a.has_zero ? uint32_t(sums[size_t(m * together + c)]) : 0;
        out[i * out_row + j + c] = int32_t(uint32_t(sums[size_t(i * together + c)]) - more);
      }
  }
}

// ---- rows along n ------------------------------------------------------------------------------

void multiply_joined(const UnitSet& set, int64_t m, const CopiedRows& a, int64_t k, const int8_t* b,
                     int64_t b_row, Range columns, int32_t* out, int64_t out_row) {
  const int64_t width = set.width, panels = divide_up(columns.end - columns.begin, width);
  auto* joined = static_cast<uint32_t*>(scratch(1).get(size_t(kBlockPanels * width * kBlockDepth)));
  std::vector<int32_t> sums(size_t(panels * m * width)), column_sums(size_t(panels * width)),
      block_sums(size_t(kBlockPanels * width));
  for (int64_t p = 0; p < k; p += kBlockDepth) {
    const UnitDepth depth(set, std::min(kBlockDepth, k - p), kBlockDepth);
    for (int64_t q = 0; q < panels; q += kBlockPanels) {
      const int64_t first = columns.begin + q * width, count = std::min(kBlockPanels, panels - q);
      pack_integers<int8_t>(b + p * b_row + first, 1, b_row, std::min(count * width, columns.end - first),
                            depth, joined, width, block_sums.data(), 0, count);
      for (int64_t c = 0; c < count; ++c)
        for (int64_t i = 0; i < m; i += set.max_rows)
          set.kernel[0][1][std::min<int64_t>(set.max_rows, m - i) - 1](
              depth.units, reinterpret_cast<const char*>(a.row(i)) + p, a.stride(), 4,
              joined + c * depth.units * width, sums.data() + ((q + c) * m + i) * width, width, p > 0, {});
      for (int64_t j = 0; j < count * width; ++j) column_sums[size_t(q * width + j)] += block_sums[size_t(j)];
    }
  }
  const uint32_t zero = a.has_zero ? a.row(m)[0] : 0;
  for (int64_t q = 0; q < panels; ++q) {
    const int64_t first = columns.begin + q * width, used = std::min(width, columns.end - first);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < used; ++j)
        out[i * out_row + first + j] = int32_t(uint32_t(sums[size_t((q * m + i) * width + j)]) -
                                               zero * uint32_t(column_sums[size_t(q * width + j)]));
  }
}

}  // namespace

bool multiplies_few_rows(int64_t m, int64_t k, int64_t b_row, int64_t b_col) {
  const UnitSet& set = byte_units();
  const bool along = b_row == 1 || (b_col == 1 && !set.rows_only);
  return m <= kFewByteRows && k > 0 && along && set.elements == 4 &&
         (has_capability(Capability::Avx512Vnni) || has_capability(Capability::NeonDot));
}

void multiply_few_rows(int64_t m, const ByteRows& source, int64_t k, int64_t n, const int8_t* b,
                       int64_t b_row, int64_t b_col, int32_t* out) {
  const UnitSet& set = byte_units();
  const CopiedRows a(m, source, k);
  const double time = double(n) * double(k) * kByteTime;
  const int64_t panels = divide_up(n, set.width);
  const int pieces = int(std::min<int64_t>(panels, thread_model::pieces_for(time)));
  parallel_pieces(std::max(pieces, 1), time, [&](int piece, int count) {
    const Range part = share(panels, count, piece);
    const Range columns{part.begin * set.width, std::min(part.end * set.width, n)};
    if (b_row == 1)
      dot_columns(m, a, k, b, b_col, columns, out, n);
    else
      multiply_joined(set, m, a, k, b, b_row, columns, out, n);
  });
}

}  // namespace fl::cpu::products
