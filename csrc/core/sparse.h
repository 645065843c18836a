// Sparse tensors: a shape around strided parts. Autograd, devices and printing see one tensor; every operator
// on it is rewritten, at the dispatch key Sparse, as operators on the parts (flambeau/sparse/).
#pragma once

#include "core/tensor.h"

namespace fl {

struct SparseParts final : Counted {
  Layout layout = Layout::Sparse;
  Tensor compressed;  // compressed layouts: where each row's (or column's) elements start; else undefined
  Tensor indices;     // coordinates, one column an element; compressed layouts: the other coordinate
  Tensor values;      // one row an element; dense dimensions follow
  bool coalesced = false;  // indices are sorted and distinct
};

inline SparseParts& sparse_parts(const Tensor& t) {
  return *static_cast<SparseParts*>(t->sparse.get());
}
inline Layout layout_of(const Tensor& t) {
  return t->sparse ? sparse_parts(t).layout : Layout::Strided;
}

}  // namespace fl
