// Walks strided operands in blocks, on the CPU.
#include "ops/iterator.h"

#include <cstring>

#include "core/parallel.h"
#include "cpu/engine/cast.h"

namespace fl {

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

// How the operands of a walk are read and written: where they lie, or through a staging block.
struct StridedIterator::Walk {
  static constexpr int64_t kStaged = kBlock / 2;  // elements in a staging block

  Walk(const StridedIterator& it, Loop loop, const Scalar* params);
  void convert_constants(int64_t n);
  void start_at(int64_t position);
  void locate();
  void advance(int64_t by);
  void run_rows(int64_t begin, int64_t end);
  void run_gathered(int64_t begin, int64_t end);
  void gather(int k, int64_t done, int64_t total, bool tiny);

  const StridedIterator& it;
  const Loop loop;
  const Scalar* params;
  const int nd, count;
  const int64_t inner;
  bool constant[kMaxOperands];                  // one element everywhere
  bool in_place[kMaxOperands];                  // rows are contiguous and of the compute dtype
  bool whole[kMaxOperands];                     // all of it lies in the order of the walk
  bool all_whole = true, rows_in_place = true;  // of all operands
  CastFn casts[kMaxOperands];
  const void* in[kMaxOperands];
  int64_t index[64];  // position, innermost first
  char* at[kMaxOperands];
  alignas(64) char staging[kMaxOperands][kStaged * 16];
};

StridedIterator::Walk::Walk(const StridedIterator& iterator, Loop l, const Scalar* p)
    : it(iterator), loop(l), params(p), nd(it.ndim()), count(it.count_), inner(it.sizes_[0]) {
  for (int k = 0; k < count; ++k) {
    const StridedOperand& o = it.operands_[k];
    const int64_t item = size_of(o.dtype);
    constant[k] = k > 0;
    for (int d = 0; d < nd; ++d) constant[k] &= o.strides[d] == 0;
    in_place[k] = o.dtype == o.compute && (o.strides[0] == item || inner == 1) && !constant[k];
    whole[k] = in_place[k];
    for (int64_t d = 1, step = inner * item; d < nd; step *= it.sizes_[d++]) whole[k] &= o.strides[d] == step;
    all_whole &= whole[k];
    rows_in_place &= in_place[k];
  }
}

void StridedIterator::Walk::convert_constants(int64_t n) {
  for (int k = 0; k < count; ++k) {
    const StridedOperand& o = it.operands_[k];
    casts[k] = k == 0 ? cast_fn(o.compute, o.dtype) : cast_fn(o.dtype, o.compute);
    if (constant[k]) casts[k](o.data, 0, staging[k], size_of(o.compute), std::min(kStaged, n));
  }
}

void StridedIterator::Walk::start_at(int64_t position) {
  for (int d = 0; d < nd; ++d) {
    index[d] = position % it.sizes_[d];
    position /= it.sizes_[d];
  }
}

// Pointers to the elements at `index`.
void StridedIterator::Walk::locate() {
  for (int k = 0; k < count; ++k) {
    at[k] = it.operands_[k].data;
    for (int d = 0; d < nd; ++d) at[k] += index[d] * it.operands_[k].strides[d];
  }
}

// Moves on by at most what is left of the row; pointers follow along.
void StridedIterator::Walk::advance(int64_t by) {
  index[0] += by;
  if (index[0] < inner) {
    for (int k = 0; k < count; ++k) at[k] += by * it.operands_[k].strides[0];
    return;
  }
  index[0] = 0;
  if (nd > 1 && index[1] + 1 < it.sizes_[1]) {
    ++index[1];
    for (int k = 0; k < count; ++k)  // back to the row's start
      at[k] += it.operands_[k].strides[1] - (inner - by) * it.operands_[k].strides[0];
    return;
  }
  for (int d = 1; d < nd; ++d) {
    if (++index[d] < it.sizes_[d] || d == nd - 1) break;
    index[d] = 0;
  }
  locate();
}

// A call of the loop for each row, or for each block of a long row.
void StridedIterator::Walk::run_rows(int64_t begin, int64_t end) {
  locate();
  for (int64_t done = begin; done < end;) {
    // When a row can be used where it lies by everybody, take it whole; else a block at a time.
    const int64_t n = std::min({end - done, inner - index[0], rows_in_place ? inner : kStaged});
    for (int k = 1; k < count; ++k) {
      if (in_place[k]) {
        in[k - 1] = at[k];
      } else {
        const StridedOperand& o = it.operands_[k];
        if (!constant[k]) casts[k](at[k], o.strides[0], staging[k], size_of(o.compute), n);
        in[k - 1] = staging[k];
      }
    }
    const StridedOperand& o = it.operands_[0];
    loop(in, in_place[0] ? static_cast<void*>(at[0]) : staging[0], n, params);
    if (!in_place[0]) casts[0](staging[0], size_of(o.compute), at[0], o.strides[0], n);
    advance(n);
    done += n;
  }
}

// `total` elements of operand k from the current position, contiguous; `done` of all are behind.
void StridedIterator::Walk::gather(int k, int64_t done, int64_t total, bool tiny) {
  const StridedOperand& o = it.operands_[k];
  in[k - 1] = staging[k];
  if (constant[k]) return;
  if (whole[k])
    in[k - 1] = o.data + done * size_of(o.dtype);
  else if (tiny && o.dtype == o.compute && size_of(o.dtype) == 4)
    gather_elements<uint32_t>(o, it.sizes_, index, total, staging[k]);
  else if (tiny && o.dtype == o.compute && size_of(o.dtype) == 8)
    gather_elements<uint64_t>(o, it.sizes_, index, total, staging[k]);
  else
    walk_rows(o, it.sizes_, index, total, [&](const char* row, int64_t filled, int64_t n) {
      const int64_t item = size_of(o.compute);
      casts[k](row, o.strides[0], staging[k] + filled * item, item, n);
    });
}

// Short rows: several are gathered to a block.
void StridedIterator::Walk::run_gathered(int64_t begin, int64_t end) {
  const bool tiny = inner < 16;  // a call for each row would cost more than its elements
  for (int64_t done = begin; done < end;) {
    const int64_t total = std::min(end - done, kStaged);
    for (int k = 1; k < count; ++k) gather(k, done, total, tiny);
    const StridedOperand& o = it.operands_[0];
    loop(in, whole[0] ? o.data + done * size_of(o.dtype) : staging[0], total, params);
    if (!whole[0])
      walk_rows(o, it.sizes_, index, total, [&](char* row, int64_t filled, int64_t n) {
        const int64_t item = size_of(o.compute);
        casts[0](staging[0] + filled * item, item, row, o.strides[0], n);
      });
    done += total;
    index[0] += total;
    for (int d = 0; d + 1 < nd && index[d] >= it.sizes_[d]; ++d) {
      index[d + 1] += index[d] / it.sizes_[d];
      index[d] %= it.sizes_[d];
    }
  }
}

void StridedIterator::run_range(Loop loop, const Scalar* params, int64_t begin, int64_t end) const {
  Walk walk(*this, loop, params);
  if (walk.all_whole && walk.nd == 1) {
    for (int k = 1; k < count_; ++k) walk.in[k - 1] = operands_[k].data + begin * size_of(operands_[k].dtype);
    loop(walk.in, operands_[0].data + begin * size_of(operands_[0].dtype), end - begin, params);
    return;
  }
  walk.convert_constants(end - begin);
  walk.start_at(begin);
  // A call of the loop for each row costs less than gathering unless rows are very short.
  if (walk.nd > 1 && walk.inner < (walk.rows_in_place ? 24 : 128))
    walk.run_gathered(begin, end);
  else
    walk.run_rows(begin, end);
}

}  // namespace fl
