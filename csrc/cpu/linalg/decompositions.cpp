// Orthogonal and spectral decompositions: QR and Householder reflectors, singular values, eigenvalues, least
// squares.
#include "cpu/linalg/linalg.h"

#include <cmath>

namespace fl::linalg {
namespace {

namespace lp = cpu::lapack;

// LAPACK's iterations may loop for ever on infinities and NaN: such matrices are reported as not converging
// instead.
template <class T>
bool all_finite(const T* p, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    if (!std::isfinite(std::abs(p[i]))) return false;
  return true;
}

// The conjugate transpose of a batch of matrices, on the accelerator.
void copy_adjoint(const Tensor& to, const Tensor& a) {
  Dims sizes(a.sizes()), strides(a.strides());
  std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
  std::swap(strides[strides.size() - 1], strides[strides.size() - 2]);
  copy_into(to, alias(a, sizes, strides, a.offset()));
  solver().conjugate(to);
}
Tensor adjoint_copy(const Tensor& a, const Dims& lead) {
  const Tensor copy = columns(lead, a.size(-1), a.size(-2), a.options());
  copy_adjoint(copy, expand_batch(a, lead));
  return copy;
}
Tensor adjoint_copy(const Tensor& a) {
  return adjoint_copy(a, batch_sizes(a));
}

// ---------------------------------------------------------------- QR

std::tuple<Tensor, Tensor> geqrf(const Tensor& a) {
  check_matrix("geqrf", a);
  check_floating("geqrf", a);
  const int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
  const Tensor qr = column_copy(a), tau = zeros(join(batch_sizes(a), {k}), a.options());
  if (a.is_meta() || a.numel() == 0) return {qr, tau};
  if (elsewhere(a)) {
    solver().geqrf(qr, tau);
    return {qr, tau};
  }
  dispatch_lapack(a.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    each(a.numel() / (m * n), cube(a),
         [&](int64_t i) { lp::geqrf<T>(m, n, matrix<T>(qr, i), m, vector<T>(tau, i)); });
  });
  return {qr, tau};
}

void check_reflectors(const char* op, const Tensor& a, const Tensor& tau) {
  check_matrix(op, a);
  check_floating(op, a);
  check_same(op, a, tau);
  bool fits = tau.dim() == a.dim() - 1;
  for (int64_t d = 0; fits && d < a.dim() - 2; ++d) fits = tau.size(d) == a.size(d);
  FL_CHECK(fits, "[", op, "] expected tau with the batch dimensions of the reflectors ", a.sizes(), ", got ",
           tau.sizes());
}

Tensor householder_product(const Tensor& input, const Tensor& tau) {
  check_reflectors("linalg.householder_product", input, tau);
  const int64_t m = input.size(-2), n = input.size(-1), k = tau.size(-1);
  FL_CHECK(m >= n, "[linalg.householder_product] expected at least as many rows as columns, got ",
           input.sizes());
  FL_CHECK(n >= k, "[linalg.householder_product] expected at most ", n, " reflectors, got ", k);
  const Tensor q = column_copy(input);
  if (q.is_meta() || q.numel() == 0) return q;
  if (k == 0) {
    fill_identity(q);
    return q;
  }
  const Tensor scales = contiguous(tau);
  if (elsewhere(q)) {
    solver().orgqr(q, scales);
    return q;
  }
  dispatch_lapack(q.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    each(q.numel() / (m * n), cube(q),
         [&](int64_t i) { lp::orgqr<T>(m, n, k, matrix<T>(q, i), m, vector<T>(scales, i)); });
  });
  return q;
}

Tensor ormqr(const Tensor& self, const Tensor& tau, const Tensor& other, bool left, bool transpose) {
  check_reflectors("ormqr", self, tau);
  check_matrix("ormqr", other);
  check_same("ormqr", self, other);
  const int64_t m = other.size(-2), n = other.size(-1), k = tau.size(-1), rows = self.size(-2);
  FL_CHECK(self.dim() == other.dim(), "[ormqr] expected tensors with as many dimensions, got ", self.sizes(),
           " and ", other.sizes());
  FL_CHECK(rows == (left ? m : n), "[ormqr] expected reflectors of ", left ? m : n, " rows, got ",
           self.sizes());
  FL_CHECK(k <= rows && k <= self.size(-1), "[ormqr] expected at most ", std::min(rows, self.size(-1)),
           " reflectors, got ", k);
  FL_CHECK(batch_sizes(self) == batch_sizes(other), "[ormqr] expected equal batch dimensions, got ",
           self.sizes(), " and ", other.sizes());
  const Tensor c = column_copy(other);
  if (c.is_meta() || c.numel() == 0 || k == 0) return c;
  const Tensor reflectors = column_copy(self), scales = contiguous(tau);
  if (elsewhere(c)) {
    solver().ormqr(left, transpose, reflectors, scales, c);
    return c;
  }
  dispatch_lapack(c.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    each(c.numel() / (m * n), cube(c), [&](int64_t i) {
      lp::ormqr<T>(left ? 'L' : 'R', transpose ? (is_complex_type<T> ? 'C' : 'T') : 'N', m, n, k,
                   matrix<T>(reflectors, i), rows, vector<T>(scales, i), matrix<T>(c, i), m);
    });
  });
  return c;
}

std::tuple<Tensor, Tensor> qr(const Tensor& a, std::string_view mode) {
  check_matrix("linalg.qr", a);
  check_floating("linalg.qr", a);
  FL_CHECK(mode == "reduced" || mode == "complete" || mode == "r",
           "[linalg.qr] expected mode 'reduced', 'complete' or 'r', got '", mode, "'");
  const Dims lead = batch_sizes(a);
  const int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
  const bool complete = mode == "complete", only_r = mode == "r";
  const int64_t width = complete ? m : k;
  const Tensor q = only_r ? empty({0}, a.options()) : columns(lead, m, width, a.options());
  const Tensor r = columns(lead, complete ? m : k, n, a.options());
  if (a.is_meta()) return {q, r};
  if (a.numel() == 0) {
    if (!only_r) fill_identity(q);
    return {q, r};
  }
  const auto [factors, tau] = geqrf(a);
  if (elsewhere(a)) {
    solver().copy_part(r, factors, Part::Upper, false);
    if (!only_r) {
      solver().copy_part(q, factors, Part::All, false);
      solver().orgqr(q, tau);
    }
    return {q, r};
  }
  dispatch_lapack(a.dtype(), [&, factors = factors, tau = tau](auto type) {
    using T = typename decltype(type)::type;
    each(a.numel() / (m * n), cube(a), [&](int64_t i) {
      const T* f = matrix<T>(factors, i);
      T* upper = matrix<T>(r, i);
      const int64_t rows = r.size(-2);
      for (int64_t c = 0; c < n; ++c)
        for (int64_t row = 0; row < rows; ++row) upper[c * rows + row] = row <= c ? f[c * m + row] : T(0);
      if (only_r) return;
      T* to = matrix<T>(q, i);
      std::copy(f, f + m * std::min(width, n), to);
      lp::orgqr<T>(m, width, k, to, m, vector<T>(tau, i));
    });
  });
  return {q, r};
}

// ---------------------------------------------------------------- singular values

// On the accelerator matrices have at least as many rows as columns: for others the adjoint is decomposed.
void svd_elsewhere(const Tensor& a, char job, const Tensor& u, const Tensor& s, const Tensor& vh,
                   const Tensor& info) {
  const int64_t k = s.size(-1);
  const bool wide = a.size(-2) < a.size(-1), vectors = job != 'N';
  const Tensor work = wide ? adjoint_copy(a) : column_copy(a);
  const Tensor flags = empty(info.sizes(), info.options());
  solver().take_finite(work, Part::All, static_cast<int>(k), flags);
  const Tensor other = vectors ? columns(batch_sizes(vh), vh.size(-1), vh.size(-2), vh.options()) : vh;
  solver().gesvd(job, work, s, wide ? other : u, wide ? u : other, info);
  if (vectors) copy_adjoint(vh, other);
  solver().mark_failed(info, flags);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> svd(const Tensor& a, bool full_matrices, bool compute_uv) {
  check_matrix("linalg.svd", a);
  check_floating("linalg.svd", a);
  const Dims lead = batch_sizes(a);
  const int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
  const int64_t left = full_matrices ? m : k, right = full_matrices ? n : k;
  const Tensor s = empty(join(lead, {k}), {real_of(a.dtype()), a.device()}),
               info = info_tensor(lead, a.device());
  const Tensor u = compute_uv ? columns(lead, m, left, a.options()) : empty({0}, a.options());
  const Tensor vh = compute_uv ? columns(lead, right, n, a.options()) : empty({0}, a.options());
  if (a.is_meta()) return {u, s, vh, info};
  if (a.numel() == 0) {
    if (compute_uv) {
      fill_identity(u);
      fill_identity(vh);
    }
    return {u, s, vh, info};
  }
  if (elsewhere(a)) {
    svd_elsewhere(a, !compute_uv ? 'N' : full_matrices ? 'A' : 'S', u, s, vh, info);
    return {u, s, vh, info};
  }
  const Tensor work = column_copy(a);
  dispatch_lapack(a.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    each(info.numel(), 8 * cube(a), [&](int64_t i) {
      if (!all_finite(matrix<T>(work, i), m * n)) {
        info.data<int32_t>()[i] = static_cast<int32_t>(k);
        return;
      }
      const char job = !compute_uv ? 'N' : full_matrices ? 'A' : 'S';
      info.data<int32_t>()[i] = lp::gesdd<T>(
          job, m, n, matrix<T>(work, i), m, vector<lp::Real<T>>(s, i), compute_uv ? matrix<T>(u, i) : nullptr,
          m, compute_uv ? matrix<T>(vh, i) : nullptr, std::max<int64_t>(right, 1));
    });
  });
  return {u, s, vh, info};
}

// ---------------------------------------------------------------- eigenvalues

std::tuple<Tensor, Tensor, Tensor> eigh(const Tensor& a, std::string_view uplo, bool compute_v) {
  check_square("linalg.eigh", a);
  check_floating("linalg.eigh", a);
  FL_CHECK(uplo.size() == 1 && std::strchr("LlUu", uplo[0]),
           "[linalg.eigh] expected UPLO to be 'L' or 'U', got '", uplo, "'");
  const Dims lead = batch_sizes(a);
  const int64_t n = a.size(-1);
  const Tensor w = empty(join(lead, {n}), {real_of(a.dtype()), a.device()}),
               info = info_tensor(lead, a.device());
  const Tensor v = column_copy(a);
  const Tensor vectors = compute_v ? v : empty({0}, a.options());
  if (a.is_meta() || a.numel() == 0) return {w, vectors, info};
  const bool upper = uplo[0] == 'U' || uplo[0] == 'u';
  if (elsewhere(a)) {
    const Part part = upper ? Part::Upper : Part::Lower;
    const Tensor flags = empty(info.sizes(), info.options());
    solver().take_finite(v, part, static_cast<int>(n), flags);
    solver().syevd(compute_v, part, v, w, info);
    solver().mark_failed(info, flags);
    return {w, vectors, info};
  }
  dispatch_lapack(a.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    each(info.numel(), 4 * cube(a), [&](int64_t i) {
      // Only one triangle is read.
      const T* p = matrix<T>(v, i);
      bool finite = true;
      for (int64_t c = 0; c < n; ++c)
        finite &= upper ? all_finite(p + c * n, c + 1) : all_finite(p + c * n + c, n - c);
      if (!finite) {
        info.data<int32_t>()[i] = static_cast<int32_t>(n);
        return;
      }
      info.data<int32_t>()[i] = lp::syevd<T>(compute_v ? 'V' : 'N', upper ? 'U' : 'L', n, matrix<T>(v, i), n,
                                             vector<lp::Real<T>>(w, i));
    });
  });
  return {w, vectors, info};
}

std::tuple<Tensor, Tensor, Tensor> eig(const Tensor& a, bool compute_v) {
  check_square("linalg.eig", a);
  check_floating("linalg.eig", a);
  const Dims lead = batch_sizes(a);
  const int64_t n = a.size(-1);
  const Options complex{complex_of(a.dtype()), a.device()};
  const Tensor w = empty(join(lead, {n}), complex), info = info_tensor(lead, a.device());
  const Tensor v = compute_v ? columns(lead, n, n, complex) : empty({0}, complex);
  if (a.is_meta() || a.numel() == 0) return {w, v, info};
  if (elsewhere(a)) {
    const Tensor work = columns(lead, n, n, complex), flags = empty(info.sizes(), info.options());
    copy_into(work, a);
    solver().take_finite(work, Part::All, static_cast<int>(n), flags);
    solver().geev(work, w, compute_v ? v : Tensor(), info);
    solver().mark_failed(info, flags);
    return {w, v, info};
  }
  const Tensor work = column_copy(a);
  dispatch_lapack(a.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    using C = std::complex<lp::Real<T>>;
    FL_CHECK(all_finite(work.data<T>(), work.numel()),
             "[linalg.eig] expected finite elements, got infinity or NaN: torch.linalg.eig: input tensor "
             "should not contain infs or NaNs.");
    each(info.numel(), 20 * cube(a), [&](int64_t i) {
      info.data<int32_t>()[i] =
          lp::geev<T>('N', compute_v ? 'V' : 'N', n, matrix<T>(work, i), n, vector<C>(w, i), nullptr, n,
                      compute_v ? matrix<C>(v, i) : nullptr, n);
    });
  });
  return {w, v, info};
}

// ---------------------------------------------------------------- least squares

// On the accelerator, for matrices of full rank: by QR of the matrix, or of its adjoint when it has fewer
// rows than columns.
void lstsq_elsewhere(const Tensor& a, const Dims& lead, const Tensor& x, const Tensor& info) {
  const int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
  const Tensor work = m < n ? adjoint_copy(a, lead) : column_copy(a, lead);
  const Tensor tau = empty(join(lead, {k}), a.options()), flags = empty(info.sizes(), info.options());
  const Tensor triangle = columns(lead, k, k, a.options());
  solver().take_finite(work, Part::All, static_cast<int>(k), flags);
  solver().geqrf(work, tau);
  solver().copy_part(triangle, work, Part::Upper, false);
  if (m >= n) solver().ormqr(true, true, work, tau, x);
  solver().trsm(true, Part::Upper, m < n ? 'C' : 'N', false, triangle, x);
  if (m < n) solver().ormqr(true, false, work, tau, x);
  solver().mark_failed(info, flags);
}

// The solution is in the first n rows of `x` (max(m, n) rows); the rest holds what the residuals are made of.
std::tuple<Tensor, Tensor, Tensor, Tensor> lstsq(const Tensor& a, const Tensor& b, double rcond,
                                                 std::string_view driver) {
  check_matrix("linalg.lstsq", a);
  check_matrix("linalg.lstsq", b);
  check_floating("linalg.lstsq", a);
  check_same("linalg.lstsq", a, b);
  FL_CHECK(a.size(-2) == b.size(-2), "[linalg.lstsq] expected as many rows in both matrices, got ", a.sizes(),
           " and ", b.sizes());
  const Dims lead = broadcast_shapes("linalg.lstsq", batch_sizes(a), batch_sizes(b));
  const int64_t m = a.size(-2), n = a.size(-1), nrhs = b.size(-1), rows = std::max(m, n), k = std::min(m, n);
  FL_CHECK_KIND(!elsewhere(a) || driver == "gels", NotImplemented,
                "[linalg.lstsq] expected the driver gels on CUDA, got ", driver);
  const bool with_rank = driver != "gels", with_values = driver == "gelsd" || driver == "gelss";
  const Tensor x = columns(lead, rows, nrhs, b.options()), info = info_tensor(lead, a.device());
  const Tensor rank =
      with_rank ? zeros(lead, {DType::Int64, a.device()}) : empty({0}, {DType::Int64, a.device()});
  const Options real{real_of(a.dtype()), a.device()};
  const Tensor values = with_values ? zeros(join(lead, {k}), real) : empty({0}, real);
  if (a.is_meta()) return {x, rank, values, info};
  if (x.numel()) {
    set_zero(x);
    if (m && nrhs) {
      Dims sizes(x.sizes());
      sizes[sizes.size() - 2] = m;
      copy_into(alias(x, sizes, x.strides(), x.offset()), expand_batch(b, lead));
    }
  }
  if (m == 0 || n == 0 || numel_of(lead) == 0 || nrhs == 0) return {x, rank, values, info};
  if (elsewhere(a)) {
    lstsq_elsewhere(a, lead, x, info);
    return {x, rank, values, info};
  }
  const Tensor work = column_copy(a, lead);
  dispatch_lapack(a.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    using R = lp::Real<T>;
    each(numel_of(lead), 4 * cube(a), [&](int64_t i) {
      T *left = matrix<T>(work, i), *right = matrix<T>(x, i);
      int32_t found_rank = 0;
      int failed;
      if (!all_finite(left, m * n))
        failed = static_cast<int>(k);
      else if (driver == "gels")
        failed = lp::gels<T>('N', m, n, nrhs, left, m, right, rows);
      else if (driver == "gelsy")
        failed = lp::gelsy<T>(m, n, nrhs, left, m, right, rows, nullptr, static_cast<R>(rcond), &found_rank);
      else if (driver == "gelsd")
        failed = lp::gelsd<T>(m, n, nrhs, left, m, right, rows, vector<R>(values, i), static_cast<R>(rcond),
                              &found_rank);
      else
        failed = lp::gelss<T>(m, n, nrhs, left, m, right, rows, vector<R>(values, i), static_cast<R>(rcond),
                              &found_rank);
      info.data<int32_t>()[i] = failed;
      if (with_rank) rank.data<int64_t>()[i] = found_rank;
    });
  });
  return {x, rank, values, info};
}

FL_KERNEL("geqrf", geqrf, kDevices);
FL_KERNEL("linalg_householder_product", householder_product, kDevices);
FL_KERNEL("ormqr", ormqr, kDevices);
FL_KERNEL("linalg_qr", qr, kDevices);
FL_KERNEL("_linalg_svd", svd, kDevices);
FL_KERNEL("_linalg_eigh", eigh, kDevices);
FL_KERNEL("_linalg_eig", eig, kDevices);
FL_KERNEL("_linalg_lstsq", lstsq, kDevices);

}  // namespace
}  // namespace fl::linalg
