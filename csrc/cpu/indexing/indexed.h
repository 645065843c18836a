// What indexing, gathering and scattering share: offsets of scattered elements, and typed loops over such
// offsets.
#pragma once

#include <functional>
#include <vector>

#include "ops/indexed.h"

namespace fl {

// dst[i] = base[offsets[i]]; all offsets and strides of this file are in bytes.
using GatherFn = void (*)(char* dst, int64_t dst_stride, const char* base, const int64_t* offsets, int64_t n);
// base[offsets[i]] op= src[i], in order.
using ScatterFn = void (*)(char* base, const int64_t* offsets, const char* src, int64_t src_stride,
                           int64_t n);
// dst[i] op= src[i].
using RowFn = void (*)(char* dst, int64_t dst_stride, const char* src, int64_t src_stride, int64_t n);

GatherFn gather_fn(int64_t itemsize);
ScatterFn scatter_fn(const char* op, Combine how, DType dtype);
RowFn row_fn(const char* op, Combine how, DType dtype);

constexpr int64_t kIndexBlock = 512;  // offsets computed at a time

// base[offsets(i)] op= source[i] for single elements that go anywhere in `places` neighbouring ones.
struct ElementScatter {
  const char* op;
  Combine how;
  DType dtype;
  char* base;
  int64_t places;  // elements from `base` on, which offsets do not leave
  const char* source;
  int64_t source_step, count;
};
// Fills out with the offsets of elements [begin, begin + n), which are at most kIndexBlock.
using ElementOffsets = std::function<void(int64_t begin, int64_t n, int64_t* out)>;

// Scatters with several threads, each into a copy of the places, which are combined in the order of the
// elements. The result is false, and nothing happened, where one thread alone is as quick or more exact.
bool scatter_in_copies(const ElementScatter& scatter, const ElementOffsets& offsets);

// Where the non-zero elements of a mask lie: for each of them and each row of weights, the sum of coordinate
// * weight. The result is an int64 tensor with one row for each row of weights.
Tensor nonzero_weighted(const Tensor& mask, const std::vector<Dims>& weights);

// self /= max(count, 1), integers rounding down; counts are int64, of self's shape and contiguous.
void divide_by_counts(const Tensor& self, const Tensor& counts);

// Indices as a contiguous int64 tensor.
Tensor as_index(const Tensor& index);

// Raises the error of an index out of bounds for the first offender among n values.
[[noreturn]] void index_out_of_bounds(const char* op, bool index_error, const int64_t* index, int64_t stride,
                                      int64_t n, int64_t low, int64_t size, int64_t dim);

// offsets[i] (+)= index[i] * stride, checked against [low, size) where low is 0 or -size (negative ones
// wrap). Written without comparisons and, for strides that are powers of two, without 64-bit products, so
// that it vectorises.
template <bool accumulate>
inline void index_offsets(const char* op, bool index_error, const int64_t* index, int64_t index_stride,
                          int64_t n, int64_t size, bool wrap, int64_t stride, int64_t dim, int64_t* offsets) {
  const int64_t low = wrap ? -size : 0, last = size - 1;
  int64_t bad = 0;  // its sign is set by an index outside
  const int shift = stride > 0 && (stride & (stride - 1)) == 0 ? __builtin_ctzll(stride) : -1;
  const auto run = [&](auto step, auto place) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t v = index[i * step];
      bad |= (v - low) | (last - v);
      const int64_t at = place(v);
      offsets[i] = accumulate ? offsets[i] + at : at;
    }
  };
  const auto pick = [&](auto place) {
    if (index_stride == 1)
      run(std::integral_constant<int64_t, 1>{}, place);
    else
      run(index_stride, place);
  };
  if (wrap) {
    pick([=](int64_t v) { return (v + (v < 0 ? size : 0)) * stride; });
  } else if (shift >= 0) {
    pick([=](int64_t v) { return v << shift; });
  } else {
    pick([=](int64_t v) { return v * stride; });
  }
  if (__builtin_expect(bad < 0, 0))
    index_out_of_bounds(op, index_error, index, index_stride, n, low, size, dim);
}

// Geometry in bytes with neighbouring dimensions merged, outermost first; sizes of one are dropped.
struct Merged {
  Dims sizes, strides;
  int64_t numel = 1;
  Merged() = default;
  Merged(IntSpan s, IntSpan byte_strides);
  bool is_row(int64_t item) const { return sizes.empty() || (sizes.size() == 1 && strides[0] == item); }
  // Byte offset of an element by its position in row-major order.
  int64_t at(int64_t position) const {
    int64_t offset = 0;
    for (size_t d = sizes.size(); d-- > 0;) {
      offset += position % sizes[d] * strides[d];
      position /= sizes[d];
    }
    return offset;
  }
};

}  // namespace fl
