// Convolutions of float as one matrix product over all positions of the batch.
//
// Each output position becomes a row: the window of the input under it, in the order of the weights
// (channel, kernel element).  Weights are therefore used, and their gradient is made, where they lie.
// That is what wins where planes are small and weights large: primitives spend their time there on
// rearranging weights, and fill their registers along rows that are only some elements wide.
#include <vector>

#include "cpu/convolution/passes.h"
#include "cpu/gemm/gemm.h"

namespace fl::cpu::convolutions {
namespace {

// dst[c * taps + t] = src[t][c]
template <int TAPS>
void interleave(const float* const* src, int64_t channels, int64_t, float* dst) {
  for (int64_t c = 0; c < channels; ++c, dst += TAPS)
    for (int t = 0; t < TAPS; ++t) dst[t] = src[t][c];
}

void interleave_any(const float* const* src, int64_t channels, int64_t taps, float* dst) {
  for (int64_t t = 0; t < taps; ++t)
    for (int64_t c = 0; c < channels; ++c) dst[c * taps + t] = src[t][c];
}

// The walk between positions of the output and of the input, widened to three spatial dimensions.
class Windows {
 public:
  explicit Windows(const ConvArgs& g) : channels_(g.in_channels) {
    const int missing = 3 - g.ndim;
    for (int i = 0; i < 3; ++i) {
      const bool real = i >= missing;
      const int j = i - missing;
      in_[i] = real ? g.in_size[j] : 1;
      out_[i] = real ? g.out_size[j] : 1;
      kernel_[i] = real ? g.kernel[j] : 1;
      stride_[i] = real ? g.stride[j] : 1;
      dilation_[i] = real ? g.dilation[j] : 1;
      padding_[i] = real ? g.padding[j] : 0;
    }
    taps_ = kernel_[0] * kernel_[1] * kernel_[2];
  }

  int64_t taps() const { return taps_; }
  int64_t in_positions() const { return in_[0] * in_[1] * in_[2]; }
  int64_t out_positions() const { return out_[0] * out_[1] * out_[2]; }

  // Rows of the product are the input itself.
  bool is_identity() const {
    for (int i = 0; i < 3; ++i)
      if (kernel_[i] != 1 || stride_[i] != 1 || padding_[i] != 0 || in_[i] != out_[i]) return false;
    return true;
  }

  // rows[p] = the windows of `images` images' output positions.
  void unfold(const float* input, int64_t images, float* rows) const {
    const std::vector<float> zeros(static_cast<size_t>(channels_));
    const int64_t width = channels_ * taps_;
    const auto copy = taps_ == 9 ? interleave<9> : taps_ == 1 ? interleave<1> : interleave_any;
    parallel_for(images * out_positions(), std::max<int64_t>(1, kGrain / width), [&](int64_t b, int64_t e) {
      std::vector<const float*> windows(static_cast<size_t>(taps_));
      for (int64_t p = b; p < e; ++p) {
        const int64_t x = p % out_[2], y = p / out_[2] % out_[1], z = p / (out_[2] * out_[1]) % out_[0];
        const float* image = input + p / out_positions() * in_positions() * channels_;
        int64_t t = 0;
        for (int64_t kz = 0; kz < kernel_[0]; ++kz) {
          const int64_t iz = z * stride_[0] + kz * dilation_[0] - padding_[0];
          for (int64_t ky = 0; ky < kernel_[1]; ++ky) {
            const int64_t iy = y * stride_[1] + ky * dilation_[1] - padding_[1];
            for (int64_t kx = 0; kx < kernel_[2]; ++kx, ++t) {
              const int64_t ix = x * stride_[2] + kx * dilation_[2] - padding_[2];
              const bool inside = iz >= 0 && iz < in_[0] && iy >= 0 && iy < in_[1] && ix >= 0 && ix < in_[2];
              windows[t] = inside ? image + ((iz * in_[1] + iy) * in_[2] + ix) * channels_ : zeros.data();
            }
          }
        }
        copy(windows.data(), channels_, taps_, rows + p * width);
      }
    });
  }

  // The reverse: each element of the input is the sum of what windows hold of it, plus the bias if any.
  void fold(const float* rows, int64_t images, const float* bias, float* input) const {
    const int64_t width = channels_ * taps_;
    parallel_for(images * in_positions(), std::max<int64_t>(1, kGrain / width), [&](int64_t b, int64_t e) {
      std::vector<const float*> sources(static_cast<size_t>(taps_));
      for (int64_t p = b; p < e; ++p) {
        const int64_t at[3] = {p / (in_[2] * in_[1]) % in_[0], p / in_[2] % in_[1], p % in_[2]};
        const float* image = rows + p / in_positions() * out_positions() * width;
        int64_t count = 0;
        for (int64_t kz = 0; kz < kernel_[0]; ++kz) {
          const int64_t oz = window_of(at[0], kz, 0);
          for (int64_t ky = 0; oz >= 0 && ky < kernel_[1]; ++ky) {
            const int64_t oy = window_of(at[1], ky, 1);
            for (int64_t kx = 0; oy >= 0 && kx < kernel_[2]; ++kx) {
              const int64_t ox = window_of(at[2], kx, 2);
              if (ox >= 0)
                sources[count++] = image + ((oz * out_[1] + oy) * out_[2] + ox) * width +
                                   (kz * kernel_[1] + ky) * kernel_[2] + kx;
            }
          }
        }
        float* to = input + p * channels_;
        for (int64_t c = 0; c < channels_; ++c) {
          float sum = bias ? bias[c] : 0.0f;
          for (int64_t i = 0; i < count; ++i) sum += sources[i][c * taps_];
          to[c] = sum;
        }
      }
    });
  }

 private:
  // The output coordinate that sees input coordinate `at` through kernel element k, or -1.
  int64_t window_of(int64_t at, int64_t k, int d) const {
    const int64_t from = at + padding_[d] - k * dilation_[d];
    return from >= 0 && from % stride_[d] == 0 && from / stride_[d] < out_[d] ? from / stride_[d] : -1;
  }

  int64_t channels_, taps_;
  int64_t in_[3], out_[3], kernel_[3], stride_[3], dilation_[3], padding_[3];
};

// grad_bias[c] = the sum of grad_output over rows; partial sums of a block of rows keep rounding small.
void sum_rows(const float* grad, int64_t rows, int64_t channels, float* out) {
  std::vector<float> part(static_cast<size_t>(channels));
  std::fill_n(out, channels, 0.0f);
  for (int64_t r0 = 0; r0 < rows; r0 += 64) {
    std::fill(part.begin(), part.end(), 0.0f);
    for (int64_t r = r0; r < std::min(rows, r0 + 64); ++r)
      for (int64_t c = 0; c < channels; ++c) part[c] += grad[r * channels + c];
    for (int64_t c = 0; c < channels; ++c) out[c] += part[c];
  }
}

constexpr int64_t kMostFloats = int64_t(4) << 20;  // of an unfolded copy, except when one image needs more

}  // namespace

void run_product(const ConvArgs& g, Pass pass) {
  const Windows windows(g);
  const int64_t inside = windows.in_positions(), outside = windows.out_positions();
  const int64_t depth = g.in_channels * windows.taps(), out = g.out_channels;
  const bool identity = windows.is_identity();
  const int64_t step =
      identity ? g.batch : std::min(g.batch, std::max<int64_t>(1, kMostFloats / (outside * depth)));
  const Scratch scratch(2, identity ? 0 : size_t(step * outside * depth) * sizeof(float));
  const float* weight = static_cast<const float*>(g.weight);
  const float* bias = static_cast<const float*>(g.bias);
  for (int64_t n = 0; n < g.batch; n += step) {
    const int64_t images = std::min(step, g.batch - n), rows = images * outside;
    const float* input = static_cast<const float*>(g.input) + n * inside * g.in_channels;
    const float* grad_output = static_cast<const float*>(g.grad_output) + n * outside * out;
    float* grad_input = static_cast<float*>(g.grad_input) + n * inside * g.in_channels;
    float* unfolded = scratch.as<float>();
    if (pass != Pass::BackwardData && !identity) windows.unfold(input, images, unfolded);
    GemmArgs p;
    switch (pass) {
      case Pass::Forward:
        p.m = rows, p.n = out, p.k = depth;
        p.a = identity ? input : unfolded, p.a_row = depth;
        p.b = weight, p.b_row = 1, p.b_col = depth;
        p.c = static_cast<float*>(g.output) + n * outside * out, p.c_row = out;
        p.bias = bias;
        break;
      case Pass::BackwardData:
        p.m = rows, p.n = depth, p.k = out;
        p.a = grad_output, p.a_row = out;
        p.b = weight, p.b_row = depth;
        p.c = identity ? grad_input : unfolded, p.c_row = depth;
        p.bias = identity ? bias : nullptr;
        break;
      case Pass::BackwardWeights:
        p.m = out, p.n = depth, p.k = rows;
        p.a = grad_output, p.a_row = 1, p.a_col = out;
        p.b = identity ? input : unfolded, p.b_row = depth;
        p.c = g.grad_weight, p.c_row = depth;
        p.beta = n > 0 ? 1 : 0;
        break;
    }
    gemm(p);
    if (pass == Pass::BackwardData && !identity) windows.fold(unfolded, images, bias, grad_input);
  }
  if (pass == Pass::BackwardWeights && g.grad_bias)
    sum_rows(static_cast<const float*>(g.grad_output), g.batch * outside, out,
             static_cast<float*>(g.grad_bias));
}

// ---- kernels of one element ------------------------------------------------------------------------

bool is_pointwise(const ConvArgs& g) {
  for (int d = 0; d < g.ndim; ++d)
    if (g.kernel[d] != 1 || g.stride[d] != 1 || g.padding[d] != 0 || g.in_size[d] != g.out_size[d])
      return false;
  return g.groups == 1;
}

namespace {

// Fills rows of `length` with their channel's bias.
void spread_bias(const float* bias, int64_t batch, int64_t channels, int64_t length, float* to) {
  parallel_for(batch * channels, std::max<int64_t>(1, kGrain / length), [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) std::fill_n(to + r * length, length, bias[r % channels]);
  });
}

// grad_bias[c] = the sum of channel c's planes, in lanes, which keeps rounding small as well.
void sum_planes(const float* grad, int64_t batch, int64_t channels, int64_t length, float* out) {
  constexpr int64_t lanes = 16;
  parallel_for(channels, std::max<int64_t>(1, kGrain / (batch * length)), [&](int64_t b, int64_t e) {
    for (int64_t c = b; c < e; ++c) {
      float part[lanes] = {}, sum = 0;
      for (int64_t n = 0; n < batch; ++n) {
        const float* plane = grad + (n * channels + c) * length;
        int64_t i = 0;
        for (; i + lanes <= length; i += lanes)
          for (int64_t l = 0; l < lanes; ++l) part[l] += plane[i + l];
        for (; i < length; ++i) sum += plane[i];
      }
      for (int64_t l = 0; l < lanes; ++l) sum += part[l];
      out[c] = sum;
    }
  });
}

}  // namespace

void run_pointwise(const ConvArgs& g, Pass pass) {
  const int64_t length = volume(g.in_size, g.ndim), in = g.in_channels, out = g.out_channels;
  const float* bias = static_cast<const float*>(g.bias);
  GemmArgs p;
  p.batch = g.batch, p.n = length;
  p.a = g.weight;
  switch (pass) {
    case Pass::Forward:
      p.m = out, p.k = in, p.a_row = in;
      p.b = g.input, p.b_batch = in * length, p.b_row = length;
      p.c = g.output, p.c_batch = out * length, p.c_row = length;
      break;
    case Pass::BackwardData:
      p.m = in, p.k = out, p.a_row = 1, p.a_col = in;
      p.b = g.grad_output, p.b_batch = out * length, p.b_row = length;
      p.c = g.grad_input, p.c_batch = in * length, p.c_row = length;
      break;
    case Pass::BackwardWeights:
      if (g.grad_bias)
        sum_planes(static_cast<const float*>(g.grad_output), g.batch, out, length,
                   static_cast<float*>(g.grad_bias));
      if (!g.grad_weight) return;
      p.batch = 1, p.m = out, p.n = in, p.k = length;
      p.a_row = length;
      p.b_row = 1, p.b_col = length;
      p.c = g.grad_weight, p.c_row = in;
      for (int64_t n = 0; n < g.batch; ++n) {
        p.a = static_cast<const float*>(g.grad_output) + n * out * length;
        p.b = static_cast<const float*>(g.input) + n * in * length;
        p.beta = n > 0 ? 1 : 0;
        gemm(p);
      }
      return;
  }
  if (bias) {
    spread_bias(bias, g.batch, p.m, length, static_cast<float*>(p.c));
    p.beta = 1;
  }
  gemm(p);
}

// The rule is measured, on AVX-512 (docs/notes/decisions.md): the product wins where rows of the output are
// narrow, and where there are too few positions for rearranged weights to pay; in the gradient of the
// weights also with steps, for which the primitive has no good loop.
bool prefers_product(const ConvArgs& g, Pass pass) {
  if (g.groups != 1 || g.out_channels < 32 || g.in_channels < 32) return false;
  const int64_t rows = g.batch * volume(g.out_size, g.ndim);
  if (g.out_size[g.ndim - 1] <= 4) return true;
  if (pass != Pass::BackwardWeights) return 2 * rows <= g.out_channels;
  bool steps = false;
  for (int d = 0; d < g.ndim; ++d) steps = steps || (g.stride[d] > 1 && g.kernel[d] > 1);
  return steps || rows <= 2 * g.out_channels;
}

}  // namespace fl::cpu::convolutions
