// 8-bit integer products: see bytes.h.
#include "cpu/gemm/bytes.h"

#include <cmath>

#include "cpu/gemm/byte_finish.h"
#include "cpu/gemm/unit_walk.h"

namespace fl::cpu::products {
namespace {

constexpr int64_t kRowGap = 64;  // bytes between packed rows, so that they do not all use the same lines
constexpr int64_t kConflict =
    1024;  // bytes: rows so far apart, or multiples of it, share lines of the first cache
constexpr double kByteRate = 3;  // multiplications for one of floats

UnitDepth depth_of(const UnitSet& set, int64_t k) {
  return UnitDepth(set, k, k);
}

// Rows of A as a kernel reads them, with their grids and sums.
class Rows {
 public:
  Rows(const UnitSet& set, const UnitDepth& depth, const ByteRows& source, bool with_sums, int64_t rows)
      : set_(set), depth_(depth), source_(source), with_sums_(with_sums) {
    direct_ = source.direct && set.elements == 4 && depth.k % (4 * set.unit_multiple) == 0 && depth.k > 0 &&
              (!set.rows_only || rows % set.max_rows == 0) && source.row_stride % kConflict != 0;
  }

  UnitRows operator()(int64_t first, int64_t rows, int64_t height) const {
    grids.resize(size_t(rows));
    sums.resize(with_sums_ ? size_t(rows) : 0);
    if (direct_) {
      std::fill(grids.begin(), grids.end(), source_.direct_grid);
      const uint8_t* at = source_.direct + first * source_.row_stride;
      for (int64_t i = 0; with_sums_ && i < rows; ++i) sums[i] = sum_of(at + i * source_.row_stride);
      return plain_rows(at, source_.row_stride, 0, height);
    }
    const int64_t row_bytes = depth_.units * 4 + kRowGap, all = round_up(rows, height);
    auto* to = static_cast<uint8_t*>(scratch(0).get(size_t(all * row_bytes)));
    narrow_.resize(set_.elements == 2 ? size_t(depth_.k) : 0);
    for (int64_t i = 0; i < rows; ++i) fill_row(first + i, to + i * row_bytes, size_t(i));
    return plain_rows(to, row_bytes, 0, height);
  }

  mutable std::vector<RowGrid> grids;
  mutable std::vector<int32_t> sums;

 private:
  int32_t sum_of(const uint8_t* row) const {
    uint32_t sum = 0;
    for (int64_t p = 0; p < depth_.k; ++p) sum += row[p];
    return int32_t(sum);
  }

  void fill_row(int64_t row, uint8_t* to, size_t i) const {
    if (set_.elements == 4) {
      grids[i] = source_.fill(row, to);
      if (with_sums_) sums[i] = sum_of(to);
      std::fill(to + depth_.k, to + depth_.units * 4, uint8_t(0));
      return;
    }
    grids[i] = source_.fill(row, narrow_.data());
    if (with_sums_) sums[i] = sum_of(narrow_.data());
    auto* wide = reinterpret_cast<uint16_t*>(to);
    for (int64_t p = 0; p < depth_.k; ++p) wide[p] = narrow_[size_t(p)];
    if (depth_.k % 2) wide[depth_.k] = 0;
  }

  const UnitSet& set_;
  const UnitDepth& depth_;
  const ByteRows& source_;
  const bool with_sums_;
  bool direct_;
  mutable std::vector<uint8_t> narrow_;
};

}  // namespace

int64_t packed_byte_panels(int64_t k, int64_t n) {
  const UnitSet& set = byte_units();
  return round_up(n, set.width) * depth_of(set, k).units;
}

int64_t packed_byte_columns(int64_t n) {
  return round_up(n, byte_units().width);
}

void pack_bytes(int64_t k, int64_t n, const int8_t* b, int64_t b_row, int64_t b_col, uint32_t* panels,
                int32_t* column_sums) {
  const UnitSet& set = byte_units();
  const UnitDepth depth = depth_of(set, k);
  const auto pack = set.elements == 4 ? pack_integers<int8_t> : pack_integers<int16_t>;
  parallel_for(divide_up(n, set.width), std::max<int64_t>(1, kGrain / (k * set.width + 1)),
               [&](int64_t begin, int64_t end) {
                 pack(b, b_col, b_row, n, depth, panels, set.width, column_sums, begin, end);
               });
}

void multiply_bytes(int64_t m, const ByteRows& source, const PackedBytes& b, const ByteFinish& finish) {
  if (m <= 0 || b.n <= 0) return;
  const UnitSet& set = byte_units();
  const UnitDepth depth = depth_of(set, b.k);
  const double work = double(m) * double(b.n) * double(std::max<int64_t>(b.k, 1)) / kByteRate;
  over_rectangles(team_for(work), m, b.n, std::max<int64_t>(1, b.k / int64_t(kByteRate)), set.width,
                  [&](Range is, Range js) {
                    const Rows rows(set, depth, source, finish.b_zeros != nullptr, is.end - is.begin);
                    walk_units<int32_t>(
                        set, depth, b.panels, is, js, rows,
                        [&](int32_t* sums, int64_t i0, int64_t high, int64_t j0, int64_t used) {
                          const ByteWindow window{sums,
                                                  set.width,
                                                  i0,
                                                  high,
                                                  j0,
                                                  used,
                                                  rows.grids.data(),
                                                  rows.sums.empty() ? nullptr : rows.sums.data(),
                                                  b.column_sums,
                                                  b.k};
                          finish_bytes(finish, window);
                        });
                  });
}

void flip_signs(const uint8_t* from, uint8_t* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[i] ^ 0x80;
}

}  // namespace fl::cpu::products
