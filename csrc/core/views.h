// Geometry shared by the ops that view and reshape.
#pragma once

#include "core/tensor.h"

namespace fl {

// The stride of every step-th element. Where that leads out of any memory one element at most is left, whose
// stride says nothing: it stays.
inline int64_t stepped(int64_t stride, int64_t step) {
  int64_t bytes;
  return __builtin_mul_overflow(stride, step, &bytes) || __builtin_mul_overflow(bytes, 16, &bytes)
             ? stride
             : stride * step;
}

// Strides with which `sizes` views a tensor of the old geometry without copying, or nothing.
std::optional<Dims> view_strides(IntSpan old_sizes, IntSpan old_strides, IntSpan sizes);
// Sizes with a -1 filled in.
Dims infer_size(const char* op, IntSpan shape, int64_t numel);

}  // namespace fl
