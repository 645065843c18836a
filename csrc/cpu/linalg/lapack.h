// Thin typed wrappers over the LAPACK routines of the scipy-openblas32 wheel, loaded with dlopen at
// first use (see library.h: FLAMBEAU_OPENBLAS_LIB, set_library_path("openblas", ...), sonames).
//
// T is float, double, std::complex<float> or std::complex<double>. Matrices are column-major raw
// pointers with leading dimensions in elements, as in LAPACK; pivots are one-based 32-bit integers.
// Every function makes its own workspace and returns LAPACK's info: 0 on success, -i when argument
// i is invalid, positive for the routine's numerical failure. Where a routine has two names, one
// for real and one for complex types, the real one is used here for both. `trans` is 'N', 'T' or
// 'C'. A std::runtime_error is thrown when the library cannot be loaded or a size exceeds 32 bits.
//
// All functions may be called from several threads at once. OpenBLAS runs on one thread, except for
// large problems outside parallel regions; batches are best parallelised by the caller.
#pragma once

#include <complex>
#include <cstdint>
#include <string>

namespace fl::cpu::lapack {

template <typename T>
struct RealOf {
  using type = T;
};
template <typename T>
struct RealOf<std::complex<T>> {
  using type = T;
};
template <typename T>
using Real = typename RealOf<T>::type;

// Whether the library can be loaded, without throwing; and why not (empty when it can).
bool available();
std::string unavailable_reason();

// ---- LU: A = P L U ---------------------------------------------------------------------------
template <typename T>
int getrf(int64_t m, int64_t n, T* a, int64_t lda, int32_t* pivots);
template <typename T>
int getrs(char trans, int64_t n, int64_t nrhs, const T* a, int64_t lda, const int32_t* pivots, T* b,
          int64_t ldb);
template <typename T>
int getri(int64_t n, T* a, int64_t lda, const int32_t* pivots);
template <typename T>
int gesv(int64_t n, int64_t nrhs, T* a, int64_t lda, int32_t* pivots, T* b, int64_t ldb);

// ---- Cholesky --------------------------------------------------------------------------------
template <typename T>
int potrf(char uplo, int64_t n, T* a, int64_t lda);
template <typename T>
int potrs(char uplo, int64_t n, int64_t nrhs, const T* a, int64_t lda, T* b, int64_t ldb);
template <typename T>
int potri(char uplo, int64_t n, T* a, int64_t lda);

// ---- Bunch-Kaufman (LDL); `hermitian` chooses he* over sy* for complex types ------------------
template <typename T>
int sytrf(char uplo, int64_t n, T* a, int64_t lda, int32_t* pivots, bool hermitian = false);
template <typename T>
int sytrs(char uplo, int64_t n, int64_t nrhs, const T* a, int64_t lda, const int32_t* pivots, T* b,
          int64_t ldb, bool hermitian = false);
template <typename T>
int sytri(char uplo, int64_t n, T* a, int64_t lda, const int32_t* pivots, bool hermitian = false);

// ---- QR (or/un); 'T' means 'C' for complex types in ormqr -------------------------------------
template <typename T>
int geqrf(int64_t m, int64_t n, T* a, int64_t lda, T* tau);
template <typename T>
int orgqr(int64_t m, int64_t n, int64_t k, T* a, int64_t lda, const T* tau);
template <typename T>
int ormqr(char side, char trans, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* tau, T* c,
          int64_t ldc);

// ---- singular values: A = U diag(s) VT, a is destroyed ----------------------------------------
template <typename T>
int gesdd(char jobz, int64_t m, int64_t n, T* a, int64_t lda, Real<T>* s, T* u, int64_t ldu, T* vt,
          int64_t ldvt);
template <typename T>
int gesvd(char jobu, char jobvt, int64_t m, int64_t n, T* a, int64_t lda, Real<T>* s, T* u, int64_t ldu,
          T* vt, int64_t ldvt);

// ---- eigenvalues ------------------------------------------------------------------------------
// Symmetric/Hermitian (sy/he): w ascending; with jobz 'V' a becomes the eigenvectors.
template <typename T>
int syevd(char jobz, char uplo, int64_t n, T* a, int64_t lda, Real<T>* w);
// General: eigenvalues and (jobv* 'V') eigenvectors as complex numbers for real T as well.
template <typename T>
int geev(char jobvl, char jobvr, int64_t n, T* a, int64_t lda, std::complex<Real<T>>* w,
         std::complex<Real<T>>* vl, int64_t ldvl, std::complex<Real<T>>* vr, int64_t ldvr);

// ---- least squares: b is max(m, n) x nrhs and receives the solution ----------------------------
template <typename T>
int gels(char trans, int64_t m, int64_t n, int64_t nrhs, T* a, int64_t lda, T* b, int64_t ldb);
// pivots (n entries) may be null: all columns are then free.
template <typename T>
int gelsy(int64_t m, int64_t n, int64_t nrhs, T* a, int64_t lda, T* b, int64_t ldb, int32_t* pivots,
          Real<T> rcond, int32_t* rank);
template <typename T>
int gelsd(int64_t m, int64_t n, int64_t nrhs, T* a, int64_t lda, T* b, int64_t ldb, Real<T>* s, Real<T> rcond,
          int32_t* rank);
template <typename T>
int gelss(int64_t m, int64_t n, int64_t nrhs, T* a, int64_t lda, T* b, int64_t ldb, Real<T>* s, Real<T> rcond,
          int32_t* rank);

// ---- triangular --------------------------------------------------------------------------------
template <typename T>
int trtrs(char uplo, char trans, char diag, int64_t n, int64_t nrhs, const T* a, int64_t lda, T* b,
          int64_t ldb);
template <typename T>
int trtri(char uplo, char diag, int64_t n, T* a, int64_t lda);
// B = alpha * op(A)^-1 B (side 'L') or alpha * B op(A)^-1 (side 'R'); no check for singularity.
template <typename T>
void trsm(char side, char uplo, char trans, char diag, int64_t m, int64_t n, T alpha, const T* a, int64_t lda,
          T* b, int64_t ldb);

}  // namespace fl::cpu::lapack
