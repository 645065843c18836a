// The CPU's reduction engine: it orders and merges dimensions, splits the work over threads and hands
// contiguous runs (or tiles staged to be so) to loops that know only the arithmetic.
#pragma once

#include "ops/reduce.h"

namespace fl {

struct ReduceOutput {
  Tensor tensor;   // its dimensions are the kept ones, or all with size 1 where reduced
  DType computed;  // what finish() writes
};

// Reduces the dimensions in `mask` of `self`, whose elements are handed to the loops as `element`.
void reduce(const Tensor& self, uint64_t mask, DType element, const ReduceLoops& loops, const Scalar* params,
            ReduceOutput* outputs, int n_outputs);

}  // namespace fl
