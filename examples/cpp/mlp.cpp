// Trains a small classifier on two spirals, with modules, dropout and Adam, and measures its accuracy.
#include <torch/torch.h>

#include <iostream>

struct Net : torch::nn::Module {
  Net() {
    fc1 = register_module("fc1", torch::nn::Linear(2, 64));
    fc2 = register_module("fc2", torch::nn::Linear(64, 64));
    fc3 = register_module("fc3", torch::nn::Linear(64, 2));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(fc1->forward(x));
    x = torch::dropout(x, /*p=*/0.05, /*train=*/is_training());
    x = torch::tanh(fc2->forward(x));
    return torch::log_softmax(fc3->forward(x), /*dim=*/1);
  }
  torch::nn::Linear fc1{nullptr}, fc2{nullptr}, fc3{nullptr};
};

std::pair<torch::Tensor, torch::Tensor> spirals(int64_t n) {
  const auto t = torch::rand({n}) * 6 + 0.5;
  const auto label = torch::randint(0, 2, {n}, torch::kLong);
  const auto angle = t + label.to(torch::kFloat) * 3.14159265;
  const auto points = torch::stack({t * torch::cos(angle), t * torch::sin(angle)}, 1) / 6;
  return {points + torch::randn({n, 2}) * 0.01, label};
}

int main() {
  torch::manual_seed(1);
  auto net = std::make_shared<Net>();
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(5e-3));
  for (int epoch = 1; epoch <= 400; ++epoch) {
    auto [points, label] = spirals(256);
    optimizer.zero_grad();
    auto loss = torch::nll_loss(net->forward(points), label);
    loss.backward();
    optimizer.step();
    if (epoch % 100 == 0) std::cout << "epoch " << epoch << " loss " << loss.item<float>() << std::endl;
  }
  net->eval();
  torch::NoGradGuard no_grad;
  auto [points, label] = spirals(1000);
  const auto correct = net->forward(points).argmax(1).eq(label).sum().item<int64_t>();
  std::cout << "accuracy " << correct / 1000.0 << std::endl;
  return correct > 950 ? 0 : 1;
}
