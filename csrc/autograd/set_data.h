// Gives a tensor the memory and geometry of another one, without a trace: `t.data = other`.
#pragma once

#include "core/tensor.h"

namespace fl::autograd {

void set_data(const Tensor& to, const Tensor& from);
// A leaf begins anew, because it becomes a window on other memory: what was computed before has gradients for
// what it was.
void forget_accumulator(const Tensor& leaf);

}  // namespace fl::autograd
