// Waves continued by LSTM cells and LBFGS.
#include <torch/torch.h>
#include <iostream>
using namespace torch;
struct SequenceImpl : nn::Module {
  SequenceImpl() {
    lstm1 = register_module("lstm1", nn::LSTMCell(1, 21));
    lstm2 = register_module("lstm2", nn::LSTMCell(21, 21));
    linear = register_module("linear", nn::Linear(21, 1));
  }
  Tensor forward(Tensor input, int64_t future = 0) {
    std::vector<Tensor> outputs;
    auto h_t = torch::zeros({input.size(0), 21}, torch::kDouble),
         c_t = torch::zeros({input.size(0), 21}, torch::kDouble);
    auto h_t2 = torch::zeros_like(h_t), c_t2 = torch::zeros_like(c_t);
    Tensor output;
    for (auto& input_t : input.split(1, 1)) {
      std::tie(h_t, c_t) = lstm1(input_t, std::make_tuple(h_t, c_t));
      std::tie(h_t2, c_t2) = lstm2(h_t, std::make_tuple(h_t2, c_t2));
      output = linear(h_t2);
      outputs.push_back(output);
    }
    for (int64_t i = 0; i < future; i++) {
      std::tie(h_t, c_t) = lstm1(output, std::make_tuple(h_t, c_t));
      std::tie(h_t2, c_t2) = lstm2(h_t, std::make_tuple(h_t2, c_t2));
      output = linear(h_t2);
      outputs.push_back(output);
    }
    return torch::cat(outputs, 1);
  }
  nn::LSTMCell lstm1{nullptr}, lstm2{nullptr};
  nn::Linear linear{nullptr};
};
TORCH_MODULE(Sequence);
int main() {
  torch::manual_seed(0);
  auto x = torch::arange(20, torch::kDouble).unsqueeze(0) + torch::randint(-4, 4, {5, 1}, torch::kDouble);
  auto data = torch::sin(x / 20.0);
  using namespace torch::indexing;
  auto input = data.index({Slice(3, None), Slice(None, -1)}),
       target = data.index({Slice(3, None), Slice(1, None)});
  Sequence seq;
  seq->to(torch::kDouble);
  auto criterion = nn::MSELoss();
  optim::LBFGS optimizer(seq->parameters(), optim::LBFGSOptions(0.8).max_iter(4));
  for (int i = 0; i < 2; i++) {
    auto closure = [&]() {
      optimizer.zero_grad();
      auto out = seq(input);
      auto loss = criterion(out, target);
      loss.backward();
      return loss;
    };
    std::cout << "loss: " << optimizer.step(closure).item<double>() << std::endl;
    torch::NoGradGuard no_grad;
    auto pred = seq->forward(input, 10);
    if (pred.size(1) != input.size(1) + 10) return 1;
  }
}
