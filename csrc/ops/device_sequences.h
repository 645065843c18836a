// Sequences that an accelerator makes in its own memory; its library fills this in when it is opened.
#pragma once

#include "core/random.h"
#include "core/tensor.h"

namespace fl {

struct DeviceSequences {
  // Evenly spaced numbers from start to end in a contiguous tensor of a real dtype; powers of `base` with
  // them as exponents where there is one.
  void (*spaced)(const Tensor& out, const Scalar& start, const Scalar& end,
                 std::optional<double> base) = nullptr;
  // Rows and columns, in a tensor of 2 x n, of the elements of a matrix that are left of an edge, or not: in
  // row i it is at column i + shift.
  void (*triangle)(const Tensor& out, int64_t rows, int64_t cols, int64_t shift, bool left) = nullptr;
  // 0 to n - 1 in random order, in a contiguous tensor of a real dtype.
  void (*shuffle)(const Tensor& out, Generator::State state) = nullptr;
};
DeviceSequences& device_sequences();

}  // namespace fl
