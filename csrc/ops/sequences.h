// Sequences that a device makes in its own memory.
#pragma once

#include <optional>

#include "core/device_function.h"
#include "core/random.h"
#include "core/tensor.h"

namespace fl::device {

// Evenly spaced numbers from start to end in a contiguous tensor of a real dtype; powers of `base` with them
// as exponents where there is one.
extern DeviceFunction<void(const Tensor& out, const Scalar& start, const Scalar& end,
                           std::optional<double> base)>
    spaced;
// Rows and columns, in a tensor of 2 x n, of the elements of a matrix that are left of an edge, or not: in
// row i it is at column i + shift.
extern DeviceFunction<void(const Tensor& out, int64_t rows, int64_t cols, int64_t shift, bool left)> triangle;
// 0 to n - 1 in random order, in a contiguous tensor of a real dtype.
extern DeviceFunction<void(const Tensor& out, Generator::State state)> shuffle;

}  // namespace fl::device
