// Gradients of layer, RMS, group and batch normalisation from the statistics that the forward kernels return.
#include "cpu/normalization/normalization_backward.h"

#include <algorithm>

#include "core/parallel.h"
#include "cpu/engine/arch.h"
#include "cpu/engine/cast.h"
#include "dispatch/kernel.h"
#include "ops/layout.h"

namespace fl {

FL_DECLARE_ARCH(const NormGradientTable, norm_gradient_table);

static const NormGradientLoops& norm_gradient_loops(DType t) {
  const NormGradientTable& table = picked_norm_gradient_table();
  return t == DType::Double ? table.d : t == DType::BFloat16 ? table.b : t == DType::Half ? table.h : table.f;
}

namespace {

constexpr int64_t kWork = 16384;  // elements worth a thread

using Three = std::tuple<Tensor, Tensor, Tensor>;

// A small tensor's numbers.
std::vector<double> numbers(const Tensor& t) {
  const Tensor wide = contiguous(to_dtype(t, DType::Double));
  return {wide.data<double>(), wide.data<double>() + wide.numel()};
}
void fill_from(const Tensor& out, const std::vector<double>& values) {
  Tensor wide = empty(out.sizes(), {DType::Double, Device{}});
  std::copy(values.begin(), values.end(), wide.data<double>());
  copy_into(out, wide);
}
void add_to(std::vector<double>& total, const std::vector<double>& part) {
  for (size_t i = 0; i < part.size(); ++i) total[i] += part[i];
}

void check_gradient(const char* op, const Tensor& grad, const Tensor& input, const std::vector<bool>& mask) {
  FL_CHECK_KIND(is_floating(input.dtype()), NotImplemented, "[", op,
                "] expected a floating point tensor, got ", name_of(input.dtype()));
  FL_CHECK(grad.sizes() == input.sizes(), "[", op, "] expected a gradient of shape ", input.sizes(), ", got ",
           grad.sizes());
  FL_CHECK(mask.size() == 3, "[", op, "] expected a mask of three, got ", mask.size());
}

// Calls f(thread, begin, end) with one range of rows for each thread.
template <class F>
void by_threads(int64_t rows, int64_t width, const F& f) {
  const int64_t most = std::max<int64_t>(1, rows * width / kWork);
  const int64_t threads = std::min<int64_t>({num_threads(), most, std::max<int64_t>(rows, 1)});
  parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) f(t, rows * t / threads, rows * (t + 1) / threads);
  });
}

// ---------------------------------------------------------------- layer and RMS normalisation

Three layer_norm_backward(const Tensor& grad, const Tensor& input, const Tensor& mean, const Tensor& rstd,
                          const Tensor& weight, int64_t ndim, std::vector<bool> mask) {
  check_gradient("layer_norm", grad, input, mask);
  FL_CHECK(ndim > 0 && ndim <= input.dim(), "[layer_norm] expected 1 to ", input.dim(),
           " normalised dimensions, got ", ndim);
  Dims shape;
  int64_t rows = 1, n = 1;
  for (int64_t d = 0; d < input.dim(); ++d) {
    const bool inside = d >= input.dim() - ndim;
    (inside ? n : rows) *= input.size(d);
    if (inside) shape.push_back(input.size(d));
  }
  const Options parameters{weight.defined() ? weight.dtype() : rstd.dtype(), input.device()};
  Tensor grad_input = mask[0] ? empty(input.sizes(), input.options()) : empty({0}, input.options());
  Tensor grad_weight = mask[1] ? empty(shape, parameters) : empty({0}, parameters);
  Tensor grad_bias = mask[2] ? empty(shape, parameters) : empty({0}, parameters);
  if (input.is_meta()) return {grad_input, grad_weight, grad_bias};
  FL_CHECK(rstd.numel() == rows && (!mean.defined() || mean.numel() == rows),
           "[layer_norm] expected statistics of ", rows, " rows, got ", rstd.numel());
  const Tensor g = contiguous(to_dtype(grad, input.dtype())), x = contiguous(input);
  const DType compute = compute_of(input.dtype());
  const Tensor w = weight.defined() ? contiguous(to_dtype(weight, compute)) : Tensor();
  const std::vector<double> means = mean.defined() ? numbers(mean) : std::vector<double>(),
                            scales = numbers(rstd);
  const NormGradientLoops& loops = norm_gradient_loops(input.dtype());
  const int64_t item = input.itemsize();
  const size_t most = static_cast<size_t>(std::max(1, num_threads()));
  std::vector<std::vector<double>> weight_sums(most), bias_sums(most);
  if (n > 0)
    by_threads(rows, n, [&](int64_t t, int64_t begin, int64_t end) {
      if (mask[1]) weight_sums[t].resize(n);
      if (mask[2]) bias_sums[t].resize(n);
      loops.layer_rows(g.raw() + begin * n * item, x.raw() + begin * n * item,
                       mask[0] ? grad_input.raw() + begin * n * item : nullptr, end - begin, n,
                       w.defined() ? w.raw() : nullptr, mean.defined() ? means.data() + begin : nullptr,
                       scales.data() + begin, mask[1] ? weight_sums[t].data() : nullptr,
                       mask[2] ? bias_sums[t].data() : nullptr);
    });
  const auto total = [&](const Tensor& out, const std::vector<std::vector<double>>& parts) {
    std::vector<double> sum(n);
    for (const auto& part : parts) add_to(sum, part);
    fill_from(out, sum);
  };
  if (mask[1]) total(grad_weight, weight_sums);
  if (mask[2]) total(grad_bias, bias_sums);
  return {grad_input, grad_weight, grad_bias};
}

// ---------------------------------------------------------------- channels

// (batch, channels, spatial) in memory, or channels innermost.
struct Channels {
  int64_t batch, channels, spatial;
  bool last;
};

// `t` laid out as `like`, in its dtype.
Tensor laid_out(const Tensor& t, const Tensor& like) {
  if (t.dtype() == like.dtype() && t.strides() == like.strides()) return t;
  Tensor out = empty_like(like, like.dtype());
  copy_into(out, t);
  return out;
}

Tensor staged(const std::vector<double>& values, DType compute) {
  Tensor out = empty({static_cast<int64_t>(values.size())}, {compute, Device{}});
  fill_from(out, values);
  return out;
}

// Sums of the gradient of each channel, and of its products with the centred input.
struct ChannelSums {
  std::vector<double> sums, products;
};
ChannelSums channel_sums(const Tensor& g, const Tensor& x, const Channels& at,
                         const std::vector<double>& means) {
  ChannelSums total{std::vector<double>(at.channels), std::vector<double>(at.channels)};
  if (x.numel() == 0) return total;
  const NormGradientLoops& loops = norm_gradient_loops(x.dtype());
  const int64_t item = x.itemsize(), channels = at.channels, spatial = at.spatial;
  if (at.last) {
    const size_t most = static_cast<size_t>(std::max(1, num_threads()));
    std::vector<std::vector<double>> parts(most), product_parts(most);
    by_threads(at.batch * spatial, channels, [&](int64_t t, int64_t begin, int64_t end) {
      parts[t].resize(channels);
      product_parts[t].resize(channels);
      const int64_t from = begin * channels * item;
      loops.channel_sums(g.raw() + from, x.raw() + from, end - begin, channels, means.data(), parts[t].data(),
                         product_parts[t].data());
    });
    for (const auto& part : parts) add_to(total.sums, part);
    for (const auto& part : product_parts) add_to(total.products, part);
    return total;
  }
  const int64_t grain = std::max<int64_t>(1, kWork / std::max<int64_t>(at.batch * spatial, 1));
  parallel_for(channels, grain, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const int64_t from = c * spatial * item;
      loops.sums(g.raw() + from, x.raw() + from, at.batch, channels * spatial, spatial, means[c],
                 &total.sums[c], &total.products[c]);
    }
  });
  return total;
}

// to = a * g + b * (x - mean) + c, with factors for each channel.
void channel_gradient(const Tensor& g, const Tensor& x, const Tensor& to, const Channels& at,
                      const std::vector<double>& means, const std::vector<double>& a,
                      const std::vector<double>& b, const std::vector<double>& c) {
  const NormGradientLoops& loops = norm_gradient_loops(x.dtype());
  const int64_t item = x.itemsize(), channels = at.channels, spatial = at.spatial;
  if (at.last) {
    const DType compute = compute_of(x.dtype());
    const Tensor centre = staged(means, compute), ta = staged(a, compute), tb = staged(b, compute),
                 tc = staged(c, compute);
    parallel_for(at.batch * spatial, std::max<int64_t>(1, kWork / std::max<int64_t>(channels, 1)),
                 [&](int64_t begin, int64_t end) {
                   const int64_t from = begin * channels * item;
                   loops.channel_gradient(g.raw() + from, x.raw() + from, to.raw() + from, end - begin,
                                          channels, centre.raw(), ta.raw(), tb.raw(), tc.raw());
                 });
    return;
  }
  parallel_for(at.batch * channels, std::max<int64_t>(1, kWork / std::max<int64_t>(spatial, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t p = begin; p < end; ++p) {
                   const int64_t k = p % channels, from = p * spatial * item;
                   loops.gradient(g.raw() + from, x.raw() + from, to.raw() + from, spatial, means[k], a[k],
                                  b[k], c[k]);
                 }
               });
}

Three batch_norm_backward(const Tensor& grad, const Tensor& input, const Tensor& mean, const Tensor& rstd,
                          const Tensor& weight, bool training, std::vector<bool> mask) {
  check_gradient("batch_norm", grad, input, mask);
  FL_CHECK(input.dim() >= 2, "[batch_norm] expected at least 2 dimensions, got ", input.dim());
  const int64_t channels = input.size(1);
  FL_CHECK(input.is_meta() || (mean.numel() == channels && rstd.numel() == channels),
           "[batch_norm] expected statistics of ", channels, " channels, got ", mean.numel(), " and ",
           rstd.numel());
  const bool last = prefers_channels_last(input);
  const Options parameters{weight.defined() ? weight.dtype() : input.dtype(), input.device()};
  Tensor grad_input =
      !mask[0] ? empty({0}, input.options()) : empty_laid(input.sizes(), last, input.options());
  Tensor grad_weight = mask[1] ? empty({channels}, parameters) : empty({0}, parameters);
  Tensor grad_bias = mask[2] ? empty({channels}, parameters) : empty({0}, parameters);
  if (input.is_meta()) return {grad_input, grad_weight, grad_bias};
  const int64_t plane = input.size(0) * channels, spatial = plane ? input.numel() / plane : 0;
  const Tensor x = laid(input, last), g = laid_out(grad, x);
  const Channels at{input.size(0), channels, spatial, last || spatial == 1};
  const std::vector<double> means = numbers(mean), scales = numbers(rstd),
                            weights = weight.defined() ? numbers(weight) : std::vector<double>(channels, 1);
  const auto [sums, products] = channel_sums(g, x, at, means);
  if (mask[1]) {
    std::vector<double> scaled(channels);
    for (int64_t c = 0; c < channels; ++c) scaled[c] = products[c] * scales[c];
    fill_from(grad_weight, scaled);
  }
  if (mask[2]) fill_from(grad_bias, sums);
  if (!mask[0] || input.numel() == 0) return {grad_input, grad_weight, grad_bias};
  const double count = static_cast<double>(at.batch * spatial);
  std::vector<double> a(channels), b(channels), c(channels);
  for (int64_t k = 0; k < channels; ++k) {
    a[k] = weights[k] * scales[k];
    if (!training) continue;
    b[k] = -a[k] * scales[k] * scales[k] * products[k] / count;
    c[k] = -a[k] * sums[k] / count;
  }
  channel_gradient(g, x, grad_input, at, means, a, b, c);
  return {grad_input, grad_weight, grad_bias};
}

Three group_norm_backward(const Tensor& grad, const Tensor& input, const Tensor& mean, const Tensor& rstd,
                          const Tensor& weight, int64_t batch, int64_t channels, int64_t spatial,
                          int64_t groups, std::vector<bool> mask) {
  check_gradient("group_norm", grad, input, mask);
  FL_CHECK(groups > 0 && channels % groups == 0 && input.numel() == batch * channels * spatial,
           "[group_norm] expected N * C * HxW elements and groups that divide C, got ", input.sizes(),
           " and ", groups, " groups");
  const Options parameters{weight.defined() ? weight.dtype() : input.dtype(), input.device()};
  Tensor grad_input = mask[0] ? empty(input.sizes(), input.options()) : empty({0}, input.options());
  Tensor grad_weight = mask[1] ? empty({channels}, parameters) : empty({0}, parameters);
  Tensor grad_bias = mask[2] ? empty({channels}, parameters) : empty({0}, parameters);
  if (input.is_meta()) return {grad_input, grad_weight, grad_bias};
  FL_CHECK(mean.numel() == batch * groups && rstd.numel() == batch * groups,
           "[group_norm] expected statistics of ", batch * groups, " groups, got ", mean.numel());
  const Tensor x = contiguous(input), g = contiguous(to_dtype(grad, input.dtype()));
  const NormGradientLoops& loops = norm_gradient_loops(input.dtype());
  const int64_t item = input.itemsize(), members = channels / groups;
  const std::vector<double> means = numbers(mean), scales = numbers(rstd),
                            weights = weight.defined() ? numbers(weight) : std::vector<double>(channels, 1);
  std::vector<double> sums(batch * channels), products(batch * channels);
  const double count = static_cast<double>(members * spatial);
  parallel_for(batch * groups, std::max<int64_t>(1, kWork / std::max<int64_t>(members * spatial, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t k = begin; k < end; ++k) {
                   const int64_t plane = k * members, channel = k % groups * members;
                   double first = 0, second = 0;
                   for (int64_t m = 0; m < members; ++m) {
                     const int64_t from = (plane + m) * spatial * item;
                     loops.sums(g.raw() + from, x.raw() + from, 1, 0, spatial, means[k], &sums[plane + m],
                                &products[plane + m]);
                     first += weights[channel + m] * sums[plane + m];
                     second += weights[channel + m] * products[plane + m];
                   }
                   if (!mask[0]) continue;
                   const double s = scales[k], slope = -s * s * s * second / count,
                                shift = -s * first / count;
                   for (int64_t m = 0; m < members; ++m) {
                     const int64_t from = (plane + m) * spatial * item;
                     loops.gradient(g.raw() + from, x.raw() + from, grad_input.raw() + from, spatial,
                                    means[k], s * weights[channel + m], slope, shift);
                   }
                 }
               });
  std::vector<double> weight_total(channels), bias_total(channels);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t c = 0; c < channels; ++c) {
      weight_total[c] += products[b * channels + c] * scales[b * groups + c / members];
      bias_total[c] += sums[b * channels + c];
    }
  if (mask[1]) fill_from(grad_weight, weight_total);
  if (mask[2]) fill_from(grad_bias, bias_total);
  return {grad_input, grad_weight, grad_bias};
}

FL_KERNEL("_layer_norm_backward", layer_norm_backward, kCpu);
FL_KERNEL("_group_norm_backward", group_norm_backward, kCpu);
FL_KERNEL("_batch_norm_backward", batch_norm_backward, kCpu);

}  // namespace
}  // namespace fl
