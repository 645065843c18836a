// What the scans along one dimension share.
#pragma once

#include "core/tensor.h"

namespace fl {

// A contiguous tensor as outer x n x inner around the scanned dimension.
struct Lines {
  int64_t outer = 1, n = 1, inner = 1;
  Lines(const Tensor& t, int64_t dim) {
    if (t.dim() == 0) return;
    n = t.size(dim);
    for (int64_t d = 0; d < t.dim(); ++d) (d < dim ? outer : inner) *= d == dim ? 1 : t.size(d);
  }
};

}  // namespace fl
