// Gradients of normalisations: for each row or channel two sums, then one pass of multiply-adds over data
// that is still in cache.
#include "cpu/normalization/normalization_backward.h"

#include <algorithm>
#include <type_traits>
#include <vector>

namespace fl {
namespace FL_ARCH {
namespace {

constexpr int64_t kRun = 2048;   // elements summed in the compute type before they go to a double
constexpr int64_t kRows = 64;    // rows likewise
constexpr int64_t kWidth = 256;  // channels at a time

template <class S>
using Compute = std::conditional_t<std::is_same_v<S, double>, double, float>;

template <class T>
inline void flush(std::vector<T>& part, double* sums) {
  for (size_t i = 0; i < part.size(); ++i) {
    sums[i] += static_cast<double>(part[i]);
    part[i] = 0;
  }
}

template <class S, bool Weighted, bool Parameters>
void layer_rows_of(const S* g, const S* x, S* out, int64_t rows, int64_t n, const Compute<S>* w,
                   const double* mean, const double* rstd, double* weight_sums, double* bias_sums) {
  using T = Compute<S>;
  std::vector<T> weight_part(Parameters ? n : 0), bias_part(Parameters ? n : 0);
  T *pw = weight_part.data(), *pb = bias_part.data();
  const double inverse = 1 / static_cast<double>(n);
  for (int64_t r = 0; r < rows; ++r, g += n, x += n) {
    const T m = mean ? static_cast<T>(mean[r]) : T(0), s = static_cast<T>(rstd[r]);
    double first = 0, second = 0;
    for (int64_t begin = 0; begin < n; begin += kRun) {
      const int64_t end = std::min(n, begin + kRun);
      T a = 0, b = 0;
#pragma omp simd reduction(+ : a, b)
      for (int64_t i = begin; i < end; ++i) {
        const T gi = static_cast<T>(g[i]), xhat = (static_cast<T>(x[i]) - m) * s;
        if (Parameters) {
          pw[i] += gi * xhat;
          pb[i] += gi;
        }
        const T t = Weighted ? gi * w[i] : gi;
        a += t;
        b += t * xhat;
      }
      first += static_cast<double>(a);
      second += static_cast<double>(b);
    }
    if (out) {
      const T a = mean ? static_cast<T>(first * inverse) : T(0), b = static_cast<T>(second * inverse);
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) {
        const T gi = static_cast<T>(g[i]), xhat = (static_cast<T>(x[i]) - m) * s;
        out[i] = static_cast<S>(s * ((Weighted ? gi * w[i] : gi) - a - xhat * b));
      }
      out += n;
    }
    if (Parameters && (r + 1) % kRows == 0) {
      if (weight_sums) flush(weight_part, weight_sums);
      if (bias_sums) flush(bias_part, bias_sums);
    }
  }
  if (Parameters && weight_sums) flush(weight_part, weight_sums);
  if (Parameters && bias_sums) flush(bias_part, bias_sums);
}

template <class S>
void layer_rows(const void* g, const void* x, void* out, int64_t rows, int64_t n, const void* weight,
                const double* mean, const double* rstd, double* weight_sums, double* bias_sums) {
  const auto* gs = static_cast<const S*>(g);
  const auto* xs = static_cast<const S*>(x);
  const auto* w = static_cast<const Compute<S>*>(weight);
  auto* to = static_cast<S*>(out);
  const auto run = [&](auto function) {
    function(gs, xs, to, rows, n, w, mean, rstd, weight_sums, bias_sums);
  };
  const bool parameters = weight_sums || bias_sums;
  if (weight)
    parameters ? run(layer_rows_of<S, true, true>) : run(layer_rows_of<S, true, false>);
  else
    parameters ? run(layer_rows_of<S, false, true>) : run(layer_rows_of<S, false, false>);
}

// Sums of channels are of doubles: what comes out is then the same for tensors that lie otherwise in memory.
template <class S>
void sums(const void* gradient, const void* data, int64_t planes, int64_t stride, int64_t n, double mean,
          double* g_sum, double* product_sum) {
  using T = Compute<S>;
  constexpr int64_t kLanes = 16;
  const auto* g = static_cast<const S*>(gradient);
  const auto* x = static_cast<const S*>(data);
  double a[kLanes] = {}, b[kLanes] = {};
  const auto add = [&](S gradient_value, S value, int64_t k) {
    const double gi = static_cast<double>(static_cast<T>(gradient_value));
    a[k] += gi;
    b[k] += gi * (static_cast<double>(static_cast<T>(value)) - mean);
  };
  for (int64_t p = 0; p < planes; ++p, g += stride, x += stride) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (int64_t k = 0; k < kLanes; ++k) add(g[i + k], x[i + k], k);
    for (int64_t k = 0; i < n; ++i, ++k) add(g[i], x[i], k);
  }
  double first = 0, second = 0;
  for (int64_t k = 0; k < kLanes; ++k) {
    first += a[k];
    second += b[k];
  }
  *g_sum = first;
  *product_sum = second;
}

template <class S>
void gradient(const void* from, const void* data, void* to, int64_t n, double mean, double factor,
              double slope, double shift) {
  using T = Compute<S>;
  const auto* g = static_cast<const S*>(from);
  const auto* x = static_cast<const S*>(data);
  auto* out = static_cast<S*>(to);
  const T m = static_cast<T>(mean), a = static_cast<T>(factor), b = static_cast<T>(slope),
          c = static_cast<T>(shift);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i)
    out[i] = static_cast<S>(static_cast<T>(g[i]) * a + (static_cast<T>(x[i]) - m) * b + c);
}

template <class S>
void channel_sums(const void* gradient, const void* data, int64_t rows, int64_t channels, const double* mean,
                  double* g_sums, double* product_sums) {
  using T = Compute<S>;
  const auto* g = static_cast<const S*>(gradient);
  const auto* x = static_cast<const S*>(data);
  const auto wide = [](S value) { return static_cast<double>(static_cast<T>(value)); };
  for (int64_t c = 0; c < channels; c += kWidth) {
    const int64_t width = std::min(kWidth, channels - c);
    double *a = g_sums + c, *b = product_sums + c;
    const double* m = mean + c;
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
      const S *g0 = g + r * channels + c, *g1 = g0 + channels, *g2 = g1 + channels, *g3 = g2 + channels;
      const S *x0 = x + r * channels + c, *x1 = x0 + channels, *x2 = x1 + channels, *x3 = x2 + channels;
#pragma GCC ivdep
      for (int64_t i = 0; i < width; ++i) {
        const double p = wide(g0[i]), q = wide(g1[i]), s = wide(g2[i]), t = wide(g3[i]), mi = m[i];
        a[i] += (p + q) + (s + t);
        b[i] += (p * (wide(x0[i]) - mi) + q * (wide(x1[i]) - mi)) +
                (s * (wide(x2[i]) - mi) + t * (wide(x3[i]) - mi));
      }
    }
    for (; r < rows; ++r) {
      const S *gr = g + r * channels + c, *xr = x + r * channels + c;
#pragma GCC ivdep
      for (int64_t i = 0; i < width; ++i) {
        const double gi = wide(gr[i]);
        a[i] += gi;
        b[i] += gi * (wide(xr[i]) - m[i]);
      }
    }
  }
}

template <class S>
void channel_gradient(const void* from, const void* data, void* to, int64_t rows, int64_t channels,
                      const void* mean, const void* factor, const void* slope, const void* shift) {
  using T = Compute<S>;
  const auto* g = static_cast<const S*>(from);
  const auto* x = static_cast<const S*>(data);
  auto* out = static_cast<S*>(to);
  const auto *m = static_cast<const T*>(mean), *a = static_cast<const T*>(factor),
             *b = static_cast<const T*>(slope), *c = static_cast<const T*>(shift);
  for (int64_t r = 0; r < rows; ++r, g += channels, x += channels, out += channels) {
#pragma GCC ivdep
    for (int64_t i = 0; i < channels; ++i)
      out[i] = static_cast<S>(static_cast<T>(g[i]) * a[i] + (static_cast<T>(x[i]) - m[i]) * b[i] + c[i]);
  }
}

template <class S>
constexpr NormGradientLoops loops() {
  return {layer_rows<S>, sums<S>, gradient<S>, channel_sums<S>, channel_gradient<S>};
}

}  // namespace

extern const NormGradientTable norm_gradient_table;
const NormGradientTable norm_gradient_table = {loops<float>(), loops<double>(), loops<BFloat16>(),
                                               loops<Half>()};

}  // namespace FL_ARCH
}  // namespace fl
