#include "expect.h"
struct NetImpl : torch::nn::Module {
  NetImpl(int64_t vocabulary, int64_t width)
      : embedding(register_module("embedding", torch::nn::Embedding(vocabulary, width))),
        lstm(torch::nn::LSTMOptions(width, width).num_layers(2).batch_first(true).dropout(0.1)),
        head(width, vocabulary) {
    register_module("lstm", lstm);
    register_module("head", head);
  }
  torch::Tensor forward(torch::Tensor x) {
    auto [y, state] = lstm(embedding(x));
    auto [h, c] = state;
    EXPECT(h.size(0) == 2 && c.size(0) == 2);
    return head(y);
  }
  torch::nn::Embedding embedding;
  torch::nn::LSTM lstm;
  torch::nn::Linear head;
};
TORCH_MODULE(Net);
int main() {
  torch::manual_seed(1);
  Net net(11, 16);
  torch::optim::Adam optimizer(net->parameters(),
                               torch::optim::AdamOptions(1e-2).betas({0.9, 0.99}).weight_decay(1e-4));
  torch::optim::StepLR scheduler(optimizer, 10, 0.5);
  torch::nn::CrossEntropyLoss criterion;
  auto x = torch::randint(11, {4, 7}, torch::kLong);
  double first = 0, last = 0;
  for (int i = 0; i < 40; ++i) {
    net->train();
    optimizer.zero_grad();
    auto logits = net->forward(x);
    auto loss = criterion(logits.reshape({-1, 11}), x.reshape(-1));
    loss.backward();
    torch::nn::utils::clip_grad_norm_(net->parameters(), 1.0);
    optimizer.step();
    scheduler.step();
    if (i == 0) first = loss.item<double>();
    last = loss.item<double>();
  }
  EXPECT(last < first * 0.6);
  double lr = static_cast<torch::optim::AdamOptions&>(optimizer.param_groups()[0].options()).lr();
  EXPECT(std::abs(lr - 1e-2 / 8) < 1e-9);
  torch::nn::GRU gru(torch::nn::GRUOptions(3, 5).bidirectional(true));
  auto out = gru->forward(torch::randn({6, 2, 3}));
  EXPECT(std::get<0>(out).sizes() == (std::vector<int64_t>{6, 2, 10}));
  EXPECT(std::get<1>(out).size(0) == 2);
  torch::nn::RNN rnn(torch::nn::RNNOptions(3, 5).nonlinearity(torch::kReLU));
  auto r = rnn(torch::randn({6, 2, 3}), torch::zeros({1, 2, 5}));
  EXPECT(std::get<0>(r).size(2) == 5);
  torch::nn::LSTMCell cell(3, 4);
  auto [h, c] = cell(torch::randn({2, 3}));
  auto hc = cell(torch::randn({2, 3}), std::make_tuple(h, c));
  EXPECT(std::get<0>(hc).size(1) == 4);
  torch::nn::GRUCell gcell(3, 4);
  EXPECT(gcell(torch::randn({2, 3})).size(1) == 4);
}
