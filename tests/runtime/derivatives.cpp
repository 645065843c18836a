// Derivatives of derivatives in a program without Python, compared with differences of first derivatives.
#include <torch/torch.h>

#include <functional>
#include <iostream>
#include <map>
#include <string>

using torch::Tensor;
using Function = std::function<Tensor(const Tensor&)>;

Tensor slope(const Function& f, const Tensor& x, bool create_graph) {
  return torch::autograd::grad({f(x).sum()}, {x}, {}, true, create_graph)[0];
}

bool agrees(const std::string& name, const Function& f, const Tensor& at) {
  const Tensor x = at.detach().clone().requires_grad_();
  const Tensor second = torch::autograd::grad({slope(f, x, true).sum()}, {x})[0];
  const double step = 1e-5;
  const Tensor above = (at + step).detach().requires_grad_(), below = (at - step).detach().requires_grad_();
  const Tensor expected = (slope(f, above, false) - slope(f, below, false)) / (2 * step);
  if (torch::allclose(second, expected, 1e-4, 1e-5)) return true;
  std::cerr << name << ": expected " << expected << ", got " << second << std::endl;
  return false;
}

int main() {
  const Tensor x = torch::tensor({0.3, 0.8, 1.7, 2.2}, torch::kDouble);
  const Tensor other = torch::tensor({1.5, 0.4, 2.5, 0.9}, torch::kDouble);
  const std::map<std::string, Function> functions = {
      {"sin", [](const Tensor& t) { return torch::sin(t); }},
      {"exp", [](const Tensor& t) { return torch::exp(t); }},
      {"log", [](const Tensor& t) { return torch::log(t); }},
      {"sqrt", [](const Tensor& t) { return torch::sqrt(t); }},
      {"rsqrt", [](const Tensor& t) { return torch::rsqrt(t); }},
      {"tanh", [](const Tensor& t) { return torch::tanh(t); }},
      {"sigmoid", [](const Tensor& t) { return torch::sigmoid(t); }},
      {"erf", [](const Tensor& t) { return torch::erf(t); }},
      {"reciprocal", [](const Tensor& t) { return torch::reciprocal(t); }},
      {"gelu", [](const Tensor& t) { return torch::gelu(t); }},
      {"gelu, tanh", [](const Tensor& t) { return torch::gelu(t, "tanh"); }},
      {"silu", [](const Tensor& t) { return torch::silu(t); }},
      {"mish", [](const Tensor& t) { return torch::mish(t); }},
      {"softplus", [](const Tensor& t) { return torch::softplus(t); }},
      {"elu", [](const Tensor& t) { return torch::elu(t - 1); }},
      {"log_sigmoid", [](const Tensor& t) { return torch::log_sigmoid(t); }},
      {"power", [](const Tensor& t) { return torch::pow(t, 3.5); }},
      {"power of a tensor", [&](const Tensor& t) { return torch::pow(t, other); }},
      {"power to a tensor", [&](const Tensor& t) { return torch::pow(other, t); }},
      {"quotient", [&](const Tensor& t) { return (t + 1) / (other * t * t + 2); }},
      {"product", [&](const Tensor& t) { return t * t * other * torch::cos(t); }},
      {"atan2", [&](const Tensor& t) { return torch::atan2(t, other); }},
      {"clamp", [](const Tensor& t) { return torch::clamp(t, 0.5, 2.0) * t; }},
      {"relu", [](const Tensor& t) { return torch::relu(t - 1) * t * t; }},
      {"where", [&](const Tensor& t) { return torch::where(t > 1, t * t * t, torch::exp(t)); }},
      {"maximum", [&](const Tensor& t) { return torch::maximum(t * t, other); }},
      {"loss", [&](const Tensor& t) { return torch::mse_loss(torch::sin(t), other) * 4; }},
      {"smooth loss", [&](const Tensor& t) { return torch::smooth_l1_loss(t * t, other) * 4; }},
      {"softmax", [&](const Tensor& t) { return torch::softmax(t, 0) * other; }},
      {"broadcast", [&](const Tensor& t) { return torch::exp(t.unsqueeze(0) * other.unsqueeze(1)); }},
  };
  bool all = true;
  for (const auto& [name, f] : functions) all = agrees(name, f, x) && all;

  // A penalty on the gradient of a model trains its weights.
  torch::manual_seed(0);
  torch::nn::Sequential model(torch::nn::Linear(3, 8), torch::nn::Functional(torch::tanh),
                              torch::nn::Linear(8, 1));
  const Tensor input = torch::randn({5, 3}).requires_grad_();
  const Tensor gradient = torch::autograd::grad({model->forward(input).sum()}, {input}, {}, true, true)[0];
  ((gradient.norm(2, 1) - 1).pow(2)).mean().backward();
  const Tensor weight_gradient = model->parameters()[0].grad();
  all = all && weight_gradient.defined() && weight_gradient.abs().sum().item<float>() > 0;
  return all ? 0 : 1;
}
