#include "expect.h"
struct VAEOutput {
  torch::Tensor reconstruction, mu, log_var;
};
class VAEImpl : public torch::nn::Module {
 public:
  VAEImpl(int64_t image, int64_t h, int64_t z)
      : fc1(image, h), fc2(h, z), fc3(h, z), fc4(z, h), fc5(h, image) {
    register_module("fc1", fc1);
    register_module("fc2", fc2);
    register_module("fc3", fc3);
    register_module("fc4", fc4);
    register_module("fc5", fc5);
  }
  torch::Tensor decode(torch::Tensor z) {
    return torch::sigmoid(fc5->forward(torch::nn::functional::relu(fc4->forward(z))));
  }
  VAEOutput forward(torch::Tensor x) {
    auto h = torch::nn::functional::relu(fc1->forward(x));
    auto mu = fc2->forward(h), log_var = fc3->forward(h);
    auto std = log_var.div(2).exp_();
    auto eps = torch::randn_like(std);
    return {decode(eps.mul(std).add_(mu)), mu, log_var};
  }

 private:
  torch::nn::Linear fc1, fc2, fc3, fc4, fc5;
};
TORCH_MODULE(VAE);
int main() {
  torch::manual_seed(0);
  VAE model(16, 8, 2);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-2));
  auto images = torch::rand({32, 16});
  double first = 0, last = 0;
  for (int i = 0; i != 60; ++i) {
    auto output = model->forward(images);
    auto reconstruction_loss = torch::nn::functional::binary_cross_entropy(
        output.reconstruction, images,
        torch::nn::functional::BinaryCrossEntropyFuncOptions().reduction(torch::kSum));
    auto kl = -0.5 * torch::sum(1 + output.log_var - output.mu.pow(2) - output.log_var.exp());
    auto loss = reconstruction_loss + kl;
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    if (i == 0) first = loss.item<double>();
    last = loss.item<double>();
  }
  EXPECT(last < first);
  auto l = torch::nn::functional::smooth_l1_loss(torch::zeros({3}), torch::ones({3}));
  EXPECT(std::abs(l.item<float>() - 0.5) < 1e-6);
  torch::nn::BCEWithLogitsLoss bce(torch::nn::BCEWithLogitsLossOptions().pos_weight(torch::tensor({2.0f})));
  EXPECT(bce(torch::zeros({3, 1}), torch::ones({3, 1})).item<float>() > 1.38);
  torch::nn::KLDivLoss kl(torch::nn::KLDivLossOptions().reduction(torch::kBatchMean));
  EXPECT(kl(torch::log_softmax(torch::randn({2, 3}), 1), torch::softmax(torch::randn({2, 3}), 1)).dim() == 0);
  torch::nn::L1Loss l1;
  torch::nn::HuberLoss hub;
  torch::nn::NLLLoss nll;
  torch::nn::CosineEmbeddingLoss cel;
  torch::nn::TripletMarginLoss tml;
  EXPECT(l1(torch::zeros(2), torch::ones(2)).item<float>() == 1);
  EXPECT(hub(torch::zeros(2), torch::ones(2)).item<float>() == 0.5);
  EXPECT(cel(torch::randn({2, 3}), torch::randn({2, 3}), torch::ones({2})).dim() == 0);
  EXPECT(tml(torch::randn({2, 3}), torch::randn({2, 3}), torch::randn({2, 3})).dim() == 0);
}
