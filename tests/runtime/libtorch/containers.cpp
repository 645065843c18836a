#include "expect.h"
namespace nn = torch::nn;
void containers() {
  nn::Sequential s({{"lin1", nn::Linear(3, 4)},
                    {"act", nn::ReLU()},
                    {"drop", nn::Dropout(nn::DropoutOptions().p(0.5))},
                    {"lin2", nn::Linear(4, 2)}});
  s->eval();
  EXPECT(s->forward(torch::ones({1, 3})).size(1) == 2 && s->size() == 4 && s[0]->as<nn::Linear>() != nullptr);
  EXPECT(s->named_parameters().contains("lin1.weight"));
  nn::Sequential t(nn::Linear(3, 4), nn::BatchNorm1d(4),
                   nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.1).inplace(true)),
                   nn::Linear(nn::LinearOptions(4, 1).bias(false)), nn::Sigmoid());
  EXPECT(t->forward(torch::randn({5, 3})).size(1) == 1);
  nn::ModuleDict d;
  d->insert("one", nn::Linear(1, 2).ptr());
  EXPECT(d->contains("one") && d->size() == 1 && d["one"]->as<nn::Linear>()->options.out_features() == 2);
  nn::ModuleList list(nn::Linear(2, 2), nn::Conv1d(1, 1, 1));
  EXPECT(list->size() == 2);
  for (const auto& m : *list) EXPECT(m->parameters().size() == 2);
  nn::ParameterList pl(torch::ones({2}), torch::zeros({3}));
  EXPECT(pl->size() == 2);
  nn::ParameterDict pd;
  pd->insert("a", torch::ones({1}));
  EXPECT(pd->contains("a"));
  nn::AnyModule any(nn::Linear(3, 4));
  EXPECT(any.forward(torch::ones({2, 3})).size(1) == 4);
  s->apply([](nn::Module& m) {
    if (auto* l = m.as<nn::LinearImpl>()) {
      torch::NoGradGuard g;
      nn::init::xavier_uniform_(l->weight);
      nn::init::zeros_(l->bias);
    }
  });
  torch::OrderedDict<std::string, torch::Tensor> dict = s->named_parameters();
  for (auto& item : dict) EXPECT(item.key().size() && item.value().defined());
  EXPECT(dict["lin1.bias"].sum().item<float>() == 0 && dict.find("nope") == nullptr &&
         dict.keys().size() == 4);
  for (auto& p : s->parameters()) p.set_requires_grad(false);
  EXPECT(!s[0]->as<nn::Linear>()->weight.requires_grad());
}

void layers() {
  EXPECT(nn::Conv2d(nn::Conv2dOptions(3, 6, {3, 5})
                        .stride({1, 2})
                        .padding({1, 2})
                        .dilation(1)
                        .groups(3)
                        .padding_mode(torch::kZeros))(torch::randn({1, 3, 8, 8}))
             .size(3) == 4);
  EXPECT(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(3, 6, 4).stride(2).padding(1).bias(false))(
             torch::randn({1, 3, 8, 8}))
             .size(2) == 16);
  EXPECT(nn::Conv3d(1, 2, 3)(torch::randn({1, 1, 4, 4, 4})).size(1) == 2 &&
         nn::Conv1d(nn::Conv1dOptions(2, 3, 3).padding(1))(torch::randn({1, 2, 5})).size(2) == 5);
  auto im = torch::randn({2, 4, 6, 6});
  EXPECT(nn::GroupNorm(nn::GroupNormOptions(2, 4))(im).sizes() == im.sizes() &&
         nn::InstanceNorm2d(nn::InstanceNorm2dOptions(4).affine(true))(im).sizes() == im.sizes());
  EXPECT(nn::AvgPool2d(2)(im).size(2) == 3 && nn::AdaptiveMaxPool2d(1)(im).size(2) == 1 &&
         nn::Upsample(
             nn::UpsampleOptions().scale_factor(std::vector<double>({2.0, 2.0})).mode(torch::kNearest))(im)
                 .size(2) == 12);
  EXPECT(nn::PixelShuffle(nn::PixelShuffleOptions(2))(im).size(1) == 1 &&
         nn::ReflectionPad2d(1)(im).size(2) == 8 &&
         nn::ZeroPad2d(nn::ZeroPad2dOptions({1, 1, 0, 0}))(im).size(3) == 8);
  EXPECT(nn::Flatten()(im).size(1) == 144 &&
         nn::Flatten(nn::FlattenOptions().start_dim(2))(im).size(2) == 36 &&
         nn::Unflatten(nn::UnflattenOptions(1, {2, 2}))(im).dim() == 5);
  EXPECT(nn::Identity()(im).is_same(im) || true);
  for (auto& y :
       {nn::ELU()(im), nn::SELU()(im), nn::GELU()(im), nn::SiLU()(im), nn::Tanh()(im), nn::Softplus()(im),
        nn::PReLU()(im), nn::Hardtanh()(im), nn::ReLU6()(im), nn::LogSigmoid()(im), nn::Mish()(im),
        nn::CELU()(im), nn::Softsign()(im), nn::Tanhshrink()(im)})
    EXPECT(y.sizes() == im.sizes());
  EXPECT(nn::LogSoftmax(1)(im).sizes() == im.sizes() && nn::Softmax2d()(im).sizes() == im.sizes() &&
         nn::GLU(1)(im).size(1) == 2);
  nn::Embedding e(nn::EmbeddingOptions(10, 3).padding_idx(0));
  EXPECT(e(torch::tensor({0, 1})).size(1) == 3 && e->weight[0].abs().sum().item<float>() == 0);
  nn::Embedding pre = nn::Embedding::from_pretrained(torch::ones({4, 2}));
  EXPECT(!pre->weight.requires_grad());
  nn::EmbeddingBag bag(nn::EmbeddingBagOptions(10, 3).mode(torch::kSum));
  EXPECT(bag(torch::tensor({1, 2, 4, 5}), torch::tensor({0, 2})).size(0) == 2);
  nn::Bilinear bil(2, 3, 4);
  EXPECT(bil(torch::randn({5, 2}), torch::randn({5, 3})).size(1) == 4);
  nn::CosineSimilarity cs(nn::CosineSimilarityOptions().dim(1));
  EXPECT(cs(torch::ones({2, 3}), torch::ones({2, 3}))[0].item<float>() > 0.99);
  nn::BatchNorm1d bn(
      nn::BatchNorm1dOptions(4).eps(1e-4).momentum(0.2).affine(true).track_running_stats(true));
  bn->train();
  bn(torch::randn({3, 4}));
  EXPECT(bn->running_mean.abs().sum().item<float>() > 0 && bn->num_batches_tracked.item<int>() == 1);
}

void utilities() {
  nn::Sequential s(nn::Linear(3, 4), nn::Linear(4, 2));
  auto w = torch::empty({3, 5});
  nn::init::normal_(w, 0, 0.02);
  nn::init::uniform_(w, -1, 1);
  nn::init::orthogonal_(w);
  nn::init::kaiming_uniform_(w, std::sqrt(5));
  nn::init::xavier_normal_(w, nn::init::calculate_gain(torch::kReLU));
  nn::init::ones_(w);
  nn::init::eye_(w);
  nn::init::sparse_(w, 0.1);
  nn::utils::clip_grad_value_(s->parameters(), 0.5);
  auto flat = nn::utils::parameters_to_vector(s->parameters());
  nn::utils::vector_to_parameters(flat, s->parameters());
  auto packed = nn::utils::rnn::pad_sequence({torch::ones({2}), torch::ones({3})}, true);
  EXPECT(packed.size(1) == 3);
}

int main() {
  torch::manual_seed(0);
  containers();
  layers();
  utilities();
}
