// Functions with derivatives of their own, options of modules and functions, and the state of optimizers.
#include <torch/torch.h>

#include <iostream>
#include <sstream>

#define EXPECT(condition)                                                \
  do {                                                                   \
    if (!(condition)) {                                                  \
      std::cerr << __LINE__ << ": expected " << #condition << std::endl; \
      return 1;                                                          \
    }                                                                    \
  } while (false)

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct Affine : torch::autograd::Function<Affine> {
  static torch::Tensor forward(AutogradContext* ctx, torch::Tensor x, torch::Tensor weight, double scale,
                               torch::Tensor bias = torch::Tensor()) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["scale"] = scale;
    torch::Tensor y = x.mm(weight.t()) * scale;
    return bias.defined() ? y + bias : y;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto saved = ctx->get_saved_variables();
    const double scale = ctx->saved_data["scale"].toDouble();
    const auto g = grads[0] * scale;
    return {g.mm(saved[1]), g.t().mm(saved[0]), torch::Tensor(), grads[0].sum(0)};
  }
};

struct Parts : torch::autograd::Function<Parts> {
  static tensor_list forward(AutogradContext* ctx, torch::Tensor x) {
    const auto root = x.sqrt();
    ctx->save_for_backward({root});
    return {root, x * 3};
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    return {grads[0] / (ctx->get_saved_variables()[0] * 2) + grads[1] * 3};
  }
};

struct Failing : torch::autograd::Function<Failing> {
  static torch::Tensor forward(AutogradContext*, torch::Tensor x) { return x * 2; }
  static tensor_list backward(AutogradContext*, tensor_list) {
    throw std::runtime_error("no derivative today");
  }
};

int custom_functions() {
  torch::manual_seed(0);
  auto x = torch::randn({2, 3}, torch::requires_grad()), w = torch::randn({4, 3}, torch::requires_grad());
  auto b = torch::randn({4}, torch::requires_grad());
  auto y = Affine::apply(x, w, 0.5, b);
  EXPECT(y.requires_grad() && y.grad_fn() != nullptr);
  const auto ours = torch::autograd::grad({y.sum()}, {x, w, b}, {}, true, true);
  const auto theirs = torch::autograd::grad({(x.mm(w.t()) * 0.5 + b).sum()}, {x, w, b}, {}, true, true);
  for (size_t i = 0; i < 3; ++i) EXPECT(torch::allclose(ours[i], theirs[i]));
  const auto second = torch::autograd::grad({ours[0].sum()}, {w});
  EXPECT(torch::allclose(second[0], torch::autograd::grad({theirs[0].sum()}, {w})[0]));
  EXPECT(!Affine::apply(x.detach(), w.detach(), 0.5).requires_grad());
  auto z = torch::rand({5}) + 0.5;
  z.requires_grad_(true);
  Parts::apply(z)[0].sum().backward();
  EXPECT(torch::allclose(z.grad(), 0.5 / z.detach().sqrt()));
  try {
    torch::autograd::grad({Parts::apply(z)[0].sum()}, {z}, {}, true, true);
    EXPECT(false);
  } catch (const std::exception& error) {
    EXPECT(std::string(error.what()).find("differentiated twice") != std::string::npos);
  }
  try {
    Failing::apply(z).sum().backward();
    EXPECT(false);
  } catch (const std::exception& error) {
    EXPECT(std::string(error.what()).find("no derivative today") != std::string::npos);
  }
  EXPECT((z * z).grad_fn()->name() == "MulBackward0" && z.grad_fn() == nullptr);
  return 0;
}

int options() {
  namespace F = torch::nn::functional;
  const auto x = torch::randn({2, 3});
  EXPECT(torch::allclose(torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.2))(x),
                         torch::where(x > 0, x, x * 0.2)));
  EXPECT(torch::allclose(F::softmax(x, F::SoftmaxFuncOptions(1)), x.softmax(1)));
  EXPECT(torch::allclose(torch::nn::Softmax(torch::nn::SoftmaxOptions(1))(x), x.softmax(1)));
  EXPECT(F::mse_loss(x, x * 0, F::MSELossFuncOptions(torch::kNone)).sizes() == x.sizes());
  EXPECT(F::mse_loss(x, x * 0, F::MSELossFuncOptions().reduction(torch::kSum)).dim() == 0);
  EXPECT(torch::nn::MSELoss(torch::nn::MSELossOptions(torch::kSum))(x, x).item<float>() == 0);
  const auto image = torch::randn({1, 2, 8, 8});
  EXPECT(F::max_pool2d(image, F::MaxPool2dFuncOptions(3).stride(2).padding(1)).size(2) == 4);
  EXPECT(F::pad(image, F::PadFuncOptions({1, 1, 2, 2}).mode(torch::kReflect)).size(2) == 12);
  const auto larger = F::interpolate(image, F::InterpolateFuncOptions()
                                                .size(std::vector<int64_t>{16, 16})
                                                .mode(torch::kBilinear)
                                                .align_corners(false));
  EXPECT(larger.size(3) == 16);
  const auto weight = torch::randn({4, 2, 3, 3});
  EXPECT(F::conv2d(image, weight, F::Conv2dFuncOptions().stride(2).padding({1, 1})).size(2) == 4);
  return 0;
}

int state_of_optimizers() {
  const auto train = [](torch::nn::Linear& model, torch::optim::Adam& optimizer, int steps) {
    for (int i = 0; i < steps; ++i) {
      optimizer.zero_grad();
      model(torch::ones({1, 3})).pow(2).sum().backward();
      optimizer.step();
    }
  };
  torch::nn::Linear model(3, 2), other(3, 2);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(0.1));
  torch::optim::Adam fresh(other->parameters(), torch::optim::AdamOptions(0.1));
  train(model, optimizer, 3);
  std::stringstream weights, moments;
  torch::save(model, weights);
  torch::save(optimizer, moments);
  torch::load(other, weights);
  torch::load(fresh, moments);
  train(model, optimizer, 2);
  train(other, fresh, 2);
  EXPECT(torch::allclose(model->weight, other->weight));
  return 0;
}

int main() {
  return custom_functions() || options() || state_of_optimizers();
}
