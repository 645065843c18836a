// The C++ interface in PyTorch's shape, in a program without Python: interface PACKAGE.
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/torch.h>

#include <cmath>
#include <iostream>
#include <thread>

namespace F = torch::nn::functional;
using namespace torch::indexing;

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      std::cerr << __FILE__ << ":" << __LINE__ << ": " #condition << std::endl; \
      std::exit(1);                                                             \
    }                                                                           \
  } while (false)

void test_creation() {
  const auto a = torch::tensor({{1, 2}, {3, 4}});
  CHECK(a.dtype() == torch::kLong && a.sizes() == torch::IntArrayRef({2, 2}));
  CHECK(torch::tensor({1.5, 2.5}).dtype() == torch::kFloat);
  CHECK(torch::tensor(std::vector<double>{1, 2}, torch::kDouble).dtype() == torch::kDouble);
  CHECK(torch::arange(10).reshape({2, 5}).sum(1)[1].item<int>() == 35);
  CHECK(torch::zeros({2, 3}, torch::dtype(torch::kInt)).dtype() == torch::kInt);
  float data[] = {1, 2, 3, 4, 5, 6};
  const auto blob = torch::from_blob(data, {2, 3});
  data[0] = 10;
  CHECK(blob.sum().item<float>() == 30);
  const auto accessor = blob.accessor<float, 2>();
  CHECK(accessor[1][2] == 6 && accessor.size(1) == 3);
  bool freed = false;
  torch::from_blob(data, {6}, [&](void*) { freed = true; });
  CHECK(freed);
}

void test_operators() {
  const auto x = torch::arange(1, 7, torch::kFloat).reshape({2, 3});
  CHECK((1.0 - torch::ones({2})).sum().item<float>() == 0);
  CHECK((2 / torch::full({1}, 4.0)).item<float>() == 0.5f);
  CHECK(((x > 3) & (x < 6)).sum().item<int64_t>() == 2);
  const auto [values, places] = torch::max(x, 1);
  CHECK(places[1].item<int64_t>() == 2 && values[0].item<float>() == 3);
  CHECK(torch::where(x > 3, x, torch::zeros_like(x)).sum().item<float>() == 15);
  CHECK(torch::clamp(x, 2, 4).max().item<float>() == 4);
  CHECK(torch::einsum("ij,kj->ik", {x, x}).equal(x.mm(x.t())));
  CHECK(x.split(1, 0).size() == 2 && torch::stack({x, x}).dim() == 3);
  CHECK(std::abs(torch::softmax(x, 1).sum().item<double>() - 2) < 1e-5);
  CHECK(F::layer_norm(x, {3}).mean().abs().item<float>() < 1e-5f);
  CHECK(std::abs(torch::linalg::det(torch::eye(3) * 2).item<double>() - 8) < 1e-4);
  CHECK(F::pad(x, {1, 1}).size(1) == 5);
  const auto labels = torch::tensor({0, 2});
  const float sum = torch::nll_loss(x, labels, {}, torch::Reduction::Sum).item<float>();
  CHECK(sum == -7 && torch::nll_loss(x, labels).item<float>() == -3.5f);
  CHECK(torch::mse_loss(x, x + 1, torch::Reduction::Sum).item<float>() == 6);
  auto y = torch::zeros({3, 4});
  y[1] = torch::ones({4});
  y.index_put_({Slice(), 2}, 7.0);
  CHECK(y.index({1, Slice(1, 3)}).sum().item<float>() == 8);
  CHECK(y.index({"...", 0}).size(0) == 3 && y.index({None}).dim() == 3);
  std::ostringstream text;
  text << torch::tensor({{1, 2}, {3, 4}});
  CHECK(text.str() == " 1  2\n 3  4\n[ CPULongType{2,2} ]");
}

void test_gradients() {
  auto x = torch::ones({2, 2}, torch::requires_grad());
  auto y = x + 2;
  (y * y * 3).mean().backward();
  CHECK(torch::allclose(x.grad(), torch::full({2, 2}, 4.5)));
  CHECK(torch::autograd::grad({(x * x).sum()}, {x})[0].sum().item<float>() == 8);
  {
    torch::NoGradGuard guard;
    CHECK(!(x * 2).requires_grad());
  }
  CHECK((x * 2).requires_grad() && !x.detach().requires_grad());
}

void test_modules() {
  torch::nn::Sequential net(torch::nn::Linear(3, 8), torch::nn::ReLU(), torch::nn::BatchNorm1d(8),
                            torch::nn::Linear(torch::nn::LinearOptions(8, 2).bias(false)));
  const auto out = net->forward(torch::randn({5, 3}));
  F::cross_entropy(out, torch::randint(0, 2, {5})).backward();
  CHECK(net->parameters().size() == 5 && net->parameters()[0].grad().defined());
  CHECK(net->named_parameters().contains("0.weight"));
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(1, 4, 3).stride(1).padding(1));
  CHECK(torch::max_pool2d(conv->forward(torch::randn({2, 1, 8, 8})), 2).sizes() ==
        torch::IntArrayRef({2, 4, 4, 4}));
}

void test_layers() {
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(3, 5).num_layers(2).batch_first(true));
  const auto [out, state] = lstm->forward(torch::randn({2, 4, 3}));
  CHECK(out.sizes() == torch::IntArrayRef({2, 4, 5}) && std::get<0>(state).size(0) == 2);
  torch::nn::ConvTranspose2d up(torch::nn::ConvTranspose2dOptions(4, 2, 4).stride(2).padding(1).bias(false));
  CHECK(up(torch::randn({1, 4, 8, 8})).size(2) == 16);
  torch::nn::Sequential net(torch::nn::Linear(3, 4),
                            torch::nn::Functional([](torch::Tensor x) { return x * 2; }));
  const auto before = net->forward(torch::ones({1, 3}));
  std::stringstream file;
  torch::save(net, file);
  {
    torch::NoGradGuard guard;
    net->parameters()[0].zero_();
  }
  torch::load(net, file);
  CHECK(torch::equal(before, net->forward(torch::ones({1, 3}))));
}

void test_errors() {
  try {
    torch::mm(torch::ones({2, 3}), torch::ones({2, 3}));
    CHECK(false);
  } catch (const c10::Error& error) {
    CHECK(std::string(error.what()).find("[mm] expected") == 0);
  }
}

void test_package(const char* path) {
  const torch::inductor::AOTIModelPackageLoader model(path);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 40; ++i) {
        const auto out = model.run({torch::ones({1 + (i + t) % 20, 6})})[0];
        CHECK(out.size(0) == 1 + (i + t) % 20 && std::abs(out[0].sum().item<float>() - 1) < 1e-5f);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  test_creation();
  test_operators();
  test_gradients();
  test_modules();
  test_layers();
  test_errors();
  test_package(argv[1]);
  return 0;
}
