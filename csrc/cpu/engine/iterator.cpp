// Ordering, merging and blocked walking of strided operands.
#include "ops/iterator.h"

#include <cstring>

#include "core/parallel.h"
#include "cpu/engine/cast.h"

namespace fl {

Dims broadcast_shapes(const char* op, IntSpan a, IntSpan b) {
  if (a == b) return a;
  const size_t n = std::max(a.size(), b.size());
  Dims out(n);
  for (size_t i = 0; i < n; ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    FL_CHECK(x == y || x == 1 || y == 1, "[", op, "] expected shapes that broadcast together, got ", a,
             " and ", b, " (sizes ", x, " and ", y, " at dimension ", static_cast<int64_t>(n - 1 - i), ")");
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

void StridedIterator::run(Loop loop, const Scalar* params, int64_t cost) {
  if (numel_ == 0) return;
  parallel_for(numel_, std::max<int64_t>(kGrain / cost, kBlock),
               [&](int64_t begin, int64_t end) { run_range(loop, params, begin, end); });
}

namespace {

// Calls use(place, elements before, n) for the rows, or parts of rows, that `total` elements from `start` on
// lie in.
template <class Use>
inline void walk_rows(const StridedOperand& o, const Dims& sizes, const int64_t* start, int64_t total,
                      const Use& use) {
  int64_t index[64];
  char* at = o.data;
  for (size_t d = 0; d < sizes.size(); ++d) {
    index[d] = start[d];
    at += start[d] * o.strides[d];
  }
  for (int64_t filled = 0;;) {
    const int64_t n = std::min(total - filled, sizes[0] - index[0]);
    use(at, filled, n);
    filled += n;
    if (filled == total) return;
    at -= index[0] * o.strides[0];
    index[0] = 0;
    for (int d = 1;; ++d) {  // there is a next row
      at += o.strides[d];
      if (++index[d] < sizes[d]) break;
      at -= sizes[d] * o.strides[d];
      index[d] = 0;
    }
  }
}

// Elements of the size of W, without a call for each row.
template <class W>
void gather_elements(const StridedOperand& o, const Dims& sizes, const int64_t* start, int64_t total,
                     char* to) {
  const int64_t step = o.strides[0];
  walk_rows(o, sizes, start, total, [&](const char* at, int64_t filled, int64_t n) {
    char* put = to + filled * sizeof(W);
    for (int64_t j = 0; j < n; ++j) std::memcpy(put + j * sizeof(W), at + j * step, sizeof(W));
  });
}

}  // namespace

void StridedIterator::run_range(Loop loop, const Scalar* params, int64_t begin, int64_t end) const {
  const int nd = ndim();
  const int64_t inner = sizes_[0];
  // Contiguous operands of the compute dtype are used where they lie; others go through a staging block.
  bool in_place[kMaxOperands], constant[kMaxOperands];
  bool whole[kMaxOperands];  // all of it lies in the order of the walk
  bool all_whole = true, rows_in_place = true;
  for (int k = 0; k < count_; ++k) {
    const StridedOperand& o = operands_[k];
    const int64_t item = size_of(o.dtype);
    constant[k] = k > 0;
    for (int d = 0; d < nd; ++d) constant[k] &= o.strides[d] == 0;
    in_place[k] = o.dtype == o.compute && (o.strides[0] == item || inner == 1) && !constant[k];
    whole[k] = in_place[k];
    for (int64_t d = 1, step = inner * item; d < nd; step *= sizes_[d++]) whole[k] &= o.strides[d] == step;
    all_whole &= whole[k];
    rows_in_place &= in_place[k];
  }
  const void* in[kMaxOperands];
  if (all_whole && nd == 1) {
    for (int k = 1; k < count_; ++k) in[k - 1] = operands_[k].data + begin * size_of(operands_[k].dtype);
    loop(in, operands_[0].data + begin * size_of(operands_[0].dtype), end - begin, params);
    return;
  }
  // Short rows are gathered, several to a block; long rows are cut into blocks. A call of the loop for each
  // row costs less than gathering unless rows are very short.
  const bool gather = nd > 1 && inner < (rows_in_place ? 24 : 128);
  alignas(64) char staging[kMaxOperands][kBlock * 16 / 2];
  constexpr int64_t block = kBlock / 2;
  CastFn casts[kMaxOperands];
  for (int k = 0; k < count_; ++k) {
    const StridedOperand& o = operands_[k];
    casts[k] = k == 0 ? cast_fn(o.compute, o.dtype) : cast_fn(o.dtype, o.compute);
    if (constant[k])
      casts[k](o.data, 0, staging[k], size_of(o.compute), std::min<int64_t>(block, end - begin));
  }
  int64_t index[64] = {};  // position, innermost first
  int64_t rest = begin;
  for (int d = 0; d < nd; ++d) {
    index[d] = rest % sizes_[d];
    rest /= sizes_[d];
  }
  char* at[kMaxOperands];
  const auto locate = [&](const int64_t* idx) {
    for (int k = 0; k < count_; ++k) {
      at[k] = operands_[k].data;
      for (int d = 0; d < nd; ++d) at[k] += idx[d] * operands_[k].strides[d];
    }
  };
  // Moves on by at most what is left of the row; pointers follow along.
  const auto advance = [&](int64_t* idx, int64_t by) {
    idx[0] += by;
    if (idx[0] < inner) {
      for (int k = 0; k < count_; ++k) at[k] += by * operands_[k].strides[0];
      return;
    }
    idx[0] = 0;
    if (nd > 1 && idx[1] + 1 < sizes_[1]) {
      ++idx[1];
      for (int k = 0; k < count_; ++k)
        at[k] += operands_[k].strides[1] - (inner - by) * operands_[k].strides[0];  // back to the row's start
      return;
    }
    for (int d = 1; d < nd; ++d) {
      if (++idx[d] < sizes_[d] || d == nd - 1) break;
      idx[d] = 0;
    }
    locate(idx);
  };
  if (!gather) {
    locate(index);
    for (int64_t done = begin; done < end;) {
      // When a row can be used where it lies by everybody, take it whole; else a block at a time.
      const int64_t n = std::min({end - done, inner - index[0], rows_in_place ? inner : block});
      for (int k = 1; k < count_; ++k) {
        if (in_place[k]) {
          in[k - 1] = at[k];
        } else {
          if (!constant[k])
            casts[k](at[k], operands_[k].strides[0], staging[k], size_of(operands_[k].compute), n);
          in[k - 1] = staging[k];
        }
      }
      void* out = in_place[0] ? static_cast<void*>(at[0]) : staging[0];
      loop(in, out, n, params);
      if (!in_place[0])
        casts[0](staging[0], size_of(operands_[0].compute), at[0], operands_[0].strides[0], n);
      advance(index, n);
      done += n;
    }
    return;
  }
  const bool tiny = inner < 16;  // a call for each row would cost more than its elements
  for (int64_t done = begin; done < end;) {
    const int64_t total = std::min(end - done, block);
    for (int k = 1; k < count_; ++k) {
      in[k - 1] = staging[k];
      const StridedOperand& o = operands_[k];
      if (constant[k]) continue;
      if (whole[k])
        in[k - 1] = o.data + done * size_of(o.dtype);
      else if (tiny && o.dtype == o.compute && size_of(o.dtype) == 4)
        gather_elements<uint32_t>(o, sizes_, index, total, staging[k]);
      else if (tiny && o.dtype == o.compute && size_of(o.dtype) == 8)
        gather_elements<uint64_t>(o, sizes_, index, total, staging[k]);
      else
        walk_rows(o, sizes_, index, total, [&](const char* at, int64_t filled, int64_t n) {
          const int64_t item = size_of(o.compute);
          casts[k](at, o.strides[0], staging[k] + filled * item, item, n);
        });
    }
    const StridedOperand& o = operands_[0];
    loop(in, whole[0] ? o.data + done * size_of(o.dtype) : staging[0], total, params);
    if (!whole[0])
      walk_rows(o, sizes_, index, total, [&](char* at, int64_t filled, int64_t n) {
        const int64_t item = size_of(o.compute);
        casts[0](staging[0] + filled * item, item, at, o.strides[0], n);
      });
    done += total;
    index[0] += total;
    for (int d = 0; d + 1 < nd && index[d] >= sizes_[d]; ++d) {
      index[d + 1] += index[d] / sizes_[d];
      index[d] %= sizes_[d];
    }
  }
}

}  // namespace fl
