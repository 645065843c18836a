// Geometry shared by the ops that view and reshape.
#pragma once

#include "core/tensor.h"

namespace fl {

// Strides with which `sizes` views a tensor of the old geometry without copying, or nothing.
std::optional<Dims> view_strides(IntSpan old_sizes, IntSpan old_strides, IntSpan sizes);
// Sizes with a -1 filled in.
Dims infer_size(const char* op, IntSpan shape, int64_t numel);

}  // namespace fl
