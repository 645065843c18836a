// Layer, RMS, group and batch normalisation. Each returns the statistics that its derivative needs.
#include "cpu/normalization/normalization.h"

#include <cmath>

#include "core/parallel.h"
#include "cpu/engine/arch.h"
#include "cpu/engine/cast.h"
#include "dispatch/kernel.h"
#include "ops/layout.h"

namespace fl {

FL_DECLARE_ARCH(const NormTable, norm_table);

static const NormLoops& norm_loops(DType t) {
  const NormTable& table = picked_norm_table();
  return t == DType::Double ? table.d : t == DType::BFloat16 ? table.b : t == DType::Half ? table.h : table.f;
}

namespace {

constexpr int64_t kWork = 16384;  // elements worth a thread

void check_floating(const char* op, const Tensor& t) {
  FL_CHECK_KIND(is_floating(t.dtype()), NotImplemented, "[", op, "] expected a floating point tensor, got ",
                name_of(t.dtype()));
}

// Parameters may be wider than a reduced input; statistics are then in the parameters' dtype.
DType parameter_dtype(const char* op, const Tensor& input, std::initializer_list<const Tensor*> parameters) {
  DType t = input.dtype();
  for (const Tensor* p : parameters) {
    if (!p->defined() || p->dtype() == input.dtype()) continue;
    FL_CHECK(is_reduced(input.dtype()) && p->dtype() == DType::Float, "[", op,
             "] expected parameters of dtype ", name_of(input.dtype()), ", got ", name_of(p->dtype()));
    t = DType::Float;
  }
  return t;
}

// A parameter as a contiguous run of the compute type; undefined stays undefined.
Tensor parameter(const Tensor& t, DType input) {
  if (!t.defined()) return t;
  return contiguous(to_dtype(t, compute_of(input)));
}
const void* pointer(const Tensor& t) {
  return t.defined() ? t.raw() : nullptr;
}

void store(const Tensor& out, int64_t i, double x) {
  switch (out.dtype()) {
    case DType::Float:
      out.data<float>()[i] = static_cast<float>(x);
      break;
    case DType::Double:
      out.data<double>()[i] = x;
      break;
    case DType::BFloat16:
      out.data<BFloat16>()[i] = static_cast<float>(x);
      break;
    default:
      out.data<Half>()[i] = static_cast<float>(x);
  }
}
void store(const Tensor& out, int64_t at, const std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i) store(out, at + static_cast<int64_t>(i), values[i]);
}
double load(const Tensor& t, int64_t i) {
  return compute_of(t.dtype()) == DType::Double ? t.data<double>()[i]
                                                : static_cast<double>(t.data<float>()[i]);
}

// ---------------------------------------------------------------- layer and RMS normalisation

struct Rows {
  int64_t rows = 1, n = 1;
  Dims statistics;  // shape of the mean
};

Rows check_rows(const char* op, const Tensor& input, IntSpan shape, const Tensor& weight,
                const Tensor& bias) {
  FL_CHECK(!shape.empty(), "[", op, "] expected a normalized_shape of at least one dimension, got ", shape);
  const int64_t lead = input.dim() - static_cast<int64_t>(shape.size());
  FL_CHECK(lead >= 0 && IntSpan(input.sizes().data() + lead, shape.size()) == shape, "[", op,
           "] expected an input that ends in ", shape, ", got ", input.sizes());
  FL_CHECK(!weight.defined() || weight.sizes() == shape, "[", op, "] expected a weight of shape ", shape,
           ", got ", weight.defined() ? weight.sizes() : shape);
  FL_CHECK(!bias.defined() || bias.sizes() == shape, "[", op, "] expected a bias of shape ", shape, ", got ",
           bias.defined() ? bias.sizes() : shape);
  Rows r;
  for (int64_t d = 0; d < input.dim(); ++d) {
    (d < lead ? r.rows : r.n) *= input.size(d);
    r.statistics.push_back(d < lead ? input.size(d) : 1);
  }
  return r;
}

std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& input, IntSpan shape, const Tensor& weight,
                                              const Tensor& bias, double eps) {
  const Rows r = check_rows("layer_norm", input, shape, weight, bias);
  check_floating("layer_norm", input);
  DType statistics = parameter_dtype("layer_norm", input, {&weight, &bias});
  if (input.is_meta()) statistics = compute_of(statistics);  // as PyTorch answers there
  Tensor out = empty(input.sizes(), input.options());
  Tensor mean = empty(r.statistics, {statistics, input.device()}),
         rstd = empty(r.statistics, {statistics, input.device()});
  if (input.is_meta() || r.rows == 0) return {out, mean, rstd};
  const Tensor x = contiguous(input), w = parameter(weight, input.dtype()),
               b = parameter(bias, input.dtype());
  const NormLoops& loops = norm_loops(input.dtype());
  const int64_t item = input.itemsize(), n = r.n;
  parallel_for(r.rows, std::max<int64_t>(1, kWork / std::max<int64_t>(n, 1)),
               [&](int64_t begin, int64_t end) {
                 std::vector<double> means(end - begin), rstds(end - begin);
                 loops.layer_rows(x.raw() + begin * n * item, out.raw() + begin * n * item, end - begin, n,
                                  pointer(w), pointer(b), eps, means.data(), rstds.data());
                 store(mean, begin, means);
                 store(rstd, begin, rstds);
               });
  return {out, mean, rstd};
}

std::tuple<Tensor, Tensor> rms_norm(const Tensor& input, IntSpan shape, const Tensor& weight,
                                    std::optional<double> eps) {
  const Rows r = check_rows("rms_norm", input, shape, weight, Tensor());
  check_floating("rms_norm", input);
  const DType compute = compute_of(input.dtype());
  Tensor out = empty(input.sizes(), input.options());
  Tensor rstd = empty(r.statistics, {compute, input.device()});
  if (input.is_meta() || r.rows == 0) return {out, rstd};
  const double epsilon =
      eps.value_or(compute == DType::Double ? std::numeric_limits<double>::epsilon()
                                            : static_cast<double>(std::numeric_limits<float>::epsilon()));
  const Tensor x = contiguous(input), w = parameter(weight, input.dtype());
  const NormLoops& loops = norm_loops(input.dtype());
  const int64_t item = input.itemsize(), n = r.n;
  parallel_for(r.rows, std::max<int64_t>(1, kWork / std::max<int64_t>(n, 1)),
               [&](int64_t begin, int64_t end) {
                 std::vector<double> rstds(end - begin);
                 loops.rms_rows(x.raw() + begin * n * item, out.raw() + begin * n * item, end - begin, n,
                                pointer(w), epsilon, rstds.data());
                 store(rstd, begin, rstds);
               });
  return {out, rstd};
}

// ---------------------------------------------------------------- group normalisation

std::tuple<Tensor, Tensor, Tensor> group_norm(const Tensor& input, const Tensor& weight, const Tensor& bias,
                                              int64_t batch, int64_t channels, int64_t spatial,
                                              int64_t groups, double eps) {
  FL_CHECK(groups > 0, "[group_norm] expected num_groups > 0, got ", groups);
  FL_CHECK(channels % groups == 0, "[group_norm] expected a number of channels divisible by num_groups, got ",
           channels, " and ", groups);
  FL_CHECK(!weight.defined() || (weight.dim() == 1 && weight.numel() == channels),
           "[group_norm] expected an input of as many channels as the weight has elements, got ", channels,
           " channels in shape ", input.sizes(), " and a weight of shape ",
           weight.defined() ? weight.sizes() : IntSpan());
  FL_CHECK(!bias.defined() || (bias.dim() == 1 && bias.numel() == channels),
           "[group_norm] expected a bias of ", channels, " elements, got ",
           bias.defined() ? bias.sizes() : IntSpan());
  FL_CHECK(input.numel() == batch * channels * spatial, "[group_norm] expected N * C * HxW elements, got ",
           input.sizes());
  check_floating("group_norm", input);
  const DType statistics = parameter_dtype("group_norm", input, {&weight, &bias});
  Tensor out = empty_laid(input.sizes(), prefers_channels_last(input), input.options());
  Tensor mean = empty({batch, groups}, {statistics, input.device()}),
         rstd = empty({batch, groups}, {statistics, input.device()});
  if (input.is_meta() || batch == 0) return {out, mean, rstd};
  const Tensor x = contiguous(input), w = parameter(weight, input.dtype()),
               b = parameter(bias, input.dtype());
  const Tensor y = out.is_contiguous() ? out : empty(out.sizes(), out.options());
  const NormLoops& loops = norm_loops(input.dtype());
  const int64_t item = input.itemsize(), members = channels / groups, n = members * spatial;
  parallel_for(batch * groups, std::max<int64_t>(1, kWork / std::max<int64_t>(n, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t g = begin; g < end; ++g) {
                   double m = 0, deviations = 0;
                   loops.moments(x.raw() + g * n * item, n, &m, &deviations);
                   const double s = 1 / std::sqrt(deviations / static_cast<double>(n) + eps);
                   store(mean, g, m);
                   store(rstd, g, s);
                   for (int64_t k = 0; k < members; ++k) {
                     const int64_t c = g % groups * members + k;
                     const double scale = w.defined() ? s * load(w, c) : s;
                     const double shift = (b.defined() ? load(b, c) : 0) - m * scale;
                     const int64_t at = (g * n + k * spatial) * item;
                     loops.affine(x.raw() + at, y.raw() + at, spatial, scale, shift);
                   }
                 }
               });
  if (!y.same(out)) copy_into(out, y);
  return {out, mean, rstd};
}

// ---------------------------------------------------------------- batch normalisation

// How channels lie in memory: planes of `spatial` elements, or innermost (channels last, and inputs without a
// plane).
struct Channels {
  int64_t batch, channels, spatial;
  bool last;
};

// Mean and variance (of the population) of each channel. Sums are of x - (the channel's first element),
// against cancellation.
void channel_statistics(const Tensor& x, const Channels& g, std::vector<double>& mean,
                        std::vector<double>& variance) {
  const NormLoops& loops = norm_loops(x.dtype());
  const int64_t item = x.itemsize(), count = g.batch * g.spatial;
  std::vector<double> first(g.channels), sum(g.channels), squares(g.channels);
  const Tensor firsts = to_dtype(alias(x, {g.channels}, {g.last ? 1 : g.spatial}, x.offset()), DType::Double);
  for (int64_t c = 0; c < g.channels; ++c) first[c] = load(firsts, c);
  if (g.last) {
    const int threads =
        static_cast<int>(std::min<int64_t>(num_threads(), std::max<int64_t>(1, x.numel() / kWork)));
    std::vector<std::vector<double>> sums(threads, std::vector<double>(g.channels)), parts = sums;
    parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t from = count * t / threads, to = count * (t + 1) / threads;
        loops.channel_sums(x.raw() + from * g.channels * item, to - from, g.channels, first.data(),
                           sums[t].data(), parts[t].data());
      }
    });
    for (int t = 0; t < threads; ++t)
      for (int64_t c = 0; c < g.channels; ++c) {
        sum[c] += sums[t][c];
        squares[c] += parts[t][c];
      }
  } else {
    parallel_for(g.channels, std::max<int64_t>(1, kWork / std::max<int64_t>(count, 1)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t c = begin; c < end; ++c)
                     loops.plane_sums(x.raw() + c * g.spatial * item, g.batch, g.channels * g.spatial,
                                      g.spatial, first[c], &sum[c], &squares[c]);
                 });
  }
  for (int64_t c = 0; c < g.channels; ++c) {
    const double d = sum[c] / static_cast<double>(count);
    mean[c] = first[c] + d;
    variance[c] = std::max(0.0, squares[c] / static_cast<double>(count) - d * d);
    if (std::isnan(d)) variance[c] = d;
  }
}

void channel_normalize(const Tensor& x, const Tensor& y, const Channels& g, const std::vector<double>& scale,
                       const std::vector<double>& shift) {
  const NormLoops& loops = norm_loops(x.dtype());
  const int64_t item = x.itemsize();
  if (g.last) {
    const Tensor a = empty({g.channels}, {compute_of(x.dtype()), Device{}}),
                 b = empty({g.channels}, a.options());
    store(a, 0, scale);
    store(b, 0, shift);
    parallel_for(g.batch * g.spatial, std::max<int64_t>(1, kWork / std::max<int64_t>(g.channels, 1)),
                 [&](int64_t begin, int64_t end) {
                   const int64_t at = begin * g.channels * item;
                   loops.channel_affine(x.raw() + at, y.raw() + at, end - begin, g.channels, a.raw(),
                                        b.raw());
                 });
    return;
  }
  parallel_for(g.batch * g.channels, std::max<int64_t>(1, kWork / std::max<int64_t>(g.spatial, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t p = begin; p < end; ++p) {
                   const int64_t c = p % g.channels, at = p * g.spatial * item;
                   loops.affine(x.raw() + at, y.raw() + at, g.spatial, scale[c], shift[c]);
                 }
               });
}

void check_channels(const char* name, const Tensor& t, const Tensor& input) {
  FL_CHECK(!t.defined() || t.numel() == input.size(1), "[batch_norm] expected an input of ",
           t.defined() ? t.numel() : 0, " channels for a ", name, " of as many elements, got shape ",
           input.sizes());
}

// Statistics of a batch, kept for the derivative and entered in the running ones.
void batch_statistics(const Tensor& x, const Channels& g, const Tensor& running_mean,
                      const Tensor& running_var, double momentum, double eps, const Tensor& save_mean,
                      const Tensor& save_rstd, std::vector<double>& mean, std::vector<double>& variance) {
  channel_statistics(x, g, mean, variance);
  for (int64_t c = 0; c < g.channels; ++c) {
    store(save_mean, c, mean[c]);
    store(save_rstd, c, 1 / std::sqrt(variance[c] + eps));
  }
  const auto update = [&](const Tensor& running, const std::vector<double>& fresh, double factor) {
    if (!running.defined()) return;
    const Tensor wide = contiguous(to_dtype(running, DType::Double));
    const Tensor next = empty(running.sizes(), {DType::Double, Device{}});
    for (int64_t c = 0; c < g.channels; ++c)
      next.data<double>()[c] = momentum * fresh[c] * factor + (1 - momentum) * wide.data<double>()[c];
    copy_into(running, next);
  };
  const double count = static_cast<double>(g.batch * g.spatial);
  update(running_mean, mean, 1);
  update(running_var, variance, count / (count - 1));  // running variance is that of the sample
}

// Checks what batch normalisation is given; the dtype of its statistics.
DType check_batch_norm(const Tensor& input, const Tensor& weight, const Tensor& bias,
                       const Tensor& running_mean, const Tensor& running_var) {
  FL_CHECK_KIND(input.dim() >= 2, Index, "[batch_norm] expected at least 2 dimensions, got ", input.dim());
  check_floating("batch_norm", input);
  check_channels("weight", weight, input);
  check_channels("bias", bias, input);
  check_channels("running_mean", running_mean, input);
  check_channels("running_var", running_var, input);
  const DType t = parameter_dtype("batch_norm", input, {&weight, &bias, &running_mean, &running_var});
  return input.is_meta() ? compute_of(t) : t;  // as PyTorch answers there
}

Channels channels_of(const Tensor& input) {
  const int64_t channels = input.size(1);
  const int64_t spatial = channels && input.size(0) ? input.numel() / (input.size(0) * channels) : 0;
  return {input.size(0), channels, spatial, prefers_channels_last(input) || spatial == 1};
}

// Normalising is a multiplication by these and an addition of those.
void batch_factors(const Tensor& weight, const Tensor& bias, DType dtype, double eps,
                   const std::vector<double>& mean, const std::vector<double>& variance,
                   std::vector<double>& scale, std::vector<double>& shift) {
  const Tensor w = parameter(weight, dtype), b = parameter(bias, dtype);
  for (size_t c = 0; c < mean.size(); ++c) {
    const double rstd = 1 / std::sqrt(variance[c] + eps);
    scale[c] = w.defined() ? rstd * load(w, c) : rstd;
    shift[c] = (b.defined() ? load(b, c) : 0) - mean[c] * scale[c];
  }
}

std::tuple<Tensor, Tensor, Tensor, Tensor> batch_norm_statistics(const Tensor& input, const Tensor& weight,
                                                                 const Tensor& bias,
                                                                 const Tensor& running_mean,
                                                                 const Tensor& running_var, double momentum,
                                                                 double eps) {
  const DType statistics = check_batch_norm(input, weight, bias, running_mean, running_var);
  const int64_t channels = input.size(1);
  const Options options{statistics, input.device()}, factors{compute_of(input.dtype()), input.device()};
  Tensor save_mean = empty({channels}, options), save_rstd = empty({channels}, options),
         save_scale = empty({channels}, factors), save_shift = empty({channels}, factors);
  if (input.is_meta() || channels == 0) return {save_mean, save_rstd, save_scale, save_shift};
  FL_CHECK(input.numel() > 0, "[batch_norm] expected at least one value for each channel, got ",
           input.sizes());
  std::vector<double> mean(channels), variance(channels), scale(channels), shift(channels);
  batch_statistics(laid(input, prefers_channels_last(input)), channels_of(input), running_mean, running_var,
                   momentum, eps, save_mean, save_rstd, mean, variance);
  batch_factors(weight, bias, input.dtype(), eps, mean, variance, scale, shift);
  store(save_scale, 0, scale);
  store(save_shift, 0, shift);
  return {save_mean, save_rstd, save_scale, save_shift};
}

std::tuple<Tensor, Tensor, Tensor> batch_norm(const Tensor& input, const Tensor& weight, const Tensor& bias,
                                              const Tensor& running_mean, const Tensor& running_var,
                                              bool training, double momentum, double eps) {
  FL_CHECK(training || (running_mean.defined() && running_var.defined()),
           "[batch_norm] expected running_mean and running_var in evaluation mode, got None");
  const DType statistics = check_batch_norm(input, weight, bias, running_mean, running_var);
  const int64_t channels = input.size(1);
  const bool last = prefers_channels_last(input);
  Tensor out = empty_laid(input.sizes(), last, input.options());
  const int64_t saved = training || input.is_meta() ? channels : 0;
  Tensor save_mean = empty({saved}, {statistics, input.device()}),
         save_rstd = empty({saved}, {statistics, input.device()});
  if (input.is_meta()) return {out, save_mean, save_rstd};
  FL_CHECK(!training || input.numel() > 0 || channels == 0,
           "[batch_norm] expected at least one value for each channel, got ", input.sizes());
  if (input.numel() == 0) return {out, save_mean, save_rstd};

  const Tensor x = laid(input, last);
  const Channels g = channels_of(input);
  std::vector<double> mean(channels), variance(channels), scale(channels), shift(channels);
  if (training) {
    batch_statistics(x, g, running_mean, running_var, momentum, eps, save_mean, save_rstd, mean, variance);
  } else {
    const Tensor m = contiguous(to_dtype(running_mean, DType::Double)),
                 v = contiguous(to_dtype(running_var, DType::Double));
    std::copy(m.data<double>(), m.data<double>() + channels, mean.begin());
    std::copy(v.data<double>(), v.data<double>() + channels, variance.begin());
  }
  batch_factors(weight, bias, input.dtype(), eps, mean, variance, scale, shift);
  channel_normalize(x, out, g, scale, shift);
  return {out, save_mean, save_rstd};
}

FL_KERNEL("native_layer_norm", layer_norm, kCpu);
FL_KERNEL("_fused_rms_norm", rms_norm, kCpu);
FL_KERNEL("native_group_norm", group_norm, kCpu);
FL_KERNEL("native_batch_norm", batch_norm, kCpu);
FL_KERNEL("_batch_norm_statistics", batch_norm_statistics, kCpu);

}  // namespace
}  // namespace fl
