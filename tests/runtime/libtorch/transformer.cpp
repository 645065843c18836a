#include <cmath>
#include "expect.h"
class PositionalEncodingImpl : public torch::nn::Module {
 public:
  PositionalEncodingImpl(int64_t d_model, double p, int64_t max_len = 100) : dropout(p) {
    register_module("dropout", dropout);
    auto position = torch::arange(max_len, torch::kFloat).unsqueeze(1);
    auto div_term = torch::exp(torch::arange(0, d_model, 2, torch::kFloat) * (-std::log(10000.0) / d_model));
    auto table = torch::zeros({max_len, d_model});
    table.index_put_({torch::indexing::Slice(), torch::indexing::Slice(0, torch::indexing::None, 2)},
                     torch::sin(position * div_term));
    table.index_put_({torch::indexing::Slice(), torch::indexing::Slice(1, torch::indexing::None, 2)},
                     torch::cos(position * div_term));
    pe = register_buffer("pe", table.unsqueeze(0));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return dropout(
        x + pe.index({torch::indexing::Slice(), torch::indexing::Slice(torch::indexing::None, x.size(1))}));
  }
  torch::nn::Dropout dropout;
  torch::Tensor pe;
};
TORCH_MODULE(PositionalEncoding);
struct BlockImpl : torch::nn::Module {
  torch::nn::MultiheadAttention attention{nullptr};
  torch::nn::LayerNorm n1{nullptr}, n2{nullptr};
  torch::nn::Sequential mlp{nullptr};
  explicit BlockImpl(int64_t w) {
    attention = register_module(
        "attention", torch::nn::MultiheadAttention(torch::nn::MultiheadAttentionOptions(w, 2).dropout(0.0)));
    n1 = register_module("n1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({w})));
    n2 = register_module("n2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({w}).eps(1e-6)));
    mlp = register_module("mlp", torch::nn::Sequential(torch::nn::Linear(w, 4 * w), torch::nn::GELU(),
                                                       torch::nn::Linear(4 * w, w)));
  }
  torch::Tensor forward(torch::Tensor x, torch::Tensor mask = {}) {
    auto y = n1(x).transpose(0, 1);
    auto [out, weights] = attention(y, y, y, torch::Tensor(), true, mask);
    x = x + out.transpose(0, 1);
    return x + mlp->forward(n2(x));
  }
};
TORCH_MODULE(Block);
int main() {
  torch::manual_seed(0);
  PositionalEncoding pos(8, 0.1);
  pos->eval();
  EXPECT(pos(torch::zeros({2, 5, 8})).sizes() == torch::IntArrayRef({2, 5, 8}));
  torch::nn::ModuleList blocks;
  for (int i = 0; i < 2; ++i) blocks->push_back(Block(8));
  auto x = torch::randn({2, 5, 8});
  auto mask = torch::triu(torch::full({5, 5}, -INFINITY), 1);
  auto y = x;
  for (auto& b : *blocks) y = b->as<Block>()->forward(y, mask);
  EXPECT(y.sizes() == x.sizes());
  torch::nn::TransformerEncoderLayer layer(
      torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.0).activation(
          torch::kGELU));
  torch::nn::TransformerEncoder encoder(torch::nn::TransformerEncoderOptions(layer, 2));
  auto src = torch::randn({5, 2, 8});
  EXPECT(encoder(src).sizes() == src.sizes());
  EXPECT(encoder->forward(src, mask).sizes() == src.sizes());
  torch::nn::TransformerDecoderLayer dlayer(
      torch::nn::TransformerDecoderLayerOptions(8, 2).dim_feedforward(16));
  torch::nn::TransformerDecoder decoder(torch::nn::TransformerDecoderOptions(dlayer, 2));
  EXPECT(decoder(src, src).sizes() == src.sizes());
  torch::nn::Transformer whole(torch::nn::TransformerOptions(8, 2, 1, 1).dim_feedforward(16));
  EXPECT(whole(src, src).sizes() == src.sizes());
  std::vector<torch::Tensor> ps = blocks->parameters();
  torch::optim::AdamW optimizer(ps, torch::optim::AdamWOptions(1e-3).weight_decay(0.01).eps(1e-8));
  auto loss = y.pow(2).mean();
  loss.backward();
  optimizer.step();
  for (const auto& pair : blocks->named_parameters()) EXPECT(pair.value().grad().defined());
  auto attended = torch::scaled_dot_product_attention(torch::randn({1, 2, 5, 4}), torch::randn({1, 2, 5, 4}),
                                                      torch::randn({1, 2, 5, 4}), {}, 0.0, true);
  EXPECT(attended.size(3) == 4);
}
