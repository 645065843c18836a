#include "expect.h"
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
    auto input = saved[0], weight = saved[1], bias = saved[2];
    auto grad_output = grad_outputs[0];
    auto grad_input = grad_output.mm(weight), grad_weight = grad_output.t().mm(input);
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
  auto x = torch::randn({2, 3}).requires_grad_(), weight = torch::randn({4, 3}).requires_grad_();
  auto y = LinearFunction::apply(x, weight);
  auto z = MulConstant::apply(x, 5.5);
  (y.sum() + z.sum()).backward();
  EXPECT(torch::allclose(x.grad(), weight.detach().sum(0).expand({2, 3}) + 5.5));
  auto a = torch::ones({2, 2}, torch::requires_grad());
  auto b = a + 2;
  EXPECT(b.grad_fn()->name() == "AddBackward0");
  auto out = (b * b * 3).mean();
  out.backward();
  EXPECT(torch::allclose(a.grad(), torch::full({2, 2}, 4.5)));
  auto v = torch::tensor({0.1, 1.0, 0.0001}, torch::kFloat);
  auto p = torch::randn(3, torch::requires_grad());
  (p * 2).backward(v);
  EXPECT(torch::allclose(p.grad(), v * 2));
  auto grads = torch::autograd::grad({(p * p).sum()}, {p}, /*grad_outputs=*/{}, /*retain_graph=*/true,
                                     /*create_graph=*/true);
  auto second = torch::autograd::grad({grads[0].sum()}, {p}, {}, true);
  EXPECT(torch::allclose(second[0], torch::full({3}, 2.0)));
  auto penalty = torch::pow(grads[0].norm(2, 0) - 1, 2).mean();
  penalty.backward();
  {
    torch::NoGradGuard no_grad;
    EXPECT(!(p * 2).requires_grad() && !torch::GradMode::is_enabled());
    {
      torch::AutoGradMode enable(true);
      EXPECT((p * 2).requires_grad());
    }
  }
  EXPECT(p.detach().requires_grad() == false && p.is_leaf());
  auto q = torch::randn(3, torch::requires_grad());
  auto handle = q.register_hook([](torch::Tensor g) { return g * 2; });
  q.sum().backward();
  EXPECT(torch::allclose(q.grad(), torch::full({3}, 2.0)));
  q.remove_hook(handle);
  q.mutable_grad() = torch::Tensor();
  q.sum().backward();
  EXPECT(torch::allclose(q.grad(), torch::ones({3})));
  q.grad().zero_();
  auto m = q * 3;
  m.retain_grad();
  m.sum().backward();
  EXPECT(m.grad().defined());
  Variable var = torch::ones({1});
  var.set_requires_grad(true);
  torch::autograd::backward({(var * 2).sum()}, {});
  EXPECT(var.grad().item<float>() == 2);
  // LBFGS
  auto t = torch::tensor({-1.0, 2.0}).requires_grad_();
  torch::optim::LBFGS lbfgs({t}, torch::optim::LBFGSOptions(1).max_iter(30).line_search_fn("strong_wolfe"));
  auto closure = [&]() -> torch::Tensor {
    lbfgs.zero_grad();
    auto loss = (1 - t[0]).pow(2) + 100 * (t[1] - t[0].pow(2)).pow(2);
    loss.backward();
    return loss;
  };
  for (int i = 0; i < 10; ++i) lbfgs.step(closure);
  EXPECT(torch::allclose(t.detach(), torch::ones({2}), 1e-2, 1e-2));
  auto w = torch::ones({2}).requires_grad_();
  torch::optim::Adagrad adagrad({w}, torch::optim::AdagradOptions(0.1).lr_decay(1e-3));
  (w * w).sum().backward();
  adagrad.step();
  EXPECT(w[0].item<float>() < 1);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  auto g1 = torch::ones({2}).requires_grad_(), g2 = torch::ones({2}).requires_grad_();
  groups.emplace_back(std::vector<torch::Tensor>{g1}, std::make_unique<torch::optim::SGDOptions>(0.5));
  groups.emplace_back(std::vector<torch::Tensor>{g2});
  torch::optim::SGD sgd(groups, torch::optim::SGDOptions(0.1));
  (g1.sum() + g2.sum()).backward();
  sgd.step();
  EXPECT(std::abs(g1[0].item<float>() - 0.5) < 1e-6 && std::abs(g2[0].item<float>() - 0.9) < 1e-6);
  torch::optim::ReduceLROnPlateauScheduler plateau(
      sgd, torch::optim::ReduceLROnPlateauScheduler::SchedulerMode::min, 0.5f, 1);
  for (int i = 0; i < 5; ++i) plateau.step(1.0f);
  EXPECT(sgd.param_groups()[1].options().get_lr() < 0.1);
}
