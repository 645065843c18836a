// Scans: running sums, products and log-sum-exps along one dimension.
#include <cmath>

#include "core/parallel.h"
#include "cpu/sorting/scan.h"
#include "dispatch/kernel.h"
#include "math/record_math.h"

namespace fl {
namespace {

template <class S>
using Accumulator =
    std::conditional_t<is_reduced_type<S>, float, std::conditional_t<std::is_same_v<S, float>, double, S>>;

// Types that are rarely scanned take the loops of a wider one; integers wrap the same way when narrowed at
// last.
DType scanned_as(DType t) {
  return is_complex(t) ? DType::ComplexDouble : is_integral(t, true) ? DType::Int64 : t;
}
template <class F>
void dispatch_scanned(DType t, const F& f) {
  switch (t) {
    case DType::Int64:
      return f(Type<int64_t>{});
    case DType::Half:
      return f(Type<Half>{});
    case DType::BFloat16:
      return f(Type<BFloat16>{});
    case DType::Float:
      return f(Type<float>{});
    case DType::Double:
      return f(Type<double>{});
    default:
      return f(Type<complex128>{});
  }
}

struct Add {
  template <class A>
  static A first() {
    return A(0);
  }
  template <class A>
  static A step(A a, A x) {
    return a + x;
  }
};
struct Multiply {
  template <class A>
  static A first() {
    return A(1);
  }
  template <class A>
  static A step(A a, A x) {
    return a * x;
  }
};
struct LogAddExp {
  template <class A>
  static A first() {
    return A(-std::numeric_limits<double>::infinity());
  }
  static double step(double a, double x) {
    const double hi = a != a ? a : a > x ? a : x, lo = a > x ? x : a;
    if (hi != hi || x != x) return a + x;
    if (std::isinf(hi)) return hi;
    return hi + std::log1p(std::exp(lo - hi));
  }
  static complex128 step(complex128 a, complex128 x) {
    const bool swap = a.real() < x.real() || a.real() != a.real();
    const complex128 hi = swap ? x : a, lo = swap ? a : x;
    if (lo.real() == -std::numeric_limits<double>::infinity()) return hi;
    if (hi.real() == std::numeric_limits<double>::infinity() && lo.real() == hi.real())
      return std::log(std::exp(hi) + std::exp(lo));
    return hi + std::log(1.0 + std::exp(lo - hi));
  }
};

// `ways` independent lines at once, so that their chains of dependent steps overlap.
template <class Op, int ways, class S, class A>
[[gnu::noinline]] void scan_rows(const S* const* src, S* const* dst, int64_t n, A* carry) {
  A a[ways];
  const S* from[ways];
  S* to[ways];
#pragma GCC unroll 8
  for (int w = 0; w < ways; ++w) a[w] = carry[w], from[w] = src[w], to[w] = dst[w];
  for (int64_t i = 0; i < n; ++i) {
    // Unrolled, so that running values and addresses stay in registers.
#pragma GCC unroll 8
    for (int w = 0; w < ways; ++w) {
      a[w] = Op::step(a[w], convert<A>(from[w][i]));
      to[w][i] = convert<S>(a[w]);
    }
  }
#pragma GCC unroll 8
  for (int w = 0; w < ways; ++w) carry[w] = a[w];
}

constexpr int kWays = 4;
constexpr int64_t kLongLine = 16384;

// One long line in pieces: totals of the pieces first, then every piece from the total before it.
template <class Op, class S, class A>
void scan_long(const S* src, S* dst, int64_t n) {
  const int64_t pieces = kWays * std::max(1, in_parallel() ? 1 : num_threads()),
                size = (n + pieces - 1) / pieces;
  std::vector<A> carry(pieces, Op::template first<A>());
  parallel_for(pieces, 1, [&](int64_t b, int64_t e) {
    for (int64_t p = b; p < e; ++p) {
      const int64_t first = std::min(n, p * size), last = std::min(n, first + size);
      constexpr int64_t lanes = 8;
      A lane[lanes];
      for (auto& l : lane) l = Op::template first<A>();
      int64_t i = first;
      for (; i + lanes <= last; i += lanes)
        for (int64_t l = 0; l < lanes; ++l) lane[l] = Op::step(lane[l], convert<A>(src[i + l]));
      A total = lane[0];
      for (int64_t l = 1; l < lanes; ++l) total = Op::step(total, lane[l]);
      for (; i < last; ++i) total = Op::step(total, convert<A>(src[i]));
      carry[p] = total;
    }
  });
  A before = Op::template first<A>();
  for (auto& c : carry) {
    const A own = c;
    c = before;
    before = Op::step(before, own);
  }
  parallel_for(pieces / kWays, 1, [&](int64_t b, int64_t e) {
    for (int64_t g = b; g < e; ++g) {
      const S* from[kWays];
      S* to[kWays];
      int64_t shortest = size;
      for (int w = 0; w < kWays; ++w) {
        const int64_t first = std::min(n, (g * kWays + w) * size);
        from[w] = src + first;
        to[w] = dst + first;
        shortest = std::min(shortest, n - first);
      }
      A* c = carry.data() + g * kWays;
      scan_rows<Op, kWays, S, A>(from, to, shortest, c);
      for (int w = 0; w < kWays; ++w) {  // the last piece may be shorter than the others
        const int64_t first = std::min(n, (g * kWays + w) * size),
                      rest = std::min(size, n - first) - shortest;
        const S* f = from[w] + shortest;
        S* t = to[w] + shortest;
        if (rest > 0) scan_rows<Op, 1, S, A>(&f, &t, rest, c + w);
      }
    }
  });
}

template <class Op, class S>
void scan(const S* src, S* dst, const Lines& lines, bool splittable) {
  using A = Accumulator<S>;
  const int64_t n = lines.n, inner = lines.inner;
  if (inner == 1) {
    if (splittable && n >= kLongLine && lines.outer < num_threads() * kWays) {
      for (int64_t o = 0; o < lines.outer; ++o) scan_long<Op, S, A>(src + o * n, dst + o * n, n);
      return;
    }
    const int64_t groups = (lines.outer + kWays - 1) / kWays;
    parallel_for(groups, std::max<int64_t>(1, kGrain / (n * kWays + 1)), [&](int64_t b, int64_t e) {
      for (int64_t g = b; g < e; ++g) {
        const S* from[kWays];
        S* to[kWays];
        A carry[kWays];
        const int64_t ways = std::min<int64_t>(kWays, lines.outer - g * kWays);
        for (int64_t w = 0; w < ways; ++w) {
          from[w] = src + (g * kWays + w) * n;
          to[w] = dst + (g * kWays + w) * n;
          carry[w] = Op::template first<A>();
        }
        if (ways == kWays)
          scan_rows<Op, kWays, S, A>(from, to, n, carry);
        else
          for (int64_t w = 0; w < ways; ++w) scan_rows<Op, 1, S, A>(from + w, to + w, n, carry + w);
      }
    });
    return;
  }
  constexpr int64_t block = 256;
  const int64_t blocks = (inner + block - 1) / block;
  parallel_for(lines.outer * blocks, std::max<int64_t>(1, kGrain / (n * std::min(inner, block) + 1)),
               [&](int64_t b, int64_t e) {
                 for (int64_t k = b; k < e; ++k) {
                   const int64_t at = k / blocks * n * inner + k % blocks * block,
                                 m = std::min(block, inner - k % blocks * block);
                   A carry[block];
                   std::fill_n(carry, m, Op::template first<A>());
                   for (int64_t i = 0; i < n; ++i) {
                     const S* from = src + at + i * inner;
                     S* to = dst + at + i * inner;
                     for (int64_t j = 0; j < m; ++j) {
                       carry[j] = Op::step(carry[j], convert<A>(from[j]));
                       to[j] = convert<S>(carry[j]);
                     }
                   }
                 }
               });
}

Tensor cumulative(const char* op, const Tensor& self, int64_t dim, std::optional<DType> dtype, bool product) {
  const int64_t d = wrap_dim(op, dim, self.dim());
  const DType t = dtype.value_or(is_integral(self.dtype(), true) ? DType::Int64 : self.dtype());
  if (self.is_meta() || self.numel() == 0) return empty(self.sizes(), {t, self.device()});
  const DType scanned = scanned_as(t);
  Tensor out = empty(self.sizes(), {scanned, self.device()});
  const Tensor source = contiguous(to_dtype(to_dtype(self, t), scanned));
  const Lines lines(source, d);
  dispatch_scanned(scanned, [&](auto type) {
    using S = typename decltype(type)::type;
    if (product)
      scan<Multiply>(source.data<S>(), out.data<S>(), lines, true);
    else
      scan<Add>(source.data<S>(), out.data<S>(), lines, true);
  });
  return to_dtype(out, t);
}

Tensor cumsum(const Tensor& self, int64_t dim, std::optional<DType> dtype) {
  return cumulative("cumsum", self, dim, dtype, false);
}
Tensor cumprod(const Tensor& self, int64_t dim, std::optional<DType> dtype) {
  return cumulative("cumprod", self, dim, dtype, true);
}

Tensor logcumsumexp(const Tensor& self, int64_t dim) {
  const int64_t d = wrap_dim("logcumsumexp", dim, self.dim());
  FL_CHECK_KIND(!is_integral(self.dtype(), true), NotImplemented,
                "[logcumsumexp] expected a floating point or complex dtype, got ", name_of(self.dtype()));
  if (self.is_meta() || self.numel() == 0) return empty(self.sizes(), self.options());
  const DType scanned = is_complex(self.dtype()) ? DType::ComplexDouble : DType::Double;
  const Tensor source = contiguous(to_dtype(self, scanned));
  Tensor out = empty(self.sizes(), source.options());
  const Lines lines(source, d);
  if (scanned == DType::Double)
    scan<LogAddExp>(source.data<double>(), out.data<double>(), lines, false);
  else
    scan<LogAddExp>(source.data<complex128>(), out.data<complex128>(), lines, false);
  return to_dtype(out, self.dtype());
}

FL_KERNEL("cumsum", cumsum, kCpu);
FL_KERNEL("cumprod", cumprod, kCpu);
FL_KERNEL("logcumsumexp", logcumsumexp, kCpu);

}  // namespace
}  // namespace fl
