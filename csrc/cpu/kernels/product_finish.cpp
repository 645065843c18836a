// The steps after a product, each a pass over a window that is in the cache; a sum and the activation after
// it are one pass.
#include "cpu/gemm/product_finish.h"

#include <algorithm>

#include "math/math.h"
#include "math/math_gelu.h"

namespace fl {
namespace FL_ARCH {
namespace {

using cpu::FinishKind;
using cpu::ProductFinish;

// Rows of results that are `apart` from each other, and those of an operand, if there is one.
template <class D>
struct Window {
  D* c;
  int64_t rows, cols, apart;
  const D* operand;
  int64_t operand_apart;
};

constexpr int64_t kLine = 256;

// Converted in loops of their own, so that the compiler makes vectors of all of them.
template <class A, class B>
void convert(const A* from, B* to, int64_t n) {
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) to[j] = static_cast<B>(from[j]);
}

// Calls f(c, operand, n) for runs of floats.
template <class D, class F>
void runs(const Window<D>& w, const F& f) {
  for (int64_t i = 0; i < w.rows; ++i) {
    D* c = w.c + i * w.apart;
    const D* operand = w.operand ? w.operand + i * w.operand_apart : nullptr;
    if constexpr (sizeof(D) == sizeof(float)) {
      f(c, operand, w.cols);
    } else {
      float line[kLine], other[kLine];
      for (int64_t j = 0; j < w.cols; j += kLine) {
        const int64_t n = std::min(kLine, w.cols - j);
        convert(c + j, line, n);
        if (operand) convert(operand + j, other, n);
        f(line, other, n);
        convert(line, c + j, n);
      }
    }
  }
}

template <class D, class F>
void each(const Window<D>& w, const F& f) {
  runs(w, [&](float* c, const float*, int64_t n) {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) c[j] = f(c[j]);
  });
}

template <class D, class F>
void with_operand(const Window<D>& w, const F& f) {
  runs(w, [&](float* c, const float* operand, int64_t n) {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) c[j] = f(c[j], operand[j]);
  });
}

// Calls use(f) with the activation of a step.
template <class D, class Use>
void activate(FinishKind kind, const Use& use) {
  switch (kind) {
    case FinishKind::Relu:
      return use([](float x) { return x < 0.0f ? 0.0f : x; });
    case FinishKind::Gelu:  // low precision has to meet eager mode's results to the bit
      return use([](float x) {
        if constexpr (sizeof(D) == sizeof(float))
          return x * math::normal_cdf(x);
        else
          return math::gelu_erf(x);
      });
    case FinishKind::GeluTanh:
      return use([](float x) { return math::gelu_tanh(x); });
    case FinishKind::Silu:
      return use([](float x) { return math::silu(x); });
    case FinishKind::Sigmoid:
      return use([](float x) { return math::sigmoid(x); });
    case FinishKind::Tanh:
      return use([](float x) { return math::tanh(x); });
    default:
      return;
  }
}

template <class D>
void finish(const ProductFinish& all, D* c, int64_t rows, int64_t cols) {
  const int64_t first = c - static_cast<const D*>(all.start), column = first % all.columns;
  for (int s = 0; s < all.count; ++s) {
    const ProductFinish::Step& step = all.steps[s];
    Window<D> w{c, rows, cols, all.columns, static_cast<const D*>(step.operand), step.row ? 0 : all.columns};
    if (step.operand) w.operand += step.row ? column : first;
    if (cols == all.columns && !step.row) w.cols *= rows, w.rows = 1;
    if (step.kind == FinishKind::Mul) {
      with_operand(w, [](float x, float y) { return x * y; });
    } else if (step.kind != FinishKind::Add) {
      activate<D>(step.kind, [&](const auto& f) { each(w, f); });
    } else {
      const bool rounds = sizeof(D) != sizeof(float);  // between the two
      const bool both = !rounds && s + 1 < all.count && all.steps[s + 1].kind > FinishKind::Mul;
      if (!both)
        with_operand(w, [](float x, float y) { return x + y; });
      else if constexpr (sizeof(D) == sizeof(float))
        activate<D>(all.steps[++s].kind,
                    [&](const auto& f) { with_operand(w, [&](float x, float y) { return f(x + y); }); });
    }
  }
}

}  // namespace

extern const FinishLoops finish_loops;
const FinishLoops finish_loops = {finish<float>, finish<BFloat16>};

}  // namespace FL_ARCH
}  // namespace fl
