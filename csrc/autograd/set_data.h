// Gives a tensor the memory and geometry of another one, without a trace: `t.data = other`.
#pragma once

#include "core/tensor.h"

namespace fl::autograd {

void set_data(const Tensor& to, const Tensor& from);

}  // namespace fl::autograd
