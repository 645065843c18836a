// Losses over class indices: negative log likelihood, cross entropy fused with its log-softmax, and CTC.
#include <cmath>
#include <mutex>

#include "core/parallel.h"
#include "cpu/engine/cast.h"
#include "cpu/normalization/softmax.h"
#include "dispatch/kernel.h"

namespace fl {
namespace {

enum Reduction { kNone = 0, kMean = 1, kSum = 2 };

// Scores (N, C, d...) and class indices (N, d...), either without N.
struct Classes {
  int64_t batch = 1, classes = 1, inner = 1;
  int64_t rows() const { return batch * inner; }
};

// What to do about a target with a dimension of one class, or about scores whose classes are last.
const char* shape_hint(const Tensor& self, const Tensor& target) {
  if (self.dim() == 2 && target.dim() == 2 && target.size(1) == 1) return "; squeeze(1) the target";
  if (self.dim() > 2 && IntSpan(self.sizes().data(), self.dim() - 1) == target.sizes())
    return "; classes are dimension 1 of the input: move them there from the last dimension with movedim(-1, "
           "1)";
  return "";
}

Classes check_classes(const char* op, const Tensor& self, const Tensor& target, const Tensor& weight) {
  FL_CHECK(self.dim() > 0, "[", op, "] expected scores with a dimension of classes, got a 0-d tensor");
  FL_CHECK_KIND(is_floating(self.dtype()), NotImplemented, "[", op, "] expected floating point scores, got ",
                name_of(self.dtype()));
  FL_CHECK(target.dtype() == DType::Int64 || target.dtype() == DType::UInt8, "[", op,
           "] expected class indices of int64 or uint8, got ", name_of(target.dtype()),
           is_floating(target.dtype())
               ? "; convert indices with .long(), or pass probabilities in the shape of the input"
               : "; convert them with .long()");
  Classes g;
  const int64_t at = self.dim() == 1 ? 0 : 1;
  g.classes = self.size(at);
  for (int64_t d = 0; d < self.dim(); ++d)
    if (d != at) (d < at ? g.batch : g.inner) *= self.size(d);
  Dims expected;
  for (int64_t d = 0; d < self.dim(); ++d)
    if (d != at) expected.push_back(self.size(d));
  if (self.dim() > 1 && target.dim() > 0)
    FL_CHECK_KIND(target.size(0) == self.size(0), Value, "[", op, "] expected one batch size, got ",
                  self.size(0), " and ", target.size(0), " for an input of shape ", self.sizes(),
                  " and a target of shape ", target.sizes(), ": Expected input batch_size (", self.size(0),
                  ") to match target batch_size (", target.size(0), ").");
  const bool one = self.dim() == 1 && target.numel() == 1 && target.dim() <= 1;
  FL_CHECK(
      one || IntSpan(expected) == target.sizes(), "[", op, "] expected class indices of shape ",
      IntSpan(expected), " for an input of shape ", self.sizes(), ", got ", target.sizes(),
      self.dim() <= 2 && target.dim() > 1 ? ": 1D target tensor expected, multi-target not supported" : "",
      shape_hint(self, target));
  FL_CHECK(!weight.defined() || (weight.dim() == 1 && weight.numel() == g.classes), "[", op,
           "] expected a weight for each of ", g.classes, " classes, got ",
           weight.defined() ? weight.sizes() : IntSpan(), ": weight tensor should be defined either for all ",
           g.classes, " classes or no classes");
  FL_CHECK(!weight.defined() || weight.dtype() == self.dtype(), "[", op, "] expected weights of dtype ",
           name_of(self.dtype()), ", got ", weight.defined() ? name_of(weight.dtype()) : "");
  return g;
}

// Adds up per-row losses. `loss(row, class)` gives one before its weight; ignored rows count nothing.
template <class T, class F>
void reduce_rows(const char* op, const Classes& g, const Tensor& target, const Tensor& weight,
                 int64_t reduction, int64_t ignore_index, const Tensor& out, const Tensor& total_weight,
                 const F& loss) {
  const Tensor indices = contiguous(to_dtype(target, DType::Int64));
  const Tensor weights = weight.defined() ? contiguous(to_dtype(weight, dtype_for<T>::value)) : Tensor();
  const int64_t* t = indices.data<int64_t>();
  const T* w = weights.defined() ? weights.data<T>() : nullptr;
  const Tensor each = reduction == kNone ? empty(out.sizes(), {dtype_for<T>::value, Device{}}) : Tensor();
  T* unreduced = each.defined() ? each.data<T>() : nullptr;
  double sum = 0, total = 0;
  std::mutex mutex;
  parallel_for(g.rows(), 8192, [&](int64_t begin, int64_t end) {
    double part = 0, part_weight = 0;
    for (int64_t r = begin; r < end; ++r) {
      const int64_t c = t[r];
      if (c == ignore_index) {
        if (unreduced) unreduced[r] = 0;
        continue;
      }
      FL_CHECK_KIND(c >= 0 && c < g.classes, Index, "[", op, "] expected class indices in [0, ",
                    g.classes - 1, "], got ", c);
      const T factor = w ? w[c] : T(1);
      const T x = loss(r, c) * factor;
      if (unreduced) unreduced[r] = x;
      part += static_cast<double>(x);
      part_weight += static_cast<double>(factor);
    }
    std::lock_guard<std::mutex> lock(mutex);
    sum += part;
    total += part_weight;
  });
  copy_into(total_weight, scalar_tensor(Scalar(reduction == kNone ? 0.0 : total), {DType::Double, Device{}}));
  if (each.defined())
    copy_into(out, each);
  else
    copy_into(out, scalar_tensor(Scalar(reduction == kMean ? sum / total : sum), {DType::Double, Device{}}));
}

// Where the score of a class lies, for row r of (batch, inner).
inline int64_t position(const Classes& g, int64_t r, int64_t c) {
  return g.inner == 1 ? r * g.classes + c : (r / g.inner * g.classes + c) * g.inner + r % g.inner;
}

// Calls f(Type<stored>, Type<compute>).
template <class F>
void dispatch_scores(DType t, const F& f) {
  switch (t) {
    case DType::Double:
      return f(Type<double>{}, Type<double>{});
    case DType::BFloat16:
      return f(Type<BFloat16>{}, Type<float>{});
    case DType::Half:
      return f(Type<Half>{}, Type<float>{});
    default:
      return f(Type<float>{}, Type<float>{});
  }
}

Tensor make_output(const Tensor& self, const Tensor& target, int64_t reduction) {
  return reduction == kNone ? empty(target.sizes(), self.options()) : empty({}, self.options());
}

std::tuple<Tensor, Tensor> nll_loss(const Tensor& self, const Tensor& target, const Tensor& weight,
                                    int64_t reduction, int64_t ignore_index) {
  const Classes g = check_classes("nll_loss", self, target, weight);
  Tensor out = make_output(self, target, reduction), total = empty({}, self.options());
  if (self.is_meta()) return {out, total};
  const Tensor x = contiguous(self);
  dispatch_scores(self.dtype(), [&](auto stored, auto compute) {
    using T = typename decltype(compute)::type;
    const auto* scores = x.data<typename decltype(stored)::type>();
    reduce_rows<T>("nll_loss", g, target, weight, reduction, ignore_index, out, total,
                   [&](int64_t r, int64_t c) { return -static_cast<T>(scores[position(g, r, c)]); });
  });
  return {out, total};
}

// ---------------------------------------------------------------- cross entropy

// log(sum(exp(scores))) over the classes, one for each row, in the compute type.
template <class T>
void log_sums(const Tensor& x, const Classes& g, T* out) {
  const SoftmaxLoops<T>& loops = softmax_loops<T>();
  const bool direct = x.dtype() == dtype_for<T>::value;
  const CastFn load = cast_fn(x.dtype(), dtype_for<T>::value);
  const int64_t item = x.itemsize(), n = g.classes;
  if (g.inner == 1) {
    parallel_for(
        g.batch, std::max<int64_t>(1, 4096 / std::max<int64_t>(n, 1)), [&](int64_t begin, int64_t end) {
          if (direct) return loops.logsumexp_rows(x.data<T>() + begin * n, out + begin, end - begin, n);
          const int64_t batch =
              std::max<int64_t>(1, 4096 / std::max<int64_t>(n, 1));  // rows staged at a time
          std::vector<T> staged(batch * n);
          for (int64_t r = begin; r < end; r += batch) {
            const int64_t rows = std::min(batch, end - r);
            load(x.raw() + r * n * item, item, reinterpret_cast<char*>(staged.data()), sizeof(T), rows * n);
            loops.logsumexp_rows(staged.data(), out + r, rows, n);
          }
        });
    return;
  }
  const int64_t width = std::min(kSoftmaxWidth, g.inner), blocks = (g.inner + width - 1) / width;
  parallel_for(g.batch * blocks, std::max<int64_t>(1, 4096 / std::max<int64_t>(n * width, 1)),
               [&](int64_t begin, int64_t end) {
                 std::vector<T> staged(direct ? 0 : n * width);
                 for (int64_t b = begin; b < end; ++b) {
                   const int64_t column = b % blocks * width, w = std::min(width, g.inner - column),
                                 at = b / blocks * n * g.inner + column;
                   T* to = out + b / blocks * g.inner + column;
                   if (direct) {
                     loops.logsumexp_columns(x.data<T>() + at, g.inner, to, n, w);
                     continue;
                   }
                   for (int64_t i = 0; i < n; ++i)
                     load(x.raw() + (at + i * g.inner) * item, item,
                          reinterpret_cast<char*>(staged.data() + i * w), sizeof(T), w);
                   loops.logsumexp_columns(staged.data(), w, to, n, w);
                 }
               });
}

std::tuple<Tensor, Tensor, Tensor> cross_entropy(const Tensor& self, const Tensor& target,
                                                 const Tensor& weight, int64_t reduction,
                                                 int64_t ignore_index) {
  const Classes g = check_classes("cross_entropy", self, target, weight);
  Tensor out = make_output(self, target, reduction), total = empty({}, self.options());
  Tensor sums = empty(target.sizes(), {compute_of(self.dtype()), self.device()});
  if (self.is_meta()) return {out, total, sums};
  const Tensor x = contiguous(self);
  dispatch_scores(self.dtype(), [&](auto stored, auto compute) {
    using T = typename decltype(compute)::type;
    const auto* scores = x.data<typename decltype(stored)::type>();
    T* log_sum = sums.data<T>();
    log_sums<T>(x, g, log_sum);
    reduce_rows<T>(
        "cross_entropy", g, target, weight, reduction, ignore_index, out, total,
        [&](int64_t r, int64_t c) { return log_sum[r] - static_cast<T>(scores[position(g, r, c)]); });
  });
  return {out, total, sums};
}

// ---------------------------------------------------------------- gradients

// For each row the factor of its loss: the gradient, the class's weight and the mean's share; none for
// ignored rows. `classes` gets the class of each row.
template <class T>
std::vector<T> row_factors(const char* op, const Classes& g, const Tensor& grad, const Tensor& target,
                           const Tensor& weight, int64_t reduction, int64_t ignore_index,
                           const Tensor& total_weight, std::vector<int64_t>& classes) {
  constexpr DType compute = dtype_for<T>::value;
  const Tensor indices = contiguous(to_dtype(target, DType::Int64));
  const Tensor weights = weight.defined() ? contiguous(to_dtype(weight, compute)) : Tensor();
  const Tensor grads = contiguous(to_dtype(grad, compute));
  const bool single = grads.numel() == 1;
  FL_CHECK(single || grads.numel() == g.rows(), "[", op, "] expected a gradient for each of ", g.rows(),
           " rows, got ", grads.numel());
  const T share = reduction == kMean ? T(1) / static_cast<T>(item(total_weight).to<double>()) : T(1);
  const int64_t* t = indices.data<int64_t>();
  std::vector<T> factors(g.rows());
  classes.assign(t, t + g.rows());
  for (int64_t r = 0; r < g.rows(); ++r) {
    if (t[r] == ignore_index) {
      classes[r] = -1;
      continue;
    }
    FL_CHECK_KIND(t[r] >= 0 && t[r] < g.classes, Index, "[", op, "] expected class indices in [0, ",
                  g.classes - 1, "], got ", t[r]);
    factors[r] =
        grads.data<T>()[single ? 0 : r] * share * (weights.defined() ? weights.data<T>()[t[r]] : T(1));
  }
  return factors;
}

Tensor nll_loss_backward(const Tensor& grad, IntSpan sizes, const Tensor& target, const Tensor& weight,
                         int64_t reduction, int64_t ignore_index, const Tensor& total_weight) {
  Tensor out = empty(sizes, grad.options());
  const Classes g = check_classes("nll_loss", out, target, weight);
  if (out.is_meta() || out.numel() == 0) return out;
  dispatch_scores(out.dtype(), [&](auto stored, auto compute) {
    using S = typename decltype(stored)::type;
    using T = typename decltype(compute)::type;
    std::vector<int64_t> classes;
    const std::vector<T> factors =
        row_factors<T>("nll_loss", g, grad, target, weight, reduction, ignore_index, total_weight, classes);
    S* to = out.data<S>();
    parallel_for(g.batch, std::max<int64_t>(1, kGrain / (g.classes * g.inner)),
                 [&](int64_t begin, int64_t end) {
                   std::fill(to + begin * g.classes * g.inner, to + end * g.classes * g.inner, S(0));
                   for (int64_t r = begin * g.inner; r < end * g.inner; ++r)
                     if (classes[r] >= 0) to[position(g, r, classes[r])] = static_cast<S>(-factors[r]);
                 });
  });
  return out;
}

// softmax(scores) minus one at the row's class, times the row's factor.
template <class T>
void softmax_minus_one(const Tensor& x, const Classes& g, const T* log_sum, const T* factors,
                       const int64_t* classes, const Tensor& out) {
  const SoftmaxLoops<T>& loops = softmax_loops<T>();
  constexpr DType compute = dtype_for<T>::value;
  const bool direct = x.dtype() == compute;
  const CastFn load = cast_fn(x.dtype(), compute), store = cast_fn(compute, x.dtype());
  const int64_t item = x.itemsize(), n = g.classes * g.inner;  // elements of one batch entry
  parallel_for(
      g.batch, std::max<int64_t>(1, 4096 / std::max<int64_t>(n, 1)), [&](int64_t begin, int64_t end) {
        std::vector<T> staged(direct ? 0 : n);
        for (int64_t b = begin; b < end; ++b) {
          const T* from = direct ? x.data<T>() + b * n : staged.data();
          T* to = direct ? out.data<T>() + b * n : staged.data();
          if (!direct)
            load(x.raw() + b * n * item, item, reinterpret_cast<char*>(staged.data()), sizeof(T), n);
          if (g.inner == 1)
            loops.scaled_rows(from, log_sum + b, factors + b, to, 1, n);
          else
            loops.scaled_columns(from, log_sum + b * g.inner, factors + b * g.inner, to, g.inner, g.classes,
                                 g.inner);
          for (int64_t i = 0; i < g.inner; ++i) {
            const int64_t c = classes[b * g.inner + i];
            if (c >= 0) to[c * g.inner + i] -= factors[b * g.inner + i];
          }
          if (!direct)
            store(reinterpret_cast<char*>(staged.data()), sizeof(T), out.raw() + b * n * item, item, n);
        }
      });
}

Tensor cross_entropy_backward(const Tensor& grad, const Tensor& self, const Tensor& target,
                              const Tensor& weight, int64_t reduction, int64_t ignore_index,
                              const Tensor& total_weight, const Tensor& log_sums) {
  const Classes g = check_classes("cross_entropy", self, target, weight);
  Tensor out = empty(self.sizes(), self.options());
  if (self.is_meta() || self.numel() == 0) return out;
  const Tensor x = contiguous(self);
  dispatch_float(self.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    std::vector<int64_t> classes;
    const std::vector<T> factors = row_factors<T>("cross_entropy", g, grad, target, weight, reduction,
                                                  ignore_index, total_weight, classes);
    const Tensor sums = contiguous(to_dtype(log_sums, dtype_for<T>::value));
    FL_CHECK(sums.numel() == g.rows(), "[cross_entropy] expected ", g.rows(), " sums, got ", sums.numel());
    softmax_minus_one<T>(x, g, sums.data<T>(), factors.data(), classes.data(), out);
  });
  return out;
}

FL_KERNEL("_nll_loss_backward", nll_loss_backward, kCpu);
FL_KERNEL("_cross_entropy_backward", cross_entropy_backward, kCpu);

FL_KERNEL("_nll_loss_forward", nll_loss, kCpu);
FL_KERNEL("_cross_entropy_forward", cross_entropy, kCpu);

}  // namespace
}  // namespace fl
