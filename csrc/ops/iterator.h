// Strided iteration shared by the elementwise kernels: operands are broadcast to one shape, dimensions are
// ordered as the output lies in memory and merged where every operand allows it, and the result is walked in
// blocks that fit in L1.
#pragma once

#include "core/tensor.h"

namespace fl {

constexpr int kMaxOperands = 8;
constexpr int64_t kBlock = 1024;  // elements staged at a time

struct StridedOperand {
  char* data = nullptr;
  DType dtype = DType::Float;    // as stored
  DType compute = DType::Float;  // as the loop wants it
  Dims strides;                  // bytes, one for each dimension of the iteration (innermost first)
};

class StridedIterator {
 public:
  // Operand 0 is the output. Tensors are expanded to `sizes`.
  StridedIterator(IntSpan sizes) : shape_(sizes) {}
  void add(const Tensor& t, DType compute);
  void add_scalar(const void* compute_value,
                  DType compute);  // same value everywhere, already of compute type
  void finish();                   // orders and merges dimensions

  int64_t numel() const { return numel_; }

  // Runs loop(in, out, n) on the CPU over all blocks, in parallel where it pays. `cost` scales the work of
  // one element.
  using Loop = void (*)(const void* const* in, void* out, int64_t n, const Scalar* params);  // PointwiseLoop
  void run(Loop loop, const Scalar* params, int64_t cost = 1);

  int ndim() const { return static_cast<int>(sizes_.size()); }
  int operands() const { return count_; }
  const StridedOperand& operand(int i) const { return operands_[i]; }
  const Dims& sizes() const { return sizes_; }

 private:
  struct Walk;
  void run_range(Loop loop, const Scalar* params, int64_t begin, int64_t end) const;

  IntSpan shape_;
  Dims sizes_;  // innermost first, merged
  int64_t numel_ = 1;
  int count_ = 0;
  StridedOperand operands_[kMaxOperands];
};

// Shape that all operands broadcast to; raises in the name of `op`.
Dims broadcast_shapes(const char* op, IntSpan a, IntSpan b);

}  // namespace fl
