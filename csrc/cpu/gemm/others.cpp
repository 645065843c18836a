// Dense products of integers and complex numbers: plain loops, and OpenBLAS for larger complex ones.
#include <type_traits>

#include "cpu/engine/onednn.h"
#include "cpu/gemm/paths.h"

namespace fl::cpu::products {
namespace {

template <class T>
T scalar_of(std::complex<double> s) {
  if constexpr (std::is_arithmetic_v<T>)
    return T(s.real());
  else
    return T(s);
}

// One row of C at a time: W is wide enough not to overflow in a way the language forbids.
template <class T, class W>
void gemm_loops(const GemmArgs& g) {
  const W alpha = scalar_of<W>(g.alpha), beta = scalar_of<W>(g.beta);
  const double work = 8.0 * double(g.batch) * g.m * g.n * std::max<int64_t>(g.k, 1);
  constexpr int64_t block = 512;
  const auto run_row = [&](int64_t r) {
    const int64_t batch = r / g.m, i = r % g.m;
    const T* a = static_cast<const T*>(g.a) + batch * g.a_batch + i * g.a_row;
    T* c = static_cast<T*>(g.c) + batch * g.c_batch + i * g.c_row;
    const T* bias = static_cast<const T*>(g.bias);
    for (int64_t j0 = 0; j0 < g.n; j0 += block) {
      const int64_t cols = std::min(block, g.n - j0);
      const T* b = static_cast<const T*>(g.b) + batch * g.b_batch + j0 * g.b_col;
      W sums[block];
      std::fill(sums, sums + cols, W(0));
      if (g.b_col == 1) {
        for (int64_t p = 0; p < g.k; ++p) {
          const W x = W(a[p * g.a_col]);
          const T* row = b + p * g.b_row;
          for (int64_t j = 0; j < cols; ++j) sums[j] += x * W(row[j]);
        }
      } else {
        for (int64_t j = 0; j < cols; ++j) {
          W s(0);
          for (int64_t p = 0; p < g.k; ++p) s += W(a[p * g.a_col]) * W(b[p * g.b_row + j * g.b_col]);
          sums[j] = s;
        }
      }
      for (int64_t j = 0; j < cols; ++j) {
        T& out = c[(j0 + j) * g.c_col];
        W v = alpha * sums[j];
        if (beta != W(0)) v += beta * W(out);
        if (bias) v += W(bias[(j0 + j) * g.bias_stride]);
        out = T(v);
        if constexpr (std::is_arithmetic_v<T>)
          if (g.relu && out < T(0)) out = T(0);
      }
    }
  };
  parallel_pieces(team_for(work), work * kMultiplyTime, [&](int piece, int pieces) {
    const Range rows = share(g.batch * g.m, pieces, piece);
    for (int64_t r = rows.begin; r < rows.end; ++r) run_row(r);
  });
}

// Integers multiply as unsigned, where wrapping around is defined; relu looks at the signed result.
template <class T>
void gemm_integer(const GemmArgs& g) {
  gemm_loops<T, std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>>(g);
}

template <class R>
void complex_product(const GemmArgs& g) {
  using T = std::complex<R>;
  const double work = double(g.m) * g.n * g.k * 4;
  const BlasMatrix la = blas_matrix(g.m, g.k, g.a_row, g.a_col), lb = blas_matrix(g.k, g.n, g.b_row, g.b_col);
  const BlasMatrix lc = blas_matrix(g.m, g.n, g.c_row, g.c_col);
  const bool fits =
      la.fits && lb.fits && lc.fits && !lc.transposed && !g.bias && g.k > 0 && work * double(g.batch) > 4096;
  const OpenBlas* blas = fits ? openblas() : nullptr;
  if (!blas) return gemm_loops<T, T>(g);
  const auto gemm = sizeof(R) == 4 ? blas->cgemm : blas->zgemm;
  const T alpha(g.alpha), beta(g.beta);
  // Chunks of rows of one product, spread over our pool; OpenBLAS itself stays single-threaded.
  const int threads = team_for(work * double(g.batch));
  const int64_t parts = g.batch >= threads ? 1 : std::min<int64_t>(threads, g.m);
  parallel_pieces(threads, work * double(g.batch) * kMultiplyTime, [&](int piece, int pieces) {
    const Range mine = share(g.batch * parts, pieces, piece);
    for (int64_t u = mine.begin; u < mine.end; ++u) {
      const int64_t batch = u / parts;
      const Range r = share(g.m, int(parts), int(u % parts));
      gemm(101, la.transposed ? 112 : 111, lb.transposed ? 112 : 111, int(r.end - r.begin), int(g.n),
           int(g.k), &alpha, static_cast<const T*>(g.a) + batch * g.a_batch + r.begin * g.a_row, la.lead,
           static_cast<const T*>(g.b) + batch * g.b_batch, lb.lead, &beta,
           static_cast<T*>(g.c) + batch * g.c_batch + r.begin * g.c_row, lc.lead);
    }
  });
}

}  // namespace

void gemm_integral(const GemmArgs& g) {
  switch (g.dtype) {
    case DType::Int64:
      return gemm_integer<int64_t>(g);
    case DType::Int32:
      return gemm_integer<int32_t>(g);
    case DType::Int16:
      return gemm_integer<int16_t>(g);
    case DType::Int8:
      return gemm_integer<int8_t>(g);
    default:
      return gemm_integer<uint8_t>(g);
  }
}

void gemm_complex(const GemmArgs& g) {
  return g.dtype == DType::ComplexFloat ? complex_product<float>(g) : complex_product<double>(g);
}

}  // namespace fl::cpu::products
