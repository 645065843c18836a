#include <deque>
#include <random>
#include "expect.h"
struct Transition {
  torch::Tensor state, action, next, reward;
};
struct DQNImpl : torch::nn::Module {
  DQNImpl(int64_t n, int64_t actions) : a(n, 32), b(32, 32), c(32, actions) {
    register_module("a", a);
    register_module("b", b);
    register_module("c", c);
  }
  torch::Tensor forward(torch::Tensor x) { return c(torch::relu(b(torch::relu(a(x))))); }
  torch::nn::Linear a, b, c;
};
TORCH_MODULE(DQN);
void soft_update(torch::nn::Module& target, torch::nn::Module& source, double tau) {
  torch::NoGradGuard guard;
  auto from = source.named_parameters();
  for (auto& p : target.named_parameters()) p.value().copy_(tau * from[p.key()] + (1 - tau) * p.value());
}
int main() {
  torch::manual_seed(0);
  DQN policy(4, 2), target(4, 2);
  soft_update(*target, *policy, 1.0);
  EXPECT(torch::equal(policy->a->weight, target->a->weight));
  torch::optim::AdamW optimizer(policy->parameters(), torch::optim::AdamWOptions(1e-3).amsgrad(true));
  std::deque<Transition> memory;
  std::mt19937 gen(0);
  for (int i = 0; i < 64; ++i) {
    std::vector<float> s(4);
    for (auto& v : s) v = std::uniform_real_distribution<float>(-1, 1)(gen);
    auto state = torch::from_blob(s.data(), {1, 4}).clone();
    memory.push_back(
        {state, torch::tensor({{i % 2}}, torch::kLong), state + 1, torch::tensor({1.0f * (i % 2)})});
  }
  for (int step = 0; step < 5; ++step) {
    std::vector<torch::Tensor> states, actions, nexts, rewards;
    for (auto& m : memory) {
      states.push_back(m.state);
      actions.push_back(m.action);
      nexts.push_back(m.next);
      rewards.push_back(m.reward);
    }
    auto q = policy(torch::cat(states)).gather(1, torch::cat(actions));
    torch::Tensor v;
    {
      torch::NoGradGuard g;
      v = std::get<0>(target(torch::cat(nexts)).max(1));
    }
    auto expected = (v * 0.99) + torch::cat(rewards);
    torch::nn::SmoothL1Loss criterion;
    auto loss = criterion(q, expected.unsqueeze(1));
    optimizer.zero_grad();
    loss.backward();
    for (auto& p : policy->parameters()) p.grad().data().clamp_(-1, 1);
    optimizer.step();
    soft_update(*target, *policy, 0.01);
  }
  auto dist = torch::softmax(policy(torch::zeros({1, 4})), -1);
  EXPECT(dist.multinomial(1).item<int64_t>() < 2);
  EXPECT(policy(torch::zeros({1, 4})).argmax().item().toInt() < 2);
}
