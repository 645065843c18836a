// torch::nn: layers, functions and initializers.
#pragma once

#include <flambeau/torch/functional.h>
#include <flambeau/torch/module.h>

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
// With a leak as leaky_relu has it; 0 is relu.
inline Tensor kaiming_uniform_(const Tensor& t, double a = 0) {
  const double bound = std::sqrt(2.0 / (1 + a * a)) * std::sqrt(3.0 / fans(t).first);
  return uniform_(t, -bound, bound);
}
inline Tensor kaiming_normal_(const Tensor& t, double a = 0) {
  return normal_(t, 0, std::sqrt(2.0 / (1 + a * a)) / std::sqrt(fans(t).first));
}

}  // namespace init

#define FL_OPTION(Class, type, name) \
  Class& name(const type& value) {   \
    name##_ = value;                 \
    return *this;                    \
  }                                  \
  const type& name() const {         \
    return name##_;                  \
  }

// ---------------------------------------------------------------- linear

struct LinearOptions {
  LinearOptions(int64_t in, int64_t out) : in_features_(in), out_features_(out) {}
  FL_OPTION(LinearOptions, int64_t, in_features)
  FL_OPTION(LinearOptions, int64_t, out_features)
  FL_OPTION(LinearOptions, bool, bias)
  int64_t in_features_, out_features_;
  bool bias_ = true;
};

class LinearImpl : public Module {
 public:
  LinearImpl(int64_t in, int64_t out) : LinearImpl(LinearOptions(in, out)) {}
  explicit LinearImpl(const LinearOptions& o) : Module("torch::nn::Linear"), options(o) {
    weight = register_parameter("weight", torch::empty({o.out_features(), o.in_features()}));
    if (o.bias()) bias = register_parameter("bias", torch::empty({o.out_features()}));
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

class IdentityImpl : public Module {
 public:
  Tensor forward(const Tensor& input) { return input; }
};
TORCH_MODULE(Identity);

class FlattenImpl : public Module {
 public:
  Tensor forward(const Tensor& input) { return input.flatten(1); }
};
TORCH_MODULE(Flatten);

// ---------------------------------------------------------------- convolution

template <size_t D>
struct ConvOptions {
  ConvOptions(int64_t in, int64_t out, ExpandingArray<D> kernel)
      : in_channels_(in), out_channels_(out), kernel_size_(kernel) {}
  FL_OPTION(ConvOptions, int64_t, in_channels)
  FL_OPTION(ConvOptions, int64_t, out_channels)
  FL_OPTION(ConvOptions, ExpandingArray<D>, kernel_size)
  FL_OPTION(ConvOptions, ExpandingArray<D>, stride)
  FL_OPTION(ConvOptions, ExpandingArray<D>, padding)
  FL_OPTION(ConvOptions, ExpandingArray<D>, dilation)
  FL_OPTION(ConvOptions, int64_t, groups)
  FL_OPTION(ConvOptions, bool, bias)
  int64_t in_channels_, out_channels_;
  ExpandingArray<D> kernel_size_, stride_ = 1, padding_ = 0, dilation_ = 1;
  int64_t groups_ = 1;
  bool bias_ = true;
};
using Conv1dOptions = ConvOptions<1>;
using Conv2dOptions = ConvOptions<2>;
using Conv3dOptions = ConvOptions<3>;

template <size_t D>
class ConvImpl : public Module {
 public:
  ConvImpl(int64_t in, int64_t out, ExpandingArray<D> kernel) : ConvImpl(ConvOptions<D>(in, out, kernel)) {}
  explicit ConvImpl(const ConvOptions<D>& o) : Module(c10::str("torch::nn::Conv", D, "d")), options(o) {
    std::vector<int64_t> shape = {o.out_channels(), o.in_channels() / o.groups()};
    for (int64_t k : IntArrayRef(o.kernel_size())) shape.push_back(k);
    weight = register_parameter("weight", torch::empty(shape));
    if (o.bias()) bias = register_parameter("bias", torch::empty({o.out_channels()}));
    init::kaiming_uniform_(weight, std::sqrt(5.0));
    const double bound = 1 / std::sqrt(init::fans(weight).first);
    if (bias.defined()) init::uniform_(bias, -bound, bound);
  }
  Tensor forward(const Tensor& input) {
    const std::string name = c10::str("conv", D, "d");
    return at::detail::call(name.c_str(), input, weight, bias, IntArrayRef(options.stride()),
                            IntArrayRef(options.padding()), IntArrayRef(options.dilation()),
                            options.groups());
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

struct MaxPool2dOptions {
  MaxPool2dOptions(ExpandingArray<2> kernel) : kernel_size_(kernel), stride_(kernel) {}
  FL_OPTION(MaxPool2dOptions, ExpandingArray<2>, kernel_size)
  FL_OPTION(MaxPool2dOptions, ExpandingArray<2>, stride)
  FL_OPTION(MaxPool2dOptions, ExpandingArray<2>, padding)
  ExpandingArray<2> kernel_size_, stride_, padding_ = 0;
};
class MaxPool2dImpl : public Module {
 public:
  MaxPool2dImpl(ExpandingArray<2> kernel) : options(kernel) {}
  explicit MaxPool2dImpl(const MaxPool2dOptions& o) : options(o) {}
  Tensor forward(const Tensor& input) {
    return torch::max_pool2d(input, options.kernel_size(), options.stride(), options.padding());
  }
  MaxPool2dOptions options;
};
TORCH_MODULE(MaxPool2d);

class AdaptiveAvgPool2dImpl : public Module {
 public:
  AdaptiveAvgPool2dImpl(ExpandingArray<2> size) : size_(size) {}
  Tensor forward(const Tensor& input) {
    return at::detail::call("nn.functional.adaptive_avg_pool2d", input, IntArrayRef(size_));
  }

 private:
  ExpandingArray<2> size_;
};
TORCH_MODULE(AdaptiveAvgPool2d);

// ---------------------------------------------------------------- normalization, embedding, dropout

struct BatchNormOptions {
  BatchNormOptions(int64_t n) : num_features_(n) {}
  FL_OPTION(BatchNormOptions, int64_t, num_features)
  FL_OPTION(BatchNormOptions, double, eps)
  FL_OPTION(BatchNormOptions, double, momentum)
  FL_OPTION(BatchNormOptions, bool, affine)
  FL_OPTION(BatchNormOptions, bool, track_running_stats)
  int64_t num_features_;
  double eps_ = 1e-5, momentum_ = 0.1;
  bool affine_ = true, track_running_stats_ = true;
};
using BatchNorm1dOptions = BatchNormOptions;
using BatchNorm2dOptions = BatchNormOptions;

class BatchNormImpl : public Module {
 public:
  BatchNormImpl(int64_t n) : BatchNormImpl(BatchNormOptions(n)) {}
  explicit BatchNormImpl(const BatchNormOptions& o) : Module("torch::nn::BatchNorm"), options(o) {
    if (o.affine()) {
      weight = register_parameter("weight", torch::ones({o.num_features()}));
      bias = register_parameter("bias", torch::zeros({o.num_features()}));
    }
    if (o.track_running_stats()) {
      running_mean = register_buffer("running_mean", torch::zeros({o.num_features()}));
      running_var = register_buffer("running_var", torch::ones({o.num_features()}));
      num_batches_tracked = register_buffer("num_batches_tracked", torch::zeros({}, torch::kLong));
    }
  }
  Tensor forward(const Tensor& input) {
    const bool batch_statistics = is_training() || !running_mean.defined();
    if (is_training() && num_batches_tracked.defined()) num_batches_tracked.add_(1);
    return at::detail::call("batch_norm", input, weight, bias, running_mean, running_var, batch_statistics,
                            options.momentum(), options.eps(), false);
  }
  BatchNormOptions options;
  Tensor weight, bias, running_mean, running_var, num_batches_tracked;
};
using BatchNorm1dImpl = BatchNormImpl;
using BatchNorm2dImpl = BatchNormImpl;
using BatchNorm3dImpl = BatchNormImpl;
TORCH_MODULE(BatchNorm1d);
TORCH_MODULE(BatchNorm2d);
TORCH_MODULE(BatchNorm3d);

struct LayerNormOptions {
  LayerNormOptions(std::vector<int64_t> shape) : normalized_shape_(std::move(shape)) {}
  FL_OPTION(LayerNormOptions, std::vector<int64_t>, normalized_shape)
  FL_OPTION(LayerNormOptions, double, eps)
  FL_OPTION(LayerNormOptions, bool, elementwise_affine)
  std::vector<int64_t> normalized_shape_;
  double eps_ = 1e-5;
  bool elementwise_affine_ = true;
};
class LayerNormImpl : public Module {
 public:
  LayerNormImpl(std::vector<int64_t> shape) : LayerNormImpl(LayerNormOptions(std::move(shape))) {}
  explicit LayerNormImpl(const LayerNormOptions& o) : Module("torch::nn::LayerNorm"), options(o) {
    if (!o.elementwise_affine()) return;
    weight = register_parameter("weight", torch::ones(o.normalized_shape()));
    bias = register_parameter("bias", torch::zeros(o.normalized_shape()));
  }
  Tensor forward(const Tensor& input) {
    return torch::layer_norm(input, options.normalized_shape(), weight, bias, options.eps());
  }
  LayerNormOptions options;
  Tensor weight, bias;
};
TORCH_MODULE(LayerNorm);

struct EmbeddingOptions {
  EmbeddingOptions(int64_t n, int64_t d) : num_embeddings_(n), embedding_dim_(d) {}
  FL_OPTION(EmbeddingOptions, int64_t, num_embeddings)
  FL_OPTION(EmbeddingOptions, int64_t, embedding_dim)
  int64_t num_embeddings_, embedding_dim_;
};
class EmbeddingImpl : public Module {
 public:
  EmbeddingImpl(int64_t n, int64_t d) : EmbeddingImpl(EmbeddingOptions(n, d)) {}
  explicit EmbeddingImpl(const EmbeddingOptions& o) : Module("torch::nn::Embedding"), options(o) {
    weight = register_parameter("weight", torch::randn({o.num_embeddings(), o.embedding_dim()}));
  }
  Tensor forward(const Tensor& indices) {
    return at::detail::call("nn.functional.embedding", indices, weight);
  }
  EmbeddingOptions options;
  Tensor weight;
};
TORCH_MODULE(Embedding);

struct DropoutOptions {
  DropoutOptions(double p = 0.5) : p_(p) {}
  FL_OPTION(DropoutOptions, double, p)
  double p_;
};
class DropoutImpl : public Module {
 public:
  DropoutImpl(double p = 0.5) : options(p) {}
  explicit DropoutImpl(const DropoutOptions& o) : options(o) {}
  Tensor forward(const Tensor& input) { return torch::dropout(input, options.p(), is_training()); }
  DropoutOptions options;
};
TORCH_MODULE(Dropout);
class Dropout2dImpl : public DropoutImpl {
 public:
  using DropoutImpl::DropoutImpl;
  Tensor forward(const Tensor& input) {
    return at::detail::call("feature_dropout", input, options.p(), is_training());
  }
};
TORCH_MODULE(Dropout2d);

// ---------------------------------------------------------------- activations

#define FL_ACTIVATION(Name, expression)                        \
  class Name##Impl : public Module {                           \
   public:                                                     \
    Name##Impl() : Module("torch::nn::" #Name) {}              \
    Tensor forward(const Tensor& input) { return expression; } \
  };                                                           \
  TORCH_MODULE(Name);
FL_ACTIVATION(Tanh, torch::tanh(input))
FL_ACTIVATION(Sigmoid, torch::sigmoid(input))
FL_ACTIVATION(SiLU, functional::silu(input))
FL_ACTIVATION(Mish, functional::mish(input))
#undef FL_ACTIVATION

// A function of one input with options.
#define FL_FUNCTION_MODULE(Name, function, default)                                             \
  class Name##Impl : public Module {                                                            \
   public:                                                                                      \
    Name##Impl(Name##Options o default) : Module("torch::nn::" #Name), options(std::move(o)) {} \
    Tensor forward(const Tensor& input) { return functional::function(input, options); }        \
    Name##Options options;                                                                      \
  };                                                                                            \
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

#define FL_LOSS(Name, function)                                                              \
  class Name##Impl : public Module {                                                         \
   public:                                                                                   \
    Name##Impl(Name##Options o = {}) : Module("torch::nn::" #Name), options(std::move(o)) {} \
    Tensor forward(const Tensor& input, const Tensor& target) {                              \
      return functional::function(input, target, options);                                   \
    }                                                                                        \
    Name##Options options;                                                                   \
  };                                                                                         \
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

// ---------------------------------------------------------------- containers

template <class M>
std::true_type holds(const ModuleHolder<M>*);
std::false_type holds(...);
// Whether a class is a holder of a module.
template <class F>
constexpr bool is_holder = decltype(holds(static_cast<std::decay_t<F>*>(nullptr)))::value;

class SequentialImpl : public Module {
 public:
  SequentialImpl() = default;
  template <class... M>
  explicit SequentialImpl(M&&... modules) {
    (push_back(std::forward<M>(modules)), ...);
  }
  template <class M>
  void push_back(ModuleHolder<M> holder) {
    push_back(std::to_string(steps_.size()), holder.ptr());
  }
  template <class M>
  void push_back(std::shared_ptr<M> module) {
    push_back(std::to_string(steps_.size()), std::move(module));
  }
  template <class M>
  void push_back(std::string name, ModuleHolder<M> holder) {
    push_back(std::move(name), holder.ptr());
  }
  template <class M, std::enable_if_t<std::is_base_of_v<Module, M>, int> = 0>
  void push_back(M module) {
    push_back(std::make_shared<M>(std::move(module)));
  }
  // A function without parameters of its own, such as torch::relu.
  template <class F, class = decltype(std::declval<F>()(std::declval<Tensor>())),
            std::enable_if_t<!std::is_base_of_v<Module, F> && !is_holder<F>, int> = 0>
  void push_back(F function) {
    steps_.push_back([function](const Tensor& x) { return function(x); });
  }
  template <class M>
  void push_back(std::string name, std::shared_ptr<M> module) {
    register_module(std::move(name), module);
    steps_.push_back([module](const Tensor& x) { return module->forward(x); });
  }
  Tensor forward(Tensor x) {
    for (const auto& step : steps_) x = step(x);
    return x;
  }
  size_t size() const { return steps_.size(); }
  bool is_empty() const { return steps_.empty(); }
  std::shared_ptr<Module> ptr(size_t i) const { return children().at(i); }
  std::shared_ptr<Module> operator[](size_t i) const { return ptr(i); }

 private:
  std::vector<std::function<Tensor(const Tensor&)>> steps_;
};
TORCH_MODULE(Sequential);

class ModuleListImpl : public Module {
 public:
  template <class M>
  void push_back(ModuleHolder<M> holder) {
    register_module(std::to_string(children().size()), holder.ptr());
  }
  template <class M>
  void push_back(std::shared_ptr<M> module) {
    register_module(std::to_string(children().size()), std::move(module));
  }
  size_t size() const { return children().size(); }
  std::shared_ptr<Module> operator[](size_t i) const { return children().at(i); }
  template <class M>
  M& at(size_t i) const {
    return *std::dynamic_pointer_cast<M>(children().at(i));
  }
};
TORCH_MODULE(ModuleList);

#undef FL_OPTION

// Scales gradients so that their norm is at most this; returns the norm before.
namespace utils {
inline double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm,
                              double norm_type = 2.0) {
  torch::NoGradGuard guard;
  std::vector<Tensor> norms;
  for (const Tensor& p : parameters)
    if (p.grad().defined()) norms.push_back(p.grad().norm(norm_type));
  if (norms.empty()) return 0;
  const double total = torch::stack(norms).norm(norm_type).item<double>();
  const double factor = max_norm / (total + 1e-6);
  if (factor < 1)
    for (const Tensor& p : parameters)
      if (p.grad().defined()) p.grad().mul_(factor);
  return total;
}
}  // namespace utils

}  // namespace torch::nn
