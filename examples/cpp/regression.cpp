// Fits a polynomial with a linear layer: a training loop in C++ without Python.
#include <torch/torch.h>

#include <cmath>
#include <iostream>

constexpr int64_t kDegree = 4, kBatch = 32;

// Powers of x as columns.
torch::Tensor make_features(torch::Tensor x) {
  x = x.unsqueeze(1);
  std::vector<torch::Tensor> powers;
  for (int64_t i = 0; i < kDegree; ++i) powers.push_back(x.pow(i + 1));
  return torch::cat(powers, 1);
}

int main() {
  torch::manual_seed(0);
  const torch::Tensor weight = torch::randn({kDegree, 1}) * 5;
  const torch::Tensor bias = torch::randn({1}) * 5;

  torch::nn::Linear fc(kDegree, 1);
  torch::optim::SGD optimizer(fc->parameters(), 0.1);
  float loss = 0;
  int64_t batch = 0;
  while (batch++ < 5000) {
    const torch::Tensor x = make_features(torch::randn({kBatch}).clamp(-1.5, 1.5));
    const torch::Tensor y = torch::mm(x, weight) + bias;
    optimizer.zero_grad();
    torch::Tensor output = torch::smooth_l1_loss(fc(x), y);
    loss = output.item<float>();
    output.backward();
    optimizer.step();
    if (loss < 1e-3f) break;
  }
  std::cout << "loss " << loss << " after " << batch << " batches" << std::endl;
  std::cout << "learned: " << fc->weight << "\nmeant:   " << weight.t() << std::endl;
  return loss < 1e-2f ? 0 : 1;
}
