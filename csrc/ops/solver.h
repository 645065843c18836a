// Factorisations on an accelerator: what LAPACK (cpu/linalg/lapack.h) is on the host, for whole batches.
// Matrices are tensors made by linalg::columns(), vectors and `info` contiguous ones; names and rules are
// LAPACK's.
#pragma once

#include "core/device_function.h"
#include "core/tensor.h"

namespace fl::linalg {

// Which elements of a matrix are meant.
enum class Part { All, Lower, Upper };

class Solver {
 public:
  virtual ~Solver() = default;

  // Without `pivot` rows stay where they are and pivots are 1, 2, ...
  virtual void getrf(const Tensor& a, const Tensor& pivots, const Tensor& info, bool pivot) = 0;
  // `rows` of x are `a`'s order; x has as many columns as it has elements for.
  virtual void getrs(char trans, const Tensor& lu, const Tensor& pivots, const Tensor& x) = 0;
  virtual void potrf(Part part, const Tensor& a, const Tensor& info) = 0;
  virtual void potrs(Part part, const Tensor& a, const Tensor& x) = 0;
  virtual void sytrf(const Tensor& a, const Tensor& pivots, const Tensor& info) = 0;
  virtual void sytrs(const Tensor& a, const Tensor& pivots, const Tensor& x) = 0;
  virtual void geqrf(const Tensor& a, const Tensor& tau) = 0;
  virtual void orgqr(const Tensor& q, const Tensor& tau) = 0;
  virtual void ormqr(bool left, bool transpose, const Tensor& a, const Tensor& tau, const Tensor& c) = 0;
  // At least as many rows as columns; job is 'A', 'S' or 'N'. The right vectors are the columns of v.
  virtual void gesvd(char job, const Tensor& a, const Tensor& s, const Tensor& u, const Tensor& v,
                     const Tensor& info) = 0;
  virtual void syevd(bool vectors, Part part, const Tensor& a, const Tensor& w, const Tensor& info) = 0;
  // Complex matrices; v may be undefined.
  virtual void geev(const Tensor& a, const Tensor& w, const Tensor& v, const Tensor& info) = 0;
  // Of b, the first `a`'s order of rows (or columns) take part.
  virtual void trsm(bool left, Part part, char trans, bool unit, const Tensor& a, const Tensor& b) = 0;

  // ---- elements
  // The part of `from` that fits into `to`, zeros elsewhere, ones on the diagonal if `unit`. An undefined
  // `from` makes identities.
  virtual void copy_part(const Tensor& to, const Tensor& from, Part part, bool unit) = 0;
  virtual void conjugate(const Tensor& a) = 0;
  // Iterations may not end on infinities and NaN: matrices with such elements become zeros, and are marked
  // by `mark` in flags (int32), for mark_failed afterwards.
  virtual void take_finite(const Tensor& a, Part part, int mark, const Tensor& flags) = 0;
  virtual void mark_failed(const Tensor& info, const Tensor& flags) = 0;
  // Pivots outside of 1 to `rows` become 1 and are reported as indices out of bounds are.
  virtual void check_pivots(const Tensor& pivots, int64_t rows) = 0;
  // The permutation matrices of the pivots.
  virtual void permutation(const Tensor& p, const Tensor& pivots) = 0;
  // From LU and pivots: the determinant, or with `logarithm` its sign and the logarithm of its size.
  virtual void determinant(const Tensor& lu, const Tensor& pivots, const Tensor& result,
                           const Tensor& logarithm) = 0;
};

}  // namespace fl::linalg

namespace fl::device {
// Raises when there is no library for factorisations.
extern DeviceFunction<linalg::Solver&()> solver;
}  // namespace fl::device
