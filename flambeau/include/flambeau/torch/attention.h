// Attention with several heads, and the layers of Transformers.
#pragma once

#include <flambeau/torch/layers.h>

#include <tuple>

namespace torch::nn {

struct MultiheadAttentionOptions {
  MultiheadAttentionOptions(int64_t embed_dim, int64_t num_heads)
      : embed_dim_(embed_dim), num_heads_(num_heads) {}
  TORCH_ARG(int64_t, embed_dim);
  TORCH_ARG(int64_t, num_heads);
  TORCH_ARG(double, dropout) = 0;
  TORCH_ARG(bool, bias) = true;
};

// Queries, keys and values as (length, batch, features).
class MultiheadAttentionImpl : public Cloneable<MultiheadAttentionImpl> {
 public:
  MultiheadAttentionImpl(int64_t width, int64_t heads)
      : MultiheadAttentionImpl(MultiheadAttentionOptions(width, heads)) {}
  explicit MultiheadAttentionImpl(const MultiheadAttentionOptions& o)
      : Cloneable("torch::nn::MultiheadAttention"), options(o) {
    reset();
  }
  void reset() override {
    const int64_t width = options.embed_dim();
    if (width % options.num_heads() != 0)
      throw c10::ValueError(c10::str("[MultiheadAttention] expected an embed_dim that ", options.num_heads(),
                                     " heads divide, got ", width));
    in_proj_weight = register_parameter("in_proj_weight", torch::empty({3 * width, width}));
    init::xavier_uniform_(in_proj_weight);
    if (options.bias()) in_proj_bias = register_parameter("in_proj_bias", torch::zeros({3 * width}));
    out_proj = register_module("out_proj", Linear(LinearOptions(width, width).bias(options.bias())));
    if (options.bias()) init::zeros_(out_proj->bias);
  }
  // The result, and the weights of attention (their mean over the heads), if they are wanted.
  std::tuple<Tensor, Tensor> forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                     const Tensor& key_padding_mask = {}, bool need_weights = true,
                                     const Tensor& attn_mask = {}, bool average_attn_weights = true) {
    const int64_t width = options.embed_dim(), heads = options.num_heads(), batch = query.size(1);
    const auto project = [&](const Tensor& x, int64_t part) {
      const Tensor bias = in_proj_bias.defined() ? in_proj_bias.narrow(0, part * width, width) : Tensor();
      const Tensor y = functional::linear(x, in_proj_weight.narrow(0, part * width, width), bias);
      return y.reshape({x.size(0), batch, heads, width / heads}).permute({1, 2, 0, 3});
    };
    const Tensor q = project(query, 0) * (1 / std::sqrt(static_cast<double>(width / heads)));
    const Tensor k = project(key, 1), v = project(value, 2);
    Tensor scores = torch::matmul(q, k.transpose(-2, -1));
    if (attn_mask.defined()) scores = masked(scores, mask_of(attn_mask, batch, heads));
    if (key_padding_mask.defined()) scores = masked(scores, key_padding_mask.unsqueeze(1).unsqueeze(1));
    const Tensor weights = torch::softmax(scores, int64_t(-1));
    const Tensor kept = torch::dropout(weights, options.dropout(), is_training());
    const Tensor mixed = torch::matmul(kept, v).permute({2, 0, 1, 3}).reshape({query.size(0), batch, width});
    const Tensor shown = !need_weights ? Tensor() : average_attn_weights ? weights.mean({1}) : weights;
    return {out_proj(mixed), shown};
  }
  MultiheadAttentionOptions options;
  Tensor in_proj_weight, in_proj_bias;
  Linear out_proj{nullptr};

 private:
  static Tensor mask_of(const Tensor& mask, int64_t batch, int64_t heads) {
    return mask.dim() == 3 ? mask.reshape({batch, heads, mask.size(1), mask.size(2)}) : mask;
  }
  // True values of a mask are left out; numbers are added.
  static Tensor masked(const Tensor& scores, const Tensor& mask) {
    return mask.scalar_type() == kBool ? scores.masked_fill(mask, -std::numeric_limits<double>::infinity())
                                       : scores + mask;
  }
};
TORCH_MODULE(MultiheadAttention);

// ---------------------------------------------------------------- layers

template <bool DECODER>
struct TransformerLayerOptions {
  TransformerLayerOptions(int64_t d_model, int64_t nhead) : d_model_(d_model), nhead_(nhead) {}
  TORCH_ARG(int64_t, d_model);
  TORCH_ARG(int64_t, nhead);
  TORCH_ARG(int64_t, dim_feedforward) = 2048;
  TORCH_ARG(double, dropout) = 0.1;
  TORCH_ARG(std::string, activation) = "relu";
};
using TransformerEncoderLayerOptions = TransformerLayerOptions<false>;
using TransformerDecoderLayerOptions = TransformerLayerOptions<true>;

namespace detail {
inline Tensor activated(const std::string& name, const Tensor& x) {
  if (name == "relu") return torch::relu(x);
  if (name == "gelu") return torch::gelu(x);
  throw c10::ValueError(c10::str("[Transformer] expected kReLU or kGELU as the activation, got ", name));
}
}  // namespace detail

class TransformerEncoderLayerImpl : public Cloneable<TransformerEncoderLayerImpl> {
 public:
  TransformerEncoderLayerImpl(int64_t d, int64_t heads)
      : TransformerEncoderLayerImpl(TransformerEncoderLayerOptions(d, heads)) {}
  explicit TransformerEncoderLayerImpl(const TransformerEncoderLayerOptions& o)
      : Cloneable("torch::nn::TransformerEncoderLayer"), options(o) {
    reset();
  }
  void reset() override {
    const int64_t width = options.d_model(), hidden = options.dim_feedforward();
    self_attn = register_module(
        "self_attn",
        MultiheadAttention(MultiheadAttentionOptions(width, options.nhead()).dropout(options.dropout())));
    linear1 = register_module("linear1", Linear(width, hidden));
    dropout = register_module("dropout", Dropout(options.dropout()));
    linear2 = register_module("linear2", Linear(hidden, width));
    norm1 = register_module("norm1", LayerNorm(LayerNormOptions({width})));
    norm2 = register_module("norm2", LayerNorm(LayerNormOptions({width})));
    dropout1 = register_module("dropout1", Dropout(options.dropout()));
    dropout2 = register_module("dropout2", Dropout(options.dropout()));
  }
  Tensor forward(const Tensor& src, const Tensor& src_mask = {}, const Tensor& src_key_padding_mask = {}) {
    const Tensor mixed = std::get<0>(self_attn(src, src, src, src_key_padding_mask, false, src_mask));
    const Tensor x = norm1(src + dropout1(mixed));
    return norm2(x + dropout2(linear2(dropout(detail::activated(options.activation(), linear1(x))))));
  }
  TransformerEncoderLayerOptions options;
  MultiheadAttention self_attn{nullptr};
  Linear linear1{nullptr}, linear2{nullptr};
  Dropout dropout{nullptr}, dropout1{nullptr}, dropout2{nullptr};
  LayerNorm norm1{nullptr}, norm2{nullptr};
};
TORCH_MODULE(TransformerEncoderLayer);

class TransformerDecoderLayerImpl : public Cloneable<TransformerDecoderLayerImpl> {
 public:
  TransformerDecoderLayerImpl(int64_t d, int64_t heads)
      : TransformerDecoderLayerImpl(TransformerDecoderLayerOptions(d, heads)) {}
  explicit TransformerDecoderLayerImpl(const TransformerDecoderLayerOptions& o)
      : Cloneable("torch::nn::TransformerDecoderLayer"), options(o) {
    reset();
  }
  void reset() override {
    const int64_t width = options.d_model(), hidden = options.dim_feedforward();
    const auto attention = MultiheadAttentionOptions(width, options.nhead()).dropout(options.dropout());
    self_attn = register_module("self_attn", MultiheadAttention(attention));
    multihead_attn = register_module("multihead_attn", MultiheadAttention(attention));
    linear1 = register_module("linear1", Linear(width, hidden));
    dropout = register_module("dropout", Dropout(options.dropout()));
    linear2 = register_module("linear2", Linear(hidden, width));
    norm1 = register_module("norm1", LayerNorm(LayerNormOptions({width})));
    norm2 = register_module("norm2", LayerNorm(LayerNormOptions({width})));
    norm3 = register_module("norm3", LayerNorm(LayerNormOptions({width})));
    dropout1 = register_module("dropout1", Dropout(options.dropout()));
    dropout2 = register_module("dropout2", Dropout(options.dropout()));
    dropout3 = register_module("dropout3", Dropout(options.dropout()));
  }
  Tensor forward(const Tensor& tgt, const Tensor& memory, const Tensor& tgt_mask = {},
                 const Tensor& memory_mask = {}, const Tensor& tgt_key_padding_mask = {},
                 const Tensor& memory_key_padding_mask = {}) {
    const Tensor own = std::get<0>(self_attn(tgt, tgt, tgt, tgt_key_padding_mask, false, tgt_mask));
    Tensor x = norm1(tgt + dropout1(own));
    const Tensor other =
        std::get<0>(multihead_attn(x, memory, memory, memory_key_padding_mask, false, memory_mask));
    x = norm2(x + dropout2(other));
    return norm3(x + dropout3(linear2(dropout(detail::activated(options.activation(), linear1(x))))));
  }
  TransformerDecoderLayerOptions options;
  MultiheadAttention self_attn{nullptr}, multihead_attn{nullptr};
  Linear linear1{nullptr}, linear2{nullptr};
  Dropout dropout{nullptr}, dropout1{nullptr}, dropout2{nullptr}, dropout3{nullptr};
  LayerNorm norm1{nullptr}, norm2{nullptr}, norm3{nullptr};
};
TORCH_MODULE(TransformerDecoderLayer);

// ---------------------------------------------------------------- stacks

// A layer to copy, how often, and a norm at the end.
template <class Layer, class LayerOptions>
struct StackOptions {
  StackOptions(const Layer& layer, int64_t n) : encoder_layer(layer), num_layers_(n) {}
  StackOptions(const LayerOptions& layer, int64_t n) : encoder_layer(Layer(layer)), num_layers_(n) {}
  Layer encoder_layer;

  TORCH_ARG(int64_t, num_layers);
  TORCH_ARG(AnyModule, norm);
};
using TransformerEncoderOptions = StackOptions<TransformerEncoderLayer, TransformerEncoderLayerOptions>;
using TransformerDecoderOptions = StackOptions<TransformerDecoderLayer, TransformerDecoderLayerOptions>;

template <class Derived, class Layer, class Options>
class TransformerStack : public Cloneable<Derived> {
 public:
  TransformerStack(const char* name, const Options& o) : Cloneable<Derived>(name), options(o) { reset(); }
  void reset() override {
    layers = this->register_module("layers", ModuleList());
    for (int64_t i = 0; i < options.num_layers(); ++i) layers->push_back(options.encoder_layer->clone());
    if (options.norm().is_empty()) return;
    norm = options.norm().clone();
    this->register_module("norm", norm.ptr());
  }
  Options options;
  ModuleList layers{nullptr};
  AnyModule norm;

 protected:
  template <class... A>
  Tensor through(Tensor x, const A&... a) {
    for (const auto& layer : *layers) x = layer->template as<Layer>()->forward(x, a...);
    return norm.is_empty() ? x : norm.forward(x);
  }
};

class TransformerEncoderImpl
    : public TransformerStack<TransformerEncoderImpl, TransformerEncoderLayer, TransformerEncoderOptions> {
 public:
  TransformerEncoderImpl(const TransformerEncoderLayer& layer, int64_t n)
      : TransformerEncoderImpl(TransformerEncoderOptions(layer, n)) {}
  explicit TransformerEncoderImpl(const TransformerEncoderOptions& o)
      : TransformerStack("torch::nn::TransformerEncoder", o) {}
  Tensor forward(const Tensor& src, const Tensor& src_mask = {}, const Tensor& src_key_padding_mask = {}) {
    return through(src, src_mask, src_key_padding_mask);
  }
};
TORCH_MODULE(TransformerEncoder);

class TransformerDecoderImpl
    : public TransformerStack<TransformerDecoderImpl, TransformerDecoderLayer, TransformerDecoderOptions> {
 public:
  TransformerDecoderImpl(const TransformerDecoderLayer& layer, int64_t n)
      : TransformerDecoderImpl(TransformerDecoderOptions(layer, n)) {}
  explicit TransformerDecoderImpl(const TransformerDecoderOptions& o)
      : TransformerStack("torch::nn::TransformerDecoder", o) {}
  Tensor forward(const Tensor& tgt, const Tensor& memory, const Tensor& tgt_mask = {},
                 const Tensor& memory_mask = {}, const Tensor& tgt_key_padding_mask = {},
                 const Tensor& memory_key_padding_mask = {}) {
    return through(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask);
  }
};
TORCH_MODULE(TransformerDecoder);

struct TransformerOptions {
  TransformerOptions(int64_t d_model = 512, int64_t nhead = 8, int64_t encoders = 6, int64_t decoders = 6)
      : d_model_(d_model), nhead_(nhead), num_encoder_layers_(encoders), num_decoder_layers_(decoders) {}
  TORCH_ARG(int64_t, d_model);
  TORCH_ARG(int64_t, nhead);
  TORCH_ARG(int64_t, num_encoder_layers);
  TORCH_ARG(int64_t, num_decoder_layers);
  TORCH_ARG(int64_t, dim_feedforward) = 2048;
  TORCH_ARG(double, dropout) = 0.1;
  TORCH_ARG(std::string, activation) = "relu";
};

class TransformerImpl : public Cloneable<TransformerImpl> {
 public:
  explicit TransformerImpl(const TransformerOptions& o = {})
      : Cloneable("torch::nn::Transformer"), options(o) {
    reset();
  }
  void reset() override {
    const auto settings = [&](auto layer) {
      return layer.dim_feedforward(options.dim_feedforward())
          .dropout(options.dropout())
          .activation(options.activation());
    };
    const LayerNorm norm(LayerNormOptions({options.d_model()}));
    encoder = register_module(
        "encoder", TransformerEncoder(TransformerEncoderOptions(settings(TransformerEncoderLayerOptions(
                                                                    options.d_model(), options.nhead())),
                                                                options.num_encoder_layers())
                                          .norm(AnyModule(norm))));
    decoder = register_module(
        "decoder", TransformerDecoder(TransformerDecoderOptions(settings(TransformerDecoderLayerOptions(
                                                                    options.d_model(), options.nhead())),
                                                                options.num_decoder_layers())
                                          .norm(AnyModule(norm))));
    for (const Tensor& p : parameters())
      if (p.dim() > 1) init::xavier_uniform_(p);
  }
  Tensor forward(const Tensor& src, const Tensor& tgt, const Tensor& src_mask = {},
                 const Tensor& tgt_mask = {}, const Tensor& memory_mask = {},
                 const Tensor& src_key_padding_mask = {}, const Tensor& tgt_key_padding_mask = {},
                 const Tensor& memory_key_padding_mask = {}) {
    const Tensor memory = encoder(src, src_mask, src_key_padding_mask);
    return decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask);
  }
  static Tensor generate_square_subsequent_mask(int64_t n) {
    return torch::triu(torch::full({n, n}, -std::numeric_limits<double>::infinity()), int64_t(1));
  }
  TransformerOptions options;
  TransformerEncoder encoder{nullptr};
  TransformerDecoder decoder{nullptr};
};
TORCH_MODULE(Transformer);

}  // namespace torch::nn
