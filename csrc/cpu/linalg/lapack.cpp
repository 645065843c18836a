// Loading LAPACK symbols, OpenBLAS's thread count, and the wrappers declared in lapack.h: each
// resolves its routine once per type, asks for the workspace it needs and calls it.
#include "cpu/linalg/lapack.h"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "core/parallel.h"
#include "cpu/engine/library.h"

namespace fl::cpu::lapack {
namespace {

template <typename T>
constexpr bool kComplex = !std::is_same_v<T, Real<T>>;

template <typename T>
constexpr char kPrefix = kComplex<T> ? (sizeof(T) == 8 ? 'c' : 'z') : (sizeof(T) == 4 ? 's' : 'd');

// ---- the library -----------------------------------------------------------------------------

void set_blas_threads(void* handle, int count) {
  static void* const function = find_blas_function(handle, "openblas_set_num_threads");
  if (function) reinterpret_cast<void (*)(int)>(function)(count);
}

void* open_lapack() {
  void* handle = open_library(
      "openblas", {"libscipy_openblas.so", "libopenblas.so.0", "libopenblas.so", "liblapack.so.3"});
  if (handle) {
    static std::once_flag once;
    std::call_once(once, [&] { set_blas_threads(handle, 1); });
  }
  return handle;
}

void* library() {
  void* handle = open_lapack();
  if (!handle) {
    throw std::runtime_error("[linalg] expected LAPACK (scipy-openblas32) to be loadable, got " +
                             unavailable_reason());
  }
  return handle;
}

// The routine for T, by its real or complex name (the same when only one is given).
template <typename T>
void* symbol(const char* real_name, const char* complex_name = nullptr) {
  const char* name = kComplex<T> && complex_name ? complex_name : real_name;
  void* function = find_blas_function(library(), std::string(1, kPrefix<T>) + name + "_");
  if (!function) {
    throw std::runtime_error("[linalg] expected LAPACK (scipy-openblas32) to have the routine " +
                             std::string(1, kPrefix<T>) + name +
                             ", got a library without it: " + library_opened_from("openblas"));
  }
  return function;
}

// Resolved at the first call of the enclosing function for its T; retried if that throws.
#define FL_ROUTINE(...) static void* const routine = symbol<T>(__VA_ARGS__)

// OpenBLAS has one thread count for the whole process. Ordinary calls run with a count of one and
// share the lock; a large call that finds itself alone takes the lock for itself and raises the
// count for as long as it runs.
class BlasThreads {
 public:
  explicit BlasThreads(double flops) {
    // Its threads spin at every step of a factorisation: where other work shares the cores that
    // costs several times what it gains, so only calls of some tenths of a second get them.
    constexpr double kLarge = 1e10;
    if (flops >= kLarge && !in_parallel() && num_threads() > 1 && lock().try_lock()) {
      raised_ = true;
      set_blas_threads(library(), num_threads());
      return;
    }
    lock().lock_shared();
  }
  ~BlasThreads() {
    if (raised_) {
      set_blas_threads(library(), 1);
      lock().unlock();
    } else {
      lock().unlock_shared();
    }
  }
  BlasThreads(const BlasThreads&) = delete;
  BlasThreads& operator=(const BlasThreads&) = delete;

 private:
  static std::shared_mutex& lock() {
    static std::shared_mutex* mutex = new std::shared_mutex;
    return *mutex;
  }
  bool raised_ = false;
};

// ---- calling ---------------------------------------------------------------------------------

// Fortran takes everything by address; the length of each character argument follows at the end.
template <typename... Args>
void call(void* routine, Args... args) {
  reinterpret_cast<void (*)(Args...)>(routine)(args...);
}

constexpr size_t kOne = 1;

struct Int {  // a size as LAPACK wants it: a checked 32-bit integer, passed by its address
  int32_t value;
  Int(int64_t size) : value(static_cast<int32_t>(size)) {
    if (size > std::numeric_limits<int32_t>::max()) {
      throw std::runtime_error("[linalg] expected matrix sizes below 2**31, got " + std::to_string(size));
    }
  }
};

Int leading(int64_t ld) {
  return Int(std::max<int64_t>(ld, 1));
}

template <typename T>
class Workspace {
 public:
  explicit Workspace(int64_t count)
      : count_(std::max<int64_t>(count, 1)), data_(new T[static_cast<size_t>(count_)]) {}
  T* data() const { return data_.get(); }
  int32_t size() const { return Int(count_).value; }

 private:
  int64_t count_;
  std::unique_ptr<T[]> data_;
};

// The answer to a workspace query. Single precision cannot hold every count: round up a little.
template <typename T>
int64_t queried(T answer) {
  const double count = static_cast<double>(std::real(answer));
  return static_cast<int64_t>(sizeof(Real<T>) == 4 && count > 1e7 ? count * (1 + 2e-7) + 1 : count);
}

// Runs `f(work, lwork)` twice: with lwork = -1 to ask, then with what was asked for.
template <typename T, typename F>
void with_workspace(F f) {
  const int32_t ask = -1;
  T answer[2] = {T(1), T(0)};
  f(answer, &ask);
  Workspace<T> work(queried(answer[0]));
  const int32_t size = work.size();
  f(work.data(), &size);
}

double cubic(int64_t a, int64_t b, int64_t c) {
  return static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c);
}

template <typename T>
char conjugate_trans(char trans) {
  return kComplex<T> && (trans == 'T' || trans == 't') ? 'C' : trans;
}

}  // namespace

bool available() {
  return open_lapack() != nullptr;
}

std::string unavailable_reason() {
  return available() ? "" : library_error("openblas");
}

// ---- LU --------------------------------------------------------------------------------------

template <typename T>
int getrf(int64_t m, int64_t n, T* a, int64_t lda, int32_t* pivots) {
  FL_ROUTINE("getrf");
  BlasThreads threads(cubic(m, n, std::min(m, n)));
  Int rows(m), cols(n), ld = leading(lda);
  int32_t info = 0;
  call(routine, &rows, &cols, a, &ld, pivots, &info);
  return info;
}

template <typename T>
int getrs(char trans, int64_t n, int64_t nrhs, const T* a, int64_t lda, const int32_t* pivots, T* b,
          int64_t ldb) {
  FL_ROUTINE("getrs");
  BlasThreads threads(2 * cubic(n, n, nrhs));
  Int order(n), columns(nrhs), ld = leading(lda), ld_b = leading(ldb);
  int32_t info = 0;
  call(routine, &trans, &order, &columns, a, &ld, pivots, b, &ld_b, &info, kOne);
  return info;
}

template <typename T>
int getri(int64_t n, T* a, int64_t lda, const int32_t* pivots) {
  FL_ROUTINE("getri");
  BlasThreads threads(cubic(n, n, n));
  Int order(n), ld = leading(lda);
  int32_t info = 0;
  with_workspace<T>(
      [&](T* work, const int32_t* size) { call(routine, &order, a, &ld, pivots, work, size, &info); });
  return info;
}

template <typename T>
int gesv(int64_t n, int64_t nrhs, T* a, int64_t lda, int32_t* pivots, T* b, int64_t ldb) {
  FL_ROUTINE("gesv");
  BlasThreads threads(cubic(n, n, n + nrhs));
  Int order(n), columns(nrhs), ld = leading(lda), ld_b = leading(ldb);
  int32_t info = 0;
  call(routine, &order, &columns, a, &ld, pivots, b, &ld_b, &info);
  return info;
}

// ---- Cholesky --------------------------------------------------------------------------------

template <typename T>
int potrf(char uplo, int64_t n, T* a, int64_t lda) {
  FL_ROUTINE("potrf");
  BlasThreads threads(cubic(n, n, n) / 3);
  Int order(n), ld = leading(lda);
  int32_t info = 0;
  call(routine, &uplo, &order, a, &ld, &info, kOne);
  return info;
}

template <typename T>
int potrs(char uplo, int64_t n, int64_t nrhs, const T* a, int64_t lda, T* b, int64_t ldb) {
  FL_ROUTINE("potrs");
  BlasThreads threads(2 * cubic(n, n, nrhs));
  Int order(n), columns(nrhs), ld = leading(lda), ld_b = leading(ldb);
  int32_t info = 0;
  call(routine, &uplo, &order, &columns, a, &ld, b, &ld_b, &info, kOne);
  return info;
}

template <typename T>
int potri(char uplo, int64_t n, T* a, int64_t lda) {
  FL_ROUTINE("potri");
  BlasThreads threads(cubic(n, n, n));
  Int order(n), ld = leading(lda);
  int32_t info = 0;
  call(routine, &uplo, &order, a, &ld, &info, kOne);
  return info;
}

// ---- LDL -------------------------------------------------------------------------------------

// sy* or he*, both resolved once.
#define FL_ROUTINE_SY(sy, he)                   \
  static void* const symmetric = symbol<T>(sy); \
  static void* const herm = symbol<T>(sy, he);  \
  void* const routine = hermitian ? herm : symmetric

template <typename T>
int sytrf(char uplo, int64_t n, T* a, int64_t lda, int32_t* pivots, bool hermitian) {
  FL_ROUTINE_SY("sytrf", "hetrf");
  BlasThreads threads(cubic(n, n, n) / 3);
  Int order(n), ld = leading(lda);
  int32_t info = 0;
  with_workspace<T>([&](T* work, const int32_t* size) {
    call(routine, &uplo, &order, a, &ld, pivots, work, size, &info, kOne);
  });
  return info;
}

template <typename T>
int sytrs(char uplo, int64_t n, int64_t nrhs, const T* a, int64_t lda, const int32_t* pivots, T* b,
          int64_t ldb, bool hermitian) {
  FL_ROUTINE_SY("sytrs", "hetrs");
  BlasThreads threads(2 * cubic(n, n, nrhs));
  Int order(n), columns(nrhs), ld = leading(lda), ld_b = leading(ldb);
  int32_t info = 0;
  call(routine, &uplo, &order, &columns, a, &ld, pivots, b, &ld_b, &info, kOne);
  return info;
}

template <typename T>
int sytri(char uplo, int64_t n, T* a, int64_t lda, const int32_t* pivots, bool hermitian) {
  FL_ROUTINE_SY("sytri", "hetri");
  BlasThreads threads(cubic(n, n, n));
  Int order(n), ld = leading(lda);
  Workspace<T> work(2 * n);
  int32_t info = 0;
  call(routine, &uplo, &order, a, &ld, pivots, work.data(), &info, kOne);
  return info;
}

// ---- QR --------------------------------------------------------------------------------------

template <typename T>
int geqrf(int64_t m, int64_t n, T* a, int64_t lda, T* tau) {
  FL_ROUTINE("geqrf");
  BlasThreads threads(2 * cubic(m, n, std::min(m, n)));
  Int rows(m), cols(n), ld = leading(lda);
  int32_t info = 0;
  with_workspace<T>(
      [&](T* work, const int32_t* size) { call(routine, &rows, &cols, a, &ld, tau, work, size, &info); });
  return info;
}

template <typename T>
int orgqr(int64_t m, int64_t n, int64_t k, T* a, int64_t lda, const T* tau) {
  FL_ROUTINE("orgqr", "ungqr");
  BlasThreads threads(2 * cubic(m, n, k));
  Int rows(m), cols(n), reflectors(k), ld = leading(lda);
  int32_t info = 0;
  with_workspace<T>([&](T* work, const int32_t* size) {
    call(routine, &rows, &cols, &reflectors, a, &ld, tau, work, size, &info);
  });
  return info;
}

template <typename T>
int ormqr(char side, char trans, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* tau, T* c,
          int64_t ldc) {
  FL_ROUTINE("ormqr", "unmqr");
  BlasThreads threads(4 * cubic(m, n, k));
  Int rows(m), cols(n), reflectors(k), ld = leading(lda), ld_c = leading(ldc);
  const char op = conjugate_trans<T>(trans);
  int32_t info = 0;
  with_workspace<T>([&](T* work, const int32_t* size) {
    call(routine, &side, &op, &rows, &cols, &reflectors, a, &ld, tau, c, &ld_c, work, size, &info, kOne,
         kOne);
  });
  return info;
}

// ---- singular values --------------------------------------------------------------------------

template <typename T>
int gesdd(char jobz, int64_t m, int64_t n, T* a, int64_t lda, Real<T>* s, T* u, int64_t ldu, T* vt,
          int64_t ldvt) {
  FL_ROUTINE("gesdd");
  const int64_t small = std::min(m, n), large = std::max(m, n);
  BlasThreads threads(8 * cubic(m, n, small));
  Int rows(m), cols(n), ld = leading(lda), ld_u = leading(ldu), ld_vt = leading(ldvt);
  Workspace<int32_t> iwork(8 * small);
  int32_t info = 0;
  if constexpr (kComplex<T>) {
    const bool values_only = jobz == 'N' || jobz == 'n';
    Workspace<Real<T>> rwork(values_only ? 7 * small
                                         : small * std::max(5 * small + 7, 2 * large + 2 * small + 1));
    with_workspace<T>([&](T* work, const int32_t* size) {
      call(routine, &jobz, &rows, &cols, a, &ld, s, u, &ld_u, vt, &ld_vt, work, size, rwork.data(),
           iwork.data(), &info, kOne);
    });
  } else {
    (void)large;
    with_workspace<T>([&](T* work, const int32_t* size) {
      call(routine, &jobz, &rows, &cols, a, &ld, s, u, &ld_u, vt, &ld_vt, work, size, iwork.data(), &info,
           kOne);
    });
  }
  return info;
}

template <typename T>
int gesvd(char jobu, char jobvt, int64_t m, int64_t n, T* a, int64_t lda, Real<T>* s, T* u, int64_t ldu,
          T* vt, int64_t ldvt) {
  FL_ROUTINE("gesvd");
  BlasThreads threads(8 * cubic(m, n, std::min(m, n)));
  Int rows(m), cols(n), ld = leading(lda), ld_u = leading(ldu), ld_vt = leading(ldvt);
  Workspace<Real<T>> rwork(5 * std::min(m, n));
  int32_t info = 0;
  with_workspace<T>([&](T* work, const int32_t* size) {
    if constexpr (kComplex<T>) {
      call(routine, &jobu, &jobvt, &rows, &cols, a, &ld, s, u, &ld_u, vt, &ld_vt, work, size, rwork.data(),
           &info, kOne, kOne);
    } else {
      call(routine, &jobu, &jobvt, &rows, &cols, a, &ld, s, u, &ld_u, vt, &ld_vt, work, size, &info, kOne,
           kOne);
    }
  });
  return info;
}

// ---- eigenvalues ------------------------------------------------------------------------------

template <typename T>
int syevd(char jobz, char uplo, int64_t n, T* a, int64_t lda, Real<T>* w) {
  FL_ROUTINE("syevd", "heevd");
  BlasThreads threads(4 * cubic(n, n, n));
  Int order(n), ld = leading(lda);
  int32_t info = 0;
  const auto run = [&](T* work, const int32_t* work_size, Real<T>* rwork, const int32_t* rwork_size,
                       int32_t* iwork, const int32_t* iwork_size) {
    if constexpr (kComplex<T>) {
      call(routine, &jobz, &uplo, &order, a, &ld, w, work, work_size, rwork, rwork_size, iwork, iwork_size,
           &info, kOne, kOne);
    } else {
      (void)rwork;
      (void)rwork_size;
      call(routine, &jobz, &uplo, &order, a, &ld, w, work, work_size, iwork, iwork_size, &info, kOne, kOne);
    }
  };
  const int32_t ask = -1;
  T answer = T(1);
  Real<T> real_answer = 1;
  int32_t int_answer = 1;
  run(&answer, &ask, &real_answer, &ask, &int_answer, &ask);
  if (info != 0) return info;
  Workspace<T> work(queried(answer));
  Workspace<Real<T>> rwork(queried(real_answer));
  Workspace<int32_t> iwork(int_answer);
  const int32_t sizes[] = {work.size(), rwork.size(), iwork.size()};
  run(work.data(), &sizes[0], rwork.data(), &sizes[1], iwork.data(), &sizes[2]);
  return info;
}

namespace {

// LAPACK stores the real and imaginary parts of a conjugate pair's vectors in neighbouring columns.
template <typename R>
void expand_vectors(int64_t n, const R* imag_parts, const R* packed, std::complex<R>* v, int64_t ldv) {
  for (int64_t j = 0; j < n; ++j) {
    const R* re = packed + j * n;
    if (imag_parts[j] == 0 || j + 1 == n) {
      for (int64_t i = 0; i < n; ++i) v[j * ldv + i] = re[i];
      continue;
    }
    const R* im = re + n;
    for (int64_t i = 0; i < n; ++i) {
      v[j * ldv + i] = {re[i], im[i]};
      v[(j + 1) * ldv + i] = {re[i], -im[i]};
    }
    ++j;
  }
}

}  // namespace

template <typename T>
int geev(char jobvl, char jobvr, int64_t n, T* a, int64_t lda, std::complex<Real<T>>* w,
         std::complex<Real<T>>* vl, int64_t ldvl, std::complex<Real<T>>* vr, int64_t ldvr) {
  FL_ROUTINE("geev");
  BlasThreads threads(10 * cubic(n, n, n));
  Int order(n), ld = leading(lda);
  int32_t info = 0;
  if constexpr (kComplex<T>) {
    Int ld_l = leading(ldvl), ld_r = leading(ldvr);
    Workspace<Real<T>> rwork(2 * n);
    with_workspace<T>([&](T* work, const int32_t* size) {
      call(routine, &jobvl, &jobvr, &order, a, &ld, w, vl, &ld_l, vr, &ld_r, work, size, rwork.data(), &info,
           kOne, kOne);
    });
  } else {
    const bool left = jobvl == 'V' || jobvl == 'v', right = jobvr == 'V' || jobvr == 'v';
    Workspace<T> wr(n), wi(n), packed_l(left ? n * n : 1), packed_r(right ? n * n : 1);
    Int ld_v = leading(n);
    with_workspace<T>([&](T* work, const int32_t* size) {
      call(routine, &jobvl, &jobvr, &order, a, &ld, wr.data(), wi.data(), packed_l.data(), &ld_v,
           packed_r.data(), &ld_v, work, size, &info, kOne, kOne);
    });
    if (info < 0) return info;
    for (int64_t i = 0; i < n; ++i) w[i] = {wr.data()[i], wi.data()[i]};
    if (info > 0) return info;
    if (left) expand_vectors(n, wi.data(), packed_l.data(), vl, ldvl);
    if (right) expand_vectors(n, wi.data(), packed_r.data(), vr, ldvr);
  }
  return info;
}

// ---- least squares ----------------------------------------------------------------------------

template <typename T>
int gels(char trans, int64_t m, int64_t n, int64_t nrhs, T* a, int64_t lda, T* b, int64_t ldb) {
  FL_ROUTINE("gels");
  BlasThreads threads(2 * cubic(m, n, std::min(m, n) + nrhs));
  Int rows(m), cols(n), columns(nrhs), ld = leading(lda), ld_b = leading(ldb);
  const char op = conjugate_trans<T>(trans);
  int32_t info = 0;
  with_workspace<T>([&](T* work, const int32_t* size) {
    call(routine, &op, &rows, &cols, &columns, a, &ld, b, &ld_b, work, size, &info, kOne);
  });
  return info;
}

template <typename T>
int gelsy(int64_t m, int64_t n, int64_t nrhs, T* a, int64_t lda, T* b, int64_t ldb, int32_t* pivots,
          Real<T> rcond, int32_t* rank) {
  FL_ROUTINE("gelsy");
  BlasThreads threads(4 * cubic(m, n, std::min(m, n) + nrhs));
  Int rows(m), cols(n), columns(nrhs), ld = leading(lda), ld_b = leading(ldb);
  std::vector<int32_t> all_free(pivots ? 0 : static_cast<size_t>(n), 0);
  if (!pivots) pivots = all_free.data();
  Workspace<Real<T>> rwork(2 * n);
  int32_t info = 0;
  with_workspace<T>([&](T* work, const int32_t* size) {
    if constexpr (kComplex<T>) {
      call(routine, &rows, &cols, &columns, a, &ld, b, &ld_b, pivots, &rcond, rank, work, size, rwork.data(),
           &info);
    } else {
      call(routine, &rows, &cols, &columns, a, &ld, b, &ld_b, pivots, &rcond, rank, work, size, &info);
    }
  });
  return info;
}

template <typename T>
int gelsd(int64_t m, int64_t n, int64_t nrhs, T* a, int64_t lda, T* b, int64_t ldb, Real<T>* s, Real<T> rcond,
          int32_t* rank) {
  FL_ROUTINE("gelsd");
  BlasThreads threads(8 * cubic(m, n, std::min(m, n) + nrhs));
  Int rows(m), cols(n), columns(nrhs), ld = leading(lda), ld_b = leading(ldb);
  int32_t info = 0;
  const auto run = [&](T* work, const int32_t* size, Real<T>* rwork, int32_t* iwork) {
    if constexpr (kComplex<T>) {
      call(routine, &rows, &cols, &columns, a, &ld, b, &ld_b, s, &rcond, rank, work, size, rwork, iwork,
           &info);
    } else {
      (void)rwork;
      call(routine, &rows, &cols, &columns, a, &ld, b, &ld_b, s, &rcond, rank, work, size, iwork, &info);
    }
  };
  const int32_t ask = -1;
  T answer = T(1);
  Real<T> real_answer = 1;
  int32_t int_answer = 1;
  run(&answer, &ask, &real_answer, &int_answer);
  if (info != 0) return info;
  Workspace<T> work(queried(answer));
  Workspace<Real<T>> rwork(queried(real_answer));
  Workspace<int32_t> iwork(int_answer);
  const int32_t size = work.size();
  run(work.data(), &size, rwork.data(), iwork.data());
  return info;
}

template <typename T>
int gelss(int64_t m, int64_t n, int64_t nrhs, T* a, int64_t lda, T* b, int64_t ldb, Real<T>* s, Real<T> rcond,
          int32_t* rank) {
  FL_ROUTINE("gelss");
  BlasThreads threads(8 * cubic(m, n, std::min(m, n) + nrhs));
  Int rows(m), cols(n), columns(nrhs), ld = leading(lda), ld_b = leading(ldb);
  Workspace<Real<T>> rwork(5 * std::min(m, n));
  int32_t info = 0;
  with_workspace<T>([&](T* work, const int32_t* size) {
    if constexpr (kComplex<T>) {
      call(routine, &rows, &cols, &columns, a, &ld, b, &ld_b, s, &rcond, rank, work, size, rwork.data(),
           &info);
    } else {
      call(routine, &rows, &cols, &columns, a, &ld, b, &ld_b, s, &rcond, rank, work, size, &info);
    }
  });
  return info;
}

// ---- triangular -------------------------------------------------------------------------------

template <typename T>
int trtrs(char uplo, char trans, char diag, int64_t n, int64_t nrhs, const T* a, int64_t lda, T* b,
          int64_t ldb) {
  FL_ROUTINE("trtrs");
  BlasThreads threads(cubic(n, n, nrhs));
  Int order(n), columns(nrhs), ld = leading(lda), ld_b = leading(ldb);
  int32_t info = 0;
  call(routine, &uplo, &trans, &diag, &order, &columns, a, &ld, b, &ld_b, &info, kOne, kOne, kOne);
  return info;
}

template <typename T>
int trtri(char uplo, char diag, int64_t n, T* a, int64_t lda) {
  FL_ROUTINE("trtri");
  BlasThreads threads(cubic(n, n, n) / 3);
  Int order(n), ld = leading(lda);
  int32_t info = 0;
  call(routine, &uplo, &diag, &order, a, &ld, &info, kOne, kOne);
  return info;
}

template <typename T>
void trsm(char side, char uplo, char trans, char diag, int64_t m, int64_t n, T alpha, const T* a, int64_t lda,
          T* b, int64_t ldb) {
  FL_ROUTINE("trsm");
  const bool left = side == 'L' || side == 'l';
  BlasThreads threads(cubic(m, n, left ? m : n));
  Int rows(m), cols(n), ld = leading(lda), ld_b = leading(ldb);
  call(routine, &side, &uplo, &trans, &diag, &rows, &cols, &alpha, a, &ld, b, &ld_b, kOne, kOne, kOne, kOne);
}

#define FL_INSTANTIATE(T)                                                                                  \
  template int getrf<T>(int64_t, int64_t, T*, int64_t, int32_t*);                                          \
  template int getrs<T>(char, int64_t, int64_t, const T*, int64_t, const int32_t*, T*, int64_t);           \
  template int getri<T>(int64_t, T*, int64_t, const int32_t*);                                             \
  template int gesv<T>(int64_t, int64_t, T*, int64_t, int32_t*, T*, int64_t);                              \
  template int potrf<T>(char, int64_t, T*, int64_t);                                                       \
  template int potrs<T>(char, int64_t, int64_t, const T*, int64_t, T*, int64_t);                           \
  template int potri<T>(char, int64_t, T*, int64_t);                                                       \
  template int sytrf<T>(char, int64_t, T*, int64_t, int32_t*, bool);                                       \
  template int sytrs<T>(char, int64_t, int64_t, const T*, int64_t, const int32_t*, T*, int64_t, bool);     \
  template int sytri<T>(char, int64_t, T*, int64_t, const int32_t*, bool);                                 \
  template int geqrf<T>(int64_t, int64_t, T*, int64_t, T*);                                                \
  template int orgqr<T>(int64_t, int64_t, int64_t, T*, int64_t, const T*);                                 \
  template int ormqr<T>(char, char, int64_t, int64_t, int64_t, const T*, int64_t, const T*, T*, int64_t);  \
  template int gesdd<T>(char, int64_t, int64_t, T*, int64_t, Real<T>*, T*, int64_t, T*, int64_t);          \
  template int gesvd<T>(char, char, int64_t, int64_t, T*, int64_t, Real<T>*, T*, int64_t, T*, int64_t);    \
  template int syevd<T>(char, char, int64_t, T*, int64_t, Real<T>*);                                       \
  template int geev<T>(char, char, int64_t, T*, int64_t, std::complex<Real<T>>*, std::complex<Real<T>>*,   \
                       int64_t, std::complex<Real<T>>*, int64_t);                                          \
  template int gels<T>(char, int64_t, int64_t, int64_t, T*, int64_t, T*, int64_t);                         \
  template int gelsy<T>(int64_t, int64_t, int64_t, T*, int64_t, T*, int64_t, int32_t*, Real<T>, int32_t*); \
  template int gelsd<T>(int64_t, int64_t, int64_t, T*, int64_t, T*, int64_t, Real<T>*, Real<T>, int32_t*); \
  template int gelss<T>(int64_t, int64_t, int64_t, T*, int64_t, T*, int64_t, Real<T>*, Real<T>, int32_t*); \
  template int trtrs<T>(char, char, char, int64_t, int64_t, const T*, int64_t, T*, int64_t);               \
  template int trtri<T>(char, char, int64_t, T*, int64_t);                                                 \
  template void trsm<T>(char, char, char, char, int64_t, int64_t, T, const T*, int64_t, T*, int64_t);
FL_INSTANTIATE(float)
FL_INSTANTIATE(double)
FL_INSTANTIATE(std::complex<float>)
FL_INSTANTIATE(std::complex<double>)
#undef FL_INSTANTIATE
#undef FL_ROUTINE
#undef FL_ROUTINE_SY

}  // namespace fl::cpu::lapack
