// Derivatives of the program's own, hooks, modes and double backward.
#include <torch/torch.h>
#include <iostream>
using namespace torch::autograd;
class LinearFunction : public Function<LinearFunction> {
 public:
  static torch::Tensor forward(AutogradContext* ctx, torch::Tensor input, torch::Tensor weight,
                               torch::Tensor bias = torch::Tensor()) {
    ctx->save_for_backward({input, weight, bias});
    auto output = input.mm(weight.t());
    if (bias.defined()) output += bias.unsqueeze(0).expand_as(output);
    return output;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grad_outputs) {
    auto saved = ctx->get_saved_variables();
    auto input = saved[0];
    auto weight = saved[1];
    auto bias = saved[2];
    auto grad_output = grad_outputs[0];
    auto grad_input = grad_output.mm(weight);
    auto grad_weight = grad_output.t().mm(input);
    auto grad_bias = torch::Tensor();
    if (bias.defined()) grad_bias = grad_output.sum(0);
    return {grad_input, grad_weight, grad_bias};
  }
};
class MulConstant : public Function<MulConstant> {
 public:
  static torch::Tensor forward(AutogradContext* ctx, torch::Tensor tensor, double constant) {
    ctx->saved_data["constant"] = constant;
    return tensor * constant;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grad_outputs) {
    return {grad_outputs[0] * ctx->saved_data["constant"].toDouble(), torch::Tensor()};
  }
};
int main() {
  auto x = torch::ones({2, 2}, torch::requires_grad());
  auto y = x + 2;
  std::cout << y.grad_fn()->name() << std::endl;
  auto z = y * y * 3;
  auto out = z.mean();
  out.backward();
  std::cout << x.grad() << std::endl;
  x = torch::randn(3, torch::requires_grad());
  y = x * 2;
  while (y.norm().item<double>() < 1000) y = y * 2;
  auto v = torch::tensor({0.1, 1.0, 0.0001}, torch::kFloat);
  y.backward(v);
  auto model = torch::nn::Linear(4, 3);
  auto input = torch::randn({3, 4}).requires_grad_(true);
  auto output = model(input);
  auto target = torch::randn({3, 3});
  auto loss = torch::nn::MSELoss()(output, target);
  auto grad_output = torch::ones_like(output);
  auto gradient =
      torch::autograd::grad({output}, {input}, /*grad_outputs=*/{grad_output}, /*create_graph=*/true)[0];
  auto gradient_penalty = torch::pow((gradient.norm(2, /*dim=*/1) - 1), 2).mean();
  auto combined_loss = loss + gradient_penalty;
  combined_loss.backward();
  auto a = torch::randn({2, 3}).requires_grad_(), w = torch::randn({4, 3}).requires_grad_();
  auto r = LinearFunction::apply(a, w);
  r.sum().backward();
  auto b = torch::randn({2}).requires_grad_();
  auto c = MulConstant::apply(b, 5.5);
  c.sum().backward();
  std::cout << b.grad() << a.grad() << std::endl;
  auto h = b.register_hook([](torch::Tensor grad) { return grad * 2; });
  b.remove_hook(h);
  {
    torch::InferenceMode guard;
    auto q = torch::ones({2});
  }
  {
    torch::AutoGradMode enable_grad(false);
    auto p = x * 2;
    TORCH_CHECK(!p.requires_grad());
  }
  auto [values, indices] = torch::max(a, 1);
  auto sorted = torch::sort(a, 1);
  std::cout << std::get<0>(sorted).slice(1, 0, 2) << values << indices << '\n';
}
