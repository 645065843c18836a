// An indexing expression made ready: where each selected element lies, and the shape of the selection.
#pragma once

#include "core/parallel.h"
#include "cpu/indexing/indexed.h"

namespace fl {

// Self is seen as before x indexed x after. Each position of the index tensors (broadcast together) selects a
// place in the indexed dimensions: offsets() yields it in bytes.
class IndexPlan {
 public:
  // self[indices], as PyTorch reads a list of index tensors and Nones: masks select where they are true, the
  // result's index dimensions stand where the indices stood if those were adjacent, and first otherwise.
  IndexPlan(const char* op, const Tensor& self, const std::vector<Tensor>& indices);
  // One 1-d index along one dimension.
  IndexPlan(const char* op, const Tensor& self, int64_t dim, const Tensor& index, bool wrap,
            bool index_error = true);

  Dims shape;            // of the selection
  int64_t count = 1;     // selected places
  Merged before, after;  // dimensions that are not indexed
  void offsets(int64_t begin, int64_t n, int64_t* out) const;

 private:
  struct Index {
    Tensor tensor;  // int64, expanded to the common shape
    Merged walk;    // its geometry, in elements
    int64_t dim, size, stride;
  };
  void add(const Tensor& self, int64_t dim, const Tensor& index);
  void finish(const Tensor& self, const std::vector<bool>& indexed);

  const char* op_;
  bool wrap_ = true, index_error_ = true;
  std::vector<Index> indices_;
  Tensor direct_;  // offsets found by a mask, when nothing else is indexed
  Dims index_shape_;
};

// out[...] = self[plan]; a new contiguous tensor.
Tensor gather_plan(const Tensor& self, const IndexPlan& plan);
// self[plan] op= values, which broadcast to the plan's shape and have self's dtype.
void scatter_plan(const char* op, const Tensor& self, const IndexPlan& plan, const Tensor& values,
                  Combine how);

}  // namespace fl
