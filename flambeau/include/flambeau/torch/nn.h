// torch::nn: layers, functions and initializers.
#pragma once

#include <flambeau/torch/containers.h>
#include <flambeau/torch/functional.h>

#include <cmath>

namespace torch::nn {

namespace init {

inline Tensor with_no_grad(const Tensor& t, const std::function<void()>& write) {
  torch::NoGradGuard guard;
  write();
  return t;
}
inline Tensor uniform_(const Tensor& t, double low = 0, double high = 1) {
  return with_no_grad(t, [&] { t.uniform_(low, high); });
}
inline Tensor normal_(const Tensor& t, double mean = 0, double std = 1) {
  return with_no_grad(t, [&] { t.normal_(mean, std); });
}
inline Tensor constant_(const Tensor& t, const Scalar& value) {
  return with_no_grad(t, [&] { t.fill_(value); });
}
inline Tensor zeros_(const Tensor& t) {
  return constant_(t, 0);
}
inline Tensor ones_(const Tensor& t) {
  return constant_(t, 1);
}
inline std::pair<double, double> fans(const Tensor& t) {
  double area = 1;
  for (int64_t d = 2; d < t.dim(); ++d) area *= static_cast<double>(t.size(d));
  return {static_cast<double>(t.size(1)) * area, static_cast<double>(t.size(0)) * area};
}
inline Tensor xavier_uniform_(const Tensor& t, double gain = 1) {
  const auto [in, out] = fans(t);
  const double bound = gain * std::sqrt(6.0 / (in + out));
  return uniform_(t, -bound, bound);
}
inline Tensor xavier_normal_(const Tensor& t, double gain = 1) {
  const auto [in, out] = fans(t);
  return normal_(t, 0, gain * std::sqrt(2.0 / (in + out)));
}
inline double calculate_gain(const std::string& nonlinearity, double param = 0.01) {
  if (nonlinearity == "tanh") return 5.0 / 3;
  if (nonlinearity == "relu") return std::sqrt(2.0);
  if (nonlinearity == "leaky_relu") return std::sqrt(2 / (1 + param * param));
  return 1;
}
// How far uniform values reach so that variance stays from layer to layer, divided by the square root of
// three.
inline double kaiming_std(const Tensor& t, double a, const std::string& mode,
                          const std::string& nonlinearity) {
  const auto [in, out] = fans(t);
  if (mode != "fan_in" && mode != "fan_out")
    throw c10::ValueError(c10::str("[init] expected kFanIn or kFanOut, got ", mode));
  return calculate_gain(nonlinearity, a) / std::sqrt(mode == "fan_in" ? in : out);
}
inline Tensor kaiming_uniform_(const Tensor& t, double a = 0, const std::string& mode = "fan_in",
                               const std::string& nonlinearity = "leaky_relu") {
  const double bound = std::sqrt(3.0) * kaiming_std(t, a, mode, nonlinearity);
  return uniform_(t, -bound, bound);
}
inline Tensor kaiming_normal_(const Tensor& t, double a = 0, const std::string& mode = "fan_in",
                              const std::string& nonlinearity = "leaky_relu") {
  return normal_(t, 0, kaiming_std(t, a, mode, nonlinearity));
}
inline Tensor eye_(const Tensor& t) {
  return with_no_grad(t, [&] { t.copy_(torch::eye(t.size(0), t.size(1))); });
}
// The identity in the middle of kernels.
inline Tensor dirac_(const Tensor& t) {
  return with_no_grad(t, [&] {
    t.zero_();
    for (int64_t c = 0; c < std::min(t.size(0), t.size(1)); ++c) {
      Tensor middle = t[c][c];
      while (middle.dim() > 0) middle = middle[middle.size(0) / 2];
      middle.fill_(1);
    }
  });
}
inline Tensor orthogonal_(const Tensor& t, double gain = 1) {
  return with_no_grad(t, [&] {
    const int64_t rows = t.size(0), columns = t.numel() / rows;
    const Tensor flat = torch::randn({std::max(rows, columns), std::min(rows, columns)});
    const auto [q, r] = torch::linalg_qr(flat);
    const Tensor signed_q = q * r.diag().sign();
    t.copy_((rows < columns ? signed_q.t() : signed_q).reshape(t.sizes()) * gain);
  });
}
inline Tensor sparse_(const Tensor& t, double sparsity, double std = 0.01) {
  return with_no_grad(t, [&] {
    t.normal_(0.0, std);
    const auto zeros = static_cast<int64_t>(std::ceil(sparsity * static_cast<double>(t.size(0))));
    for (int64_t column = 0; column < t.size(1); ++column) {
      const Tensor rows = torch::randperm(t.size(0));
      for (int64_t i = 0; i < zeros; ++i) t[rows[i].item<int64_t>()][column].zero_();
    }
  });
}

}  // namespace init

// ---------------------------------------------------------------- linear

struct LinearOptions {
  LinearOptions(int64_t in, int64_t out) : in_features_(in), out_features_(out) {}
  TORCH_ARG(int64_t, in_features);
  TORCH_ARG(int64_t, out_features);
  TORCH_ARG(bool, bias) = true;
};

class LinearImpl : public Cloneable<LinearImpl> {
 public:
  LinearImpl(int64_t in, int64_t out) : LinearImpl(LinearOptions(in, out)) {}
  explicit LinearImpl(const LinearOptions& o) : Cloneable("torch::nn::Linear"), options(o) { reset(); }
  void reset() override {
    weight = register_parameter("weight", torch::empty({options.out_features(), options.in_features()}));
    if (options.bias()) bias = register_parameter("bias", torch::empty({options.out_features()}));
    reset_parameters();
  }
  void reset_parameters() {
    init::kaiming_uniform_(weight, std::sqrt(5.0));
    const double bound = 1 / std::sqrt(static_cast<double>(options.in_features()));
    if (bias.defined()) init::uniform_(bias, -bound, bound);
  }
  Tensor forward(const Tensor& input) { return functional::linear(input, weight, bias); }
  void pretty_print(std::ostream& out) const override {
    out << std::boolalpha << name() << "(in_features=" << options.in_features()
        << ", out_features=" << options.out_features() << ", bias=" << options.bias() << ")";
  }
  LinearOptions options;
  Tensor weight, bias;
};
TORCH_MODULE(Linear);

// ---------------------------------------------------------------- convolution

template <size_t D>
struct ConvOptions {
  ConvOptions(int64_t in, int64_t out, ExpandingArray<D> kernel)
      : in_channels_(in), out_channels_(out), kernel_size_(kernel) {}
  TORCH_ARG(int64_t, in_channels);
  TORCH_ARG(int64_t, out_channels);
  TORCH_ARG(ExpandingArray<D>, kernel_size);
  TORCH_ARG(ExpandingArray<D>, stride) = 1;
  TORCH_ARG(ExpandingArray<D>, padding) = 0;
  TORCH_ARG(ExpandingArray<D>, dilation) = 1;
  TORCH_ARG(int64_t, groups) = 1;
  TORCH_ARG(bool, bias) = true;
  TORCH_ARG(std::string, padding_mode) = "zeros";

 public:
  ConvOptions& padding(const OptionName& name) {  // kSame, kValid
    padding_name_ = name.text;
    return *this;
  }
  const std::string& padding_name() const { return padding_name_; }
  std::string padding_name_;
};
using Conv1dOptions = ConvOptions<1>;
using Conv2dOptions = ConvOptions<2>;
using Conv3dOptions = ConvOptions<3>;

template <size_t D>
class ConvImpl : public Cloneable<ConvImpl<D>> {
 public:
  ConvImpl(int64_t in, int64_t out, ExpandingArray<D> kernel) : ConvImpl(ConvOptions<D>(in, out, kernel)) {}
  explicit ConvImpl(const ConvOptions<D>& o)
      : Cloneable<ConvImpl<D>>(c10::str("torch::nn::Conv", D, "dImpl")), options(o) {
    reset();
  }
  void reset() override {
    std::vector<int64_t> shape = {options.out_channels(), options.in_channels() / options.groups()};
    for (int64_t k : IntArrayRef(options.kernel_size())) shape.push_back(k);
    weight = this->register_parameter("weight", torch::empty(shape));
    if (options.bias()) bias = this->register_parameter("bias", torch::empty({options.out_channels()}));
    reset_parameters();
  }
  void reset_parameters() {
    init::kaiming_uniform_(weight, std::sqrt(5.0));
    const double bound = 1 / std::sqrt(init::fans(weight).first);
    if (bias.defined()) init::uniform_(bias, -bound, bound);
  }
  Tensor forward(const Tensor& input) {
    const std::string name = c10::str("conv", D, "d");
    const IntArrayRef stride = options.stride(), dilation = options.dilation();
    if (options.padding_name().size())
      return at::detail::call(name.c_str(), input, weight, bias, stride, options.padding_name(), dilation,
                              options.groups());
    const IntArrayRef padding = options.padding();
    if (options.padding_mode() == "zeros")
      return at::detail::call(name.c_str(), input, weight, bias, stride, padding, dilation, options.groups());
    std::vector<int64_t> sides;  // of the last dimension first
    for (size_t d = D; d-- > 0;) sides.insert(sides.end(), 2, padding[d]);
    return at::detail::call(name.c_str(), functional::pad(input, sides, options.padding_mode()), weight, bias,
                            stride, int64_t(0), dilation, options.groups());
  }
  void pretty_print(std::ostream& out) const override {
    out << "torch::nn::Conv" << D << "d(" << options.in_channels() << ", " << options.out_channels()
        << ", kernel_size=" << IntArrayRef(options.kernel_size())
        << ", stride=" << IntArrayRef(options.stride());
    bool pads = false;
    for (int64_t side : IntArrayRef(options.padding())) pads = pads || side != 0;
    if (pads) out << ", padding=" << IntArrayRef(options.padding());
    if (options.groups() != 1) out << ", groups=" << options.groups();
    if (!options.bias()) out << ", bias=false";
    out << ")";
  }
  ConvOptions<D> options;
  Tensor weight, bias;
};
using Conv1dImpl = ConvImpl<1>;
using Conv2dImpl = ConvImpl<2>;
using Conv3dImpl = ConvImpl<3>;
TORCH_MODULE(Conv1d);
TORCH_MODULE(Conv2d);
TORCH_MODULE(Conv3d);

// ---------------------------------------------------------------- normalization, embedding, dropout

// Norms over instances have neither weights nor running statistics, unless they are asked for.
template <bool INSTANCE>
struct NormOptions {
  NormOptions(int64_t n) : num_features_(n) {}
  TORCH_ARG(int64_t, num_features);
  TORCH_ARG(double, eps) = 1e-5;
  TORCH_ARG(double, momentum) = 0.1;
  TORCH_ARG(bool, affine) = !INSTANCE;
  TORCH_ARG(bool, track_running_stats) = !INSTANCE;
};
using BatchNormOptions = NormOptions<false>;
using BatchNorm1dOptions = BatchNormOptions;
using BatchNorm2dOptions = BatchNormOptions;
using BatchNorm3dOptions = BatchNormOptions;

template <class Derived, class Options = BatchNormOptions>
class BatchNormBase : public Cloneable<Derived> {
 public:
  BatchNormBase(int64_t n) : BatchNormBase(Options(n)) {}
  explicit BatchNormBase(const Options& o) : options(o) { reset(); }
  void reset() override {
    const int64_t n = options.num_features();
    if (options.affine()) {
      weight = this->register_parameter("weight", torch::ones({n}));
      bias = this->register_parameter("bias", torch::zeros({n}));
    }
    if (options.track_running_stats()) {
      running_mean = this->register_buffer("running_mean", torch::zeros({n}));
      running_var = this->register_buffer("running_var", torch::ones({n}));
      num_batches_tracked = this->register_buffer("num_batches_tracked", torch::zeros({}, torch::kLong));
    }
  }
  Tensor forward(const Tensor& input) {
    const bool batch_statistics = this->is_training() || !running_mean.defined();
    if (this->is_training() && num_batches_tracked.defined()) num_batches_tracked.add_(1);
    return at::detail::call("batch_norm", input, weight, bias, running_mean, running_var, batch_statistics,
                            options.momentum(), options.eps(), false);
  }
  void pretty_print(std::ostream& out) const override {
    std::string name = this->name();
    if (name.size() > 4 && name.compare(name.size() - 4, 4, "Impl") == 0) name.resize(name.size() - 4);
    out << std::boolalpha << name << "(" << options.num_features() << ", eps=" << options.eps()
        << ", momentum=" << options.momentum() << ", affine=" << options.affine()
        << ", track_running_stats=" << options.track_running_stats() << ")";
  }
  Options options;
  Tensor weight, bias, running_mean, running_var, num_batches_tracked;
};
#define FL_BATCH_NORM(Name)                             \
  class Name##Impl : public BatchNormBase<Name##Impl> { \
   public:                                              \
    using BatchNormBase<Name##Impl>::BatchNormBase;     \
  };                                                    \
  TORCH_MODULE(Name);
FL_BATCH_NORM(BatchNorm1d)
FL_BATCH_NORM(BatchNorm2d)
FL_BATCH_NORM(BatchNorm3d)
#undef FL_BATCH_NORM

struct LayerNormOptions {
  LayerNormOptions(std::vector<int64_t> shape) : normalized_shape_(std::move(shape)) {}
  TORCH_ARG(std::vector<int64_t>, normalized_shape);
  TORCH_ARG(double, eps) = 1e-5;
  TORCH_ARG(bool, elementwise_affine) = true;
};
class LayerNormImpl : public Cloneable<LayerNormImpl> {
 public:
  LayerNormImpl(std::vector<int64_t> shape) : LayerNormImpl(LayerNormOptions(std::move(shape))) {}
  explicit LayerNormImpl(const LayerNormOptions& o) : Cloneable("torch::nn::LayerNorm"), options(o) {
    reset();
  }
  void reset() override {
    if (!options.elementwise_affine()) return;
    weight = register_parameter("weight", torch::ones(options.normalized_shape()));
    bias = register_parameter("bias", torch::zeros(options.normalized_shape()));
  }
  void pretty_print(std::ostream& out) const override {
    out << std::boolalpha << name() << "(" << IntArrayRef(options.normalized_shape())
        << ", eps=" << options.eps() << ", elementwise_affine=" << options.elementwise_affine() << ")";
  }
  Tensor forward(const Tensor& input) {
    return torch::layer_norm(input, options.normalized_shape(), weight, bias, options.eps());
  }
  LayerNormOptions options;
  Tensor weight, bias;
};
TORCH_MODULE(LayerNorm);

struct DropoutOptions {
  DropoutOptions(double p = 0.5) : p_(p) {}
  TORCH_ARG(double, p);
  TORCH_ARG(bool, inplace) = false;
};
#define FL_DROPOUT(Name, function)                                                                         \
  class Name##Impl : public Cloneable<Name##Impl> {                                                        \
   public:                                                                                                 \
    Name##Impl(double p = 0.5) : Name##Impl(DropoutOptions(p)) {}                                          \
    explicit Name##Impl(const DropoutOptions& o) : Cloneable("torch::nn::" #Name), options(o) {}           \
    void reset() override {}                                                                               \
    void pretty_print(std::ostream& out) const override {                                                  \
      out << std::boolalpha << name() << "(p=" << options.p() << ", inplace=" << options.inplace() << ")"; \
    }                                                                                                      \
    Tensor forward(const Tensor& input) {                                                                  \
      return at::detail::call(function, input, options.p(), is_training());                                \
    }                                                                                                      \
    DropoutOptions options;                                                                                \
  };                                                                                                       \
  TORCH_MODULE(Name);
FL_DROPOUT(Dropout, "dropout")
FL_DROPOUT(Dropout2d, "feature_dropout")
FL_DROPOUT(Dropout3d, "feature_dropout")
FL_DROPOUT(AlphaDropout, "alpha_dropout")
FL_DROPOUT(FeatureAlphaDropout, "feature_alpha_dropout")
#undef FL_DROPOUT
using Dropout2dOptions = DropoutOptions;
using Dropout3dOptions = DropoutOptions;
using AlphaDropoutOptions = DropoutOptions;

// ---------------------------------------------------------------- activations

#define FL_ACTIVATION(Name, expression)                                            \
  class Name##Impl : public Cloneable<Name##Impl> {                                \
   public:                                                                         \
    Name##Impl() : Cloneable("torch::nn::" #Name) {}                               \
    void reset() override {}                                                       \
    void pretty_print(std::ostream& out) const override { out << name() << "()"; } \
    Tensor forward(const Tensor& input) { return expression; }                     \
  };                                                                               \
  TORCH_MODULE(Name);
FL_ACTIVATION(Tanh, torch::tanh(input))
FL_ACTIVATION(Sigmoid, torch::sigmoid(input))
FL_ACTIVATION(SiLU, functional::silu(input))
FL_ACTIVATION(Mish, functional::mish(input))
FL_ACTIVATION(Softsign, functional::softsign(input))
FL_ACTIVATION(Tanhshrink, functional::tanhshrink(input))
FL_ACTIVATION(LogSigmoid, functional::logsigmoid(input))
FL_ACTIVATION(Hardsigmoid, functional::hardsigmoid(input))
FL_ACTIVATION(Hardswish, functional::hardswish(input))
FL_ACTIVATION(Softmax2d, torch::softmax(input, int64_t(-3)))
FL_ACTIVATION(Identity, input)
#undef FL_ACTIVATION

// A function of one input with options.
#define FL_FUNCTION_MODULE(Name, function, default)                                                \
  class Name##Impl : public Cloneable<Name##Impl> {                                                \
   public:                                                                                         \
    Name##Impl(Name##Options o default) : Cloneable("torch::nn::" #Name), options(std::move(o)) {} \
    void reset() override {}                                                                       \
    Tensor forward(const Tensor& input) { return functional::function(input, options); }           \
    Name##Options options;                                                                         \
  };                                                                                               \
  TORCH_MODULE(Name);
FL_FUNCTION_MODULE(ReLU, relu, = {})
FL_FUNCTION_MODULE(ReLU6, relu6, = {})
FL_FUNCTION_MODULE(SELU, selu, = {})
FL_FUNCTION_MODULE(LeakyReLU, leaky_relu, = {})
FL_FUNCTION_MODULE(ELU, elu, = {})
FL_FUNCTION_MODULE(CELU, celu, = {})
FL_FUNCTION_MODULE(GELU, gelu, = {})
FL_FUNCTION_MODULE(Hardtanh, hardtanh, = {})
FL_FUNCTION_MODULE(Softplus, softplus, = {})
FL_FUNCTION_MODULE(GLU, glu, = {})
FL_FUNCTION_MODULE(Softmax, softmax, )
FL_FUNCTION_MODULE(LogSoftmax, log_softmax, )
FL_FUNCTION_MODULE(Softmin, softmin, )
#undef FL_FUNCTION_MODULE

// ---------------------------------------------------------------- losses

#define FL_LOSS(Name, function)                                                                 \
  class Name##Impl : public Cloneable<Name##Impl> {                                             \
   public:                                                                                      \
    Name##Impl(Name##Options o = {}) : Cloneable("torch::nn::" #Name), options(std::move(o)) {} \
    void reset() override {}                                                                    \
    Tensor forward(const Tensor& input, const Tensor& target) {                                 \
      return functional::function(input, target, options);                                      \
    }                                                                                           \
    Name##Options options;                                                                      \
  };                                                                                            \
  TORCH_MODULE(Name);
FL_LOSS(MSELoss, mse_loss)
FL_LOSS(L1Loss, l1_loss)
FL_LOSS(CrossEntropyLoss, cross_entropy)
FL_LOSS(NLLLoss, nll_loss)
FL_LOSS(BCELoss, binary_cross_entropy)
FL_LOSS(BCEWithLogitsLoss, binary_cross_entropy_with_logits)
FL_LOSS(SmoothL1Loss, smooth_l1_loss)
FL_LOSS(HuberLoss, huber_loss)
FL_LOSS(KLDivLoss, kl_div)
#undef FL_LOSS

}  // namespace torch::nn
