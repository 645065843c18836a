// A 3 x 3 convolution together with what follows it in a network that is evaluated: normalisation, residual
// sum and relu. Float is in this file (see winograd.h), bfloat16 in winograd_pairs.cpp.
#include "cpu/convolution/winograd.h"

#include <algorithm>
#include <vector>

#include "cpu/convolution/passes.h"
#include "cpu/convolution/winograd_pairs.h"
#include "cpu/engine/arch.h"
#include "cpu/gemm/packed.h"
#include "dispatch/kernel.h"
#include "ops/layout.h"
#include "ops/windows.h"

namespace fl {

FL_DECLARE_ARCH(const WinogradLoops, winograd_loops);

namespace {

struct Walk {
  int64_t batch, channels, height, width;  // of the input
  int64_t out_channels, out_height, out_width;
  int64_t pad_y, pad_x;
  int64_t tiles_y, tiles_x;  // of 2 x 2 outputs, in an image

  int64_t tiles() const { return batch * tiles_y * tiles_x; }
  // Tiles that are transformed, multiplied and written at a time: few, so that they stay in the cache, but
  // not fewer than there are columns in the weights they meet.
  int64_t block() const { return std::clamp<int64_t>(channels, 64, 256); }
};

constexpr int64_t kPad =
    80;  // floats between the matrices of two products, which must not share lines of the cache

// to[p][in][out] are the weights of product p.
void transform(const float* weight, int64_t out, int64_t in, float* to) {
  parallel_for(in, std::max<int64_t>(1, kGrain / (16 * out)), [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i)
      picked_winograd_loops().weights(weight + i * 9, in * 9, out, to + i * out, in * out + kPad);
  });
}

// Transformed weights: matrices of `in` rows, `step` floats apart, and perhaps packed (cpu/gemm/packed.h).
struct Weights {
  const float* first;
  int64_t step;
  bool packed;
};

void multiply(int64_t rows, int64_t out, int64_t in, const float* a, const Weights& weights, int product,
              float* c) {
  const float* b = weights.first + product * weights.step;
  GemmArgs g;
  g.m = rows, g.n = out, g.k = in;
  g.a = a, g.a_row = in;
  g.c = c, g.c_row = out;
  if (weights.packed) return cpu::gemm_packed(g, b);
  g.b = b, g.b_row = out;
  cpu::gemm(g);
}

class Run {
 public:
  Run(const Walk& walk, const float* input, const Weights& weights, const WinogradFinish& finish,
      const float* residual, float* output)
      : w_(walk), input_(input), weights_(weights), finish_(finish), residual_(residual), output_(output) {}

  void tiles(int64_t begin, int64_t end) const {
    const int64_t in = w_.channels, out = w_.out_channels, block = w_.block();
    static thread_local cpu::Workspace room;
    const int64_t outside = std::max(in, out);  // a row of zeros to read, or of results nobody wants
    float* zeros = static_cast<float*>(
        room.get(sizeof(float) * (kWinogradProducts * (block * (in + out) + 2 * kPad) + 2 * outside)));
    float* unwanted = zeros + outside;
    float* v = unwanted + outside;
    float* m = v + kWinogradProducts * (block * in + kPad);
    std::fill_n(zeros, outside, 0.0f);
    for (int64_t t0 = begin; t0 < end; t0 += block) {
      const int64_t count = std::min(block, end - t0);
      const int64_t v_step = count * in + kPad, m_step = count * out + kPad;
      for (int64_t t = 0; t < count; ++t) read_tile(t0 + t, zeros, v + t * in, v_step);
      for (int p = 0; p < kWinogradProducts; ++p)
        multiply(count, out, in, v + p * v_step, weights_, p, m + p * m_step);
      for (int64_t t = 0; t < count; ++t) write_tile(t0 + t, m + t * out, m_step, zeros, unwanted);
    }
  }

 private:
  struct Place {
    int64_t image, y, x;  // of the first output
  };
  Place place(int64_t tile) const {
    const int64_t in_image = tile % (w_.tiles_y * w_.tiles_x);
    return {tile / (w_.tiles_y * w_.tiles_x), 2 * (in_image / w_.tiles_x), 2 * (in_image % w_.tiles_x)};
  }

  void read_tile(int64_t tile, const float* zeros, float* to, int64_t step) const {
    const Place at = place(tile);
    const float* positions[16];
    for (int i = 0; i < 16; ++i) {
      const int64_t y = at.y + i / 4 - w_.pad_y, x = at.x + i % 4 - w_.pad_x;
      const bool inside = y >= 0 && y < w_.height && x >= 0 && x < w_.width;
      positions[i] = inside ? input_ + ((at.image * w_.height + y) * w_.width + x) * w_.channels : zeros;
    }
    picked_winograd_loops().input(positions, w_.channels, to, step);
  }

  void write_tile(int64_t tile, const float* products, int64_t step, const float* zeros,
                  float* unwanted) const {
    const Place at = place(tile);
    float* outputs[4];
    const float* residuals[4];
    for (int i = 0; i < 4; ++i) {
      const int64_t y = at.y + i / 2, x = at.x + i % 2;
      const bool inside = y < w_.out_height && x < w_.out_width;
      const int64_t where = ((at.image * w_.out_height + y) * w_.out_width + x) * w_.out_channels;
      outputs[i] = inside ? output_ + where : unwanted;
      residuals[i] = inside && residual_ ? residual_ + where : zeros;
    }
    picked_winograd_loops().output(products, step, w_.out_channels, finish_, residual_ ? residuals : nullptr,
                                   outputs);
  }

  const Walk& w_;
  const float* input_;
  const Weights weights_;
  const WinogradFinish& finish_;
  const float* residual_;
  float* output_;
};

void check(const Tensor& input, const Tensor& weight, IntSpan padding) {
  FL_CHECK(
      input.dim() == 4 && weight.dim() == 4 && weight.size(2) == 3 && weight.size(3) == 3 &&
          weight.size(1) == input.size(1),
      "[_convolution_finished] expected a batch of planes and 3 x 3 kernels for their channels, got shapes ",
      input.sizes(), " and ", weight.sizes());
  FL_CHECK(
      input.dtype() == weight.dtype() && (input.dtype() == DType::Float || input.dtype() == DType::BFloat16),
      "[_convolution_finished] expected float32 or bfloat16, got ", name_of(input.dtype()), " and ",
      name_of(weight.dtype()));
  FL_CHECK(padding.size() == 2 && std::min(padding[0], padding[1]) >= 0 &&
               std::max(padding[0], padding[1]) < kWidestWindow && input.size(2) + 2 * padding[0] >= 3 &&
               input.size(3) + 2 * padding[1] >= 3,
           "[_convolution_finished] expected planes not smaller than the kernel, got shape ", input.sizes(),
           " and padding ", padding);
}

// One number for each channel, whatever its shape; null when there is none.
const float* channel_values(const char* what, const Tensor& t, int64_t channels, Tensor& held) {
  if (!t.defined()) return nullptr;
  FL_CHECK(t.numel() == channels && t.dtype() == DType::Float, "[_convolution_finished] expected ", channels,
           " numbers of float32 for ", what, ", got shape ", t.sizes());
  held = contiguous(t);
  return held.is_meta() ? nullptr : held.data<float>();
}

Walk walk_of(const Tensor& input, const Tensor& weight, IntSpan padding) {
  Walk w;
  w.batch = input.size(0), w.channels = input.size(1), w.height = input.size(2), w.width = input.size(3);
  w.out_channels = weight.size(0);
  w.pad_y = padding[0], w.pad_x = padding[1];
  w.out_height = w.height + 2 * w.pad_y - 2, w.out_width = w.width + 2 * w.pad_x - 2;
  w.tiles_y = (w.out_height + 1) / 2, w.tiles_x = (w.out_width + 1) / 2;
  return w;
}

// What follows the sums of channels: sum * factor + offset.
struct Affine {
  std::vector<float> factor, offset;
};

void run_floats(const Walk& w, const Tensor& input, const Tensor& weight, const Affine& affine,
                const Tensor& residual, bool relu, const Tensor& packed, const Tensor& out) {
  const int64_t packed_step = cpu::packed_count(DType::Float, w.channels, w.out_channels);
  const int64_t step = w.out_channels * w.channels + kPad;
  const cpu::convolutions::Scratch room(
      2, packed.defined() ? 0 : sizeof(float) * static_cast<size_t>(kWinogradProducts * step));
  if (!packed.defined())
    transform(contiguous(weight).data<float>(), w.out_channels, w.channels, room.as<float>());
  const Weights weights = packed.defined() ? Weights{packed.data<float>(), packed_step, true}
                                           : Weights{room.as<float>(), step, false};
  const WinogradFinish finish{affine.factor.data(), affine.offset.data(), relu};
  const Run run(w, input.data<float>(), weights, finish,
                residual.defined() ? residual.data<float>() : nullptr, out.data<float>());
  parallel_for(w.tiles(), std::max<int64_t>(8, kGrain / (w.channels + w.out_channels)),
               [&](int64_t b, int64_t e) { run.tiles(b, e); });
}

// The same without Winograd's transforms.
void run_directly(const Walk& w, const Tensor& input, const Tensor& weight, const Affine& affine,
                  const Tensor& residual, bool relu, const Tensor& out) {
  ConvArgs a;
  a.dtype = input.dtype();
  a.batch = w.batch, a.in_channels = w.channels, a.out_channels = w.out_channels, a.groups = 1;
  const int64_t in[2] = {w.height, w.width}, to[2] = {w.out_height, w.out_width}, pad[2] = {w.pad_y, w.pad_x};
  for (int d = 0; d < 2; ++d) {
    a.in_size[d] = in[d], a.out_size[d] = to[d], a.padding[d] = pad[d];
    a.kernel[d] = 3, a.stride[d] = 1, a.dilation[d] = 1;
  }
  std::copy_n(input.strides().begin(), 4, a.in_strides);
  std::copy_n(out.strides().begin(), 4, a.out_strides);
  const Tensor plain = contiguous(weight);
  a.weight = plain.raw(), a.input = input.raw(), a.output = out.raw();
  cpu::convolutions::ConvFinish finish;
  finish.scale = affine.factor.data(), finish.shift = affine.offset.data(), finish.relu = relu;
  if (residual.defined()) finish.residual = residual.raw();
  const size_t bytes = cpu::convolutions::packed_weight_bytes(a);
  FL_CHECK(bytes > 0, "[_convolution_finished] expected bfloat16 where oneDNN computes it, got shape ",
           input.sizes());
  const cpu::convolutions::Scratch room(3, bytes);
  cpu::convolutions::pack_weights(a, room.as<char>());
  cpu::convolutions::run_packed(a, finish, room.as<char>(), bytes);
}

void run_pairs(const Walk& w, const Tensor& input, const Tensor& weight, const Affine& affine,
               const Tensor& residual, bool relu, const Tensor& packed, const Tensor& out) {
  const cpu::winograd::Planes planes{
      w.batch,           w.channels, w.out_channels, {w.height, w.width}, {w.out_height, w.out_width},
      {w.pad_y, w.pad_x}};
  const cpu::winograd::PairFinish finish{affine.factor.data(), affine.offset.data(),
                                         residual.defined() ? residual.data<BFloat16>() : nullptr, relu,
                                         out.data<BFloat16>()};
  const auto* units = reinterpret_cast<const uint32_t*>(packed.data<int32_t>());
  if (!cpu::winograd::convolve_pairs(planes, input.data<BFloat16>(), units, finish))
    run_directly(w, input, weight, affine, residual, relu, out);
}

void check_packed(const Tensor& packed, const Tensor& weight) {
  const int64_t out = weight.size(0), in = weight.size(1);
  const bool pairs = weight.dtype() == DType::BFloat16;
  const int64_t count = pairs ? cpu::winograd::packed_pair_units(out, in)
                              : kWinogradProducts * cpu::packed_count(DType::Float, in, out);
  FL_CHECK(packed.defined() ? packed.dtype() == (pairs ? DType::Int32 : DType::Float) && count > 0 &&
                                  packed.numel() == count && packed.is_contiguous()
                            : !pairs,
           "[_convolution_finished] expected the packed form of the weights for this processor, got ",
           packed.defined() ? "another" : "none");
}

// (conv2d(input, weight, bias, padding) - mean) * scale + shift + residual, then relu; what is None is left
// out.
Tensor convolution_finished(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                            const Tensor& scale, const Tensor& shift, const Tensor& residual, bool relu,
                            IntSpan padding, const Tensor& packed) {
  check(input, weight, padding);
  check_packed(packed, weight);
  const Walk w = walk_of(input, weight, padding);
  const Dims sizes{w.batch, w.out_channels, w.out_height, w.out_width};
  FL_CHECK(!residual.defined() || (residual.sizes() == IntSpan(sizes) && residual.dtype() == input.dtype()),
           "[_convolution_finished] expected a residual of shape ", IntSpan(sizes), " and ",
           name_of(input.dtype()), ", got ", residual.sizes());
  Tensor out = empty_laid(sizes, true, input.options());
  Tensor held[4];
  const float* biases = channel_values("bias", bias, w.out_channels, held[0]);
  const float* means = channel_values("mean", mean, w.out_channels, held[1]);
  const float* scales = channel_values("scale", scale, w.out_channels, held[2]);
  const float* shifts = channel_values("shift", shift, w.out_channels, held[3]);
  if (out.is_meta() || out.numel() == 0) return out;
  Affine affine{std::vector<float>(static_cast<size_t>(w.out_channels)),
                std::vector<float>(static_cast<size_t>(w.out_channels))};
  for (size_t c = 0; c < affine.factor.size(); ++c) {
    affine.factor[c] = scales ? scales[c] : 1.0f;
    affine.offset[c] = ((biases ? biases[c] : 0.0f) - (means ? means[c] : 0.0f)) * affine.factor[c] +
                       (shifts ? shifts[c] : 0.0f);
  }
  const Tensor x = laid(input, true);
  const Tensor r = residual.defined() ? laid(residual, true) : residual;
  (input.dtype() == DType::Float ? run_floats : run_pairs)(w, x, weight, affine, r, relu, packed, out);
  return out;
}

Tensor packed_pairs(const Tensor& weight) {
  const int64_t count = cpu::winograd::packed_pair_units(weight.size(0), weight.size(1));
  const Tensor packed = empty({count}, {DType::Int32, weight.device()});
  if (packed.is_meta() || count == 0) return packed;
  auto* units = reinterpret_cast<uint32_t*>(packed.data<int32_t>());
  cpu::winograd::pack_pair_kernels(contiguous(weight).data<BFloat16>(), weight.size(0), weight.size(1),
                                   units);
  return packed;
}

// Weights of 3 x 3 kernels as _convolution_finished needs them: transformed, and packed for the products. No
// elements where bfloat16 is not computed so.
Tensor convolution_packed(const Tensor& weight) {
  FL_CHECK(weight.dim() == 4 && weight.size(2) == 3 && weight.size(3) == 3 &&
               (weight.dtype() == DType::Float || weight.dtype() == DType::BFloat16),
           "[_convolution_packed] expected 3 x 3 kernels of float32 or bfloat16, got shape ", weight.sizes(),
           " in ", name_of(weight.dtype()));
  if (weight.dtype() == DType::BFloat16) return packed_pairs(weight);
  const int64_t out = weight.size(0), in = weight.size(1), step = out * in + kPad;
  const int64_t packed_step = cpu::packed_count(DType::Float, in, out);
  const Tensor packed = empty({kWinogradProducts * packed_step}, weight.options());
  if (packed.is_meta() || packed.numel() == 0) return packed;
  const cpu::convolutions::Scratch room(2, sizeof(float) * static_cast<size_t>(kWinogradProducts * step));
  transform(contiguous(weight).data<float>(), out, in, room.as<float>());
  for (int p = 0; p < kWinogradProducts; ++p)
    cpu::pack_matrix(DType::Float, in, out, room.as<float>() + p * step, out, 1,
                     packed.data<float>() + p * packed_step);
  return packed;
}

FL_KERNEL("_convolution_finished", convolution_finished, kCpu);
FL_KERNEL("_convolution_packed", convolution_packed, kCpu);

}  // namespace
}  // namespace fl
