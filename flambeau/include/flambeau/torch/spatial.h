// Layers over images and sequences: pooling, padding, resizing, transposed convolution.
#pragma once

#include <flambeau/torch/nn.h>

namespace torch::nn {

// ---------------------------------------------------------------- pooling

template <size_t D>
struct MaxPoolOptions {
  MaxPoolOptions(ExpandingArray<D> kernel) : kernel_size_(kernel), stride_(kernel) {}
  TORCH_ARG(ExpandingArray<D>, kernel_size);
  TORCH_ARG(ExpandingArray<D>, stride);
  TORCH_ARG(ExpandingArray<D>, padding) = 0;
  TORCH_ARG(ExpandingArray<D>, dilation) = 1;
  TORCH_ARG(bool, ceil_mode) = false;
};
template <size_t D>
struct AvgPoolOptions {
  AvgPoolOptions(ExpandingArray<D> kernel) : kernel_size_(kernel), stride_(kernel) {}
  TORCH_ARG(ExpandingArray<D>, kernel_size);
  TORCH_ARG(ExpandingArray<D>, stride);
  TORCH_ARG(ExpandingArray<D>, padding) = 0;
  TORCH_ARG(bool, ceil_mode) = false;
  TORCH_ARG(bool, count_include_pad) = true;
};
// The size of a result, whatever that of the input is; absent ones stay.
template <size_t D>
struct AdaptivePoolOptions {
  AdaptivePoolOptions(int64_t size) : sizes(D, size) {}
  AdaptivePoolOptions(std::initializer_list<int64_t> list) : sizes(list) {}
  AdaptivePoolOptions(const std::vector<int64_t>& list) : sizes(list) {}
  std::vector<int64_t> sizes;
};

template <size_t D>
class MaxPoolImpl : public Cloneable<MaxPoolImpl<D>> {
 public:
  MaxPoolImpl(ExpandingArray<D> kernel) : MaxPoolImpl(MaxPoolOptions<D>(kernel)) {}
  explicit MaxPoolImpl(const MaxPoolOptions<D>& o)
      : Cloneable<MaxPoolImpl<D>>(c10::str("torch::nn::MaxPool", D, "d")), options(o) {}
  void reset() override {}
  Tensor forward(const Tensor& input) {
    const std::string name = c10::str("max_pool", D, "d");
    return at::detail::call(name.c_str(), input, IntArrayRef(options.kernel_size()),
                            IntArrayRef(options.stride()), IntArrayRef(options.padding()),
                            IntArrayRef(options.dilation()), options.ceil_mode());
  }
  MaxPoolOptions<D> options;
};
template <size_t D>
class AvgPoolImpl : public Cloneable<AvgPoolImpl<D>> {
 public:
  AvgPoolImpl(ExpandingArray<D> kernel) : AvgPoolImpl(AvgPoolOptions<D>(kernel)) {}
  explicit AvgPoolImpl(const AvgPoolOptions<D>& o)
      : Cloneable<AvgPoolImpl<D>>(c10::str("torch::nn::AvgPool", D, "d")), options(o) {}
  void reset() override {}
  Tensor forward(const Tensor& input) {
    const std::string name = c10::str("avg_pool", D, "d");
    return at::detail::call(name.c_str(), input, IntArrayRef(options.kernel_size()),
                            IntArrayRef(options.stride()), IntArrayRef(options.padding()),
                            options.ceil_mode(), options.count_include_pad());
  }
  AvgPoolOptions<D> options;
};
template <size_t D, bool MAX>
class AdaptivePoolImpl : public Cloneable<AdaptivePoolImpl<D, MAX>> {
 public:
  AdaptivePoolImpl(const AdaptivePoolOptions<D>& o)
      : Cloneable<AdaptivePoolImpl<D, MAX>>(
            c10::str("torch::nn::Adaptive", MAX ? "Max" : "Avg", "Pool", D, "d")),
        options(o) {}
  void reset() override {}
  Tensor forward(const Tensor& input) {
    const std::string name = c10::str("nn.functional.adaptive_", MAX ? "max" : "avg", "_pool", D, "d");
    return at::detail::call(name.c_str(), input, IntArrayRef(options.sizes));
  }
  AdaptivePoolOptions<D> options;
};
#define FL_POOLS(D)                                             \
  using MaxPool##D##dOptions = MaxPoolOptions<D>;               \
  using AvgPool##D##dOptions = AvgPoolOptions<D>;               \
  using AdaptiveMaxPool##D##dOptions = AdaptivePoolOptions<D>;  \
  using AdaptiveAvgPool##D##dOptions = AdaptivePoolOptions<D>;  \
  using MaxPool##D##dImpl = MaxPoolImpl<D>;                     \
  using AvgPool##D##dImpl = AvgPoolImpl<D>;                     \
  using AdaptiveMaxPool##D##dImpl = AdaptivePoolImpl<D, true>;  \
  using AdaptiveAvgPool##D##dImpl = AdaptivePoolImpl<D, false>; \
  TORCH_MODULE(MaxPool##D##d);                                  \
  TORCH_MODULE(AvgPool##D##d);                                  \
  TORCH_MODULE(AdaptiveMaxPool##D##d);                          \
  TORCH_MODULE(AdaptiveAvgPool##D##d);
FL_POOLS(1)
FL_POOLS(2)
FL_POOLS(3)
#undef FL_POOLS

// ---------------------------------------------------------------- padding, resizing

// Sides of the last dimension first; one number for all of them.
template <size_t D>
struct PadLayerOptions {
  PadLayerOptions(int64_t side) : padding(2 * D, side) {}
  PadLayerOptions(std::initializer_list<int64_t> sides) : padding(sides) {}
  std::vector<int64_t> padding;
};
#define FL_PAD(Name, D, mode)                                                                     \
  class Name##Impl : public Cloneable<Name##Impl> {                                               \
   public:                                                                                        \
    Name##Impl(const PadLayerOptions<D>& o) : Cloneable("torch::nn::" #Name), options(o) {}       \
    void reset() override {}                                                                      \
    Tensor forward(const Tensor& input) { return functional::pad(input, options.padding, mode); } \
    PadLayerOptions<D> options;                                                                   \
  };                                                                                              \
  using Name##Options = PadLayerOptions<D>;                                                       \
  TORCH_MODULE(Name);
FL_PAD(ReflectionPad1d, 1, "reflect")
FL_PAD(ReflectionPad2d, 2, "reflect")
FL_PAD(ReflectionPad3d, 3, "reflect")
FL_PAD(ReplicationPad1d, 1, "replicate")
FL_PAD(ReplicationPad2d, 2, "replicate")
FL_PAD(ReplicationPad3d, 3, "replicate")
FL_PAD(ZeroPad1d, 1, "constant")
FL_PAD(ZeroPad2d, 2, "constant")
FL_PAD(ZeroPad3d, 3, "constant")
#undef FL_PAD
template <size_t D>
struct ConstantPadOptions {
  ConstantPadOptions(const PadLayerOptions<D>& sides, double v) : padding(sides.padding), value(v) {}
  std::vector<int64_t> padding;
  double value;
};
#define FL_PAD(Name, D)                                                                        \
  class Name##Impl : public Cloneable<Name##Impl> {                                            \
   public:                                                                                     \
    Name##Impl(const PadLayerOptions<D>& sides, double value)                                  \
        : Name##Impl(ConstantPadOptions<D>(sides, value)) {}                                   \
    Name##Impl(const ConstantPadOptions<D>& o) : Cloneable("torch::nn::" #Name), options(o) {} \
    void reset() override {}                                                                   \
    Tensor forward(const Tensor& input) {                                                      \
      return functional::pad(input, options.padding, "constant", options.value);               \
    }                                                                                          \
    ConstantPadOptions<D> options;                                                             \
  };                                                                                           \
  using Name##Options = ConstantPadOptions<D>;                                                 \
  TORCH_MODULE(Name);
FL_PAD(ConstantPad1d, 1)
FL_PAD(ConstantPad2d, 2)
FL_PAD(ConstantPad3d, 3)
#undef FL_PAD

using UpsampleOptions = functional::InterpolateFuncOptions;
class UpsampleImpl : public Cloneable<UpsampleImpl> {
 public:
  UpsampleImpl(const UpsampleOptions& o = {}) : Cloneable("torch::nn::Upsample"), options(o) {}
  void reset() override {}
  Tensor forward(const Tensor& input) { return functional::interpolate(input, options); }
  UpsampleOptions options;
};
TORCH_MODULE(Upsample);

struct PixelShuffleOptions {
  PixelShuffleOptions(int64_t factor) : upscale_factor(factor) {}
  int64_t upscale_factor;
};
using PixelUnshuffleOptions = PixelShuffleOptions;
#define FL_SHUFFLE(Name, function)                                                                 \
  class Name##Impl : public Cloneable<Name##Impl> {                                                \
   public:                                                                                         \
    Name##Impl(const Name##Options& o) : Cloneable("torch::nn::" #Name), options(o) {}             \
    void reset() override {}                                                                       \
    Tensor forward(const Tensor& input) { return torch::function(input, options.upscale_factor); } \
    Name##Options options;                                                                         \
  };                                                                                               \
  TORCH_MODULE(Name);
FL_SHUFFLE(PixelShuffle, pixel_shuffle)
FL_SHUFFLE(PixelUnshuffle, pixel_unshuffle)
#undef FL_SHUFFLE

struct FlattenOptions {
  TORCH_ARG(int64_t, start_dim) = 1;
  TORCH_ARG(int64_t, end_dim) = -1;
};
class FlattenImpl : public Cloneable<FlattenImpl> {
 public:
  FlattenImpl(const FlattenOptions& o = {}) : Cloneable("torch::nn::Flatten"), options(o) {}
  void reset() override {}
  void pretty_print(std::ostream& out) const override {
    out << name() << "(start_dim=" << options.start_dim() << ", end_dim=" << options.end_dim() << ")";
  }
  Tensor forward(const Tensor& input) { return input.flatten(options.start_dim(), options.end_dim()); }
  FlattenOptions options;
};
TORCH_MODULE(Flatten);

struct UnflattenOptions {
  UnflattenOptions(int64_t d, std::vector<int64_t> shape) : dim(d), sizes(std::move(shape)) {}
  int64_t dim;
  std::vector<int64_t> sizes;
};
class UnflattenImpl : public Cloneable<UnflattenImpl> {
 public:
  UnflattenImpl(int64_t dim, std::vector<int64_t> sizes)
      : UnflattenImpl(UnflattenOptions(dim, std::move(sizes))) {}
  UnflattenImpl(const UnflattenOptions& o) : Cloneable("torch::nn::Unflatten"), options(o) {}
  void reset() override {}
  Tensor forward(const Tensor& input) { return input.unflatten(options.dim, IntArrayRef(options.sizes)); }
  UnflattenOptions options;
};
TORCH_MODULE(Unflatten);

// ---------------------------------------------------------------- transposed convolution

template <size_t D>
struct ConvTransposeOptions {
  ConvTransposeOptions(int64_t in, int64_t out, ExpandingArray<D> kernel)
      : in_channels_(in), out_channels_(out), kernel_size_(kernel) {}
  TORCH_ARG(int64_t, in_channels);
  TORCH_ARG(int64_t, out_channels);
  TORCH_ARG(ExpandingArray<D>, kernel_size);
  TORCH_ARG(ExpandingArray<D>, stride) = 1;
  TORCH_ARG(ExpandingArray<D>, padding) = 0;
  TORCH_ARG(ExpandingArray<D>, output_padding) = 0;
  TORCH_ARG(int64_t, groups) = 1;
  TORCH_ARG(bool, bias) = true;
  TORCH_ARG(ExpandingArray<D>, dilation) = 1;
};

template <size_t D>
class ConvTransposeImpl : public Cloneable<ConvTransposeImpl<D>> {
 public:
  ConvTransposeImpl(int64_t in, int64_t out, ExpandingArray<D> kernel)
      : ConvTransposeImpl(ConvTransposeOptions<D>(in, out, kernel)) {}
  explicit ConvTransposeImpl(const ConvTransposeOptions<D>& o)
      : Cloneable<ConvTransposeImpl<D>>(c10::str("torch::nn::ConvTranspose", D, "d")), options(o) {
    reset();
  }
  void reset() override {
    std::vector<int64_t> shape = {options.in_channels(), options.out_channels() / options.groups()};
    for (int64_t k : IntArrayRef(options.kernel_size())) shape.push_back(k);
    weight = this->register_parameter("weight", torch::empty(shape));
    if (options.bias()) bias = this->register_parameter("bias", torch::empty({options.out_channels()}));
    init::kaiming_uniform_(weight, std::sqrt(5.0));
    const double bound = 1 / std::sqrt(init::fans(weight).first);
    if (bias.defined()) init::uniform_(bias, -bound, bound);
  }
  Tensor forward(const Tensor& input) {
    const std::string name = c10::str("conv_transpose", D, "d");
    return at::detail::call(name.c_str(), input, weight, bias, IntArrayRef(options.stride()),
                            IntArrayRef(options.padding()), IntArrayRef(options.output_padding()),
                            options.groups(), IntArrayRef(options.dilation()));
  }
  ConvTransposeOptions<D> options;
  Tensor weight, bias;
};
#define FL_CONV_TRANSPOSE(D)                                  \
  using ConvTranspose##D##dOptions = ConvTransposeOptions<D>; \
  using ConvTranspose##D##dImpl = ConvTransposeImpl<D>;       \
  TORCH_MODULE(ConvTranspose##D##d);
FL_CONV_TRANSPOSE(1)
FL_CONV_TRANSPOSE(2)
FL_CONV_TRANSPOSE(3)
#undef FL_CONV_TRANSPOSE

}  // namespace torch::nn
