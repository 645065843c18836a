// Solving and factoring: LU, Cholesky, LDL, triangular systems, determinants and the matrix exponential.
// Kernels report failures in an info tensor as LAPACK does; the Python definitions decide whether to raise.
#include "cpu/linalg/linalg.h"

#include <cmath>

#include "cpu/gemm/gemm.h"

namespace fl::linalg {
namespace {

using Matrices = std::tuple<Tensor, Tensor>;
using Factored = std::tuple<Tensor, Tensor, Tensor>;

void check_one_place(const char* op, const Tensor& a, const Tensor& b) {
  FL_CHECK(a.device() == b.device(), "[", op, "] expected tensors on one device, got ", to_string(a.device()),
           " and ", to_string(b.device()));
}

void check_pivots(const char* op, const Tensor& factors, const Tensor& pivots) {
  FL_CHECK(pivots.dtype() == DType::Int32, "[", op, "] expected int32 pivots, got ", name_of(pivots.dtype()));
  FL_CHECK(pivots.dim() >= 1 && pivots.size(-1) == std::min(factors.size(-1), factors.size(-2)) &&
               pivots.dim() == factors.dim() - 1,
           "[", op, "] expected pivots for the factors of shape ", factors.sizes(), ", got ", pivots.sizes());
  check_one_place(op, factors, pivots);
}

// Pivots come from the user: an index outside the matrix must not reach LAPACK.
void check_pivot_range(const char* op, const Tensor& pivots, int64_t rows) {
  if (elsewhere(pivots)) return solver().check_pivots(pivots, rows);
  const int32_t* p = pivots.data<int32_t>();
  for (int64_t i = 0; i < pivots.numel(); ++i)
    FL_CHECK(p[i] >= 1 && p[i] <= rows, "[", op, "] expected pivots between 1 and ", rows,
             " (greater or equal to 1), got ", static_cast<int64_t>(p[i]),
             ": the pivots are to be between 1 and LU.size(-2).");
}

// A contiguous tensor; on the accelerator a copy, in which pivots outside of the matrix are replaced.
Tensor own(const Tensor& pivots) {
  if (!elsewhere(pivots)) return contiguous(pivots);
  const Tensor copy = empty(pivots.sizes(), pivots.options());
  copy_into(copy, pivots);
  return copy;
}

// ---------------------------------------------------------------- LU

Factored lu_factor_ex(const Tensor& a, bool pivot) {
  check_matrix("linalg.lu_factor", a);
  check_floating("linalg.lu_factor", a);
  FL_CHECK(pivot || a.device().type != DeviceType::CPU,
           "[linalg.lu_factor] expected pivot=True on the CPU, got False: LU without pivoting is not "
           "implemented on the CPU");
  const Dims lead = batch_sizes(a);
  const int64_t m = a.size(-2), n = a.size(-1);
  const Tensor lu = column_copy(a), info = info_tensor(lead, a.device());
  const Tensor pivots = empty(join(lead, {std::min(m, n)}), {DType::Int32, a.device()});
  if (a.is_meta() || a.numel() == 0) return {lu, pivots, info};
  if (elsewhere(a)) {
    solver().getrf(lu, pivots, info, pivot);
    return {lu, pivots, info};
  }
  dispatch_lapack(a.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    each(info.numel(), cube(lu), [&](int64_t i) {
      info.data<int32_t>()[i] = cpu::lapack::getrf<T>(m, n, matrix<T>(lu, i), m, vector<int32_t>(pivots, i));
    });
  });
  return {lu, pivots, info};
}

Factored lu_unpack(const Tensor& lu, const Tensor& pivots, bool unpack_data, bool unpack_pivots) {
  check_matrix("lu_unpack", lu);
  check_floating("lu_unpack", lu);
  const Dims lead = batch_sizes(lu);
  const int64_t m = lu.size(-2), n = lu.size(-1), k = std::min(m, n);
  if (unpack_pivots) check_pivots("lu_unpack", lu, pivots);
  Tensor p = empty({0}, lu.options()), l = empty({0}, lu.options()), u = empty({0}, lu.options());
  if (unpack_data) {
    l = columns(lead, m, k, lu.options());
    u = columns(lead, k, n, lu.options());
  }
  if (unpack_pivots) p = columns(lead, m, m, lu.options());
  if (lu.is_meta()) return {p, l, u};
  const int64_t batch = numel_of(lead);
  Tensor order;
  if (unpack_pivots) {
    order = own(pivots);
    check_pivot_range("lu_unpack", order, m);
    set_zero(p);
  }
  const Tensor source = column_copy(lu);
  if (elsewhere(lu)) {
    if (unpack_data) {
      solver().copy_part(l, source, Part::Lower, true);
      solver().copy_part(u, source, Part::Upper, false);
    }
    if (unpack_pivots) solver().permutation(p, order);
    return {p, l, u};
  }
  dispatch_lapack(lu.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    for (int64_t i = 0; i < batch; ++i) {
      if (unpack_data) {
        const T* from = matrix<T>(source, i);
        T *lower = matrix<T>(l, i), *upper = matrix<T>(u, i);
        for (int64_t c = 0; c < k; ++c)
          for (int64_t r = 0; r < m; ++r) lower[c * m + r] = r > c ? from[c * m + r] : T(r == c ? 1 : 0);
        for (int64_t c = 0; c < n; ++c)
          for (int64_t r = 0; r < k; ++r) upper[c * k + r] = r <= c ? from[c * m + r] : T(0);
      }
      if (unpack_pivots) {
        std::vector<int64_t> rows(m);
        for (int64_t r = 0; r < m; ++r) rows[r] = r;
        for (int64_t r = 0; r < k; ++r) std::swap(rows[r], rows[vector<int32_t>(order, i)[r] - 1]);
        for (int64_t r = 0; r < m; ++r) matrix<T>(p, i)[r * m + rows[r]] = T(1);
      }
    }
  });
  return {p, l, u};
}

// X with op(A) X = B, or X op(A) = B when `left` is false. In the second case B^T is solved for: B by rows is
// B^T by columns.
template <class T>
void solve_with_lu(const Tensor& lu, const Tensor& pivots, const Tensor& x, int64_t i, bool left,
                   bool adjoint) {
  const int64_t n = lu.size(-1), nrhs = left ? x.size(-1) : x.size(-2);
  T* rhs = matrix<T>(x, i);
  const auto solve = [&](char trans) {
    cpu::lapack::getrs<T>(trans, n, nrhs, matrix<T>(lu, i), n, vector<int32_t>(pivots, i), rhs, n);
  };
  if (left) return solve(adjoint ? 'C' : 'N');
  if (!adjoint) return solve('T');
  // X A^H = B is A^* X^T = B^T, hence A X^H = B^H: conjugate before and after.
  const auto conjugate = [&] {
    if constexpr (is_complex_type<T>)
      for (int64_t e = 0; e < n * nrhs; ++e) rhs[e] = std::conj(rhs[e]);
  };
  conjugate();
  solve('N');
  conjugate();
}

// The same for a whole batch on the accelerator.
void solve_elsewhere(const Tensor& lu, const Tensor& pivots, const Tensor& x, bool left, bool adjoint) {
  Solver& s = solver();
  if (left || !adjoint) return s.getrs(!left ? 'T' : adjoint ? 'C' : 'N', lu, pivots, x);
  s.conjugate(x);
  s.getrs('N', lu, pivots, x);
  s.conjugate(x);
}

Tensor right_hand_side(const Tensor& b, const Dims& lead, bool left) {
  if (left) return column_copy(b, lead);
  const Tensor copy = empty(join(lead, {b.size(-2), b.size(-1)}), b.options());
  if (!copy.is_meta() && copy.numel() > 0) copy_into(copy, expand_batch(b, lead));
  return copy;
}

void check_system(const char* op, const Tensor& a, const Tensor& b, bool left) {
  check_same(op, a, b);
  FL_CHECK(b.dim() >= 2 && a.size(-1) == b.size(left ? -2 : -1), "[", op,
           "] expected shapes of a linear system, ",
           left ? "(..., n, n) and (..., n, k)" : "(..., n, n) and (..., k, n)", ", got ", a.sizes(), " and ",
           b.sizes());
}

Tensor lu_solve(const Tensor& lu, const Tensor& pivots, const Tensor& b, bool left, bool adjoint) {
  check_square("linalg.lu_solve", lu);
  check_floating("linalg.lu_solve", lu);
  check_matrix("linalg.lu_solve", b);
  check_pivots("linalg.lu_solve", lu, pivots);
  check_system("linalg.lu_solve", lu, b, left);
  const Dims lead = broadcast_shapes("linalg.lu_solve", batch_sizes(lu), batch_sizes(b));
  const Tensor x = right_hand_side(b, lead, left);
  if (x.is_meta() || x.numel() == 0) return x;
  const Tensor factors = column_copy(lu, lead), swaps = own(expand_batch(pivots, lead, 1));
  check_pivot_range("linalg.lu_solve", swaps, lu.size(-1));
  if (elsewhere(x)) {
    solve_elsewhere(factors, swaps, x, left, adjoint);
    return x;
  }
  dispatch_lapack(lu.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    each(numel_of(lead), lu.size(-1) * x.size(-1) * x.size(-2),
         [&](int64_t i) { solve_with_lu<T>(factors, swaps, x, i, left, adjoint); });
  });
  return x;
}

// B is a batch of vectors where its shape is that of A without the last dimension; the Python side has made
// it matrices.
std::tuple<Tensor, Tensor, Tensor, Tensor> solve_ex(const Tensor& a, const Tensor& b, bool left) {
  check_square("linalg.solve", a);
  check_floating("linalg.solve", a);
  check_matrix("linalg.solve", b);
  check_system("linalg.solve", a, b, left);
  const Dims lead = broadcast_shapes("linalg.solve", batch_sizes(a), batch_sizes(b));
  const Tensor x = right_hand_side(b, lead, left);
  const Tensor lu = column_copy(a, lead), info = info_tensor(lead, a.device());
  const int64_t n = a.size(-1);
  const Tensor pivots = empty(join(lead, {n}), {DType::Int32, a.device()});
  if (a.is_meta() || lu.numel() == 0) return {x, lu, pivots, info};
  if (elsewhere(a)) {
    solver().getrf(lu, pivots, info, true);
    if (x.numel()) solve_elsewhere(lu, pivots, x, left, false);
    return {x, lu, pivots, info};
  }
  dispatch_lapack(a.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    each(numel_of(lead), cube(lu), [&](int64_t i) {
      const int failed = cpu::lapack::getrf<T>(n, n, matrix<T>(lu, i), n, vector<int32_t>(pivots, i));
      info.data<int32_t>()[i] = failed;
      if (!failed && x.numel()) solve_with_lu<T>(lu, pivots, x, i, left, false);
    });
  });
  return {x, lu, pivots, info};
}

Matrices inv_ex(const Tensor& a) {
  check_square("linalg.inv", a);
  check_floating("linalg.inv", a);
  const Tensor inverse = column_copy(a), info = info_tensor(batch_sizes(a), a.device());
  if (a.is_meta() || a.numel() == 0) return {inverse, info};
  const int64_t n = a.size(-1);
  if (elsewhere(a)) {
    const Tensor lu = column_copy(a), pivots = empty(join(batch_sizes(a), {n}), {DType::Int32, a.device()});
    solver().getrf(lu, pivots, info, true);
    fill_identity(inverse);
    solver().getrs('N', lu, pivots, inverse);
    return {inverse, info};
  }
  dispatch_lapack(a.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    each(info.numel(), 2 * cube(a), [&](int64_t i) {
      std::vector<int32_t> pivots(n);
      int failed = cpu::lapack::getrf<T>(n, n, matrix<T>(inverse, i), n, pivots.data());
      if (!failed) failed = cpu::lapack::getri<T>(n, matrix<T>(inverse, i), n, pivots.data());
      info.data<int32_t>()[i] = failed;
    });
  });
  return {inverse, info};
}

// ---------------------------------------------------------------- determinants

template <class T>
T unit(T x) {
  if constexpr (is_complex_type<T>) {
    const auto size = std::abs(x);
    return size == 0 ? T(0) : x / size;
  } else {
    return x > 0 ? T(1) : x < 0 ? T(-1) : x;
  }
}

Factored det_of(const Tensor& a) {
  check_square("linalg.det", a);
  check_floating("linalg.det", a);
  auto [lu, pivots, info] = lu_factor_ex(a, true);
  const Tensor det = empty(batch_sizes(a), a.options());
  if (a.is_meta()) return {det, lu, pivots};
  if (elsewhere(a)) {
    solver().determinant(lu, pivots, det, {});
    return {det, lu, pivots};
  }
  const int64_t n = a.size(-1);
  dispatch_lapack(a.dtype(), [&, lu = lu, pivots = pivots](auto type) {
    using T = typename decltype(type)::type;
    for (int64_t i = 0; i < det.numel(); ++i) {
      T product(1);
      for (int64_t d = 0; d < n; ++d) {
        product *= matrix<T>(lu, i)[d * n + d];
        if (vector<int32_t>(pivots, i)[d] != d + 1) product = -product;
      }
      det.data<T>()[i] = product;
    }
  });
  return {det, lu, pivots};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> slogdet_of(const Tensor& a) {
  check_square("linalg.slogdet", a);
  check_floating("linalg.slogdet", a);
  auto [lu, pivots, info] = lu_factor_ex(a, true);
  const Dims lead = batch_sizes(a);
  const Tensor sign = empty(lead, a.options()), logabs = empty(lead, {real_of(a.dtype()), a.device()});
  if (a.is_meta()) return {sign, logabs, lu, pivots};
  if (elsewhere(a)) {
    solver().determinant(lu, pivots, sign, logabs);
    return {sign, logabs, lu, pivots};
  }
  const int64_t n = a.size(-1);
  dispatch_lapack(a.dtype(), [&, lu = lu, pivots = pivots](auto type) {
    using T = typename decltype(type)::type;
    using R = cpu::lapack::Real<T>;
    for (int64_t i = 0; i < sign.numel(); ++i) {
      T direction(1);
      R total = 0;
      for (int64_t d = 0; d < n; ++d) {
        const T x = matrix<T>(lu, i)[d * n + d];
        direction *= unit(x);
        if (vector<int32_t>(pivots, i)[d] != d + 1) direction = -direction;
        total += std::log(std::abs(x));
      }
      sign.data<T>()[i] = direction;
      logabs.data<R>()[i] = total;
    }
  });
  return {sign, logabs, lu, pivots};
}

// ---------------------------------------------------------------- Cholesky

Matrices cholesky_ex(const Tensor& a, bool upper) {
  check_square("linalg.cholesky", a);
  check_floating("linalg.cholesky", a);
  const Tensor factor = column_copy(a), info = info_tensor(batch_sizes(a), a.device());
  if (a.is_meta() || a.numel() == 0) return {factor, info};
  if (elsewhere(a)) {
    const Part part = upper ? Part::Upper : Part::Lower;
    solver().potrf(part, factor, info);
    solver().copy_part(factor, factor, part, false);
    return {factor, info};
  }
  const int64_t n = a.size(-1);
  dispatch_lapack(a.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    each(info.numel(), cube(a) / 3, [&](int64_t i) {
      T* f = matrix<T>(factor, i);
      info.data<int32_t>()[i] = cpu::lapack::potrf<T>(upper ? 'U' : 'L', n, f, n);
      for (int64_t c = 0; c < n; ++c)
        if (upper)
          std::fill(f + c * n + c + 1, f + c * n + n, T(0));
        else
          std::fill(f + c * n, f + c * n + c, T(0));
    });
  });
  return {factor, info};
}

Tensor cholesky_solve(const Tensor& self, const Tensor& factor, bool upper) {
  check_matrix("cholesky_solve", self);
  check_square("cholesky_solve", factor);
  check_floating("cholesky_solve", factor);
  check_system("cholesky_solve", factor, self, true);
  const Dims lead = broadcast_shapes("cholesky_solve", batch_sizes(self), batch_sizes(factor));
  const Tensor x = column_copy(self, lead);
  if (x.is_meta() || x.numel() == 0) return x;
  const Tensor f = column_copy(factor, lead);
  if (elsewhere(x)) {
    solver().potrs(upper ? Part::Upper : Part::Lower, f, x);
    return x;
  }
  const int64_t n = factor.size(-1);
  dispatch_lapack(x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    each(numel_of(lead), n * n * x.size(-1), [&](int64_t i) {
      cpu::lapack::potrs<T>(upper ? 'U' : 'L', n, x.size(-1), matrix<T>(f, i), n, matrix<T>(x, i), n);
    });
  });
  return x;
}

Matrices cholesky_inverse(const Tensor& self, bool upper) {
  check_square("cholesky_inverse", self);
  check_floating("cholesky_inverse", self);
  const Tensor inverse = column_copy(self), info = info_tensor(batch_sizes(self), self.device());
  if (self.is_meta() || self.numel() == 0) return {inverse, info};
  if (elsewhere(self)) {
    fill_identity(inverse);
    solver().potrs(upper ? Part::Upper : Part::Lower, column_copy(self), inverse);
    return {inverse, info};
  }
  const int64_t n = self.size(-1);
  dispatch_lapack(self.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    each(info.numel(), cube(self), [&](int64_t i) {
      T* x = matrix<T>(inverse, i);
      info.data<int32_t>()[i] = cpu::lapack::potri<T>(upper ? 'U' : 'L', n, x, n);
      // LAPACK fills one triangle; the other is its conjugate.
      for (int64_t c = 0; c < n; ++c)
        for (int64_t r = c + 1; r < n; ++r) {
          T &low = x[c * n + r], &high = x[r * n + c];
          T& to = upper ? low : high;
          const T& from = upper ? high : low;
          if constexpr (is_complex_type<T>)
            to = std::conj(from);
          else
            to = from;
        }
    });
  });
  return {inverse, info};
}

// ---------------------------------------------------------------- LDL

// What the accelerator's library has.
void check_symmetric(const char* op, const Tensor& t, bool hermitian) {
  FL_CHECK_KIND(!hermitian || !is_complex(t.dtype()), NotImplemented, "[", op,
                "] expected hermitian=False for complex matrices on CUDA, got True");
}

Factored ldl_factor_ex(const Tensor& self, bool hermitian) {
  check_square("linalg.ldl_factor_ex", self);
  check_floating("linalg.ldl_factor_ex", self);
  const Dims lead = batch_sizes(self);
  const Tensor ld = column_copy(self), info = info_tensor(lead, self.device());
  const int64_t n = self.size(-1);
  const Tensor pivots = empty(join(lead, {n}), {DType::Int32, self.device()});
  if (self.is_meta() || self.numel() == 0) return {ld, pivots, info};
  if (elsewhere(self)) {
    check_symmetric("linalg.ldl_factor_ex", self, hermitian);
    solver().sytrf(ld, pivots, info);
    solver().copy_part(ld, ld, Part::Lower, false);
    return {ld, pivots, info};
  }
  dispatch_lapack(self.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    each(info.numel(), cube(self) / 3, [&](int64_t i) {
      T* f = matrix<T>(ld, i);
      info.data<int32_t>()[i] = cpu::lapack::sytrf<T>('L', n, f, n, vector<int32_t>(pivots, i), hermitian);
      for (int64_t c = 0; c < n; ++c) std::fill(f + c * n, f + c * n + c, T(0));
    });
  });
  return {ld, pivots, info};
}

Tensor ldl_solve(const Tensor& ld, const Tensor& pivots, const Tensor& b, bool hermitian) {
  check_square("linalg.ldl_solve", ld);
  check_floating("linalg.ldl_solve", ld);
  check_matrix("linalg.ldl_solve", b);
  FL_CHECK(b.size(-2) == ld.size(-1), "[linalg.ldl_solve] expected shapes of a linear system, got ",
           ld.sizes(), " and ", b.sizes());
  FL_CHECK(is_integral(pivots.dtype()), "[linalg.ldl_solve] expected integer pivots, got ",
           name_of(pivots.dtype()));
  FL_CHECK(pivots.sizes() == IntSpan(ld.sizes().data(), ld.dim() - 1),
           "[linalg.ldl_solve] expected pivots for the factors of shape ", ld.sizes(), ", got ",
           pivots.sizes());
  check_same("linalg.ldl_solve", ld, b);
  check_one_place("linalg.ldl_solve", ld, pivots);
  const Dims lead = broadcast_shapes("linalg.ldl_solve", batch_sizes(ld), batch_sizes(b));
  const Tensor x = column_copy(b, lead);
  if (x.is_meta() || x.numel() == 0) return x;
  const Tensor factors = column_copy(ld, lead),
               swaps = contiguous(to_dtype(expand_batch(pivots, lead, 1), DType::Int32));
  const int64_t n = ld.size(-1);
  if (elsewhere(x)) {
    check_symmetric("linalg.ldl_solve", x, hermitian);
    solver().sytrs(factors, swaps, x);
    return x;
  }
  // A negative pivot opens a block of two rows; LAPACK takes that on trust.
  for (int64_t i = 0; i < swaps.numel() / std::max<int64_t>(n, 1); ++i) {
    const int32_t* p = vector<int32_t>(swaps, i);
    for (int64_t k = 0; k < n; k += p[k] < 0 ? 2 : 1) {
      const int64_t row = std::abs(static_cast<int64_t>(p[k]));
      FL_CHECK(row >= 1 && row <= n && (p[k] > 0 || (k + 1 < n && p[k + 1] == p[k])),
               "[linalg.ldl_solve] expected pivots of ldl_factor, got ", static_cast<int64_t>(p[k]),
               " in row ", k);
    }
  }
  dispatch_lapack(ld.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    each(numel_of(lead), n * n * x.size(-1), [&](int64_t i) {
      cpu::lapack::sytrs<T>('L', n, x.size(-1), matrix<T>(factors, i), n, vector<int32_t>(swaps, i),
                            matrix<T>(x, i), n, hermitian);
    });
  });
  return x;
}

// ---------------------------------------------------------------- triangular systems

Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool left, bool unitriangular) {
  check_square("linalg.solve_triangular", a);
  check_matrix("linalg.solve_triangular", b);
  check_system("linalg.solve_triangular", a, b, left);
  check_floating("linalg.solve_triangular", a);
  const Dims lead = broadcast_shapes("linalg.solve_triangular", batch_sizes(a), batch_sizes(b));
  const Tensor x = column_copy(b, lead);
  if (x.is_meta() || x.numel() == 0) return x;
  const Tensor factor = column_copy(a, lead);
  if (elsewhere(x)) {
    solver().trsm(left, upper ? Part::Upper : Part::Lower, 'N', unitriangular, factor, x);
    return x;
  }
  const int64_t m = x.size(-2), n = x.size(-1);
  dispatch_lapack(a.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    each(numel_of(lead), a.size(-1) * m * n, [&](int64_t i) {
      cpu::lapack::trsm<T>(left ? 'L' : 'R', upper ? 'U' : 'L', 'N', unitriangular ? 'U' : 'N', m, n, T(1),
                           matrix<T>(factor, i), a.size(-1), matrix<T>(x, i), m);
    });
  });
  return x;
}

// ---------------------------------------------------------------- exponential

// Diagonal Padé approximants after scaling by a power of two, undone by squaring. The approximant's degree
// and the norm up to which it is accurate depend on the precision.
template <class T>
class Exponential {
  using R = cpu::lapack::Real<T>;
  static constexpr bool kSingle = sizeof(R) == 4;

 public:
  explicit Exponential(int64_t n) : n_(n), size_(n * n) {}

  void run(T* a) {
    R norm = 0;
    bool finite = true;
    for (int64_t c = 0; c < n_; ++c) {
      R total = 0;
      for (int64_t r = 0; r < n_; ++r) total += std::abs(a[r * n_ + c]);
      finite &= std::isfinite(total);
      norm = std::max(norm, total);
    }
    if (!finite) {
      std::fill(a, a + size_, T(std::numeric_limits<R>::quiet_NaN()));
      return;
    }
    const R limit = kSingle ? R(3.9) : R(5.3);
    int squarings = 0;
    if (norm > limit) squarings = std::max(0, static_cast<int>(std::ceil(std::log2(norm / limit))));
    if (squarings) {
      const R scale = std::ldexp(R(1), -squarings);
      for (int64_t i = 0; i < size_; ++i) a[i] *= scale;
    }
    approximate(a);
    std::vector<T> square(size_);
    for (int i = 0; i < squarings; ++i) {
      multiply(a, a, square.data());
      std::copy(square.begin(), square.end(), a);
    }
  }

 private:
  void multiply(const T* a, const T* b, T* c) const {
    GemmArgs g;
    g.dtype = dtype_for<T>::value;
    g.m = g.n = g.k = n_;
    g.a = a;
    g.b = b;
    g.c = c;
    g.a_row = g.b_row = g.c_row = n_;
    cpu::gemm(g);
  }

  // a becomes q(a)^-1 p(a), where p(x) = v(x) + u(x), q(x) = v(x) - u(x), v even and u odd.
  void approximate(T* a) const {
    // The coefficients of the degree-m approximant: (2m - j)! m! / ((2m)! (m - j)! j!).
    constexpr int degree = kSingle ? 7 : 13;
    double coefficient[degree + 1] = {1};
    for (int j = 1; j <= degree; ++j)
      coefficient[j] = coefficient[j - 1] * (degree - j + 1) / (double(2 * degree - j + 1) * j);
    std::vector<T> square(size_), power(size_), next(size_), even(size_, T(0)), odd(size_, T(0));
    multiply(a, a, square.data());
    for (int64_t d = 0; d < n_; ++d) {
      even[d * n_ + d] = T(static_cast<R>(coefficient[0]));
      odd[d * n_ + d] = T(static_cast<R>(coefficient[1]));
    }
    power = square;
    for (int j = 2; j <= degree; j += 2) {
      const R ce = static_cast<R>(coefficient[j]),
              co = j + 1 <= degree ? static_cast<R>(coefficient[j + 1]) : R(0);
      for (int64_t i = 0; i < size_; ++i) {
        even[i] += ce * power[i];
        odd[i] += co * power[i];
      }
      if (j + 2 <= degree) {
        multiply(power.data(), square.data(), next.data());
        power.swap(next);
      }
    }
    multiply(a, odd.data(), next.data());
    // Rows here are LAPACK's columns: it solves q^T x = p^T for the transposes, and since p and q commute, x
    // is the answer's.
    for (int64_t i = 0; i < size_; ++i) {
      a[i] = even[i] + next[i];
      even[i] -= next[i];
    }
    std::vector<int32_t> pivots(n_);
    cpu::lapack::gesv<T>(n_, n_, even.data(), n_, pivots.data(), a, n_);
  }

  int64_t n_, size_;
};

Tensor matrix_exp(const Tensor& self) {
  FL_CHECK(!is_integral(self.dtype(), true),
           "[linalg.matrix_exp] expected a floating or complex tensor, got ", name_of(self.dtype()),
           ": Expected a floating point or complex tensor as input");
  check_square("linalg.matrix_exp", self);
  const Tensor out = empty(self.sizes(), self.options());
  if (self.is_meta() || self.numel() == 0) return out;
  const DType compute = compute_of(self.dtype());
  const Tensor result = compute == out.dtype() ? out : empty(self.sizes(), {compute, self.device()});
  copy_into(result, self);
  const int64_t n = self.size(-1);
  dispatch_lapack(compute, [&](auto type) {
    using T = typename decltype(type)::type;
    each(self.numel() / (n * n), 12 * n * n * n,
         [&](int64_t i) { Exponential<T>(n).run(matrix<T>(result, i)); });
  });
  if (!result.same(out)) copy_into(out, result);
  return out;
}

Tensor pinv_value(const Tensor&, const Tensor& value) {
  return alias(value, value.sizes(), value.strides(), value.offset());
}

FL_KERNEL("_linalg_pinv", pinv_value, kEverywhere);
FL_KERNEL("_linalg_lu_factor_ex", lu_factor_ex, kDevices);
FL_KERNEL("lu_unpack", lu_unpack, kDevices);
FL_KERNEL("linalg_lu_solve", lu_solve, kDevices);
FL_KERNEL("_linalg_solve_ex", solve_ex, kDevices);
FL_KERNEL("_linalg_inv_ex", inv_ex, kDevices);
FL_KERNEL("_linalg_det", det_of, kDevices);
FL_KERNEL("_linalg_slogdet", slogdet_of, kDevices);
FL_KERNEL("_linalg_cholesky_ex", cholesky_ex, kDevices);
FL_KERNEL("cholesky_solve", cholesky_solve, kDevices);
FL_KERNEL("_cholesky_inverse", cholesky_inverse, kDevices);
FL_KERNEL("_linalg_ldl_factor_ex", ldl_factor_ex, kDevices);
FL_KERNEL("linalg_ldl_solve", ldl_solve, kDevices);
FL_KERNEL("linalg_solve_triangular", solve_triangular, kDevices);
FL_KERNEL("matrix_exp", matrix_exp, kCpu);

}  // namespace
}  // namespace fl::linalg
