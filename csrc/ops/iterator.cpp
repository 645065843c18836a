// Broadcasting, ordering and merging the dimensions of strided operands.
#include "ops/iterator.h"

#include <algorithm>

namespace fl {

Dims broadcast_shapes(const char* op, IntSpan a, IntSpan b) {
  if (a == b) return a;
  const size_t n = std::max(a.size(), b.size());
  Dims out(n);
  for (size_t i = 0; i < n; ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    FL_CHECK(x == y || x == 1 || y == 1, "[", op, "] expected shapes that broadcast together, got ", a,
             " and ", b, ": The size of tensor a (", x, ") must match the size of tensor b (", y,
             ") at non-singleton dimension ", static_cast<int64_t>(n - 1 - i));
    out[n - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

void StridedIterator::add(const Tensor& t, DType compute) {
  StridedOperand& o = operands_[count_++];
  o.data = t.raw();
  o.dtype = t.dtype();
  o.compute = compute;
  const size_t n = shape_.size(), nd = t.sizes().size();
  o.strides.resize(n);
  const int64_t item = t.itemsize();
  for (size_t i = 0; i < n; ++i) {
    // i counts from the innermost dimension
    o.strides[i] = i < nd && t->sizes[nd - 1 - i] != 1 ? t->strides[nd - 1 - i] * item : 0;
  }
}

void StridedIterator::add_scalar(const void* value, DType compute) {
  StridedOperand& o = operands_[count_++];
  o.data = const_cast<char*>(static_cast<const char*>(value));
  o.dtype = o.compute = compute;
  o.strides.resize(shape_.size());
}

void StridedIterator::finish() {
  const size_t n = shape_.size();
  Dims order;
  numel_ = 1;
  for (size_t i = 0; i < n; ++i) {
    const int64_t s = shape_[n - 1 - i];
    numel_ *= s;
    if (s != 1) order.push_back(static_cast<int64_t>(i));
  }
  // Innermost first: smaller output strides come first; where the output does not decide, the inputs do.
  const auto before = [&](int64_t a, int64_t b) {
    for (int k = 0; k < count_; ++k) {
      const int64_t x = std::abs(operands_[k].strides[a]), y = std::abs(operands_[k].strides[b]);
      if (x == 0 || y == 0) continue;
      if (x != y) return x < y;
    }
    return false;
  };
  for (size_t i = 1; i < order.size();
       ++i)  // insertion sort: the relation is not a strict weak order for std::sort
    for (size_t j = i; j > 0 && before(order[j], order[j - 1]); --j) std::swap(order[j], order[j - 1]);

  sizes_.clear();
  Dims merged[kMaxOperands];
  for (int64_t d : order) {
    const int64_t s = shape_[n - 1 - d];
    bool joins = !sizes_.empty();
    for (int k = 0; joins && k < count_; ++k)
      joins = operands_[k].strides[d] == merged[k].back() * sizes_.back();
    if (joins) {
      sizes_.back() *= s;
    } else {
      sizes_.push_back(s);
      for (int k = 0; k < count_; ++k) merged[k].push_back(operands_[k].strides[d]);
    }
  }
  if (sizes_.empty()) {
    sizes_.push_back(1);
    for (int k = 0; k < count_; ++k) merged[k].push_back(0);
  }
  for (int k = 0; k < count_; ++k) operands_[k].strides = std::move(merged[k]);
}

}  // namespace fl
