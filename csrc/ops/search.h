// What a search in sorted sequences asks of its arguments, for every device.
#pragma once
#include "core/tensor.h"

namespace fl {

// Checks boundaries, values and the sorter (which may be undefined).
void check_search(const Tensor& sequence, const Tensor& values, const Tensor& sorter);

// The type in which elements of two tensors are compared; integers beside floats need the wider one.
DType compared_as(const Tensor& a, const Tensor& b);

}  // namespace fl
