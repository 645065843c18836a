// More layers of torch::nn: tables of embeddings, norms over groups, distances, losses of several inputs.
#pragma once

#include <flambeau/torch/nn.h>

namespace torch::nn {

// ---------------------------------------------------------------- embeddings

struct EmbeddingOptions {
  EmbeddingOptions(int64_t n, int64_t d) : num_embeddings_(n), embedding_dim_(d) {}
  TORCH_ARG(int64_t, num_embeddings);
  TORCH_ARG(int64_t, embedding_dim);
  TORCH_ARG(std::optional<int64_t>, padding_idx);
  TORCH_ARG(std::optional<double>, max_norm);
  TORCH_ARG(double, norm_type) = 2;
  TORCH_ARG(bool, scale_grad_by_freq) = false;
  TORCH_ARG(bool, sparse) = false;
  TORCH_ARG(Tensor, _weight);
};
struct EmbeddingFromPretrainedOptions {
  TORCH_ARG(bool, freeze) = true;
  TORCH_ARG(std::optional<int64_t>, padding_idx);
};

class EmbeddingImpl : public Cloneable<EmbeddingImpl> {
 public:
  EmbeddingImpl(int64_t n, int64_t d) : EmbeddingImpl(EmbeddingOptions(n, d)) {}
  explicit EmbeddingImpl(const EmbeddingOptions& o) : Cloneable("torch::nn::Embedding"), options(o) {
    reset();
  }
  void reset() override {
    const bool is_given = options._weight().defined();
    weight = register_parameter(
        "weight",
        is_given ? options._weight() : torch::randn({options.num_embeddings(), options.embedding_dim()}));
    if (is_given || !options.padding_idx()) return;
    torch::NoGradGuard guard;
    weight[*options.padding_idx()].zero_();
  }
  void pretty_print(std::ostream& out) const override {
    out << name() << "(num_embeddings=" << options.num_embeddings()
        << ", embedding_dim=" << options.embedding_dim();
    if (options.padding_idx()) out << ", padding_idx=" << *options.padding_idx();
    out << ")";
  }
  Tensor forward(const Tensor& indices) {
    return at::detail::call("nn.functional.embedding", indices, weight, options.padding_idx(),
                            options.max_norm(), options.norm_type(), options.scale_grad_by_freq(),
                            options.sparse());
  }
  EmbeddingOptions options;
  Tensor weight;
};
class Embedding : public ModuleHolder<EmbeddingImpl> {
 public:
  using ModuleHolder<EmbeddingImpl>::ModuleHolder;
  using Impl [[maybe_unused]] = EmbeddingImpl;
  static Embedding from_pretrained(const Tensor& embeddings, const EmbeddingFromPretrainedOptions& o = {}) {
    if (embeddings.dim() != 2)
      throw c10::Error(c10::str("[Embedding] expected a matrix of embeddings, got ", embeddings.sizes()));
    Embedding layer(EmbeddingOptions(embeddings.size(0), embeddings.size(1))
                        ._weight(embeddings)
                        .padding_idx(o.padding_idx()));
    layer->weight.requires_grad_(!o.freeze());
    return layer;
  }
};

struct EmbeddingBagOptions {
  EmbeddingBagOptions(int64_t n, int64_t d) : num_embeddings_(n), embedding_dim_(d) {}
  TORCH_ARG(int64_t, num_embeddings);
  TORCH_ARG(int64_t, embedding_dim);
  TORCH_ARG(std::string, mode) = "mean";
};
class EmbeddingBagImpl : public Cloneable<EmbeddingBagImpl> {
 public:
  EmbeddingBagImpl(int64_t n, int64_t d) : EmbeddingBagImpl(EmbeddingBagOptions(n, d)) {}
  explicit EmbeddingBagImpl(const EmbeddingBagOptions& o) : Cloneable("torch::nn::EmbeddingBag"), options(o) {
    reset();
  }
  void reset() override {
    weight = register_parameter("weight", torch::randn({options.num_embeddings(), options.embedding_dim()}));
  }
  Tensor forward(const Tensor& indices, const Tensor& offsets = {}) {
    at::detail::Arguments arguments;
    arguments.add(indices).add(weight).add(offsets).add(options.mode(), "mode");
    at::detail::Results results;
    results.run(false, "nn.functional.embedding_bag", arguments);
    return results.tensor(0);
  }
  EmbeddingBagOptions options;
  Tensor weight;
};
TORCH_MODULE(EmbeddingBag);

// ---------------------------------------------------------------- norms

struct GroupNormOptions {
  GroupNormOptions(int64_t groups, int64_t channels) : num_groups_(groups), num_channels_(channels) {}
  TORCH_ARG(int64_t, num_groups);
  TORCH_ARG(int64_t, num_channels);
  TORCH_ARG(double, eps) = 1e-5;
  TORCH_ARG(bool, affine) = true;
};
class GroupNormImpl : public Cloneable<GroupNormImpl> {
 public:
  GroupNormImpl(int64_t groups, int64_t channels) : GroupNormImpl(GroupNormOptions(groups, channels)) {}
  explicit GroupNormImpl(const GroupNormOptions& o) : Cloneable("torch::nn::GroupNorm"), options(o) {
    reset();
  }
  void reset() override {
    if (!options.affine()) return;
    weight = register_parameter("weight", torch::ones({options.num_channels()}));
    bias = register_parameter("bias", torch::zeros({options.num_channels()}));
  }
  Tensor forward(const Tensor& input) {
    return torch::group_norm(input, options.num_groups(), weight, bias, options.eps());
  }
  GroupNormOptions options;
  Tensor weight, bias;
};
TORCH_MODULE(GroupNorm);

using InstanceNormOptions = NormOptions<true>;
template <class Derived>
class InstanceNormBase : public BatchNormBase<Derived, InstanceNormOptions> {
 public:
  using BatchNormBase<Derived, InstanceNormOptions>::BatchNormBase;
  Tensor forward(const Tensor& input) {
    return at::detail::call("instance_norm", input, this->weight, this->bias, this->running_mean,
                            this->running_var, this->is_training() || !this->running_mean.defined(),
                            this->options.momentum(), this->options.eps(), false);
  }
};
#define FL_INSTANCE_NORM(Name)                             \
  class Name##Impl : public InstanceNormBase<Name##Impl> { \
   public:                                                 \
    using InstanceNormBase<Name##Impl>::InstanceNormBase;  \
  };                                                       \
  using Name##Options = InstanceNormOptions;               \
  TORCH_MODULE(Name);
FL_INSTANCE_NORM(InstanceNorm1d)
FL_INSTANCE_NORM(InstanceNorm2d)
FL_INSTANCE_NORM(InstanceNorm3d)
#undef FL_INSTANCE_NORM

// ---------------------------------------------------------------- layers of two inputs, activations with
// weights

struct BilinearOptions {
  BilinearOptions(int64_t first, int64_t second, int64_t out)
      : in1_features_(first), in2_features_(second), out_features_(out) {}
  TORCH_ARG(int64_t, in1_features);
  TORCH_ARG(int64_t, in2_features);
  TORCH_ARG(int64_t, out_features);
  TORCH_ARG(bool, bias) = true;
};
class BilinearImpl : public Cloneable<BilinearImpl> {
 public:
  BilinearImpl(int64_t a, int64_t b, int64_t out) : BilinearImpl(BilinearOptions(a, b, out)) {}
  explicit BilinearImpl(const BilinearOptions& o) : Cloneable("torch::nn::Bilinear"), options(o) { reset(); }
  void reset() override {
    const double bound = 1 / std::sqrt(static_cast<double>(options.in1_features()));
    weight = register_parameter(
        "weight", torch::empty({options.out_features(), options.in1_features(), options.in2_features()}));
    init::uniform_(weight, -bound, bound);
    if (!options.bias()) return;
    bias = register_parameter("bias", torch::empty({options.out_features()}));
    init::uniform_(bias, -bound, bound);
  }
  Tensor forward(const Tensor& a, const Tensor& b) { return torch::bilinear(a, b, weight, bias); }
  BilinearOptions options;
  Tensor weight, bias;
};
TORCH_MODULE(Bilinear);

struct PReLUOptions {
  TORCH_ARG(int64_t, num_parameters) = 1;
  TORCH_ARG(double, init) = 0.25;
};
class PReLUImpl : public Cloneable<PReLUImpl> {
 public:
  PReLUImpl(const PReLUOptions& o = {}) : Cloneable("torch::nn::PReLU"), options(o) { reset(); }
  void reset() override {
    weight = register_parameter("weight", torch::full({options.num_parameters()}, options.init()));
  }
  Tensor forward(const Tensor& input) { return torch::prelu(input, weight); }
  PReLUOptions options;
  Tensor weight;
};
TORCH_MODULE(PReLU);

struct CosineSimilarityOptions {
  TORCH_ARG(int64_t, dim) = 1;
  TORCH_ARG(double, eps) = 1e-8;
};
class CosineSimilarityImpl : public Cloneable<CosineSimilarityImpl> {
 public:
  CosineSimilarityImpl(const CosineSimilarityOptions& o = {})
      : Cloneable("torch::nn::CosineSimilarity"), options(o) {}
  void reset() override {}
  Tensor forward(const Tensor& a, const Tensor& b) {
    return torch::cosine_similarity(a, b, options.dim(), options.eps());
  }
  CosineSimilarityOptions options;
};
TORCH_MODULE(CosineSimilarity);

struct PairwiseDistanceOptions {
  TORCH_ARG(double, p) = 2;
  TORCH_ARG(double, eps) = 1e-6;
  TORCH_ARG(bool, keepdim) = false;
};
class PairwiseDistanceImpl : public Cloneable<PairwiseDistanceImpl> {
 public:
  PairwiseDistanceImpl(const PairwiseDistanceOptions& o = {})
      : Cloneable("torch::nn::PairwiseDistance"), options(o) {}
  void reset() override {}
  Tensor forward(const Tensor& a, const Tensor& b) {
    return torch::pairwise_distance(a, b, options.p(), options.eps(), options.keepdim());
  }
  PairwiseDistanceOptions options;
};
TORCH_MODULE(PairwiseDistance);

// ---------------------------------------------------------------- losses

// Keyword arguments of losses.
struct MarginLossOptions : Keywords {
  FL_KEYWORD(double, margin)
  FL_KEYWORD(std::string, reduction)
};
struct TripletMarginLossOptions : Keywords {
  FL_KEYWORD(double, margin)
  FL_KEYWORD(double, p)
  FL_KEYWORD(double, eps)
  FL_KEYWORD(bool, swap)
  FL_KEYWORD(std::string, reduction)
};
using CosineEmbeddingLossOptions = MarginLossOptions;
using MarginRankingLossOptions = MarginLossOptions;
using HingeEmbeddingLossOptions = MarginLossOptions;
using MultiMarginLossOptions = MarginLossOptions;
using SoftMarginLossOptions = LossOptions;
using MultiLabelMarginLossOptions = LossOptions;
using MultiLabelSoftMarginLossOptions = LossOptions;

#define FL_LOSS_OF(Name, function, inputs, values)                                                          \
  class Name##Impl : public Cloneable<Name##Impl> {                                                         \
   public:                                                                                                  \
    Name##Impl(Name##Options o = {}) : Cloneable("torch::nn::" #Name), options(std::move(o)) {}             \
    void reset() override {}                                                                                \
    Tensor forward inputs { return at::detail::call("nn.functional." #function, FL_REST values, options); } \
    Name##Options options;                                                                                  \
  };                                                                                                        \
  TORCH_MODULE(Name);
#define FL_REST(...) __VA_ARGS__
#define FL_TWO (const Tensor& a, const Tensor& b)
#define FL_THREE (const Tensor& a, const Tensor& b, const Tensor& c)
FL_LOSS_OF(CosineEmbeddingLoss, cosine_embedding_loss, FL_THREE, (a, b, c))
FL_LOSS_OF(MarginRankingLoss, margin_ranking_loss, FL_THREE, (a, b, c))
FL_LOSS_OF(TripletMarginLoss, triplet_margin_loss, FL_THREE, (a, b, c))
FL_LOSS_OF(HingeEmbeddingLoss, hinge_embedding_loss, FL_TWO, (a, b))
FL_LOSS_OF(MultiMarginLoss, multi_margin_loss, FL_TWO, (a, b))
FL_LOSS_OF(SoftMarginLoss, soft_margin_loss, FL_TWO, (a, b))
FL_LOSS_OF(MultiLabelMarginLoss, multilabel_margin_loss, FL_TWO, (a, b))
FL_LOSS_OF(MultiLabelSoftMarginLoss, multilabel_soft_margin_loss, FL_TWO, (a, b))
#undef FL_THREE
#undef FL_TWO
#undef FL_REST
#undef FL_LOSS_OF

struct CTCLossOptions : Keywords {
  FL_KEYWORD(int64_t, blank)
  FL_KEYWORD(bool, zero_infinity)
  FL_KEYWORD(std::string, reduction)
};
class CTCLossImpl : public Cloneable<CTCLossImpl> {
 public:
  CTCLossImpl(CTCLossOptions o = {}) : Cloneable("torch::nn::CTCLoss"), options(std::move(o)) {}
  void reset() override {}
  Tensor forward(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                 const Tensor& target_lengths) {
    return at::detail::call("nn.functional.ctc_loss", log_probs, targets, input_lengths, target_lengths,
                            options);
  }
  CTCLossOptions options;
};
TORCH_MODULE(CTCLoss);

#undef FL_KEYWORD

// ---------------------------------------------------------------- utilities

namespace utils {

// Scales gradients so that their norm is at most this; returns the norm before.
inline double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type = 2.0,
                              bool error_if_nonfinite = false) {
  torch::NoGradGuard guard;
  std::vector<Tensor> norms;
  for (const Tensor& p : parameters)
    if (p.grad().defined()) norms.push_back(p.grad().norm(norm_type));
  if (norms.empty()) return 0;
  const double total = torch::stack(norms).norm(norm_type).item<double>();
  if (error_if_nonfinite && !std::isfinite(total))
    throw c10::Error("[clip_grad_norm_] expected gradients with a finite norm, got others");
  const double factor = max_norm / (total + 1e-6);
  if (factor < 1)
    for (const Tensor& p : parameters)
      if (p.grad().defined()) p.grad().mul_(factor);
  return total;
}
inline double clip_grad_norm_(const Tensor& parameter, double max_norm, double norm_type = 2.0,
                              bool error_if_nonfinite = false) {
  return clip_grad_norm_(std::vector<Tensor>{parameter}, max_norm, norm_type, error_if_nonfinite);
}
inline void clip_grad_value_(const std::vector<Tensor>& parameters, double most) {
  for (const Tensor& p : parameters)
    if (p.grad().defined()) p.grad().clamp_(-most, most);
}
inline void clip_grad_value_(const Tensor& parameter, double most) {
  clip_grad_value_(std::vector<Tensor>{parameter}, most);
}
inline Tensor parameters_to_vector(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> parts;
  for (const Tensor& p : parameters) parts.push_back(p.reshape({-1}));
  return torch::cat(parts);
}
inline void vector_to_parameters(const Tensor& values, const std::vector<Tensor>& parameters) {
  torch::NoGradGuard guard;
  int64_t at = 0;
  for (const Tensor& p : parameters) {
    p.copy_(values.narrow(0, at, p.numel()).view_as(p));
    at += p.numel();
  }
}

}  // namespace utils

}  // namespace torch::nn
