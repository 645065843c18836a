// The parts of the linear algebra solver: what its own kernels do (linalg.cu), and what cuSOLVER does
// (solver.cpp).
#pragma once

#include "cuda/runtime/runtime.h"
#include "ops/solver.h"

namespace fl::cuda {

class Elements : public linalg::Solver {
 public:
  void copy_part(const Tensor& to, const Tensor& from, linalg::Part part, bool unit) final;
  void conjugate(const Tensor& a) final;
  void take_finite(const Tensor& a, linalg::Part part, int mark, const Tensor& flags) final;
  void mark_failed(const Tensor& info, const Tensor& flags) final;
  void check_pivots(const Tensor& pivots, int64_t rows) final;
  void permutation(const Tensor& p, const Tensor& pivots) final;
  void determinant(const Tensor& lu, const Tensor& pivots, const Tensor& result,
                   const Tensor& logarithm) final;

 protected:
  // 1, 2, ... for each matrix.
  static void count_pivots(const Tensor& pivots);
};

// Addresses from `first` on, `step` bytes apart.
void list_addresses(void** to, char* first, int64_t step, int64_t count);

linalg::Solver& solver();

}  // namespace fl::cuda
