// Operands of attention as the copy engine of Hopper reads them.
#pragma once

#include "cuda/attention/flash.h"
#include "cuda/attention/group.cuh"

namespace fl::cuda::flash {

// Boxes of 64 columns and some rows of a head. `heads` and `batches`: whether there are several; those that
// are broadcast are one to the copy engine.
struct Rows {
  matrix::Box box;
  int heads, batches;
};

Rows rows_of(const Operand& operand, bool brain, int depth, int rows, int heads, int batches, int box_rows);
// Multiprocessors of the current device.
int processors();

}  // namespace fl::cuda::flash
