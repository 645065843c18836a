// What operators on indexed elements share, on every device.
#pragma once

#include "core/tensor.h"

namespace fl {

// How a scattered element joins the one that is there. Max and Min let NaN through.
enum class Combine : int8_t { Assign, Add, Mul, Max, Min };

// The value that changes nothing under a combination.
Scalar identity_of(Combine how, DType dtype);

// A copy to be written to: laid out as the tensor, or contiguous.
Tensor copied(const Tensor& t);
Tensor copied_contiguous(const Tensor& t);
// A zero-dim tensor seen as one of one element.
Tensor at_least_1d(const Tensor& t);

}  // namespace fl
